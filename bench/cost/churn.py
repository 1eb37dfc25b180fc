"""What a connection costs that opens, asks once and closes; and the proxy while nothing happens."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

from bench.lib.poller import BUFFER, VIEW, Poller
from bench.lib.stats import median, pairwise_ratios, spread
from testkit.frames.load_frames import CORRELATION_AT
from testkit.processes.process import BenchError, cpu_s
from testkit.proxy import proxies

CHURN: Final = "churn"
IDLE: Final = "idle"
CASES: Final = (CHURN, IDLE)
AT_ANY_TIME: Final = 8
CONNECTIONS: Final = 2_000
"""of each repeat"""
IDLE_S: Final = 20.0
IDLE_ROUNDS: Final = 3
SETTLE_S: Final = 10.0
"""from the proxies' start to the first idle span"""
_STALL_S: Final = 30.0
# An address of its own for each lot of ports: closed connections keep theirs for a minute.
_SOURCES: Final = [f"127.0.1.{number}" for number in range(1, 65)]


@dataclass(slots=True)
class Lives:
    """What both cases found, per proxy name; index n of each list is the n-th interleaved repeat."""

    churn_us: dict[str, list[float]]
    idle_ms_per_s: dict[str, list[float]]

    def newest(self) -> str:
        """One line on the newest repeat."""
        parts = [f"{CHURN} {name} {found[-1]:.0f} µs" for name, found in self.churn_us.items() if found]
        idle = self.idle_ms_per_s.items()
        return "  ".join([*parts, *(f"{IDLE} {name} {found[-1]:.2f} ms/s" for name, found in idle if found)])

    def summary(self, ours: str, theirs: str) -> dict[str, object]:
        """For the last line: what was measured, and nothing of a case that was left out."""
        summary: dict[str, object] = {}
        if self.churn_us[ours]:
            ratio = spread(pairwise_ratios(self.churn_us[ours], self.churn_us[theirs]))
            summary["churn_vs_haproxy"] = round(ratio.median, 3)
            summary["churn_vs_haproxy_range"] = ratio.as_range()
            summary["churn_us"] = round(median(self.churn_us[ours]), 1)
            summary["haproxy_churn_us"] = round(median(self.churn_us[theirs]), 1)
        if self.idle_ms_per_s[ours]:
            summary["idle_ms_per_s"] = round(median(self.idle_ms_per_s[ours]), 3)
            summary["haproxy_idle_ms_per_s"] = round(median(self.idle_ms_per_s[theirs]), 3)
        return summary


class Churn:
    """So many at a time open, send one request, take its whole answer and close, until enough have."""

    def __init__(self, poller: Poller, port: int, request: bytes, answer: bytes) -> None:
        self._poller = poller
        self._port = port
        self._request = request
        self._answer = answer
        self._begun = 0
        self._done = 0
        self._open: dict[int, socket.socket] = {}

    def run(self, connections: int) -> None:
        """So many in all. Raises BenchError."""
        try:
            self._run(connections)
        finally:
            for number, sock in self._open.items():  # after an error
                self._poller.remove(number)
                sock.close()

    def _run(self, connections: int) -> None:
        seen, deadline = 0, time.monotonic() + _STALL_S
        while self._done < connections:
            for _ in range(min(AT_ANY_TIME - len(self._open), connections - self._begun)):
                self._next()
            self._poller.step(1.0)
            if self._done != seen:
                seen, deadline = self._done, time.monotonic() + _STALL_S
            elif time.monotonic() > deadline:
                raise BenchError(f"churn: no answer for {_STALL_S:.0f} s, after {seen} of {connections}")

    def _next(self) -> None:
        self._begun += 1
        number = self._begun
        sock = socket.socket()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.bind((_SOURCES[self._begun % len(_SOURCES)], 0))
        sock.connect(("127.0.0.1", self._port))
        sock.setblocking(False)
        request = bytearray(self._request)
        struct.pack_into(">i", request, CORRELATION_AT, number)
        self._open[sock.fileno()] = sock
        self._poller.add(sock.fileno(), lambda: self._answered(sock, number))
        sock.send(request)

    def _answered(self, sock: socket.socket, number: int) -> None:
        got = sock.recv_into(BUFFER)
        _, correlation_id = struct.unpack_from(">ii", BUFFER)
        if got != len(self._answer) or correlation_id != number or VIEW[8:got] != self._answer[8:]:
            raise BenchError(f"churn: {got} bytes, and not the answer of {len(self._answer)} bytes")
        self._poller.remove(sock.fileno())
        del self._open[sock.fileno()]
        sock.close()
        self._done += 1


def idle_ms_per_s(running: Sequence[proxies.Proxy], span_s: float = IDLE_S) -> list[float]:
    """CPU of each of them in the same span, in which nobody sends anything."""
    begun_s = time.monotonic()
    before = [cpu_s(proxy.pid) for proxy in running]
    time.sleep(span_s)
    after = [cpu_s(proxy.pid) for proxy in running]
    took_s = time.monotonic() - begun_s
    return [(last - first) * 1000.0 / took_s for first, last in zip(before, after, strict=True)]


def measure(
    churn_us: Callable[[proxies.Proxy, int], float],
    running: Sequence[proxies.Proxy],
    rounds: int,
    cases: Sequence[str],
    scale: float,
    scraped: AbstractContextManager[None],
) -> Lives:
    """First `idle`, all of them in the same spans and nobody asks for metrics: after `churn` the access log
    of its connections is written for seconds. Then `churn`, by turns in every round, while they are
    `scraped`.

    `churn_us`: the cost of one of so many connections to a proxy.
    """
    lives = Lives({proxy.name: [] for proxy in running}, {proxy.name: [] for proxy in running})
    if IDLE in cases:
        time.sleep(SETTLE_S * min(scale, 1.0))
        for _ in range(min(rounds, IDLE_ROUNDS)):
            spent = idle_ms_per_s(running, max(IDLE_S * scale, 1.0))
            for proxy, ms_per_s in zip(running, spent, strict=True):
                lives.idle_ms_per_s[proxy.name].append(ms_per_s)
            print(lives.newest(), flush=True)
    if CHURN in cases:
        with scraped:
            for number in range(rounds):
                for proxy in running if number % 2 == 0 else reversed(running):
                    lives.churn_us[proxy.name].append(churn_us(proxy, int(CONNECTIONS * scale)))
                print(f"{number + 1}/{rounds}  {lives.newest()}", flush=True)
    return lives
