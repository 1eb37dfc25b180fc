"""A bound port: accepts clients, no faster than it is told, also where file descriptors run out at times.

Knows nothing of what is done with them.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from math import ceil
from time import monotonic
from typing import Final

from sluice.protocol.proxy_protocol import Endpoint
from sluice.proxy.connection.limits import AcceptRate
from sluice.proxy.connection.poller import Poller
from sluice.proxy.listener.handshake import endpoint
from sluice.proxy.runtime.error_words import words_of
from sluice.proxy.runtime.log import get_logger

BACKLOG: Final = 4096
_AT_ONCE: Final = 64
"""so that a storm of connections leaves the others their turn"""
_RESTS: Final = 8
"""so often only one is asked for, once one more was asked for in vain: that costs half of an accept"""
_NO_FILES_PAUSE_S: Final = 0.2
"""when the process has no file descriptors left; the kernel's queue keeps the clients meanwhile"""
_NO_FILES_LOG_S: Final = 10.0

_log = get_logger()


class AcceptPort:
    """`on_client` gets each accepted socket, non-blocking, and who connected.

    `wait_s`, asked before each accept, says for how long nobody is to be accepted, while the kernel's queue
    keeps the clients. It is told whether somebody surely waits; None: it would have to know.
    """

    def __init__(
        self,
        poller: Poller,
        loop: asyncio.AbstractEventLoop,
        host: str,
        port: int,
        on_client: Callable[[socket.socket, Endpoint], None],
        rate: AcceptRate | None = None,
        wait_s: Callable[[bool], float | None] = lambda _: 0.0,
    ) -> None:
        """Binds at once; `::` takes IPv4 too. Raises OSError if the address cannot be had."""
        self._poller = poller
        self._loop = loop
        self._on_client = on_client
        self._rate = rate
        self._wait_s = wait_s
        self._accepting = False
        self._at_once = 2
        self._rests = 0
        self._complained_s = float("-inf")
        self._socket = bound(host, port)

    @property
    def port(self) -> int:
        """The bound one, also where the choice was left to the system."""
        return int(self._socket.getsockname()[1])

    def start(self) -> None:
        """Accept from now on."""
        self._accepting = True
        self._socket.listen(BACKLOG)
        self._poller.add_reader(self._socket.fileno(), self._acceptable)

    def stop(self) -> None:
        """Accept no more, and free the port."""
        if self._accepting:
            self._accepting = False
            self._poller.remove_reader(self._socket.fileno())
        self._socket.close()

    def _acceptable(self) -> None:
        rate = self._rate
        at_once = self._at_once
        if self._rests:
            self._rests -= 1
            at_once = 1
        for number in range(at_once):
            wait_s = self._wait_s(number == 0)
            if wait_s is None:
                return
            if wait_s > 0.0:
                self._pause(wait_s)
                return
            now_ms = monotonic() * 1000.0
            wait_ms = 0.0 if rate is None else rate.wait_ms(now_ms)
            if wait_ms > 0.0:
                self._pause(ceil(wait_ms) / 1000.0)
                return
            try:
                client, address = self._socket.accept()
            except (BlockingIOError, ConnectionAbortedError, InterruptedError):
                self._at_once = max(number, 2)
                if number == 1:
                    self._rests = _RESTS
                return
            except OSError as error:
                if now_ms / 1000.0 - self._complained_s >= _NO_FILES_LOG_S:
                    self._complained_s = now_ms / 1000.0
                    _log.error("accept_failed", port=self.port, reason=words_of(error))
                self._pause(_NO_FILES_PAUSE_S)
                return
            if rate is not None:
                rate.accepted(now_ms)
            try:
                client.setblocking(False)
            except OSError:
                client.close()  # it left at once
            else:
                self._on_client(client, endpoint(address))
        if at_once > 1:
            self._at_once = min(2 * at_once, _AT_ONCE)

    def _pause(self, for_s: float) -> None:
        self._poller.remove_reader(self._socket.fileno())
        self._loop.call_later(for_s, self._accept_again)

    def _accept_again(self) -> None:
        if self._accepting:
            self._poller.add_reader(self._socket.fileno(), self._acceptable)


def bound(host: str, port: int) -> socket.socket:
    """A socket that is bound and does not listen yet. Raises OSError."""
    infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, proto, _, address = infos[0]
    made = socket.socket(family, kind, proto)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted connections inherit these: two system calls fewer for each.
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        made.setblocking(False)
        made.bind(address)
    except BaseException:
        made.close()
        raise
    return made
