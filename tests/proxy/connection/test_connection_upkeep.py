"""What connections keep counts in the budget, and the sweep ends those in which nothing moves; real sockets.

Time is given to the sweep, so nothing here waits for it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from contextlib import ExitStack
from random import Random

import psutil
import pytest

from sluice.proxy.connection.budget import FLOOR_BYTES, BufferBudget
from sluice.proxy.connection.connection import Connection
from sluice.proxy.connection.timeouts import WatchRules, WatchTimeouts
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.policy import SessionPolicy
from testkit.frames.frames import SASL_HANDSHAKE, fetch, produce, produce_of, request, sized
from testkit.frames.wire import Wire, dial, most_on_the_way_bytes
from testkit.peers.fault_broker import (
    BrokerSide,
    FaultBroker,
    answer_of,
    answers,
    never_answers,
    never_reads,
)
from testkit.processes.ports import LOOPBACK, free_port
from testkit.proxy.local_proxy import LocalProxy, until
from testkit.proxy.playbook import limits_of
from testkit.proxy.sluice_process import Door, SluiceProcess

pytestmark = pytest.mark.asyncio
MIB = 1024 * 1024
KIB = 1024
ANSWER_BYTES = 6 * MIB
RULES = WatchRules(WatchTimeouts(authentication_s=20.0, slow_frame_s=30.0, stopped_s=600.0, idle_s=900.0))


def budget_of(proxy: LocalProxy, max_bytes: int) -> BufferBudget[Connection]:
    """From now on new connections share this one."""
    budget = BufferBudget[Connection](max_bytes)
    proxy.listener._worker.budget = budget
    return budget


def kept_bytes(proxy: LocalProxy) -> int:
    return sum(connection._kept_bytes() for connection in proxy.connections)


async def stands_still(proxy: LocalProxy) -> None:
    """Nothing moves in any of the connections any more."""
    seen: list[tuple[int, int]] = []
    while True:
        now = [(each.session.bytes_from_client, each.session.bytes_to_client) for each in proxy.connections]
        if now == seen and now:
            return
        seen = now
        await asyncio.sleep(0.2)


def answer_to_fetch(number: int) -> bytes:
    return sized(struct.pack(">i", number) + b"\0" + Random(number).randbytes(ANSWER_BYTES))


async def answers_hugely(client: BrokerSide) -> None:
    """Each Fetch, with an answer that depends on its correlation id alone."""
    while True:
        asked = await client.request()
        await client.send(answer_to_fetch(asked.correlation_id))


async def stopped_clients(proxy: LocalProxy, count: int, stack: ExitStack) -> list[Wire]:
    """They have asked for much and read nothing."""
    clients = []
    for number in range(count):
        client = stack.enter_context(await proxy.client(receive_buffer_bytes=65_536))
        await client.send(fetch(correlation_id=number))
        clients.append(client)
    await stands_still(proxy)
    return clients


# The budget -------------------------------------------------------------------------------------------------


async def test_many_stopped_readers_keep_no_more_than_the_floor_each_above_the_soft_part() -> None:
    """Budget 8 MiB, share 4, soft 1: 16 connections keep at most 1 MiB + 16 × 16 KiB, instead of 16 MiB."""
    async with FaultBroker(answers_hugely) as broker, LocalProxy(broker.port) as proxy:
        budget = budget_of(proxy, 8 * MIB)
        with ExitStack() as stack:
            clients = await stopped_clients(proxy, 16, stack)
            assert 0 < kept_bytes(proxy) == budget.kept_bytes <= MIB + 16 * FLOOR_BYTES
            for number, client in enumerate(clients):
                assert await client.frame() == answer_to_fetch(number)
            await until(lambda: kept_bytes(proxy) == budget.kept_bytes == 0)
            assert not proxy.ended
        await until(lambda: len(proxy.ended) == 16)
        assert budget.shares() == 0


async def test_a_share_that_is_full_costs_connections_and_the_others_are_served() -> None:
    """Budget 128 KiB, share 64, so 4 pieces of 16 KiB; 8 requests of 40 kB wait for their turn."""
    async with FaultBroker(answers) as broker, LocalProxy(broker.port, limits_of(100_000)) as proxy:
        budget = budget_of(proxy, 128 * KIB)
        with await proxy.client() as neighbour, ExitStack() as stack:
            await neighbour.send(produce_of(200_000))  # a second into debt
            await neighbour.frame()
            clients = [stack.enter_context(await proxy.client()) for _ in range(8)]
            for client in clients:
                await client.send(produce_of(40_000))
            await until(lambda: len(proxy.ended) == 4)
            assert kept_bytes(proxy) == budget.kept_bytes <= 64 * KIB
            assert {record.cause for record in proxy.ended} == {DisconnectCause.BUFFERED_BYTES_OVER_CAP}
            ends = await asyncio.gather(*(client.frame() for client in clients), return_exceptions=True)
            assert sum(isinstance(end, bytes) for end in ends) == 4
        await until(lambda: len(proxy.ended) == 9)
        assert (budget.kept_bytes, budget.shares()) == (0, 0)


async def test_what_brokers_do_not_take_counts_too_and_goes_on_in_order() -> None:
    go_on, arrived = asyncio.Event(), dict[int, bytes]()

    async def reads_late(client: BrokerSide) -> None:
        await go_on.wait()
        asked = await client.request()
        arrived[asked.correlation_id] = asked.frame
        await client.rest()

    requests = [produce_of(6 * MIB, correlation_id=number) for number in range(8)]
    async with (
        FaultBroker(reads_late, receive_buffer_bytes=65_536) as broker,
        LocalProxy(broker.port) as proxy,
    ):
        budget = budget_of(proxy, 8 * MIB)
        with ExitStack() as stack:
            clients = [stack.enter_context(await proxy.client()) for _ in requests]
            sending = asyncio.gather(
                *(client.send(frame) for client, frame in zip(clients, requests, strict=True))
            )
            await stands_still(proxy)
            assert 0 < kept_bytes(proxy) == budget.kept_bytes <= MIB + 8 * FLOOR_BYTES
            go_on.set()
            await sending
            await until(lambda: len(arrived) == 8)
            assert [arrived[number] for number in range(8)] == requests
            await until(lambda: kept_bytes(proxy) == budget.kept_bytes == 0)


async def test_requests_that_wait_for_their_turn_count_until_they_go() -> None:
    async with FaultBroker(answers) as broker, LocalProxy(broker.port, limits_of(100_000)) as proxy:
        budget = budget_of(proxy, 8 * MIB)
        with await proxy.client() as neighbour, await proxy.client() as client:
            await neighbour.send(produce_of(150_000))  # half a second into debt
            await neighbour.frame()
            await client.send(produce_of(30_000))
            await until(lambda: budget.kept_bytes == kept_bytes(proxy) == 30_000)
            await client.frame()
            assert budget.kept_bytes == kept_bytes(proxy) == 0


async def test_a_process_whose_clients_all_stop_reading_grows_by_their_share_and_no_more() -> None:
    """50 clients of one user, who has a share of 4 MiB; without it they kept 13 MiB. Seen from outside."""
    passed = [0]

    async def answers_in_pieces(client: BrokerSide) -> None:
        while True:
            answer = answer_of(await client.request(), ANSWER_BYTES)
            for start in range(0, len(answer), 64 * KIB):
                await client.send(answer[start : start + 64 * KIB])
                passed[0] += 1

    async with FaultBroker(answers_in_pieces) as broker:
        door = Door("D0", free_port(), (LOOPBACK, broker.port))
        limits = {"max_buffered_bytes": 8 * MIB, "max_buffered_bytes_per_user": 4 * MIB}
        proxy = SluiceProcess([door], limits=limits)
        await asyncio.to_thread(proxy.__enter__)
        try:
            process = psutil.Process(proxy.process.pid)
            with ExitStack() as stack:
                clients = [
                    stack.enter_context(await dial(door.port, receive_buffer_bytes=65_536)) for _ in range(50)
                ]
                await clients[0].send(fetch())
                await clients[0].frame()  # the receive buffer is in use from now on
                before_bytes = process.memory_info().rss
                for client in clients:
                    await client.send(fetch())
                seen = -1
                while seen != passed[0]:
                    seen = passed[0]
                    await asyncio.sleep(0.5)
                grown_bytes = process.memory_info().rss - before_bytes
                assert grown_bytes < 6 * MIB
                for client in clients:
                    assert len(await client.frame()) == ANSWER_BYTES
        except BaseException as error:
            await asyncio.to_thread(proxy.__exit__, type(error), error, None)
            raise
        await asyncio.to_thread(proxy.__exit__, None, None, None)


# The sweep --------------------------------------------------------------------------------------------------


class Sweeps:
    """Sweeps over all connections, at times that are given in seconds."""

    def __init__(self, proxy: LocalProxy) -> None:
        self._proxy = proxy
        self._begun_ms = proxy.listener._worker.clock.now_ms

    def __call__(self, at_s: float) -> list[DisconnectCause]:
        """Returns the causes of what has ended so far."""
        for connection in tuple(self._proxy.connections):
            connection.sweep(self._begun_ms + at_s * 1_000.0, RULES)
        return [DisconnectCause(record.cause) for record in self._proxy.ended]


async def test_a_frame_that_has_begun_and_does_not_go_on_ends_its_connection_and_no_other() -> None:
    async with FaultBroker(answers) as broker, LocalProxy(broker.port) as proxy:
        sweeps = Sweeps(proxy)
        with await proxy.client() as good, await proxy.client() as slow:
            await good.send(produce())
            await good.frame()
            for at_s, part in enumerate(produce()[:10].hex(" ").split(), 1):
                await slow.send(bytes.fromhex(part))
                await until(lambda at_s=at_s: at_s in map(Connection._kept_bytes, proxy.connections))  # type: ignore[misc]
                assert sweeps(at_s) == []
            assert sweeps(30.5) == []
            assert sweeps(31.5) == [DisconnectCause.SLOW_FRAME]
            await good.send(produce())
            await good.frame()


async def test_an_idle_connection_is_ended_and_one_that_waits_for_an_answer_is_not() -> None:
    async with FaultBroker(never_answers_in_time) as broker, LocalProxy(broker.port) as proxy:
        sweeps = Sweeps(proxy)
        with await proxy.client() as idle, await proxy.client() as waiting:
            await waiting.send(produce())
            await until(lambda: any(each.session.in_flight for each in proxy.connections))
            await until(lambda: len(proxy.connections) == 2)
            assert sweeps(0.0) == sweeps(899.0) == []
            assert sweeps(901.0) == sweeps(9_000.0) == [DisconnectCause.IDLE]
            assert await idle.end() == "closed"


async def never_answers_in_time(client: BrokerSide) -> None:
    await client.rest()


async def test_a_login_that_is_not_finished_ends_its_connection() -> None:
    policy = SessionPolicy(authentication_required=True)
    async with FaultBroker(answers) as broker, LocalProxy(broker.port, policy=policy) as proxy:
        sweeps = Sweeps(proxy)
        with await proxy.client() as client:
            await until(lambda: bool(proxy.connections))
            assert sweeps(19.0) == []
            assert sweeps(21.0) == [DisconnectCause.AUTHENTICATION_TIMEOUT]
            assert await client.end() == "closed"


async def test_a_client_that_leaves_while_the_broker_has_its_login_is_noticed() -> None:
    """It is not read then: its place, and the broker's connection, were kept until the time for a login was
    over."""
    policy = SessionPolicy(authentication_required=True, takes_logins=True)
    async with FaultBroker(never_answers) as broker, LocalProxy(broker.port, policy=policy) as proxy:
        client = await proxy.client()
        await client.send(request(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}))
        await until(lambda: any(each.session.in_flight for each in proxy.connections))
        (connection,) = proxy.connections
        sweeps = Sweeps(proxy)
        assert sweeps(1.0) == []
        client.close()
        await until(lambda: connection._client.has_left)
        assert sweeps(2.0) == sweeps(11.0) == []
        assert sweeps(12.5) == [DisconnectCause.CLIENT_CLOSED]


async def test_a_client_that_reads_nothing_for_long_is_ended_and_one_that_reads_a_little_is_not() -> None:
    async with FaultBroker(answers_hugely) as broker, LocalProxy(broker.port) as proxy:
        with ExitStack() as stack:
            stopped, sipping = await stopped_clients(proxy, 2, stack)
            sweeps = Sweeps(proxy)
            assert sweeps(0.0) == []
            await sipping.read(5 * MIB)
            await stands_still(proxy)
            assert sweeps(599.0) == []
            assert sweeps(601.0) == [DisconnectCause.CLIENT_STOPPED_READING]
            assert sweeps(1_198.0) == [DisconnectCause.CLIENT_STOPPED_READING]
            _, end = await stopped.rest()
            assert end in {"closed", "reset"}


async def test_a_client_that_has_left_behind_a_broker_that_takes_nothing_is_noticed() -> None:
    async with (
        FaultBroker(never_reads, receive_buffer_bytes=4_096) as broker,
        LocalProxy(broker.port) as proxy,
    ):
        client = await proxy.client()
        await client.send(produce(acks=0))
        await until(lambda: bool(broker.clients))
        (connection,) = proxy.connections
        with socket.socket(fileno=os.dup(connection._broker.sock.fileno())) as same:
            same.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        await client.send(produce_of(60_000))
        await until(lambda: connection._broker.out is not None)
        sweeps = Sweeps(proxy)
        assert sweeps(0.0) == sweeps(500.0) == []
        client.close()
        await until(lambda: connection._client.has_left)
        assert sweeps(501.0) == sweeps(510.0) == []
        assert sweeps(511.5) == [DisconnectCause.CLIENT_CLOSED]


async def test_a_broker_that_takes_nothing_for_long_ends_the_connection() -> None:
    async with FaultBroker(never_reads) as broker, LocalProxy(broker.port) as proxy:
        with await proxy.client() as client:
            sending = asyncio.ensure_future(client.send(produce_of(most_on_the_way_bytes() + MIB)))
            await stands_still(proxy)
            sweeps = Sweeps(proxy)
            assert sweeps(0.0) == sweeps(599.0) == []
            assert sweeps(601.0) == [DisconnectCause.BROKER_STALLED]
            with pytest.raises(OSError, match=r"reset|Broken pipe"):
                await sending


async def test_a_hold_is_nobodys_fault() -> None:
    async with FaultBroker(answers) as broker, LocalProxy(broker.port, limits_of(100_000)) as proxy:
        sweeps = Sweeps(proxy)
        with await proxy.client() as neighbour, await proxy.client() as client:
            await neighbour.send(produce_of(200_000))  # a second into debt
            await neighbour.frame()
            await client.send(produce_of(30_000)[:20_000])
            await until(lambda: any(each.session.pace.is_delayed for each in proxy.connections))
            assert sweeps(0.0) == sweeps(31.0) == sweeps(599.0) == []
