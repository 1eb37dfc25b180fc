"""First batches refused while a user's table of gates was full, whose next ones are to wait. Pure.

What a broker cannot put right is a later batch that it takes for the first, and that is only where the first,
of sequence 0, was refused. Of these the (producer id, topic, partition, epoch) is remembered in a Bloom
filter, so that what is refused needs no room, and all others' batches go on. A filter forgets nothing, so
what has come again since is remembered beside it.

Two filters take turns, the younger for what is refused now: each is kept for the expiry of a gate, so a batch
is remembered for one to two of these. Source: wire-semantics 3.5, 3.6.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Final

_BITS: Final = 1 << 20
"""128 KiB; with 100,000 refused batches one in 100 of the user's own others waits with them"""
_PROBES: Final = 4
_SHIFT: Final = 20
"""the hash's bits that choose the first place, next to those that choose the step"""
_MAX_LIFTED: Final = 20_000
"""of what has come again, the latest: 2 MB"""


class Untracked:
    """The refused first batches of one user that have no gate."""

    __slots__ = ("_expiry_ms", "_lifted", "_older", "_older_until_ms", "_since_ms", "_until_ms", "_younger")

    def __init__(self, expiry_ms: float, now_ms: float) -> None:
        self._expiry_ms = expiry_ms
        self._younger = bytearray(_BITS // 8)
        self._since_ms = now_ms
        self._until_ms = now_ms + expiry_ms
        self._older = b""
        self._older_until_ms = -inf
        self._lifted: dict[int, None] = {}  # by their hashes, in the order in which they came again

    def add(self, key: object, epoch: int, now_ms: float) -> None:
        """A first batch is refused, and has no gate."""
        if now_ms >= self._since_ms + self._expiry_ms:
            self._older, self._older_until_ms = bytes(self._younger), now_ms + self._expiry_ms
            self._younger = bytearray(_BITS // 8)
            self._since_ms = now_ms
        self._until_ms = now_ms + self._expiry_ms
        hashed = hash((key, epoch))
        self._lifted.pop(hashed, None)
        bits = self._younger
        for place in _places(hashed):
            bits[place >> 3] |= 1 << (place & 7)

    def has(self, key: object, epoch: int, now_ms: float) -> bool:
        """It was refused and has not come again, or, seldom, another one."""
        hashed = hash((key, epoch))
        if hashed in self._lifted:
            return False
        younger, older = self._younger, self._older
        if all(younger[place >> 3] >> (place & 7) & 1 for place in _places(hashed)):
            return True
        return now_ms < self._older_until_ms and all(
            older[place >> 3] >> (place & 7) & 1 for place in _places(hashed)
        )

    def lift(self, key: object, epoch: int, now_ms: float) -> None:
        """It goes to the broker: what comes behind it need not wait."""
        if not self.has(key, epoch, now_ms):
            return
        lifted = self._lifted
        if len(lifted) >= _MAX_LIFTED:
            del lifted[next(iter(lifted))]
        lifted[hash((key, epoch))] = None

    def is_over(self, now_ms: float) -> bool:
        """Nothing is remembered any more."""
        return now_ms >= max(self._until_ms, self._older_until_ms)


def _places(hashed: int) -> Iterator[int]:
    """Its bits in a filter."""
    step = hashed >> _SHIFT | 1
    return ((hashed + probe * step) & _BITS - 1 for probe in range(_PROBES))
