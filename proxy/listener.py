"""One listening port and the broker behind it: accept, dial the broker, and only then begin to read the
client.

(Dial first: a client's first bytes must not arrive before there is somewhere to send them.)
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from time import monotonic
from typing import Final

from sluice.proxy.causes import DisconnectCause
from sluice.proxy.config_listener import ListenerOptions
from sluice.proxy.connection import Connection
from sluice.proxy.log import get_logger
from sluice.proxy.policy import SessionPolicy, SharedState
from sluice.proxy.session import Session
from sluice.proxy.tasks import spawn
from sluice.proxy.worker import Worker
from sluice.quotas.records import ConnectionRecord

BACKLOG: Final = 4096
_ACCEPTS_PER_WAKE: Final = 64
"""so that a storm of connections leaves the others their turn"""
_NO_FILES_PAUSE_S: Final = 0.2
"""when the process has no file descriptors left; the kernel's queue keeps the clients meanwhile"""

_log = get_logger()


class Listener:
    """A bound port. `connections` are the live ones."""

    def __init__(
        self,
        worker: Worker,
        options: ListenerOptions,
        shared: SharedState,
        policy: SessionPolicy,
        dial_timeout_s: float,
    ) -> None:
        """Binds at once. Raises OSError if the address cannot be had."""
        self._worker = worker
        self._loop = worker.loop
        self._options = options
        self._shared = shared
        self._policy = policy
        self._dial_timeout_s = dial_timeout_s
        self._accepting = False
        self._unreachable = False
        self._dialing: set[asyncio.Task[None]] = set()
        self.connections: set[Connection] = set()
        self._socket = _bound(options.bind_host, options.bind_port)

    @property
    def name(self) -> str:
        """As configured."""
        return self._options.name

    @property
    def port(self) -> int:
        """The bound port, also where the configuration left the choice to the system."""
        return int(self._socket.getsockname()[1])

    def start(self) -> None:
        """Accept from now on."""
        self._accepting = True
        self._socket.listen(BACKLOG)
        self._loop.add_reader(self._socket, self._acceptable)
        _log.info(
            "listening",
            listener=self.name,
            address=f"{self._options.bind_host}:{self.port}",
            upstream=f"{self._options.upstream_host}:{self._options.upstream_port}",
        )

    def stop(self) -> None:
        """Accept no more; who is being dialled for is let go."""
        if self._accepting:
            self._accepting = False
            self._loop.remove_reader(self._socket)
        self._socket.close()
        for task in tuple(self._dialing):
            task.cancel()

    def _acceptable(self) -> None:
        for _ in range(_ACCEPTS_PER_WAKE):
            try:
                client, address = self._socket.accept()
            except (BlockingIOError, ConnectionAbortedError, InterruptedError):
                return
            except OSError as error:
                _log.error("accept_failed", listener=self.name, reason=str(error))
                self._loop.remove_reader(self._socket)
                self._loop.call_later(_NO_FILES_PAUSE_S, self._accept_again)
                return
            task = spawn(self._connect(client, address), "dial")
            self._dialing.add(task)
            task.add_done_callback(self._dialing.discard)

    def _accept_again(self) -> None:
        if self._accepting:
            self._loop.add_reader(self._socket, self._acceptable)

    async def _connect(self, client: socket.socket, address: tuple[str, int]) -> None:
        opened_ms = monotonic() * 1000.0
        peer = f"{address[0]}:{address[1]}"
        try:
            client.setblocking(False)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            async with asyncio.timeout(self._dial_timeout_s):
                broker = await self._dial()
        except (OSError, TimeoutError) as error:
            reason = str(error) or "timed out"
            self._let_go(client)
            self._count_unreachable(peer, reason, opened_ms)
            return
        except asyncio.CancelledError:
            self._let_go(client)
            raise
        if self._unreachable:
            self._unreachable = False
            _log.info("upstream_reachable_again", listener=self.name)
        session = Session(self._shared, self._policy, address[0])
        connection = Connection(self._worker, client, broker, session, peer, self.connections.discard)
        self.connections.add(connection)
        connection.start()

    def _let_go(self, client: socket.socket) -> None:
        """Close in order: on unread bytes (clients speak first) it would be a reset."""
        with suppress(OSError):
            client.recv_into(self._worker.view)
        client.close()

    async def _dial(self) -> socket.socket:
        host, port = self._options.upstream_host, self._options.upstream_port
        error: OSError | None = None
        for family, kind, proto, _, address in await self._loop.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        ):
            broker = socket.socket(family, kind, proto)
            try:
                broker.setblocking(False)
                broker.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                await self._loop.sock_connect(broker, address)
            except OSError as failed:
                broker.close()
                error = failed
            except BaseException:
                broker.close()
                raise
            else:
                return broker
        raise error or OSError(f"no address for {host}")

    def _count_unreachable(self, peer: str, reason: str, opened_ms: float) -> None:
        if not self._unreachable:  # once, until it is reachable again
            self._unreachable = True
            upstream = f"{self._options.upstream_host}:{self._options.upstream_port}"
            _log.error("upstream_unreachable", listener=self.name, upstream=upstream, reason=reason)
        self._shared.recorder.connections.append(
            ConnectionRecord(
                cause=DisconnectCause.UPSTREAM_UNREACHABLE,
                detail="",  # said once, above
                peer=peer,
                user="",
                client_id="",
                opened_ms=opened_ms,
                closed_ms=monotonic() * 1000.0,
                requests=0,
                bytes_from_client=0,
                bytes_to_client=0,
            )
        )


def _bound(host: str, port: int) -> socket.socket:
    """A socket bound to `host:port`; `::` takes IPv4 too."""
    infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, proto, _, address = infos[0]
    bound = socket.socket(family, kind, proto)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        bound.setblocking(False)
        bound.bind(address)
    except BaseException:
        bound.close()
        raise
    return bound
