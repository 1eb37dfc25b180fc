"""A TCP relay of the same shape as a proxy, without a thought: non-blocking sockets, one receive buffer.

In the evenness benchmark and the demo it stands before the broker and before Sluice alike and tells a meter
which bytes it has passed on, when and on which connection. In the cost benchmark it is what is left when the
proxy's work is taken away.

    python -m bench.lib.relay LISTEN_PORT UPSTREAM_PORT
"""

import asyncio
import socket
import sys
import time
from collections.abc import Callable
from enum import Enum

import uvloop

from testkit.processes.ports import LOOPBACK

BUFFER = bytearray(1 << 20)
VIEW = memoryview(BUFFER)


class Direction(Enum):
    """UP: to the broker."""

    UP = "up"
    DOWN = "down"


# (connection number, direction, monotonic time in s, bytes passed on: valid until the meter returns)
Meter = Callable[[int, Direction, float, memoryview], None]


class Relay:
    """Relays every connection of one loopback port to another, in the running event loop."""

    def __init__(self, listen_port: int, upstream_port: int, meter: Meter | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._upstream_port = upstream_port
        self._meter = meter
        self._accepted = 0
        self._open: set[_Connection] = set()
        self._listener = socket.create_server((LOOPBACK, listen_port), backlog=4096)
        self._listener.setblocking(False)
        self._loop.add_reader(self._listener.fileno(), self._accept)

    def close(self) -> None:
        self._loop.remove_reader(self._listener.fileno())
        self._listener.close()
        for connection in list(self._open):
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except BlockingIOError:
                return
            try:
                upstream = socket.create_connection((LOOPBACK, self._upstream_port), timeout=5)
            except OSError:
                client.close()
                continue
            self._accepted += 1
            self._open.add(_Connection(self._loop, client, upstream, self._meter, self._accepted, self._open))


class _Connection:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        client: socket.socket,
        upstream: socket.socket,
        meter: Meter | None,
        number: int,
        siblings: "set[_Connection]",
    ) -> None:
        self._loop = loop
        self._siblings = siblings
        self._sockets = (client, upstream)
        for sock in self._sockets:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._pipes_open = 2
        _Pipe(loop, client, upstream, self, meter, number, Direction.UP)
        _Pipe(loop, upstream, client, self, meter, number, Direction.DOWN)

    def end_of_pipe(self) -> None:
        self._pipes_open -= 1
        if not self._pipes_open:
            self.close()

    def close(self) -> None:
        for sock in self._sockets:
            if sock.fileno() >= 0:
                self._loop.remove_reader(sock.fileno())
                self._loop.remove_writer(sock.fileno())
                sock.close()
        self._siblings.discard(self)


class _Pipe:
    """One direction. Reads nothing while something is left unsent, so back-pressure passes through."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        source: socket.socket,
        sink: socket.socket,
        connection: _Connection,
        meter: Meter | None,
        number: int,
        direction: Direction,
    ) -> None:
        self._loop = loop
        self._source = source
        self._sink = sink
        self._connection = connection
        self._meter = meter
        self._number = number
        self._direction = direction
        self._unsent = memoryview(b"")
        loop.add_reader(source.fileno(), self._on_readable)

    def _on_readable(self) -> None:
        try:
            got = self._source.recv_into(BUFFER)
        except BlockingIOError:
            return
        except OSError:
            self._connection.close()
            return
        if not got:
            self._loop.remove_reader(self._source.fileno())
            try:
                self._sink.shutdown(socket.SHUT_WR)
            except OSError:
                self._connection.close()
                return
            self._connection.end_of_pipe()
            return
        sent = self._send(VIEW[:got])
        if 0 <= sent < got:
            self._unsent = memoryview(bytes(VIEW[sent:got]))
            self._loop.remove_reader(self._source.fileno())
            self._loop.add_writer(self._sink.fileno(), self._on_writable)

    def _on_writable(self) -> None:
        sent = self._send(self._unsent)
        if sent < 0:
            return
        self._unsent = self._unsent[sent:]
        if not self._unsent:
            self._loop.remove_writer(self._sink.fileno())
            self._loop.add_reader(self._source.fileno(), self._on_readable)

    def _send(self, data: memoryview) -> int:
        """Bytes taken, or −1 when the connection is gone."""
        try:
            sent = self._sink.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            self._connection.close()
            return -1
        if self._meter is not None:
            self._meter(self._number, self._direction, time.monotonic(), data[:sent])
        return sent


async def _main(listen_port: int, upstream_port: int) -> None:
    Relay(listen_port, upstream_port)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_main(int(sys.argv[1]), int(sys.argv[2])))
