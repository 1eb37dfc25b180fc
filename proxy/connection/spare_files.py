"""File descriptors for sockets whose connection is over: what connections leave, until they need it. Pure.

Who is held back (delayed_close.py) and who lingers (lingering_close.py) counts as no connection, and hostile
clients make hundreds of either a second. With a low limit of open files these took the descriptors of clients
within max_connections, whose accepts and dials then failed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from math import inf


class SpareFiles:
    """`most`: descriptors that connections and such sockets may have together; may be set at any time."""

    __slots__ = ("_lent", "_reserved", "most")

    def __init__(self) -> None:
        self.most = inf
        self._reserved = 0
        self._lent: dict[Hashable, Callable[[], None]] = {}

    @property
    def has_room(self) -> bool:
        """One may be lent."""
        return self._reserved + len(self._lent) < self.most

    def reserve(self, files: int) -> None:
        """A connection has come that may have so many: the oldest of what is lent is ended for it."""
        self._reserved += files
        while self._lent and self._reserved + len(self._lent) > self.most:
            self._lent.pop(next(iter(self._lent)))()

    def free(self, files: int) -> None:
        """The connection that had reserved them has ended."""
        self._reserved -= files

    def lend(self, key: Hashable, end: Callable[[], None]) -> None:
        """One, where there `has_room`; `end` closes it early."""
        self._lent[key] = end

    def returned(self, key: Hashable) -> None:
        """It is closed; harmless when it was told already."""
        self._lent.pop(key, None)
