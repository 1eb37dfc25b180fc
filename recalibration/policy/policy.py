"""An entity's days and its limit now → the limit proposed, and why. Pure: a day is a number, no clock.

1. *Want.* Each day gives one estimate of the demand (demand.py). The limit shall fit the worst of the
   ordinary days: the highest of the p92 of all days, a day's weight being ½^(age / 7 days), and of the last
   8 days; × 1.15 of headroom.
2. *Growth guard.* Neither a bug nor an abuser may raise its own limit night by night, as it would if each
   night's limit became the next night's evidence. So only days that are *identified* tell what is usual: the
   limit rises at most to 1.15 × max(1.8 × their median, 1.25 × their highest of days 8 to 21). The rest waits
   for review; unless the demand of the last three days can be told, by its shape, to be within 4 × that
   median, and is level: a launch doubles the traffic once; what climbs from day to day is looked at.
   A guard that opened grants 1.15 × what these days show, so that calm days open nothing for an older flood.
   And without review a limit never passes 2 × its anchor (standing.py), nor in all nights together 4 × what
   a person last set or granted, nor with a grant that grant; with one
   it is doubled each night while more than a tenth of the day was throttled, for that hides what is wanted,
   and rises to 1.5 × the demand, which a cut would leave: who has asked a person once need not ask again.
3. *Step.* At most × 2 up and × 0.7 down. A cut leaves 1.5 × the demand, and there is none within 8 days of
   the first traffic, nor while rows of the last week are missing; on less than an hour of traffic only to
   1.15 × 1.25 × the highest of 14 days or more (that somebody is throttled is no matter of samples). What
   would change by less than 10 % stays.
4. *Floor and ceiling* last. (capacity.py then fits the entities of a broker into what it can bear.)

Worked example, a limit of 1,000: ten days at 800 and, last night, one censored at 1,000 whose shape tells of
3,500 (the estimate is 2 × the top = 2,000). Want 1.15 × 2,000 = 2,300. 3,500 is beyond 4 × 800, so the guard
holds: the limit becomes 1.15 × 1.8 × 800 = 1,656, and the rest waits for review. With three days at 3,000
each it does not hold: the limit becomes 2,000, the step's bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import median
from typing import Final

from sluice.recalibration.policy.demand import Demand
from sluice.recalibration.policy.settings import PolicySettings

_ROUNDING: Final = 1e-9


class Reason(StrEnum):
    """Which rule had the last word."""

    DEMAND = "demand"
    """the limit becomes what is wanted"""
    UNCHANGED = "unchanged"
    """within the hysteresis"""
    TOO_LITTLE = "too_little_traffic"
    TOO_NEW_TO_CUT = "too_new_to_cut"
    LOG_INCOMPLETE = "log_incomplete"
    """rows of the last week are missing: nothing is cut"""
    STEP_UP = "step_up"
    STEP_DOWN = "step_down"
    GUARD = "growth_guard"
    FLOOR = "floor"
    CEILING = "ceiling"
    CAPACITY = "capacity"
    """set by capacity.py"""
    BY_DEFAULT = "limit_by_default"
    """its limit is a default's, and stays: capacity.py counts what is asked for"""


_CUTS_NOTHING: Final = frozenset({Reason.LOG_INCOMPLETE, Reason.TOO_NEW_TO_CUT, Reason.TOO_LITTLE})


@dataclass(frozen=True, slots=True)
class Day:
    """One day of an entity with traffic."""

    age_days: int
    """0: the latest date of the log"""
    demand: Demand
    traffic_s: float
    """windows with traffic, in seconds"""
    throttled_share: float = 0.0
    """of them"""


@dataclass(frozen=True, slots=True)
class Proposal:
    """What the limit is to be, in units per second."""

    limit: float
    wanted: float
    """what the demand asks for, before guard, step, floor and ceiling; 0.0: unknown"""
    reason: Reason
    needs_review: bool
    """`wanted` is more than is granted without a person's word"""
    up_to: float = 0.0
    """the most that the last days may have asked for: what a person may grant"""
    first_step: float = 0.0
    """to what the limit goes tonight if a person grants that"""


def propose(
    days: Sequence[Day],
    limit: float,
    settings: PolicySettings,
    *,
    anchor: float = float("inf"),
    word: float = float("inf"),
    grant: float = 0.0,
    is_week_whole: bool = True,
) -> Proposal:
    """The limit after tonight. `days`: those with traffic, in any order; `limit` > 0: the one in force.

    `anchor`, `word`, `grant`: standing.py, in units per second. `is_week_whole`: no row of the last week is
    missing.
    """
    days = sorted((day for day in days if day.age_days < settings.history_days), key=_age)  # sums round alike
    if not days:
        return Proposal(limit, 0.0, Reason.TOO_LITTLE, needs_review=False)
    demand = _demand(days, settings)
    kept = max(settings.headroom, settings.cut_headroom)
    wanted = target = settings.headroom * demand
    if grant > limit:
        wanted = max(wanted, min(grant, _probe(days, limit, settings)))
        target = max(wanted, min(grant, kept * demand))
    reason, needs_review = Reason.DEMAND, False
    allowed = min(settings.max_unreviewed_rise * anchor, settings.max_unreviewed_growth * word)
    allowed = max(min(_guard(days, settings), allowed), grant)
    if target > max(allowed, limit):
        # A limit that somebody has set above the guard stays: the guard grants, it does not take.
        target, reason, needs_review = max(allowed, limit), Reason.GUARD, True
    if target < limit:
        target = min(limit, wanted * kept / settings.headroom)
    if target < limit:
        target, reason = _cut(days, target, limit, settings, is_week_whole)
    if target > limit * settings.max_step_up:
        target, reason = limit * settings.max_step_up, Reason.STEP_UP
    elif target < limit * settings.max_step_down:
        target, reason = limit * settings.max_step_down, Reason.STEP_DOWN
    if target < settings.floor:
        target, reason = settings.floor, Reason.FLOOR
    elif target > settings.ceiling:
        target, reason = settings.ceiling, Reason.CEILING
    elif abs(target - limit) < settings.hysteresis * limit:
        target = limit
        if reason is Reason.DEMAND:
            reason = Reason.UNCHANGED
    latest = max(day.demand.ceiling for day in days[: settings.near_days])
    up_to = max(wanted, kept * latest)
    first_step = min(up_to, max(wanted, _probe(days, limit, settings)), limit * settings.max_step_up)
    return Proposal(target, wanted, reason, needs_review, up_to, first_step)


def gone_on(
    proposal: Proposal, limit: float, settings: PolicySettings, *, is_week_whole: bool = True
) -> Proposal:
    """What was proposed for the limit before tonight's first plan, once that has led to `limit`: as near as a
    step from there comes. What would change by less than the hysteresis stays, and what nothing may cut."""
    target, reason = proposal.limit, proposal.reason
    if target < limit and (reason in _CUTS_NOTHING or not is_week_whole):
        return replace(proposal, limit=limit, reason=reason if is_week_whole else Reason.LOG_INCOMPLETE)
    is_bound = reason in {Reason.FLOOR, Reason.CEILING}
    if target == limit or (not is_bound and abs(target - limit) < settings.hysteresis * limit):
        is_told = is_bound or reason is Reason.GUARD
        return replace(proposal, limit=limit, reason=reason if is_told else Reason.UNCHANGED)
    if target > limit * settings.max_step_up and reason is not Reason.FLOOR:
        target, reason = limit * settings.max_step_up, Reason.STEP_UP
    elif target < limit * settings.max_step_down and reason is not Reason.CEILING:
        target, reason = limit * settings.max_step_down, Reason.STEP_DOWN
    return replace(proposal, limit=target, reason=reason)


def _demand(days: Sequence[Day], settings: PolicySettings) -> float:
    """The worst of the ordinary days."""
    weights = sorted((day.demand.rate, _weight(day, settings)) for day in days)
    due = settings.day_quantile * sum(weight for _, weight in weights) - _ROUNDING
    highest = max((day.demand.rate for day in days if day.age_days < settings.recent_days), default=0.0)
    for rate, weight in weights:
        due -= weight
        if due <= 0.0:
            return max(rate, highest)
    return max(weights[-1][0], highest)


def _probe(days: Sequence[Day], limit: float, settings: PolicySettings) -> float:
    """What a limit that has been granted more is tried at: twice what it is, where much of the latest day was
    throttled, so that nothing tells how much is asked for; else 0."""
    latest = days[0]
    is_hidden = not latest.age_days and not latest.demand.identified
    return (
        limit * settings.max_step_up if is_hidden and latest.throttled_share > settings.probe_share else 0.0
    )


def _cut(
    days: Sequence[Day], target: float, limit: float, settings: PolicySettings, is_week_whole: bool
) -> tuple[float, Reason]:
    """How far a cut to `target` < `limit` may go, and by which rule."""
    kept = target
    if sum(day.traffic_s for day in days) < settings.min_traffic_s:
        kept = max(target, _kept_of_little(days, settings))
    if kept >= limit:
        return limit, Reason.TOO_LITTLE
    if days[-1].age_days + 1 < settings.min_days_to_cut:
        return limit, Reason.TOO_NEW_TO_CUT
    if not is_week_whole:
        return limit, Reason.LOG_INCOMPLETE
    return kept, Reason.DEMAND if kept == target else Reason.TOO_LITTLE


def _kept_of_little(days: Sequence[Day], settings: PolicySettings) -> float:
    """What little traffic is not cut below: few windows tell no percentile, but many days of them a peak."""
    if len(days) < settings.min_days_of_little:
        return float("inf")
    highest = max(day.demand.rate for day in days)
    return settings.headroom * settings.growth_of_past * highest


def _guard(days: Sequence[Day], settings: PolicySettings) -> float:
    """The highest limit that is granted without review."""
    if days[-1].age_days + 1 < settings.min_days_of_guard:
        return float("inf")  # nothing is usual yet
    usual = [day for day in days if day.demand.identified] or list(days)
    median_rate = median(day.demand.rate for day in usual)
    latest = [day.demand.ceiling for day in days[: settings.near_days]]
    if max(latest) <= min(settings.near_factor * median_rate, settings.near_growth * min(latest)):
        shown = max(day.demand.rate for day in days[: settings.near_days])
        return settings.headroom * max(shown, _grown(usual, settings))
    return settings.headroom * _grown(usual, settings)


def _grown(usual: Sequence[Day], settings: PolicySettings) -> float:
    """The most that growth explains."""
    begin, end = settings.past_days
    past = max((day.demand.rate for day in usual if begin <= day.age_days <= end), default=0.0)
    median_rate = median(day.demand.rate for day in usual)
    return max(settings.growth_of_median * median_rate, settings.growth_of_past * past)


def _age(day: Day) -> int:
    return day.age_days


def _weight(day: Day, settings: PolicySettings) -> float:
    weight: float = 0.5 ** (day.age_days / settings.half_life_days)
    return weight
