"""One principal's transactional ids: which are known, how many were new, and when a new one may go. Pure.

A new one costs the transaction coordinator an entry in its heap and in a log, until
transactional.id.expiration.ms (7 days) after its last transaction. The request that brings it,
InitProducerId, is never refused: above the limit it waits for its token, at most as long as a request may,
and then goes and is counted as over. So n connections pass at most max(limit, n ÷ longest wait). Knows names
only as numbers that stand for them. Source: wire-semantics 3.8.
"""

from __future__ import annotations

from math import inf
from typing import Final

from sluice.quotas.producer_ids.buckets import MS_PER_HOUR
from sluice.quotas.producer_ids.store import ExactStore

_MAX_DEBT_MS: Final = 60_000.0
"""of the limit may be owed: longer than any request waits, so that a flood is over soon after it has ended"""
_ROUNDING: Final = 1e-9


class TransactionalIds:
    """Transactional ids of one principal. `new` and `over` never fall: they are counters for metrics."""

    __slots__ = ("_at_ms", "_capacity", "_known", "_level", "_refill_per_ms", "new", "other", "over")

    def __init__(
        self,
        per_hour: float | None,
        *,
        burst_h: float,
        window_num: int,
        sample_ms: float,
        max_ids: int,
        now_ms: float,
    ) -> None:
        """`per_hour`: None for no limit. `max_ids`: remembered; beyond, the older half is forgotten."""
        self._known = ExactStore(window_num, sample_ms, max_ids=max_ids)
        self._capacity = inf if per_hour is None else max(per_hour * burst_h, 1.0)
        self._refill_per_ms = inf if per_hour is None else per_hour / MS_PER_HOUR
        self._level = self._capacity
        self._at_ms = now_ms
        self.other: TransactionalIds | None = None
        """the same user's where his limit is not enforced as it is here: what is known there is not new"""
        self.new = 0
        """ids that were not known when their request went to the broker"""
        self.over = 0
        """those of them that went before there was a token for them"""

    def ask(self, key: int, now_ms: float) -> tuple[float, float]:
        """Take a token for an id that is not known, on credit too; then `brought` or `withdraw` follows.

        Returns (when the id may go in ms, what was taken in tokens): at once and 0 for a known id. Less than
        one token, or none, is taken where as much is owed as may be.
        """
        if self._knows(key, now_ms) or self._level == inf:
            return now_ms, 0.0
        self._refill(now_ms)
        before = self._level
        self._level = max(before - 1.0, -_MAX_DEBT_MS * self._refill_per_ms - 1.0)
        taken = before - self._level
        if self._level >= -_ROUNDING:
            return now_ms, taken
        return now_ms - self._level / self._refill_per_ms, taken

    def brought(self, key: int, eligible_at_ms: float, now_ms: float) -> None:
        """Its request goes to the broker. `eligible_at_ms`: what `ask` said."""
        if not self._knows(key, now_ms):
            self._known.admit(key, now_ms)
            self.new += 1
            self.over += eligible_at_ms > now_ms + 1.0

    def withdraw(self, taken: float, now_ms: float) -> None:
        """The request will not go: what was taken for it, as `ask` said, comes back, and no more. Who asks
        and leaves while all that may be owed is owed would fill the bucket else."""
        self._refill(now_ms)
        self._level = min(self._level + taken, self._capacity)

    def expire(self, now_ms: float) -> bool:
        """Drop what is too old. True: beginning anew would change nothing."""
        self._refill(now_ms)
        return self._known.expire(now_ms) and self._level >= self._capacity

    def _knows(self, key: int, now_ms: float) -> bool:
        if self._known.seen(key, now_ms):
            return True
        return self.other is not None and self.other._known.seen(key, now_ms)

    def _refill(self, now_ms: float) -> None:
        if now_ms > self._at_ms:
            if self._level < self._capacity:
                grown = self._level + (now_ms - self._at_ms) * self._refill_per_ms
                self._level = min(grown, self._capacity)
            self._at_ms = now_ms
