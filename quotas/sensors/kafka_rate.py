"""The broker's own arithmetic of quotas, number for number: Rate, SimpleRate, Avg, TokenBucket, and delays.

Times are whole ms and sums run in Kafka's order, so that results are equal to the last bit; what looks odd
(a bucket that starts empty, a missing window that counts as an idle one) is odd there too. The tests compare
with the classes of Kafka 4.3.1. Knows no clock.
Source: org.apache.kafka.common.metrics.stats.Rate, SimpleRate, Avg, SampledStat, WindowedSum, TokenBucket;
org.apache.kafka.server.quota.QuotaUtils, ControllerMutationQuotaManager.
"""

from __future__ import annotations

from math import floor, nan
from typing import Final

DEFAULT_WINDOW_NUM: Final = 11
"""Kafka's quota.window.num: ten whole windows and the current one"""
DEFAULT_WINDOW_SIZE_S: Final = 1.0
"""Kafka's quota.window.size.seconds"""
_LONG_MAX: Final = 2**63 - 1


class Rate:
    """Kafka's Rate over a WindowedSum: units per second over up to `window_num` windows of `window_ms`.

    A window begins with the first record after the one before is over, not on the tick, and is kept as long
    as its last record is younger than window_num · window_ms; so there is one more than `window_num` of them.
    """

    __slots__ = ("_current", "_last_ms", "_purge_ms", "_start_ms", "_values", "window_ms", "window_num")

    def __init__(self, window_num: int, window_ms: int) -> None:
        """Empty. `window_num` ≥ 1, `window_ms` ≥ 1."""
        self.window_num = window_num
        self.window_ms = window_ms
        # Of each window: its sum, its begin, its last record. A ring, of which `_current` is being filled.
        self._values: list[float] = []
        self._start_ms: list[int] = []
        self._last_ms: list[int] = []
        self._current = 0
        self._purge_ms = 0

    def record(self, value: float, now_ms: int) -> None:
        """Add `value` (negative: take it back) at `now_ms`; times must not go back."""
        if not self._values:
            self._begin(now_ms)
        elif now_ms - self._start_ms[self._current] >= self.window_ms:
            self._current = (self._current + 1) % (self.window_num + 1)
            if self._current == len(self._values):
                self._begin(now_ms)
            else:
                self._reset(self._current, now_ms)
        self._values[self._current] += value
        self._last_ms[self._current] = now_ms

    def total(self, now_ms: int) -> float:
        """What the windows that still count hold together. Drops the others, as Kafka does when it looks."""
        self._purge(now_ms)
        total = 0.0
        for value in self._values:  # not sum(), which rounds otherwise from Python 3.12 on
            total += value
        return total

    def elapsed_ms(self, now_ms: int) -> int:
        """W: the time that `total` is divided by, from the oldest window's begin. At least 1.

        Windows that are missing count as idle ones: at least window_num − 1 whole ones. Source:
        Rate.windowSize.
        """
        self._purge(now_ms)
        if not self._values:
            self._begin(now_ms)
        elapsed_ms = now_ms - min(self._start_ms)
        missing = self.window_num - 1 - elapsed_ms // self.window_ms
        if missing > 0:
            elapsed_ms += missing * self.window_ms
        return max(elapsed_ms, 1)

    def measure(self, now_ms: int) -> float:
        """O: units per second."""
        total = self.total(now_ms)
        return total / (self.elapsed_ms(now_ms) / 1000.0)

    def _begin(self, now_ms: int) -> None:
        self._values.append(0.0)
        self._start_ms.append(now_ms)
        self._last_ms.append(now_ms)

    def _reset(self, index: int, now_ms: int) -> None:
        self._values[index] = 0.0
        self._start_ms[index] = self._last_ms[index] = now_ms

    def _purge(self, now_ms: int) -> None:
        """Empty each window whose last record is too old. It begins anew *now*: so it is not the oldest."""
        if now_ms < self._purge_ms:
            return
        keep_ms = self.window_num * self.window_ms
        for index, last_ms in enumerate(self._last_ms):
            if now_ms - last_ms >= keep_ms:
                self._reset(index, now_ms)
        self._purge_ms = min(self._last_ms, default=now_ms) + keep_ms  # none is due before; it may be later


class SimpleRate(Rate):
    """Kafka's SimpleRate: a Rate whose missing windows do not count, as replication's byte-rate is taken.

    So it tells of a beginning what it is, where Rate divides by window_num − 1 whole windows at least.
    Worked example, 11 windows of 1 s, 1,000 B at 0 ms and 500 more at 2,000 ms. At 0 and 1,000 ms it is
    1,000 B/s (one whole window at least), at 1,600 ms 625, at 2,000 ms 750, at 4,000 ms 375; of a Rate 100
    at 0 and 1,000 ms, and 150 at 2,000 and 4,000 ms.
    """

    __slots__ = ()

    def elapsed_ms(self, now_ms: int) -> int:
        """From the oldest window's begin; at least one window. Source: SimpleRate.windowSize."""
        self._purge(now_ms)
        if not self._values:
            self._begin(now_ms)
        return max(now_ms - min(self._start_ms), self.window_ms)


class Average:
    """Kafka's Avg: the mean of what was recorded in up to `window_num` windows of `window_ms`.

    Worked example, two windows of 30 s: 100 and 300 at 0 s make 200; 50 more at 40 s make 150; from 60 s on
    50 alone is left, and from 100 s on nothing.
    """

    __slots__ = ("_counts", "_sums")

    def __init__(self, window_num: int, window_ms: int) -> None:
        """Empty. `window_num` ≥ 1, `window_ms` ≥ 1."""
        # Both are given the same times, so that their windows are the same.
        self._sums = Rate(window_num, window_ms)
        self._counts = Rate(window_num, window_ms)

    def record(self, total: float, count: int, now_ms: int) -> None:
        """Add `count` values that add up to `total`; times must not go back."""
        self._sums.record(total, now_ms)
        self._counts.record(count, now_ms)

    def measure(self, now_ms: int) -> float:
        """The mean; NaN if the windows are empty."""
        total, count = self._sums.total(now_ms), self._counts.total(now_ms)  # both drop what is old
        return total / count if count else nan


class TokenBucket:
    """Kafka's TokenBucket (KIP-599): `window_num` · `window_ms` worth of the quota, refilled at the quota.

    It is empty at time 0 of the clock: on a machine that has just started it begins with less than a burst.
    """

    __slots__ = ("_tokens", "_updated_ms", "window_ms", "window_num")

    def __init__(self, window_num: int, window_ms: int) -> None:
        self.window_num = window_num
        self.window_ms = window_ms
        self._tokens = 0.0
        self._updated_ms = 0

    def record(self, value: float, quota_per_s: float, now_ms: int) -> None:
        """Take `value` tokens, or give them back if it is negative; the bucket may go into debt."""
        self._refill(quota_per_s, now_ms)
        self._tokens = min(self._burst(quota_per_s), self._tokens - value)

    def measure(self, quota_per_s: float, now_ms: int) -> float:
        """The tokens that are left; below 0 the quota is violated."""
        self._refill(quota_per_s, now_ms)
        return self._tokens

    def throttle_ms(self, quota_per_s: float, now_ms: int) -> int:
        """Until the debt is paid; 0: there is none."""
        tokens = self.measure(quota_per_s, now_ms)
        return java_round(-tokens / quota_per_s * 1000.0) if tokens < 0.0 else 0

    def _refill(self, quota_per_s: float, now_ms: int) -> None:
        refilled = self._tokens + quota_per_s * ((now_ms - self._updated_ms) / 1000.0)
        self._tokens = min(self._burst(quota_per_s), refilled)
        self._updated_ms = now_ms

    def _burst(self, quota_per_s: float) -> float:
        return self.window_num * (self.window_ms / 1000.0) * quota_per_s


def throttle_ms(rate_per_s: float, quota_per_s: float, elapsed_ms: int) -> int:
    """X = (O − T) / T · W: how long without usage the rate O ≥ T takes to come down to T.

    Source: QuotaUtils.throttleTime.
    """
    return java_round((rate_per_s - quota_per_s) / quota_per_s * elapsed_ms)


def java_round(value: float) -> int:
    """Math.round of a value ≥ 0: to the nearest whole number, halves up, at most 2⁶³−1 (of infinity, too)."""
    if value >= _LONG_MAX:
        return _LONG_MAX
    whole = floor(value)
    return whole + 1 if value - whole >= 0.5 else whole
