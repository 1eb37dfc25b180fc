"""The states of a client connection: what an event leads to in each of them, in one literal table. Pure.

A connection is in a `State`, which the shell obeys, and has a `Gate`, which says what the next request waits
for. They differ while a frame is half read: a frame is never cut in two, so the gate is shut at once, and the
state changes where the next frame would begin (BOUNDARY). docs/connection-states.md is drawn from this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias


class State(IntEnum):
    """What the shell does. READING is 0, so that the common case is one truth test."""

    READING = 0
    """reads, and gives the session what came"""
    MUTED = 1
    """reads nothing until `wake_at_ms`: what went is not paid"""
    HOLDING = 2
    """reads nothing until `wake_at_ms`: a request waits for its turn"""
    AWAITING_BROKER = 3
    """reads nothing before an answer has come"""
    ENDING = 4
    """reads nothing more; closes when all in flight is answered"""


class Gate(IntEnum):
    """What the next request waits for."""

    TIME = 0
    """that what went before is paid; open if it is. While HOLDING it is shut"""
    BROKER = 1
    """an answer"""
    NEVER = 2
    """there is none"""


class Event(IntEnum):
    """What happens to a connection."""

    BOUNDARY = 0
    """a frame ends, or would begin, and the gate is shut"""
    MUTE = 1
    """a charge is not paid yet; a frame is half read"""
    MUTE_AT_BOUNDARY = 2
    """a charge is not paid yet; no frame is half read"""
    HOLD = 3
    """the request at hand waits for its turn"""
    RELEASE = 4
    """the held request goes, or is given again"""
    WAKE = 5
    """`wake_at_ms` has come, and the gate's time, too"""
    WAKE_EARLY = 6
    """`wake_at_ms` has come, and the gate's time has moved meanwhile"""
    AWAIT = 7
    """nothing follows before an answer: a login, too much in flight, a question of the proxy's own"""
    ANSWER = 8
    """that answer, or enough of them, came"""
    END = 9
    """bad bytes, a drain; a frame is half read"""
    END_AT_BOUNDARY = 10
    """the same, or an end of stream; no frame is half read"""


class Times(IntEnum):
    """What becomes of the gate's time and of the time to be woken."""

    STAY = 0
    SHUT = 1
    """the gate's is never"""
    GATE = 2
    """the gate's is when all is paid"""
    WAKE = 3
    """the time to be woken is the gate's"""
    GATE_AND_WAKE = 4
    """both: when all is paid"""


class Transition(NamedTuple):
    """Where an event leads to."""

    state: State
    gate: Gate
    times: Times = Times.STAY


class ImpossibleEvent(AssertionError):
    """An event that the state excludes: a fault of ours. It costs this connection."""


_R, _M, _H, _A, _E = State
_TIME, _BROKER, _NEVER = Gate
_SHUT, _GATE, _WAKE, _GATE_AND_WAKE = Times.SHUT, Times.GATE, Times.WAKE, Times.GATE_AND_WAKE

CHANGES: Final[Mapping[tuple[State, Gate], Mapping[Event, Transition]]] = {
    (_R, _TIME): {
        Event.BOUNDARY: Transition(_M, _TIME, _WAKE),
        Event.MUTE: Transition(_R, _TIME, _GATE),
        Event.MUTE_AT_BOUNDARY: Transition(_M, _TIME, _GATE_AND_WAKE),
        Event.HOLD: Transition(_H, _TIME, _SHUT),
        Event.AWAIT: Transition(_R, _BROKER, _SHUT),
        Event.END: Transition(_R, _NEVER, _SHUT),
        Event.END_AT_BOUNDARY: Transition(_E, _NEVER, _SHUT),
    },
    (_R, _BROKER): {  # the frame at hand is read on, and nothing after it
        Event.BOUNDARY: Transition(_A, _BROKER, _WAKE),
        Event.ANSWER: Transition(_R, _TIME, _GATE),
        Event.END: Transition(_R, _NEVER),
        Event.END_AT_BOUNDARY: Transition(_E, _NEVER),
    },
    (_R, _NEVER): {
        Event.BOUNDARY: Transition(_E, _NEVER, _WAKE),
        Event.END_AT_BOUNDARY: Transition(_E, _NEVER),
    },
    (_M, _TIME): {
        Event.BOUNDARY: Transition(_M, _TIME, _WAKE),
        Event.MUTE: Transition(_M, _TIME, _GATE_AND_WAKE),
        Event.MUTE_AT_BOUNDARY: Transition(_M, _TIME, _GATE_AND_WAKE),
        Event.WAKE: Transition(_R, _TIME),
        Event.WAKE_EARLY: Transition(_M, _TIME, _WAKE),
        Event.AWAIT: Transition(_M, _BROKER, _SHUT),  # the proxy logs in anew
        Event.END: Transition(_M, _NEVER, _SHUT),
        Event.END_AT_BOUNDARY: Transition(_E, _NEVER, _SHUT),
    },
    (_M, _BROKER): {
        Event.BOUNDARY: Transition(_A, _BROKER, _WAKE),
        Event.WAKE: Transition(_A, _BROKER),
        Event.ANSWER: Transition(_M, _TIME, _GATE),
        Event.END: Transition(_M, _NEVER),
        Event.END_AT_BOUNDARY: Transition(_E, _NEVER),
    },
    (_M, _NEVER): {
        Event.BOUNDARY: Transition(_E, _NEVER, _WAKE),
        Event.WAKE: Transition(_E, _NEVER),
        Event.END_AT_BOUNDARY: Transition(_E, _NEVER),
    },
    (_H, _TIME): {  # a mute that comes meanwhile begins when the held request goes
        Event.HOLD: Transition(_H, _TIME),
        Event.RELEASE: Transition(_R, _TIME, _GATE),
        Event.AWAIT: Transition(_H, _BROKER),
        Event.END: Transition(_H, _NEVER),
        Event.END_AT_BOUNDARY: Transition(_E, _NEVER),
    },
    (_H, _BROKER): {
        Event.RELEASE: Transition(_R, _BROKER),  # a drain: a Produce that no client sends again
        Event.ANSWER: Transition(_H, _TIME),  # the gate opens when the held request goes
        Event.END: Transition(_H, _NEVER),
        Event.END_AT_BOUNDARY: Transition(_E, _NEVER),
    },
    (_H, _NEVER): {
        Event.RELEASE: Transition(_R, _NEVER),
        Event.END_AT_BOUNDARY: Transition(_E, _NEVER),
    },
    (_A, _BROKER): {
        Event.BOUNDARY: Transition(_A, _BROKER, _WAKE),
        Event.ANSWER: Transition(_R, _TIME, _GATE),
        Event.END: Transition(_A, _NEVER),
        Event.END_AT_BOUNDARY: Transition(_E, _NEVER),
    },
    (_A, _NEVER): {
        Event.BOUNDARY: Transition(_E, _NEVER, _WAKE),
        Event.END_AT_BOUNDARY: Transition(_E, _NEVER),
    },
    (_E, _NEVER): {
        Event.BOUNDARY: Transition(_E, _NEVER, _WAKE),
    },
}
"""For each state and gate that there is: what changes. What is not named changes nothing, but for these."""

_IS_HELD: Final = frozenset(pair for pair in CHANGES if pair[0] is State.HOLDING)
IMPOSSIBLE: Final[Mapping[Event, frozenset[tuple[State, Gate]]]] = {
    # Only a request that may be begun can be held, or held on; and only one that is held can go.
    Event.HOLD: frozenset(CHANGES) - _IS_HELD - {(State.READING, Gate.TIME)},
    Event.RELEASE: frozenset(CHANGES) - _IS_HELD,
    # A gate that is shut has no time that could have moved.
    Event.WAKE_EARLY: frozenset(pair for pair in CHANGES if pair[1] is not Gate.TIME) | _IS_HELD,
}

TRANSITIONS: Final[Mapping[tuple[State, Gate], Mapping[Event, Transition]]] = {
    pair: {
        event: changes.get(event, Transition(*pair))
        for event in Event
        if pair not in IMPOSSIBLE.get(event, ())
    }
    for pair, changes in CHANGES.items()
}
"""All of them; an event that is not there is impossible."""

Row: TypeAlias = "list[tuple[State, Gate, Times, Row] | None]"


def rows() -> Row:
    """The same for the hot path: by event, with the row that follows, from the row of a new connection on."""
    of_pairs: dict[tuple[State, Gate], Row] = {pair: [] for pair in TRANSITIONS}
    for pair, row in of_pairs.items():
        for event in Event:
            to = TRANSITIONS[pair].get(event)
            row.append(None if to is None else (*to, of_pairs[to.state, to.gate]))
    return of_pairs[State.READING, Gate.TIME]
