"""A Fetch's hold and the mute before or behind it are one delay; where the session timeout is known, what its
client sleeps as it is told counts, too.

Wire semantics 1.5: 2 s on a connection with group requests, half the session timeout on one that only fetches
(3 s if none was seen): heartbeats may stand behind it, or come only between two Fetches.
"""

from __future__ import annotations

import pytest

from sluice.protocol.codec.wire import Struct
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.policy import SharedState
from sluice.usage.records import EventKind
from testkit.frames.frames import (
    FETCH,
    HEARTBEAT,
    JOIN_GROUP,
    METADATA,
    SHARE_FETCH,
    answer,
    decoded,
    fetch_answer_of,
    request,
    throttle_of,
)
from testkit.proxy.playbook import Shell, fetch_debt, limits_of, shared_of, shell_of

BOUND_MS = {True: 2_000.0, False: 3_000.0}
"""of a group's connection, and of one that only fetches"""
OF_A_GROUP = pytest.mark.parametrize("is_group", [True, False], ids=["group", "fetch_only"])
EARLY_MS = 1.0  # two wakes that come as soon as they may


def connection(shared: SharedState, *, is_group: bool, session_ms: int | None = None) -> Shell:
    """`session_ms`: of a group that its client is in, by another connection; None: none was seen."""
    if session_ms is not None:
        member = shell_of(shared)
        member.client_sends(request(JOIN_GROUP, 9, {"groupId": "g", "sessionTimeoutMs": session_ms}))
        member.broker_sends(answer(JOIN_GROUP, 9))
    shell = shell_of(shared)
    if is_group:
        shell.client_sends(request(HEARTBEAT, 4, correlation_id=9))
        shell.broker_sends(answer(HEARTBEAT, 4, correlation_id=9))
        shell.to_broker.clear()
        shell.to_client.clear()
    return shell


def fetches(shell: Shell) -> None:
    shell.to_broker.clear()
    shell.to_client.clear()
    asked: Struct = {
        "maxWaitMs": 500,
        "minBytes": 1,
        "maxBytes": 50_000_000,
        "sessionId": 7,
        "sessionEpoch": 3,
    }
    shell.client_sends(request(FETCH, 12, asked))


def is_replaced(shell: Shell) -> bool:
    """What has gone asks for nothing, and ends its session; else it is the client's own."""
    return bool(decoded("request", FETCH, 12, shell.to_broker).body["sessionEpoch"] == -1)


def muted(*, is_group: bool) -> Shell:
    """A connection that fetched a minute's worth in one batch."""
    shell = connection(shared_of(limits_of(fetch_rate=1_000)), is_group=is_group)
    fetches(shell)
    shell.broker_sends(fetch_answer_of(60_000))
    assert shell.session.pace.wake_at_ms - shell.now_ms == BOUND_MS[is_group]
    return shell


@OF_A_GROUP
@pytest.mark.parametrize("late_ms", [-1_500, 0, 50])
def test_a_fetch_that_stood_behind_a_mute_has_what_is_left_of_their_bound(
    late_ms: int, is_group: bool
) -> None:
    """It came in the midst of the mute, at its end, or as its client's sleep was over."""
    shell = muted(is_group=is_group)
    shell.advance(BOUND_MS[is_group] + late_ms)
    fetches(shell)
    shell.advance(max(-late_ms, 0) + EARLY_MS)
    assert is_replaced(shell)


@OF_A_GROUP
def test_a_fetch_that_comes_later_has_a_whole_hold(is_group: bool) -> None:
    shell = muted(is_group=is_group)
    shell.advance(BOUND_MS[is_group] + 500)
    fetches(shell)
    assert shell.session.pace.wake_at_ms - shell.now_ms == BOUND_MS[is_group]


@pytest.mark.parametrize(("session_ms", "hold_ms", "told_ms"), [
    (6_000, 3_000, 1), (14_000, 7_000, 1), (16_000, 8_000, 1), (17_000, 8_000, 500), (45_000, 8_000, 2_000),
    (None, 3_000, 2_000),
])  # fmt: skip
def test_a_replaced_fetch_tells_what_its_session_leaves_beside_a_whole_hold(
    session_ms: int | None, hold_ms: float, told_ms: int
) -> None:
    """A client that sleeps as it is told would else be longer from Fetch to Fetch than half its session."""
    shell = connection(fetch_debt(), is_group=False, session_ms=session_ms)
    for _ in range(3):
        fetches(shell)
        shell.advance(hold_ms)
        assert is_replaced(shell)
        shell.broker_sends(answer(FETCH, 12))
        assert throttle_of(FETCH, 12, shell.to_client) == told_ms
        assert shell.state is State.READING
        shell.advance(told_ms)


@pytest.mark.parametrize(
    ("session_ms", "until_ms"), [(6_000, 3_000), (16_000, 8_000), (19_000, 9_500), (None, 5_020)]
)
def test_what_a_client_sleeps_as_it_is_told_counts_where_its_session_is_known(
    session_ms: int | None, until_ms: float
) -> None:
    """Held for 500 ms, then 60 s' worth comes, and 2 s are told. Nothing is muted behind what was held."""
    shell = connection(fetch_debt(500), is_group=False, session_ms=session_ms)
    fetches(shell)
    shell.advance(500)
    shell.broker_sends(fetch_answer_of(60_000))
    answered_ms = shell.now_ms
    told_ms = throttle_of(FETCH, 12, shell.to_client)
    assert told_ms == 2_000
    shell.advance(told_ms + 20)
    fetches(shell)
    shell.advance(answered_ms + until_ms - 1 - shell.now_ms)
    assert shell.state is State.HOLDING
    shell.advance(1)
    assert is_replaced(shell)


@pytest.mark.parametrize("held_ms", [0, 100, 1_000, 1_999])
def test_a_groups_connection_is_muted_for_what_the_hold_has_left(held_ms: int) -> None:
    shell = connection(fetch_debt(held_ms), is_group=True)
    fetches(shell)
    shell.advance(held_ms)
    shell.broker_sends(fetch_answer_of(60_000))
    assert shell.session.pace.wake_at_ms - shell.now_ms == 2_000 - held_ms
    assert throttle_of(FETCH, 12, shell.to_client) == 2_000 - held_ms
    shell.to_broker.clear()
    shell.client_sends(request(HEARTBEAT, 4, correlation_id=9))
    shell.advance(2_000 - held_ms)
    assert shell.to_broker == request(HEARTBEAT, 4, correlation_id=9)


def test_a_share_fetch_on_a_groups_connection_goes_when_the_bound_is_over() -> None:
    """It is never replaced."""
    shell = muted(is_group=True)
    shell.to_broker.clear()
    asked = request(SHARE_FETCH, 1, {"maxBytes": 1_000_000})
    shell.client_sends(asked)
    shell.advance(2_000 + EARLY_MS)
    assert len(shell.to_broker) == len(asked)


def test_nothing_is_muted_or_logged_behind_a_hold_that_was_all_of_the_bound() -> None:
    shell = connection(fetch_debt(), is_group=True)
    shell.client_sends(request(SHARE_FETCH, 1, {"maxBytes": 1_000_000}))
    shell.advance(2_000)
    assert shell.to_broker
    shell.broker_sends(answer(SHARE_FETCH, 1))
    assert shell.state is State.READING
    assert [event.kind for event in shell.events][1:] == [EventKind.HOLD]


def test_a_share_fetch_elsewhere_is_held_for_two_seconds_behind_a_mute() -> None:
    shell = muted(is_group=False)
    shell.client_sends(request(SHARE_FETCH, 1, {"maxBytes": 1_000_000}))
    shell.advance(3_000)
    assert shell.state is State.HOLDING
    assert shell.session.pace.wake_at_ms - shell.now_ms == 2_000


@OF_A_GROUP
@pytest.mark.parametrize("heeds", [True, False], ids=["heeds", "heedless"])
@pytest.mark.parametrize("batch_bytes", [900, 2_500, 9_000, 60_000])
def test_from_answer_to_answer_it_is_the_bound_and_a_fetch_gets_its_turn(
    batch_bytes: int, heeds: bool, is_group: bool
) -> None:
    """A minute at 1,000 B/s with a session of 6 s; what the broker has is answered at once. 20 ms of its own
    the client needs. Half its session is the bound of what it sleeps and waits; of the waits alone it is 2 s
    on a group's connection."""
    shell = connection(shared_of(limits_of(fetch_rate=1_000)), is_group=is_group, session_ms=6_000)
    begun_ms = answered_ms = shell.now_ms
    longest_ms, answers, brought_bytes = 0.0, 0, 0
    while shell.now_ms < begun_ms + 60_000:
        fetches(shell)
        while not shell.to_broker:
            shell.advance(1)
        frame = answer(FETCH, 12) if is_replaced(shell) else fetch_answer_of(batch_bytes)
        shell.broker_sends(frame)
        longest_ms = max(longest_ms, shell.now_ms - answered_ms)
        answered_ms = shell.now_ms
        answers += 1
        brought_bytes += len(frame)
        shell.advance(20 + (throttle_of(FETCH, 12, shell.to_client) if heeds else 0))
    bound_ms = 3_000 if heeds else BOUND_MS[is_group]
    assert longest_ms <= bound_ms + 120
    assert answers <= 60_000 / min(BOUND_MS[is_group], batch_bytes) * 2 + 4
    assert brought_bytes <= 64_200 + batch_bytes + 100 * answers  # its last Fetch may be held until 63.2 s
    assert brought_bytes >= min(57_000, batch_bytes)


def test_a_metadata_behind_a_mute_is_not_held_for_it() -> None:
    shell = muted(is_group=False)
    shell.to_broker.clear()
    shell.client_sends(request(METADATA, 12, correlation_id=5))
    shell.advance(3_000)
    assert shell.to_broker == request(METADATA, 12, correlation_id=5)
