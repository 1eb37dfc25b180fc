"""Entities whose demand is known, second by second: what the calibration is scored on. Drawn from a seed.

A demand is bytes per second over one day, before any quota. No rule of the calibration is told the class, and
nothing here was chosen by what the calibration does. Day 0 is a Monday.
"""

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

DAY_S: Final = 86_400
WINDOW_S: Final = 10
NIGHTS: Final = 71
Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

LEGIT: Final = (
    "steady", "diurnal", "weekday", "bursty", "growing", "step up", "step down", "flat step", "throttled",
    "throttled from birth", "throttled for a week", "idle", "new", "daily batch", "weekly batch",
    "weekly x12 for 90 min", "month's end", "daylight saving", "new client id", "death and return",
    "backfill", "bursts below 10 s", "several proxies",
)  # fmt: skip
ABUSERS: Final = (
    "abuser at once", "abuser by degrees", "abuser one day in three", "abuser on saturdays",
    "abuser from birth",
)  # fmt: skip
CLASSES: Final = LEGIT + ABUSERS
STEPS: Final = ("step up", "flat step")
CHANGELESS: Final = ("steady", "diurnal", "bursty", "weekday", "daily batch", "bursts below 10 s")
PROXIES: Final = {"several proxies": (0.6, 0.4)}
"""class → its share at each proxy; the others are seen at one"""
_WAVING: Final = frozenset(
    {"diurnal", "weekday", "growing", "step up", "step down", "new", "new client id", "daylight saving",
     "several proxies", "month's end", "death and return", "throttled for a week"}
)  # fmt: skip
_LOW_FIRST: Final = {"throttled": (0.3, 0.6), "throttled from birth": (0.2, 0.5)}


@dataclass(frozen=True, slots=True)
class Entity:
    """One principal. `draws`: its parameters, uniform in 0 … 1, each used under one name."""

    kind: str
    name: str
    seed: int
    base: float
    """bytes per second on an ordinary day"""
    draws: tuple[float, ...]

    @property
    def is_abuser(self) -> bool:
        return self.kind in ABUSERS

    @property
    def event_day(self) -> int:
        """The day on which it steps, is born, or begins its abuse; 0: it has no such day."""
        if self.kind in {"abuser from birth", "throttled from birth"}:
            return 0
        return 16 + int(self._draw(0, 0, 14))

    @property
    def first_limit_factor(self) -> float:
        """Its first limit relative to its ordinary need: somebody's guess, more often too high."""
        low_high = _LOW_FIRST.get(self.kind)
        return self._draw(1, *low_high) if low_high else 10 ** self._draw(1, -0.1, 0.8)

    def demand(self, day: int) -> Array:
        """Bytes in each second; the same for the same day each time."""
        level = self.level(day)
        if level == 0.0:
            return np.zeros(DAY_S, np.float32)
        drawn = np.random.default_rng((self.seed, day))
        sigma = self._draw(2, 0.05, 0.3)
        slow = np.repeat(drawn.normal(0, sigma / 2, DAY_S // 300), 300)
        rate = np.exp(slow + np.repeat(drawn.normal(0, sigma / 2, DAY_S // WINDOW_S), WINDOW_S))
        rate = rate.astype(np.float32)
        rate *= np.exp(np.float32(sigma / 2) * drawn.standard_normal(DAY_S, dtype=np.float32))
        seconds = np.arange(DAY_S, dtype=np.float32) / DAY_S
        if self.kind in _WAVING:
            rate *= 1 + self._draw(3, 0.3, 0.8) * np.sin(2 * np.pi * (seconds + self.draws[4]))
        rate *= self.base * level
        return self._shaped(rate, day, drawn).astype(np.float32)

    def _shaped(self, rate: Array, day: int, drawn: np.random.Generator) -> Array:
        if self.kind == "bursty":
            bursts = np.zeros(DAY_S, bool)
            for start in drawn.integers(0, DAY_S - 120, 60):
                bursts[start : start + int(drawn.integers(30, 120))] = True
            rate[bursts] *= self._draw(6, 3, 8)
        elif self.kind == "idle":
            rate *= np.repeat(_mask(drawn.integers(0, DAY_S // 10, 12), DAY_S // 10), 10)
        elif self.kind == "bursts below 10 s":
            rate[:] = 0.0
            rate[int(self.draws[5] * 10) :: 10] = self.base * 10
        begin = int(self.draws[5] * 20) * 3_600  # on the hour, not into the next day
        if self.kind == "daylight saving" and day >= 35:
            begin += 3_600
        if self.kind in {"daily batch", "weekly batch"}:
            rate *= _mask(begin + np.arange(int(self._draw(6, 1_800, 7_200))), DAY_S)
        elif self.kind == "daylight saving":
            rate[begin : begin + 3_600] *= 5
        elif self.kind == "weekly x12 for 90 min" and day % 7 == int(self.draws[8] * 7):
            rate[begin : begin + 5_400] *= 12
        elif self.kind == "month's end" and day % 30 == 27:
            rate[begin : begin + 10_800] *= 4
        elif self.kind == "backfill" and self.event_day <= day < self.event_day + 2:
            rate *= self._draw(6, 3, 5)
        return rate

    def level(self, day: int) -> float:
        """The day's level, relative to an ordinary one."""
        kind, is_after = self.kind, day >= self.event_day
        if kind == "weekday":
            return 0.35 if day % 7 >= 5 else 1.0
        if kind == "growing":
            return self._draw(5, 1.005, 1.03) ** day
        if kind in {"new", "new client id"}:
            return float(is_after)
        if kind == "weekly batch":
            return float(day % 7 == int(self.draws[8] * 7))
        if kind == "death and return":
            return float(not self.event_day <= day < self.event_day + 20)
        if kind == "throttled for a week":
            return 4.0 if self.event_day <= day < self.event_day + 7 else 1.0
        if kind in STEPS:
            return self._draw(6, 2.0, 5.0) if is_after else 1.0
        if kind == "step down":
            return self._draw(6, 0.3, 0.6) if is_after else 1.0
        if kind in ABUSERS and is_after:
            most, since = self._draw(6, 8.0, 50.0), day - self.event_day
            if kind == "abuser by degrees":
                return float(min(most, 1.5 ** (since + 1)))
            if kind == "abuser one day in three":
                return most if since % 3 == 0 else 1.0
            if kind == "abuser on saturdays":
                return most if day % 7 == 5 else 1.0
            return most
        return 1.0

    def _draw(self, index: int, low: float, high: float) -> float:
        return low + (high - low) * self.draws[index]


def draw_entities(seed: int, per_class: int) -> list[Entity]:
    """`per_class` of each class."""
    drawn = np.random.default_rng(seed)
    return [
        Entity(
            kind,
            f"{kind} {number}",
            int(drawn.integers(1 << 60)),
            float(10 ** drawn.uniform(4.0, 6.5)),
            tuple(float(x) for x in drawn.uniform(size=9)),
        )
        for kind in CLASSES
        for number in range(per_class)
    ]


def need(demand: Array) -> float:
    """The limit with which 99.9 % of a day's bytes do not wait: of means over two seconds, for a proxy's
    burst is a second of the limit; 0: no traffic."""
    pairs = demand.copy()
    pairs[1:] += demand[:-1]
    order = np.argsort(pairs)
    passed = np.cumsum(demand[order], dtype=np.float64)
    if passed[-1] == 0.0:
        return 0.0
    return float(pairs[order[int(np.searchsorted(passed, 0.999 * passed[-1]))]]) / 2


def _mask(places: Array, size: int) -> Array:
    mask = np.zeros(size, np.float32)
    mask[places % size] = 1.0
    return mask
