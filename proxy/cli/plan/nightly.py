"""How much of a plan an unattended night may write: as far as the guards allow, the most certain first. Pure.

A plan beyond the guards is neither refused, for it would come back every night for ever, nor written whole:
- cuts (of keys with 10 limits or more): over seven days at most a quarter of their total, of which no limit
  is more than all others together, and an unlimited one nothing; a seventh of that each night, so that no
  night is left without; the last limit goes a part of the way; of at most half of a key's limits in a night;
  and none while rows of the log's last week are missing;
- rises: as long as all limits of the key come to no more than there is room for, or to no more than before.
The rest is left out, told, and comes back with the next plan.

Worked example: 20 limits of 1,000, all to become 700, nothing cut this week: the budget is 5,000 a week
and 714 tonight; two are cut by 300 and a third by 114.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, log10
from typing import Final

from sluice.proxy.cli.plan.file import PlanFile, PlannedLimit
from sluice.proxy.cli.quotas.edit import Whom
from sluice.quotas.kinds import KINDS, WHOLE_FROM, QuotaKind
from sluice.quotas.numbers import number

UNLIMITED: Final = 2.0**53
"""from here on a limit is none for the guards: 2⁶³ − 1 is how many files say "unlimited", and above 2⁵³ not
every whole number is a float"""
_NIGHTS: Final = 7
_ROUNDING: Final = 1.0 + 1e-9
"""sums of fractions, in whatever order"""


_Chosen = tuple[list[PlannedLimit], list[tuple[PlannedLimit, str]]]
"""(what may be written, in the plan's order; what is left out and why)"""


def allowed_tonight(
    plan: PlanFile,
    chosen: Sequence[PlannedLimit],
    cuts_of_week: Mapping[str, float],
    cuts_of_night: Mapping[str, float],
    *,
    max_cut_share: float,
    max_total_fall: float,
    shares_from: int,
) -> _Chosen:
    """`plan`: its limits as they are now. Of totals and numbers each limit is a part by what it counts in its
    key's room, and names that anybody may make up are none: they make no night's share larger."""
    left_out: list[tuple[PlannedLimit, str]] = []
    cuts: list[PlannedLimit] = []
    for kind in KINDS:
        key = KINDS[kind].config_key
        cut_before = cuts_of_week.get(key, 0.0)
        cuts_left, fall_left = float("inf"), float("inf")
        in_room = key in plan.room
        weight = weight_of(plan, kind, in_room=in_room)
        cut_tonight = cuts_of_night.get(key, 0.0)
        if cut_before > weight.total:
            # More than there is: booked by an older version, which counted unlimited limits in full.
            cut_before = cut_tonight = 0.0
        if weight.whole >= shares_from:
            cuts_left = max_cut_share * weight.whole
        if weight.bounded >= shares_from:
            week = max_total_fall * (weight.total + cut_before)
            fall_left = min(week - cut_before, week / _NIGHTS - cut_tonight)
        for limit in sorted((limit for limit in chosen if limit.kind is kind), key=_certainty):
            now = _counts_now(limit, in_room)
            fall = now - limit.proposed
            if fall <= 0.0:
                continue
            if plan.incomplete:
                left_out.append((limit, f"cuts nothing: the log lacks rows of {', '.join(plan.incomplete)}"))
                continue
            counts = weight.part_of(limit)
            is_within = counts * fall <= max(0.0, fall_left)
            part = limit if is_within else _partly(limit, now, fall_left / counts)
            if cuts_left < 1.0 or part.proposed >= now:
                left_out.append((limit, "a later night: the guards allow no more cuts tonight"))
                continue
            if part is not limit:
                left_out.append((limit, f"a later night: tonight it goes to {number(part.proposed)}"))
            cuts_left, fall_left = cuts_left - 1.0, fall_left - counts * (now - part.proposed)
            cuts.append(part)
    more = [each for each in chosen if each.proposed > _counts_now(each, each.key in plan.room)]
    taken, without_room = those_with_room(plan, [*cuts, *more])
    places = {(limit.kind, limit.whom): place for place, limit in enumerate(chosen)}
    taken.sort(key=lambda limit: places[limit.kind, limit.whom])
    return taken, left_out + without_room


def those_with_room(plan: PlanFile, chosen: Sequence[PlannedLimit]) -> _Chosen:
    """What takes no more of the room than before; and the others, the most certain first, as long as all
    limits of a key come to no more than there is room for, or to no more than before. A default's limit that
    becomes one of its own takes more even if it is a cut. `plan`: its limits as they are now."""
    left_out: list[tuple[PlannedLimit, str]] = []
    without: set[int] = set()
    for kind in KINDS:
        key = KINDS[kind].config_key
        limits = [limit for limit in plan.limits if limit.kind is kind]
        counted = {limit.whom: limit.room_taken(limit.current) for limit in limits}
        before = after = sum(counted.values()) + plan.room_of_unlisted.get(key, 0.0)
        room = max(plan.room.get(key, float("inf")), before)
        mine = [limit for limit in chosen if limit.kind is kind]
        changes = [(limit.room_taken(limit.proposed) - counted[limit.whom], limit) for limit in mine]
        after += sum(more for more, _ in changes if more <= 0.0)
        for more, limit in sorted(changes, key=lambda change: _certainty(change[1])):
            if more <= 0.0:
                continue
            if after + more > room * _ROUNDING:
                without.add(id(limit))
                left_out.append((limit, "a later night: there is no room until others are cut"))
            else:
                after += more
    return [limit for limit in chosen if id(limit) not in without], left_out


@dataclass(frozen=True, slots=True)
class KeyWeight:
    """What the limits of one key count for the guards."""

    whole: int
    """how many are no default's that stays: of these a share may be cut"""
    bounded: int
    """how many of them are no UNLIMITED ones: of fewer than some a total tells nothing"""
    total: float
    """what all come to, in the unit of the key"""
    parts: Mapping[Whom, float]
    """of the limits that do not count in full, the part that does; their falls count by it, too"""

    def part_of(self, limit: PlannedLimit) -> float:
        """The part of this limit, and of its fall, that counts."""
        return self.parts.get(limit.whom, 1.0)


def weight_of(plan: PlanFile, kind: QuotaKind, *, in_room: bool = False) -> KeyWeight:
    """What the limits of one key count. A user's by a default counts whole if it is to change, or where
    nearly all are a default's no night could cut any; one that stays by what is asked for. Of names that
    anybody may make up none counts, be it listed or summed up: by what they ask for, which costs nothing,
    they would make a night larger. An unlimited one counts nothing, and the largest at most as much as all
    others together, or it would hide what these lose. `in_room`: there is a room for the key."""
    limits = [limit for limit in plan.limits if limit.kind is kind and not limit.is_of_anybody]
    counted = {limit.whom: _counts_now(limit, in_room or not limit.is_change) for limit in limits}
    parts = {whom: 0.0 for whom, limit in counted.items() if limit >= UNLIMITED}
    bounded = {whom: limit for whom, limit in counted.items() if whom not in parts}
    whole = [limit.whom for limit in limits if limit.asked is None or limit.is_change]
    if bounded:
        largest = max(bounded, key=bounded.__getitem__)
        others = sum(limit for whom, limit in bounded.items() if whom != largest)
        if bounded[largest] > others:
            parts[largest] = others / bounded[largest]
            bounded[largest] = others
    return KeyWeight(len(whole), sum(whom in bounded for whom in whole), sum(bounded.values()), parts)


def _counts_now(limit: PlannedLimit, in_room: bool) -> float:
    """Where a room is shared what it takes of that, or a default's limit, of which little is asked for, would
    be cut into one of its own that takes more."""
    return limit.room_taken(limit.current) if in_room else limit.current


def _partly(limit: PlannedLimit, now: float, fall: float) -> PlannedLimit:
    """Cut by so much at most of what it counts now."""
    return replace(limit, proposed=min(limit.current, _rounded_up(limit.kind, now - max(0.0, fall))))


def _rounded_up(kind: QuotaKind, limit: float) -> float:
    """Whole, as every kind takes it; three digits of a small one that may have a fraction, for the next whole
    number may be as much as it was: 0.813 of 0.8123."""
    if KINDS[kind].is_whole or limit >= WHOLE_FROM or limit <= 0.0:
        return float(ceil(limit))
    steps = 10.0 ** (2 - floor(log10(limit)))
    return float(f"{ceil(limit * steps) / steps:.3g}")


def cuts_in(plan: PlanFile, chosen: Sequence[PlannedLimit]) -> dict[str, float]:
    """Key → what its limits are cut by in all, as `allowed_tonight` counts that. `plan`: as there."""
    cuts: dict[str, float] = {}
    for kind in KINDS:
        mine = [limit for limit in chosen if limit.kind is kind]
        if not mine:
            continue
        key = KINDS[kind].config_key
        in_room = key in plan.room
        weight = weight_of(plan, kind, in_room=in_room)
        falls = (weight.part_of(limit) * (_counts_now(limit, in_room) - limit.proposed) for limit in mine)
        cut_by = sum(fall for fall in falls if fall > 0.0)
        if cut_by:
            cuts[key] = cut_by
    return cuts


def _certainty(limit: PlannedLimit) -> tuple[float, float]:
    """The most certain first; of the same, the smaller: more limits fit their demand sooner."""
    return -round(limit.confidence, 1), abs(limit.proposed - limit.current)
