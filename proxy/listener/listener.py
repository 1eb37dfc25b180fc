"""One configured listener: its ports, and what happens between a client's arrival and its first request.

    accept → limits → PROXY header, TLS (handshake.py) → Session and Connection

The broker is dialled when the first bytes are to go there (client_upstreams.py).
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from contextlib import suppress
from functools import partial
from time import monotonic, thread_time
from typing import Final

from sluice.protocol.proxy_protocol import Endpoint
from sluice.proxy.config.listener import ListenerOptions
from sluice.proxy.connection.connection import Connection
from sluice.proxy.connection.data_path import PURE, DataPath
from sluice.proxy.connection.guests import Guest, Metered
from sluice.proxy.connection.limits import AcceptRate, Seat
from sluice.proxy.connection.resources import Footprint
from sluice.proxy.connection.stream import Stream
from sluice.proxy.connection.worker import Worker
from sluice.proxy.listener.accept_port import AcceptPort
from sluice.proxy.listener.client_upstreams import ClientDial, ClientUpstreams
from sluice.proxy.listener.delayed_close import HeldBack
from sluice.proxy.listener.handshake import Arrival, Entrance, NotLetIn, TooFast, endpoint
from sluice.proxy.runtime.error_words import OUT_OF_DESCRIPTORS, words_of
from sluice.proxy.runtime.listening import listening
from sluice.proxy.runtime.log import get_logger
from sluice.proxy.runtime.tasks import spawn
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.usage.records import ConnectionRecord

_Accepted = tuple[socket.socket, Endpoint, int | None, Seat, Guest]
_ACCEPTED_S: Final = 250e-6
"""what a connection costs that is not measured, its accept and the loop's part: 235 µs (docs/decisions.md)"""
_BEYOND_LIMITS: Final = "one connection more than limits.* allow"
_ROOM_S: Final = 0.05
"""until it is asked again whether there is room for one more that has not authenticated"""
_SHARE_S: Final = 0.005
"""at least, while the share of those who have not authenticated is used up"""
_MADE_ROOM: Final = "it had not authenticated, and made room for a newer one"
_NOT_BEGUN: Final = "no PROXY header or TLS handshake in time"

_log = get_logger()


class Listener:
    """`connections` are the live ones; `policy` is what new sessions are told."""

    def __init__(
        self,
        worker: Worker,
        options: ListenerOptions,
        shared: SharedState,
        policy: SessionPolicy,
        entrance: Entrance,
        upstreams: ClientUpstreams,
        *,
        authentication_timeout_s: float = 30.0,
        rate: AcceptRate | None = None,
        path: DataPath = PURE,
    ) -> None:
        """Binds its ports at once. Raises CannotListen if one cannot be had."""
        self.name = options.name
        self.policy = policy
        self.connections: set[Connection] = set()
        self._worker = worker
        self._options = options
        self._shared = shared
        self._entrance = entrance
        self.upstreams = upstreams
        """to the brokers"""
        self.authentication_timeout_s = authentication_timeout_s
        self._rate = rate
        self._path = path
        self._held_back = HeldBack(worker.loop, self._let_go, worker.limits.spare)
        self._arriving: set[asyncio.Task[None]] = set()
        self._accepted: deque[_Accepted] = deque()
        """in order; each goes on in a later turn of the loop"""
        self._ports: list[AcceptPort] = []
        try:
            self._bind(options.bind_port, None)
            first_id = 0 if options.gateway is None else options.gateway.first_broker_id
            for node_id, port in enumerate(options.broker_ports, first_id):
                self._bind(port, node_id)
        except BaseException:
            self.stop()
            raise

    def _bind(self, port: int, node_id: int | None) -> None:
        on_client = partial(self._arrived, node_id=node_id)
        host = self._options.bind_host
        with listening(listener=self.name, host=host, port=port):
            worker = self._worker
            made = AcceptPort(worker.poller, worker.loop, host, port, on_client, self._rate, self._wait_s)
        self._ports.append(made)

    @property
    def port(self) -> int:
        """The bound (bootstrap) port, also where the configuration left the choice to the system."""
        return self._ports[0].port

    def start(self) -> None:
        """Accept from now on."""
        for port in self._ports:
            port.start()
        _log.info(
            "listening",
            listener=self.name,
            address=f"{self._options.bind_host}:{self.port}",
            ports=len(self._ports),
            security_protocol=self._options.security_protocol,
            upstream=self._options.upstream,
        )

    def stop(self) -> None:
        """Accept no more; who does not relay yet is let go."""
        for port in self._ports:
            port.stop()
        for task in tuple(self._arriving):
            task.cancel()
        while self._accepted:
            client, _, _, seat, _ = self._accepted.popleft()
            seat.close()
            self._let_go(client)
        self._held_back.stop()

    def _wait_s(self, somebody_waits: bool) -> float | None:
        """For how long to accept nobody. None: that depends on whether somebody waits."""
        limits = self._worker.limits
        wait_s = self._worker.guests.wait_s()
        if wait_s > 0.0:  # first: nobody is ended for one that is not accepted
            self._worker.gauges.accepts_delayed += 1
            if somebody_waits:
                self._worker.guests.newcomer_waits()
            return max(wait_s, _SHARE_S)
        if limits.is_crowded:
            if not somebody_waits:
                return None
            if not limits.make_room(monotonic() * 1000.0):
                self._worker.gauges.accepts_delayed += 1
                return _ROOM_S
        return 0.0

    def _arrived(self, client: socket.socket, source: Endpoint, node_id: int | None) -> None:
        is_trusted = self._entrance.is_trusted(source)
        if not is_trusted:
            try:
                self._check_rate(source)
            except TooFast as error:
                self._held_back.hold(client, error.delay_ms)
                self._count(error.cause, error.detail, source, monotonic() * 1000.0)
                return
        seat = self._worker.limits.admit(None if is_trusted else source.host, monotonic() * 1000.0)
        if not isinstance(seat, Seat):
            self._let_go(client)
            self._count(seat, _BEYOND_LIMITS, source, monotonic() * 1000.0)
            return
        guest = Guest(self._worker.guests)
        guest.took(_ACCEPTED_S)
        if self._entrance.is_open:
            # Where clients come now and then nothing of it is in the caches, and the accept costs as much as
            # the session: a request that has waited for the one does not wait for the other, too.
            self._accepted.append((client, source, node_id, seat, guest))
            self._worker.loop.call_soon(self._go_on)
            return
        begun_ms = self._worker.clock.now_ms
        work = self._serve(client, source, node_id, seat, begun_ms, guest)
        task = spawn(Metered(work, guest), "arrival")
        self._arriving.add(task)
        task.add_done_callback(partial(self._arrival_ended, client, seat))

    def _arrival_ended(self, client: socket.socket, seat: Seat, task: asyncio.Task[None]) -> None:
        self._arriving.discard(task)
        if task.cancelled():  # before its first step too, where _serve's own ending is not reached
            seat.close()
            client.close()

    def _go_on(self) -> None:
        """With the next one, where nothing has to be waited for: no task, no time limits."""
        if not self._accepted:
            return  # let go
        client, source, node_id, seat, guest = self._accepted.popleft()
        begun_s = thread_time()
        self._shared.recorder.arrivals.append((source.host, monotonic() * 1000.0))
        footprint = Footprint(seat, self._worker.budget, self._worker.clock.now_ms)
        try:
            destination = source
            if self._options.upstream_proxy_protocol:
                destination = endpoint(client.getsockname())
            self._relay(Arrival(client, source, destination), node_id, footprint, guest)
        except BaseException:
            seat.close()
            self._let_go(client)
            raise
        guest.took(thread_time() - begun_s)

    async def _serve(
        self,
        client: socket.socket,
        source: Endpoint,
        node_id: int | None,
        seat: Seat,
        begun_ms: float,
        guest: Guest,
    ) -> None:
        """Until the client relays, or is let go. `begun_ms`: as the SweepClock has it."""
        opened_ms = monotonic() * 1000.0
        arrival: Arrival | None = None
        cause, detail = DisconnectCause.AUTHENTICATION_TIMEOUT, _NOT_BEGUN
        if not self._entrance.is_trusted(source):
            self._shared.recorder.arrivals.append((source.host, opened_ms))
        try:
            async with asyncio.timeout(self.authentication_timeout_s) as patience:
                seat.may_end(_speaks, partial(self._make_room, patience))
                arrival = await self._entrance.let_in(client, source, self._check_rate)
            seat.may_not_end()
            if self._entrance.is_trusted(source):
                self._shared.recorder.arrivals.append((arrival.source.host, opened_ms))
            refused = seat.located(arrival.source.host) if self._entrance.is_trusted(source) else None
            if refused is None:
                if node_id is None and arrival.server_name is not None:
                    node_id = self.upstreams.route.node_of(arrival.server_name)
                self._relay(arrival, node_id, Footprint(seat, self._worker.budget, begun_ms), guest)
                return
            cause, detail = refused, _BEYOND_LIMITS
        except TooFast as error:
            seat.close()
            self._held_back.hold(client, error.delay_ms)
            self._count(error.cause, error.detail, error.source, opened_ms)
            return
        except NotLetIn as error:
            cause, detail = error.cause, error.detail
        except OSError as error:  # TimeoutError is one: then the cause stands already
            if not seat.is_open:
                cause, detail = DisconnectCause.TOO_MANY_UNAUTHENTICATED, _MADE_ROOM
            elif error.errno in OUT_OF_DESCRIPTORS:
                cause, detail = DisconnectCause.OUT_OF_FILE_DESCRIPTORS, words_of(error)
            elif not isinstance(error, TimeoutError):
                cause, detail = DisconnectCause.CLIENT_RESET, ""
        except BaseException:
            seat.close()
            self._let_go(arrival.stream if arrival is not None else client)
            raise
        seat.close()
        self._let_go(arrival.stream if arrival is not None else client)
        if arrival is None:
            self._count(cause, detail, source, opened_ms)
        else:
            self._count(cause, detail, arrival.source, opened_ms, arrival.user or "")

    def _make_room(self, patience: asyncio.Timeout) -> None:
        if not patience.expired():
            patience.reschedule(self._worker.loop.time())

    def _check_rate(self, source: Endpoint) -> None:
        """Raises TooFast if this address opens connections faster than its rate."""
        rates = self._worker.rates
        if rates is not None:
            delay_ms = rates.delay_ms(source.host, monotonic() * 1000.0)
            if delay_ms > 0.0:
                raise TooFast(source, delay_ms)

    def _ended(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self.upstreams.ended(connection)

    def _relay(
        self,
        arrival: Arrival,
        node_id: int | None,
        footprint: Footprint[Connection],
        guest: Guest,
    ) -> None:
        new_session, new_connection = self._path.session, self._path.connection
        leads_to = self.upstreams.name_of(node_id)
        session = new_session(self._shared, self.policy, arrival.source.host, arrival.user, leads_to)
        connection = new_connection(
            self._worker, arrival.stream, None, session, arrival.peer, footprint, self._ended, guest,
            ClientDial(self.upstreams, arrival, node_id),
        )  # fmt: skip
        self.connections.add(connection)
        connection.start()

    def _let_go(self, client: Stream) -> None:
        """Close in order: on unread bytes (clients speak first) it would be a reset."""
        with suppress(OSError):
            client.recv_into(self._worker.view)
        client.close()

    def _count(
        self, cause: DisconnectCause, detail: str, source: Endpoint, opened_ms: float, user: str = ""
    ) -> None:
        self._shared.recorder.connections.append(
            ConnectionRecord(
                cause=cause,
                detail=detail,
                peer=f"{source.host}:{source.port}",
                user=user,
                client_id="",
                opened_ms=opened_ms,
                closed_ms=monotonic() * 1000.0,
                requests=0,
                bytes_from_client=0,
                bytes_to_client=0,
            )
        )


def _speaks() -> bool:
    """Whose turn it is before there is a broker: the client's."""
    return True
