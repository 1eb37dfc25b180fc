"""All entities of all kinds → a plan: what each limit is, what it is to be, and why. Pure.

A limit holds at each proxy by itself. So what counts of a day is the proxy at which the entity asked for
most; what all proxies saw together is told beside it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import ceil, floor
from typing import Any, Final

from sluice.quotas.kinds import KIND_BY_KEY, KINDS, QuotaKind
from sluice.recalibration.policy.capacity import shares
from sluice.recalibration.policy.confidence import DayUse, confidence
from sluice.recalibration.policy.coverage import WEEK_DAYS
from sluice.recalibration.policy.demand import DayState, Demand, estimate
from sluice.recalibration.policy.policy import Day, Reason, propose
from sluice.recalibration.policy.settings import PolicySettings
from sluice.recalibration.policy.standing import SEEN_IN_FULL, Standing, anchor_of
from sluice.recalibration.state.measures import MEASURES

POOLED: Final = ""
"""in place of a proxy: all of them together"""
_WHOLE_FROM: Final = 100.0
"""limits above this are whole numbers; Kafka takes fractions for none of the byte rates"""


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
    """standing.py"""
    days: tuple[DayUse, ...] = ()
    """those with traffic, the latest first"""
    expected: Expected = Expected()
    is_of_any_client_id: bool = False
    """it has its limit by a default, as each client id has that somebody makes up"""

    @property
    def room_taken(self) -> float:
        """What it takes of its key's room: of a default's limit for any client id, as long as that is left
        alone, what is asked for. Else a stranger with a request of each of many ids took it from others."""
        is_counted_whole = not self.is_of_any_client_id or self.is_change
        return self.proposed if is_counted_whole else min(self.proposed, self.wanted)

    @property
    def is_change(self) -> bool:
        return self.proposed != self.current

    def as_json(self) -> dict[str, Any]:
        """Without its days, which are many and in a file of their own."""
        told: dict[str, Any] = {name: getattr(self, name) for name in _TOLD}
        told["entity"] = json.loads(self.entity)
        told["reason"] = self.reason.value
        told["room_taken"] = self.room_taken
        told["expected"] = {name: getattr(self.expected, name) for name in EXPECTED}
        return told


_TOLD: Final = tuple(
    field.name for field in fields(PlanEntry) if field.name not in {"days", "is_of_any_client_id"}
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
    is_of_any_client_id: bool = False
    """as of PlanEntry"""


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
    window_s = MEASURES[kind].window_ms / 1000.0
    worst = []
    uses = []
    for age, each in sorted(demands.items()):
        found, state = max(each, key=_rate)
        traffic_s = max(its.windows for _, its in each) * window_s
        worst.append(Day(age, found, traffic_s, state.throttled_share))
        demand = found.rate * spec.limit_span_s
        uses.append(
            DayUse(
                age,
                demand,
                found.identified,
                state.throttled_share,
                traffic_s,
                found.shaped * spec.limit_span_s,
            )
        )
    # A day without a pooled state was seen at one proxy only.
    together = (pooled.get(day.age_days, day.demand.rate) for day in worst)
    anchor = anchor_of(known.before, limit, uses, settings, known.grant, known.again)
    proposal = propose(
        worst,
        spec.rate_per_s(limit),
        settings,
        anchor=spec.rate_per_s(anchor),
        grant=spec.rate_per_s(known.grant),
        is_week_whole=not known.incomplete_dates,
    )
    latest = demands[min(demands)] if demands else []
    return PlanEntry(
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
        days=tuple(uses),
        is_of_any_client_id=known.is_of_any_client_id,
    )


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


def fitted_plan(entries: Sequence[PlanEntry], room: Mapping[str, float]) -> list[PlanEntry]:
    """`room`: key → what all its limits at one proxy may come to (capacity × oversubscription).

    Who is cut to the water level is cut at once, whatever the policy's step: more than there is cannot be
    promised.
    """
    after = list(entries)
    for key, bound in room.items():
        places = [place for place, entry in enumerate(entries) if entry.key == key]
        taken = [entries[place].room_taken for place in places]
        kept = [_kept(entries[place]) for place in places]
        for place, before, share in zip(places, taken, shares(taken, kept, bound), strict=True):
            if share < before:
                limit = _rounded_down(key, share)
                after[place] = replace(entries[place], proposed=limit, reason=Reason.CAPACITY)
    return after


def _kept(entry: PlanEntry) -> float:
    """What an entity keeps of its limit, if there is room for that of all: what it asks for. Who is held back
    may ask for anything, and keeps nothing."""
    is_held_back = entry.throttled_share > SEEN_IN_FULL and entry.wanted >= entry.proposed
    return 0.0 if is_held_back else entry.wanted


def _rounded_down(key: str, limit: float) -> float:
    """A share of what there is, never above it; whole where fractions are refused, and 1 at least."""
    return float(max(1, floor(limit))) if _is_whole(KIND_BY_KEY[key]) else limit


def _is_whole(kind: QuotaKind) -> bool:
    spec = KINDS[kind]
    try:
        spec.validated(spec.config_key, 0.5)
    except ValueError:
        return True
    return False


def _rounded(kind: QuotaKind, rate_per_s: float) -> float:
    """As a limit: whole where fractions are refused or would be noise, never rounded down to nothing."""
    spec = KINDS[kind]
    limit = rate_per_s * spec.limit_span_s
    if _is_whole(kind):
        return float(max(1, ceil(limit)))
    return float(ceil(limit)) if limit >= _WHOLE_FROM else float(f"{limit:.3g}")


def _estimates(days: Sequence[EntityDay], quantile: float) -> list[Demand]:
    known = [day.state.demand for day in days if isinstance(day.state, DayTotals)]
    if known:
        return known
    return estimate((day.state for day in days if isinstance(day.state, DayState)), quantile)


def _rate(found: tuple[Demand, DayState | DayTotals]) -> float:
    return found[0].rate
