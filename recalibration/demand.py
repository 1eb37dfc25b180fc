"""What an entity would have used on a day, had its quota not been there: a percentile of censored rates.

A 10-second window in which the entity was throttled tells only that its demand was *at least* what passed: it
is censored. Taken at face value, such windows pull the percentile below the quota, the next quota is lower
still, and so on down. The Kaplan–Meier estimator takes each for what it is. Over the rates v₁ < v₂ < … , with
d_i uncensored windows at v_i and n_i windows (of both sorts) at v_i or above,

    S(v) = Π_{v_i ≤ v} (1 − d_i / n_i)        the share of windows whose demand is above v,

and the p99 is the least v with S(v) ≤ 0.01. Windows censored at v_i still count in n_i, for their demand is
above it. Where the largest rates are censored, S never comes down to 0.01: then nothing is *identified* but
that demand is higher, and the answer is the smaller of two guesses: the p99 of throttle-inflated rates (what
passed ÷ the share of the time in which it might pass), and twice the top bucket.

Worked example: 98 windows at 100, 1 at 200 and 1 at 400, all uncensored: S(100) = 0.02, S(200) = 0.01: p99 =
200. If the window at 200 was censored: S(200) = 0.02 still, S(400) = 0: p99 = 400.
Source: Kaplan, Meier: Nonparametric estimation from incomplete observations (1958).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from sluice.recalibration.buckets import middle

TOP_FACTOR: Final = 2.0
"""an unidentified demand is told to be at most this much above the highest rate that was seen"""


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
    """The estimate of a day."""

    rate: float
    """units per second"""
    identified: bool
    """False: it is a guess; the true one is likely higher than what was seen"""
    inflated: float
    """the same percentile of throttle-inflated rates: how high it may be"""


def day_demand(day: DayState, quantile: float = 0.99) -> Demand:
    """The `quantile` of the demand of a day with traffic. Raises ValueError for one without."""
    at_risk = day.windows
    if not at_risk:
        raise ValueError("a day without windows has no demand")
    inflated = _inflated(day, quantile)
    beyond = 1.0 - quantile + 1e-12  # what rounding leaves of 1 − 0.99
    surviving = 1.0
    for bucket in sorted({*day.free, *day.throttled}):
        free = day.free.get(bucket, 0)
        if free:
            surviving *= 1.0 - free / at_risk
            if surviving <= beyond:
                return Demand(middle(bucket), True, inflated)
        at_risk -= free + day.throttled.get(bucket, 0)
    top = max({*day.free, *day.throttled})
    return Demand(min(inflated, TOP_FACTOR * middle(top)), False, inflated)


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
