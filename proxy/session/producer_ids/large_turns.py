"""Turns of one user's Produces of many batches, so that they leave most of the event loop to others. Pure.

To look at the producer ids of a batch takes 5 µs, to hold it and refuse it as much again: a request of 1 MiB
has room for 14,000. So one with more than FREE_BATCHES is looked at when those of its user before it have
been paid with a multiple of their time, whatever connections they came on. Nothing of it is judged before:
its connection is muted, and it is given again. (It is by user, for a brake by connection is none for who
opens a hundred of them, or another for each request.)
"""

from __future__ import annotations

from math import inf
from typing import Final

from sluice.proxy.session.read_gate import EARLY_MS

FREE_BATCHES: Final = 100
"""of a request; what so many take is no more than the bytes of a request like others"""
_JUDGED_MS: Final = 0.015
"""for each further batch that is looked at, three times what that takes"""
_KEPT_MS: Final = 0.03
"""for each that is held, and for each that is refused, besides"""
_FREE_MS: Final = 50.0
"""not waited: what a producer of some hundred partitions has on its way at a time comes to less"""


class LargeTurns:
    """When one user's next large Produce may be looked at."""

    __slots__ = ("_paid_ms",)

    def __init__(self) -> None:
        self._paid_ms = 0.0

    def take(self, batches: int, now_ms: float) -> float:
        """A request has come: when is its turn? At the latest by now it goes at once."""
        turn_ms = max(self._paid_ms, now_ms)
        self._paid_ms = turn_ms + _price_ms(batches, _JUDGED_MS + _KEPT_MS)
        return turn_ms if turn_ms > now_ms + _FREE_MS else now_ms

    def give_back(self, batches: int) -> None:
        """It will not be looked at: it was dropped before its turn."""
        self._paid_ms -= _price_ms(batches, _JUDGED_MS + _KEPT_MS)

    def passed(self, batches: int) -> None:
        """It was looked at, and is not held: until then it counted as if it would be, or all who wait would
        have their turns before the first of them is paid."""
        self._paid_ms -= _price_ms(batches, _KEPT_MS)

    def worked(self, batches: int, now_ms: float) -> None:
        """A request was refused, which cost once more."""
        if batches > FREE_BATCHES:
            self._paid_ms = max(self._paid_ms, now_ms) + _price_ms(batches, _KEPT_MS)


def _price_ms(batches: int, each_ms: float) -> float:
    return max(batches - FREE_BATCHES, 0) * each_ms


class LargeTurn:
    """The turn of one connection's request, until it is looked at or dropped."""

    __slots__ = ("_batches", "_since_ms", "_turns", "at_ms")

    def __init__(self) -> None:
        self._turns: LargeTurns | None = None  # of a request that waits
        self._batches = 0
        self._since_ms = 0.0
        self.at_ms = -inf
        """when the request is to be given again; over: nothing waits"""

    def waits(self, turns: LargeTurns, batches: int, now_ms: float) -> bool:
        """The request at hand, of more than FREE_BATCHES, has to wait until `at_ms`. `turns`: its user's."""
        if self._turns is None:
            at_ms = turns.take(batches, now_ms)
            if at_ms <= now_ms:
                return False
            self._turns, self._batches, self._since_ms, self.at_ms = turns, batches, now_ms, at_ms
        return now_ms < self.at_ms - EARLY_MS

    def took_ms(self, now_ms: float) -> float:
        """It is looked at now. Returns how long it has waited for that."""
        if self._turns is None:
            return 0.0
        self._turns, self.at_ms = None, -inf
        return now_ms - self._since_ms

    def drop(self) -> None:
        """It will not be."""
        if self._turns is not None:
            self._turns.give_back(self._batches)
            self._turns, self.at_ms = None, -inf
