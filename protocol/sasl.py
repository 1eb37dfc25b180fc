"""SaslHandshake and SaslAuthenticate, and the mechanism messages inside that name a principal: PLAIN, SCRAM,
OAUTHBEARER.

Bytes → who the client says it is, and what the broker answered; who is *believed* is the business of
sluice.proxy.session.sasl_observer. No password, token or proof is returned, kept, or quoted in an error:
where a message holds one, errors carry no bytes and chain no exception. A form that two brokers could read
as two names is refused.

Source: SaslHandshake*.json, SaslAuthenticate*.json 4.3.1; RFC 4616 and PlainSaslServer; RFC 5802 and
ScramMessages, ScramSaslServer; RFC 7628 and OAuthBearerClientInitialResponse, BrokerJwtValidator.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import Final, NamedTuple

from sluice.protocol.apis import SASL_AUTHENTICATE, SASL_HANDSHAKE, readable_versions
from sluice.protocol.errors import MalformedFrame, UnsupportedVersion
from sluice.protocol.primitives import (
    NULL,
    Buffer,
    array_count,
    compact_nullable_string,
    int16,
    int32,
    int64,
    nullable_string,
    skip,
    skip_tags,
    string,
    text,
    uvarint,
)

_FIRST_WITH_LIFETIME: Final = 1
_FIRST_FLEXIBLE: Final = 2

OAUTHBEARER_GIVE_UP: Final = b"\x01"
"""What an OAUTHBEARER client sends after a refusal, so that the server may end the exchange (RFC 7628,
3.2.3).
"""

_BAD_ESCAPE: Final = re.compile("=(?!2C|3D)")
_CLIENT_FIRST: Final = re.compile(
    r"n,(?:a=(?P<authzid>[^,\0]+))?,n=(?P<user>[^,\0]+),r=[\x21-\x2b\x2d-\x7e]+"
    r"(?P<extensions>(?:,[A-Za-z]+=[^,\0]+)*)"
)
_SERVER_FIRST: Final = re.compile(
    rb"r=[\x21-\x2b\x2d-\x7e]+,s=[A-Za-z0-9+/=]*,i=[0-9]+(?:,[A-Za-z]+=[^,\0]+)*"
)
_SERVER_FINAL: Final = re.compile(
    rb"(?:v=(?P<signature>[A-Za-z0-9+/]+={0,2})|e=[^=,\0]+)(?:,[A-Za-z]+=[^,\0]+)*"
)
_OAUTH_INITIAL: Final = re.compile(
    r"n,(?:a=(?P<authzid>[^,\0]+))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x20-\x7e\t\r\n]+\x01)*)\x01"
)
_BEARER: Final = re.compile(r"(?i:bearer) +(?P<token>[-_~+/.A-Za-z0-9]+=*)")
_BASE64URL: Final = re.compile(r"[A-Za-z0-9_-]+")
_JWS_PARTS: Final = 3
_JAVA_WHITESPACE: Final = "".join(map(chr, range(0x21)))
"""What Java's String.trim() takes off; BrokerJwtValidator trims the subject."""


class AuthenticateAnswer(NamedTuple):
    """A SaslAuthenticate response; the server's token stands at `buf[token_start:token_end]`."""

    error_code: int
    error_message: str | None
    token_start: int
    token_end: int
    session_lifetime_ms: int
    """when to authenticate again (KIP-368); 0: never, or not over yet"""


class ScramClient(NamedTuple):
    """Whom a SCRAM client-first message names."""

    name: str
    """the user; with `is_token` the id of a delegation token, whose owner is not named"""
    is_token: bool


def read_handshake_request(buf: Buffer, pos: int, end: int, version: int) -> str:
    """The mechanism that a SaslHandshake request (v0–1) whose body is `buf[pos:end]` asks for."""
    _known(SASL_HANDSHAKE, version)
    mechanism, pos = string(buf, pos, end)
    _ends(pos, end)
    return mechanism


def read_handshake_response(buf: Buffer, pos: int, end: int, version: int) -> tuple[int, tuple[str, ...]]:
    """Error code and the broker's mechanisms of a SaslHandshake response (v0–1)."""
    _known(SASL_HANDSHAKE, version)
    error_code, pos = int16(buf, pos, end)
    count, pos = array_count(buf, pos, end, 2)
    if count == NULL:
        raise MalformedFrame("null array of mechanisms", offset=pos)
    mechanisms = []
    for _ in range(count):
        mechanism, pos = string(buf, pos, end)
        mechanisms.append(mechanism)
    _ends(pos, end)
    return error_code, tuple(mechanisms)


def locate_auth_bytes(buf: Buffer, pos: int, end: int, version: int) -> tuple[int, int]:
    """Where the client's token stands in a SaslAuthenticate request (v0–2): `buf[start:stop]`."""
    _known(SASL_AUTHENTICATE, version)
    start, stop = _token(buf, pos, end, version)
    _ends(skip_tags(buf, stop, end) if version >= _FIRST_FLEXIBLE else stop, end)
    return start, stop


def read_authenticate_response(buf: Buffer, pos: int, end: int, version: int) -> AuthenticateAnswer:
    """A SaslAuthenticate response (v0–2)."""
    _known(SASL_AUTHENTICATE, version)
    flexible = version >= _FIRST_FLEXIBLE
    error_code, pos = int16(buf, pos, end)
    error_message, pos = (compact_nullable_string if flexible else nullable_string)(buf, pos, end)
    start, stop = _token(buf, pos, end, version)
    pos = stop
    lifetime_ms = 0
    if version >= _FIRST_WITH_LIFETIME:
        lifetime_ms, pos = int64(buf, pos, end)
    _ends(skip_tags(buf, pos, end) if flexible else pos, end)
    return AuthenticateAnswer(error_code, error_message, start, stop, lifetime_ms)


def plain_user(message: bytes) -> str:
    """The user that a PLAIN message `[authzid] NUL authcid NUL passwd` names: authcid.

    Raises MalformedFrame where PlainSaslServer would refuse: other than three parts, no user, no password, an
    authzid that is not the user, or bytes that are not UTF-8 (Java would replace them, so that many messages
    were one name).
    """
    parts = message.split(b"\0")
    if len(parts) != 3:
        raise MalformedFrame(f"PLAIN message of {len(parts)} parts")
    authzid, user, password = parts
    if not user or not password:
        raise MalformedFrame("PLAIN message without a user or a password")
    if authzid not in {b"", user}:
        raise MalformedFrame("PLAIN authzid is not the user")
    return text(user, 0, len(user))


def scram_client(message: bytes) -> ScramClient:
    """Whom a SCRAM client-first message names; `=2C` and `=3D` in the name mean comma and equals sign.

    Raises MalformedFrame for channel binding or a mandatory extension (Kafka has none), an authzid that is
    not the name, and an attribute given twice: of two `tokenauth` Kafka takes the last, another broker
    perhaps the first.
    """
    match = _CLIENT_FIRST.fullmatch(text(message, 0, len(message)))
    if match is None:
        raise MalformedFrame("not a SCRAM client-first message")
    name = _unescaped(match["user"])
    if match["authzid"] is not None and _unescaped(match["authzid"]) != name:
        raise MalformedFrame("SCRAM authzid is not the user")
    is_token = False
    seen: set[str] = set()
    for extension in match["extensions"].split(",")[1:]:
        key, _, value = extension.partition("=")
        if key in seen or (key.lower() == "tokenauth" and key != "tokenauth"):
            raise MalformedFrame("ambiguous SCRAM extensions")
        seen.add(key)
        is_token |= key == "tokenauth" and value.lower() == "true"  # Boolean.parseBoolean
    return ScramClient(name, is_token)


def is_scram_challenge(message: bytes) -> bool:
    """Is this a SCRAM server-first message (`r=…,s=…,i=…`): no yes yet, the client's proof comes next?"""
    return _SERVER_FIRST.fullmatch(message) is not None


def scram_accepted(message: bytes) -> bool:
    """True for a SCRAM server-final `v=<signature>`, False for `e=<error>`. Raises MalformedFrame for all
    else.
    """
    match = _SERVER_FINAL.fullmatch(message)
    if match is None:
        raise MalformedFrame("not a SCRAM server-final message")
    return match["signature"] is not None


def oauthbearer_user(message: bytes, claim: str) -> str | None:
    """The user that an OAUTHBEARER initial message names: the `claim` (Kafka's default: `sub`) of its JWT.

    None if the token does not say so: not a signed JWT (opaque or encrypted), no such claim, not a string,
    blank. The signature is not checked: the broker does that. Raises MalformedFrame for a message that is not
    RFC 7628's or has `auth` twice (Kafka takes the last), and for an authzid that is not the user.
    """
    match = _OAUTH_INITIAL.fullmatch(text(message, 0, len(message)))
    if match is None:
        raise MalformedFrame("not an OAUTHBEARER initial message")
    auth = [pair.partition("=")[2] for pair in match["pairs"].split("\x01") if pair[:5].lower() == "auth="]
    bearer = _BEARER.fullmatch(auth[0]) if len(auth) == 1 else None
    if bearer is None:
        raise MalformedFrame("OAUTHBEARER message without exactly one bearer token")
    user = _claim(bearer["token"], claim)
    if user is not None and match["authzid"] is not None and _unescaped(match["authzid"]) != user:
        raise MalformedFrame("OAUTHBEARER authzid is not the user")
    return user


def _unescaped(saslname: str) -> str:
    if _BAD_ESCAPE.search(saslname):
        raise MalformedFrame("an equals sign in a SASL name that is neither =2C nor =3D")
    return saslname.replace("=2C", ",").replace("=3D", "=")


def _claim(token: str, claim: str) -> str | None:
    parts = token.split(".")
    if len(parts) != _JWS_PARTS or not _BASE64URL.fullmatch(parts[1]):
        return None
    try:
        payload = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        claims = json.loads(
            payload.decode(),
            object_pairs_hook=_unique,
            parse_int=_nothing,  # no number is looked at, and Python refuses those of thousands of digits
        )
        if not isinstance(claims, dict) or not isinstance(user := claims.get(claim), str):
            return None
        user.encode()  # a lone surrogate could be written to no log and no metric
    except (binascii.Error, ValueError, RecursionError):
        return None
    return user.strip(_JAVA_WHITESPACE) or None


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError  # of two equal claims one reader takes the first, another the last
    return members


def _nothing(_number: str) -> None:
    return None


def _token(buf: Buffer, pos: int, end: int, version: int) -> tuple[int, int]:
    if version >= _FIRST_FLEXIBLE:
        length, pos = uvarint(buf, pos, end)
        length -= 1
    else:
        length, pos = int32(buf, pos, end)
    return pos, skip(pos, length, end)


def _known(api_key: int, version: int) -> None:
    if version not in readable_versions(api_key):
        raise UnsupportedVersion("who authenticates cannot be read", api_key=api_key, api_version=version)


def _ends(pos: int, end: int) -> None:
    if pos != end:
        raise MalformedFrame(f"{end - pos} bytes behind the last field", offset=pos)
