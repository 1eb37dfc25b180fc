"""The table of a connection's states → docs/connection-states.md: what leads where, drawn, and every pair."""

from __future__ import annotations

import re
from collections import defaultdict
from inspect import getsource

from sluice.proxy.session.connection_states import (
    IMPOSSIBLE,
    TRANSITIONS,
    Event,
    Gate,
    State,
    Times,
    Transition,
)

_INTRO = """\
# States of a client connection

Made from the literal table in `proxy/session/connection_states.py`, which the session itself goes by; its
tests go through every pair. A connection has a state, which the shell obeys, and a gate, which says what the
next request waits for. A frame is never cut in two: while one is half read the gate is shut at once, and the
state changes at the next frame boundary.
"""


def connection_states_text() -> str:
    """The whole page of connection states."""
    lines = [_INTRO, *_drawing(), ""]
    for title, kind in (("State", State), ("Gate", Gate), ("Event", Event)):
        lines += [f"| {title.lower()} | meaning |", "|---|---|"]
        lines += [f"| `{name}` | {meaning} |" for name, meaning in _meanings(kind).items()]
        lines.append("")
    lines += _every_pair()
    return "\n".join([*lines, ""])


def _drawing() -> list[str]:
    """From each state the events that lead to another, whatever the gate."""
    causes: dict[tuple[State, State], list[str]] = defaultdict(list)
    for (state, _), row in TRANSITIONS.items():
        for event, transition in row.items():
            if transition.state is not state and event.name not in causes[state, transition.state]:
                causes[state, transition.state].append(event.name)
    return [
        "| from | to | by |",
        "|---|---|---|",
        *(
            f"| {state.name} | {to.name} | {', '.join(events)} |"
            for (state, to), events in sorted(causes.items())
        ),
    ]


def _every_pair() -> list[str]:
    lines = [
        "## Every pair",
        "",
        "In a cell the state and the gate that follow, and what becomes of the times: ∞ the gate is shut; "
        "paid: it opens when all is paid; wake: the connection is woken when the gate opens. "
        "· nothing changes; ✗ cannot happen.",
        "",
        f"| state, gate | {' | '.join(event.name for event in Event)} |",
        f"|---|{'---|' * len(Event)}",
    ]
    for (state, gate), row in TRANSITIONS.items():
        cells = [
            "✗" if (state, gate) in IMPOSSIBLE.get(event, ()) else _cell(state, gate, row[event])
            for event in Event
        ]
        lines.append(f"| {state.name}, {gate.name} | {' | '.join(cells)} |")
    return lines


def _cell(state: State, gate: Gate, transition: Transition) -> str:
    to, to_gate, times = transition
    if (to, to_gate, times) == (state, gate, Times.STAY):
        return "·"
    what = {
        Times.STAY: "",
        Times.SHUT: "; ∞",
        Times.GATE: "; paid",
        Times.WAKE: "; wake",
        Times.GATE_AND_WAKE: "; paid, wake",
    }
    return f"{to.name}, {to_gate.name}{what[times]}"


def _meanings(kind: type[State] | type[Gate] | type[Event]) -> dict[str, str]:
    """A member's meaning is the text below it, as for attributes everywhere here."""
    found = re.findall(r'^    ([A-Z_]+) = \d+\n    """(.*?)"""$', getsource(kind), re.MULTILINE | re.DOTALL)
    return {name: " ".join(meaning.split()) for name, meaning in found}
