"""Limits fitted into what a broker can bear: max-min water-filling.

Were every entity given its limit, a broker might be promised more than it has. It may be, within reason: not
all use theirs at once, so promises up to capacity × oversubscription pass. Beyond that the small ones keep
what they ask for and the large ones are cut to one level L, the highest at which all fit:

    Σ min(limit_i, L) = capacity × oversubscription

Max-min fair: nobody can get more but from somebody who has as little or less. Found by going through the
limits from the smallest: with m of them left and r remaining, the next either fits under r / m, or L = r / m.

Worked example: limits 100, 300, 800, 800 and room for 1,500: 100 ≤ 1500/4 stays, 300 ≤ 1400/3 stays, 800 >
1100/2: L = 550: 100, 300, 550, 550.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

_Entity = TypeVar("_Entity")


def fitted(limits: Mapping[_Entity, float], room: float) -> dict[_Entity, float]:
    """The limits, none above the water level; their sum is at most `room` > 0. The order stays."""
    level = water_level(list(limits.values()), room)
    return {entity: min(limit, level) for entity, limit in limits.items()}


def water_level(limits: list[float], room: float) -> float:
    """L; infinite if all of them fit as they are."""
    left = len(limits)
    for limit in sorted(limits):
        if limit * left > room:
            return room / left
        room -= limit
        left -= 1
    return float("inf")
