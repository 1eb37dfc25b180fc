"""Entities whose demand is known: what the calibration is scored on. Synthetic, drawn from a seed.

A demand is bytes per 10-second window over one day, before any quota. Classes are what operators meet; the
ranges of their parameters are wide on purpose, and no rule of the calibration is told the class.
"""

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

WINDOWS: Final = 8_640
WINDOW_S: Final = 10.0
NIGHTS: Final = 14
Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

STEADY: Final = "steady"
DIURNAL: Final = "diurnal"
WEEKLY: Final = "weekly"
BURSTY: Final = "bursty"
GROWING: Final = "growing"
STEPPING: Final = "stepping"
THROTTLED: Final = "throttled all day"
ABUSIVE: Final = "abusive"
IDLE: Final = "idle"
NEW: Final = "new"
BATCH: Final = "batch"
CLASSES: Final = (
    STEADY, DIURNAL, WEEKLY, BURSTY, GROWING, STEPPING, THROTTLED, ABUSIVE, IDLE, NEW, BATCH,
)  # fmt: skip
_WAVING: Final = frozenset({DIURNAL, WEEKLY, GROWING, STEPPING, NEW})


@dataclass(frozen=True, slots=True)
class Entity:
    """One principal. `draws`: its parameters, uniform in 0 … 1, each used under one name."""

    kind: str
    seed: int
    base: float
    """bytes per second on an ordinary day"""
    draws: tuple[float, ...]

    @property
    def event_day(self) -> int:
        """When it steps, is born or begins its abuse."""
        return 2 + int(self._draw(0, 3, 8))

    @property
    def first_limit_factor(self) -> float:
        """Its limit on day 0, relative to what day 0 asks for: somebody's guess, more often too high."""
        return self._draw(1, 0.15, 0.6) if self.kind == THROTTLED else 10 ** self._draw(1, -0.3, 1.0)

    def demand(self, day: int) -> Array:
        """Bytes per window; the same for the same day each time."""
        drawn = np.random.default_rng((self.seed, day))
        rate = self.base * _noise(drawn, self._draw(2, 0.05, 0.35))
        if self.kind in _WAVING:
            rate *= 1 + self._draw(3, 0.3, 0.9) * np.sin(
                2 * np.pi * (np.arange(WINDOWS) / WINDOWS + self.draws[4])
            )
        rate *= self._of_the_day(day)
        if self.kind == BURSTY:
            for start in drawn.integers(0, WINDOWS - 12, int(self._draw(5, 15, 60))):
                rate[start : start + int(drawn.integers(3, 12))] *= self._draw(6, 3, 8)
        elif self.kind == IDLE:
            rate *= _mask(drawn.integers(0, WINDOWS, int(drawn.integers(2, 20))))
        elif self.kind == BATCH:
            start = int(self.draws[5] * WINDOWS) + int(drawn.integers(-20, 20))
            rate *= _mask((start + np.arange(int(self._draw(6, 180, 720)))) % WINDOWS)
        return rate * WINDOW_S

    def _of_the_day(self, day: int) -> float:
        """The day's level, relative to an ordinary one."""
        if self.kind == WEEKLY:
            behind_peak = (day - int(self.draws[5] * 7)) % 7
            return self._draw(6, 1.3, 2.5) if behind_peak == 0 else 0.3 if behind_peak in {3, 4} else 1.0
        if self.kind == GROWING:
            return self._draw(5, 1.02, 1.08) ** day
        if self.kind == NEW:
            return float(day >= self.event_day)
        if self.kind == BATCH and self.draws[7] < 0.3:
            return float(day % 7 == int(self.draws[8] * 7))
        if day < self.event_day:
            return 1.0
        if self.kind == STEPPING:
            return self._draw(5, 1.6, 3.0) if self.draws[7] < 0.7 else self._draw(5, 0.3, 0.6)
        if self.kind == ABUSIVE:
            # A third climbs by degrees, to be taken for growth.
            most = self._draw(5, 8.0, 50.0)
            return min(most, 1.5 ** (day - self.event_day + 1)) if self.draws[7] < 1 / 3 else most
        return 1.0

    def _draw(self, index: int, low: float, high: float) -> float:
        return low + (high - low) * self.draws[index]


def draw_entities(seed: int, per_class: int) -> list[Entity]:
    """`per_class` of each class."""
    drawn = np.random.default_rng(seed)
    return [
        Entity(
            kind,
            int(drawn.integers(1 << 60)),
            float(10 ** drawn.uniform(3.5, 7.5)),
            tuple(float(x) for x in drawn.uniform(size=9)),
        )
        for kind in CLASSES
        for _ in range(per_class)
    ]


def p99_rate(demand: Array) -> float:
    """Bytes per second, of the windows with traffic; 0 without any."""
    busy = demand[demand > 0]
    return float(np.quantile(busy, 0.99)) / WINDOW_S if len(busy) else 0.0


def _noise(drawn: np.random.Generator, sigma: float) -> Array:
    """Lognormal, of mean 1; a part of it lasts for minutes."""
    slow = np.repeat(drawn.normal(0, sigma / 2, WINDOWS // 30), 30)
    factor: Array = np.exp(slow + drawn.normal(0, sigma, WINDOWS) - sigma**2 * 0.625)
    return factor


def _mask(windows: Array) -> Array:
    mask = np.zeros(WINDOWS)
    mask[windows] = 1.0
    return mask
