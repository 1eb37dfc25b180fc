"""The usage of one quota bucket and kind, against one limit: the door that all pacings have in common.

How the charges of a bucket become delays is the pacing's: smooth.py (a token bucket, the default) or
kafka.py (the broker's own windowed rate). Whoever holds a sensor need not know which. Knows no clock,
no frames, no connections.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import ceil, inf
from typing import Final

from sluice.quotas.entity import QuotaEntity, QuotaLevel
from sluice.quotas.kinds import KINDS, QuotaKind
from sluice.quotas.sensors.fetch_queue import FetchQueue
from sluice.quotas.sensors.hold_queue import HoldQueue

_UTILISATION_WINDOW_MS: Final = 10_000.0
_ROUNDING_BYTES: Final = 1e-3
"""by which sums of times may be wrong: no part of a byte that counts"""


class Sensor(ABC):
    """The door is `charge`; everything else is beside it."""

    __slots__ = (
        "_fetch_queue",
        "_mark",
        "_mark_before",
        "charged",
        "eligible_at_ms",
        "entity",
        "exempt",
        "forgiven",
        "held",
        "kind",
        "last_ms",
        "level",
        "over",
        "over_before",
        "owner",
        "rate_per_s",
        "refunded",
        "refuses",
        "shadow",
    )

    def __init__(
        self,
        kind: QuotaKind,
        level: QuotaLevel,
        entity: QuotaEntity,
        rate_per_s: float,
        now_ms: float,
        owner: str,
    ) -> None:
        self.kind = kind
        self.level = level
        self.entity = entity
        self.owner = owner
        self.rate_per_s = rate_per_s
        self.shadow = False
        """what it tells is measured and logged, and nobody is delayed by it"""
        self.refuses = False
        """a Produce that has no turn in its answer budget is refused, and does not go ahead of the limit"""
        self.exempt = False
        """stands for connections that an exempt rule covers"""
        self.eligible_at_ms = now_ms
        """the turn of the latest charge; exact also where a cap cut its clears_at_ms"""
        self.last_ms = now_ms
        """when it was last charged or looked up; an idle sensor expires"""
        self.charged: float = 0  # an int while amounts are: adding two ints is quicker
        """units charged since the start, refunded ones too; never falls"""
        self.refunded = 0.0
        """units given back since the start; never falls"""
        self.forgiven = 0.0
        """units of debt beyond the cap since the start; never falls"""
        self.held = 0
        """units charged for requests that wait here: they may still go on, or never"""
        self.over = 0
        """bytes that went on, and that were not paid at the end of their request's delay; never falls"""
        self.over_before = 0
        """those of them that were counted before the debt of now began"""
        self._mark = self._mark_before = (now_ms, 0.0)
        self._fetch_queue: FetchQueue | None = None

    @property
    def limit(self) -> float:
        """As it is configured, in its kind's unit."""
        return self.rate_per_s * KINDS[self.kind].limit_span_s

    @property
    def forgiven_for_good(self) -> float:
        """The part of `forgiven` that cannot be given back any more, with a request that never goes on."""
        return self.forgiven

    @property
    def used(self) -> float:
        """Units charged since the start for what went on: neither given back nor held now."""
        return self.charged - self.refunded - self.held

    @abstractmethod
    def charge(self, amount: float, now_ms: float) -> float:
        """Take `amount` ≥ 0 units; return clears_at_ms, when they will be paid (≤ now_ms: no debt).

        Sets `eligible_at_ms`: the charge's turn in its bucket's queue (≤ now_ms: at once).
        """

    @abstractmethod
    def refund(self, amount: float, now_ms: float) -> None:
        """Give back units of a charge whose request was never forwarded. Deadlines already told stay."""

    def hold_queue(self) -> HoldQueue | None:
        """Decides when what is held goes; None: each at its turn or deadline."""
        return None

    def owed_ms(self, now_ms: float) -> float:
        """Until all that was charged is paid, what is held included; at least 0."""
        return max(-self.tokens(now_ms), 0.0) * 1000.0 / self.rate_per_s

    def hold(self, amount: int) -> None:
        """So many units of the last charge wait; `go` or `drop` follows."""
        self.held += amount

    def go(self, amount: int, until_ms: float) -> None:
        """What was held goes on now; its delay lasts until `until_ms`."""
        self.held -= amount
        self.count_over(amount, until_ms)

    def drop(self, amount: int, now_ms: float) -> None:
        """What was held will never go on."""
        self.held -= amount
        self.refund(amount, now_ms)

    def count_over(self, amount: int, until_ms: float) -> None:
        """A request of `amount` bytes goes on whose delay, hold and mute together, ends at `until_ms`: add to
        `over` what is not paid then.

        Each byte once: what is counted is no longer waited for, so that all that the quota pays while the
        debt lasts is for the others. So at the time when the last byte was counted, if delays end in the
        order of the requests,

            counted = forwarded − (tokens at the beginning + rate · time)

        since the debt began, debts cut or given back included: the most that the debt ever was at the end of
        a delay. It is never more than went on. In whole bytes: one that is paid in part counts. Nothing is
        counted in shadow mode.

        Worked example, 1,000 B/s, 1,000 tokens: 30,000 B at 0 ms, whose delay ends at 10,000 ms: forwarded
        30,000 − (1,000 + 10,000) = 19,000 over. 12,000 B more wait from 10,000 to 20,000 ms, and go: in all
        42,000 − (1,000 + 20,000) = 21,000, of which 2,000 are new; the other 10,000 have been paid since.
        """
        if self.shadow:
            return
        over = ceil(self._unpaid(until_ms) - (self.over - self.over_before) - _ROUNDING_BYTES)
        if over > 0:
            self.over += min(over, amount)

    def _unpaid(self, until_ms: float) -> float:
        """Units that went on since the debt began, less what is paid by `until_ms`; below 0: credit. A debt
        that was cut counts whole, and what is held does not."""
        return 0.0

    @abstractmethod
    def waive(self, now_ms: float) -> None:
        """Nobody is made to wait for what is above the limit now, so from now on it counts as never used.

        For shadow mode, after each charge that is not paid at once. Else a client that is not slowed down
        would seem to owe more with every request, without end, and would be made to pay for it when its
        limit is put in force.
        """

    @abstractmethod
    def tokens(self, now_ms: float) -> float:
        """Units that may pass at once; negative: units owed."""

    @abstractmethod
    def update(self, rate_per_s: float, level: QuotaLevel, now_ms: float) -> None:
        """Go on with another limit. Deadlines already told stay."""

    # Fetches ----------------------------------------------------------------------------------------------

    def fetch_queue(self) -> FetchQueue:
        """Decides which Fetch goes when, and how much it may bring."""
        if self._fetch_queue is None:
            self._fetch_queue = FetchQueue(self, 1000.0 / self.rate_per_s)
        return self._fetch_queue

    def charge_whole(self, amount: float, now_ms: float) -> float:
        """As `charge`; but nothing is forgiven, however large the debt (wire-semantics 1.3)."""
        return self.charge(amount, now_ms)

    def free_ms(self, reserved: float, now_ms: float) -> float:
        """When it has more than `reserved` units; inf: not by time alone."""
        return now_ms if self.tokens(now_ms) > reserved else inf

    def is_half_full(self, now_ms: float) -> bool:
        """At least half of a second's usage is left."""
        return self.tokens(now_ms) * 2.0 >= self.rate_per_s

    def fetch_share(self, reserved: float, connections: int, now_ms: float) -> tuple[float, float]:
        """In bytes: what one Fetch may ask for now, and the most that may be granted beyond it to one whose
        batches are small."""
        return inf, inf

    def utilisation(self, now_ms: float) -> float:
        """Mean charged rate ÷ limit; above 1 while more is asked for than the limit. For gauges.

        Over the last 10 to 20 s plus up to the interval between two calls; at first, since the start.
        """
        used = self.charged - self.refunded
        if now_ms - self._mark[0] >= _UTILISATION_WINDOW_MS:
            self._mark_before = self._mark
            self._mark = (now_ms, used)
        since_ms, used_before = self._mark_before
        span_ms = now_ms - since_ms
        return max(0.0, (used - used_before) * 1000.0 / (self.rate_per_s * span_ms)) if span_ms > 0.0 else 0.0
