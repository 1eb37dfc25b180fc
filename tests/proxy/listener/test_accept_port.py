"""How many clients are accepted at once, and what has its turn between a client's accept and its session."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest

from sluice.protocol.proxy_protocol import Endpoint
from sluice.proxy.listener.accept_port import AcceptPort
from testkit.frames.frames import produce
from testkit.frames.wire import Wire, dial
from testkit.peers.fault_broker import FaultBroker, answers
from testkit.processes.ports import LOOPBACK
from testkit.proxy.data_paths import current
from testkit.proxy.local_proxy import LocalProxy, until

pytestmark = pytest.mark.asyncio


class CountedSocket:
    """The port's socket; what its accepts found."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.found: list[bool] = []

    def accept(self) -> tuple[socket.socket, Any]:
        """The next client."""
        try:
            accepted = self._sock.accept()
        except BlockingIOError:
            self.found.append(False)
            raise
        self.found.append(True)
        return accepted

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


class Port:
    """An AcceptPort that keeps whom it accepts, and waits as it is told."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.poller = current().poller(loop)
        self.accepted: list[socket.socket] = []
        self.wakes: list[int] = []
        self.wait_s = 0.0
        self._port = AcceptPort(self.poller, loop, LOOPBACK, 0, self._take, None, self._waits)
        self.sock = CountedSocket(self._port._socket)
        self._port._socket = self.sock  # type: ignore[assignment]  # as far as it is called
        self._port.start()

    def __enter__(self) -> Port:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self._port.stop()
        self.poller.close()
        for client in self.accepted:
            client.close()

    def _waits(self, somebody_waits: bool) -> float:
        if somebody_waits:
            self.wakes.append(0)
        return self.wait_s

    def _take(self, client: socket.socket, source: Endpoint) -> None:
        self.accepted.append(client)
        self.wakes[-1] += 1

    async def client(self) -> Wire:
        """One more."""
        return await dial(self._port.port)


async def test_of_clients_that_come_one_by_one_only_each_ninth_is_followed_by_asking_in_vain() -> None:
    with Port() as port:
        for number in range(1, 19):
            with await port.client():
                await until(lambda number=number: len(port.accepted) == number)  # type: ignore[misc]
        assert port.sock.found == [True, False, *[True] * 9, False, *[True] * 8]


async def test_a_storm_is_accepted_in_some_wakes_no_more_than_64_at_once() -> None:
    with Port() as port:
        port.wait_s = 0.05
        clients = [await port.client() for _ in range(200)]
        port.wait_s = 0.0
        await until(lambda: len(port.accepted) == 200)
        for client in clients:
            client.close()
        sizes = [accepted for accepted in port.wakes if accepted]
        assert max(sizes) <= 64
        assert len(sizes) <= 20, "one by one at first, then 2, 4, 8 … 64"


async def in_rounds(loop: asyncio.AbstractEventLoop, done: Callable[[], bool]) -> int:
    """Rounds of the loop until then."""
    rounds = 0
    while not done():
        rounds += 1
        assert rounds < 10_000
        await asyncio.sleep(0)
    return rounds


async def test_who_is_served_has_his_turn_between_a_newcomers_accept_and_his_session() -> None:
    """Both are there at once, the newcomer first: his session is made when the other's request is gone."""
    async with FaultBroker(answers) as broker, LocalProxy(broker.port) as proxy:
        with await proxy.client() as served:
            await served.send(produce(correlation_id=1))
            await served.frame()
            seen: list[str] = []
            (connection,) = proxy.connections
            listener = proxy.listener
            forward, relay = connection._client.on_readable, listener._relay
            connection._client.call(lambda: (seen.append("served"), forward())[1], True)  # type: ignore[func-returns-value]
            listener._relay = lambda *given: (seen.append("session"), relay(*given))[1]  # type: ignore[method-assign, func-returns-value]
            newcomer = socket.create_connection((LOOPBACK, listener.port))
            served.sock.send(produce(correlation_id=2))
            try:
                await in_rounds(asyncio.get_running_loop(), lambda: len(seen) >= 2)
            finally:
                newcomer.close()
            assert seen[:2] == ["served", "session"]


async def test_who_was_accepted_when_the_listener_stops_is_let_go_in_order() -> None:
    async with FaultBroker(answers) as broker, LocalProxy(broker.port) as proxy:
        listener = proxy.listener
        with socket.create_connection((LOOPBACK, listener.port)) as client:
            client.setblocking(False)
            await in_rounds(asyncio.get_running_loop(), lambda: bool(listener._accepted))
            limits = proxy._worker.limits
            assert limits.connections == 1
            listener.stop()
            assert limits.connections == 0
            await asyncio.sleep(0)
            assert not listener.connections
            assert client.recv(1) == b""
