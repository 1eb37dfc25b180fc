"""The storm: one user's fleet of clients that bring new producer ids by the clock, and come back if unheard.

    python -m bench.storm.load PORT USER PASSWORD TOPIC PARTITIONS RATE SECONDS FIRST WITH_IDS

A process of its own. RATE: batches a second, each with an id of its own (WITH_IDS 0: with none); a request
has one for each of PARTITIONS. FIRST: the first number that ids are made of. Every REPORT_S a line of JSON:
batches brought so far, and what became of them. It sends by the clock and not by the answers; what no
connection can take is not made up for. A connection that hears nothing for its patience is dropped for a new
one; every fourth is patient.
"""

from __future__ import annotations

import contextlib
import json
import resource
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Final

from bench.lib.poller import BUFFER, VIEW, Poller
from bench.storm import frames as storm_frames
from bench.storm.frames import StormRequests
from testkit.processes.ports import LOOPBACK

CONNECTIONS: Final = 64
PIPELINED: Final = 500
"""batches of a connection that are not answered yet"""
PATIENCE_S: Final = 2.0
"""of three in four, on average. With no answers these carry 48 · 500 ÷ 2 s = 12,000 batches a second"""
PATIENT_S: Final = 60.0  # as long as no real client waits for an answer
CHUNK: Final = 20
"""batches that a connection is given at a time, in whole requests"""
TICK_S: Final = 0.005
BEHIND_S: Final = 0.25
"""what is later than this is not sent: a storm by the clock, without bursts that make up for the past"""
REOPEN_S: Final = 0.25
REPORT_S: Final = 0.25


class Tally:
    """What was brought and what became of it, since the beginning."""

    def __init__(self) -> None:
        self.offered = 0
        """batches handed to a connection's socket"""
        self.missed = 0
        """batches that were due and that no connection could take"""
        self.answers: Counter[int] = Counter()
        """by error code"""
        self.connected = 0
        self.gave_up = 0
        """connections dropped after hearing nothing"""
        self.ended_by_other = 0
        self.login_failed = 0

    def line(self, at_s: float) -> str:
        """One line of JSON, which storm_record reads."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        return json.dumps(
            {
                "at_s": round(at_s, 3),
                "offered": self.offered,
                "missed": self.missed,
                "answers": {str(code): count for code, count in self.answers.items()},
                "connected": self.connected,
                "gave_up": self.gave_up,
                "ended_by_other": self.ended_by_other,
                "login_failed": self.login_failed,
                "cpu_s": round(used.ru_utime + used.ru_stime, 3),
            }
        )


class StormConnection:
    """One connection after another, each with a login, from one of the fleet's clients."""

    def __init__(
        self, poller: Poller, port: int, logins: tuple[bytes, bytes], requests: StormRequests,
        topic: str, patience_s: float, tally: Tally,
    ) -> None:  # fmt: skip
        self._poller = poller
        self._port = port
        self._logins = logins
        self._requests = requests
        self._topic = topic
        self._patience_s = patience_s
        self._tally = tally
        self._sock: socket.socket | None = None
        self._connecting = False
        self._logins_done = 0
        self._got = bytearray()
        self._unsent = memoryview(b"")
        self._under_way = 0
        self._heard_s = 0.0
        self._reopen_s = 0.0

    def room(self) -> int:
        """How many batches it takes now."""
        ready = self._logins_done == len(self._logins) and not self._unsent
        return PIPELINED - self._under_way if ready else 0

    def offer(self, first: int, count: int, now_s: float) -> None:
        """Requests with `count` batches, the first of them number `first`; at most `room()`."""
        if not self._under_way:
            self._heard_s = now_s
        self._under_way += count
        self._tally.offered += count
        self._send(self._requests.block(first, count // self._requests.ids))

    def tend(self, now_s: float) -> None:
        """Open it when it is closed, drop it when it was not heard for too long."""
        if self._sock is None:
            if now_s >= self._reopen_s:
                self._open(now_s)
            return
        waits = self._under_way or self._logins_done < len(self._logins)
        if waits and now_s - self._heard_s > self._patience_s:
            self._tally.gave_up += 1
            self.close()

    def close(self) -> None:
        """May be called twice."""
        if self._sock is not None:
            self._poller.remove(self._sock.fileno())
            self._sock.close()
            self._sock = None
        self._logins_done = self._under_way = 0
        self._got.clear()
        self._unsent = memoryview(b"")

    def _open(self, now_s: float) -> None:
        self._sock = sock = socket.socket()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connecting = True
        self._heard_s = now_s
        with contextlib.suppress(BlockingIOError):
            sock.connect((LOOPBACK, self._port))
        self._poller.add(sock.fileno(), self._readable, self._writable)
        self._poller.want_write(sock.fileno(), True)

    def _writable(self) -> None:
        sock = self._sock
        if sock is None:
            return
        if self._connecting:
            if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                self._ended()
                return
            self._connecting = False
            self._tally.connected += 1
            self._unsent = memoryview(self._logins[0])
        data, self._unsent = self._unsent, memoryview(b"")
        self._poller.want_write(sock.fileno(), False)
        self._send(data)

    def _send(self, data: bytes | memoryview) -> None:
        sock = self._sock
        assert sock is not None
        sent = 0
        try:
            sent = sock.send(data)
        except BlockingIOError:
            pass
        except OSError:
            self._ended()
            return
        if sent < len(data):
            self._unsent = memoryview(data)[sent:]
            self._poller.want_write(sock.fileno(), True)

    def _readable(self) -> None:
        sock = self._sock
        if sock is None or self._connecting:
            if self._connecting:  # refused: the poller tells it as readable, too
                self._ended()
            return
        try:
            size = sock.recv_into(BUFFER)
        except BlockingIOError:
            return
        except OSError:
            size = 0
        if not size:
            self._ended()
            return
        self._heard_s = time.monotonic()
        self._got += VIEW[:size]
        if self._logins_done < len(self._logins):
            self._logged_in()
            return
        codes, used = storm_frames.produce_errors(self._got, self._topic, self._requests.ids)
        del self._got[:used]
        self._under_way -= len(codes)
        self._tally.answers.update(codes)

    def _logged_in(self) -> None:
        end = storm_frames.first_frame_end(self._got)
        if not end:
            return
        if storm_frames.login_error(self._got):
            self._tally.login_failed += 1
            self._ended()
            return
        del self._got[:end]
        self._logins_done += 1
        if self._logins_done < len(self._logins):
            self._send(self._logins[self._logins_done])

    def _ended(self) -> None:
        self._tally.ended_by_other += 1
        self._connecting = False
        self._reopen_s = time.monotonic() + REOPEN_S
        self.close()


def patience_s(index: int) -> float:
    """How patient connection `index` is. Those that are not patient lose it one after the other, not all at
    once."""
    if index % 4 == 0:
        return PATIENT_S
    return PATIENCE_S * (0.5 + index / CONNECTIONS)


class Storm:
    """All connections of the user."""

    def __init__(
        self, connections: Sequence[StormConnection], rate: float, first: int, ids: int, tally: Tally
    ) -> None:
        """`ids`: of a request."""
        self._connections = connections
        self._ids = ids
        self._rate = rate
        self._next = first
        self._tally = tally
        self._turn = 0
        self._settled = 0
        """batches that were due so far: offered or missed"""

    def offer_what_is_due(self, since_start_s: float, now_s: float) -> None:
        """Spread over the connections that have room, a few for each."""
        due = int(since_start_s * self._rate) - self._settled
        full = 0
        while due >= self._ids and full < len(self._connections):
            connection = self._connections[self._turn]
            self._turn = (self._turn + 1) % len(self._connections)
            count = min(due, max(CHUNK, self._ids), connection.room()) // self._ids * self._ids
            if count:
                connection.offer(self._next, count, now_s)
                self._next += count
                self._settled += count
                due -= count
                full = 0
            else:
                full += 1
        missed = due - int(BEHIND_S * self._rate)
        if missed > 0:
            self._settled += missed
            self._tally.missed += missed

    def tend(self, now_s: float) -> None:
        """Tend all connections, as StormConnection.tend."""
        for connection in self._connections:
            connection.tend(now_s)


def run(port: int, user: str, password: str, topic: str, partitions: int, rate: float, seconds: float,
        first: int, with_ids: bool) -> None:  # fmt: skip
    """Until `seconds` have passed, or SIGTERM. Prints the lines."""
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: ended.append(number))
    poller, tally = Poller(), Tally()
    timestamp_ms = int(time.time() * 1000)
    requests = StormRequests("storm", topic, partitions, timestamp_ms, with_ids=with_ids)
    logins = storm_frames.login_requests("storm", user, password)
    storm = Storm(
        [
            StormConnection(poller, port, logins, requests, topic, patience_s(index), tally)
            for index in range(CONNECTIONS)
        ],
        rate, first, requests.ids, tally,
    )  # fmt: skip
    start_s = report_s = now_s = time.monotonic()
    while not ended and now_s - start_s < seconds:
        # All that came since the last tick at once: who wakes up for each answer takes more of the cores.
        poller.step(0.0)
        storm.tend(now_s)
        storm.offer_what_is_due(now_s - start_s, now_s)
        if now_s >= report_s:
            print(tally.line(now_s), flush=True)
            report_s += REPORT_S
        time.sleep(max(0.0, now_s + TICK_S - time.monotonic()))
        now_s = time.monotonic()
    print(tally.line(now_s), flush=True)


def main(argv: Sequence[str]) -> None:
    port, user, password, topic, partitions, rate, seconds, first, with_ids = argv
    run(int(port), user, password, topic, int(partitions), float(rate), float(seconds), int(first),
        with_ids == "1")  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])
