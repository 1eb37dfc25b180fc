"""Limits fitted into what a broker can bear: max-min water-filling, of what nobody needs first.

Were every entity given its limit, a broker might be promised more than it has. It may be, within reason: not
all use theirs at once, so promises up to capacity × oversubscription pass. Beyond that the small ones keep
what they ask for and the large ones are cut to one level L, the highest at which all fit:

    Σ min(limit_i, L) = capacity × oversubscription

Max-min fair: nobody can get more but from somebody who has as little or less. Found by going through the
limits from the smallest: with m of them left and r remaining, the next either fits under r / m, or L = r / m.

What somebody asks for he keeps all the same, as long as there is room for all of that: else who holds a large
limit and uses little of it, as a thousand client ids that somebody made up do, would take from who uses his.
Who is throttled may need anything; of him nothing is kept, and he is cut to the level:

    Σ max(min(limit_i, L), kept_i) = capacity × oversubscription

Worked examples: limits 100, 300, 800, 800, and room for 1,500: 100 ≤ 1500/4 stays, 300 ≤ 1400/3 stays, 800 >
1100/2: L = 550: 100, 300, 550, 550. Limits of 800 of which 700, 100 and 100 are kept, and the same room: L =
400: 700, 400, 400.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

_Entity = TypeVar("_Entity")


def fitted(
    limits: Mapping[_Entity, float], room: float, kept: Mapping[_Entity, float] | None = None
) -> dict[_Entity, float]:
    """The limits, none above before; their sum is at most `room` > 0. The order stays.

    `kept`: what each keeps of its limit, if all of that fits; None: nothing.
    """
    keeps = dict.fromkeys(limits, 0.0) if kept is None else kept
    after = shares(list(limits.values()), [keeps[each] for each in limits], room)
    return dict(zip(limits, after, strict=True))


def shares(limits: Sequence[float], kept: Sequence[float], room: float) -> list[float]:
    """The same, by place."""
    kept = [min(each, limit) for each, limit in zip(kept, limits, strict=True)]
    if sum(kept) > room:
        kept = [0.0] * len(kept)
    level = _level_above(limits, kept, room)
    return [max(min(limit, level), each) for limit, each in zip(limits, kept, strict=True)]


def water_level(limits: Sequence[float], room: float) -> float:
    """L; infinite if all of them fit as they are."""
    return _level_above(limits, [0.0] * len(limits), room)


def _level_above(limits: Sequence[float], kept: Sequence[float], room: float) -> float:
    """L where each keeps something, all of which fits.

    Upwards from 0: at what is kept one begins to rise with L, at its limit it ends.
    """
    total, rising, level = sum(kept), 0, 0.0
    for at, change in sorted([*((each, 1) for each in kept), *((each, -1) for each in limits)]):
        more = rising * (at - level)
        if total + more > room:
            return level + (room - total) / rising
        total, rising, level = total + more, rising + change, at
    return float("inf")
