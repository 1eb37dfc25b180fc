"""Connections that are not served and wait to be closed: who connects too fast (connection/rates.py)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from math import ceil
from typing import Final

from sluice.proxy.connection.spare_files import SpareFiles

MAX_HELD_BACK: Final = 1_000
"""of a listener, and no more than there are file descriptors to spare; beyond it they are closed at once"""


class HeldBack:
    """The connections of one listener that wait to be closed."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        let_go: Callable[[socket.socket], None],
        spare: SpareFiles,
        max_held: int = MAX_HELD_BACK,
    ) -> None:
        """`let_go`: closes a client's socket in order."""
        self._loop = loop
        self._let_go = let_go
        self._spare = spare
        self._max_held = max_held
        self._waiting: dict[socket.socket, asyncio.TimerHandle] = {}

    def hold(self, client: socket.socket, for_ms: float) -> None:
        """Read nothing of it, and close it then."""
        if len(self._waiting) >= self._max_held or not self._spare.has_room:
            self._let_go(client)
        else:
            # uvloop counts in whole milliseconds from the begin of one, so it may call up to one too early,
            # and who is closed early comes again early.
            delay_s = (ceil(for_ms) + 1.0) / 1000.0
            self._waiting[client] = self._loop.call_later(delay_s, self._end, client)
            self._spare.lend(client, partial(self._end, client))

    def stop(self) -> None:
        """Close all of them now."""
        for client in tuple(self._waiting):
            self._end(client)

    def __len__(self) -> int:
        return len(self._waiting)

    def _end(self, client: socket.socket) -> None:
        self._waiting.pop(client).cancel()
        self._spare.returned(client)
        self._let_go(client)
