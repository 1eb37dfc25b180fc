"""The usage of one quota bucket and kind, against one limit: the door that all pacings have in common.

How the charges of a bucket become delays is the pacing's: smooth.py (a token bucket, the default) or
kafka.py (the broker's own windowed rate). Whoever holds a sensor need not know which. Knows no clock,
no frames, no connections.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from sluice.quotas.entity import QuotaEntity, QuotaLevel
from sluice.quotas.kinds import KINDS, QuotaKind

MAX_INT32: Final = 2**31 - 1
"""what a Fetch's max_bytes can be"""
_UTILISATION_WINDOW_MS: Final = 10_000.0


class Sensor(ABC):
    """The door is `charge`; everything else is beside it."""

    __slots__ = (
        "_mark",
        "_mark_before",
        "charged",
        "entity",
        "exempt",
        "forgiven",
        "kind",
        "last_ms",
        "level",
        "owner",
        "rate_per_s",
        "refunded",
        "shadow",
        "turn_ms",
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
        self.exempt = False
        """stands for connections that an exempt rule covers"""
        self.turn_ms = now_ms
        """the turn of the latest charge; exact also where a cap cut its paid_ms"""
        self.last_ms = now_ms
        """when it was last charged or looked up; an idle sensor expires"""
        self.charged: float = 0  # an int while amounts are: adding two ints is quicker
        """units charged since the start, refunded ones too; never falls"""
        self.refunded = 0.0
        """units given back since the start; never falls"""
        self.forgiven = 0.0
        """units of debt beyond the cap since the start; never falls"""
        self._mark = self._mark_before = (now_ms, 0.0)

    @property
    def limit(self) -> float:
        """As it is configured, in its kind's unit."""
        return self.rate_per_s * KINDS[self.kind].limit_span_s

    @abstractmethod
    def charge(self, amount: float, now_ms: float) -> float:
        """Take `amount` ≥ 0 units; return paid_ms, when they will be paid (≤ now_ms: no debt).

        Sets `turn_ms`: the charge's turn in its bucket's queue (≤ now_ms: at once).
        """

    @abstractmethod
    def refund(self, amount: float, now_ms: float) -> None:
        """Give back units of a charge whose request was never forwarded. Deadlines already told stay."""

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

    @abstractmethod
    def count_fetcher(self, window_index: int) -> None:
        """A connection fetched in second int(now_ms // 1000); each tells it once a second."""

    @abstractmethod
    def fetch_max_bytes(self, now_ms: float) -> int:
        """What one Fetch may ask for, 1 … 2³¹−1."""

    @abstractmethod
    def promise(self, max_bytes: int, now_ms: float) -> None:
        """A Fetch went on that may bring `max_bytes`; its answer will be charged."""

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
