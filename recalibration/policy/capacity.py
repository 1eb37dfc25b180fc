"""Limits fitted into what a broker can bear: max-min water-filling, of what nobody needs first.

Were every entity given its limit, a broker might be promised more than it has. It may be, within reason: not
all use theirs at once, so promises up to capacity × oversubscription pass. Beyond that the small ones keep
what they have and the large ones are cut to one level L, the highest at which all fit:

    Σ min(limit_i, L) = capacity × oversubscription

Max-min fair: nobody can get more but from somebody who has as little or less. Found by going through the
limits from the smallest: with m of them left and r remaining, the next either fits under r / m, or L = r / m.

What somebody asks for he keeps all the same, as long as there is room for all of that: else who holds a large
limit and uses little of it would take from who uses his:

    Σ max(min(limit_i, L), kept_i) = capacity × oversubscription

Who is throttled may need anything; of him no more is kept than he has, and than L would leave him by limits
alone. Where not all that is kept fits, it is shared in its turn: each has what he asks for, and he who is
throttled his limit, up to the level F at which that fits. Those come last whose names anybody may make up.
Before all that comes what is firm: floors, and what is not to be cut tonight.

Worked examples: limits 100, 300, 800, 800, and room for 1,500: 100 ≤ 1500/4 stays, 300 ≤ 1400/3 stays, 800 >
1100/2: L = 550: 100, 300, 550, 550. Limits of 800 of which 700, 100 and 100 are kept, and the same room: L =
400: 700, 400, 400. With room for 800, the 900 that are kept do not fit: F = 600: 600, 100, 100.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

_Entity = TypeVar("_Entity")


@dataclass(frozen=True, slots=True)
class Claim:
    """What one entity has, and wants, of the room; all in the unit of the limit."""

    limit: float
    """what it would have were there room"""
    kept: float = 0.0
    """what it asks for"""
    has: float = 0.0
    """its limit until now"""
    is_held_back: bool = False
    """it is throttled: what it asks for is not known"""
    firm: float = 0.0
    """it has that whether there is room or not"""
    is_of_anybody: bool = False
    """anybody may make up more of its kind: it comes behind those of which that is not so"""


def fitted(
    limits: Mapping[_Entity, float], room: float, kept: Mapping[_Entity, float] | None = None
) -> dict[_Entity, float]:
    """The limits, none above before; their sum is at most `room` > 0. The order stays.

    `kept`: what each keeps of its limit, if all of that fits; None: nothing.
    """
    keeps = dict.fromkeys(limits, 0.0) if kept is None else kept
    claims = [Claim(limit, keeps[each]) for each, limit in limits.items()]
    return dict(zip(limits, shares(claims, room), strict=True))


def shares(claims: Sequence[Claim], room: float) -> list[float]:
    """What each gets, in their order; together at most `room`, unless what is firm comes to more."""
    limits = [claim.limit for claim in claims]
    lows = [min(claim.firm, claim.limit) for claim in claims]
    level = water_level(limits, room)
    for is_of_anybody in (False, True):
        kept, asked = list(lows), list(lows)
        for place, claim in enumerate(claims):
            if claim.is_of_anybody is is_of_anybody:
                held = claim.is_held_back
                kept[place] = max(
                    lows[place], min(claim.limit, min(claim.has, level) if held else claim.kept)
                )
                asked[place] = max(lows[place], claim.limit if held else kept[place])
        if sum(kept) > room:
            return _between(lows, asked, room)
        lows = kept
    return _between(lows, limits, room)


def water_level(limits: Sequence[float], room: float) -> float:
    """L; infinite if all of them fit as they are."""
    return _level_above(limits, [0.0] * len(limits), room)


def _between(lows: Sequence[float], highs: Sequence[float], room: float) -> list[float]:
    """Each up to its high or the level at which all fit, and its low at the least."""
    if sum(lows) >= room:
        return list(lows)
    level = _level_above(highs, lows, room)
    return [max(min(high, level), low) for high, low in zip(highs, lows, strict=True)]


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
