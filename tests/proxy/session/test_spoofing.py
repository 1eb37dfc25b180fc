"""Nobody becomes who he is not: frames in any order and in any pieces, before a broker that keeps its rules.

The broker is a model of Kafka's with PLAIN and re-authentication (KIP-368); what it does with each request it
does as its own principal, and as that principal the session must have charged it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.protocol.apis import ApiKey
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.policy import QuotaApi, SessionPolicy
from sluice.proxy.session.session import Session
from sluice.quotas.entity import ANONYMOUS
from sluice.quotas.limits.limits import QuotaLimits
from testkit.frames.frames import (
    API_VERSIONS,
    METADATA,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    answer,
    decoded,
    produce,
    request,
)
from testkit.proxy.playbook import Shell, limits_of, shared_of

SASL = SessionPolicy(authentication_required=True)
CERTIFICATE = SessionPolicy(takes_logins=False)
ALICE_IS_ADMIN = SessionPolicy(authentication_required=True, quota_api=QuotaApi(frozenset({"alice"})))
PASSWORDS = {"alice": "a", "bob": "b", "service": "s"}


class Closed(Exception):
    """The broker ends the connection."""


@dataclass
class Broker:
    """One connection's; `principal`: as whom it has been logged in, by the proxy or by the client."""

    principal: str | None = None
    has_sasl: bool = True
    is_clients_own: bool = True
    """the login: not the proxy's"""
    under_way: bool = False
    bare: bool = False
    served: list[tuple[int, str | None]] = field(default_factory=list)
    """(correlation id, as whom) of each Produce"""
    saw_login: bool = False

    def take(self, frame: bytes) -> bytes:
        """Answers one frame. Raises Closed, with a last answer perhaps."""
        if self.bare:
            return self._token(frame[4:])
        api_key, version, correlation_id = struct.unpack_from(">hhi", frame, 4)
        if api_key in {SASL_HANDSHAKE, SASL_AUTHENTICATE}:
            self.saw_login = True
            body = decoded("request", api_key, version, frame).body
            if not self.has_sasl:
                return answer(api_key, version, {"errorCode": 34}, correlation_id=correlation_id)
            if api_key == SASL_HANDSHAKE:
                return self._handshake(str(body["mechanism"]), version, correlation_id)
            return self._authenticate(bytes.fromhex(str(body["authBytes"])), version, correlation_id)
        if api_key == API_VERSIONS:
            return answer(API_VERSIONS, version, correlation_id=correlation_id)
        if self.under_way or (self.has_sasl and self.principal is None):
            raise Closed
        if api_key == PRODUCE:
            self.served.append((correlation_id, self.principal))
        return answer(api_key, version, correlation_id=correlation_id)

    def _handshake(self, mechanism: str, version: int, correlation_id: int) -> bytes:
        if self.under_way:
            raise Closed
        if mechanism != "PLAIN":
            raise Closed(answer(SASL_HANDSHAKE, version, {"errorCode": 33}, correlation_id=correlation_id))
        self.under_way = True
        self.bare = version == 0
        return answer(SASL_HANDSHAKE, version, correlation_id=correlation_id)

    def _authenticate(self, token: bytes, version: int, correlation_id: int) -> bytes:
        if not self.under_way:
            raise Closed
        if not self._is_let_in(token):
            raise Closed(answer(SASL_AUTHENTICATE, version, {"errorCode": 58}, correlation_id=correlation_id))
        return answer(SASL_AUTHENTICATE, version, correlation_id=correlation_id)

    def _token(self, token: bytes) -> bytes:
        if not self._is_let_in(token):
            raise Closed
        self.bare = False
        return struct.pack(">i", 0)

    def _is_let_in(self, token: bytes) -> bool:
        parts = token.decode(errors="replace").split("\0")  # as Java's String reads bytes that are no UTF-8
        if len(parts) != 3 or PASSWORDS.get(parts[1]) != parts[2] or parts[0] not in {"", parts[1]}:
            return False
        if self.principal not in {None, parts[1]}:
            return False  # "Cannot change principals during re-authentication"
        self.principal = parts[1]
        self.under_way = False
        return True


tokens = st.builds(
    lambda authzid, user, password: f"{authzid}\0{user}\0{password}".encode(),
    st.sampled_from(["", "", "", "alice", "bob"]),
    st.sampled_from([*PASSWORDS]),
    st.sampled_from([*PASSWORDS.values()]),
) | st.sampled_from([b"\0alice\0a", b"\0bob\0b", b"\0service\0s", b"alice", b""])
handshakes = st.builds(
    lambda mechanism, version: request(SASL_HANDSHAKE, version, {"mechanism": mechanism}, correlation_id=7),
    st.sampled_from(["PLAIN", "PLAIN", "PLAIN", "PLAIN", "SCRAM-SHA-256", "plain"]),
    st.sampled_from([0, 1, 1]),
)
authenticates = st.builds(
    lambda token, version: request(SASL_AUTHENTICATE, version, {"authBytes": token.hex()}, correlation_id=8),
    tokens,
    st.sampled_from([0, 1, 2]),
)
bare_tokens = st.builds(lambda token: struct.pack(">i", len(token)) + token, tokens)
others = st.sampled_from(
    [
        produce(correlation_id=9),
        produce(correlation_id=10, acks=1, client_id="bob"),
        request(METADATA, 12, correlation_id=11),
        request(API_VERSIONS, 3, correlation_id=12),
    ]
)
exchanges = st.tuples(handshakes, authenticates | bare_tokens).map(b"".join)
conversations = st.lists(
    exchanges | exchanges | others | handshakes | authenticates | bare_tokens, max_size=7
)
cuts = st.lists(st.integers(1, 90), min_size=1, max_size=6)


def play(shell: Shell, broker: Broker, frames: list[bytes], sizes: list[int]) -> None:
    """The client sends what it likes when it likes; the broker answers what reaches it."""
    said, done, turn = b"".join(frames), 0, 0
    while said or done < len(shell.to_broker):
        piece, said = said[: sizes[turn % len(sizes)]], said[sizes[turn % len(sizes)] :]
        turn += 1
        if piece:
            shell.client_sends(piece)
        while len(shell.to_broker) >= done + 4:
            end = done + 4 + int.from_bytes(shell.to_broker[done : done + 4], "big")
            if end > len(shell.to_broker):
                break
            frame, done = bytes(shell.to_broker[done:end]), end
            try:
                shell.broker_sends(broker.take(frame))
            except Closed as closed:
                if closed.args:
                    shell.broker_sends(closed.args[0])
                return
            if broker.is_clients_own and not broker.under_way:
                assert shell.session.user == (broker.principal or ANONYMOUS)
        if not said:
            return


def charged(shell: Shell) -> list[str]:
    """As whom each Produce that was answered was charged."""
    return [record.user for record in shell.records if record.api_key == PRODUCE]


@given(conversations, cuts)
def test_where_clients_log_in_each_request_is_charged_to_whom_the_broker_serves(
    frames: list[bytes], sizes: list[int]
) -> None:
    shell, broker = Shell(Session(shared_of(limits_of(10**9)), SASL, "10.0.0.1")), Broker()
    play(shell, broker, frames, sizes)
    assert charged(shell) == [principal for _, principal in broker.served]
    assert None not in charged(shell)


@given(conversations, cuts, st.sampled_from(["alice", "bob"]), st.sampled_from(["alice", "service"]))
def test_where_the_proxy_has_logged_in_no_login_of_the_clients_reaches_the_broker(
    frames: list[bytes], sizes: list[int], user: str, as_whom: str
) -> None:
    shell = Shell(Session(shared_of(limits_of(10**9)), CERTIFICATE, "10.0.0.1", user))
    broker = Broker(principal=as_whom, is_clients_own=False)
    play(shell, broker, frames, sizes)
    assert not broker.saw_login
    assert shell.session.user == user
    assert set(charged(shell)) <= {user}


@given(conversations, cuts)
def test_where_nobody_logs_in_everybody_stays_nobody(frames: list[bytes], sizes: list[int]) -> None:
    shell = Shell(Session(shared_of(limits_of(10**9)), SessionPolicy(), "10.0.0.1"))
    play(shell, Broker(has_sasl=False, is_clients_own=False), frames, sizes)
    assert shell.session.user == ANONYMOUS
    assert set(charged(shell)) <= {ANONYMOUS}


@pytest.mark.parametrize("version", [0, 1])
def test_a_login_that_is_not_taken_ends_the_connection_behind_what_came_before_it(version: int) -> None:
    shell = Shell(Session(shared_of(limits_of(10**9)), CERTIFICATE, "10.0.0.1", "alice"))
    before = request(METADATA, 12)
    shell.client_sends(before + request(SASL_HANDSHAKE, version, {"mechanism": "PLAIN"}) + before)
    assert shell.to_broker == before
    assert shell.cause is DisconnectCause.AUTHENTICATION_FAILED
    assert "a login on a listener without SASL" in shell.detail


def login(user: str) -> bytes:
    token = f"\0{user}\0{PASSWORDS[user]}".encode()
    return request(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}) + request(
        SASL_AUTHENTICATE, 2, {"authBytes": token.hex()}
    )


@pytest.mark.parametrize(
    ("frames", "served"),
    [
        ([login("alice"), produce()], ["alice"]),
        ([login("alice"), produce(), login("alice"), produce()], ["alice", "alice"]),
        ([login("alice"), produce(), login("bob"), produce()], ["alice"]),
        ([produce(), login("alice")], []),
    ],
)
def test_the_model_serves_whom_it_should(frames: list[bytes], served: list[str]) -> None:
    """And so the properties above are about something."""
    shell, broker = Shell(Session(shared_of(limits_of(10**9)), SASL, "10.0.0.1")), Broker()
    play(shell, broker, frames, [1000])
    assert charged(shell) == [principal for _, principal in broker.served] == served


# A session that is over (KIP-368), where the broker is not asked --------------------------------------------


def log_in(shell: Shell, mechanism: str, *lifetimes_ms: int) -> None:
    """As alice, in as many rounds, of which each tells how long the session is (0: not yet)."""
    shell.client_sends(request(SASL_HANDSHAKE, 1, {"mechanism": mechanism}))
    shell.broker_sends(answer(SASL_HANDSHAKE, 1))
    for lifetime_ms in lifetimes_ms:
        shell.client_sends(request(SASL_AUTHENTICATE, 2, {"authBytes": b"\0alice\0a".hex()}))
        shell.broker_sends(answer(SASL_AUTHENTICATE, 2, {"sessionLifetimeMs": lifetime_ms}))


@pytest.mark.parametrize("api_key", [ApiKey.DESCRIBE_CLIENT_QUOTAS, ApiKey.ALTER_CLIENT_QUOTAS])
def test_nobody_asks_about_quotas_on_a_session_that_is_over(api_key: int) -> None:
    """60 s, and by a second login 60 s from then on."""
    shell = Shell(Session(shared_of(QuotaLimits([])), ALICE_IS_ADMIN, "10.0.0.1"))
    for wait_ms in (0, 59_000):
        shell.advance(wait_ms)
        log_in(shell, "PLAIN", 60_000)
    shell.advance(60_000)
    shell.client_sends(request(api_key, 1))
    assert shell.session.take_question() is not None
    shell.session.answer_question(b"", shell.now_ms)
    shell.advance(1)
    shell.client_sends(request(api_key, 1))
    assert shell.session.take_question() is None
    assert shell.cause is DisconnectCause.AUTHENTICATION_FAILED
    assert "session" in shell.detail


def test_a_login_that_has_only_begun_makes_no_session_longer() -> None:
    """Of GSSAPI's rounds the last alone tells how long it is."""
    shell = Shell(Session(shared_of(QuotaLimits([])), ALICE_IS_ADMIN, "10.0.0.1"))
    log_in(shell, "GSSAPI", 0, 60_000)
    shell.advance(60_001)
    log_in(shell, "GSSAPI", 0)
    shell.client_sends(request(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1))
    assert shell.session.take_question() is None
    assert shell.cause is DisconnectCause.AUTHENTICATION_FAILED
