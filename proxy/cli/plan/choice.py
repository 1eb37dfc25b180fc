"""Which limits of a plan are to be written, and whether it may be applied at all. Pure: no clock, no file.

A plan is refused as a whole if it is empty, stale (its date is long past, or the limits are no longer those
that it was made from) or suspicious (it cuts too many, takes too much in total, or steps further than its own
policy does). Each refusal says what to do. What needs a person's word is left out until it is given.

Worked example, a plan of 20 limits of 1,000 each, 12 of them cut to 700: 12 / 20 = 60 % are cut, more than
half: refused; and were the bound at 70 %: the total falls by 12 × 300 = 3,600 of 20,000 = 18 %: fine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from math import floor, inf
from types import MappingProxyType
from typing import Final

from sluice.proxy.cli.plan.after import listing_after, takers_of
from sluice.proxy.cli.plan.file import PlanFile, PlannedLimit, cannot_be_named
from sluice.proxy.cli.plan.nightly import allowed_tonight, those_with_room, weight_of
from sluice.proxy.cli.quotas.edit import Whom
from sluice.proxy.cli.quotas.listing import KAFKA_KEYS, Listing, described
from sluice.proxy.cli.quotas.lookup import limits_of
from sluice.quotas.entity_key import LimitOrigin, in_force, origin_of
from sluice.quotas.kinds import KINDS
from sluice.quotas.limits.limits import QuotaLimits

SHARES_FROM: Final = 10
"""limits of one key: of fewer, shares and totals tell nothing"""
_ROUNDING: Final = 0.01
"""limits are rounded up to whole numbers, or to three digits"""
_SHOWN: Final = 5
"""names in a message"""
NEEDS_REVIEW: Final = "needs review"
"""why a limit of a plan of version 1 is left out"""
_BINDS_NOBODY: Final = "by a default for any name, of which there are others; lower the default"
"""why a cut is left out that a job of before has proposed"""
IN_SHADOW: Final = "is in shadow mode, which only a quota file can have"
_NOTHING: Final[Mapping[tuple[Whom, str], float]] = MappingProxyType({})
_MAY_RISE_FURTHER: Final = ("floor",)
_MAY_FALL_FURTHER: Final = ("capacity", "ceiling")


class PlanRefused(Exception):
    """The plan is not applied; nothing has changed. The message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Beyond which a plan is refused."""

    max_age_days: int = 3
    """between its date and today: Friday's log is applied on Monday at the latest"""
    max_cut_share: float = 0.5
    """of the plan's limits"""
    max_total_fall: float = 0.25
    """of all limits of one key; a night's step is 30 %, so this is nearly everybody cut at once, as when
    a part of the log is missing"""
    max_changes: int | None = None
    is_unattended: bool = False
    """what is beyond the shares and the fall is left for a later night, rather than the plan refused"""
    cuts_of_week: Mapping[str, float] = field(default_factory=dict)
    """key → what unattended nights have cut in the last seven days"""
    cuts_of_night: Mapping[str, float] = field(default_factory=dict)
    """key → what of it today, by a night that is run again"""
    rolled_back: Mapping[tuple[str, str], date] = field(default_factory=dict)
    """(entity, key) of what a person has rolled back → the last date on which no night changes it"""
    skip_changed: bool = False
    """leave limits out that have changed since the plan was made, rather than refuse it"""


@dataclass(frozen=True, slots=True)
class Reviews:
    """What a person has looked at."""

    all: bool = False
    named: frozenset[Whom] = frozenset()


@dataclass(slots=True)
class Choice:
    """What becomes of a plan."""

    chosen: list[PlannedLimit] = field(default_factory=list)
    """to be written"""
    left_out: list[tuple[PlannedLimit, str]] = field(default_factory=list)
    """and why"""
    granted: list[PlannedLimit] = field(default_factory=list)
    """of which a person has looked at what is wanted: the job may go up to it, step by step"""
    waiting: list[PlannedLimit] = field(default_factory=list)
    """of which more is wanted than is granted without a person's word"""
    done: int = 0
    """limits that are as proposed already"""
    as_it_is: PlanFile | None = None
    """the plan with the limits as they are by now; None: there was nothing to choose"""
    wanted: Listing = field(default_factory=lambda: Listing({}))
    """all limits of the place, afterwards"""

    def stays_at(self, limit: PlannedLimit) -> float:
        """What a limit of the plan is afterwards, be it written or left out."""
        return self.wanted.limits.get(limit.whom, {}).get(limit.key, limit.current)


def choose(
    plan: PlanFile,
    now: Listing,
    today: date,
    bounds: Bounds,
    reviews: Reviews,
    written: Mapping[tuple[Whom, str], float] = _NOTHING,
) -> Choice:
    """`now`: the limits of the place. `today`: in UTC, as the dates of logs are. `written`: by (entity, key),
    what this plan has made of limits there already, maybe a part of the way. Raises PlanRefused.
    """
    if not plan.limits and not plan.unlisted:
        raise PlanRefused(f"{plan.source}: is empty; see whether the proxies write the access log")
    _check_steps(plan)
    _check_names(plan, reviews)
    before = limits_of(now)
    plan = _told_by_origin(plan, before)
    choice = Choice(wanted=now)
    changed = _sorted(plan, before, bounds, reviews, written, choice)
    if changed and not bounds.skip_changed:
        raise PlanRefused(
            f"{plan.source}: is stale: {_count(len(changed), 'limit')} changed since it was made "
            f"({_names(changed)}); make the plan again, or leave these out with --skip-changed"
        )
    if choice.chosen or choice.granted:
        _check_age(plan, today, bounds)
    if choice.chosen:
        if not bounds.is_unattended:
            _check_shares(plan, choice, bounds)
        _leave_out_what_cannot_be(plan, before, now, bounds, choice)
    if bounds.max_changes is not None and len(choice.chosen) > bounds.max_changes:
        raise PlanRefused(
            f"{plan.source}: {_count(len(choice.chosen), 'change')}, and --max-changes is "
            f"{bounds.max_changes}; look at them with --dry-run, then raise it"
        )
    choice.wanted = listing_after(now, before, choice.chosen)
    return choice


def _sorted(
    plan: PlanFile,
    before: QuotaLimits,
    bounds: Bounds,
    reviews: Reviews,
    written: Mapping[tuple[Whom, str], float],
    choice: Choice,
) -> list[PlannedLimit]:
    """Each limit into its place in `choice`, whose `wanted` are the limits of the place still. Returns those
    that somebody has changed, and which are left out."""
    now, changed, rooms = choice.wanted, [], _rooms(plan)
    for planned in plan.limits:
        may_be_granted = planned.needs_review and plan.version > 1
        if planned.proposed == planned.current and not may_be_granted:
            continue
        limit = planned
        until = bounds.rolled_back.get((limit.entity, limit.key))
        # A timer may have --include-reviews, too; a name is a person's word of this one.
        is_reviewed = (reviews.all and until is None) or limit.whom in reviews.named
        found = in_force(before, limit.kind, limit.entity)
        unnamable = cannot_be_named(limit.whom) or _not_there(now, limit, found)
        may_be_granted &= unnamable is None
        if may_be_granted and is_reviewed:
            limit = _first_step(plan, limit, rooms.get(limit.key, inf))
        is_now = None if found is None else found[0]
        is_written = is_now is not None and is_now == written.get((limit.whom, limit.key))
        is_other = not is_written and is_now not in {limit.current, limit.proposed}
        is_changed = is_other or limit.has_lost_its_own
        if may_be_granted and not is_changed:
            (choice.granted if is_reviewed else choice.waiting).append(limit)
            if limit.key in rooms:
                rooms[limit.key] -= limit.room_taken(limit.proposed) - planned.room_taken(planned.proposed)
        stays = limit.proposed == limit.current
        if stays and not (may_be_granted and is_changed):
            continue
        if is_now == limit.proposed:
            choice.done += 1
        elif unnamable is not None:
            choice.left_out.append((limit, unnamable))
        elif limit.is_of_anybody and limit.proposed < limit.current:
            choice.left_out.append((limit, _BINDS_NOBODY))
        elif limit.needs_review and plan.version == 1 and not is_reviewed:
            choice.left_out.append((limit, NEEDS_REVIEW))
        elif is_changed or is_now is None:
            if is_reviewed or not stays:
                changed.append(limit)
            choice.left_out.append((limit, limit.was_and_is(is_now)))
        elif until is not None and not is_reviewed:
            choice.left_out.append((limit, f"was rolled back; left as it is until {until}, or --include"))
        else:
            _go_on(limit, is_now, choice)
    return changed


def _told_by_origin(plan: PlanFile, before: QuotaLimits) -> PlanFile:
    """With those marked that have a default's limit here: for any client id or address, as the plan says,
    too (who was granted one counts in full from then on); or where the plan says that it was their own."""

    def told(limit: PlannedLimit) -> PlannedLimit:
        origin = origin_of(before, limit.kind, limit.entity)
        is_of_anybody = limit.asked is not None and origin is LimitOrigin.ANYBODY
        has_lost = limit.is_own and origin is not LimitOrigin.OWN
        return replace(limit, is_of_anybody=is_of_anybody, has_lost_its_own=has_lost)

    return replace(plan, limits=tuple(map(told, plan.limits)))


def _go_on(limit: PlannedLimit, is_now: float, choice: Choice) -> None:
    """From where it is by now: as the plan has it, or where that was applied a part of the way."""
    if min(limit.current, limit.proposed) <= is_now <= max(limit.current, limit.proposed):
        choice.chosen.append(limit if is_now == limit.current else replace(limit, current=is_now))
    else:  # a grant has taken it further
        choice.done += 1


def _as_it_is(plan: PlanFile, before: QuotaLimits) -> PlanFile:
    """With the limits as they are by now, whoever has set them since it was made."""
    limits = []
    for limit in plan.limits:
        found = in_force(before, limit.kind, limit.entity)
        now = limit.current if found is None else found[0]
        asked = limit.asked
        if asked is not None and origin_of(before, limit.kind, limit.entity) is LimitOrigin.OWN:
            asked = None
        limits.append(replace(limit, current=now, asked=asked))
    return replace(plan, limits=tuple(limits))


def _rooms(plan: PlanFile) -> dict[str, float]:
    """Key → what there is room for beyond all that the plan proposes."""
    rooms = {key: room - plan.room_of_unlisted.get(key, 0.0) for key, room in plan.room.items()}
    for limit in plan.limits:
        if limit.key in rooms:
            rooms[limit.key] -= limit.room_taken(limit.proposed)
    return rooms


def _first_step(plan: PlanFile, limit: PlannedLimit, room: float) -> PlannedLimit:
    """What a grant gets tonight: a step at most, if there is `room` for what it takes beyond the proposal."""
    step = min(limit.first_step, limit.up_to, limit.current * plan.max_step_up)
    proposed = float(floor(step)) if step >= 1.0 else step
    if proposed <= limit.proposed or limit.reason in _MAY_FALL_FURTHER:
        return limit
    if proposed - limit.room_taken(limit.proposed) > room:
        return limit
    return replace(limit, proposed=proposed, asked=None)


def _not_there(now: Listing, limit: PlannedLimit, found: tuple[float, bool] | None) -> str | None:
    """Why a server can have no such limit; None: it can, or the place is a file. `found`: the one in force,
    and whether it is in shadow mode, as one in its place would be."""
    if now.takes_own:
        return None
    if any(part not in KAFKA_KEYS for part, _ in limit.whom):
        return "only a quota file can have it; apply the plan there, too"
    if found is not None and found[1]:
        return f"{IN_SHADOW}; written here it would be in force"
    return None


def _check_steps(plan: PlanFile) -> None:
    beyond = []
    for limit in plan.limits:
        up = limit.current * plan.max_step_up
        down = limit.current * plan.max_step_down
        slack = max(_ROUNDING * limit.current, 1.0 if limit.proposed == int(limit.proposed) else 0.0)
        if (limit.proposed > up + slack and limit.reason not in _MAY_RISE_FURTHER) or (
            limit.proposed < down - slack and limit.reason not in _MAY_FALL_FURTHER
        ):
            beyond.append(limit)
    if beyond:
        raise PlanRefused(
            f"{plan.source}: is suspicious: {_count(len(beyond), 'limit')} beyond the step of its policy, "
            f"×{plan.max_step_down:g} to ×{plan.max_step_up:g} ({_names(beyond)}); make the plan again, or "
            "set these by `sluice configs --alter`"
        )


def _check_names(plan: PlanFile, reviews: Reviews) -> None:
    unknown = reviews.named - {limit.whom for limit in plan.limits}
    if unknown:
        names = "; ".join(sorted(described(whom) for whom in unknown))
        raise PlanRefused(f"{plan.source}: says nothing of {names}; --include names who is in the plan")


def _check_age(plan: PlanFile, today: date, bounds: Bounds) -> None:
    age = (today - plan.day).days
    if age > bounds.max_age_days:
        raise PlanRefused(
            f"{plan.source}: is stale: of {plan.day}, {age} days ago, and at most {bounds.max_age_days} are "
            "allowed; run a newer night, or raise --max-age-days"
        )
    if age < 0:
        raise PlanRefused(
            f"{plan.source}: is of {plan.day}, and today is {today} (UTC); set the clock of this machine "
            "right, or that of the one that ran the job"
        )


def _check_shares(plan: PlanFile, choice: Choice, bounds: Bounds) -> None:
    chosen = {(limit.kind, limit.whom) for limit in choice.chosen}
    for kind in KINDS:
        key = KINDS[kind].config_key
        weight = weight_of(plan, kind)
        if weight.whole < SHARES_FROM:
            continue
        mine = [one for one in plan.limits if one.kind is kind and (kind, one.whom) in chosen]
        cuts = sum(limit.proposed < limit.current for limit in mine)
        if cuts > bounds.max_cut_share * weight.whole:
            raise PlanRefused(
                f"{plan.source}: is suspicious: cuts {cuts} of {weight.whole} limits of {key}, more than "
                f"{bounds.max_cut_share:.0%}; see in its report whether the log is whole, then raise "
                "--max-cut-share"
            )
        if weight.bounded < SHARES_FROM:
            continue
        fall = sum(weight.part_of(limit) * (limit.current - limit.proposed) for limit in mine) / weight.total
        if fall > bounds.max_total_fall:
            raise PlanRefused(
                f"{plan.source}: is suspicious: all limits of {key} together fall by {fall:.0%}, more than "
                f"{bounds.max_total_fall:.0%}; see in its report whether the log is whole, then raise "
                "--max-total-fall"
            )


def _leave_out_what_cannot_be(
    plan: PlanFile, before: QuotaLimits, now: Listing, bounds: Bounds, choice: Choice
) -> None:
    """What takes others, what the guards do not allow tonight, and rises for which there is no room then."""
    as_it_is, candidates = _as_it_is(plan, before), choice.chosen
    choice.as_it_is = as_it_is
    while True:
        if bounds.is_unattended:
            chosen, later = allowed_tonight(
                as_it_is,
                candidates,
                bounds.cuts_of_week,
                bounds.cuts_of_night,
                max_cut_share=bounds.max_cut_share,
                max_total_fall=bounds.max_total_fall,
                shares_from=SHARES_FROM,
            )
        else:
            chosen, later = those_with_room(as_it_is, candidates)
        takers = takers_of(before, now, chosen)
        if not takers:
            choice.chosen = chosen
            choice.left_out += later
            return
        # Anew without these: a cut that is none makes no room.
        choice.left_out += [
            (limit, f"would take {takers[limit.key, limit.entity]} too; give that a limit of its own first")
            for limit in candidates
            if (limit.key, limit.entity) in takers
        ]
        candidates = [limit for limit in candidates if (limit.key, limit.entity) not in takers]


def _names(limits: list[PlannedLimit]) -> str:
    shown = [f"{described(limit.whom)}: {limit.key}" for limit in limits[:_SHOWN]]
    more = len(limits) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
