"""The token buckets of the producer-id quota: main, forced, resumed. Pure; time is an argument.

Unlike the byte rates' Sensor, which lets a charge pass and carries its debt, this one must be able to say no,
and to take back: an id counts when its request goes to the broker, which may be never. So tokens are first
*reserved*, then settled. What is reserved still counts towards the capacity. Hence in any span of T hours
what is spent is at most capacity + refill · T, however long a reservation lasts:
    level + reserved ≤ capacity           at all times, since refilling stops there
    spent in [s, e] ≤ level(s) + reserved(s) + refill · (e − s)
Another limit scales all three alike, so that it and the limit before, put back, leave everything as it was.
Source: wire-semantics 3 (the stated bound), 3.9, 3.11; KIP-936, "tokens".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

MS_PER_HOUR: Final = 3_600_000.0
_ROUNDING: Final = 1e-9
"""tokens; sums of floats fall short of a whole number by less"""


@dataclass(frozen=True, slots=True)
class BucketShape:
    """What a limit of N ids per hour makes of the three buckets.

    main      capacity N · burst                       refill N per hour
    forced    capacity 0.1 · N · burst                 refill 0.1 · N per hour; below half of the capacity
                                                       it is for members of groups alone (`forced_floor`)
    resumed   capacity N · (burst + expiration)        refill N per hour
    A capacity is at least one id, or a limit below one would admit nobody, ever.
    """

    burst_h: float = 1.0
    forced_share: float = 0.1
    member_share: float = 0.5
    """of the forced bucket, which only members of groups and who has a transaction may use"""
    expiration_ms: float = 24 * MS_PER_HOUR
    """the broker's producer.id.expiration.ms"""

    def main(self, ids_per_hour: float) -> tuple[float, float]:
        """(capacity, refill per hour)"""
        return max(ids_per_hour * self.burst_h, 1.0), ids_per_hour

    def forced(self, ids_per_hour: float) -> tuple[float, float]:
        """(capacity, refill per hour)"""
        share = ids_per_hour * self.forced_share
        return max(share * self.burst_h, 1.0), share

    def forced_floor(self, capacity: float) -> float:
        """Tokens that others than members leave in a forced bucket of this capacity.

        One bucket with a floor, not two: so the bound is the same, whoever is a member, and what members do
        not use goes to others. A bucket that holds but one id has no part to keep.
        """
        return max(min(capacity * self.member_share, capacity - 1.0), 0.0)

    def resumed(self, ids_per_hour: float) -> tuple[float, float]:
        """(capacity, refill per hour)"""
        return max(ids_per_hour * (self.burst_h + self.expiration_ms / MS_PER_HOUR), 1.0), ids_per_hour

    def bound(self, ids_per_hour: float, span_h: float) -> float:
        """The stated bound: the most ids that a principal has admitted in any span of so many hours."""
        shapes = (self.main(ids_per_hour), self.forced(ids_per_hour), self.resumed(ids_per_hour))
        return sum(capacity + refill * span_h for capacity, refill in shapes)


class IdBucket:
    """One token bucket. Starts full."""

    __slots__ = ("_at_ms", "_level", "_refill_per_ms", "_reserved_ids", "capacity", "reserved")

    def __init__(self, shape: tuple[float, float], now_ms: float) -> None:
        """`shape`: (capacity, refill per hour), as BucketShape gives it."""
        self.capacity, per_hour = shape
        self._refill_per_ms = per_hour / MS_PER_HOUR
        self._level = self.capacity
        self._at_ms = now_ms
        self._reserved_ids = 0
        self.reserved = 0.0
        """taken by ids whose requests have not gone yet; tokens of the limit of now"""

    def tokens(self, now_ms: float) -> float:
        """Ids that may pass now; below 0 only where nothing is refused (`charge`)."""
        if now_ms > self._at_ms:
            grown = self._level + (now_ms - self._at_ms) * self._refill_per_ms
            self._level = max(self._level, min(grown, self.capacity - self.reserved))
            self._at_ms = now_ms
        return self._level

    def reserve(self, count: int, now_ms: float, floor: float = 0.0) -> bool:
        """Take `count` tokens and leave `floor`, or take none and say no."""
        level = self.tokens(now_ms)
        if count > level - floor + _ROUNDING:
            return False
        self._level = level - count
        self._reserved_ids += count
        self.reserved += count
        return True

    def settle(self, reserved: int, spent: int, now_ms: float, capacity: float | None = None) -> None:
        """A reservation ends: `spent` of its ids went to the broker, the tokens of the others come back.

        `capacity`: that the bucket had when they were reserved, if it may be another now: what comes back is
        the same share of it. In whole tokens one id of a high limit would fill the bucket of a low one, and
        that, with the high one put back, all of its bucket.
        """
        scale = 1.0 if capacity is None else self.capacity / capacity
        self._level = self.tokens(now_ms) + (reserved - spent) * scale
        self._reserved_ids -= reserved
        # Sums of floats would not end at 0, and the bucket would never be full again.
        self.reserved = self.reserved - reserved * scale if self._reserved_ids else 0.0

    def charge(self, count: int, now_ms: float) -> bool:
        """Take `count` tokens whether they are there or not; False if they were not.

        Debt ends at one capacity, so that a limit that comes into force finds no lock-out of days.
        """
        level = self.tokens(now_ms)
        self._level = max(level - count, -self.capacity)
        return count <= level + _ROUNDING

    def ready_ms(self, count: int, now_ms: float, floor: float = 0.0) -> float:
        """When `reserve` says yes if nobody else comes; inf: never."""
        missing = count + floor - self.tokens(now_ms)
        if missing <= _ROUNDING:
            return now_ms
        if count + floor > self.capacity + _ROUNDING or self._refill_per_ms <= 0.0:
            return math.inf
        return now_ms + missing / self._refill_per_ms

    def is_full(self, now_ms: float) -> bool:
        """Forgetting it and beginning anew would change nothing."""
        return not self._reserved_ids and self.tokens(now_ms) >= self.capacity - _ROUNDING

    def update(self, shape: tuple[float, float], now_ms: float) -> None:
        """Go on with another limit: what is there, and what is reserved, stays the same share of the
        capacity."""
        level = self.tokens(now_ms)
        capacity, per_hour = shape
        self._level = level * capacity / self.capacity
        self.reserved = self.reserved * capacity / self.capacity
        self.capacity = capacity
        self._refill_per_ms = per_hour / MS_PER_HOUR

    def restore(self, level: float, at_ms: float) -> None:
        """Take over a level from `at_ms`, which may be before this bucket's own start."""
        self._level = min(max(level, -self.capacity), self.capacity)
        self._at_ms = at_ms

    def __repr__(self) -> str:
        return f"<IdBucket {self._level:.3f} of {self.capacity:g}, {self.reserved:g} reserved>"
