"""The client's side of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER: challenges of a server → answers.

Knows the mechanisms' messages, not how Kafka frames them (proxy/listener/login/login.py) nor where
credentials come from. No password, token or proof is in an error, a repr or a chained exception. Names and
passwords go as Kafka's own client sends them: UTF-8 without SASLprep, `=` and `,` of a SCRAM name escaped,
no authzid.

Source: RFC 4616, RFC 5802, RFC 7677, RFC 7628; ScramSaslClient, ScramFormatter, OAuthBearerSaslClient.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, Protocol

from sluice.protocol.errors import ProtocolError
from sluice.protocol.sasl import OAUTHBEARER_GIVE_UP

SCRAM_HASHES: Final[Mapping[str, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""Mechanism → its hash, as hashlib names it."""
MECHANISMS: Final = ("PLAIN", *SCRAM_HASHES, "OAUTHBEARER")

MIN_ITERATIONS: Final = 4096
"""Fewer would make the password cheap to guess from the proof (ScramMechanism.minIterations)."""
MAX_ITERATIONS: Final = 16_384
"""Some 20 ms of work. A server may not keep us busy as long as it likes (ScramMechanism.maxIterations)."""
_KEPT_SALTS: Final = 8
"""A user has one salt for each mechanism, and another one after a change of the password."""

_NONCE: Final = re.compile(r"[\x21-\x2b\x2d-\x7e]+")
_SERVER_FIRST: Final = re.compile(
    rb"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>[A-Za-z0-9+/]+={0,2})"
    rb",i=(?P<iterations>[1-9][0-9]{0,9})(?:,[A-Za-z]+=[^,\0]+)*"
)
_SERVER_FINAL: Final = re.compile(
    rb"(?:v=(?P<signature>[A-Za-z0-9+/]+={0,2})|e=(?P<error>[^=,\0]+))(?:,[A-Za-z]+=[^,\0]+)*"
)
_TOKEN: Final = re.compile(r"[-_~+/.A-Za-z0-9]+=*")
_EXTENSION_KEY: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x20-\x7e\t\r\n]+")


class SaslClientError(ProtocolError):
    """What the server says is no message of the mechanism, refuses us, asks too much, or proves nothing."""

    cause = "upstream_login_failed"


class SaslClient(Protocol):
    """One exchange; an object serves one."""

    def first(self) -> bytes:
        """The client's first message: called once, first."""
        ...

    def respond(self, challenge: bytes) -> bytes | None:
        """The answer to what the server sent; None: the exchange is over and the server has said yes.

        Raises SaslClientError.
        """
        ...

    @property
    def refusal(self) -> str:
        """Why the server refuses, in its own words, which may be hostile; empty before it does."""
        ...


class PlainClient:
    """PLAIN (RFC 4616): the password itself, so only on an encrypted or trusted way."""

    refusal = ""

    def __init__(self, username: str, password: str) -> None:
        """Raises ValueError for what PLAIN cannot carry: nothing at all, or a NUL."""
        self._message = b"\0" + _plain_part(username, "username") + b"\0" + _plain_part(password, "password")

    def first(self) -> bytes:
        """`NUL username NUL password`."""
        return self._message

    def respond(self, challenge: bytes) -> None:
        """Nothing is left to say; PLAIN has no challenges, and Kafka's client looks at none."""


class SaltedPasswords:
    """One password, and what SCRAM makes of it with the salts seen last.

    Salting is made to be slow (4,096 iterations: some 2 ms), and a proxy logs in again for each client, so it
    is done once for each salt. What is kept is worth as much as the password (RFC 5802, 9).
    """

    def __init__(self, password: str) -> None:
        """Raises ValueError for an empty password."""
        self._password = _utf8(password, "password")
        self._salted: OrderedDict[tuple[str, bytes, int], bytes] = OrderedDict()

    def salted(self, hash_name: str, salt: bytes, iterations: int) -> bytes:
        """Hi(password, salt, iterations) of RFC 5802, 2.2."""
        key = (hash_name, salt, iterations)
        found = self._salted.get(key)
        if found is None:
            found = hashlib.pbkdf2_hmac(hash_name, self._password, salt, iterations)
            if len(self._salted) >= _KEPT_SALTS:
                self._salted.popitem(last=False)
            self._salted[key] = found
        return found


class ScramClient:
    """SCRAM (RFC 5802) without channel binding: proves the password, and that the server knows it as well."""

    def __init__(self, mechanism: str, username: str, passwords: SaltedPasswords, nonce: str) -> None:
        """`nonce`: never used before, printable ASCII without a comma (secrets.token_urlsafe).

        Raises ValueError for another nonce, a username that is empty or not Unicode, an unknown mechanism.
        """
        if not _NONCE.fullmatch(nonce):
            raise ValueError("a SCRAM nonce must be printable ASCII without a comma")
        if mechanism not in SCRAM_HASHES:
            raise ValueError(f"{mechanism} is no SCRAM mechanism of Kafka's")
        self._hash_name = SCRAM_HASHES[mechanism]
        self._passwords = passwords
        self._nonce = nonce.encode()
        name = _utf8(username, "username").replace(b"=", b"=3D").replace(b",", b"=2C")
        self._first_bare = b"n=%b,r=%b" % (name, self._nonce)
        self._server_signature: bytes | None = None
        self.refusal = ""

    def first(self) -> bytes:
        """client-first: name and nonce."""
        return b"n,," + self._first_bare

    def respond(self, challenge: bytes) -> bytes | None:
        """client-final to server-first; None to a server-final that proves the server knows the password."""
        if self._server_signature is None:
            return self._proof(challenge)
        final = _SERVER_FINAL.fullmatch(challenge)
        if final is None:
            raise SaslClientError("the broker's last SCRAM message is malformed")
        if final["error"] is not None:
            self.refusal = final["error"].decode(errors="replace")
            raise SaslClientError("the broker refused the SCRAM proof")
        if not hmac.compare_digest(_decoded(final["signature"]), self._server_signature):
            raise SaslClientError("the broker does not know the password: its SCRAM signature is wrong")
        return None

    def _proof(self, server_first: bytes) -> bytes:
        match = _SERVER_FIRST.fullmatch(server_first)
        if match is None:
            raise SaslClientError("the broker's first SCRAM message is malformed")
        nonce, iterations = match["nonce"], int(match["iterations"])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise SaslClientError("the broker's SCRAM nonce does not go on from ours")
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
            raise SaslClientError(
                f"the broker asks for {iterations} SCRAM iterations;"
                f" only {MIN_ITERATIONS} to {MAX_ITERATIONS} are accepted"
            )
        salted = self._passwords.salted(self._hash_name, _decoded(match["salt"]), iterations)
        client_key = hmac.digest(salted, b"Client Key", self._hash_name)
        without_proof = b"c=biws,r=" + nonce  # biws: base 64 of the header `n,,`
        signed = b",".join((self._first_bare, server_first, without_proof))
        stored_key = hashlib.new(self._hash_name, client_key).digest()
        signature = hmac.digest(stored_key, signed, self._hash_name)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", self._hash_name)
        self._server_signature = hmac.digest(server_key, signed, self._hash_name)
        return without_proof + b",p=" + base64.b64encode(proof)


class OauthBearerClient:
    """OAUTHBEARER (RFC 7628; KIP-255, KIP-342): a bearer token, so only on an encrypted or trusted way."""

    def __init__(self, token: str, extensions: Mapping[str, str] | None = None) -> None:
        """`extensions`: SASL extensions (KIP-342), as some hosted brokers want: `logicalCluster`, ….

        Raises ValueError for a token or an extension that the message cannot carry, `auth` among them.
        """
        if not _TOKEN.fullmatch(token):
            raise ValueError("not a bearer token (RFC 6750, 2.1)")
        pairs = [f"auth=Bearer {token}"]
        for key, value in (extensions or {}).items():
            if not is_extension(key, value):
                raise ValueError("not a SASL extension: letters (not `auth`) = printable ASCII")
            pairs.append(f"{key}={value}")
        self._message = "\x01".join(("n,,", *pairs, "", "")).encode()
        self.refusal = ""

    def first(self) -> bytes:
        """The token and the extensions."""
        return self._message

    def respond(self, challenge: bytes) -> bytes | None:
        """None to an empty challenge: yes. To a refusal `^A`, upon which the server ends the exchange."""
        if self.refusal:
            raise SaslClientError("the broker goes on after it refused the token")
        if not challenge:
            return None
        self.refusal = challenge.decode(errors="replace")
        return OAUTHBEARER_GIVE_UP


def is_token(text: str) -> bool:
    """Whether `text` can be sent as a bearer token."""
    return _TOKEN.fullmatch(text) is not None


def is_extension(key: str, value: str) -> bool:
    """Whether OAUTHBEARER can carry this extension (OAuthBearerClientInitialResponse.validateExtensions)."""
    return key != "auth" and bool(_EXTENSION_KEY.fullmatch(key) and _EXTENSION_VALUE.fullmatch(value))


def _plain_part(text: str, what: str) -> bytes:
    data = _utf8(text, what)
    if b"\0" in data:
        raise ValueError(f"PLAIN cannot carry a {what} with a NUL")
    return data


def _utf8(text: str, what: str) -> bytes:
    data = text.encode(errors="replace")  # strict would put the text into its exception
    if not text or data.decode() != text:
        raise ValueError(f"the {what} is empty or not Unicode")
    return data


def _decoded(data: bytes) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except ValueError:
        pass  # raised outside: no chain
    raise SaslClientError("the broker's SCRAM message holds no base 64")
