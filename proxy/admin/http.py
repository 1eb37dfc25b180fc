"""HTTP of the admin port: uvicorn's own, with an end for connections that say nothing, or read nothing.

uvicorn waits for the first request of a connection without limit, and for a client to take its answer, and
counts the connection against its cap: 64 that said nothing, or took nothing, kept everybody else out.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from email.utils import formatdate
from time import time
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_WAITING: Final = 32
MOST_WAITING_OF_ONE: Final = 16
REQUEST_S: Final = 5.0
"""from its connection, or its first byte, to the end of a request"""
TAKES_S: Final = 10.0
"""in which TAKES_BYTES of the answers that wait are to be taken; what AdminSocket has for all of one"""
TAKES_BYTES: Final = 16 * 1024
"""A Prometheus that is slow takes more. Even at a loopback's segments of 64 KiB, in which the kernel tells
it, 7 kB/s are enough for a page that the kernel's buffers hold. Of a longer one it may tell nothing so long,
where the client's buffer has grown to megabytes and it reads 20 kB/s."""
_BYTES_ACKED_AT: Final = 120
"""in the struct tcp_info of Linux 4.1 and later"""


class Waiting:
    """The connections of one server that have asked for nothing yet, or half, the oldest first."""

    def __init__(self) -> None:
        self._all: dict[AdminHttp, None] = {}

    def add(self, connection: AdminHttp) -> None:
        """The oldest makes way, of the same address first."""
        if connection in self._all:
            return
        same = [each for each in self._all if each.address == connection.address]
        if len(same) >= MOST_WAITING_OF_ONE:
            same[0].give_up()
        elif len(self._all) >= MOST_WAITING:
            next(iter(self._all)).give_up()
        self._all[connection] = None

    def remove(self, connection: AdminHttp) -> None:
        """It has asked, or is gone."""
        self._all.pop(connection, None)


class AdminHttp(H11Protocol):
    """One connection to the admin port, ended if it asks for nothing in time, or does not take its answer."""

    def __init__(self, waiting: Waiting, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._waiting = waiting
        self._deadline: asyncio.TimerHandle | None = None
        self._takes: asyncio.TimerHandle | None = None
        self._taken_bytes: int | None = None  # when it was last looked at; None: nothing waited
        self.address = ""
        """the client's"""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """As uvicorn's; from now on a request is waited for, so long and no longer."""
        super().connection_made(transport)
        self.address = "" if self.client is None else self.client[0]
        self._takes = self.loop.call_later(TAKES_S, self._look_at_taken)
        self._look()

    def data_received(self, data: bytes) -> None:
        """Take in bytes as uvicorn does, with the date of this moment for the answer."""
        self.server_state.default_headers = [(b"date", formatdate(time(), usegmt=True).encode())]
        super().data_received(data)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting for a request, then do as uvicorn does."""
        self._stop_waiting()
        if self._takes is not None:
            self._takes.cancel()
        super().connection_lost(exc)

    def give_up(self) -> None:
        """No request came in time, or others need the place."""
        self._stop_waiting()
        if not self.transport.is_closing():
            self.transport.abort()

    def _look_at_taken(self) -> None:
        """Does it take what waits for it? Also when it is closed: uvicorn's close waits until it has."""
        taken_bytes = self._acked_bytes() if self.transport.get_write_buffer_size() else None
        before_bytes, self._taken_bytes = self._taken_bytes, taken_bytes
        if taken_bytes is None or before_bytes is None or taken_bytes - before_bytes >= TAKES_BYTES:
            self._takes = self.loop.call_later(TAKES_S, self._look_at_taken)
        else:
            self.transport.abort()

    def _acked_bytes(self) -> int:
        """That have arrived at the client, since its begin. What the kernel has for it moves in lumps of
        megabytes here, so that a slow client would seem to stand still."""
        sock: socket.socket = self.transport.get_extra_info("socket")
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_ACKED_AT + 8)
        if len(info) < _BYTES_ACKED_AT + 8:
            return -self.transport.get_write_buffer_size()
        acked_bytes: int = struct.unpack_from("=Q", info, _BYTES_ACKED_AT)[0]
        return acked_bytes

    def _look(self) -> None:
        """Is a request waited for?"""
        if self.transport.is_closing() or self.conn.their_state not in {h11.IDLE, h11.SEND_BODY}:
            self._stop_waiting()
        elif self._deadline is None:
            self._waiting.add(self)
            self._deadline = self.loop.call_later(REQUEST_S, self.give_up)

    def _stop_waiting(self) -> None:
        self._waiting.remove(self)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
