"""All entities of all kinds → a plan: what each limit is, what it is to be, and why. Pure.

A limit holds at each proxy by itself. So what counts of a day is the proxy at which the entity asked for
most; what all proxies saw together is told beside it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import ceil, floor, inf
from types import MappingProxyType
from typing import Any, Final

from sluice.quotas.entity_key import LimitOrigin
from sluice.quotas.kinds import KIND_BY_KEY, KINDS, WHOLE_FROM, QuotaKind
from sluice.recalibration.policy.capacity import Claim, shares
from sluice.recalibration.policy.confidence import DayUse, confidence
from sluice.recalibration.policy.coverage import WEEK_DAYS
from sluice.recalibration.policy.demand import DayState, Demand, estimate
from sluice.recalibration.policy.policy import Day, Reason, gone_on, propose
from sluice.recalibration.policy.settings import PolicySettings
from sluice.recalibration.policy.standing import SEEN_IN_FULL, Grant, Standing, anchor_of, has_ended, word_of
from sluice.recalibration.state.measures import MEASURES

POOLED: Final = ""
"""in place of a proxy: all of them together"""
_SHOWN_DAYS: Final = 8
_SHOWN_S_A_DAY: Final = 3_600.0
"""who has a limit by a default is one to reckon with after so much traffic, on average"""
_ROUNDING: Final = 1e-9
"""of sums of fractions"""
_DIGITS: Final = 6
"""behind the point: 7,500 an hour by the second, and by the hour again, is 7,500.000000000001"""
_TOO_LITTLE_KNOWN: Final = frozenset({Reason.TOO_LITTLE, Reason.TOO_NEW_TO_CUT})
"""what somebody asks for of whom a plan says that is no measure of what he needs"""
_NEARLY: Final = 0.9
"""of a limit: nearer than a limit is changed for (settings.hysteresis)"""


@dataclass(frozen=True, slots=True)
class DayTotals:
    """What is needed of a day whose demand is known already."""

    windows: int
    throttled_windows: int
    demand: Demand

    @property
    def throttled_share(self) -> float:
        return self.throttled_windows / self.windows


@dataclass(frozen=True, slots=True)
class EntityDay:
    """What one entity did on one date, of one kind, at one proxy or (POOLED) at all."""

    proxy: str
    age_days: int
    """0: the latest date"""
    state: DayState | DayTotals
    """totals only if all days of the entity come so: a day that is not known is compared with the others"""


@dataclass(frozen=True, slots=True)
class Expected:
    """What replayed traffic meets with the limit as it is, and as proposed (replay.py).

    Seconds in which something had to wait, summed over proxies; of producer ids the number refused.
    """

    day_now: float = 0.0
    day_proposed: float = 0.0
    """of the latest date"""
    week_now: float = 0.0
    week_proposed: float = 0.0
    """of the dates that were replayed, the latest among them"""


EXPECTED: Final = tuple(field.name for field in fields(Expected))


@dataclass(frozen=True, slots=True)
class PlanEntry:
    """One limit. Limits and demands are in the unit of the kind's key."""

    key: str
    """the config key: producer_byte_rate, …"""
    entity: str
    """entity_key.py"""
    current: float
    proposed: float
    wanted: float
    """what the demand asks for by itself"""
    reason: Reason
    needs_review: bool
    confidence: float
    """confidence.py"""
    proxies: int
    """at how many it was seen"""
    pooled_demand: float
    """p99 over all proxies together on the worst of the days"""
    throttled_share: float
    """of the windows with traffic of the latest day, at the proxy where it was highest"""

    up_to: float = 0.0
    """the most that the last days may have asked for: what a person may grant"""
    first_step: float = 0.0
    """to what the limit goes tonight if a person grants that"""
    anchor: float = 0.0
    word: float | None = None
    ended_grant: float | None = None
    """these three: standing.py"""
    days: tuple[DayUse, ...] = ()
    """those with traffic, the latest first"""
    expected: Expected = Expected()
    origin: LimitOrigin = LimitOrigin.OWN
    is_granted: bool = False
    """a person has granted it more"""
    left: float = inf
    """of its key's room, for names that anybody may make up"""
    made_from: float | None = None
    """the limit before this date's first plan, where that has led to `current`"""

    @property
    def counts_as(self) -> LimitOrigin:
        """Its own is a default's limit, too, that rises by a grant: a person has looked at it."""
        is_rise = self.proposed > self.current
        return LimitOrigin.OWN if self.is_granted and is_rise else self.origin

    @property
    def weight(self) -> float:
        """How much it counts in its key's room, 0 to 1: with a limit by a default its share of an hour's
        traffic a day, of the last days. One connection that sends under a new id every 10 s could make up
        thousands that ask for as much as any other."""
        if self.counts_as is LimitOrigin.OWN:
            return 1.0
        traffic_s = sum(day.traffic_s for day in self.days if day.age_days < _SHOWN_DAYS)
        return min(1.0, traffic_s / (_SHOWN_DAYS * _SHOWN_S_A_DAY))

    @property
    def room_taken(self) -> float:
        """What it takes of its key's room as proposed: without a limit of its own what is asked for."""
        return self.proposed if self.is_change else self.room_now

    @property
    def asked(self) -> float | None:
        """What a default's limit takes of its key's room: what is asked for, by its weight, or what there is
        for it. None: it has one of its own, or is to have it by a grant, which counts whole."""
        if self.counts_as is LimitOrigin.OWN:
            return None
        return min(self.weight * min(self.current, self.wanted), self.left)

    @property
    def room_now(self) -> float:
        """What it takes of its key's room as it is."""
        asked = self.asked
        return self.current if asked is None else asked

    @property
    def is_change(self) -> bool:
        return self.proposed != self.current

    def as_json(self) -> dict[str, Any]:
        """Without its days, which are many and in a file of their own."""
        told: dict[str, Any] = {name: getattr(self, name) for name in _TOLD}
        told |= {"entity": json.loads(self.entity), "reason": self.reason.value}
        told |= {"room_taken": self.room_taken, "asked": self.asked, "is_own": self.origin is LimitOrigin.OWN}
        told["expected"] = {name: getattr(self.expected, name) for name in EXPECTED}
        return told


_TOLD: Final = tuple(
    field.name
    for field in fields(PlanEntry)
    if field.name not in {"word", "days", "origin", "is_granted", "left", "made_from", "ended_grant"}
)


@dataclass(frozen=True, slots=True)
class Known:
    """What a night knows of one limit beyond its days, in the unit of its key."""

    before: Standing | None = None
    """None: no plan had this limit yet"""
    grant: float = 0.0
    """in force tonight; 0: none"""
    incomplete_dates: int = 0
    """of the last week (coverage.py): with one, nothing is cut, and confidence falls by a seventh for each"""
    again: Standing | None = None
    """None: this date was not run before"""
    origin: LimitOrigin = LimitOrigin.OWN
    grant_until: int = 0
    """which grant it is (standing.py)"""


def _worst_of_days(
    kind: QuotaKind, demands: Mapping[int, Sequence[_Found]]
) -> tuple[list[Day], list[DayUse]]:
    """What each day's largest proxy asked for: for the policy in the kind's rate, else in its unit."""
    spec, window_s = KINDS[kind], MEASURES[kind].window_ms / 1000.0
    worst, uses = [], []
    for age, each in sorted(demands.items()):
        found, state = max(each, key=_rate)
        traffic_s = max(its.windows for _, its in each) * window_s
        worst.append(Day(age, found, traffic_s, state.throttled_share))
        rate, shaped = found.rate * spec.limit_span_s, found.shaped * spec.limit_span_s
        uses.append(DayUse(age, rate, found.identified, state.throttled_share, traffic_s, shaped))
    return worst, uses


def planned(
    kind: QuotaKind,
    entity: str,
    limit: float,
    days: Iterable[EntityDay],
    settings: PolicySettings,
    known: Known = Known(),
) -> PlanEntry:
    """Plan of one entity, which has `limit` now. Days in any order; those without traffic are left out."""
    spec = KINDS[kind]
    demands, pooled, proxies = _by_age(days, settings.quantile)
    worst, uses = _worst_of_days(kind, demands)
    # A day without a pooled state was seen at one proxy only.
    together = (pooled.get(day.age_days, day.demand.rate) for day in worst)
    ended = None
    if known.grant and has_ended(Grant(known.grant, known.grant_until), known.before, limit, known.again):
        known, ended = replace(known, grant=0.0), float(known.grant_until)
    # A float whether it is of a quota file, which may have it without digits, or of what a night has kept.
    anchor = float(anchor_of(known.before, limit, uses, settings, known.grant, known.again))
    word = float(word_of(known.before, limit, known.grant, known.again))
    again = known.again
    base = limit if again is None else again.made_from(limit, known.grant, settings.max_step_up)
    proposal = propose(
        worst,
        spec.rate_per_s(base),
        settings,
        anchor=spec.rate_per_s(anchor),
        word=spec.rate_per_s(word),
        grant=spec.rate_per_s(known.grant),
        is_week_whole=not known.incomplete_dates,
    )
    if base != limit:
        is_whole = not known.incomplete_dates
        proposal = gone_on(proposal, spec.rate_per_s(limit), settings, is_week_whole=is_whole)
    latest = demands[min(demands)] if demands else []
    entry = PlanEntry(
        key=spec.config_key,
        entity=entity,
        current=limit,
        proposed=limit if proposal.limit == spec.rate_per_s(limit) else _rounded(kind, proposal.limit),
        wanted=proposal.wanted * spec.limit_span_s,
        reason=proposal.reason,
        needs_review=proposal.needs_review,
        confidence=confidence(uses, settings) * (1.0 - known.incomplete_dates / WEEK_DAYS),
        proxies=proxies,
        pooled_demand=max(together, default=0.0) * spec.limit_span_s,
        throttled_share=max((state.throttled_share for _, state in latest), default=0.0),
        up_to=proposal.up_to * spec.limit_span_s,
        first_step=proposal.first_step * spec.limit_span_s,
        anchor=anchor,
        word=word,
        days=tuple(uses),
        origin=known.origin,
        is_granted=known.grant > 0.0,
        made_from=None if base == limit else base,
        ended_grant=ended,
    )
    # With a room or without: names are made up by the thousand, and each cut or rise would be one of its own.
    return _left_alone(entry) if entry.counts_as is LimitOrigin.ANYBODY else entry


_Found = tuple[Demand, DayState | DayTotals]


def _by_age(
    days: Iterable[EntityDay], quantile: float
) -> tuple[dict[int, list[_Found]], dict[int, float], int]:
    """(age of the day → what each proxy's is estimated at, age → that of all together, number of proxies)."""
    demands: dict[int, list[_Found]] = {}
    pooled: dict[int, float] = {}
    by_proxy: dict[str, list[EntityDay]] = {}
    for day in sorted(days, key=lambda each: each.age_days):
        by_proxy.setdefault(day.proxy, []).append(day)
    for proxy, its_days in by_proxy.items():
        estimates = _estimates(its_days, quantile)
        if proxy == POOLED:
            pooled = {day.age_days: each.rate for day, each in zip(its_days, estimates, strict=True)}
            continue
        for day, found in zip(its_days, estimates, strict=True):
            demands.setdefault(day.age_days, []).append((found, day.state))
    return demands, pooled, len(by_proxy.keys() - {POOLED})


def fitted_plan(
    entries: Sequence[PlanEntry],
    room: Mapping[str, float],
    floors: Mapping[str, float] = MappingProxyType({}),
    *,
    is_week_whole: bool = True,
) -> list[PlanEntry]:
    """`room`: key → what all its limits at one proxy may come to (capacity × oversubscription). `floors`:
    key → the lowest limit. `is_week_whole`: no row of the last week is missing; else nobody is cut.

    Who is cut to the water level is cut at once, whatever the policy's step: more than there is cannot be
    promised.
    """
    after = list(entries)
    for key, bound in room.items():
        places = [place for place, entry in enumerate(entries) if entry.key == key]
        mine = [_left_alone(entries[place]) for place in places]
        # As it was proposed: less of the room would be another limit than the floor, for want of room.
        kind = KIND_BY_KEY[key]
        floor_limit = _rounded(kind, KINDS[kind].rate_per_s(floors[key])) if key in floors else 0.0
        while True:
            got = shares([_claim(entry, floor_limit, is_week_whole) for entry in mine], bound)
            without = [
                number for number, (entry, share) in enumerate(zip(mine, got, strict=True))
                if entry.origin is not LimitOrigin.OWN and entry.is_change and share <= entry.current
            ]  # fmt: skip
            if not without:
                break
            for number in without:  # no room to have more: it counts as it is, and the others anew
                mine[number] = _stays(mine[number])
        for place, entry, share in zip(places, mine, got, strict=True):
            fits = share >= entry.room_taken * (1.0 - _ROUNDING)
            after[place] = entry if fits else _with(entry, share)
    return after


def _with(entry: PlanEntry, share: float) -> PlanEntry:
    """With no more of the room than that. A default's limit gives way only where a user's counts whole, and
    what he asks for does not fit. Of what anybody may make up a lower one would bind nobody, and become one
    of its own that stands with the others."""
    if entry.weight == 1.0 and entry.counts_as is not LimitOrigin.ANYBODY:
        return replace(entry, proposed=_rounded_down(entry.key, share), reason=Reason.CAPACITY)
    return replace(entry, left=share, reason=Reason.BY_DEFAULT)


def _left_alone(entry: PlanEntry) -> PlanEntry:
    """As it is, where its limit is a default's: one of its own would count whole from then on, a lower one,
    too. A user may have more once he has shown enough; whom anybody may make up, by a person's word."""
    is_more = entry.proposed > entry.current
    is_known = entry.counts_as is LimitOrigin.DEFAULT and entry.weight == 1.0
    if entry.counts_as is LimitOrigin.OWN or not entry.is_change or (is_more and is_known):
        return entry
    return _stays(entry)


def _stays(entry: PlanEntry) -> PlanEntry:
    """With the default's limit; who is throttled is for a person, who may grant it what it asks for."""
    is_more = entry.proposed > entry.current
    needs_review = entry.needs_review or (is_more and entry.throttled_share > SEEN_IN_FULL)
    return replace(entry, proposed=entry.current, reason=Reason.BY_DEFAULT, needs_review=needs_review)


def _claim(entry: PlanEntry, floor_limit: float, is_week_whole: bool) -> Claim:
    taken = entry.room_taken
    not_cut = 0.0 if is_week_whole else min(entry.room_now, taken)
    return Claim(
        limit=taken,
        kept=entry.weight * entry.wanted,
        has=entry.weight * entry.current,
        is_held_back=_is_held_back(entry),
        is_new=entry.counts_as is LimitOrigin.OWN and entry.reason in _TOO_LITTLE_KNOWN,
        firm=max(min(floor_limit, taken) if entry.weight == 1.0 else 0.0, not_cut),
        is_of_anybody=entry.counts_as is LimitOrigin.ANYBODY or entry.weight < 1.0,
    )


def _is_held_back(entry: PlanEntry) -> bool:
    """It is throttled, and what it asks for is no less than it has, or would get."""
    least = _NEARLY * min(entry.proposed, entry.current)
    return entry.throttled_share > SEEN_IN_FULL and entry.wanted >= least


def _rounded_down(key: str, limit: float) -> float:
    """A share of what there is, never above it; whole where fractions are refused, and 1 at least."""
    return float(max(1, floor(limit))) if KINDS[KIND_BY_KEY[key]].is_whole else limit


def _rounded(kind: QuotaKind, rate_per_s: float) -> float:
    """As a limit: whole where fractions are refused or would be noise, never rounded down to nothing."""
    spec = KINDS[kind]
    limit = round(rate_per_s * spec.limit_span_s, _DIGITS)
    if spec.is_whole:
        return float(max(1, ceil(limit)))
    return float(ceil(limit)) if limit >= WHOLE_FROM else float(f"{limit:.3g}")


def _estimates(days: Sequence[EntityDay], quantile: float) -> list[Demand]:
    known = [day.state.demand for day in days if isinstance(day.state, DayTotals)]
    if known:
        return known
    return estimate((day.state for day in days if isinstance(day.state, DayState)), quantile)


def _rate(found: tuple[Demand, DayState | DayTotals]) -> float:
    return found[0].rate
