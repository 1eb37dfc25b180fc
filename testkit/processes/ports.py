"""Free loopback ports for servers that must know their port before they start.

A port is told long before its server listens on it (a broker's takes seconds), so that nobody listens on it
now is not enough: each process takes its ports from a block of its own, which it holds until it ends. What a
broker tells its clients (a proxy listens there, or none just now) is kept for as long as the broker is there.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

LOOPBACK = "127.0.0.1"
# Below Linux' ephemeral range (32768 …), or an outgoing connection could take the port before the server
# does.
PORT_RANGE: Final = range(20_000, 32_000)
BLOCK_SIZE: Final = 600
"""ports of one process: many more than it has servers at a time"""


def free_ports(count: int) -> list[int]:
    """Return `count` different loopback TCP ports that nobody listens on now, nor is told soon.

    Raises RuntimeError if the process' block has none.
    """
    return [free_port() for _ in range(count)]


def free_port() -> int:
    """Return one port (see free_ports)."""
    return free_port_range(1)


def free_port_range(count: int) -> int:
    """Return the first of `count` ports in a row (see free_ports)."""
    return _own_block().next_run(count)


def keep(ports: Iterable[int]) -> None:
    """Tell none of these again in this process, whoever listens there, until they are given back."""
    _own_block().kept.update(ports)


def give_back(ports: Iterable[int]) -> None:
    """End what `keep` began."""
    _own_block().kept.difference_update(ports)


class _Block:
    """The ports of one process. One that was told is not told again soon: not while half of them were not."""

    def __init__(self) -> None:
        self.ports = _claimed()
        self.kept: set[int] = set()
        self._told: dict[int, None] = {}
        """the longest ago first"""

    def next_run(self, count: int) -> int:
        starts = self.ports[: len(self.ports) - count + 1]
        while True:
            # In no order: who adds one to a port must not find the next one that is told.
            for first in random.sample(starts, len(starts)):
                run = range(first, first + count)
                fresh = self._told.keys().isdisjoint(run) and self.kept.isdisjoint(run)
                if fresh and all(map(_is_free, run)):
                    self._told.update(dict.fromkeys(run))
                    return first
            if not self._told:
                raise RuntimeError(f"no {count} free ports in a row on {LOOPBACK} in {self.ports}")
            for port in list(self._told)[: (len(self._told) + 1) // 2]:
                del self._told[port]


_blocks: Final[dict[int, _Block]] = {}
"""by process id"""


def _own_block() -> _Block:
    pid = os.getpid()  # a fork would else give what its parent gives
    if pid not in _blocks:
        _blocks[pid] = _Block()
    return _blocks[pid]


def _claimed() -> range:
    """A block that no other process holds; where all are held, the whole range.

    The lock's file stays open until the process ends.
    """
    folder = Path(tempfile.gettempdir()) / "sluice-test-ports"
    folder.mkdir(exist_ok=True)
    starts = list(range(PORT_RANGE.start, PORT_RANGE.stop, BLOCK_SIZE))
    random.shuffle(starts)
    for start in starts:
        try:
            lock = os.open(folder / str(start), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:  # another user's
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            continue
        return range(start, start + BLOCK_SIZE)
    return PORT_RANGE


def _is_free(port: int) -> bool:
    with socket.socket() as candidate:
        try:
            candidate.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


@contextmanager
def full_port() -> Iterator[socket.socket]:
    """A port whose queue of connections is full: who dials it gets no answer until somebody is taken."""
    with socket.create_server((LOOPBACK, 0), backlog=0) as server, queue_filled(server.getsockname()[1]):
        yield server


@contextmanager
def queue_filled(port: int) -> Iterator[None]:
    """The queue of a port with a backlog of 0 is full, until who listens there accepts."""
    with ExitStack() as fillers:
        for _ in range(3):
            filler = fillers.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex((LOOPBACK, port))
        yield
