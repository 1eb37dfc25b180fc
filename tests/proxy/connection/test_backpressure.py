"""Readers that stop, sip or gulp, on either side: what the proxy keeps is bounded, and every byte arrives.

A single stop of one side is in test_connection.py. Here stops come again and again, on both sides at once, on
many connections, and together with quotas and a drain.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from random import Random

import pytest

from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.connection_states import State
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits
from testkit.frames.frames import (
    FETCH,
    fetch,
    fetch_answer_of,
    produce,
    produce_of,
    record_batch,
    sized,
    throttle_of,
)
from testkit.frames.wire import WITHIN_S, Wire
from testkit.peers.fault_broker import BrokerSide, FaultBroker, answer_of, answer_to, answers
from testkit.proxy.local_proxy import LocalProxy, until
from testkit.proxy.playbook import limits_of

pytestmark = pytest.mark.asyncio
MIB = 1024 * 1024
WINDOW_BYTES = MIB
SMALL_BUFFER_BYTES = 65_536


def request_of(correlation_id: int, random: Random, payload_bytes: int) -> bytes:
    """A Produce with random records."""
    batch = record_batch(random.randbytes(payload_bytes))
    return produce({"t": [(0, batch)]}, correlation_id=correlation_id)


def answer_with(correlation_id: int, random: Random, payload_bytes: int) -> bytes:
    """An answer whose head is Kafka's and whose rest is random."""
    return sized(struct.pack(">i", correlation_id) + b"\0" + random.randbytes(payload_bytes))


def kept_bytes(proxy: LocalProxy) -> list[int]:
    """What each of the proxy's connections holds in memory, both ways."""
    kept = []
    for connection in proxy.connections:
        places = (connection._client_kept, connection._broker_kept)
        outs = (connection._client.out, connection._broker.out)
        kept.append(sum(len(place or b"") for place in (*places, *outs)))
    return kept


@asynccontextmanager
async def watched(proxy: LocalProxy) -> AsyncIterator[list[int]]:
    """The most that one connection was seen to keep."""
    most = [0]

    async def look() -> None:
        while True:
            most[0] = max(most + kept_bytes(proxy))
            await asyncio.sleep(0.001)

    task = asyncio.ensure_future(look())
    try:
        yield most
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def stands_still(proxy: LocalProxy) -> None:
    """Nothing moves in any of the connections any more."""
    seen: list[tuple[int, int]] = []
    while True:
        now = [(each.session.bytes_from_client, each.session.bytes_to_client) for each in proxy.connections]
        if now == seen and now:
            return
        seen = now
        await asyncio.sleep(0.2)


async def sips(wire: Wire, count: int) -> bytes:
    """Read a little at a time, as little as 1 byte."""
    random, taken = Random(count), bytearray()
    while len(taken) < count:
        room = min(count - len(taken), random.choice([1, 100, 4096, 20_000]))
        async with asyncio.timeout(WITHIN_S):
            data = await asyncio.get_running_loop().sock_recv(wire.sock, room)
        assert data, "ended too soon"
        taken += data
    return bytes(taken)


async def gulps(wire: Wire, count: int) -> bytes:
    """Read as much as there is, and stop reading in between, again and again."""
    random, taken = Random(count), bytearray()
    while len(taken) < count:
        async with asyncio.timeout(WITHIN_S):
            data = await asyncio.get_running_loop().sock_recv(wire.sock, min(count - len(taken), MIB))
        assert data, "ended too soon"
        taken += data
        if random.random() < 0.1:
            await asyncio.sleep(random.choice([0.001, 0.01, 0.05]))
    return bytes(taken)


# One connection, again and again ----------------------------------------------------------------------------

Reads = Callable[[Wire, int], Awaitable[bytes]]


@pytest.mark.parametrize("broker_reads", [sips, gulps])
@pytest.mark.parametrize("client_reads", [sips, gulps])
async def test_however_both_sides_read_every_byte_arrives_and_little_is_kept(
    client_reads: Reads, broker_reads: Reads
) -> None:
    """Requests and answers of up to 5 MiB go both ways at the same time, without waiting for each other."""
    random = Random(20)
    sizes = [random.randint(0, (5 if number % 5 == 3 else 1) * MIB) for number in range(20)]
    requests = b"".join(request_of(number, random, size) for number, size in enumerate(sizes[:10]))
    answered = [answer_with(number, random, size) for number, size in enumerate(sizes[10:])]
    arrived = asyncio.get_running_loop().create_future()

    async def forwarded(count: int) -> None:
        """So many requests have been judged, so that as many answers may come."""
        await until(lambda: any(each.session.requests >= count for each in proxy.connections))

    async def reads_and_answers(client: BrokerSide) -> None:
        async def read() -> None:
            arrived.set_result(await broker_reads(client, len(requests)))

        reading = asyncio.ensure_future(read())
        for number, answer in enumerate(answered):
            await forwarded(number + 1)
            await client.send(answer)
        await reading
        await client.rest()

    async with (
        FaultBroker(reads_and_answers, receive_buffer_bytes=SMALL_BUFFER_BYTES) as broker,
        LocalProxy(broker.port) as proxy,
    ):
        with await proxy.client(receive_buffer_bytes=SMALL_BUFFER_BYTES) as client:
            await client.send(requests[:1000])  # so that there is a broker
            await until(lambda: bool(broker.clients))
            for connection in proxy.connections:  # so that what is kept goes on in many small parts
                for peer in (connection._client, connection._broker):
                    with socket.socket(fileno=os.dup(peer.sock.fileno())) as same:
                        same.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)
            async with watched(proxy) as most:
                sending = asyncio.ensure_future(client.send(requests[1000:]))
                back = b"".join(answered)
                assert await client_reads(client, len(back)) == back
                await sending
                assert await arrived == requests
            assert 0 < most[0] <= 2 * WINDOW_BYTES


# Many connections -------------------------------------------------------------------------------------------

MANY = 10
STOPPED_BYTES = 8 * MIB
"""more than the kernel takes between two sockets of which one is not read"""


async def assert_served(client: Wire) -> None:
    """Nothing is in this connection's way."""
    for number in range(10):
        await client.send(produce(correlation_id=number))
        assert (await client.frame())[4:8] == number.to_bytes(4, "big")


async def test_many_clients_that_stop_reading_keep_one_read_each_and_stand_in_nobodys_way() -> None:
    due = [answer_with(number, Random(number), STOPPED_BYTES) for number in range(MANY)]

    async def answers_all(client: BrokerSide) -> None:
        while True:
            asked = await client.request()
            if asked.api_key == FETCH:
                await client.send(due[asked.correlation_id])
            else:
                await client.send(answer_to(asked))

    async with FaultBroker(answers_all) as broker, LocalProxy(broker.port) as proxy:
        with await proxy.client() as bystander, ExitStack() as stopped:
            clients = []
            for number in range(MANY):
                client = stopped.enter_context(await proxy.client(receive_buffer_bytes=SMALL_BUFFER_BYTES))
                await client.send(fetch(correlation_id=number))
                clients.append(client)
            await stands_still(proxy)
            kept = kept_bytes(proxy)
            assert sum(each > 0 for each in kept) == MANY
            assert max(kept) <= WINDOW_BYTES
            await assert_served(bystander)
            for client, frame in zip(clients, due, strict=True):
                assert await client.frame() == frame
            assert not any(kept_bytes(proxy))


async def test_many_connections_whose_broker_stops_reading_keep_one_read_each() -> None:
    go_on = asyncio.Event()
    arrived: dict[int, bytes] = {}

    async def reads_late(client: BrokerSide) -> None:
        await go_on.wait()
        asked = await client.request()
        arrived[asked.correlation_id] = asked.frame
        await client.send(answer_to(asked))
        await client.rest()

    async def behaves(client: BrokerSide) -> None:
        await (answers if client is broker.clients[0] else reads_late)(client)

    requests = {number: request_of(number, Random(number), STOPPED_BYTES) for number in range(MANY)}
    async with (
        FaultBroker(behaves, receive_buffer_bytes=SMALL_BUFFER_BYTES) as broker,
        LocalProxy(broker.port) as proxy,
    ):
        with await proxy.client() as bystander, ExitStack() as stopped:
            await assert_served(bystander)
            clients = [stopped.enter_context(await proxy.client()) for _ in range(MANY)]
            sending = asyncio.gather(
                *(client.send(requests[number]) for number, client in enumerate(clients))
            )
            await stands_still(proxy)
            kept = kept_bytes(proxy)
            assert sum(each > 0 for each in kept) == MANY
            assert max(kept) <= WINDOW_BYTES
            await assert_served(bystander)
            go_on.set()
            await sending
            for number, client in enumerate(clients):
                assert (await client.frame())[4:8] == number.to_bytes(4, "big")
            assert arrived == requests
            assert not any(kept_bytes(proxy))


# Together with what else stops a connection -----------------------------------------------------------------


async def test_requests_that_are_held_while_their_broker_reads_nothing_all_arrive_in_order() -> None:
    """4 MB/s for 8 MB in requests of 250 kB: the second half waits for its turn and for the broker."""
    requests = [produce_of(250_000, correlation_id=number) for number in range(32)]
    go_on, arrived = asyncio.Event(), list[bytes]()

    async def reads_late(client: BrokerSide) -> None:
        await go_on.wait()
        while True:
            asked = await client.request()
            arrived.append(asked.frame)
            await client.send(answer_to(asked))

    async with (
        FaultBroker(reads_late, receive_buffer_bytes=SMALL_BUFFER_BYTES) as broker,
        LocalProxy(broker.port, limits_of(produce_rate=4_000_000)) as proxy,
    ):
        with await proxy.client() as client:
            async with watched(proxy) as most:
                sending = asyncio.ensure_future(client.send(b"".join(requests)))
                await stands_still(proxy)
                go_on.set()
                for number in range(32):
                    assert (await client.frame())[4:8] == number.to_bytes(4, "big")
                await sending
            assert 0 < most[0] <= 2 * WINDOW_BYTES
    assert arrived == requests


@pytest.mark.parametrize("acks", [1, 0])
async def test_requests_that_had_to_wait_go_on_when_the_broker_has_taken_those_before(acks: int) -> None:
    """Six under a request_percentage may be in flight. Answers make room while the sixth is not taken yet;
    when it is, the seventh was forgotten until the client sent more, and with acks = 0 lost at its end."""
    go_on, arrived = asyncio.Event(), list[int]()

    async def takes_little(client: BrokerSide) -> None:
        await client.send(answer_to(await client.request()))
        small = [await client.request() for _ in range(5)]
        for asked in small[:3]:
            await client.send(answer_to(asked))
        await go_on.wait()
        for asked in small[3:]:
            await client.send(answer_to(asked))
        for _ in range(2):
            asked = await client.request()
            arrived.append(asked.correlation_id)
            if asked.correlation_id != 7 or acks:
                await client.send(answer_to(asked))

    limits = QuotaLimits([(QuotaEntity(DEFAULT, None), {"request_percentage": 10_000.0})])
    async with (
        FaultBroker(takes_little, receive_buffer_bytes=4096) as broker,
        LocalProxy(broker.port, limits) as proxy,
    ):
        with await proxy.client() as client:
            await client.send(produce_of(200, correlation_id=0))
            await client.frame()
            (connection,) = proxy.connections
            with socket.socket(fileno=os.dup(connection._broker.sock.fileno())) as same:
                same.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            large = produce_of(60_000, correlation_id=6)
            small = [produce_of(200, correlation_id=number) for number in range(1, 6)]
            await client.send(b"".join([*small, large, produce_of(200, correlation_id=7, acks=acks)]))
            for _ in range(3):
                await client.frame()
            assert connection.session.pace.state is State.READING
            assert connection._client_kept is not None
            assert connection._broker.out is not None
            go_on.set()
            for _ in range(3):
                await client.frame()
            if acks:
                assert (await client.frame())[4:8] == (7).to_bytes(4, "big")
            else:
                client.finish_sending()
                assert (await proxy.end()).requests == 8
    assert arrived == [6, 7]


async def test_answers_that_mute_a_client_which_does_not_read_them_all_arrive() -> None:
    """10 MB/s for 12 answers of 1 MiB, which the client begins to read when nothing moves any more."""
    frames = [fetch_answer_of(MIB, correlation_id=number) for number in range(12)]

    async def answers_hugely(client: BrokerSide) -> None:
        while True:
            asked = await client.request()
            await client.send(frames[asked.correlation_id])

    async with (
        FaultBroker(answers_hugely) as broker,
        LocalProxy(broker.port, limits_of(fetch_rate=10_000_000)) as proxy,
    ):
        with await proxy.client(receive_buffer_bytes=4096) as client:
            await client.send(b"".join(fetch(correlation_id=number) for number in range(12)))
            await stands_still(proxy)
            assert 0 < max(kept_bytes(proxy)) <= WINDOW_BYTES
            for frame in frames:
                found = await client.frame()
                throttle_at = found.index(struct.pack(">i", throttle_of(FETCH, 12, found)), 8)
                assert found[:throttle_at] + bytes(4) + found[throttle_at + 4 :] == frame


async def test_a_drain_leaves_a_client_that_reads_late_all_of_its_answers() -> None:
    random = Random(3)
    frames = [answer_with(number, random, 6 * MIB) for number in range(3)]

    async def answers_hugely(client: BrokerSide) -> None:
        for frame in frames:
            await client.request()
            await client.send(frame)
        await client.rest()

    async with FaultBroker(answers_hugely) as broker, LocalProxy(broker.port) as proxy:
        with await proxy.client(receive_buffer_bytes=4096) as client:
            await client.send(b"".join(fetch(correlation_id=number) for number in range(3)))
            await stands_still(proxy)
            for connection in tuple(proxy.connections):
                connection.drain()
            await stands_still(proxy)
            for frame in frames:
                assert await client.frame() == frame
            assert await client.end() == "closed"
        assert (await proxy.end()).cause == DisconnectCause.DRAINED


async def test_a_client_that_resets_in_the_midst_of_its_answer_leaves_nothing_kept() -> None:
    async def answers_hugely(client: BrokerSide) -> None:
        await client.send(answer_of(await client.request(), 8 * MIB))

    async with FaultBroker(answers_hugely) as broker, LocalProxy(broker.port) as proxy:
        client = await proxy.client(receive_buffer_bytes=4096)
        await client.send(fetch())
        await stands_still(proxy)
        assert max(kept_bytes(proxy)) > 0
        client.reset()
        assert (await proxy.end()).cause in {DisconnectCause.CLIENT_RESET, DisconnectCause.CLIENT_CLOSED}
        assert not proxy.connections
