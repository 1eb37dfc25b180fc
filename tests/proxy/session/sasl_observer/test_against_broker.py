"""SaslWatch beside a model of Kafka's SaslServerAuthenticator, and a client that tries everything.

The model follows the Java classes in what matters here (which message names whom, which of two equal keys
counts, when an exchange is over), and reads with their regular expressions, not ours. A password is
`<user>-pw`.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product

import pytest

from sluice.protocol.errors import ProtocolError
from sluice.proxy.session.sasl_observer import SaslWatch
from sluice.quotas.entity import DELEGATION_TOKEN_USER, UNKNOWN_USER

USERS = ["alice", "bob"]
TOKENS = {"token-of-bob": "bob"}  # delegation tokens and their owners

SASLNAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
CLIENT_FIRST = re.compile(
    rf"n,(a=(?P<authzid>{SASLNAME}))?,(m=[\x01-\x2b\x2d-\x7f]+,)?n=(?P<saslname>{SASLNAME}),"
    r"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?P<extensions>(,[A-Za-z]+=[\x01-\x2b\x2d-\x7f]+)*)"
)
OAUTH_INITIAL = re.compile(
    rf"n,(a=(?P<authzid>{SASLNAME}))?,\x01(?P<kvpairs>([A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)


class Refused(Exception):
    """The broker says no."""


@dataclass
class Broker:
    """SaslServerAuthenticator with the servers for PLAIN, SCRAM, OAUTHBEARER, and an opaque one."""

    principal: str | None = None
    is_token: bool = False
    mechanism: str | None = None
    headers: bool = False
    complete: bool = False
    rounds: int = 0
    claimed: str = ""
    claimed_token: bool = False
    oauth_refused: bool = False
    previous: tuple[str, str] | None = field(
        default=None
    )  # mechanism and principal before a re-authentication

    def handshake(self, mechanism: str, version: int) -> int:
        if self.mechanism is not None and not self.complete:
            raise Refused
        if mechanism not in {"PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "GSSAPI"}:
            return 33
        if self.complete:
            assert self.mechanism is not None
            assert self.principal is not None
            self.previous = (self.mechanism, self.principal)
            if mechanism != self.mechanism:
                return 34
        self.mechanism, self.headers = mechanism, version > 0
        self.complete, self.rounds, self.oauth_refused = False, 0, False
        return 0

    def evaluate(self, message: bytes) -> bytes:
        if self.mechanism is None or self.complete:
            raise Refused
        self.rounds += 1
        reply = {
            "PLAIN": self._plain,
            "SCRAM-SHA-256": self._scram,
            "OAUTHBEARER": self._oauth,
            "GSSAPI": self._gssapi,
        }[self.mechanism](message)
        self._ensure_principal_unchanged()
        return reply

    def _ensure_principal_unchanged(self) -> None:
        if self.complete and self.previous is not None and self.previous[1] != self.principal:
            raise Refused

    def _accept(self, principal: str, is_token: bool = False) -> bytes:
        self.principal, self.is_token, self.complete = principal, is_token, True
        return b""

    def _plain(self, message: bytes) -> bytes:
        tokens = message.decode(errors="replace").split("\0")
        if len(tokens) != 3 or tokens[1] not in USERS or tokens[2] != f"{tokens[1]}-pw":
            raise Refused
        if tokens[0] and tokens[0] != tokens[1]:
            raise Refused
        return self._accept(tokens[1])

    def _scram(self, message: bytes) -> bytes:
        if self.rounds == 2:
            if message != b"c=biws,r=ns,p=" + base64.b64encode(f"{self.claimed}-pw".encode()):
                raise Refused
            self._accept(TOKENS[self.claimed] if self.claimed_token else self.claimed, self.claimed_token)
            return b"v=YQ=="
        match = CLIENT_FIRST.fullmatch(message.decode(errors="replace"))
        if match is None:
            raise Refused
        extensions = dict(pair.split("=", 1) for pair in match["extensions"].split(",")[1:])
        self.claimed = match["saslname"].replace("=2C", ",").replace("=3D", "=")
        self.claimed_token = extensions.get("tokenauth", "").lower() == "true"
        if self.claimed not in (TOKENS if self.claimed_token else USERS):
            raise Refused
        if match["authzid"] and match["authzid"] != self.claimed:
            raise Refused
        return b"r=ns,s=YQ==,i=4096"

    def _oauth(self, message: bytes) -> bytes:
        if message == b"\x01" and self.oauth_refused:
            raise Refused
        match = OAUTH_INITIAL.fullmatch(message.decode(errors="replace"))
        if match is None:
            raise Refused
        pairs = dict(pair.split("=", 1) for pair in match["kvpairs"].split("\x01") if pair)
        bearer = re.fullmatch(r"(?P<scheme>\w+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)", pairs.get("auth", ""))
        if bearer is None or bearer["scheme"].lower() != "bearer":
            raise Refused
        try:
            header, payload, signature = bearer["token"].split(".")
            claims = json.loads(base64.urlsafe_b64decode(payload + "=="))
        except ValueError:
            header, claims, signature = "", {}, ""
        if header != "signed" or claims.get("sub") not in USERS or signature != f"{claims['sub']}-pw":
            self.oauth_refused = True
            return b'{"status":"invalid_token"}'
        if match["authzid"] and match["authzid"] != claims["sub"]:
            raise Refused
        return self._accept(claims["sub"])

    def _gssapi(self, message: bytes) -> bytes:
        if not message.startswith(b"ticket of alice"):
            raise Refused
        return b"challenge" if self.rounds < 3 else self._accept("alice")


def jwt(user: str, signature: str) -> str:
    payload = base64.urlsafe_b64encode(json.dumps({"sub": user}).encode()).rstrip(b"=").decode()
    return f"signed.{payload}.{signature}"


REAL = jwt("alice", "alice-pw")
FORGED = jwt("bob", "x")

MESSAGES = [
    b"\0alice\0alice-pw",
    b"\0bob\0bob-pw",
    b"alice\0alice\0alice-pw",
    b"bob\0alice\0alice-pw",
    b"\0bob\0alice-pw",
    b"\0alice\0alice-pw\0bob",
    b"\0\xffalice\0alice-pw",
    b"n,,n=alice,r=n",
    b"n,,n=bob,r=n",
    b"n,a=alice,n=alice,r=n",
    b"n,a=bob,n=alice,r=n",
    b"n,,m=n=bob,n=alice,r=n",
    b"n,,n=alice,r=n,n=bob",
    b"n,,n=token-of-bob,r=n,tokenauth=true",
    b"n,,n=token-of-bob,r=n,tokenauth=TRUE,x=y",
    b"n,,n=alice,r=n,tokenauth=true,tokenauth=false",
    b"n,,n=token-of-bob,r=n,tokenauth=false,tokenauth=true",
    b"n,,n=alice,r=n,TokenAuth=true",
    b"n,,n=alice,r=n,tokenauth=no",
    b"c=biws,r=ns,p=" + base64.b64encode(b"alice-pw"),
    b"c=biws,r=ns,p=" + base64.b64encode(b"bob-pw"),
    b"c=biws,r=ns,p=" + base64.b64encode(b"token-of-bob-pw"),
    f"n,,\x01auth=Bearer {REAL}\x01\x01".encode(),
    f"n,,\x01auth=Bearer {FORGED}\x01\x01".encode(),
    f"n,a=alice,\x01auth=bearer {REAL}\x01\x01".encode(),
    f"n,a=bob,\x01auth=Bearer {REAL}\x01\x01".encode(),
    f"n,,\x01auth=Bearer {FORGED}\x01auth=Bearer {REAL}\x01\x01".encode(),
    f"n,,\x01auth=Bearer {REAL}\x01auth=Bearer {FORGED}\x01\x01".encode(),
    f"n,,\x01AUTH=Bearer {FORGED}\x01auth=Bearer {REAL}\x01\x01".encode(),
    f"n,,\x01auth=Bearer {REAL}\x01x=auth=Bearer {FORGED}\x01\x01".encode(),
    b"\x01",
    b"",
    b"ticket of alice",
]
PROOFS = [message for message in MESSAGES if message.startswith(b"c=")]
Action = tuple[str, int] | bytes | str | None

FIRST: list[Action] = [*MESSAGES, "request"]
SECOND: list[Action] = [
    None,
    *PROOFS,
    b"\x01",
    b"",
    MESSAGES[0],
    MESSAGES[7],
    MESSAGES[22],
    b"ticket of alice",
    "request",
]
HANDSHAKES = [
    (mechanism, version)
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "GSSAPI", "plain", "AWS_MSK_IAM")
    for version in (0, 1)
]
SCRAM_PROOF = b"c=biws,r=ns,p="
HONEST: dict[str, list[bytes]] = {
    "PLAIN": [b"\0alice\0alice-pw"],
    "SCRAM-SHA-256": [b"n,,n=alice,r=n", SCRAM_PROOF + base64.b64encode(b"alice-pw")],
    "OAUTHBEARER": [f"n,,\x01auth=Bearer {REAL}\x01\x01".encode()],
    "GSSAPI": [b"ticket of alice"] * 3,
}


class Ended(Exception):
    """The connection is closed, by the broker or by us."""


class Connection:
    """A session in small: everything in order, each answer before the next frame of the client."""

    def __init__(self) -> None:
        self.broker = Broker()
        self.watch = SaslWatch()
        self.served = 0

    def do(self, action: Action) -> None:
        """One frame of the client, and its answer. Raises Ended."""
        match action:
            case (mechanism, version):
                self.handshake(mechanism, version)
            case bytes():
                self.message(action)
            case "request":
                self.request()

    def handshake(self, mechanism: str, version: int) -> None:
        name = mechanism.encode()
        body = struct.pack(">h", len(name)) + name
        if self.watch.raw_tokens:
            return self.message(body)  # it is only a token then
        try:
            self.watch.on_handshake_request(body, 0, len(body), version)
            assert self.watch.awaiting_broker
            reply = struct.pack(">hi", self.broker.handshake(mechanism, version), 0)
            self.watch.on_handshake_response(reply, 0, len(reply), version)
        except (ProtocolError, Refused):
            raise Ended from None
        return None

    def message(self, message: bytes) -> None:
        bare = self.watch.raw_tokens
        body = message if bare else struct.pack(">i", len(message)) + message
        try:
            if bare:
                self.watch.on_raw_token_from_client(body, 0, len(body))
            else:
                self.watch.on_authenticate_request(body, 0, len(body), 1)
            assert self.watch.awaiting_broker
            if self.broker.complete and not bare and self.broker.mechanism != "GSSAPI":
                return self.stray()
            assert bare is not self.broker.headers or self.broker.mechanism is None
            token = self.broker.evaluate(message)
        except ProtocolError:
            raise Ended from None
        except Refused:
            if not bare:
                refusal = struct.pack(">hhi", 58, -1, 0) + bytes(8)
                assert self.watch.on_authenticate_response(refusal, 0, len(refusal), 1) is False
                assert self.watch.failed
            raise Ended from None
        try:
            if bare:
                self.watch.on_raw_token_from_broker(token, 0, len(token))
            else:
                reply = struct.pack(">hhi", 0, -1, len(token)) + token + bytes(8)
                self.watch.on_authenticate_response(reply, 0, len(reply), 1)
        except ProtocolError:
            raise Ended from None
        return None

    def stray(self) -> None:
        """Behind a login, and no handshake began it: KafkaApis answers ILLEGAL_SASL_STATE, and serves on."""
        refusal = struct.pack(">hhi", 34, -1, 0) + bytes(8)
        assert self.watch.on_authenticate_response(refusal, 0, len(refusal), 1) is False
        assert not self.watch.in_exchange

    def request(self) -> None:
        """Any other request: the broker serves it if it knows who asks; the watch's user is charged."""
        if self.watch.in_exchange or not self.broker.complete:
            raise Ended
        self.served += 1
        principal = self.broker.principal
        if self.broker.mechanism == "GSSAPI":
            principal = UNKNOWN_USER
        elif self.broker.is_token:
            principal = DELEGATION_TOKEN_USER
        assert self.watch.user == principal, "the broker served one principal and another was charged"


@pytest.mark.parametrize("begun", ["", *HONEST])
@pytest.mark.parametrize(("mechanism", "version"), HANDSHAKES)
def test_whoever_the_broker_serves_is_who_is_charged_whatever_the_client_sends(
    begun: str, mechanism: str, version: int
) -> None:
    before: list[Action] = [(begun, 1), *HONEST[begun], "request"] if begun else []
    for first, second in product(FIRST, SECOND):
        connection = Connection()
        users: set[str | None] = set()
        with suppress(Ended):
            tried: list[Action] = [*before, (mechanism, version), first, second, "request", "request"]
            for action in tried:
                connection.do(action)
                users.add(connection.watch.user)
        users -= {None}
        assert len(users) <= 1
        if users and users != {UNKNOWN_USER}:
            assert connection.broker.principal is not None


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    ("mechanism", "messages", "user"),
    [
        ("PLAIN", HONEST["PLAIN"], "alice"),
        ("PLAIN", [b"bob\0bob\0bob-pw"], "bob"),
        ("SCRAM-SHA-256", HONEST["SCRAM-SHA-256"], "alice"),
        (
            "SCRAM-SHA-256",
            [MESSAGES[13], SCRAM_PROOF + base64.b64encode(b"token-of-bob-pw")],
            DELEGATION_TOKEN_USER,
        ),
        ("OAUTHBEARER", HONEST["OAUTHBEARER"], "alice"),
        ("OAUTHBEARER", [f"n,a=alice,\x01auth=bearer {REAL}\x01\x01".encode()], "alice"),
        ("GSSAPI", HONEST["GSSAPI"], UNKNOWN_USER),
    ],
)
def test_honest_clients_come_in_and_authenticate_again(
    mechanism: str, version: int, messages: list[bytes], user: str
) -> None:
    connection = Connection()
    for _ in range(2):  # and once more, as KIP-368 has it
        if mechanism == "GSSAPI" and version == 0:
            with pytest.raises(Ended):
                connection.do((mechanism, version))
            return
        connection.do((mechanism, version))
        for message in messages:
            connection.do(message)
        connection.do("request")
        assert connection.watch.user == user
    assert connection.served == 2
