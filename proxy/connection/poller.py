"""Which sockets of the connections are ready: an epoll of their own, which the loop watches as one file; with
the pump, under uvloop, it is the other way about (proxy/pump/waiting.pxi).

Not the loop's own readers, for two reasons (docs/decisions.md). One that hears of bytes and a reset at once
is called for the bytes, and never again: the client of a broker that fails so would wait for ever. And it
costs five system calls from its begin to its end, two of them only to ask whether epoll takes the file, and
some objects; a connection has two sockets, and one that comes, asks once and goes paid more for that than for
its bytes. Here a reader is an entry of a dict and one system call, and its end none where the socket closes.
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
_READABLE: Final = _IN | select.EPOLLHUP | select.EPOLLERR
_WRITABLE: Final = _OUT | select.EPOLLHUP | select.EPOLLERR


class Poller:
    """The readers and writers of one event loop's connections, by file descriptor. Level-triggered, as the
    loop's own: what is left unread is told again."""

    __slots__ = ("_epoll", "_is_attached", "_loop", "_readers", "_writers", "fd")

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._readers: dict[int, Callable[[], None]] = {}
        self._writers: dict[int, Callable[[], None]] = {}
        self._epoll = select.epoll()
        self.fd = self._epoll.fileno()
        """the epoll's own file descriptor"""
        self._is_attached = False

    def add_reader(self, fd: int, call: Callable[[], None]) -> None:
        """Have it called, in the place of another, while there is something to read, an end or an error."""
        is_new = fd not in self._readers
        self._readers[fd] = call
        if is_new:
            if fd in self._writers:
                self._epoll.modify(fd, _BOTH)
            else:
                self._begin(fd, _IN)

    def add_writer(self, fd: int, call: Callable[[], None]) -> None:
        """Have it called, in the place of another, while something can be written, or nothing any more."""
        is_new = fd not in self._writers
        self._writers[fd] = call
        if is_new:
            if fd in self._readers:
                self._epoll.modify(fd, _BOTH)
            else:
                self._begin(fd, _OUT)

    def remove_reader(self, fd: int) -> None:
        """Harmless where there is none."""
        if self._readers.pop(fd, None) is not None:
            self._end(fd, _OUT if fd in self._writers else 0)

    def remove_writer(self, fd: int) -> None:
        """Harmless where there is none."""
        if self._writers.pop(fd, None) is not None:
            self._end(fd, _IN if fd in self._readers else 0)

    def forget(self, fd: int) -> None:
        """It is closed next, which ends its watch (for no process is forked that has it, too)."""
        self._readers.pop(fd, None)
        self._writers.pop(fd, None)

    def close(self) -> None:
        """Call nobody any more; harmless when closed already."""
        if not self._epoll.closed:
            self._readers.clear()
            self._writers.clear()
            if self._is_attached:
                self._detach()
            self._epoll.close()

    def told_of(self, error: Exception) -> None:
        """A call raised it."""
        self._loop.call_exception_handler({"message": "of a connection's socket", "exception": error})

    def unwatch(self, fd: int) -> None:
        """Nobody wants to hear of it any more; mostly it is closed, or the epoll is."""
        with suppress(OSError, ValueError):
            self._epoll.unregister(fd)

    def _begin(self, fd: int, events: int) -> None:
        self._epoll.register(fd, events)
        if not self._is_attached:
            self._is_attached = True
            self._attach()

    def _attach(self) -> None:
        """Hear of it from the loop when a socket is ready: from the first socket on."""
        self._loop.add_reader(self.fd, self._ready)

    def _detach(self) -> None:
        self._loop.remove_reader(self.fd)

    def _end(self, fd: int, events: int) -> None:
        """Without events it is not watched at all: epoll would tell of an error again and again."""
        if events:
            self._epoll.modify(fd, events)
        else:
            self._epoll.unregister(fd)

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
                self.told_of(error)
            if events & ~_BOTH and fd not in readers and fd not in writers:
                self.unwatch(fd)
