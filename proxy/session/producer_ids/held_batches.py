"""Batches that a user's connections hold: a later one of another connection must not overtake them. Pure.

A producer whose partition's leader moves while its first batch is held sends the next ones to the new leader,
on another connection; a broker that does not know its id would take any of them for the first, and refuse the
held one for good. So what is held blocks what is above it as a gate does, until it goes, is refused (and is a
gate from then on), or is dropped. What it takes counts among the bytes that the connection keeps
(HELD_BATCH_BYTES). However many hold the same, a look takes the same time.
Source: wire-semantics 3.5.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

from sluice.proxy.session.producer_ids.batches import Batches, GateKey, centred, is_above

HELD_BATCH_BYTES: Final = 500
"""of Python's objects for one batch that waits, at most: 170 to 320, and 160 more where others hold the
same"""
_FEW: Final = 8
"""places of one key that are walked; of more the lowest is kept at hand"""
_DEAD_MAX: Final = 16


class HeldBatches:
    """What the connections of one user hold now."""

    __slots__ = ("_holders", "_number")

    def __init__(self) -> None:
        # Two connections may hold the same: the client left one of them, and that has not shown yet.
        self._holders: dict[GateKey, Holding | _Crowd] = {}
        self._number = 0

    def __len__(self) -> int:
        return len(self._holders)

    def add(self, holding: Holding) -> int:
        """A connection holds them, each with (epoch, base sequence). Returns its number here."""
        self._number += 1
        holders = self._holders
        for key, place in holding.batches.items():
            holder = holders.setdefault(key, holding)
            if holder is holding:
                continue
            if isinstance(holder, Holding):
                crowd = holders[key] = _Crowd()
                crowd.add(holder.number, holder.batches[key])
                holder = crowd
            holder.add(self._number, place)
        return self._number

    def remove(self, holding: Holding) -> None:
        """It holds them no more."""
        holders = self._holders
        for key in holding.batches:
            holder = holders.get(key)
            if holder is holding:
                del holders[key]
            elif isinstance(holder, _Crowd):
                holder.end(holding.number)
                if not holder.places:
                    del holders[key]

    def before(self, key: GateKey, epoch: int, sequence: int) -> int | None:
        """The lowest sequence held that this batch would overtake; None: it overtakes nothing."""
        holder = self._holders.get(key)
        if holder is None:
            return None
        if isinstance(holder, _Crowd):
            lowest = holder.lowest(epoch)
        else:
            of, first = holder.batches[key]
            lowest = first if of == epoch else None
        return lowest if lowest is not None and is_above(sequence, lowest) else None

    def has_any(self, batches: Batches) -> bool:
        """Something is held of the producer and partition of one of these."""
        return bool(self._holders) and not self._holders.keys().isdisjoint(batches)

    def forwarded(self, key: GateKey, epoch: int, sequence: int) -> None:
        """Another connection has brought it: what is held of it or of before it is for nobody any more."""
        holder = self._holders.get(key)
        if holder is None:
            return
        if isinstance(holder, _Crowd):
            holder.forwarded(epoch, sequence)
            is_over = not holder.places
        else:
            of, first = holder.batches[key]
            is_over = of < epoch or (of == epoch and not is_above(first, sequence))
        if is_over:
            del self._holders[key]


class Holding:
    """What one connection holds of them, until `end`."""

    __slots__ = ("_held", "batches", "number")

    def __init__(self, held: HeldBatches, batches: Batches) -> None:
        self._held = held
        self.batches = batches
        self.number = 0
        """among all of its user"""
        self.number = held.add(self)

    def end(self) -> None:
        """It goes, or never will."""
        self._held.remove(self)


class _Crowd:
    """A producer and partition that several connections hold: hardly ever more than two, but for a client
    that wants the walk through all of them."""

    __slots__ = ("_lowest", "places")

    def __init__(self) -> None:
        self.places: dict[int, tuple[int, int]] = {}
        """by the holder's number (epoch, base sequence)"""
        self._lowest: _Lowest | None = None  # once they are many

    def add(self, number: int, place: tuple[int, int]) -> None:
        self.places[number] = place
        if self._lowest is not None:
            self._lowest.add(number, place)
        elif len(self.places) > _FEW:
            self._lowest = _Lowest(self.places)

    def end(self, number: int) -> None:
        self.places.pop(number, None)

    def lowest(self, epoch: int) -> int | None:
        """The lowest sequence of this epoch."""
        if self._lowest is not None:
            found = self._lowest.of(epoch)
            return None if found is None else found[1]
        lowest: int | None = None
        for of, sequence in self.places.values():
            if of == epoch and (lowest is None or is_above(lowest, sequence)):
                lowest = sequence
        return lowest

    def forwarded(self, epoch: int, sequence: int) -> None:
        if self._lowest is not None:
            self._lowest.forwarded(epoch, sequence)
            return
        gone = [
            number
            for number, (of, first) in self.places.items()
            if of < epoch or (of == epoch and not is_above(first, sequence))
        ]
        for number in gone:
            del self.places[number]


class _Lowest:
    """The lowest of many places, by epoch. Those that are no longer held are dropped when they come up."""

    __slots__ = ("_entries", "_epochs", "_firsts", "_heaps", "_places")

    def __init__(self, places: dict[int, tuple[int, int]]) -> None:
        """`places`: the crowd's own, which is looked at, and from which `forwarded` takes."""
        self._places = places
        self._fill()

    def _fill(self) -> None:
        self._heaps: dict[int, list[tuple[int, int, int]]] = {}
        self._firsts: dict[int, int] = {}  # sequences go round, and are in order about one of their epoch
        self._epochs: list[int] = []
        self._entries = 0
        for number, place in self._places.items():
            self._push(number, place)

    def add(self, number: int, place: tuple[int, int]) -> None:
        if self._entries > 2 * len(self._places) + _DEAD_MAX:
            self._fill()  # this one is among them
        else:
            self._push(number, place)

    def _push(self, number: int, place: tuple[int, int]) -> None:
        epoch, sequence = place
        heap = self._heaps.get(epoch)
        if heap is None:
            heap = self._heaps[epoch] = []
            self._firsts[epoch] = sequence
            heappush(self._epochs, epoch)
        heappush(heap, (centred(sequence, self._firsts[epoch]), sequence, number))
        self._entries += 1

    def of(self, epoch: int) -> tuple[int, int, int] | None:
        """The lowest of an epoch: its order, its sequence, its holder's number."""
        heap = self._heaps.get(epoch)
        while heap:
            if heap[0][2] in self._places:
                return heap[0]
            heappop(heap)
            self._entries -= 1
        return None

    def forwarded(self, epoch: int, sequence: int) -> None:
        while self._epochs and self._epochs[0] < epoch:
            before = heappop(self._epochs)
            del self._firsts[before]
            for _, _, number in self._heaps.pop(before):
                self._places.pop(number, None)
                self._entries -= 1
        while (lowest := self.of(epoch)) is not None and not is_above(lowest[1], sequence):
            del self._places[lowest[2]]
