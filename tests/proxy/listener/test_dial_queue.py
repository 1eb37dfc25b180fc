"""Many clients at once before a broker that takes its connections slowly: they wait, nobody is refused."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from sluice.proxy.listener.circuit import Circuit
from sluice.proxy.listener.dial_queue import MAX_DIALS, DialQueue
from sluice.proxy.session.causes import DisconnectCause
from testkit.frames.frames import produce
from testkit.frames.wire import Wire
from testkit.peers.fault_broker import FaultBroker, answers
from testkit.processes.ports import LOOPBACK, full_port
from testkit.proxy.local_proxy import LocalProxy, until

pytestmark = pytest.mark.asyncio
CLIENTS = 3 * MAX_DIALS


@asynccontextmanager
async def clients_of(proxy: LocalProxy, count: int) -> AsyncIterator[list[Wire]]:
    clients = await asyncio.gather(*(proxy.client() for _ in range(count)))
    try:
        yield clients
    finally:
        for client in clients:
            client.close()


async def is_served(client: Wire) -> bool:
    await client.send(produce(correlation_id=4))
    return (await client.frame())[4:8] == (4).to_bytes(4, "big")


async def test_all_clients_of_a_broker_that_accepts_slowly_are_served_and_none_is_refused() -> None:
    async with (
        FaultBroker(answers, backlog=8, accepts_after_s=2.5) as broker,
        LocalProxy(broker.port, dial_timeout_s=0.8, dial_total_s=60.0) as proxy,
    ):
        with capture_logs() as lines:
            async with clients_of(proxy, CLIENTS) as clients, asyncio.timeout(60.0):
                assert all(await asyncio.gather(*(is_served(client) for client in clients)))
        assert [line["event"] for line in lines if line["log_level"] == "error"] == []
        await until(lambda: not proxy.connections)
        assert {record.cause for record in proxy.ended} == {DisconnectCause.CLIENT_CLOSED}


async def test_a_dial_that_times_out_is_tried_again_opens_no_circuit_and_is_told_once() -> None:
    with full_port() as server:
        async with LocalProxy(server.getsockname()[1], dial_timeout_s=0.2, dial_total_s=30.0) as proxy:
            with capture_logs() as lines, await proxy.client() as client, await proxy.client() as other:
                await client.send(produce())
                await other.send(produce())
                circuit = proxy.circuits.of((LOOPBACK, server.getsockname()[1]))
                await until(lambda: circuit.failures >= 4)
                assert circuit.is_closed
                assert circuit.refused == 0
                await client.silence()
                await other.silence()
            assert [line["event"] for line in lines] == ["upstream_accepts_slowly"]


async def test_who_waited_for_as_long_as_clients_do_is_let_go() -> None:
    with full_port() as server:
        async with LocalProxy(server.getsockname()[1], dial_timeout_s=0.2, dial_total_s=0.5) as proxy:
            with await proxy.client() as client:
                await client.send(produce())
                assert await client.end() == "closed"
            ended = await proxy.end()
            assert ended.cause == DisconnectCause.UPSTREAM_UNREACHABLE
            assert "0.5 s" in ended.detail


@asynccontextmanager
async def all_dials_waiting(
    count: int,
) -> AsyncIterator[tuple[LocalProxy, socket.socket, list[Wire], Circuit]]:
    """`count` clients, of which MAX_DIALS are being dialled for; the full port."""
    with full_port() as server:
        port = server.getsockname()[1]
        async with (
            LocalProxy(port, dial_timeout_s=0.6, dial_total_s=60.0) as proxy,
            clients_of(proxy, count) as clients,
        ):
            await asyncio.gather(*(client.send(produce()) for client in clients))
            circuit = proxy.circuits.of((LOOPBACK, port))
            await until(lambda: circuit.under_way == MAX_DIALS)
            yield proxy, server, clients, circuit


async def test_clients_that_leave_while_they_wait_free_their_places_for_others() -> None:
    async with all_dials_waiting(2 * MAX_DIALS) as (proxy, _, clients, circuit):
        leaving, waiting = clients[:-1], clients[-1]
        for number, client in enumerate(leaving):
            if number % 2:
                client.close()
            else:
                client.reset()
        await until(lambda: len(proxy.ended) == len(leaving))
        assert {record.cause for record in proxy.ended} == {DisconnectCause.CLIENT_CLOSED}
        await until(lambda: circuit.under_way == 1)
        await waiting.silence()


async def test_a_refused_connection_still_opens_the_circuit_for_those_who_wait() -> None:
    async with all_dials_waiting(MAX_DIALS + 8) as (_, server, clients, circuit):
        server.close()
        assert {await client.end() for client in clients} == {"closed"}
        assert not circuit.is_closed


async def test_no_more_dials_at_a_time_than_a_brokers_queue_holds() -> None:
    begun, most = 0, 0

    async def dials() -> None:
        nonlocal begun, most
        async with queue.place(("a", 9092)):
            begun += 1
            most = max(most, begun)
            await asyncio.sleep(0)
            begun -= 1

    queue = DialQueue()
    await asyncio.gather(*(dials() for _ in range(5 * MAX_DIALS)))
    assert most == MAX_DIALS
    assert len(queue) == 0  # brokers that move leave nothing behind
