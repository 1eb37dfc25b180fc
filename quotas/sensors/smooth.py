"""The running token bucket of one quota bucket and kind: usage in, the time at which it is paid out.

State is one time, `tat_ms`: when the tokens are, were or will be exactly zero (GCRA).
    tokens(now) = rate · (now − zero)        because tokens grow by `rate` and were 0 at `zero`
    tokens ≤ rate · burst                    so zero ≥ now − burst: what a bucket cannot hold it never had
    a charge takes `amount` tokens           so zero moves by amount / rate
hence   zero = max(zero, now − burst) + amount · ms_per_unit,   ms_per_unit = 1000 / rate_per_s.
The new zero is when this charge is paid (`clears_at_ms`; in the past: from credit). The zero before it is
when all earlier charges are paid: this charge's turn (`eligible_at_ms`). First come, first served; no later
charge moves either.

Worked example, 1,000 B/s, burst 1 s, full at 10,000 ms (zero = 9,000):
    10,000 ms: 400 B   turn  9,000   paid  9,400   600 tokens left, goes at once
    10,000 ms: 1,100 B turn  9,400   paid 10,500   −500 tokens: goes at once, but 500 ms are owed
    10,000 ms: 200 B   turn 10,500   paid 10,700   in debt: waits 500 ms for its turn
    30,000 ms: 100 B   turn 29,000   paid 29,100   long idle: credit was clipped to 1 s
Debt ends at max_debt_ms (who poured for an hour is not punished for hours): the rest is forgiven and counted.
But no charge has what `charge_whole` charged forgiven: behind it, it adds nothing to a debt beyond the cap.

Rounding: each charge errs by at most half an ulp of the time: 2 ns after a year of uptime, 2 bytes at 1 GB/s.
Knows no clock, no frames, no connections. Source: wire-semantics 1.1, 1.6, 2.
"""

from __future__ import annotations

from math import inf
from typing import Final

from sluice.quotas.entity import QuotaEntity, QuotaLevel
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.sensors.hold_queue import HoldQueue
from sluice.quotas.sensors.sensor import Sensor

DEFAULT_BURST_S: Final = 1.0
DEFAULT_MAX_DEBT_MS: Final = 60_000.0
FETCH_MIN_SHARE_MS: Final = 100.0
"""all of them together always get this much of the rate, or a bucket in debt would never be fetched from"""


class SmoothSensor(Sensor):
    """`pacing.mode: smooth`: who is in debt waits for its turn, so that usage passes evenly."""

    __slots__ = (
        "_burst_ms",
        "_fetch_full_ms",
        "_forgiven_at_ms",
        "_forgiven_before",
        "_forgiven_refunded",
        "_max_debt_ms",
        "_ms_per_unit",
        "_queue",
        "_refund_gap",
        "_whole_until_ms",
        "tat_ms",
    )

    def __init__(
        self,
        kind: QuotaKind,
        level: QuotaLevel,
        entity: QuotaEntity,
        rate_per_s: float,
        now_ms: float,
        *,
        burst_s: float = DEFAULT_BURST_S,
        max_debt_ms: float = DEFAULT_MAX_DEBT_MS,
        owner: str = "",
    ) -> None:
        """Starts with a full burst.

        `rate_per_s` > 0, in units of the kind; `owner`: the first user of the bucket.
        """
        super().__init__(kind, level, entity, rate_per_s, now_ms, owner)
        self._ms_per_unit = 1000.0 / rate_per_s
        self._burst_ms = burst_s * 1000.0
        self._fetch_full_ms = max(self._burst_ms, FETCH_MIN_SHARE_MS)
        self._max_debt_ms = max_debt_ms
        self.tat_ms = self.eligible_at_ms = now_ms - self._burst_ms
        # When all is paid that `charge_whole` charged, and what was owed before it: no charge forgives that.
        self._whole_until_ms = now_ms
        self._refund_gap = 0.0
        self._forgiven_at_ms = now_ms
        # Of `forgiven`, what was before the debt of now; and what was forgiven and then given back.
        self._forgiven_before = 0.0
        self._forgiven_refunded = 0.0
        self._queue: HoldQueue | None = None

    def hold_queue(self) -> HoldQueue:
        """Made when first something is held: most buckets never are in debt."""
        if self._queue is None:
            self._queue = HoldQueue(self._ms_per_unit, self._max_debt_ms)
        return self._queue

    @property
    def forgiven_for_good(self) -> float:
        """What is held may be given back still, and so may what was forgiven for it."""
        return self.forgiven - self._forgiven_refunded - min(self._refund_gap, self.held)

    def charge(self, amount: float, now_ms: float) -> float:
        """Take `amount` ≥ 0 units; return clears_at_ms, when they will be paid (≤ now_ms: no debt).

        Sets `eligible_at_ms`: the charge's turn in its bucket's queue (≤ now_ms: at once). It adds nothing to
        a debt beyond max_debt_ms, so clears_at_ms ≤ max(now_ms + max_debt_ms, eligible_at_ms); that is
        above the cap only behind `charge_whole`. Non-decreasing over charges at non-decreasing times
        without refunds.
        """
        eligible_at_ms = self.tat_ms
        full_ms = now_ms - self._burst_ms
        if eligible_at_ms < full_ms:  # noqa: PLR1730  max() is a call and costs as much as all the rest
            eligible_at_ms = full_ms
        clears_at_ms = eligible_at_ms + amount * self._ms_per_unit
        if clears_at_ms > now_ms:
            if eligible_at_ms <= now_ms:  # a debt begins
                self.over_before = self.over
                self._forgiven_before = self.forgiven
            if clears_at_ms > now_ms + self._max_debt_ms:
                clears_at_ms = self._forgive(clears_at_ms, eligible_at_ms, now_ms)
        self.eligible_at_ms = eligible_at_ms
        self.tat_ms = clears_at_ms
        self.charged += amount
        self.last_ms = now_ms
        return clears_at_ms

    def refund(self, amount: float, now_ms: float) -> None:
        """Give back units of a charge whose request was never forwarded; credit never passes the burst.

        Deadlines already told stay. What the debt cap forgave is not given back a second time, or a client
        could clear its real debt with requests that it abandons: a refund first closes the gap between
        charged and owed. Each forgiven charge must be refunded within max_debt_ms (a hold is shorter) for
        that to be exact.
        """
        self.refunded += amount
        if self._refund_gap > 0.0:
            if now_ms - self._forgiven_at_ms > self._max_debt_ms:
                self._refund_gap = 0.0
            closed = min(amount, self._refund_gap)
            self._refund_gap -= closed
            self._forgiven_before += closed
            self._forgiven_refunded += closed
            amount -= closed
        self.tat_ms = max(self.tat_ms - amount * self._ms_per_unit, now_ms - self._burst_ms)
        if self.tat_ms <= now_ms:
            self._end_debt()

    def waive(self, now_ms: float) -> None:
        """End a debt: the bucket is empty now."""
        if self.tat_ms > now_ms:
            self.tat_ms = self._whole_until_ms = now_ms
            self._refund_gap = 0.0
            self._end_debt()

    def tokens(self, now_ms: float) -> float:
        """Units that may pass at once; negative: units owed. At most the burst."""
        return min(now_ms - self.tat_ms, self._burst_ms) / self._ms_per_unit

    def update(self, rate_per_s: float, level: QuotaLevel, now_ms: float) -> None:
        """Go on with another limit: a debt stays the same in units, a credit the same share of the burst.

        Deadlines already told stay. A debt that a lower limit makes last longer than max_debt_ms is cut to
        that; what `charge_whole` charged to no less time than it would have taken before.
        """
        debt_ms = self.tat_ms - now_ms
        slower = self.rate_per_s / rate_per_s
        self.rate_per_s = rate_per_s
        self._ms_per_unit = 1000.0 / rate_per_s
        self.level = level
        if debt_ms > 0.0:
            tat_ms = now_ms + debt_ms * slower
            whole_until_ms = now_ms + (self._whole_until_ms - now_ms) * slower
            if tat_ms > now_ms + self._max_debt_ms:
                tat_ms = self._forgive(tat_ms, min(whole_until_ms, self.tat_ms, tat_ms), now_ms)
            self.tat_ms = tat_ms
            self._whole_until_ms = min(whole_until_ms, tat_ms)
        if self._queue is not None:
            self._queue.update(self._ms_per_unit, now_ms)
        if self._fetch_queue is not None:
            self._fetch_queue.update(self._ms_per_unit, now_ms)

    def charge_whole(self, amount: float, now_ms: float) -> float:
        """As `charge`, without the cap on debt: a batch that came is paid for, however large it is."""
        eligible_at_ms = self.tat_ms
        full_ms = now_ms - self._burst_ms
        if eligible_at_ms < full_ms:  # noqa: PLR1730  as in `charge`
            eligible_at_ms = full_ms
        clears_at_ms = eligible_at_ms + amount * self._ms_per_unit
        if clears_at_ms > now_ms >= eligible_at_ms:  # a debt begins
            self.over_before = self.over
            self._forgiven_before = self.forgiven
        self.eligible_at_ms = eligible_at_ms
        self.tat_ms = self._whole_until_ms = clears_at_ms
        self.charged += amount
        self.last_ms = now_ms
        return clears_at_ms

    def free_ms(self, reserved: float, now_ms: float) -> float:
        """When it has more than `reserved` units; inf: never, for they are more than a burst."""
        if reserved <= 0.0:
            return self.tat_ms
        reserved_ms = reserved * self._ms_per_unit
        return self.tat_ms + reserved_ms if reserved_ms < self._burst_ms else inf

    def is_half_full(self, now_ms: float) -> bool:
        """At least half of the burst is there."""
        return (now_ms - self.tat_ms) * 2.0 >= self._burst_ms

    def fetch_share(self, reserved: float, connections: int, now_ms: float) -> tuple[float, float]:
        """What is left of the tokens, 0.1 s of the rate at least, ÷ connections that fetch; and 0.1 s of the
        rate. Source: wire-semantics 2."""
        budget_ms = now_ms - self.tat_ms - reserved * self._ms_per_unit
        budget_ms = min(max(budget_ms, FETCH_MIN_SHARE_MS), self._fetch_full_ms)
        return budget_ms / self._ms_per_unit / connections, FETCH_MIN_SHARE_MS / self._ms_per_unit

    def _end_debt(self) -> None:
        """What went on before is paid, or forgiven: bytes over quota are counted from here on."""
        self.over_before = self.over
        self._forgiven_before = self.forgiven

    def _unpaid(self, until_ms: float) -> float:
        owed = (self.tat_ms - until_ms) / self._ms_per_unit
        return owed + (self.forgiven - self._forgiven_before) - self.held

    def _forgive(self, clears_at_ms: float, least_ms: float, now_ms: float) -> float:
        """Cut a debt to the cap, but to no less than `least_ms` ≤ clears_at_ms; return its end."""
        capped_ms = now_ms + self._max_debt_ms
        if capped_ms < least_ms:  # noqa: PLR1730  as in `charge`
            capped_ms = least_ms
        excess = (clears_at_ms - capped_ms) / self._ms_per_unit
        self.forgiven += excess
        self._refund_gap += excess
        self._forgiven_at_ms = now_ms
        return capped_ms

    def __repr__(self) -> str:
        return (
            f"<SmoothSensor {self.kind.value} {self.level.value} {self.entity}: {self.rate_per_s:g}/s, "
            f"zero at {self.tat_ms:.3f} ms, charged {self.charged:.0f}, refunded {self.refunded:.0f}, "
            f"forgiven {self.forgiven:.0f}>"
        )
