"""The port of /livez, /readyz and /startupz alone, which nobody can keep from answering.

The admin port is open to whoever may scrape; connections that say nothing could fill it, and an orchestrator
restarts a proxy whose probe gets no answer, with every client on it. So the probes have a port of their own
where the newest is served first: beyond _MOST connections, or _MOST_OF_ONE of an address, the oldest that has
not asked yet is closed. Who has not asked in _HEADER_S is closed, too. An answer ends its connection.

Descriptors are kept in reserve, so that an accept works when clients have taken all others.

It runs in the proxy's own loop, and parses by h11: /livez says that the loop turns, and nothing of load.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

import h11

from sluice.proxy.runtime.log import LineBudget, get_logger

_MOST: Final = 64
_MOST_OF_ONE: Final = 16
_HEADER_S: Final = 2.0
_HEADER_BYTES: Final = 8 * 1024
_RESERVE: Final = 4
_ACCEPTS_PER_WAKE: Final = 64
_BACKLOG: Final = 256
_PAUSE_S: Final = 0.05

Answer = Callable[[], list[str]]
"""why not; empty: yes"""
_log = get_logger()


class ProbePort:
    """`answers`: by path. Raises nothing once started; `unanswered` counts who was closed before it asked."""

    def __init__(self, host: str, port: int, answers: Mapping[str, Answer]) -> None:
        self._host = host
        self._answers = answers
        self._loop: asyncio.AbstractEventLoop | None = None
        self._socket: socket.socket | None = None
        self._reserve: list[int] = []
        self._waiting: dict[_Probe, None] = {}  # who has not asked yet, the oldest first
        self._lines = LineBudget()
        self.port = port
        """the bound one once started (it may be 0 before)"""
        self.unanswered = 0

    def start(self) -> None:
        """Bind and serve, in the running loop. Raises OSError if the address cannot be bound."""
        self._loop = asyncio.get_running_loop()
        self._socket = listening = bound(self._host, self.port, _BACKLOG)
        listening.setblocking(False)
        self.port = listening.getsockname()[1]
        self._fill_reserve()
        self._loop.add_reader(listening, self._acceptable)

    def stop(self) -> None:
        """Close everything; fine if not started."""
        if self._socket is not None and self._loop is not None:
            self._loop.remove_reader(self._socket)
            self._socket.close()
            self._socket = None
        for probe in list(self._waiting):
            self.close(probe)
        for descriptor in self._reserve:
            os.close(descriptor)
        self._reserve.clear()

    def close(self, probe: _Probe) -> None:
        """It was answered, or is not waited for."""
        self._waiting.pop(probe, None)
        assert self._loop is not None
        self._loop.remove_reader(probe.socket)
        probe.deadline.cancel()
        probe.socket.close()
        self._fill_reserve()

    def answer(self, path: str) -> tuple[int, object]:
        """The HTTP status and the body for a probe's path."""
        if path not in self._answers:
            return 404, {"status": "not found"}
        reasons = self._answers[path]()
        return (503, {"status": "unavailable", "reasons": reasons}) if reasons else (200, {"status": "ok"})

    def _fill_reserve(self) -> None:
        with suppress(OSError):
            while len(self._reserve) < _RESERVE:
                self._reserve.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def _acceptable(self) -> None:
        for _ in range(_ACCEPTS_PER_WAKE):
            if not self._accept():
                return

    def _accept(self) -> bool:
        """One connection. False: none is there, or none can be taken now."""
        assert self._socket is not None
        assert self._loop is not None
        try:
            client, address = self._socket.accept()
        except (BlockingIOError, ConnectionAbortedError, InterruptedError):
            return False
        except OSError as error:
            return self._make_room(error)
        client.setblocking(False)
        self._make_way(address[0])
        probe = _Probe(self, client, address[0], self._loop)
        self._waiting[probe] = None
        self._loop.add_reader(client, probe.readable)
        return True

    def _make_room(self, error: OSError) -> bool:
        """No descriptor is left: give up one of the reserve, or the oldest who has not asked."""
        if self._reserve:
            os.close(self._reserve.pop())
            return True
        if self._waiting:
            self._drop(next(iter(self._waiting)))
            return True
        assert self._socket is not None
        assert self._loop is not None
        if self._lines.take(self._loop.time() * 1000.0):
            _log.error("probe_accept_failed", port=self.port, reason=str(error))
        self._loop.remove_reader(self._socket)
        self._loop.call_later(_PAUSE_S, self._accept_again)
        return False

    def _accept_again(self) -> None:
        if self._socket is not None and self._loop is not None:
            self._fill_reserve()
            self._loop.add_reader(self._socket, self._acceptable)

    def _make_way(self, address: str) -> None:
        """One more of this address comes."""
        same = [probe for probe in self._waiting if probe.address == address]
        if len(same) >= _MOST_OF_ONE:
            self._drop(same[0])
        elif len(self._waiting) >= _MOST:
            self._drop(next(iter(self._waiting)))

    def _drop(self, probe: _Probe) -> None:
        self.unanswered += 1
        self.close(probe)


class _Probe:
    """One connection, until it has asked."""

    __slots__ = ("_connection", "_port", "address", "deadline", "socket")

    def __init__(
        self, port: ProbePort, client: socket.socket, address: str, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._port = port
        self._connection = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEADER_BYTES)
        self.socket = client
        self.address = address
        self.deadline = loop.call_later(_HEADER_S, port.close, self)

    def readable(self) -> None:
        """Bytes, or its end, have come."""
        try:
            data = self.socket.recv(_HEADER_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        try:
            self._connection.receive_data(data)
            event = self._connection.next_event()
        except h11.RemoteProtocolError:
            self._answer(400, {"status": "bad request"})
            return
        if isinstance(event, h11.Request):
            path = event.target.decode("latin-1").partition("?")[0]
            if event.method in {b"GET", b"HEAD"}:
                self._answer(*self._port.answer(path), is_head=event.method == b"HEAD")
            else:
                self._answer(405, {"status": "method not allowed"})
        elif not data:
            self._port.close(self)

    def _answer(self, status: int, body: object, *, is_head: bool = False) -> None:
        """Send, and close: it fits the socket's buffer, which is empty."""
        text = json.dumps(body).encode()
        headers = [
            ("content-type", "application/json"), ("content-length", str(len(text))), ("connection", "close"),
        ]  # fmt: skip
        with suppress(OSError, h11.LocalProtocolError):
            head = self._connection.send(h11.Response(status_code=status, headers=headers)) or b""
            self.socket.send(head if is_head else head + text)
            self.socket.shutdown(socket.SHUT_WR)
        self._port.close(self)


def bound(host: str, port: int, backlog: int) -> socket.socket:
    """A listening socket; `::` takes IPv4 too. Raises OSError."""
    is_ipv6 = ":" in host
    return socket.create_server(
        (host, port),
        family=socket.AF_INET6 if is_ipv6 else socket.AF_INET,
        dualstack_ipv6=host == "::" and socket.has_dualstack_ipv6(),
        backlog=backlog,
    )
