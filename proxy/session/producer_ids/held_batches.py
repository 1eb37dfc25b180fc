"""Batches that a user's connections hold: a later one of another connection must not overtake them. Pure.

A producer whose partition's leader moves while its first batch is held sends the next ones to the new leader,
on another connection; a broker that does not know its id would take any of them for the first, and refuse the
held one for good. So what is held blocks what is above it as a gate does, until it goes, is refused (and is a
gate from then on), or is dropped. It takes no more room than the requests themselves that are held.
Source: wire-semantics 3.5.
"""

from __future__ import annotations

from sluice.proxy.session.producer_ids.batches import Batches, GateKey, is_above


class HeldBatches:
    """What the connections of one user hold now."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        # Two connections may hold the same: the client left one of them, and that has not shown yet.
        self._places: dict[GateKey, list[tuple[int, int]]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def add(self, batches: Batches) -> None:
        """A connection holds them; each with (epoch, base sequence)."""
        for key, place in batches.items():
            self._places.setdefault(key, []).append(place)

    def remove(self, batches: Batches) -> None:
        """It holds them no more."""
        for key, place in batches.items():
            held = self._places.get(key)
            if held is not None and place in held:
                held.remove(place)
                if not held:
                    del self._places[key]

    def before(self, key: GateKey, epoch: int, sequence: int) -> int | None:
        """The lowest sequence held that this batch would overtake; None: it overtakes nothing."""
        lowest: int | None = None
        for other, first in self._places.get(key, ()):
            if other == epoch and is_above(sequence, first):
                lowest = first if lowest is None or is_above(lowest, first) else lowest
        return lowest

    def has_any(self, batches: Batches) -> bool:
        """Something is held of the producer and partition of one of these."""
        return bool(self._places) and not self._places.keys().isdisjoint(batches)

    def forwarded(self, key: GateKey, epoch: int, sequence: int) -> None:
        """Another connection has brought it: what is held of it or of before it is for nobody any more."""
        held = self._places.get(key)
        if held is None:
            return
        left = [
            (other, first)
            for other, first in held
            if other > epoch or (other == epoch and is_above(first, sequence))
        ]
        if left:
            self._places[key] = left
        else:
            del self._places[key]


class Holding:
    """What one connection holds of them, until `end`."""

    __slots__ = ("_batches", "_held")

    def __init__(self, held: HeldBatches, batches: Batches) -> None:
        self._held = held
        self._batches = batches
        held.add(batches)

    def end(self) -> None:
        """It goes, or never will."""
        self._held.remove(self._batches)
