"""SaslWatch beside a real broker: whoever Kafka says came in is who the watch says, and nobody else.

The client writes its own frames, for no library sends what must be refused, or handshake v0 at all. The
broker names its principal itself: the owner of a delegation token is who asks for one.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from sluice.protocol.apis import SASL_AUTHENTICATE, SASL_HANDSHAKE, TOKEN_APIS, ApiKey
from sluice.protocol.codec.codec import DecodedFrame, encode_frame
from sluice.protocol.headers import REQUEST_HEAD_BYTES, request_body, response_body
from sluice.proxy.session.sasl_observer import AuthenticationFailed, SaslWatch
from sluice.proxy.session.token_owners import TokenOwners
from sluice.quotas.entity import DELEGATION_TOKEN_USER
from testkit.frames.frames import decoded, sized
from testkit.kafka.node import USERS, KafkaNode
from testkit.kafka.sasl_clients import unsigned_token

METADATA = 3
ALICE = USERS["alice"]


class Closed(Exception):
    """The broker has closed the connection."""


class Client:
    """One connection that shows the watch every SASL frame, as the session does; and `learns` of tokens."""

    learns: frozenset[int] = frozenset()

    def __init__(self, address: tuple[str, int], tokens: TokenOwners) -> None:
        self.socket = socket.create_connection(address, timeout=20)
        self.tokens = tokens
        self.watch = SaslWatch("sub", tokens)

    def close(self) -> None:
        self.socket.close()

    def _receive(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise Closed
            data += more
        return data

    def _exchange(self, frame: bytes) -> bytes:
        self.socket.sendall(frame)
        size = self._receive(4)
        return size + self._receive(int.from_bytes(size, "big"))

    def ask(self, api_key: int, version: int, body: dict[str, Any]) -> dict[str, Any]:
        header: Any = {
            "requestApiKey": api_key,
            "requestApiVersion": version,
            "correlationId": 1,
            "clientId": "test",
        }
        frame = sized(encode_frame("request", api_key, version, DecodedFrame(header, body)))
        if api_key not in {SASL_HANDSHAKE, SASL_AUTHENTICATE}:
            answered = self._exchange(frame)
            if api_key in self.learns:
                self.tokens.learn_from(bytearray(answered), 0, len(answered), api_key, version)
            return decoded("response", api_key, version, answered).body
        watch = self.watch
        body_start = request_body(
            bytearray(frame), REQUEST_HEAD_BYTES + len("test"), len(frame), api_key, version
        )
        seen = watch.on_handshake_request if api_key == SASL_HANDSHAKE else watch.on_authenticate_request
        seen(frame, body_start, len(frame), version)
        answer = self._exchange(frame)
        body_start = response_body(bytearray(answer), 0, len(answer), api_key, version)
        if api_key == SASL_HANDSHAKE:
            watch.on_handshake_response(answer, body_start, len(answer), version)
        else:
            watch.on_authenticate_response(answer, body_start, len(answer), version)
        return decoded("response", api_key, version, answer).body

    def handshake(self, mechanism: str, version: int) -> int:
        return int(self.ask(SASL_HANDSHAKE, version, {"mechanism": mechanism})["errorCode"])

    def say(self, message: bytes, version: int = 2) -> tuple[int, bytes]:
        """One message of the mechanism → error code and the broker's message. Bare if the watch says so."""
        if self.watch.raw_tokens:
            self.watch.on_raw_token_from_client(message, 0, len(message))
            answer = self._exchange(sized(message))
            self.watch.on_raw_token_from_broker(answer, 4, len(answer))
            return 0, answer[4:]
        answer_body = self.ask(SASL_AUTHENTICATE, version, {"authBytes": message.hex()})
        return int(answer_body["errorCode"]), bytes.fromhex(answer_body["authBytes"])

    def principal(self) -> tuple[str, dict[str, Any]]:
        """Who the broker says this is, and a delegation token of his."""
        wanted: dict[str, Any] = {
            "ownerPrincipalType": None,
            "ownerPrincipalName": None,
            "renewers": [],
            "maxLifetimeMs": -1,
        }
        token = self.ask(ApiKey.CREATE_DELEGATION_TOKEN, 3, wanted)
        assert token["errorCode"] == 0
        return token["principalName"], token

    def principal_of_describe(self) -> str:
        """Whose the described tokens are: a user sees his own."""
        answer = self.ask(ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, {"owners": None})
        (owner,) = {token["principalName"] for token in answer["tokens"]}
        assert isinstance(owner, str)
        return owner

    def is_served(self) -> bool:
        try:
            self.ask(METADATA, 12, {"topics": []})
        except (Closed, ConnectionError):
            return False
        return True

    def scram(
        self, user: str, password: str, extensions: str = "", read_as: str = "", hash_name: str = "sha256"
    ) -> int:
        """`read_as`: the extensions as the broker writes them when it checks the proof; it reads the last of
        two.
        """
        error, first = self.say(f"n,,n={user},r=cnonce{extensions}".encode())
        if error:
            return error
        bare = f"n={user},r=cnonce{read_as or extensions}"
        fields = dict(part.split("=", 1) for part in first.decode().split(","))
        salted = hashlib.pbkdf2_hmac(
            hash_name, password.encode(), base64.b64decode(fields["s"]), int(fields["i"])
        )
        key = hmac.digest(salted, b"Client Key", hash_name)
        unproved = f"c=biws,r={fields['r']}"
        signed = f"{bare},{first.decode()},{unproved}".encode()
        signature = hmac.digest(hashlib.new(hash_name, key).digest(), signed, hash_name)
        proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True)))
        return self.say(f"{unproved},p=".encode() + proof)[0]


@pytest.fixture
def connect(kafka: KafkaNode) -> Iterator[Callable[[], Client]]:
    clients: list[Client] = []
    tokens = TokenOwners()

    def make() -> Client:
        clients.append(Client(kafka.address("SASL"), tokens))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


def plain(user: str, password: str, authzid: str = "") -> bytes:
    return f"{authzid}\0{user}\0{password}".encode()


def bearer(*tokens: str, gs2: str = "n,,") -> bytes:
    return f"{gs2}\x01{''.join(f'auth=Bearer {token}{chr(1)}' for token in tokens)}\x01".encode()


def come_in(client: Client, mechanism: str) -> int:
    match mechanism:
        case "PLAIN":
            return client.say(plain("alice", ALICE))[0]
        case "OAUTHBEARER":
            return client.say(bearer(unsigned_token("alice")))[0]
        case _:
            return client.scram("alice", ALICE, hash_name=f"sha{mechanism[-3:]}")


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_whom_the_broker_lets_in_is_whom_the_watch_names(
    connect: Callable[[], Client], mechanism: str, version: int
) -> None:
    client = connect()
    assert client.handshake(mechanism, version) == 0
    assert come_in(client, mechanism) == 0
    assert client.watch.user == "alice" == client.principal()[0]


@pytest.mark.parametrize("authenticate_version", [0, 1, 2])
def test_every_version_of_saslauthenticate(connect: Callable[[], Client], authenticate_version: int) -> None:
    client = connect()
    client.handshake("PLAIN", 1)
    assert client.say(plain("alice", ALICE), authenticate_version)[0] == 0
    assert client.watch.user == "alice"


def test_the_principal_of_a_trimmed_subject(connect: Callable[[], Client]) -> None:
    client = connect()
    client.handshake("OAUTHBEARER", 1)
    error, _ = client.say(bearer(unsigned_token("alice", email="x"), gs2="n,a=alice,"))
    assert error == 0
    assert client.watch.user == "alice" == client.principal()[0]


REFUSED = {
    "wrong password": ("PLAIN", plain("alice", "wrong")),
    "authzid of another": ("PLAIN", plain("alice", ALICE, "bob")),
    "four parts": ("PLAIN", plain("alice", ALICE) + b"\0bob"),
    "no user": ("PLAIN", plain("", ALICE)),
    "not UTF-8": ("PLAIN", b"\0al\xffice\0" + ALICE.encode()),
    "unknown SCRAM user": ("SCRAM-SHA-256", b"n,,n=nobody,r=x"),
    "SCRAM authzid of another": ("SCRAM-SHA-256", b"n,a=bob,n=alice,r=x"),
    "channel binding": ("SCRAM-SHA-256", b"y,,n=alice,r=x"),
    "two SCRAM names": ("SCRAM-SHA-256", b"n,,n=alice,n=bob,r=x"),
    "no bearer message": ("OAUTHBEARER", b"alice"),
    "bearer authzid of another": ("OAUTHBEARER", bearer(unsigned_token("alice"), gs2="n,a=bob,")),
}


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("case", REFUSED)
def test_whom_the_broker_refuses_the_watch_does_not_name(
    connect: Callable[[], Client], case: str, version: int
) -> None:
    mechanism, message = REFUSED[case]
    client = connect()
    client.handshake(mechanism, version)
    if version == 0:
        with pytest.raises((Closed, ConnectionError)):
            client.say(message)
    else:
        assert client.say(message)[0] == 58
        assert client.watch.failed
    assert client.watch.user is None


def test_a_wrong_scram_proof_names_nobody(connect: Callable[[], Client]) -> None:
    client = connect()
    client.handshake("SCRAM-SHA-256", 1)
    assert client.scram("alice", "wrong") == 58
    assert (client.watch.user, client.watch.failed) == (None, True)


def test_an_oauthbearer_refusal_is_bytes_then_an_error(connect: Callable[[], Client]) -> None:
    client = connect()
    client.handshake("OAUTHBEARER", 1)
    error, refusal = client.say(bearer(unsigned_token("alice", lifetime_s=-100)))
    assert (error, refusal[:1]) == (0, b"{")
    assert client.watch.user is None
    assert client.say(b"\x01")[0] == 58
    assert (client.watch.user, client.watch.failed) == (None, True)


def test_of_two_tokenauth_kafka_takes_the_last_and_the_watch_believes_neither(
    connect: Callable[[], Client],
) -> None:
    client = connect()
    client.handshake("SCRAM-SHA-256", 1)
    with pytest.raises(AuthenticationFailed, match="nobody we can read"):
        client.scram("alice", ALICE, ",tokenauth=true,tokenauth=false", ",tokenauth=false")
    assert client.watch.user is None


def test_of_two_bearer_tokens_kafka_takes_the_last_and_the_watch_believes_neither(
    connect: Callable[[], Client],
) -> None:
    client = connect()
    client.handshake("OAUTHBEARER", 1)
    with pytest.raises(AuthenticationFailed, match="nobody we can read"):
        client.say(bearer(unsigned_token("bob"), unsigned_token("alice")))
    assert client.watch.user is None


def token_client(connect: Callable[[], Client], token: dict[str, Any]) -> Client:
    """A connection that has logged in with it."""
    password = base64.b64encode(bytes.fromhex(token["hmac"])).decode()
    for _ in range(50):  # the broker hears of the token from the controller a moment later
        client = connect()
        client.handshake("SCRAM-SHA-256", 1)
        if client.scram(token["tokenId"], password, ",tokenauth=true") == 0:
            break
        assert client.watch.user is None
    assert client.is_served()
    return client


def logged_in(connect: Callable[[], Client], learns: frozenset[int] = frozenset()) -> Client:
    owner = connect()
    owner.learns = learns
    owner.handshake("PLAIN", 1)
    owner.say(plain("alice", ALICE))
    return owner


def test_a_delegation_token_that_is_not_known_comes_in_as_the_reserved_user(
    connect: Callable[[], Client],
) -> None:
    _, token = logged_in(connect).principal()
    assert token_client(connect, token).watch.user == DELEGATION_TOKEN_USER


def test_a_token_whose_making_was_seen_is_its_owners(connect: Callable[[], Client]) -> None:
    _, token = logged_in(connect, TOKEN_APIS).principal()
    assert token_client(connect, token).watch.user == "alice"


def test_a_token_that_was_described_is_its_owners(connect: Callable[[], Client]) -> None:
    owner = logged_in(connect)
    _, token = owner.principal()
    assert token_client(connect, token).watch.user == DELEGATION_TOKEN_USER
    owner.learns = TOKEN_APIS
    owner.principal_of_describe()
    assert token_client(connect, token).watch.user == "alice"


def test_an_unknown_mechanism_begins_nothing(connect: Callable[[], Client]) -> None:
    client = connect()
    assert client.handshake("AWS_MSK_IAM", 1) == 33
    assert (client.watch.user, client.watch.in_exchange) == (None, False)


def test_a_listener_without_sasl_answers_34_and_goes_on(kafka: KafkaNode) -> None:
    with closing(Client(kafka.address("PLAINTEXT"), TokenOwners())) as client:
        assert client.handshake("PLAIN", 0) == 34
        assert (client.watch.user, client.watch.raw_tokens, client.watch.in_exchange) == (None, False, False)
        assert client.is_served()


def test_re_authentication_that_the_broker_does_not_want_leaves_the_user(
    connect: Callable[[], Client],
) -> None:
    client = connect()
    client.handshake("PLAIN", 1)
    client.say(plain("alice", ALICE))
    assert client.handshake("PLAIN", 1) == 34
    assert client.watch.user == "alice" == client.principal()[0]
