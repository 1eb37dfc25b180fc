"""Readiness → callbacks, on bare epoll: the one loop in which load generator and fake broker run together.

Lighter than any event loop with tasks, so that on two cores the proxy under test is not the one that waits.
"""

import contextlib
import select
import socket
import time
from collections.abc import Callable

from testkit.processes.process import BenchError

# One receive buffer for every connection of this process: single-threaded, used up before the next callback.
BUFFER = bytearray(1 << 20)
VIEW = memoryview(BUFFER)


class Poller:
    """Level-triggered: a callback that leaves bytes unread is called again."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._readable: dict[int, Callable[[], None]] = {}
        self._writable: dict[int, Callable[[], None]] = {}

    def add(self, fd: int, readable: Callable[[], None], writable: Callable[[], None] | None = None) -> None:
        self._readable[fd] = readable
        if writable is not None:
            self._writable[fd] = writable
        self._epoll.register(fd, select.EPOLLIN)

    def want_write(self, fd: int, wanted: bool) -> None:
        self._epoll.modify(fd, select.EPOLLIN | select.EPOLLOUT if wanted else select.EPOLLIN)

    def remove(self, fd: int) -> None:
        if self._readable.pop(fd, None) is not None:
            self._writable.pop(fd, None)
            self._epoll.unregister(fd)

    def step(self, timeout_s: float) -> None:
        """Waits at most `timeout_s` for something ready and serves all of it."""
        readable = self._readable
        for fd, event in self._epoll.poll(timeout_s, 4096):
            if event & select.EPOLLOUT and fd in readable:
                self._writable[fd]()
            if event & ~select.EPOLLOUT and fd in readable:  # an earlier callback may have removed it
                readable[fd]()

    def run_until(self, done: Callable[[], bool], what: str, within_s: float) -> None:
        """Serves until `done()`. Raises BenchError naming `what` when that takes longer."""
        deadline = time.monotonic() + within_s
        while not done():
            if time.monotonic() > deadline:
                raise BenchError(f"{what}: not done within {within_s:.0f} s")
            self.step(0.1)

    def close(self) -> None:
        self._epoll.close()


class Outbox:
    """Sends at once what the socket takes and the rest when it can take more."""

    def __init__(self, poller: Poller, sock: socket.socket) -> None:
        self._poller = poller
        self._sock = sock
        self._waiting: list[memoryview] = []

    def send(self, *parts: memoryview) -> None:
        """The parts must not change until they are gone."""
        if self._waiting:
            self._waiting += parts
            return
        self._waiting += self._unsent(parts)
        if self._waiting:
            self._poller.want_write(self._sock.fileno(), True)

    def flush(self) -> None:
        self._waiting = self._unsent(tuple(self._waiting))
        if not self._waiting:
            self._poller.want_write(self._sock.fileno(), False)

    def _unsent(self, parts: tuple[memoryview, ...]) -> list[memoryview]:
        sent = 0
        with contextlib.suppress(BlockingIOError):
            sent = self._sock.sendmsg(parts)
        rest = []
        for part in parts:
            if sent < len(part):
                rest.append(part[sent:] if sent else part)
            sent = max(0, sent - len(part))
        return rest
