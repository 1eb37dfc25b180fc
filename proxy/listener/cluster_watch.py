"""Asks a gateway's cluster for its brokers, at the start and at intervals.

At the start, so that a client with old metadata finds its broker after a restart of the proxy; in between the
answers that pass teach the map (session/gateway/broker_map.py). Where any answer tells another address of a
broker that is known, the broker there is asked at once, and believed: who told it may be out of date.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Final

from sluice.protocol.addresses.metadata_poll import brokers_of, metadata_request
from sluice.protocol.addresses.walks import Address as Listed
from sluice.protocol.errors import MalformedFrame, ProtocolError
from sluice.protocol.headers import SIZE_BYTES
from sluice.proxy.connection.stream import receive_exactly, send_all
from sluice.proxy.connection.undialled import NotConnected
from sluice.proxy.listener.circuit import Address
from sluice.proxy.listener.host_addresses import SocketAddress
from sluice.proxy.listener.route import Route
from sluice.proxy.listener.upstream import Upstream
from sluice.proxy.runtime.error_words import words_of
from sluice.proxy.runtime.log import get_logger
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.gateway.broker_map import BrokerMap, in_text

_ANSWER_TIMEOUT_S: Final = 10.0
_MAX_ANSWER_BYTES: Final = 4 * 1024 * 1024
"""of brokers alone: more than 10,000 of them"""
_RETRY_S: Final = 1.0
_LOOKS: Final = 3
"""at what is said of a broker: it may be told before its listener takes connections"""
_FIRST_TIMEOUT_S: Final = 2.0
"""at the start each upstream has so long once: clients wait for the first answer, 5 s at most"""
_MAX_SAID_CLAIMS: Final = 1_000

_log = get_logger()


@dataclass(slots=True)
class _Question:
    """How far one question has come."""

    turn: int = 0
    """of the route, when it began"""
    asked_of: str = ""
    connected: Address | None = None
    there: SocketAddress | None = None
    """as BrokerStream.there"""
    was_heard: bool = False


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
        self._said: dict[int, Address] = {}
        self._said_out_of_range: tuple[int, ...] = ()
        self._said_claims: set[tuple[int, Address]] = set()
        self._failing = False
        self._hurried = len(route.addresses(None, monotonic() * 1000.0))
        """so many questions of the start are not waited for to the end"""
        self._claimed: asyncio.Queue[tuple[int, Address]] = asyncio.Queue()
        brokers.when_claimed = lambda *claim: self._claimed.put_nowait(claim)

    async def run(self) -> None:
        """Ask for the brokers again and again, and those that are said to have moved, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._look_at_claims(tasks))
            while True:
                is_hurried = self._hurried > 0
                good = await self._refresh()
                again_s = 0.0 if is_hurried else min(_RETRY_S, self._refresh_s)
                await asyncio.sleep(self._refresh_s if good else again_s)

    async def _refresh(self) -> bool:
        question = _Question(self._route.turn())
        timeout_s = min(_FIRST_TIMEOUT_S, _ANSWER_TIMEOUT_S) if self._hurried > 0 else _ANSWER_TIMEOUT_S
        self._hurried -= 1
        try:
            async with asyncio.timeout(timeout_s):
                found = await self._ask(self._route.addresses(None, monotonic() * 1000.0), question)
        except (NotConnected, ProtocolError, OSError, TimeoutError) as error:
            self._came_to_nothing(question, error)
            return False
        self._failing = False
        self._hurried = 0
        if question.connected is not None:
            self._route.reached(question.connected)
        self._learn(found)
        self.answered.set()
        self._tell_brokers()
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

    def _came_to_nothing(self, question: _Question, error: Exception) -> None:
        if not self._failing:  # once, until it goes again
            _log.warning(
                "brokers_not_asked",
                listener=self._name,
                upstream=question.asked_of,
                reason=_why(error),
            )
        self._failing = True
        if isinstance(error, OSError):
            self._upstream.gave_no_answer(question.there)
        if isinstance(error, TimeoutError) and question.connected is not None:
            self._route.silent(question.connected, question.turn)
        elif isinstance(error, OSError) and not question.was_heard:
            self._upstream.cut_off.set()

    def _tell_brokers(self) -> None:
        now = self._brokers.upstreams
        if now != self._said:
            self._said = now
            _log.info(
                "brokers", listener=self._name, brokers={i: in_text(address) for i, address in now.items()}
            )

    async def _ask(self, addresses: Sequence[Address], question: _Question) -> list[Listed]:
        """The brokers as the first of `addresses` that can be had tells them."""
        self._asked += 1
        number = self._asked
        question.asked_of = ", ".join(map(in_text, addresses))
        broker = await self._upstream.connect(lambda: addresses, None, None)
        question.asked_of, question.there = in_text(broker.address), broker.there
        question.connected = broker.address
        try:
            await send_all(self._loop, broker.stream, metadata_request(number, "sluice"))
            size = await receive_exactly(self._loop, broker.stream, SIZE_BYTES)
            question.was_heard = True
            length = int.from_bytes(size, "big", signed=True)
            if not 0 < length <= _MAX_ANSWER_BYTES:
                raise MalformedFrame(f"answer of {length} bytes to our Metadata")
            frame = size + await receive_exactly(self._loop, broker.stream, length)
        finally:
            broker.stream.close()
        return brokers_of(frame, number)

    def _learn(self, listed: Sequence[Listed]) -> None:
        for found in listed:
            self._brokers.learn(found.node_id, found.host, found.port)
            self._brokers.advertised(found.node_id)  # notes an id that has no port
        self._brokers.listed([found.node_id for found in listed], monotonic() * 1000.0)

    async def _look_at_claims(self, tasks: asyncio.TaskGroup) -> None:
        """Each at once: a broker's clients wait for it, and one address that says nothing takes its time."""
        while True:
            tasks.create_task(self._look_at(*await self._claimed.get()))

    async def _look_at(self, node_id: int, address: Address) -> None:
        """Whether the broker has moved there."""
        is_true = False
        try:
            for _ in range(_LOOKS):
                is_true = await self._is_there(node_id, address)
                if is_true:
                    break
                await asyncio.sleep(_RETRY_S)  # so often is it asked at most, however often it is told
            else:
                self._tell_claim(node_id, address)
        finally:
            self._brokers.settle(node_id, address, is_true=is_true)
        self._tell_brokers()

    async def _is_there(self, node_id: int, address: Address) -> bool:
        """By its own word. Who may tell what was is not asked, nor a majority: of two it could be either.
        Where a broker is that cannot be asked, it is believed while nobody can be asked for the brokers."""
        question = _Question()
        try:
            async with asyncio.timeout(_ANSWER_TIMEOUT_S):
                listed = await self._ask([address], question)
        except NotConnected as error:
            return self._failing and error.cause is DisconnectCause.UPSTREAM_LOGIN_FAILED
        except (ProtocolError, OSError, TimeoutError):
            return self._failing and question.connected is not None
        return (node_id, *address) in [(found.node_id, found.host, found.port) for found in listed]

    def _tell_claim(self, node_id: int, address: Address) -> None:
        """Once of each; it may be told by every answer."""
        if (node_id, address) not in self._said_claims and len(self._said_claims) < _MAX_SAID_CLAIMS:
            self._said_claims.add((node_id, address))
            _log.warning(
                "broker_is_not_there",
                listener=self._name,
                node_id=node_id,
                upstream=in_text(address),
                reason="another broker tells this address, and there no broker says that it is its own",
            )


def _why(error: Exception) -> str:
    """In words. Of a broker that could not be had the log may have told the reason already."""
    if isinstance(error, NotConnected):
        return error.detail or str(error.cause)
    return words_of(error)
