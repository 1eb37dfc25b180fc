"""Fetches and groups, and what a mute may not cut in two: wire semantics 1.5.

Buckets hold one second of the rate. At 1,000 B/s a byte takes 1 ms; a full bucket holds 1,000 B.
"""

from __future__ import annotations

import pytest

from sluice.protocol.apis import GROUP_APIS
from sluice.protocol.codec.wire import Struct
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.policy import SessionPolicy
from sluice.proxy.session.session import Session
from sluice.quotas.kinds import QuotaKind
from testkit.frames.frames import (
    FETCH,
    HEARTBEAT,
    JOIN_GROUP,
    METADATA,
    answer,
    fetch,
    fetch_answer_of,
    produce_answer,
    produce_of,
    request,
)
from testkit.proxy.playbook import (
    START_MS,
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
    limits_of,
    session_of,
    shared_of,
    shell_of,
)


def join_group(session_timeout_ms: int, *, client_id: str = "app", correlation_id: int = 1) -> bytes:
    body: Struct = {"groupId": "g", "sessionTimeoutMs": session_timeout_ms}
    return request(JOIN_GROUP, 9, body, client_id=client_id, correlation_id=correlation_id)


def joined(error: int = 0, *, correlation_id: int = 1) -> bytes:
    return answer(JOIN_GROUP, 9, {"errorCode": error}, correlation_id=correlation_id)


def mute_of(shell: Shell, *, client_id: str = "app") -> float:
    """For how long a connection is muted that fetched a minute's worth of 1,000 B/s."""
    shell.client_sends(fetch(client_id=client_id))
    shell.broker_sends(fetch_answer_of(60_000))
    return shell.session.pace.wake_at_ms - shell.now_ms


# 1.5 Groups -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("api_key", sorted(GROUP_APIS))
def test_a_connection_that_has_carried_a_group_request_is_muted_for_two_seconds_at_most(api_key: int) -> None:
    shell = Shell(session_of(fetch_rate=1_000, produce_rate=1_000))
    version = 0 if api_key != 76 else 1
    version = 2 if api_key == 8 else 1 if api_key == 9 else version
    shell.client_sends(request(api_key, version, correlation_id=9))
    shell.broker_sends(answer(api_key, version, correlation_id=9))
    assert mute_of(shell) == 2_000
    shell.advance(2_000)
    shell.client_sends(produce_of(60_000))
    assert shell.session.pace.wake_at_ms - shell.now_ms == 2_000


def test_on_a_group_connection_hold_and_mute_together_end_after_two_seconds() -> None:
    """Debt 1,500: held 1.5 s; then 5,000 B would take 5 s, of which 0.5 are left."""
    shared = shared_of(limits_of(produce_rate=1_000))
    Shell(Session(shared, SessionPolicy(), "10.0.0.1")).client_sends(produce_of(2_500))
    (
        Playbook(shell_of(shared))
        >> Client(request(HEARTBEAT, 4, correlation_id=1) + produce_of(5_000, correlation_id=2))
        << ToBroker(request(HEARTBEAT, 4, correlation_id=1))
        << Held(for_ms=1_500)
        >> Wait(1_500)
        << ToBroker(produce_of(5_000, correlation_id=2))
        << Muted(for_ms=500)
        >> Wait(500)
        << Reading()
    ).done()


def test_on_a_group_connection_a_fetch_answer_behind_a_hold_does_not_begin_another_two_seconds() -> None:
    """Held from 0 to 1,500 ms, muted to 1,700. A Fetch answer at 1,600 may mute to 2,000, not to 3,600."""
    shared = shared_of(limits_of(produce_rate=1_000, fetch_rate=1_000))
    Shell(Session(shared, SessionPolicy(), "10.0.0.1")).client_sends(produce_of(2_500))
    shell = shell_of(shared)
    shell.client_sends(request(HEARTBEAT, 4, correlation_id=1) + fetch(correlation_id=2))
    shell.client_sends(produce_of(200, correlation_id=3))
    assert shell.state is State.HOLDING
    shell.advance(1_600)
    assert shell.session.pace.wake_at_ms == START_MS + 1_700
    shell.broker_sends(answer(HEARTBEAT, 4, correlation_id=1) + fetch_answer_of(60_000, correlation_id=2))
    assert shell.session.pace.wake_at_ms == START_MS + 2_000


def test_on_a_group_connection_a_fetch_answer_during_a_hold_counts_from_its_beginning() -> None:
    """Held from 0 to 1,500 ms. A Fetch answer at 1,000 mutes to 2,000."""
    shared = shared_of(limits_of(produce_rate=1_000, fetch_rate=1_000))
    Shell(Session(shared, SessionPolicy(), "10.0.0.1")).client_sends(produce_of(2_500))
    shell = shell_of(shared)
    shell.client_sends(request(HEARTBEAT, 4, correlation_id=1) + fetch(correlation_id=2))
    shell.client_sends(produce_of(200, correlation_id=3))
    shell.advance(1_000)
    shell.broker_sends(answer(HEARTBEAT, 4, correlation_id=1) + fetch_answer_of(60_000, correlation_id=2))
    assert (shell.state, shell.session.pace.wake_at_ms) == (State.HOLDING, START_MS + 1_500)
    shell.advance(500)
    assert (shell.state, shell.session.pace.wake_at_ms) == (State.MUTED, START_MS + 2_000)
    shell.advance(500)
    assert shell.state is State.READING


def test_on_a_group_connection_answers_that_come_while_a_frame_is_half_read_share_the_two_seconds() -> None:
    """The gate is closed from 0 on, though a Produce is still read. Answers at 0, 1 and 1.9 s: until 2 s."""
    shell = Shell(session_of(fetch_rate=1_000))
    shell.client_sends(request(HEARTBEAT, 4, correlation_id=1) + fetch(correlation_id=1))
    shell.sensor(QuotaKind.FETCH).fetch_queue().batches.saw([10], shell.now_ms)
    shell.broker_sends(answer(HEARTBEAT, 4, correlation_id=1) + answer(FETCH, 12))
    fetches = b"".join(fetch(correlation_id=i, max_bytes=10) for i in (2, 3, 4))
    slow = produce_of(500, correlation_id=5)
    shell.client_sends(fetches + slow[:200])
    for correlation_id, wait_ms in ((2, 1_000), (3, 900), (4, 0)):
        shell.broker_sends(fetch_answer_of(30_000, correlation_id=correlation_id))
        assert shell.state is State.READING
        shell.advance(wait_ms)
    shell.client_sends(slow[200:] + request(HEARTBEAT, 4, correlation_id=6))
    assert (shell.state, shell.session.pace.wake_at_ms) == (State.MUTED, START_MS + 2_000)


def test_a_mute_is_half_the_smallest_session_timeout_of_the_same_user_client_and_address() -> None:
    """Seen 10 s and 8 s: 4 s. Another client id, and another address, stay at 3 s."""
    shared = shared_of(limits_of(fetch_rate=1_000))
    coordinator = shell_of(shared)
    for timeout_ms in (10_000, 8_000, 30_000):
        coordinator.client_sends(join_group(timeout_ms))
        coordinator.broker_sends(joined())
    assert mute_of(shell_of(shared)) == 4_000
    for shell, client_id in ((shell_of(shared), "other"), (shell_of(shared, address="10.0.0.2"), "app")):
        shell.client_sends(fetch(client_id=client_id))
        assert shell.session.pace.wake_at_ms - shell.now_ms == 3_000


def test_a_long_session_timeout_lets_a_mute_be_as_long_as_the_answer_budget() -> None:
    """Half of 45 s would be 22.5."""
    shared = shared_of(limits_of(fetch_rate=1_000))
    coordinator = shell_of(shared)
    coordinator.client_sends(join_group(45_000))
    coordinator.broker_sends(joined(79))
    assert mute_of(shell_of(shared)) == 8_000


@pytest.mark.parametrize("error", [26, 16, 30, 23])
def test_a_session_timeout_that_the_broker_refused_bounds_nothing(error: int) -> None:
    """INVALID_SESSION_TIMEOUT and others. Else anybody would lower his mutes to half a millisecond."""
    shared = shared_of(limits_of(fetch_rate=1_000))
    coordinator = shell_of(shared)
    coordinator.client_sends(join_group(1))
    coordinator.broker_sends(joined(error))
    assert mute_of(shell_of(shared)) == 3_000


def test_each_join_group_is_judged_by_its_own_answer() -> None:
    """Pipelined: 20 s, which the broker takes, and 1 ms, which it refuses."""
    shared = shared_of(limits_of(fetch_rate=1_000))
    coordinator = shell_of(shared)
    coordinator.client_sends(join_group(20_000, correlation_id=1) + join_group(1, correlation_id=2))
    coordinator.broker_sends(joined(0, correlation_id=1) + joined(26, correlation_id=2))
    assert mute_of(shell_of(shared)) == 8_000


def test_a_mute_belongs_to_the_connection_that_carried_the_bytes() -> None:
    shared = shared_of(limits_of(fetch_rate=1_000))
    coordinator = shell_of(shared)
    assert mute_of(shell_of(shared)) == 3_000
    coordinator.client_sends(request(HEARTBEAT, 4))
    assert coordinator.state is State.READING
    assert coordinator.to_broker == request(HEARTBEAT, 4)


# A mute stands at a frame boundary --------------------------------------------------------------------------


def test_a_frame_that_is_half_read_is_read_on_and_the_mute_begins_behind_it() -> None:
    produce = produce_of(5_000, correlation_id=2)
    (
        Playbook(session_of(fetch_rate=1_000))
        >> Client(fetch(correlation_id=1) + produce[:2_000])
        << ToBroker(fetch(correlation_id=1, max_bytes=1_000) + produce[:2_000])
        >> Broker(fetch_answer_of(2_000, correlation_id=1))
        << ToClient(fetch_answer_of(2_000, correlation_id=1, throttle_ms=1_000))
        >> Wait(400)
        >> Client(produce[2_000:3_000])
        << ToBroker(produce[2_000:3_000])
        >> Client(produce[3_000:] + request(METADATA, 12, correlation_id=3))
        << ToBroker(produce[3_000:])
        << Muted(for_ms=600)
        >> Wait(600)
        << ToBroker(request(METADATA, 12, correlation_id=3))
        << Reading()
    ).done()


def test_a_frame_that_ends_with_the_bytes_at_hand_is_at_a_boundary() -> None:
    produce = produce_of(5_000, correlation_id=2)
    (
        Playbook(session_of(fetch_rate=1_000))
        >> Client(fetch(correlation_id=1) + produce[:2_000])
        << ToBroker(fetch(correlation_id=1, max_bytes=1_000) + produce[:2_000])
        >> Broker(fetch_answer_of(2_000, correlation_id=1))
        << ToClient(fetch_answer_of(2_000, correlation_id=1, throttle_ms=1_000))
        >> Client(produce[2_000:])
        << ToBroker(produce[2_000:])
        << Muted(for_ms=1_000)
    ).done()


def test_a_mute_that_ends_while_a_frame_is_half_read_stops_nothing() -> None:
    produce = produce_of(5_000, correlation_id=2)
    (
        Playbook(session_of(fetch_rate=1_000))
        >> Client(fetch(correlation_id=1) + produce[:2_000])
        << ToBroker(fetch(correlation_id=1, max_bytes=1_000) + produce[:2_000])
        >> Broker(fetch_answer_of(2_000, correlation_id=1))
        << ToClient(fetch_answer_of(2_000, correlation_id=1, throttle_ms=1_000))
        >> Wait(1_000)
        >> Client(produce[2_000:] + request(METADATA, 12, correlation_id=3))
        << ToBroker(produce[2_000:] + request(METADATA, 12, correlation_id=3))
    ).done()


def test_a_frame_of_which_nothing_has_gone_on_waits_for_the_end_of_the_mute() -> None:
    metadata = request(METADATA, 12, correlation_id=2)
    (
        Playbook(session_of(fetch_rate=1_000))
        >> Client(fetch(correlation_id=1) + metadata[:9])
        << ToBroker(fetch(correlation_id=1, max_bytes=1_000))
        >> Broker(fetch_answer_of(2_000, correlation_id=1))
        << ToClient(fetch_answer_of(2_000, correlation_id=1, throttle_ms=1_000))
        << Muted(for_ms=1_000)
        >> Client(metadata[9:])
        >> Wait(1_000)
        << ToBroker(metadata)
        << Reading()
    ).done()


def test_produce_and_fetch_share_a_connection_and_each_pays_its_own_quota() -> None:
    """Fetch owes 1 s. At its end a Produce of 1,500 B goes, and is muted for its own 500 ms."""
    (
        Playbook(session_of(produce_rate=1_000, fetch_rate=1_000))
        >> Client(fetch(correlation_id=1))
        << ToBroker(fetch(correlation_id=1, max_bytes=1_000))
        >> Broker(fetch_answer_of(2_000, correlation_id=1))
        << ToClient(fetch_answer_of(2_000, correlation_id=1, throttle_ms=1_000))
        << Muted(for_ms=1_000)
        >> Client(produce_of(1_500, correlation_id=2))
        >> Wait(1_000)
        << ToBroker(produce_of(1_500, correlation_id=2))
        << Muted(for_ms=500)
        >> Broker(produce_answer(correlation_id=2))
        << ToClient(produce_answer(correlation_id=2, throttle_ms=500))
        >> Drain()
        << Ending(DisconnectCause.DRAINED)
    ).done()
