"""Which sockets of the connections are ready: an epoll of their own, which the loop watches as one file.

A reader of libuv costs five system calls from its begin to its end, two of them only to ask whether epoll
takes the file, and some objects. A connection has two sockets, and one that comes, asks once and goes paid
more for that than for its bytes. Here a reader is an entry of a dict and one system call; its end is none
where the socket is closed. But a round in which sockets are ready has one call more for it, so those that are
busy are moved to the loop's own readers (docs/decisions.md).
"""

from __future__ import annotations

import select
from asyncio import AbstractEventLoop
from collections.abc import Callable
from contextlib import suppress
from typing import Final

_AT_ONCE: Final = 256
"""sockets of one round; what is ready beyond them is told in the next"""
_IN: Final = select.EPOLLIN
_OUT: Final = select.EPOLLOUT
_BOTH: Final = _IN | _OUT
_MOVES_EACH: Final = 32
"""The socket that is ready as the 32nd is taken for busy: the busier, the sooner it is the one"""
_READABLE: Final = _IN | select.EPOLLHUP | select.EPOLLERR
_WRITABLE: Final = _OUT | select.EPOLLHUP | select.EPOLLERR


class Poller:
    """The readers and writers of one event loop's connections, by file descriptor. Level-triggered, as the
    loop's own: what is left unread is told again."""

    __slots__ = ("_busy", "_epoll", "_loop", "_readers", "_to_move", "_writers")

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._readers: dict[int, Callable[[], None]] = {}
        self._writers: dict[int, Callable[[], None]] = {}
        self._busy: set[int] = set()
        """whose readers are the loop's own, until they end"""
        self._to_move = _MOVES_EACH
        self._epoll = select.epoll()
        loop.add_reader(self._epoll.fileno(), self._ready)

    def add_reader(self, fd: int, call: Callable[[], None]) -> None:
        """Have it called, in the place of another, while there is something to read, an end or an error."""
        if fd in self._busy:
            self._loop.add_reader(fd, call)
            return
        is_new = fd not in self._readers
        self._readers[fd] = call
        if is_new:
            if fd in self._writers:
                self._epoll.modify(fd, _BOTH)
            else:
                self._epoll.register(fd, _IN)

    def add_writer(self, fd: int, call: Callable[[], None]) -> None:
        """Have it called, in the place of another, while something can be written, or nothing any more."""
        is_new = fd not in self._writers
        self._writers[fd] = call
        if is_new:
            if fd in self._readers:
                self._epoll.modify(fd, _BOTH)
            else:
                self._epoll.register(fd, _OUT)

    def remove_reader(self, fd: int) -> None:
        """Harmless where there is none."""
        if self._readers.pop(fd, None) is not None:
            self._end(fd, _OUT if fd in self._writers else 0)
        elif fd in self._busy:
            self._busy.discard(fd)
            self._loop.remove_reader(fd)

    def remove_writer(self, fd: int) -> None:
        """Harmless where there is none."""
        if self._writers.pop(fd, None) is not None:
            self._end(fd, _IN if fd in self._readers else 0)

    def forget(self, fd: int) -> None:
        """It is closed next, which ends its watch (for no process is forked that has it, too)."""
        self._readers.pop(fd, None)
        self._writers.pop(fd, None)
        if fd in self._busy:
            self._busy.discard(fd)
            self._loop.remove_reader(fd)

    def close(self) -> None:
        """Call nobody any more; harmless when closed already."""
        if not self._epoll.closed:
            self._readers.clear()
            self._writers.clear()
            for fd in self._busy:
                self._loop.remove_reader(fd)
            self._busy.clear()
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()

    def _end(self, fd: int, events: int) -> None:
        """Without events it is not watched at all: epoll would tell of an error again and again."""
        if events:
            self._epoll.modify(fd, events)
        else:
            self._epoll.unregister(fd)

    def _move(self, fd: int, call: Callable[[], None]) -> None:
        """It has something to read again and again."""
        del self._readers[fd]
        self._end(fd, _OUT if fd in self._writers else 0)
        self._busy.add(fd)
        self._loop.add_reader(fd, call)

    def _ready(self) -> None:
        readers, writers = self._readers, self._writers
        for fd, events in self._epoll.poll(0, _AT_ONCE):
            # Looked for one by one: a call may end the watch of what comes behind it.
            try:
                if events & _READABLE and (call := readers.get(fd)) is not None:
                    call()
                if events & _WRITABLE and (call := writers.get(fd)) is not None:
                    call()
            except Exception as error:
                self._loop.call_exception_handler({"message": "of a connection's socket", "exception": error})
            self._to_move -= 1
            if self._to_move <= 0:
                self._to_move = _MOVES_EACH
                if (call := readers.get(fd)) is not None:
                    self._move(fd, call)
            if events & ~_BOTH and fd not in readers and fd not in writers:
                with suppress(OSError):  # mostly: it is closed
                    self._epoll.unregister(fd)
