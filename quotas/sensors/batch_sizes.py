"""What the record batches of a bucket weigh, and so: how many bytes to grant that none is cut. Pure.

A broker fills an answer up to `max_bytes` and cuts the last batch there. The client discards the part, is
charged for it, and fetches it again: half of a small quota can be waste. With `max_bytes` = 1 it gives
exactly one whole batch, but each of them costs a round trip. So, for batches of which the typical byte lies
in one of `typical` bytes:

    batches alike          a multiple of the largest: nothing is cut; half of the most, so that a second holds
                           twenty grants of a bucket in debt: ten made it swing by a tenth (variation 0.044)
    grant ≥ 10 · typical   as it is: the part that is cut is a twentieth of it
    less                   max_bytes = 1: one batch

Source: wire-semantics 1.3; KIP-74.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

UNKNOWN_BYTES: Final = 1_048_588
"""What a batch may be before one was seen: Kafka's default max.message.bytes."""
_RECENT: Final = 32
_MEMORY_MS: Final = 300_000.0
_ENOUGH_BATCHES: Final = 10
_ALIKE: Final = 0.97
"""Batches of the same records differ by some bytes: counters grow, times differ."""


class BatchSizes:
    """The sizes of batches that one bucket's fetches brought."""

    __slots__ = (
        "_alike_bytes",
        "_before",
        "_largest",
        "_recent",
        "_recent_largest",
        "_since_ms",
        "typical_bytes",
    )

    def __init__(self) -> None:
        # Made when it is needed: most connections do not fetch, and an empty one has 0.7 kB.
        self._recent: deque[int] | None = None
        self.typical_bytes = 0.0
        """of the batch that a byte lies in, on average: Σ size² ÷ Σ size; 0: none was seen"""
        self._alike_bytes = 0  # the largest of the recent ones if they are alike, else 0
        # The largest of this span of time, and of the one before; so a few small ones do not hide it.
        self._largest = self._before = 0
        self._recent_largest = 0
        self._since_ms = 0.0

    @property
    def largest_bytes(self) -> int:
        """What the next batch may weigh, as far as is known."""
        return max(self._largest, self._before) or UNKNOWN_BYTES

    @property
    def recent_bytes(self) -> int:
        """The largest of those that were seen last."""
        return self._recent_largest or UNKNOWN_BYTES

    @property
    def turn_bytes(self) -> int:
        """What one turn may bring: the largest of those that were seen last; 0: none was."""
        return self._recent_largest

    def saw(self, sizes: Iterable[int], now_ms: float) -> None:
        """Batches of these bytes came."""
        recent = self._recent
        if recent is None:
            recent = self._recent = deque(maxlen=_RECENT)
        recent.extend(sizes)
        if not recent:
            return
        if now_ms - self._since_ms > _MEMORY_MS:
            self._since_ms, self._before, self._largest = now_ms, self._largest, 0
        largest = self._recent_largest = max(recent)
        self._largest = max(self._largest, largest)
        self.typical_bytes = sum(size * size for size in recent) / sum(recent)
        self._alike_bytes = largest if min(recent) >= largest * _ALIKE else 0

    def whole(self, share_bytes: float, most_bytes: float) -> float:
        """`max_bytes` for a fetch that may bring `share_bytes`; where small batches make it worth it, more,
        up to `most_bytes`."""
        typical = self.typical_bytes
        if not typical:
            return share_bytes
        enough = typical * _ENOUGH_BATCHES
        if share_bytes < enough:
            if self._alike_bytes:
                if share_bytes <= most_bytes:
                    share_bytes = min(share_bytes, most_bytes / 2)
                return max(share_bytes // self._alike_bytes, 1.0) * self._alike_bytes
            share_bytes = max(share_bytes, min(enough, most_bytes))
        return share_bytes if share_bytes >= enough else 1.0
