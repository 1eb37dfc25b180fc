"""Delays of a bucket's connections → for how much of the last minute somebody of it was delayed. Pure.

A delay is told when it begins, with how long it will last. Delays that overlap count once, so that

    covered(now)  =  time up to now in which at least one connection was held, muted or told to wait
    share         =  (covered(now) − covered(then)) ÷ (now − then),   now − 65 s < then ≤ now − 60 s

One connection that waits for 3 s of each 10 s: 30 %, and so do ten that wait at the same time; ten that take
turns: 100 %. Beside it stands how long they waited in all, each for itself.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from sluice.quotas.entity import QuotaEntity

SPAN_MS: Final = 60_000.0
_MARK_MS: Final = 5_000.0
_MARKS: Final = int(SPAN_MS / _MARK_MS) + 1
MAX_BUCKETS: Final = 1_000
"""followed at once, as by the log"""


class Delayed(NamedTuple):
    """How much of the last minute was delay."""

    share: float
    """of it, 0 to 1: somebody was delayed"""
    seconds: float
    """of delay that began in it, all connections together"""


NOT_DELAYED: Final = Delayed(0.0, 0.0)


class CoveredTime:
    """The union of delays. Told in the order in which they begin."""

    __slots__ = ("_total_ms", "_until_ms")

    def __init__(self) -> None:
        self._total_ms = 0.0  # those that are to come, up to `_until_ms`, included
        self._until_ms = 0.0

    def add(self, begun_ms: float, delay_ms: float) -> None:
        """A delay has begun."""
        end_ms = begun_ms + delay_ms
        if end_ms > self._until_ms:
            self._total_ms += end_ms - max(begun_ms, self._until_ms)
            self._until_ms = end_ms

    @property
    def until_ms(self) -> float:
        """Nobody is delayed from then on."""
        return self._until_ms

    def ms(self, now_ms: float) -> float:
        """Up to now; `now_ms` ≥ every begin."""
        return self._total_ms - max(self._until_ms - now_ms, 0.0)


class DelayedTime:
    """One bucket's last minute."""

    __slots__ = ("_covered", "_marks", "_sum_ms")

    def __init__(self, now_ms: float) -> None:
        self._covered = CoveredTime()
        self._sum_ms = 0.0
        self._marks = deque([(now_ms - now_ms % _MARK_MS, 0.0, 0.0)], _MARKS)  # (at, covered, sum)

    def add(self, begun_ms: float, delay_ms: float) -> None:
        """One of its connections is delayed."""
        self._mark(begun_ms)
        self._covered.add(begun_ms, delay_ms)
        self._sum_ms += delay_ms

    def last_minute(self, now_ms: float) -> Delayed:
        """As it is now."""
        self._mark(now_ms)
        then_ms, covered_ms, sum_ms = self._marks[0]
        for mark in self._marks:
            if mark[0] > now_ms - SPAN_MS:
                break
            then_ms, covered_ms, sum_ms = mark
        span_ms = max(now_ms - then_ms, SPAN_MS)
        covered_ms = self._covered.ms(now_ms) - covered_ms
        return Delayed(min(covered_ms / span_ms, 1.0), (self._sum_ms - sum_ms) / 1000.0)

    def is_over(self, now_ms: float) -> bool:
        """Nobody was delayed in the last minute, or is."""
        return self._covered.until_ms <= now_ms - SPAN_MS

    def _mark(self, now_ms: float) -> None:
        """Nothing has begun since the last mark but what is counted already."""
        at_ms = self._marks[-1][0] + _MARK_MS
        at_ms = max(at_ms, (now_ms - SPAN_MS) // _MARK_MS * _MARK_MS)
        while at_ms <= now_ms:
            self._marks.append((at_ms, self._covered.ms(at_ms), self._sum_ms))
            at_ms += _MARK_MS


class DelayedTimes:
    """The delays of all buckets in the last minute, those in shadow mode not among them."""

    def __init__(self) -> None:
        self._buckets: dict[tuple[str, QuotaEntity], DelayedTime] = {}
        self._forgot_ms = 0.0

    def add(self, quota: str, bucket: QuotaEntity, begun_ms: float, delay_ms: float) -> None:
        """A connection is delayed by the limit of this kind that it shares with others."""
        key = (quota, bucket)
        found = self._buckets.get(key)
        if found is None:
            if len(self._buckets) >= MAX_BUCKETS and begun_ms - self._forgot_ms >= _MARK_MS:
                self._forgot_ms = begun_ms  # seldom: all are looked at
                self._forget(begun_ms)
            if len(self._buckets) >= MAX_BUCKETS:
                return
            found = self._buckets[key] = DelayedTime(begun_ms)
        found.add(begun_ms, delay_ms)

    def of(self, quota: str, bucket: QuotaEntity, now_ms: float) -> Delayed:
        """One bucket's last minute."""
        found = self._buckets.get((quota, bucket))
        return NOT_DELAYED if found is None else found.last_minute(now_ms)

    def count(self, now_ms: float) -> int:
        """How many were delayed in the last minute."""
        self._forget(now_ms)
        return len(self._buckets)

    def _forget(self, now_ms: float) -> None:
        over = [key for key, found in self._buckets.items() if found.is_over(now_ms)]
        for key in over:
            del self._buckets[key]
