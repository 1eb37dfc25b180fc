"""Polls of idle consumers that are spaced, and what nobody has reserved for. Wire semantics 1.3."""

from __future__ import annotations

import pytest

from sluice.proxy.session.connection_states import State
from sluice.proxy.session.errors import BrokerMalformed
from sluice.proxy.session.fetch.turns import FetchTurns, Turn
from sluice.proxy.session.policy import SharedState
from sluice.quotas.kinds import QuotaKind
from testkit.frames.frames import (
    FETCH,
    SHARE_FETCH,
    answer,
    fetch,
    fetch_answer_of,
    request,
    sized,
)
from testkit.proxy.playbook import (
    START_MS,
    Shell,
    fetch_debt,
    limits_of,
    session_of,
    shared_of,
    shell_of,
)


def polling(shared: SharedState, count: int) -> list[Shell]:
    """Idle consumers whose polls are cut short, for the first has reserved what the others wait for; the
    last of them sleeps until it may poll again."""
    shells = [shell_of(shared) for _ in range(count)]
    for shell in shells:
        shell.client_sends(fetch())
    shells[0].broker_sends(answer(FETCH, 12))
    shells[0].client_sends(fetch(correlation_id=2))
    sleeper = shells[-1]
    sleeper.advance(1)
    sleeper.broker_sends(answer(FETCH, 12))
    sleeper.client_sends(fetch(correlation_id=2))
    assert sleeper.state is State.HOLDING
    return shells


def test_a_poll_that_has_slept_goes_if_there_is_room_by_then() -> None:
    first, sleeper = polling(shared_of(limits_of(fetch_rate=1_000)), 2)
    went = len(sleeper.to_broker)
    first.advance(1)  # its turn
    first.broker_sends(answer(FETCH, 12, correlation_id=2))
    sleeper.advance(498)
    assert len(sleeper.to_broker) == went
    sleeper.advance(1)
    assert len(sleeper.to_broker) > went
    assert sleeper.state is State.READING


def test_a_poll_that_has_slept_waits_with_the_others_if_something_is_owed_by_then() -> None:
    first, sleeper = polling(shared_of(limits_of(fetch_rate=1_000)), 2)
    went = len(sleeper.to_broker)
    first.advance(1)
    first.broker_sends(fetch_answer_of(3_000, correlation_id=2))
    sleeper.advance(499)
    assert len(sleeper.to_broker) == went
    assert sleeper.state is State.HOLDING
    sleeper.advance(2_000)
    assert len(sleeper.to_broker) > went


def test_a_poll_that_sleeps_ends_with_its_connection_and_leaves_nothing() -> None:
    shared = shared_of(limits_of(fetch_rate=1_000))
    _, sleeper = polling(shared, 2)
    sleeper.session.closed(sleeper.now_ms)
    (sensor,) = shared.quotas.sensors()
    assert sensor.fetch_queue().connections == 1


def test_a_wait_that_nobody_knows_of_is_none() -> None:
    """Before its first Fetch, and without a limit."""
    turns = FetchTurns(Shell(session_of()).session.pace, lambda _: 3_000.0)
    assert (turns.wait_ms(START_MS), turns.tell(5_000.0, 70.0, 3_000.0, START_MS)) == (0.0, 70.0)


def test_an_answer_too_short_for_what_it_must_tell_is_the_brokers_fault() -> None:
    shell = shell_of(shared_of(limits_of(fetch_rate=1_000)))
    shell.client_sends(fetch(correlation_id=1, max_bytes=100))
    shell.sensor(QuotaKind.FETCH).fetch_queue().batches.saw([100], shell.now_ms)
    shell.broker_sends(answer(FETCH, 12))
    shell.client_sends(fetch(correlation_id=1, max_bytes=100) + fetch(correlation_id=2, max_bytes=100))
    shell.broker_sends(fetch_answer_of(3_000, correlation_id=1))
    with pytest.raises(BrokerMalformed, match="no room for throttle_time_ms"):
        shell.broker_sends(sized((2).to_bytes(4, "big") + bytes(2)))


def test_a_share_fetch_that_is_given_again_while_it_stands_in_the_queue_goes_with_its_acknowledgements() -> (
    None
):
    """However the shell came to give it again: never is it replaced."""
    shared = fetch_debt()
    shell = shell_of(shared)
    turns = FetchTurns(shell.session.pace, lambda _: 3_000.0)
    (sensor,) = shared.quotas.sensors()
    buf = bytearray(request(SHARE_FETCH, 1, {"groupId": "g", "memberId": "m", "maxBytes": 50_000_000}))
    offset = buf.index((50_000_000).to_bytes(4, "big"))
    assert turns.turn(sensor, buf, offset, SHARE_FETCH, START_MS) is Turn.WAIT
    assert turns.turn(sensor, buf, offset, SHARE_FETCH, START_MS + 1_000.0) is Turn.GO
    assert len(sensor.fetch_queue()) == 0


def test_an_answer_that_nothing_was_reserved_for_settles_nothing() -> None:
    """Of a bucket that the connection has not fetched from, and of one that it has left."""
    shared = fetch_debt()
    (sensor,) = shared.quotas.sensors()
    turns = FetchTurns(shell_of(shared).session.pace, lambda _: 3_000.0)
    for used in (None, sensor):
        turns.use(used, START_MS)
        turns.settle(sensor, 0.0, 500.0, START_MS)
    assert sensor.fetch_queue().reserved_bytes == 0
