"""connection_creation_rate at a listener: who is too fast is left unserved and closed, and nobody else."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest

from sluice.protocol.proxy_protocol import build_v2
from sluice.proxy.connection.limits import ConnectionLimits, Seat
from sluice.proxy.connection.spare_files import SpareFiles
from sluice.proxy.listener.delayed_close import HeldBack
from sluice.proxy.session.causes import DisconnectCause
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits
from testkit.frames.frames import produce
from testkit.frames.wire import Wire
from testkit.peers.fault_broker import FaultBroker, answers
from testkit.processes.ports import LOOPBACK
from testkit.proxy.local_proxy import LocalProxy, until
from testkit.proxy.secured_proxy import SecuredProxy

pytestmark = pytest.mark.asyncio
RATE = DisconnectCause.CONNECTION_CREATION_RATE
ASK = produce(correlation_id=4)


def limits_of(rate: int, address: str | None = None, *, shadow: bool = False) -> QuotaLimits:
    entity = QuotaEntity(ip=address or DEFAULT)
    key = "connection_creation_rate"
    return QuotaLimits([(entity, {key: rate})], shadow={entity: [key]} if shadow else {})


def is_closed(client: socket.socket) -> bool:
    return client.fileno() < 0


async def is_served(client: Wire) -> bool:
    await client.send(ASK)
    return (await client.frame())[4:8] == (4).to_bytes(4, "big")


async def test_who_connects_too_fast_is_left_unserved_and_closed_when_it_may_come_again() -> None:
    """1 a second: the second connection is closed after a second, and a third is served."""
    async with FaultBroker(answers) as broker, LocalProxy(broker.port, limits_of(1)) as proxy:
        with await proxy.client() as first, await proxy.client() as second:
            begun_s = time.monotonic()
            await second.send(ASK)
            assert await is_served(first)
            assert await second.end() == "closed"
            assert time.monotonic() - begun_s >= 0.7
            assert len(broker.clients) == 1, "who is refused costs no dial"
        record = await proxy.end()
        assert (record.cause, record.requests, record.bytes_to_client) == (RATE, 0, 0)
        assert record.peer.startswith(f"{LOOPBACK}:")
        with await proxy.client() as third:
            assert await is_served(third)


async def test_an_address_that_has_its_own_limit_is_not_held_to_the_default() -> None:
    async with FaultBroker(answers) as broker, LocalProxy(broker.port, limits_of(50, LOOPBACK)) as proxy:
        clients = [await proxy.client() for _ in range(20)]
        try:
            for client in clients:
                assert await is_served(client)
        finally:
            for client in clients:
                client.close()


async def test_a_limit_set_while_traffic_flows_holds_for_the_next_connection() -> None:
    async with FaultBroker(answers) as broker, LocalProxy(broker.port) as proxy:
        for _ in range(5):
            with await proxy.client() as client:
                assert await is_served(client)
        proxy.shared.quotas.reload(limits_of(1), 0.0)
        with await proxy.client() as first, await proxy.client() as second:
            assert await is_served(first)
            assert await second.end() == "closed"


async def test_a_limit_in_shadow_mode_refuses_nobody() -> None:
    async with FaultBroker(answers) as broker, LocalProxy(broker.port, limits_of(1, shadow=True)) as proxy:
        for _ in range(5):
            with await proxy.client() as client:
                assert await is_served(client)


async def test_behind_a_balancer_the_rate_is_that_of_each_client() -> None:
    listener = {"proxy_protocol_from": ["127.0.0.0/8"]}
    async with (
        FaultBroker(answers) as broker,
        SecuredProxy(broker.port, limits_of(1), listener=listener) as proxy,
    ):
        clients = [await proxy.client() for _ in range(3)]
        try:
            for client, last in zip(clients, (7, 8, 7), strict=True):
                await client.send(build_v2((f"203.0.113.{last}", 4711), ("192.0.2.1", 9092)))
                if client is not clients[2]:
                    assert await is_served(client)
            assert await clients[2].end() == "closed"
            record = await proxy.end()
            assert (record.cause, record.peer) == (RATE, "203.0.113.7:4711")
        finally:
            for client in clients:
                client.close()


async def test_those_held_back_are_bounded_and_end_with_the_listener() -> None:
    loop = asyncio.get_running_loop()
    held = HeldBack(loop, socket.socket.close, SpareFiles(), max_held=3)
    clients = [socket.socket() for _ in range(5)]
    for client in clients[:4]:
        held.hold(client, 60_000.0)
    assert [is_closed(client) for client in clients] == [False, False, False, True, False]
    held.stop()
    assert len(held) == 0
    held.hold(clients[4], 1.0)
    await until(lambda: is_closed(clients[4]))
    assert all(map(is_closed, clients))


async def test_those_held_back_take_no_descriptor_that_a_connection_may_need() -> None:
    limits = ConnectionLimits(max_connections=3)
    limits.spare.most = 6
    held = HeldBack(asyncio.get_running_loop(), socket.socket.close, limits.spare)
    seat = limits.admit("10.0.0.1")
    clients = [socket.socket() for _ in range(6)]
    for client in clients[:5]:
        held.hold(client, 60_000.0)
    assert [is_closed(client) for client in clients] == [False] * 4 + [True, False]
    assert isinstance(limits.admit("10.0.0.1"), Seat)
    assert [is_closed(client) for client in clients] == [True] * 2 + [False] * 2 + [True, False]
    assert isinstance(seat, Seat)
    seat.close()
    held.hold(clients[5], 60_000.0)
    assert len(held) == 3
    held.stop()
    assert all(map(is_closed, clients))
    assert limits.spare.has_room


@pytest.mark.parametrize("for_ms", [20.3, 20.4, 20.45])
async def test_nobody_is_closed_before_its_time(for_ms: float) -> None:
    """uvloop's timers count whole milliseconds, so one may call early: its client would come again early."""
    closed = asyncio.Event()

    def close(client: socket.socket) -> None:
        client.close()
        closed.set()

    held = HeldBack(asyncio.get_running_loop(), close, SpareFiles())
    for _ in range(5):
        closed.clear()
        begun_s = time.monotonic()
        held.hold(socket.socket(), for_ms)
        await closed.wait()
        assert time.monotonic() - begun_s >= for_ms / 1000.0
    assert len(held) == 0
