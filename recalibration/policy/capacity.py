"""Limits fitted into what a broker can bear: max-min water-filling, of what nobody needs first.

Were every entity given its limit, a broker might be promised more than it has. It may be, within reason: not
all use theirs at once, so promises up to capacity × oversubscription pass. Beyond that the small ones keep
what they have and the large ones are cut to one level L, the highest at which all fit:

    Σ min(limit_i, L) = capacity × oversubscription

Max-min fair: nobody can get more but from somebody who has as little or less. Found by going through the
limits from the smallest: with m of them left and r remaining, the next either fits under r / m, or L = r / m.

So the room is given away, step by step, each only with what those before it leave:

    firm        floors, and what is not to be cut tonight
    asked for   of who is not throttled what he asks for; of who is, and may need anything, what he has
    more        of who is throttled, and of whom too little is known, up to their limits
    names       what is asked for, and then more, of those whose names anybody may make up, or who have a
                default's limit and send little
    slack       of all, up to their limits: who holds a large limit and uses little of it takes from nobody
                who uses his, or waits

Where not all that is asked for fits, it is shared by its own level, and the limit of who is throttled counts
as asked for.

Worked examples: limits 100, 300, 800, 800, and room for 1,500: 100 ≤ 1500/4 stays, 300 ≤ 1400/3 stays, 800 >
1100/2: L = 550: 100, 300, 550, 550. Limits of 800 of which 700, 100 and 100 are asked for, and the same room:
L = 400: 700, 400, 400. With room for 800 the 900 do not fit: L = 600: 600, 100, 100.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

_Entity = TypeVar("_Entity")
_ROUNDING: Final = 1.0 + 1e-9
"""sums of fractions"""


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
    is_new: bool = False
    """what it asks for says too little of what it needs"""
    firm: float = 0.0
    """it has that whether there is room or not"""
    is_of_anybody: bool = False
    """anybody may make up more of its kind, or it sends little: it stands behind the others"""


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
    given = [min(claim.firm, claim.limit) for claim in claims]
    for is_of_anybody in (False, True):
        mine = [claim.is_of_anybody is is_of_anybody for claim in claims]
        asked = _raised(given, claims, mine, lambda claim: claim.has if claim.is_held_back else claim.kept)
        if sum(asked) > room * _ROUNDING:
            asked = _raised(
                given, claims, mine, lambda claim: claim.limit if claim.is_held_back else claim.kept
            )
        given = _between(given, asked, room)
        more = _raised(
            given, claims, mine, lambda claim: claim.limit if claim.is_held_back or claim.is_new else 0.0
        )
        given = _between(given, more, room)
    for is_of_anybody in (False, True):
        mine = [claim.is_of_anybody is is_of_anybody for claim in claims]
        given = _between(given, _raised(given, claims, mine, lambda claim: claim.limit), room)
    return given


def _raised(
    given: Sequence[float], claims: Sequence[Claim], mine: Sequence[bool], to: Callable[[Claim], float]
) -> list[float]:
    """What is given, of those who are meant at least what it is to become, and nobody more than his limit."""
    return [
        max(low, min(to(claim), claim.limit)) if is_mine else low
        for low, claim, is_mine in zip(given, claims, mine, strict=True)
    ]


def _between(lows: Sequence[float], highs: Sequence[float], room: float) -> list[float]:
    """Each up to its high or the level at which all fit, and its low at the least."""
    if sum(lows) >= room:
        return list(lows)
    level = water_level(highs, lows, room)
    return [max(min(high, level), low) for high, low in zip(highs, lows, strict=True)]


def water_level(limits: Sequence[float], kept: Sequence[float], room: float) -> float:
    """L where each keeps something, all of which fits; infinite if all limits fit as they are.

    Upwards from 0: at what is kept one begins to rise with L, at its limit it ends.
    """
    total, rising, level = sum(kept), 0, 0.0
    for at, change in sorted([*((each, 1) for each in kept), *((each, -1) for each in limits)]):
        more = rising * (at - level)
        if total + more > room:
            return level + (room - total) / rising
        total, rising, level = total + more, rising + change, at
    return float("inf")
