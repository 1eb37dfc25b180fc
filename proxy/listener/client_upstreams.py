"""Which broker each client of one listener goes to: dialled for its first bytes, logged in anew in time, left
when it turns out to be another's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from math import inf
from time import monotonic
from typing import Final

from sluice.proxy.connection.connection import Connection
from sluice.proxy.connection.stream import Stream
from sluice.proxy.connection.undialled import NotConnected
from sluice.proxy.listener.circuit import Address
from sluice.proxy.listener.dial_outcome import BrokerStream
from sluice.proxy.listener.handshake import Arrival
from sluice.proxy.listener.login.relogin import Relogin
from sluice.proxy.listener.route import Route
from sluice.proxy.listener.upstream import Upstream
from sluice.proxy.session.causes import ENDED_BY_BROKER, DisconnectCause
from sluice.proxy.session.gateway.broker_map import in_text
from sluice.proxy.session.session import Session
from sluice.quotas.entity import ANONYMOUS

_UNANSWERED_S: Final = 5.0
"""a client that left has waited so long at least for the first answer, if that is worth a question"""
_BROKERS_KNOWN_S: Final = 5.0
"""How long a client of a broker's port waits for the gateway's first question to be answered."""


class ClientUpstreams:
    """The brokers of one listener's connections."""

    __slots__ = ("_leads_to", "_loop", "_one_of_several", "_relogins", "brokers_known", "route", "upstream")

    def __init__(self, loop: asyncio.AbstractEventLoop, upstream: Upstream, route: Route) -> None:
        self._loop = loop
        self.upstream = upstream
        self.route = route
        self.brokers_known: asyncio.Event | None = None
        """of a gateway that asks for its brokers: it has an answer"""
        self._leads_to: dict[Connection, tuple[int, Address]] = {}  # of a gateway: which broker, and where
        self._relogins: dict[Connection, Relogin] = {}
        self._one_of_several: dict[Connection, float] = {}
        """those that lead to one of several addresses, of a name or of those of any broker: since when"""

    def name_of(self, node_id: int | None) -> str:
        """As the access log calls the broker that a client will come to: the first that is tried."""
        if node_id is not None:
            return str(node_id)
        return in_text(self.route.addresses(None, monotonic() * 1000.0)[0])

    async def find(self, node_id: int) -> None:
        """Until it is known where the broker is. Raises NotConnected if it is not, also after the first
        answer; a gateway that cannot ask lets any broker stand in."""
        if self.brokers_known is None:
            return
        if not self.brokers_known.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(_BROKERS_KNOWN_S):
                    await self.brokers_known.wait()
        if self.route.upstream(node_id) is None:
            raise NotConnected(DisconnectCause.UPSTREAM_UNREACHABLE, "")

    def reached(self, connection: Connection, node_id: int | None, broker: BrokerStream, turn: int) -> Stream:
        """`connection` leads there from now on. `turn`: of the route, when the dial began."""
        session = connection.session
        connection.leads_to = in_text(broker.address)
        others = self.route.addresses(node_id, monotonic() * 1000.0)[1:]
        if broker.there is not None or others:
            self._one_of_several[connection] = monotonic()
        if node_id is None:  # of a broker's own clients nothing is learnt for those that any may serve
            self.route.reached(broker.address, turn)
            session.name_broker(connection.leads_to)
        else:
            self._leads_to[connection] = (node_id, broker.address)
        if broker.session_lifetime_ms:
            new_login = partial(self.upstream.new_login, session.user)
            self._relogins[connection] = Relogin(
                self._loop, connection, new_login, broker.session_lifetime_ms, self.upstream.dial_timeout_s
            )
        return broker.stream

    def end_misled(self) -> None:
        """End, in order, connections to brokers that have moved, or that another stood in for."""
        for connection, (node_id, address) in list(self._leads_to.items()):
            if self.route.upstream(node_id) not in {None, address}:
                del self._leads_to[connection]  # once is enough
                connection.drain(DisconnectCause.BROKER_MOVED)

    def ended(self, connection: Connection) -> None:
        """It leads nowhere any more."""
        self._leads_to.pop(connection, None)
        session = connection.session
        since_s = self._one_of_several.pop(connection, inf)
        if not session.bytes_to_client and _was_left_alone(session, since_s):
            # Only for the broker that will be asked: another one's clients would have it asked for nothing.
            asked = self.route.addresses(None, monotonic() * 1000.0)[0]
            if connection.leads_to == in_text(asked):
                self.upstream.cut_off.set()
        relogin = self._relogins.pop(connection, None)
        if relogin is not None:
            relogin.end()


def _was_left_alone(session: Session, since_s: float) -> bool:
    """Its broker ended it; or, where there are other addresses to go to (since `since_s`; inf: none), said
    nothing for long."""
    if session.pace.close_cause in ENDED_BY_BROKER:
        return True
    return session.in_flight > 0 and monotonic() - since_s >= _UNANSWERED_S


class ClientDial:
    """To the broker that one client wants, for when it sends something that may go there."""

    __slots__ = ("_arrival", "_node_id", "_upstreams")

    def __init__(self, upstreams: ClientUpstreams, arrival: Arrival, node_id: int | None) -> None:
        """`node_id`: of the broker whose port or name the client came by; None: any broker will do."""
        self._upstreams = upstreams
        self._arrival = arrival
        self._node_id = node_id

    def at_once(self, connection: Connection) -> Stream | None:
        """One on this machine, if it takes a connection now."""
        if self._node_id is not None:
            return None
        upstreams = self._upstreams
        broker = upstreams.upstream.at_once(upstreams.route.addresses(None, monotonic() * 1000.0))
        return None if broker is None else upstreams.reached(connection, None, broker, upstreams.route.turn())

    async def connect(self, connection: Connection) -> Stream:
        """Once it is known where that broker is, and with the proxy's login. Raises NotConnected."""
        upstreams, arrival, node_id = self._upstreams, self._arrival, self._node_id
        if node_id is not None:
            await upstreams.find(node_id)
        turn = upstreams.route.turn()

        def addresses() -> Sequence[Address]:
            return upstreams.route.addresses(node_id, monotonic() * 1000.0)

        user = ANONYMOUS if arrival.user is None else arrival.user
        ends = (arrival.source, arrival.destination)
        broker = await upstreams.upstream.connect(addresses, user, ends, connection.is_given_up)
        return upstreams.reached(connection, node_id, broker, turn)
