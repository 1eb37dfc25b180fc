"""Asks a gateway's cluster for its brokers, at the start and at intervals.

At the start, so that a client with old metadata finds its broker after a restart of the proxy; in between the
answers that pass teach the map (session/gateway/broker_map.py).
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Final

from sluice.protocol.addresses.metadata_poll import brokers_of, metadata_request
from sluice.protocol.errors import MalformedFrame, ProtocolError
from sluice.protocol.headers import SIZE_BYTES
from sluice.proxy.connection.stream import Stream, receive_exactly, send_all
from sluice.proxy.connection.undialled import NotConnected
from sluice.proxy.listener.circuit import Address
from sluice.proxy.listener.host_addresses import SocketAddress
from sluice.proxy.listener.route import Route
from sluice.proxy.listener.upstream import Upstream
from sluice.proxy.runtime.error_words import words_of
from sluice.proxy.runtime.log import get_logger
from sluice.proxy.session.gateway.broker_map import BrokerMap, in_text

_ANSWER_TIMEOUT_S: Final = 10.0
_MAX_ANSWER_BYTES: Final = 4 * 1024 * 1024
"""of brokers alone: more than 10,000 of them"""
_RETRY_S: Final = 1.0

_log = get_logger()


class ClusterWatch:
    """Keeps the brokers of one gateway listener known."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        name: str,
        upstream: Upstream,
        route: Route,
        brokers: BrokerMap,
        refresh_s: float,
    ) -> None:
        """`name`: the listener's, for the log."""
        self._loop = loop
        self._name = name
        self._upstream = upstream
        self._route = route
        self._brokers = brokers
        self._refresh_s = refresh_s
        self.answered = asyncio.Event()
        """the brokers are known, as far as they are alive"""
        self._asked = 0
        self._asking = ""
        self._there: SocketAddress | None = None
        self._connected: Address | None = None
        self._turn = 0
        self._said_out_of_range: tuple[int, ...] = ()
        self._failing = False

    async def run(self) -> None:
        """Ask for the brokers again and again, until cancelled."""
        while True:
            good = await self._refresh()
            await asyncio.sleep(self._refresh_s if good else min(_RETRY_S, self._refresh_s))

    async def _refresh(self) -> bool:
        before = self._brokers.upstreams
        try:
            async with asyncio.timeout(_ANSWER_TIMEOUT_S):
                await self._ask()
        except (NotConnected, ProtocolError, OSError, TimeoutError) as error:
            if not self._failing:  # once, until it goes again
                _log.warning(
                    "brokers_not_asked",
                    listener=self._name,
                    upstream=self._asking,
                    reason=_why(error),
                )
            if isinstance(error, OSError):
                self._upstream.gave_no_answer(self._there)
            if isinstance(error, TimeoutError) and self._connected is not None:
                self._route.silent(self._connected, self._turn)
            self._failing = True
            return False
        self._failing = False
        self.answered.set()
        now = self._brokers.upstreams
        if now != before:
            _log.info(
                "brokers", listener=self._name, brokers={i: in_text(address) for i, address in now.items()}
            )
        if self._brokers.out_of_range != self._said_out_of_range:
            self._said_out_of_range = self._brokers.out_of_range
            ids = self._brokers.node_ids()
            _log.error(
                "brokers_out_of_range",
                listener=self._name,
                node_ids=self._said_out_of_range,
                configured=f"{ids.start} to {ids.stop - 1}",
                remedy="raise gateway.max_brokers, or set gateway.first_broker_id",
            )
        return True

    async def _ask(self) -> None:
        self._asked += 1
        addresses = self._route.addresses(None, monotonic() * 1000.0)
        self._asking = ", ".join(map(in_text, addresses))
        self._there = self._connected = None
        self._turn = self._route.turn()
        broker = await self._upstream.connect(addresses, None, None)
        self._asking, self._there = in_text(broker.address), broker.there
        self._connected = broker.address
        try:
            size = await self._first_bytes(broker.stream)
            length = int.from_bytes(size, "big", signed=True)
            if not 0 < length <= _MAX_ANSWER_BYTES:
                raise MalformedFrame(f"answer of {length} bytes to our Metadata")
            frame = size + await receive_exactly(self._loop, broker.stream, length)
        finally:
            broker.stream.close()
        self._route.reached(broker.address)
        self._learn(frame)

    async def _first_bytes(self, broker: Stream) -> bytes:
        """The size of the answer to a Metadata that is sent now."""
        try:
            await send_all(self._loop, broker, metadata_request(self._asked, "sluice"))
            return await receive_exactly(self._loop, broker, SIZE_BYTES)
        except OSError:
            self._upstream.cut_off.set()
            raise

    def _learn(self, frame: bytes) -> None:
        listed = brokers_of(frame, self._asked)
        for found in listed:
            self._brokers.learn(found.node_id, found.host, found.port)
            self._brokers.advertised(found.node_id)  # notes an id that has no port
        self._brokers.listed([found.node_id for found in listed], monotonic() * 1000.0)


def _why(error: Exception) -> str:
    """In words. Of a broker that could not be had the log may have told the reason already."""
    if isinstance(error, NotConnected):
        return error.detail or str(error.cause)
    return words_of(error)
