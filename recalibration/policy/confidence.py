"""How far a proposal can be relied on, 0 … 1: by how many days it has, throttled how much, guessed how often.

A day whose demand is identified (demand.py) counts for the share of its windows in which nothing was
throttled; one whose demand is a guess counts for nothing. Days are weighted as the policy does, ½^(age / 7
days), and with fewer than seven days of traffic the whole is so much less, for not each weekday was seen:

    confidence = min(1, days / 7) × Σ weight · known / Σ weight,  known = identified ? 1 − throttled share : 0

Worked example: today identified and a tenth of it throttled, a week ago a guess: known are 0.9 and 0, their
weights 1 and ½: 2/7 × 0.9 / 1.5 = 0.17.

It changes no limit. It tells a person where to look; from 0.75 on it is called high, below 0.4 low.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sluice.recalibration.policy.settings import PolicySettings

DAYS_OF_A_WEEK: Final = 7
HIGH: Final = 0.75
LOW: Final = 0.4


@dataclass(frozen=True, slots=True)
class DayUse:
    """One day of an entity with traffic, at the proxy where it asked for most."""

    age_days: int
    """0: the plan's date"""
    demand: float
    """p99 of its demand, in the unit of the kind's limit"""
    identified: bool
    """False: `demand` is a guess"""
    throttled_share: float
    """of its windows with traffic"""
    traffic_s: float
    """windows with traffic, in seconds"""
    shaped: float = 0.0
    """of a guess: what the day's shape tells (demand.py), in the unit of the kind's limit; else 0"""


def confidence(days: Sequence[DayUse], settings: PolicySettings) -> float:
    """Confidence in an entity's days, 0 to 1; 0.0 without a day of traffic in the policy's history."""
    recent = [day for day in days if day.age_days < settings.history_days]
    weights: list[float] = [0.5 ** (day.age_days / settings.half_life_days) for day in recent]
    known = (1.0 - day.throttled_share if day.identified else 0.0 for day in recent)
    if not recent:
        return 0.0
    share = sum(weight * each for weight, each in zip(weights, known, strict=True)) / sum(weights)
    return min(1.0, len(recent) / DAYS_OF_A_WEEK) * share


def word(value: float) -> str:
    """high, medium or low."""
    if value >= HIGH:
        return "high"
    return "low" if value < LOW else "medium"
