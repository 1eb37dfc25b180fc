"""Equal requests over many connections, and what the proxy in between used meanwhile.

Every connection keeps `depth` requests in flight, as fast as answers come; or so many a second go, on one
connection after the other. Answers are checked by correlation id, the first and the last of each connection
byte by byte (so a throttled answer cannot go unseen).
"""

import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from bench.lib.poller import BUFFER, VIEW, Outbox, Poller
from bench.lib.ticker import Ticker
from testkit.frames import load_frames as frames
from testkit.processes.process import BenchError, Usage

_INT32: Final = struct.Struct(">i")
_DRAIN_S: Final = 30.0
_AT_ONCE: Final = 100


@dataclass(frozen=True, slots=True)
class Work:
    """One benchmark case, seen from the client."""

    frame: bytes  # correlation id 0
    answer: bytes  # correlation id 0
    connections: int
    depth: int
    requests: int
    warmup_requests: int
    frames: Sequence[bytes] = ()  # in the place of `frame`: each connection's own, all of one length
    requests_per_s: float = 0.0  # 0: as fast as answers come


@dataclass(frozen=True, slots=True)
class Measured:
    """The proxy's use between the first and the last counted answer."""

    requests: int
    wall_s: float
    cpu_s: float
    wakeups: int


Connect = Callable[[int], socket.socket]
"""a loopback port → a connected socket that does not block"""


def connect_plain(port: int) -> socket.socket:
    """Without TLS."""
    sock = socket.create_connection(("127.0.0.1", port), timeout=20)
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


class Load:
    """All connections of one repeat."""

    def __init__(self, poller: Poller, port: int, work: Work, connect: Connect = connect_plain) -> None:
        self.poller = poller
        self.work = work
        self.done = 0
        self.stopping = False
        self._turn = 0
        self._ticker: Ticker | None = None
        self.connections: list[_Client] = []
        frames_of = work.frames or [work.frame] * work.connections
        for number, frame in enumerate(frames_of, 1):
            self.connections.append(_Client(self, connect(port), frame))
            if number % _AT_ONCE == 0 and number < len(frames_of):
                self._greet(self.connections[-_AT_ONCE:])

    def _greet(self, some: Sequence["_Client"]) -> None:
        """Requests of these are answered, before others connect: the broker's listen queue is shorter than
        some loads, and of many connections that ask nothing a proxy may end the oldest."""
        self.stopping = True
        for client in some:
            client.start()
        self._drain(some)
        self.stopping = False

    def _drain(self, some: Sequence["_Client"]) -> None:
        self.poller.run_until(
            lambda: all(c.in_flight == 0 for c in some), "answers still in flight", _DRAIN_S
        )

    def measure(self, snapshot: Callable[[], Usage], stall_s: float = 60.0) -> Measured:
        """Warms up, counts `work.requests` answers in full flow, then lets what is in flight come back.

        Raises BenchError when nothing comes back for `stall_s` or an answer is not the expected one.
        """
        if self.work.requests_per_s:
            self.stopping = True  # no answer brings the next request: the clock does
            self._ticker = Ticker(self.poller, self.work.requests_per_s, self._next)
        else:
            for client in self.connections:
                client.start()
        self._serve_until(self.work.warmup_requests, stall_s)
        first_done, first = self.done, snapshot()
        self._serve_until(first_done + self.work.requests, stall_s)
        last_done, last = self.done, snapshot()
        if self._ticker is not None:
            self._ticker.close()
        self.stopping = True
        self._drain(self.connections)
        return Measured(
            last_done - first_done,
            last.at_s - first.at_s,
            last.cpu_s - first.cpu_s,
            last.wakeups - first.wakeups,
        )

    def _next(self) -> None:
        """The connection whose turn it is sends a request, unless its last one has not been answered."""
        client = self.connections[self._turn % len(self.connections)]
        self._turn += 1
        if not client.in_flight:
            client.start()

    def _serve_until(self, answers: int, stall_s: float) -> None:
        step = self.poller.step
        seen, deadline = self.done, time.monotonic() + stall_s
        while self.done < answers:
            step(1.0)
            if self.done != seen:
                seen, deadline = self.done, time.monotonic() + stall_s
            elif time.monotonic() > deadline:
                raise BenchError(f"no answer for {stall_s:.0f} s, after {self.done} of {answers}")

    def close(self) -> None:
        if self._ticker is not None:
            self._ticker.close()
        for client in self.connections:
            client.close()


class _Client:
    def __init__(self, load: Load, sock: socket.socket, frame: bytes) -> None:
        self._load = load
        self._sock = sock
        self._outbox = Outbox(load.poller, self._sock)
        self._frame_bytes = len(frame)
        self._frames = bytearray(frame * load.work.depth)
        self._answer_bytes = len(load.work.answer)
        self._last_sent_id = 0
        self._last_seen_id = 0
        self._partial_bytes = 0  # of the answer that is coming in
        self.in_flight = 0
        load.poller.add(self._sock.fileno(), self._on_readable, self._outbox.flush)

    def start(self) -> None:
        self._send(self._load.work.depth)

    def close(self) -> None:
        self._load.poller.remove(self._sock.fileno())
        self._sock.close()

    def _send(self, count: int) -> None:
        at = frames.CORRELATION_AT
        for _ in range(count):
            self._last_sent_id += 1
            _INT32.pack_into(self._frames, at, self._last_sent_id)
            at += self._frame_bytes
        self.in_flight += count
        out = memoryview(self._frames)[: count * self._frame_bytes]
        if self._load.work.depth > 1:
            out = memoryview(bytes(out))  # the next answer reuses these frames, sent or not
        self._outbox.send(out)

    def _on_readable(self) -> None:
        try:
            got = self._sock.recv_into(BUFFER)
        except BlockingIOError:
            return
        if not got:
            raise BenchError(f"the proxy closed a connection after {self._last_seen_id} answers")
        partial = self._partial_bytes
        if not partial and got >= 8:
            self._check(got)
        answers, self._partial_bytes = divmod(partial + got, self._answer_bytes)
        if answers:
            self._last_seen_id += answers
            self.in_flight -= answers
            self._load.done += answers
            if not self._load.stopping:
                self._send(answers)

    def _check(self, got: int) -> None:
        """The answer that starts in the buffer: size and id always, the rest at both ends of the run."""
        answer = self._load.work.answer
        size, correlation_id = struct.unpack_from(">ii", BUFFER)
        if size + 4 != len(answer) or correlation_id != self._last_seen_id + 1:
            raise BenchError(f"answer {correlation_id} of {size} bytes, expected {self._last_seen_id + 1}")
        at_an_end = self._last_seen_id < self._load.work.depth or self._load.stopping
        if at_an_end and VIEW[8 : min(got, len(answer))] != answer[8 : min(got, len(answer))]:
            raise BenchError("an answer was changed on its way: is the quota of this benchmark too low?")


def open_idle(poller: Poller, port: int, count: int, request: bytes) -> Sequence[socket.socket]:
    """`count` connections that have each had one answer to `request` and then stay silent.

    In lots of 250, so that no listen queue overflows. Raises BenchError when an answer does not come.
    """
    idle: list[socket.socket] = []
    while len(idle) < count:
        waiting: set[socket.socket] = set()
        for _ in range(min(250, count - len(idle))):
            sock = socket.create_connection(("127.0.0.1", port), timeout=20)
            sock.setblocking(False)
            poller.add(sock.fileno(), _answered(poller, sock, waiting))
            sock.send(request)
            waiting.add(sock)
            idle.append(sock)
            poller.step(0)
        poller.run_until(lambda left=waiting: not left, "answers to ApiVersions", 30)  # type: ignore[misc]
    return idle


def _answered(poller: Poller, sock: socket.socket, waiting: set[socket.socket]) -> Callable[[], None]:
    def on_readable() -> None:
        if not sock.recv_into(BUFFER):
            raise BenchError("the proxy closed an idle connection")
        waiting.discard(sock)

    return on_readable
