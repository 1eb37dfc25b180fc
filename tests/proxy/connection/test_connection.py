"""One connection between a client and a broker that does wrong: what the other side gets, and how it ends.

Another connection through the same proxy goes on in each of these tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from sluice.proxy.connection import client_side
from sluice.proxy.connection.budget import WINDOW_BYTES
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.policy import SessionPolicy
from sluice.quotas.limits.limits import QuotaLimits
from testkit.frames.frames import FETCH, METADATA, fetch, produce, produce_of, request
from testkit.frames.wire import WITHIN_S, most_on_the_way_bytes
from testkit.peers.fault_broker import (
    Behaviour,
    BrokerSide,
    FaultBroker,
    Request,
    answer_of,
    answer_to,
    answers,
    never_answers,
)
from testkit.proxy.local_proxy import LocalProxy, until

pytestmark = pytest.mark.asyncio
MIB = 1024 * 1024


@asynccontextmanager
async def between(
    behaviour: Behaviour,
    limits: QuotaLimits | None = None,
    *,
    policy: SessionPolicy | None = None,
    broker_buffer_bytes: int | None = None,
) -> AsyncIterator[tuple[LocalProxy, FaultBroker]]:
    """A proxy whose first connection meets `behaviour`; each later one finds a broker as it should be.

    At the end a later one must be served.
    """

    async def once(client: BrokerSide) -> None:
        await (behaviour if client is broker.clients[0] else answers)(client)

    async with (
        FaultBroker(once, receive_buffer_bytes=broker_buffer_bytes) as broker,
        LocalProxy(broker.port, limits, policy=policy) as proxy,
    ):
        yield proxy, broker
        await assert_served(proxy)


async def assert_served(proxy: LocalProxy) -> None:
    """Another connection gets its answer."""
    with await proxy.client() as other:
        await other.send(produce(correlation_id=77))
        assert (await other.frame())[4:8] == (77).to_bytes(4, "big")


# What a broker may do wrong ---------------------------------------------------------------------------------


async def truncates(client: BrokerSide) -> None:
    asked = await client.request()
    await client.send(answer_to(asked)[:10])


async def says_another_correlation_id(client: BrokerSide) -> None:
    asked = await client.request()
    other = Request(asked.frame, asked.api_key, asked.api_version, asked.correlation_id + 1)
    await client.send(answer_to(other))
    await client.rest()


async def answers_out_of_order(client: BrokerSide) -> None:
    first, second = await client.request(), await client.request()
    await client.send(answer_to(second) + answer_to(first))
    await client.rest()


async def answers_twice(client: BrokerSide) -> None:
    asked = await client.request()
    await client.send(answer_to(asked))
    await asyncio.sleep(0.05)
    await client.send(answer_to(asked))
    await client.rest()


async def speaks_unasked(client: BrokerSide) -> None:
    await client.send(answer_to(Request(b"", METADATA, 12, 1)))
    await client.rest()


async def says_a_negative_size(client: BrokerSide) -> None:
    asked = await client.request()
    await client.send(b"\xff\xff\xff\xfe" + asked.correlation_id.to_bytes(4, "big"))
    await client.rest()


async def resets(client: BrokerSide) -> None:
    await client.request()
    client.reset()


async def closes(client: BrokerSide) -> None:
    await client.request()


@pytest.mark.parametrize(
    ("behaviour", "cause", "delivered"),
    [
        (truncates, DisconnectCause.BROKER_CLOSED, 10),
        (says_another_correlation_id, DisconnectCause.BROKER_CORRELATION, 0),
        (answers_out_of_order, DisconnectCause.BROKER_CORRELATION, 0),
        (speaks_unasked, DisconnectCause.BROKER_CORRELATION, 0),
        (says_a_negative_size, DisconnectCause.BROKER_MALFORMED, 0),
        (resets, DisconnectCause.BROKER_RESET, 0),
        (closes, DisconnectCause.BROKER_CLOSED, 0),
    ],
)
async def test_a_broker_that_does_wrong_ends_that_connection_and_no_other(
    behaviour: Behaviour, cause: DisconnectCause, delivered: int
) -> None:
    async with between(behaviour) as (proxy, _):
        with await proxy.client() as client:
            await client.send(produce(correlation_id=5) + produce(correlation_id=6))
            rest, _ = await client.rest()
        assert len(rest) == delivered
        ended = await proxy.end()
        assert ended.cause == cause
        assert ended.detail


async def test_a_good_answer_before_a_wrong_one_is_still_delivered() -> None:
    async with between(answers_twice) as (proxy, _):
        with await proxy.client() as client:
            await client.send(produce(correlation_id=5))
            assert (await client.frame())[4:8] == (5).to_bytes(4, "big")
            assert await client.end() == "closed"
        assert (await proxy.end()).cause == DisconnectCause.BROKER_CORRELATION


async def test_a_broker_that_closes_in_the_middle_of_a_request_ends_the_connection() -> None:
    async def takes_half(client: BrokerSide) -> None:
        await client.read(MIB)

    async with between(takes_half) as (proxy, _):
        with await proxy.client() as client, pytest.raises(OSError, match=r"reset|Broken pipe"):
            await pour(lambda: client.send(produce_of(4 * MIB)), [])
        assert (await proxy.end()).cause in {DisconnectCause.BROKER_RESET, DisconnectCause.BROKER_CLOSED}


async def test_a_broker_that_never_answers_keeps_one_client_waiting_and_no_other() -> None:
    told = asyncio.Event()

    async def never(client: BrokerSide) -> None:
        with pytest.raises(EOFError):
            await never_answers(client)
        told.set()

    async with between(never) as (proxy, _):
        with await proxy.client() as client:
            await client.send(produce())
            await client.silence()
            await assert_served(proxy)
            assert not told.is_set()
        async with asyncio.timeout(WITHIN_S):
            await told.wait()  # the broker is told that the client has left
        assert (await proxy.end(2)).cause == DisconnectCause.CLIENT_CLOSED


async def test_a_broker_that_never_answers_does_not_keep_a_client_that_has_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_side, "ENDING_DEADLINE_S", 0.2)

    async def never_even_closes(client: BrokerSide) -> None:
        await client.rest()
        await asyncio.Event().wait()

    async with between(never_even_closes) as (proxy, _):
        with await proxy.client() as client:
            await client.send(produce())
            await client.silence()
        assert (await proxy.end()).cause == DisconnectCause.CLIENT_CLOSED


# However the bytes come -------------------------------------------------------------------------------------


async def test_frames_that_come_byte_by_byte_from_both_sides_arrive_as_they_were_sent() -> None:
    taken: list[bytes] = []

    async def answers_in_bytes(client: BrokerSide) -> None:
        while True:
            asked = await client.request()
            taken.append(asked.frame)
            await client.send_in_pieces(answer_to(asked))

    sent = [produce(correlation_id=1), request(METADATA, 12, correlation_id=2), fetch(correlation_id=3)]
    async with between(answers_in_bytes) as (proxy, _):
        with await proxy.client() as client:
            for correlation_id, frame in enumerate(sent, 1):
                await client.send_in_pieces(frame)
                assert (await client.frame())[4:8] == correlation_id.to_bytes(4, "big")
        assert taken == sent


@pytest.mark.parametrize("size", [100, 70_000, WINDOW_BYTES - 1, WINDOW_BYTES, 3 * MIB + 17])
async def test_frames_of_any_size_arrive_as_they_were_sent(size: int) -> None:
    taken: list[bytes] = []

    async def echoes_the_size(client: BrokerSide) -> None:
        while True:
            asked = await client.request()
            taken.append(asked.frame)
            await client.send(answer_of(asked, size))

    frame = produce_of(size)
    async with between(echoes_the_size) as (proxy, _):
        with await proxy.client() as client:
            for _ in range(3):
                await client.send(frame)
                found = await client.frame()
                assert found == answer_of(Request(frame, 0, 9, 1), size)
        assert taken == [frame] * 3


async def test_many_pipelined_requests_are_answered_in_order() -> None:
    async with between(answers) as (proxy, _):
        with await proxy.client() as client:
            await client.send(b"".join(produce(correlation_id=number) for number in range(2000)))
            for number in range(2000):
                assert (await client.frame())[4:8] == number.to_bytes(4, "big")


# Back-pressure ----------------------------------------------------------------------------------------------

POURED_BYTES = 2 * most_on_the_way_bytes()
"""twice what all buffers between two sockets take"""


def kept_bytes(proxy: LocalProxy) -> int:
    """What the proxy's connections hold in memory, both ways."""
    total = 0
    for connection in proxy.connections:
        for peer in (connection._client, connection._broker):
            total += len(peer.out or b"")
        total += len(connection._client_kept or b"") + len(connection._broker_kept or b"")
    return total


async def pour(work: Callable[[], Awaitable[None]], poured: list[int]) -> None:
    while True:
        await work()
        poured.append(1)


async def until_it_stands_still(counter: list[int]) -> None:
    """The count does not grow any more."""
    seen = -1
    while seen != len(counter):
        seen = len(counter)
        await asyncio.sleep(0.3)


async def test_a_client_that_stops_reading_huge_answers_stops_the_broker_and_fills_no_memory() -> None:
    poured: list[int] = []

    async def answers_hugely(client: BrokerSide) -> None:
        while True:
            asked = await client.request()
            await client.send(answer_of(asked, MIB))
            poured.append(1)

    async with between(answers_hugely) as (proxy, _):
        with await proxy.client(receive_buffer_bytes=65536) as client:
            frames = [fetch(correlation_id=number) for number in range(POURED_BYTES // MIB)]
            await client.send(b"".join(frames))
            await until_it_stands_still(poured)
            assert len(poured) < len(frames) / 2
            assert kept_bytes(proxy) <= WINDOW_BYTES
            await assert_served(proxy)
            for number in range(len(frames)):  # it reads again: all is there, in order
                assert await client.frame() == answer_of(Request(b"", FETCH, 12, number), MIB)


async def test_a_broker_that_stops_reading_stops_a_pouring_client_and_fills_no_memory() -> None:
    go_on, taken, poured = asyncio.Event(), list[bytes](), list[int]()

    async def reads_late(client: BrokerSide) -> None:
        await go_on.wait()
        while True:
            asked = await client.request()
            taken.append(asked.frame)
            await client.send(answer_to(asked))

    frame = produce_of(MIB)

    async def send_one() -> None:
        await asyncio.get_running_loop().sock_sendall(client.sock, frame)

    async with between(reads_late, broker_buffer_bytes=65536) as (proxy, _):
        with await proxy.client() as client:
            pouring = asyncio.ensure_future(pour(send_one, poured))
            await until_it_stands_still(poured)
            assert len(poured) < POURED_BYTES / MIB / 2
            assert kept_bytes(proxy) <= WINDOW_BYTES
            await assert_served(proxy)
            go_on.set()
            await until(lambda: len(poured) >= POURED_BYTES // MIB)
            pouring.cancel()
            for _ in range(POURED_BYTES // MIB):
                assert (await client.frame())[4:8] == (1).to_bytes(4, "big")
        assert set(taken) == {frame}


async def test_a_client_and_a_broker_that_both_write_before_they_read_come_free_again() -> None:
    count = 24

    async def writes_first(client: BrokerSide) -> None:
        first = await client.request()
        await client.send(answer_of(first, 8 * MIB))
        for _ in range(count):
            await client.send(answer_to(await client.request()))

    async with between(writes_first, broker_buffer_bytes=65536) as (proxy, _):
        with await proxy.client(receive_buffer_bytes=65536) as client:
            sending = asyncio.ensure_future(client.send(fetch() + produce_of(MIB) * count))
            await asyncio.sleep(0.2)
            assert kept_bytes(proxy) <= 2 * WINDOW_BYTES
            assert len(await client.frame()) == 8 * MIB
            for _ in range(count):
                await client.frame()
            await sending


async def test_a_client_that_takes_nothing_of_what_it_asked_for_is_let_go_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_side, "ENDING_DEADLINE_S", 0.2)
    poured: list[int] = []

    async def answers_hugely(client: BrokerSide) -> None:
        asked = await client.request()
        await pour(lambda: client.send(answer_of(asked, MIB)), poured)

    async with between(answers_hugely) as (proxy, _):
        with await proxy.client(receive_buffer_bytes=4096) as client:
            await client.send(fetch() * 100)
            await until_it_stands_still(poured)
            await client.send(b"\xff" * 8)  # no frame has this size: the connection is to end
            assert (await proxy.end()).cause == DisconnectCause.FRAME_TOO_LARGE


async def test_what_a_leaving_broker_has_sent_still_arrives() -> None:
    async def answers_and_leaves(client: BrokerSide) -> None:
        await client.send(answer_of(await client.request(), 3 * MIB))

    async with between(answers_and_leaves) as (proxy, _):
        with await proxy.client(receive_buffer_bytes=65536) as client:
            await client.send(fetch())
            await asyncio.sleep(0.1)
            assert len(await client.frame()) == 3 * MIB
            assert await client.end() == "closed"
