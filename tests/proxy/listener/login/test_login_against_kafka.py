"""The proxy's own login at a real broker: let in as whom it should be, refused in words, in again (KIP-368).

The broker names its principal itself: the owner of a delegation token is who asks for one.
"""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic import SecretStr

from sluice.protocol.codec.codec import DecodedFrame, encode_frame
from sluice.protocol.sasl_client import MECHANISMS
from sluice.proxy.listener.login.credential_entries import Credentials, PasswordCredentials, TokenCredentials
from sluice.proxy.listener.login.login import UpstreamLogin, UpstreamLoginError
from testkit.frames.frames import METADATA, decoded, sized
from testkit.kafka.dist import KafkaDist
from testkit.kafka.node import USERS, KafkaNode
from testkit.kafka.sasl_clients import unsigned_token

pytestmark = pytest.mark.kafka
CREATE_DELEGATION_TOKEN = 38
SESSION_MS = 8_000
WRONG = "not-the-password"


@pytest.fixture(scope="module")
def broker(kafka_dist: KafkaDist) -> Iterator[KafkaNode]:
    """Wants a new login every SESSION_MS; its listener NARROW_SASL knows SCRAM-SHA-512 alone."""
    config = {
        "connections.max.reauth.ms": str(SESSION_MS),
        "listener.name.narrow_sasl.sasl.enabled.mechanisms": "SCRAM-SHA-512",
    }
    with KafkaNode(kafka_dist, native=["SASL", "NARROW_SASL"], config=config) as node:
        yield node


class Connection:
    """One connection to the broker, on which the proxy logs in and asks."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=20)

    def log_in(self, mechanism: str, credentials: Credentials) -> UpstreamLogin:
        """Raises UpstreamLoginError, as the proxy's shell does."""
        login = UpstreamLogin(
            mechanism, credentials, client_id="sluice-test", nonce=secrets.token_urlsafe(24)
        )
        self.socket.sendall(login.start())
        while not login.done:
            data = self.socket.recv(7)  # any pieces
            if not data:
                raise login.broker_closed()
            taken, reply = login.received(data, 0, len(data))
            assert taken == len(data), "the broker sends nothing that was not asked for"
            self.socket.sendall(reply)
        return login

    def ask(self, api_key: int, version: int, body: dict[str, Any]) -> dict[str, Any]:
        header: Any = {
            "requestApiKey": api_key,
            "requestApiVersion": version,
            "correlationId": 1,
            "clientId": "test",
        }
        self.socket.sendall(sized(encode_frame("request", api_key, version, DecodedFrame(header, body))))
        size = self.receive(4)
        answer = size + self.receive(int.from_bytes(size, "big"))
        return decoded("response", api_key, version, answer).body

    def principal(self) -> str:
        """Who the broker says this is."""
        token = self.ask(
            CREATE_DELEGATION_TOKEN,
            3,
            {"ownerPrincipalType": None, "ownerPrincipalName": None, "renewers": [], "maxLifetimeMs": -1},
        )
        assert token["errorCode"] == 0
        return str(token["principalName"])

    def is_served(self) -> bool:
        try:
            self.ask(METADATA, 12, {"topics": []})
        except ConnectionError:
            return False
        return True

    def receive(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise ConnectionError("the broker has closed")
            data += more
        return data


@pytest.fixture
def connect(broker: KafkaNode) -> Iterator[Callable[[str], Connection]]:
    connections: list[Connection] = []

    def make(listener: str = "SASL") -> Connection:
        connections.append(Connection(broker.address(listener)))
        return connections[-1]

    yield make
    for connection in connections:
        connection.socket.close()


def credentials_of(user: str, mechanism: str, lifetime_s: int = 3600) -> Credentials:
    if mechanism == "OAUTHBEARER":
        return TokenCredentials(SecretStr(unsigned_token(user, lifetime_s=lifetime_s)))
    return PasswordCredentials.of(user, USERS[user])


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_broker_lets_the_proxy_in_as_whom_it_says(
    connect: Callable[[str], Connection], mechanism: str
) -> None:
    connection = connect("SASL")
    login = connection.log_in(mechanism, credentials_of("alice", mechanism))
    assert connection.principal() == "alice"
    assert 0 < login.session_lifetime_ms <= SESSION_MS


def test_a_broker_that_wants_no_new_login_says_so(kafka: KafkaNode) -> None:
    connection = Connection(kafka.address("SASL"))
    login = connection.log_in("SCRAM-SHA-256", credentials_of("alice", "SCRAM-SHA-256"))
    assert (login.session_lifetime_ms, connection.principal()) == (0, "alice")
    with pytest.raises(UpstreamLoginError, match="wants no new login now") as refused:
        connection.log_in("SCRAM-SHA-256", credentials_of("alice", "SCRAM-SHA-256"))
    assert refused.value.error_code == 34
    connection.socket.close()


@pytest.mark.parametrize("user", ["alice", "nobody", "a=b,c"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password_is_refused_in_the_brokers_words(
    connect: Callable[[str], Connection], mechanism: str, user: str
) -> None:
    with pytest.raises(UpstreamLoginError) as refused:
        connect("SASL").log_in(mechanism, PasswordCredentials.of(user, WRONG))
    error = refused.value
    assert (error.error_code, error.mechanism, error.offered) == (58, mechanism, ())
    assert "Authentication failed" in error.broker_message
    assert WRONG not in str(error)


def test_an_expired_token_is_refused_with_the_servers_reason(connect: Callable[[str], Connection]) -> None:
    with pytest.raises(UpstreamLoginError) as refused:
        connect("SASL").log_in("OAUTHBEARER", credentials_of("alice", "OAUTHBEARER", lifetime_s=-100))
    assert refused.value.error_code == 58
    assert '{"status":"invalid_token"}' in refused.value.broker_message


def test_extensions_go_with_the_token(connect: Callable[[str], Connection]) -> None:
    """Kafka's unsecured validator takes those it does not know, and closes on a message it cannot read."""
    token = SecretStr(unsigned_token("alice"))
    connection = connect("SASL")
    connection.log_in("OAUTHBEARER", TokenCredentials(token, {"logicalCluster": "lkc-1", "traceId": "a b"}))
    assert connection.principal() == "alice"


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
def test_a_mechanism_that_the_listener_does_not_have_is_told_with_those_it_has(
    connect: Callable[[str], Connection], mechanism: str
) -> None:
    with pytest.raises(UpstreamLoginError) as refused:
        connect("NARROW_SASL").log_in(mechanism, credentials_of("alice", mechanism))
    assert (refused.value.error_code, refused.value.offered) == (33, ("SCRAM-SHA-512",))


def test_a_listener_without_sasl_is_told(connect: Callable[[str], Connection]) -> None:
    with pytest.raises(UpstreamLoginError, match="its listener has no SASL") as refused:
        connect("PLAINTEXT").log_in("PLAIN", credentials_of("alice", "PLAIN"))
    assert refused.value.error_code == 34


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_new_login_on_the_same_connection(connect: Callable[[str], Connection], mechanism: str) -> None:
    connection = connect("SASL")
    connection.log_in(mechanism, credentials_of("alice", mechanism))
    assert connection.is_served()
    login = connection.log_in(mechanism, credentials_of("alice", mechanism))
    assert 0 < login.session_lifetime_ms <= SESSION_MS
    assert connection.principal() == "alice"


def test_a_new_login_keeps_a_connection_beyond_its_session(connect: Callable[[str], Connection]) -> None:
    left, renewed = connect("SASL"), connect("SASL")
    for connection in (left, renewed):
        connection.log_in("SCRAM-SHA-256", credentials_of("alice", "SCRAM-SHA-256"))
    time.sleep(SESSION_MS / 2000)
    assert left.is_served()
    renewed.log_in("SCRAM-SHA-256", credentials_of("alice", "SCRAM-SHA-256"))
    time.sleep(SESSION_MS / 2000 + 0.2)
    assert renewed.principal() == "alice"
    assert not left.is_served(), "the broker ends a connection whose session is over"


def test_a_new_login_as_somebody_else_is_refused(connect: Callable[[str], Connection]) -> None:
    connection = connect("SASL")
    connection.log_in("PLAIN", credentials_of("alice", "PLAIN"))
    with pytest.raises(UpstreamLoginError, match="Cannot change principals") as refused:
        connection.log_in("PLAIN", credentials_of("bob", "PLAIN"))
    assert refused.value.error_code == 58


def test_a_new_login_behind_requests_that_are_not_answered_yet(connect: Callable[[str], Connection]) -> None:
    """The broker keeps the order: whoever counts the answers may send the login at once."""
    connection = connect("SASL")
    connection.log_in("SCRAM-SHA-256", credentials_of("alice", "SCRAM-SHA-256"))
    login = UpstreamLogin(
        "SCRAM-SHA-256", credentials_of("alice", "SCRAM-SHA-256"), client_id="x", nonce="n" * 20
    )
    header: Any = {"requestApiKey": METADATA, "requestApiVersion": 12, "correlationId": 7, "clientId": "x"}
    request = sized(encode_frame("request", METADATA, 12, DecodedFrame(header, {"topics": []})))
    connection.socket.sendall(request * 3 + login.start())
    for _ in range(3):
        size = connection.receive(4)
        frame = size + connection.receive(int.from_bytes(size, "big"))
        assert decoded("response", METADATA, 12, frame).header["correlationId"] == 7
    while not login.done:
        data = connection.socket.recv(100)
        _, reply = login.received(data, 0, len(data))
        connection.socket.sendall(reply)
    assert connection.principal() == "alice"
