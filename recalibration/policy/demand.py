"""What an entity would have used on a day, had its quota not been there: a percentile of censored rates.

A 10-second window in which the entity was throttled tells only that its demand was *at least* what passed: it
is censored. Taken at face value, such windows pull the percentile below the quota, the next quota is lower
still, and so on down. The Kaplan–Meier estimator takes each for what it is. Over the rates v₁ < v₂ < … , with
d_i uncensored windows at v_i and n_i windows (of both sorts) at v_i or above,

    S(v) = Π_{v_i ≤ v} (1 − d_i / n_i)        the share of windows whose demand is above v,

and the p99 is the least v with S(v) ≤ 0.01. Windows censored at v_i still count in n_i, for their demand is
above it. Where the largest rates are censored, S never comes down to 0.01: then the p99 is not *identified*,
and is guessed, as the least of
- twice the top bucket;
- the p99 of throttle-inflated rates: what passed ÷ the share of the time in which it might pass. (Clients
  that send as fast as they can make this one as high as they please.)
- the *shape*: as far down as S is known, the day is compared with usual days. If it is known down to
  S = 1 − q, and the q-quantile is k times that of usual days, then the p99 is taken to be k times theirs:
  services grow as a whole, troughs with peaks. Where fewer than a tenth of the windows are free there is no
  shape.

Kaplan and Meier take for granted that what hides a rate does not depend on it. A quota hides the high ones
alone, but for bursts that it lets through above itself: a few of these, free, over a day of throttled windows
would pass for the whole of its demand. So a day that is throttled in more than 60 % of its windows is never
identified.

Worked example: 98 windows at 100, 1 at 200 and 1 at 400, all uncensored: S(100) = 0.02, S(200) = 0.01: p99 =
200. If the window at 200 was censored: S(200) = 0.02 still, S(400) = 0: p99 = 400. If half of the windows are
at 300 and the others censored at 500, while usual days have a median of 100 and a p99 of 200: k = 3, p99 =
600.
Source: Kaplan, Meier: Nonparametric estimation from incomplete observations (1958).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from sluice.recalibration.state.buckets import middle

TOP_FACTOR: Final = 2.0
"""an unidentified demand is told to be at most this much above the highest rate that was seen"""
SHAPE_MIN: Final = 0.1
"""share of a day's windows that must be known"""
MOST_THROTTLED: Final = 0.6
"""share of a day's windows that may be throttled for its demand to be known"""


@dataclass(frozen=True, slots=True)
class DayState:
    """One entity, one kind, one date: how many 10-second windows with traffic fell into which bucket."""

    free: Mapping[int, int]
    """windows in which nothing was throttled, by bucket of the rate"""
    throttled: Mapping[int, int] = field(default_factory=dict)
    """windows in which something was, by bucket of the rate that passed"""
    inflated: Mapping[int, int] = field(default_factory=dict)
    """the same windows, by bucket of the throttle-inflated rate"""

    @property
    def windows(self) -> int:
        return sum(self.free.values()) + sum(self.throttled.values())

    @property
    def throttled_share(self) -> float:
        windows = self.windows
        return sum(self.throttled.values()) / windows if windows else 0.0


@dataclass(frozen=True, slots=True)
class Demand:
    """The estimate of a day, in units per second."""

    rate: float
    """what to plan for"""
    identified: bool
    """False: `rate` is a guess; the true one is likely higher than what was seen"""
    ceiling: float
    """how high it may be: the same without the bound of twice the top bucket"""
    shaped: float = 0.0
    """of a guess: what its shape tells, where enough of the day was not throttled; else 0"""


def estimate(days: Iterable[DayState], quantile: float = 0.99) -> list[Demand]:
    """The `quantile` of the demand of each day. Raises ValueError for a day without traffic."""
    known = [(day, _quantile(day, quantile) if _is_seen(day) else None) for day in days]
    usual = [(day, found) for day, found in known if found is not None]
    demands = []
    for day, found in known:
        if found is not None:
            demands.append(Demand(found, True, found))
            continue
        ceiling = _inflated(day, quantile)
        by_shape = _shaped(day, usual)
        if by_shape is not None:
            ceiling = min(ceiling, by_shape)
        top = middle(max({*day.free, *day.throttled}))
        rate = min(max(ceiling, top), TOP_FACTOR * top)
        shaped = by_shape if by_shape is not None and _is_seen(day) else 0.0
        demands.append(Demand(rate, False, max(ceiling, top), shaped))
    return demands


def _is_seen(day: DayState) -> bool:
    return day.throttled_share <= MOST_THROTTLED


def _quantile(day: DayState, quantile: float) -> float | None:
    """By Kaplan and Meier; None: not identified."""
    beyond = 1.0 - quantile + 1e-12  # what rounding leaves of 1 − 0.99
    for bucket, surviving in _survival(day):
        if surviving <= beyond:
            return middle(bucket)
    return None


def _survival(day: DayState) -> Iterable[tuple[int, float]]:
    """(bucket, S) at each bucket with free windows, ascending."""
    at_risk = day.windows
    if not at_risk:
        raise ValueError("a day without windows has no demand")
    surviving = 1.0
    for bucket in sorted({*day.free, *day.throttled}):
        free = day.free.get(bucket, 0)
        if free:
            surviving *= 1.0 - free / at_risk
            yield bucket, surviving
        at_risk -= free + day.throttled.get(bucket, 0)


def _shaped(day: DayState, usual: list[tuple[DayState, float]]) -> float | None:
    """k × the usual `quantile`, both medians over the usual days; None: too little is known of the day."""
    known = list(_survival(day))
    if not usual or not known or 1.0 - known[-1][1] < SHAPE_MIN:
        return None
    bucket, surviving = known[-1]
    return median(
        whole * middle(bucket) / (_quantile(other, 1.0 - surviving) or whole) for other, whole in usual
    )


def _inflated(day: DayState, quantile: float) -> float:
    counts: dict[int, int] = dict(day.free)
    for bucket, count in day.inflated.items():
        counts[bucket] = counts.get(bucket, 0) + count
    left = (1.0 - quantile) * day.windows
    for bucket in sorted(counts, reverse=True):
        left -= counts[bucket]
        if left < 0.0:
            return middle(bucket)
    return 0.0
