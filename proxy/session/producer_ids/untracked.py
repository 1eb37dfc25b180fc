"""First batches refused while a user's table of gates was full, whose next ones are to wait. Pure.

What a broker cannot put right is a later batch that it takes for the first, and that is only where the first,
of sequence 0, was refused. Of these a hash of (producer id, topic, partition, epoch) is remembered until it
has come again, or for as long as a gate: a tenth of what a gate takes. Only what was refused itself is
waited for (a Bloom filter in this place stopped live producers once many were in it); what finds no room
here either is not, as where nothing is known of a refusal. Source: wire-semantics 3.5, 3.6.
"""

from __future__ import annotations

from typing import Final

MAX_BATCHES: Final = 50_000
"""of a user: some 7 MB"""


class Untracked:
    """The refused first batches of one user that have no gate."""

    __slots__ = ("_expiry_ms", "_max_batches", "_refused_ms")

    def __init__(self, expiry_ms: float, max_batches: int = MAX_BATCHES) -> None:
        self._expiry_ms = expiry_ms
        self._max_batches = max_batches
        # By their hashes, in which topics' names are: those are hashed under a secret of this process.
        self._refused_ms: dict[int, float] = {}  # in the order of these times

    def add(self, key: object, epoch: int, now_ms: float) -> None:
        """Remember a first batch that is refused."""
        hashed = hash((key, epoch))
        self._refused_ms.pop(hashed, None)
        if len(self._refused_ms) < self._max_batches:
            self._refused_ms[hashed] = now_ms

    def has(self, key: object, epoch: int) -> bool:
        """It was refused and has not come again."""
        return hash((key, epoch)) in self._refused_ms

    def lift(self, key: object, epoch: int) -> None:
        """It goes to the broker: what comes behind it need not wait."""
        self._refused_ms.pop(hash((key, epoch)), None)

    def expire(self, now_ms: float) -> bool:
        """Forget what is over; True if nothing is left."""
        refused_ms = self._refused_ms
        while refused_ms:
            oldest = next(iter(refused_ms))
            if refused_ms[oldest] + self._expiry_ms > now_ms:
                return False
            del refused_ms[oldest]
        return True
