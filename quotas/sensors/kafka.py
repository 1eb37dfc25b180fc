"""`pacing.mode: kafka`: the broker's own windowed rate, for who wants its numbers, sawtooth included.

A charge is recorded, then the rate O is measured over the windows. If it is above the limit T, the charge's
connection is to be silent for X = (O − T) / T · W: until a rate to which nothing is added would be T again.
Nothing is held, no connection waits for another, and what was told is not remembered: the windows are all the
state, and they forget after window_num · window_size.

Worked example, 1,000 B/s, 11 windows of 1 s, all idle at first: W = 10 s, so 10,000 B pass at once.
    0 ms: 10,000 B      O = 1,000        X = 0
    0 ms: 500 B         O = 1,050        X = 500 ms
    11,000 ms: 100 B    O = 100 ÷ 10 s   X = 0: what was recorded at 0 ms no longer counts
Source: wire-semantics 2; ClientQuotaManager.recordAndGetThrottleTimeMs, unrecordQuotaSensor,
maxValueInQuotaWindow. The time is cut to whole ms, as the broker's clock is.
"""

from __future__ import annotations

from typing import Final

from sluice.quotas.entity import QuotaEntity, QuotaLevel
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.sensors.kafka_rate import DEFAULT_WINDOW_NUM, DEFAULT_WINDOW_SIZE_S, Rate, throttle_ms
from sluice.quotas.sensors.sensor import Sensor

_LOOK_AGAIN_MS: Final = 100.0
"""for a window that ends, while what is reserved fills what is left"""


class KafkaSensor(Sensor):
    """The same inputs give the same delays as in the broker. `forgiven` stays 0: there is no debt to cut."""

    __slots__ = ("_clears_at_ms", "_rate", "_tat_ms")

    def __init__(
        self,
        kind: QuotaKind,
        level: QuotaLevel,
        entity: QuotaEntity,
        rate_per_s: float,
        now_ms: float,
        *,
        window_num: int = DEFAULT_WINDOW_NUM,
        window_size_s: float = DEFAULT_WINDOW_SIZE_S,
        owner: str = "",
    ) -> None:
        """All windows idle.

        `rate_per_s` > 0, in units of the kind; `window_num` ≥ 1; `window_size_s` ≥ 0.001, in whole ms;
        `owner`: the first user of the bucket.
        """
        super().__init__(kind, level, entity, rate_per_s, now_ms, owner)
        self._rate = Rate(window_num, round(window_size_s * 1000.0))
        self._clears_at_ms = self._tat_ms = now_ms

    def charge(self, amount: float, now_ms: float) -> float:
        """Record `amount` ≥ 0 units; return when the connection may go on: now_ms + X.

        Sets `eligible_at_ms` to now_ms: nothing is held.
        """
        self.eligible_at_ms = self.last_ms = now_ms
        self.charged += amount
        rate = self._rate
        at_ms = int(now_ms)
        rate.record(amount, at_ms)
        rate_per_s = rate.measure(at_ms)
        if rate_per_s <= self.rate_per_s:
            return now_ms
        elapsed_ms = rate.elapsed_ms(at_ms)
        clears_at_ms = now_ms + throttle_ms(rate_per_s, self.rate_per_s, elapsed_ms)
        if rate.total(at_ms) - amount <= self.rate_per_s * (elapsed_ms / 1000.0):  # a debt begins
            self.over_before = self.over
            self._tat_ms = clears_at_ms
        else:
            self._tat_ms += amount * 1000.0 / self.rate_per_s
        self._clears_at_ms = clears_at_ms
        return clears_at_ms

    def refund(self, amount: float, now_ms: float) -> None:
        """Take `amount` out of the current window, as the broker does for what it did not deliver.

        Nothing is held in this pacing, so nobody abandons a held request; it serves whoever charged first and
        then could not forward.
        """
        self.refunded += amount
        self._rate.record(-amount, int(now_ms))

    def waive(self, now_ms: float) -> None:
        """Take what is above the limit out of the current window: the rate is the limit now."""
        above = -self.tokens(now_ms)
        if above > 0.0:
            self._rate.record(-above, int(now_ms))

    def tokens(self, now_ms: float) -> float:
        """Units that may still pass now without a delay; negative: units above the limit."""
        at_ms = int(now_ms)
        return self.rate_per_s * (self._rate.elapsed_ms(at_ms) / 1000.0) - self._rate.total(at_ms)

    def update(self, rate_per_s: float, level: QuotaLevel, now_ms: float) -> None:
        """Go on with another limit: the windows stay, and the next charge is measured against the new one."""
        self.rate_per_s = rate_per_s
        self.level = level
        if self._fetch_queue is not None:
            self._fetch_queue.update(1000.0 / rate_per_s, now_ms)

    def _unpaid(self, until_ms: float) -> float:
        """As if no window forgot what was used in it, for it went on all the same; but nothing of a request
        whose delay is as long as the windows wanted."""
        if until_ms >= self._clears_at_ms:
            return 0.0
        return (self._tat_ms - until_ms) * self.rate_per_s / 1000.0 - self.held

    def free_ms(self, reserved: float, now_ms: float) -> float:
        """Now, if the windows have room for more than `reserved`; else X after now, or once less is reserved.

        In the broker a fetch above the limit is answered without records; here it waits.
        """
        if self.tokens(now_ms) > reserved:
            return now_ms
        at_ms = int(now_ms)
        rate_per_s = self._rate.measure(at_ms)
        if rate_per_s <= self.rate_per_s:
            return now_ms + _LOOK_AGAIN_MS if reserved else now_ms
        return now_ms + max(throttle_ms(rate_per_s, self.rate_per_s, self._rate.elapsed_ms(at_ms)), 1)

    def fetch_share(self, reserved: float, connections: int, now_ms: float) -> tuple[float, float]:
        """T · (window_num − 1) · window_size: what may come at once when all windows are idle, for each
        connection anew. Source: ClientQuotaManager.maxValueInQuotaWindow."""
        rate = self._rate
        allowed = self.rate_per_s * (rate.window_num - 1) * (rate.window_ms / 1000.0)
        return allowed, allowed

    def __repr__(self) -> str:
        return (
            f"<KafkaSensor {self.kind.value} {self.level.value} {self.entity}: {self.rate_per_s:g}/s, "
            f"charged {self.charged:.0f}, refunded {self.refunded:.0f}>"
        )
