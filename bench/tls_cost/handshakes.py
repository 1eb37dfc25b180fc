"""Handshake after handshake: connect, agree on keys, one ApiVersions answer, close; so many at any time."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Final

from bench.lib.load import Measured
from bench.lib.poller import BUFFER, Poller
from bench.lib.tls_socket import TlsClients
from testkit.frames import load_frames as frames
from testkit.processes.process import BenchError, Usage

AT_ONCE: Final = 8
WITHIN_S: Final = 120.0


class Handshakes:
    """All connections of one repeat."""

    def __init__(self, poller: Poller, port: int, clients: TlsClients) -> None:
        self.poller = poller
        self.clients = clients
        self.done = 0
        self.stopping = False
        self.request = bytes(frames.api_versions_request("bench"))
        self.answer_bytes = len(frames.api_versions_response())
        self._port = port
        self._open: set[_Handshake] = set()

    def measure(self, snapshot: Callable[[], Usage], count: int, warm_up: int) -> Measured:
        """Counts `count` of them in full flow. Raises BenchError when one fails or takes too long."""
        try:
            for _ in range(AT_ONCE):
                self._begin()
            self.poller.run_until(lambda: self.done >= warm_up, "handshakes", WITHIN_S)
            first_done, first = self.done, snapshot()
            self.poller.run_until(lambda: self.done >= first_done + count, "handshakes", WITHIN_S)
            last_done, last = self.done, snapshot()
            self.stopping = True
            self.poller.run_until(lambda: not self._open, "handshakes under way", WITHIN_S)
        finally:
            for one in tuple(self._open):
                one.close()
        return Measured(
            last_done - first_done,
            last.at_s - first.at_s,
            last.cpu_s - first.cpu_s,
            last.wakeups - first.wakeups,
        )

    def over(self, one: _Handshake) -> None:
        """One has had its answer."""
        one.close()
        self._open.discard(one)
        self.done += 1
        if not self.stopping:
            self._begin()

    def _begin(self) -> None:
        one = _Handshake(self, self._port)
        self._open.add(one)
        one.step()


class _Handshake:
    def __init__(self, all_: Handshakes, port: int) -> None:
        self._all = all_
        self._sock = all_.clients.begin(port)
        self._agreed = False
        self._missing = all_.answer_bytes
        all_.poller.add(self._sock.fileno(), self.step, self.step)

    def step(self) -> None:
        """Go on as far as it goes."""
        poller, fd = self._all.poller, self._sock.fileno()
        try:
            if not self._agreed:
                self._sock.do_handshake()
                self._agreed = True
                poller.want_write(fd, False)
                self._sock.send(self._all.request)
            got = self._sock.recv_into(BUFFER)
        except (ssl.SSLWantReadError, BlockingIOError):
            return
        except ssl.SSLWantWriteError:
            poller.want_write(fd, True)
            return
        except OSError as error:
            raise BenchError(f"a handshake failed: {error}") from error
        self._missing -= got
        if not got or self._missing < 0:
            raise BenchError(f"the answer behind a handshake ended {self._missing} bytes early")
        if not self._missing:
            self._all.over(self)

    def close(self) -> None:
        if self._sock.fileno() >= 0:
            self._all.poller.remove(self._sock.fileno())
            self._sock.close()
