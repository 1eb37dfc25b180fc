"""Every pair of a connection's state and an event: what follows, as the wire semantics want it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import inf

import pytest

from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.connection_states import (
    CHANGES,
    IMPOSSIBLE,
    TRANSITIONS,
    Event,
    Gate,
    ImpossibleEvent,
    State,
    rows,
)
from sluice.proxy.session.read_gate import Pace
from sluice.quotas.kinds import QuotaKind

NOW_MS, PAID_MS, TURN_MS = 1_000.0, 1_500.0, 1_200.0
END = DisconnectCause.DRAINED

BRING_ABOUT: dict[Event, Callable[[Pace], object]] = {
    Event.BOUNDARY: lambda pace: pace.meet_gate(),
    Event.MUTE: lambda pace: pace.mute(PAID_MS, NOW_MS, QuotaKind.FETCH),
    Event.MUTE_AT_BOUNDARY: lambda pace: pace.mute(PAID_MS, NOW_MS, QuotaKind.FETCH, at_boundary=True),
    Event.HOLD: lambda pace: pace.hold(TURN_MS, NOW_MS, QuotaKind.PRODUCE),
    Event.RELEASE: lambda pace: pace.release(PAID_MS),
    Event.WAKE: lambda pace: pace.wake(max(NOW_MS, PAID_MS)),
    Event.WAKE_EARLY: lambda pace: pace.wake(NOW_MS),
    Event.AWAIT: lambda pace: pace.await_broker(),
    Event.ANSWER: lambda pace: pace.broker_answered(),
    Event.END: lambda pace: pace.end(END, "", at_boundary=False),
    Event.END_AT_BOUNDARY: lambda pace: pace.end(END, "", at_boundary=True),
}
WAYS: dict[tuple[State, Gate], tuple[Event, ...]] = {
    (State.READING, Gate.TIME): (),
    (State.READING, Gate.BROKER): (Event.AWAIT,),
    (State.READING, Gate.NEVER): (Event.END,),
    (State.MUTED, Gate.TIME): (Event.MUTE_AT_BOUNDARY,),
    (State.MUTED, Gate.BROKER): (Event.MUTE_AT_BOUNDARY, Event.AWAIT),
    (State.MUTED, Gate.NEVER): (Event.MUTE_AT_BOUNDARY, Event.END),
    (State.HOLDING, Gate.TIME): (Event.HOLD,),
    (State.HOLDING, Gate.BROKER): (Event.HOLD, Event.AWAIT),
    (State.HOLDING, Gate.NEVER): (Event.HOLD, Event.END),
    (State.AWAITING_BROKER, Gate.BROKER): (Event.AWAIT, Event.BOUNDARY),
    (State.AWAITING_BROKER, Gate.NEVER): (Event.AWAIT, Event.BOUNDARY, Event.END),
    (State.ENDING, Gate.NEVER): (Event.END_AT_BOUNDARY,),
}
"""how each comes about"""


def pace_in(pair: tuple[State, Gate]) -> Pace:
    pace = Pace()
    for event in WAYS[pair]:
        BRING_ABOUT[event](pace)
    assert pace.state is pair[0]
    return pace


def test_every_state_and_gate_that_can_come_about_is_in_the_table_and_no_other() -> None:
    known, reached = {(State.READING, Gate.TIME)}, [(State.READING, Gate.TIME)]
    while reached:
        for state, gate, _ in TRANSITIONS[reached.pop()].values():
            if (state, gate) not in known:
                known.add((state, gate))
                reached.append((state, gate))
    assert known == set(CHANGES) == set(WAYS)


@pytest.mark.parametrize(("pair", "event"), list(product(CHANGES, Event)))
def test_every_pair(pair: tuple[State, Gate], event: Event) -> None:
    """What must hold of any of them, whatever the table says; and that the connection goes by the table."""
    pace = pace_in(pair)
    if pair in IMPOSSIBLE.get(event, ()):
        if event is Event.WAKE_EARLY:  # it is never asked for: the gate's time is ∞
            assert pace.gate_ms == inf
            return
        with pytest.raises(ImpossibleEvent, match=f"{event.name} in {pair[0].name}"):
            BRING_ABOUT[event](pace)
        return
    was_ended = pair[1] is Gate.NEVER
    BRING_ABOUT[event](pace)
    state, gate, _ = TRANSITIONS[pair][event]
    assert pace.state is state
    is_ended = was_ended or event in {Event.END, Event.END_AT_BOUNDARY}
    assert (gate is Gate.NEVER) == is_ended, "an end is for good"
    is_shut = gate is not Gate.TIME or state is State.HOLDING
    assert (pace.gate_ms == inf) == is_shut, "nothing is begun before its time"
    if state in {State.MUTED, State.HOLDING}:
        assert pace.wake_at_ms < inf, "what waits for time is woken"
    if state in {State.AWAITING_BROKER, State.ENDING} and event is Event.BOUNDARY:
        assert pace.wake_at_ms == inf, "and what does not, is not"
    if pair[0] is State.ENDING:
        assert state is State.ENDING
    if event is Event.END_AT_BOUNDARY:
        assert state is State.ENDING


@pytest.mark.parametrize("pair", list(CHANGES))
def test_from_every_state_all_ends_where_the_frame_ends(pair: tuple[State, Gate]) -> None:
    """Whatever is waited for: a held request goes or is dropped, and then the boundary is met."""
    pace = pace_in(pair)
    pace.end(END, "", at_boundary=False)
    if pace.state is State.HOLDING:
        pace.release(0.0)
    pace.meet_gate()
    assert (pace.state, pace.gate_ms) == (State.ENDING, inf)


@pytest.mark.parametrize("pair", [pair for pair in CHANGES if pair[1] is not Gate.NEVER])
def test_from_every_state_reading_goes_on_when_all_that_it_waits_for_has_come(
    pair: tuple[State, Gate],
) -> None:
    pace = pace_in(pair)
    pace.broker_answered()
    if pace.state is State.HOLDING:
        pace.release(0.0)
    pace.wake(PAID_MS)
    assert pace.state is State.READING
    assert pace.gate_ms <= PAID_MS


def test_the_rows_of_the_hot_path_say_what_the_table_says() -> None:
    """From the row of a new connection on, whatever events follow."""
    seen = {(State.READING, Gate.TIME): rows()}
    to_visit = list(seen)
    while to_visit:
        pair = to_visit.pop()
        assert len(seen[pair]) == len(Event)
        for event in Event:
            found, expected = seen[pair][event], TRANSITIONS[pair].get(event)
            if found is None or expected is None:
                assert (found is None) is (expected is None), (pair, event)
                continue
            assert found[:3] == tuple(expected)
            following = found[:2]
            if following not in seen:
                seen[following] = found[3]
                to_visit.append(following)
            assert seen[following] is found[3]
    assert seen.keys() == TRANSITIONS.keys()
