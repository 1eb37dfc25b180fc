"""Limits fitted into what a broker can bear: max-min water-filling, of what nobody needs first.

Were every entity given its limit, a broker might be promised more than it has. It may be, within reason: not
all use theirs at once, so promises up to capacity × oversubscription pass. Beyond that the small ones keep
what they ask for and the large ones are cut to one level L, the highest at which all fit:

    Σ min(limit_i, L) = capacity × oversubscription

Max-min fair: nobody can get more but from somebody who has as little or less. Found by going through the
limits from the smallest: with m of them left and r remaining, the next either fits under r / m, or L = r / m.

Of a limit, what its entity needs is one part, what lies above that the other. As long as all needs fit, only
the second is cut so, to a level of its own: who holds a large limit and uses little of it, as a thousand
client ids that somebody made up do, takes nothing from who needs his.

Worked examples: limits 100, 300, 800, 800, all needed, and room for 1,500: 100 ≤ 1500/4 stays, 300 ≤ 1400/3
stays, 800 > 1100/2: L = 550: 100, 300, 550, 550. Limits of 800, of which 700, 100 and 100 are needed, and the
same room: 600 are left for what lies above, 100, 700 and 700: 800, 350, 350.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

_Entity = TypeVar("_Entity")


def fitted(
    limits: Mapping[_Entity, float], room: float, needs: Mapping[_Entity, float] | None = None
) -> dict[_Entity, float]:
    """The limits, none above before; their sum is at most `room` > 0. The order stays.

    `needs`: what each asks for, be it more than its limit; None: as much as that.
    """
    needs = limits if needs is None else needs
    return dict(
        zip(limits, shares(list(limits.values()), [needs[each] for each in limits], room), strict=True)
    )


def shares(limits: Sequence[float], needs: Sequence[float], room: float) -> list[float]:
    """The same, by place."""
    needed = [min(limit, need) for limit, need in zip(limits, needs, strict=True)]
    left = room - sum(needed)
    if left <= 0.0:
        level = water_level(needed, room)
        return [min(each, level) for each in needed]
    above = [limit - each for limit, each in zip(limits, needed, strict=True)]
    level = water_level(above, left)
    return [
        limit if more <= level else each + level
        for limit, each, more in zip(limits, needed, above, strict=True)
    ]


def water_level(limits: Sequence[float], room: float) -> float:
    """L; infinite if all of them fit as they are."""
    left = len(limits)
    for limit in sorted(limits):
        if limit * left > room:
            return room / left
        room -= limit
        left -= 1
    return float("inf")
