"""How much of a plan an unattended night may write: as far as the guards allow, the most certain first. Pure.

A plan beyond the guards is neither refused, for it would come back every night for ever, nor written whole:
- cuts (of keys with 10 limits or more): over seven days at most a quarter of their total, a seventh of that
  each night, so that no night is left without; the last limit goes a part of the way; of at most half of a
  key's limits in a night; and none while rows of the log's last week are missing;
- rises: as long as all limits of the key come to no more than there is room for, or to no more than before.
The rest is left out, told, and comes back with the next plan.

Worked example: 20 limits of 1,000, all to become 700, nothing cut this week: the budget is 5,000 a week
and 714 tonight; two are cut by 300 and a third by 114.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import Final

from sluice.proxy.cli.plan.file import PlanFile, PlannedLimit
from sluice.quotas.kinds import KINDS
from sluice.quotas.numbers import number

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
    key's room: names that somebody made up make no night's share larger."""
    left_out: list[tuple[PlannedLimit, str]] = []
    cuts: list[PlannedLimit] = []
    for kind in KINDS:
        limits = [limit for limit in plan.limits if limit.kind is kind]
        key = KINDS[kind].config_key
        cut_before = cuts_of_week.get(key, 0.0)
        cuts_left, fall_left = float("inf"), float("inf")
        in_room = key in plan.room
        number_whole, total = weight_of(limits, in_room)
        if number_whole >= shares_from:
            cuts_left = max_cut_share * number_whole
            week = max_total_fall * (total + cut_before)
            fall_left = min(week - cut_before, week / _NIGHTS - cuts_of_night.get(key, 0.0))
        for limit in sorted((limit for limit in chosen if limit.kind is kind), key=_certainty):
            now = _counts_now(limit, in_room)
            fall = now - limit.proposed
            if fall <= 0.0:
                continue
            if plan.incomplete:
                left_out.append((limit, f"cuts nothing: the log lacks rows of {', '.join(plan.incomplete)}"))
                continue
            part = limit if fall <= fall_left else _partly(limit, now, fall_left)
            if cuts_left < 1.0 or part.proposed >= now:
                left_out.append((limit, "a later night: the guards allow no more cuts tonight"))
                continue
            if part is not limit:
                left_out.append((limit, f"a later night: tonight it goes to {number(part.proposed)}"))
            cuts_left, fall_left = cuts_left - 1.0, fall_left - (now - part.proposed)
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
        limits = [limit for limit in plan.limits if limit.kind is kind]
        counted = {limit.whom: limit.room_taken(limit.current) for limit in limits}
        before = after = sum(counted.values())
        room = max(plan.room.get(KINDS[kind].config_key, float("inf")), before)
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


def weight_of(limits: Sequence[PlannedLimit], in_room: bool = False) -> tuple[int, float]:
    """(how many limits count whole, what all of them come to). A default's limit that is to change counts
    whole, or where nearly all are a default's no night could cut any; one that stays by what is asked for, so
    that names which somebody made up make no night larger. `in_room`: there is a room for the key."""
    whole = sum(limit.asked is None or limit.is_change for limit in limits)
    return whole, sum(_counts_now(limit, in_room or not limit.is_change) for limit in limits)


def _counts_now(limit: PlannedLimit, in_room: bool) -> float:
    """Where a room is shared what it takes of that, or a default's limit, of which little is asked for, would
    be cut into one of its own that takes more."""
    return limit.room_taken(limit.current) if in_room else limit.current


def _partly(limit: PlannedLimit, now: float, fall: float) -> PlannedLimit:
    """Cut by so much at most of what it counts now; whole numbers, as every kind takes them."""
    return replace(limit, proposed=min(limit.current, float(ceil(now - max(0.0, fall)))))


def cuts_in(plan: PlanFile, chosen: Sequence[PlannedLimit]) -> dict[str, float]:
    """Key → what its limits are cut by in all, as `allowed_tonight` counts that."""
    cuts: dict[str, float] = {}
    for limit in chosen:
        fall = _counts_now(limit, limit.key in plan.room) - limit.proposed
        if fall > 0.0:
            cuts[limit.key] = cuts.get(limit.key, 0.0) + fall
    return cuts


def _certainty(limit: PlannedLimit) -> tuple[float, float]:
    """The most certain first; of the same, the smaller: more limits fit their demand sooner."""
    return -round(limit.confidence, 1), abs(limit.proposed - limit.current)
