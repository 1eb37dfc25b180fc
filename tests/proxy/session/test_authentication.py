"""Who a connection is, and what may pass before that is known: wire semantics 4.6 and 5."""

from __future__ import annotations

import struct
from typing import Literal

import pytest

from sluice.protocol.apis import OFFERED
from sluice.protocol.errors import ProtocolError
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.sasl_observer import PrincipalChanged
from sluice.proxy.session.session import Session
from sluice.quotas.entity import QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits
from testkit.frames.frames import (
    API_VERSIONS,
    FETCH,
    METADATA,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    answer,
    fetch,
    fetch_answer_of,
    produce_answer,
    produce_of,
    request,
)
from testkit.proxy.playbook import (
    START_MS,
    AwaitingBroker,
    Broker,
    Client,
    Drain,
    Ending,
    Held,
    Muted,
    Playbook,
    Reading,
    Shell,
    ToBroker,
    ToClient,
    Wait,
    shared_of,
)

SASL = SessionPolicy(authentication_required=True)
KIB = 1024

Step = tuple[Literal["client", "broker"], bytes]


def alice_has(produce_rate: int, fetch_rate: int = 10**9) -> SharedState:
    """Limits of alice's; nobody else has any."""
    rates = {"producer_byte_rate": produce_rate, "consumer_byte_rate": fetch_rate}
    return shared_of(QuotaLimits([(QuotaEntity("alice", None), rates)]))


def connection(
    shared: SharedState | None = None, policy: SessionPolicy = SASL, stale: bytes = b"\xff"
) -> Shell:
    return Shell(Session(shared or alice_has(1_000), policy, "10.0.0.1"), stale=stale)


def handshake(mechanism: str = "PLAIN", version: int = 1) -> bytes:
    return request(SASL_HANDSHAKE, version, {"mechanism": mechanism})


def handshaken(error: int = 0, version: int = 1) -> bytes:
    return answer(SASL_HANDSHAKE, version, {"errorCode": error, "mechanisms": ["PLAIN", "SCRAM-SHA-256"]})


def authenticate(token: bytes, version: int = 2, correlation_id: int = 1) -> bytes:
    body = {"authBytes": token.hex()}
    return request(SASL_AUTHENTICATE, version, dict(body), correlation_id=correlation_id)


def authenticated(token: bytes = b"", error: int = 0, version: int = 2) -> bytes:
    return answer(SASL_AUTHENTICATE, version, {"errorCode": error, "authBytes": token.hex()})


def plain(user: str) -> bytes:
    return f"\0{user}\0secret".encode()


def bare(token: bytes) -> bytes:
    return struct.pack(">i", len(token)) + token


def login(user: str = "alice", version: int = 2) -> list[Step]:
    return [
        ("client", handshake()),
        ("broker", handshaken()),
        ("client", authenticate(plain(user), version)),
        ("broker", authenticated(version=version)),
    ]


SCRAM: list[Step] = [
    ("client", handshake("SCRAM-SHA-256")),
    ("broker", handshaken()),
    ("client", authenticate(b"n,,n=alice,r=clientnonce")),
    ("broker", authenticated(b"r=clientnonceservernonce,s=c2FsdA==,i=4096")),
    ("client", authenticate(b"c=biws,r=clientnonceservernonce,p=cHJvb2Y=")),
    ("broker", authenticated(b"v=c2lnbmF0dXJl")),
]
BARE_PLAIN: list[Step] = [
    ("client", handshake(version=0)),
    ("broker", handshaken(version=0)),
    ("client", bare(plain("alice"))),
    ("broker", bare(b"")),
]
BARE_SCRAM: list[Step] = [
    ("client", handshake("SCRAM-SHA-512", version=0)),
    ("broker", handshaken(version=0)),
    ("client", bare(b"n,,n=alice,r=clientnonce")),
    ("broker", bare(b"r=clientnonceservernonce,s=c2FsdA==,i=4096")),
    ("client", bare(b"c=biws,r=clientnonceservernonce,p=cHJvb2Y=")),
    ("broker", bare(b"v=c2lnbmF0dXJl")),
]
LOGINS = {
    "plain v0": login(version=0),
    "plain v1": login(version=1),
    "plain v2": login(),
    "scram": SCRAM,
    "plain in bare tokens": BARE_PLAIN,
    "scram in bare tokens": BARE_SCRAM,
}


def play(shell: Shell, steps: list[Step], chunk_bytes: int = 1 << 20) -> Shell:
    for side, data in steps:
        send = shell.client_sends if side == "client" else shell.broker_sends
        for start in range(0, len(data), chunk_bytes):
            send(data[start : start + chunk_bytes])
    return shell


# Before the broker's yes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "api_key", sorted({*OFFERED, 999} - {SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE})
)
def test_no_request_but_those_of_authentication_passes(api_key: int) -> None:
    """ApiVersions does, before it and behind it."""
    frame = (
        bytearray(request(METADATA, 12))
        if api_key == 999
        else bytearray(request(api_key, OFFERED[api_key][0]))
    )
    frame[4:6] = struct.pack(">h", api_key)
    versions = request(API_VERSIONS, 3)
    shell = (
        Playbook(connection())
        >> Client(versions + bytes(frame) + versions)
        << ToBroker(versions)
        << Ending(DisconnectCause.AUTHENTICATION_FAILED)
    ).done()
    assert "a request before authentication" in shell.detail
    assert shell.records == []
    assert list(shell.shared.quotas.sensors()) == []


def test_nor_does_one_between_handshake_and_authentication_nor_one_behind_a_refusal() -> None:
    for steps in (login()[:2], [*login()[:3], ("broker", authenticated(error=58))]):
        shell = play(connection(), steps)
        shell.client_sends(produce_of(100))
        assert shell.cause is DisconnectCause.AUTHENTICATION_FAILED
        assert shell.session.user == "ANONYMOUS"


@pytest.mark.parametrize("steps", LOGINS.values(), ids=LOGINS)
def test_the_brokers_yes_makes_the_user_and_his_quotas_apply(steps: list[Step]) -> None:
    """alice has 1,000 B/s: 1,500 B owe 500 ms. Before the last answer she is nobody."""
    shell = play(connection(), steps[:-1])
    assert (shell.session.user, shell.state) == ("ANONYMOUS", State.AWAITING_BROKER)
    play(shell, steps[-1:])
    assert (shell.session.user, shell.state) == ("alice", State.READING)
    shell.client_sends(produce_of(1_500))
    assert (shell.state, shell.session.pace.wake_at_ms) == (State.MUTED, START_MS + 500)
    assert shell.sensor().entity == QuotaEntity("alice", None)


@pytest.mark.parametrize("steps", LOGINS.values(), ids=LOGINS)
def test_every_login_passes_unchanged_however_it_is_cut(steps: list[Step]) -> None:
    for chunk_bytes in (1, 2, 3, 7, 1_000):
        for stale in (b"\x00", b"\x01", b"\xff", b"\0\0\0\0"):
            shell = play(connection(stale=stale), steps, chunk_bytes)
            assert shell.session.user == "alice"
            assert shell.to_broker == b"".join(data for side, data in steps if side == "client")
            assert shell.to_client == b"".join(data for side, data in steps if side == "broker")
            assert shell.session.in_flight == 0


@pytest.mark.parametrize("steps", LOGINS.values(), ids=LOGINS)
def test_nothing_follows_a_frame_of_authentication_before_its_answer(steps: list[Step]) -> None:
    """Though everything that the client ever sends is in the buffer from the first byte on."""
    shell = connection()
    client = [data for side, data in steps if side == "client"]
    broker = [data for side, data in steps if side == "broker"]
    request_behind = produce_of(200)
    shell.client_sends(b"".join(client) + request_behind)
    for asked, answered in zip(client, broker, strict=True):
        assert (shell.to_broker, shell.state) == (bytearray(asked), State.AWAITING_BROKER)
        shell.to_broker.clear()
        shell.advance(60_000)  # however long the broker takes
        assert shell.to_broker == b""
        shell.broker_sends(answered)
    assert shell.to_broker == request_behind
    assert shell.sensor().charged == 200


def test_the_frame_limit_is_that_of_users_from_the_brokers_yes_on() -> None:
    large = produce_of(600 * KIB)
    before = connection(alice_has(10**9))
    before.client_sends(large[:100])
    assert before.cause is DisconnectCause.FRAME_TOO_LARGE
    after = play(connection(alice_has(10**9)), login())
    after.client_sends(large)
    assert after.to_broker.endswith(large)


def test_a_bare_token_has_the_limit_of_a_frame_before_authentication() -> None:
    for size, cause in (
        (512 * KIB, None),
        (512 * KIB + 1, DisconnectCause.FRAME_TOO_LARGE),
        (-1, DisconnectCause.FRAME_TOO_LARGE),
    ):
        shell = play(connection(), BARE_PLAIN[:2])
        shell.client_sends(struct.pack(">i", size) + b"\0alice")
        assert shell.cause is cause


def test_a_bare_answer_cut_off_is_waited_for() -> None:
    shell = play(connection(), BARE_SCRAM[:3])
    challenge = BARE_SCRAM[3][1]
    shell.broker_sends(challenge[:-1])
    assert shell.state is State.AWAITING_BROKER
    assert shell.to_client == handshaken(version=0)
    shell.broker_sends(challenge[-1:])
    assert shell.to_client == handshaken(version=0) + challenge


@pytest.mark.parametrize("size", [-1, 512 * KIB + 1])
def test_a_bare_answer_that_cannot_be_is_an_error(size: int) -> None:
    shell = play(connection(), BARE_PLAIN[:3])
    with pytest.raises(ProtocolError, match=f"token of {size} bytes"):
        shell.broker_sends(struct.pack(">i", size))


# Behind it --------------------------------------------------------------------------------------------------


def test_reauthentication_keeps_the_user_his_debt_and_his_mute() -> None:
    """1,500 B owe 500 ms; alice says so once more in their midst, and the rest is owed on."""
    reauthentication = handshake() + authenticate(plain("alice"))
    playbook = Playbook(play(connection(), login())) >> Client(
        produce_of(1_500) + reauthentication + produce_of(100, correlation_id=9)
    )
    playbook.shell.to_client.clear()
    shell = playbook.shell
    shell.to_broker.clear()
    shell.broker_sends(produce_answer())
    shell.advance(500)
    assert shell.to_broker == handshake()
    shell.broker_sends(handshaken())
    shell.broker_sends(authenticated())
    assert shell.to_broker == reauthentication + produce_of(100, correlation_id=9)
    assert shell.session.user == "alice"
    assert shell.sensor().charged == 1_600


def test_reauthentication_as_somebody_else_is_an_error() -> None:
    shell = play(connection(), [*login("alice"), *login("bob")[:-1]])
    with pytest.raises(PrincipalChanged):
        shell.broker_sends(authenticated())
    assert shell.session.user == "alice"


def test_a_handshake_that_the_broker_does_not_want_ends_nothing() -> None:
    """34 ILLEGAL_SASL_STATE: a listener without SASL. Requests go on, as nobody's."""
    (
        Playbook(connection(policy=SessionPolicy()))
        >> Client(handshake() + produce_of(5_000))
        << ToBroker(handshake())
        << AwaitingBroker()
        >> Broker(handshaken(34))
        << ToClient(handshaken(34))
        << ToBroker(produce_of(5_000))
        << Reading()
    ).done()


def test_requests_in_flight_are_answered_before_the_authentication_behind_them() -> None:
    """And a Fetch answer that comes while the yes is awaited mutes the connection once it has come."""
    shared = alice_has(10**9, fetch_rate=1_000)
    shell = play(connection(shared), login())
    shell.to_broker.clear()
    shell.to_client.clear()
    (
        Playbook(shell)
        >> Client(fetch(correlation_id=5) + handshake() + request(METADATA, 12, correlation_id=6))
        << ToBroker(fetch(correlation_id=5, max_bytes=1_000) + handshake())
        << AwaitingBroker()
        >> Broker(fetch_answer_of(1_800, correlation_id=5))
        << ToClient(fetch_answer_of(1_800, correlation_id=5, throttle_ms=800))
        >> Wait(300)
        >> Broker(handshaken())
        << ToClient(handshaken())
        << Muted(for_ms=500)
        >> Wait(500)
        << ToBroker(request(METADATA, 12, correlation_id=6))
        << Reading()
    ).done()


def test_two_connections_of_one_user_share_his_bucket_whatever_their_mechanism() -> None:
    """1,500 B over PLAIN; then 100 B over SCRAM wait for 500 ms. bob, who has no limit, does not."""
    shared = alice_has(1_000)
    first, second = (play(connection(shared), LOGINS[name]) for name in ("plain v2", "scram"))
    bob = play(connection(shared), login("bob"))
    first.client_sends(produce_of(1_500))
    bob.client_sends(produce_of(100_000))
    assert bob.state is State.READING
    second.to_broker.clear()
    second.to_client.clear()
    (Playbook(second) >> Client(produce_of(100)) << Held(for_ms=500)).done()


def test_records_of_a_login_name_nobody_and_those_behind_it_the_user() -> None:
    shell = play(
        connection(), [("client", request(API_VERSIONS, 3)), ("broker", answer(API_VERSIONS, 3)), *login()]
    )
    shell.client_sends(fetch())
    shell.broker_sends(fetch_answer_of(500))
    assert [(record.api_key, record.user) for record in shell.records] == [
        (API_VERSIONS, "ANONYMOUS"),
        (SASL_HANDSHAKE, "ANONYMOUS"),
        (SASL_AUTHENTICATE, "alice"),
        (FETCH, "alice"),
    ]


# Ends -------------------------------------------------------------------------------------------------------


def test_drain_while_the_broker_is_awaited_delivers_its_answer_and_begins_nothing() -> None:
    shell = play(connection(), login()[:3])
    shell.to_broker.clear()
    shell.to_client.clear()
    playbook = (
        Playbook(shell)
        >> Drain()
        << Ending(DisconnectCause.DRAINED)
        >> Client(produce_of(100))
        >> Broker(authenticated())
        << ToClient(authenticated())
    )
    assert playbook.done().session.finished


def test_a_frame_out_of_turn_ends_the_connection_and_is_not_forwarded() -> None:
    """A SaslAuthenticate without a handshake."""
    shell = connection()
    shell.client_sends(authenticate(plain("alice")))
    assert shell.state is State.ENDING
    assert shell.to_broker == b""
    assert "api SaslAuthenticate (36), version 2" in shell.detail
    assert "secret" not in shell.detail


def test_the_secret_of_a_login_is_in_no_error_and_no_repr() -> None:
    shell = play(connection(), login()[:2])
    frame = bytearray(authenticate(plain("alice")))
    frame[0:4] = struct.pack(">i", len(frame) - 5)  # its last byte is another frame's
    shell.client_sends(bytes(frame))
    assert shell.cause is DisconnectCause.MALFORMED_FRAME
    assert "secret" not in shell.detail + repr(shell.session)


def test_a_broker_that_ends_a_connection_whose_login_failed_ends_it_for_that() -> None:
    shell = Shell(Session(alice_has(1_000), SASL, "10.0.0.1"))
    shell.client_sends(request(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}))
    shell.broker_sends(answer(SASL_HANDSHAKE, 1, {"mechanisms": ["PLAIN"]}))
    shell.client_sends(request(SASL_AUTHENTICATE, 2, {"authBytes": b"\0alice\0wrong".hex()}))
    shell.broker_sends(answer(SASL_AUTHENTICATE, 2, {"errorCode": 58}))
    shell.session.broker_closed(DisconnectCause.BROKER_CLOSED)
    assert shell.cause is DisconnectCause.AUTHENTICATION_FAILED


def test_a_bare_token_without_bytes_goes_to_the_broker_which_judges_it() -> None:
    shell = play(connection(), [("client", handshake(version=0)), ("broker", handshaken(version=0))])
    before = len(shell.to_broker)
    shell.client_sends(bare(b""))
    assert shell.to_broker[before:] == bare(b"")
    assert shell.cause is None
