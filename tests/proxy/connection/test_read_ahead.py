"""Requests behind one another, over real sockets: the session is told when each came."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from time import process_time

import pytest
import pytest_asyncio

from sluice.proxy.connection import client_side, last_look
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.delays import DelayLimits
from sluice.proxy.session.policy import SessionPolicy
from testkit.frames.frames import API_VERSIONS, produce_of, request
from testkit.frames.wire import WITHIN_S
from testkit.peers.fault_broker import FaultBroker, answers
from testkit.peers.loop_clock import LoopClock
from testkit.peers.recording_broker import Recording
from testkit.proxy.local_proxy import LocalProxy, until
from testkit.proxy.playbook import limits_of
from testkit.thorough import few

pytestmark = pytest.mark.asyncio
RATE = 1_000
LONG_S = 120.0
"""for much work on a busy machine"""
HASTY = request(
    API_VERSIONS,
    3,
    {"clientSoftwareName": "platformatic-kafka", "clientSoftwareVersion": "1"},
    correlation_id=99,
)
"""its requests wait for 4 s at most"""


@pytest_asyncio.fixture
async def clock() -> AsyncIterator[LoopClock]:
    with LoopClock() as made:
        yield made


@pytest.mark.parametrize("parts", few([[10], [2, 8], [1, 1, 8]], 1))
async def test_requests_behind_one_another_go_within_their_clients_patience(
    parts: list[int], clock: LoopClock
) -> None:
    """100 s of debt and 10 requests, which come at once or in parts. A budget of 2 s each, one after the
    other, would make the last wait for 20 s. And they do not go in one lump: the fifth is gone after 3 s."""
    broker_side = Recording(clock)
    policy = SessionPolicy(delays=DelayLimits(answer_budget_ms=2_000))
    async with (
        FaultBroker(broker_side) as broker,
        LocalProxy(broker.port, limits_of(RATE), policy=policy) as proxy,
    ):
        neighbour = await proxy.client()
        await neighbour.send(produce_of(100 * RATE, correlation_id=1000))
        await neighbour.frame()
        client = await proxy.client()
        with neighbour, client:
            await client.send(HASTY)
            await client.frame()
            begun_s, sent = clock.now_s, 0
            for count in parts:
                await client.send(
                    b"".join(produce_of(5_000, correlation_id=i) for i in range(sent, sent + count))
                )
                sent += count
                await asyncio.sleep(0.2)
            await until(lambda: len(broker_side.ids) == 12)
            arrived_s = [at_s - begun_s for at_s in broker_side.by_clock_s[2:]]
            assert broker_side.ids[2:] == list(range(10))
            assert arrived_s[-1] < 4.0 + 0.2 * len(parts) + 0.5
            assert arrived_s[4] < 3.0
            assert broker_side.arrived[2][1] - broker_side.arrived[1][1] > 0.2


async def test_what_was_read_ahead_and_has_gone_on_makes_room_for_more(clock: LoopClock) -> None:
    """600 kB in requests of 20 kB: 256 KiB are read, and more from when half of it has gone. Read only when
    all has gone, three times 4 s would pass."""
    broker_side = Recording()
    async with FaultBroker(broker_side) as broker, LocalProxy(broker.port, limits_of(RATE)) as proxy:
        neighbour, client = await proxy.client(), await proxy.client()
        with neighbour, client:
            await neighbour.send(produce_of(100 * RATE, correlation_id=1000))
            await neighbour.frame()
            await client.send(HASTY)
            await client.frame()
            begun_s = clock.now_s
            await client.send(b"".join(produce_of(20_000, correlation_id=i) for i in range(30)))
            await until(lambda: len(broker_side.ids) == 32)
            assert clock.now_s - begun_s < 10.5


@pytest.mark.parametrize("parts", [[2_500_000], [25_000] * 100], ids=["one request", "a hundred requests"])
async def test_a_client_that_left_is_seen_behind_megabytes_that_it_sent(
    parts: list[int], clock: LoopClock
) -> None:
    """Its end stands behind them. Not seen, they would be forwarded when their turns come."""
    broker_side = Recording()
    async with FaultBroker(broker_side) as broker, LocalProxy(broker.port, limits_of(RATE)) as proxy:
        neighbour, client = await proxy.client(), await proxy.client()
        with neighbour:
            await neighbour.send(produce_of(100 * RATE, correlation_id=1000))
            await neighbour.frame()
            with client:
                await client.send(
                    b"".join(produce_of(part, correlation_id=i) for i, part in enumerate(parts))
                )
            begun_s = clock.now_s
            assert (await proxy.end()).cause is DisconnectCause.LEFT_WHILE_HELD
            assert clock.now_s - begun_s < 2.0  # 6.5 s before the first would have gone
            assert broker_side.ids == [1000]


@pytest.mark.parametrize(
    ("leavers", "parts"),
    [(20, [2_500_000]), (20, [25_000] * 100), (4, [7_000_000]), (4, [70_000] * 100)],
    ids=["2.5 MB each", "25 kB × 100 each", "7 MB each", "70 kB × 100 each"],
)
async def test_clients_that_left_behind_more_than_is_read_ahead_are_seen_when_their_turns_come(
    leavers: int, parts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all of them 28 MiB are read ahead, of each 4 MiB; the end stands behind more. Forwarded, each would
    be doubled by its client, and any number of them would pass the limit."""
    for module in (last_look, client_side):  # a busy machine does not read so much in a quarter of a second
        monkeypatch.setattr(module, "LOOK_MS", 60_000.0)
    broker_side = Recording()
    policy = SessionPolicy(delays=DelayLimits(answer_budget_ms=4_000))
    sent = b"".join(produce_of(part, correlation_id=i) for i, part in enumerate(parts))
    async with (
        FaultBroker(broker_side) as broker,
        LocalProxy(broker.port, limits_of(RATE), policy=policy) as proxy,
    ):
        neighbour = await proxy.client()
        with neighbour:
            await neighbour.send(produce_of(100 * RATE, correlation_id=1000))
            await neighbour.frame()
            clients = [await proxy.client() for _ in range(leavers)]
            await asyncio.wait_for(asyncio.gather(*(client.send(sent) for client in clients)), 3.9)
            for client in clients:
                client.close()
            await until(lambda: len(proxy.ended) == leavers)
            assert {ended.cause for ended in proxy.ended} == {DisconnectCause.LEFT_WHILE_HELD}
            assert broker_side.ids == [1000]


async def test_a_client_that_stays_behind_much_that_it_sent_goes_when_its_turn_comes(
    clock: LoopClock,
) -> None:
    """A last look finds no end: it is over soon, and what it read goes on whole and in order."""
    broker_side = Recording(clock)
    policy = SessionPolicy(delays=DelayLimits(answer_budget_ms=1_000))
    rate = 10_000_000
    async with (
        FaultBroker(broker_side) as broker,
        LocalProxy(broker.port, limits_of(rate), policy=policy) as proxy,
    ):
        neighbour, client = await proxy.client(), await proxy.client()
        with neighbour, client:
            await neighbour.send(produce_of(2 * rate, correlation_id=1000))
            await neighbour.frame()
            begun_s = clock.now_s
            sending = asyncio.ensure_future(
                client.send(b"".join(produce_of(1_000_000, correlation_id=i) for i in range(24)))
            )
            await until(lambda: len(broker_side.ids) == 25, LONG_S)
            await sending
            assert broker_side.ids == [1000, *range(24)]
            assert broker_side.by_clock_s[1] - begun_s < 1.0 + 0.25 + 0.5


async def test_fifty_clients_with_megabytes_ahead_each_are_all_served_and_none_is_closed() -> None:
    """50 × 5 × 1 MiB. Their first requests are held, and what they keep counts as their user's meanwhile: as
    bytes of guests, who became users one by one, they passed a share, and connections were ended for it."""
    policy = SessionPolicy(delays=DelayLimits(answer_budget_ms=2_000))
    request_of = produce_of(1024 * 1024)
    async with (
        FaultBroker(answers) as broker,
        LocalProxy(broker.port, limits_of(1_000_000), policy=policy) as proxy,
    ):
        clients = [await proxy.client(within_s=LONG_S) for _ in range(50)]
        sending = [asyncio.ensure_future(client.send(request_of * 5)) for client in clients]
        answered = asyncio.gather(*(client.frame() for client in clients))
        await asyncio.wait_for(answered, LONG_S)
        assert not proxy.ended
        for client, task in zip(clients, sending, strict=True):
            task.cancel()
            client.close()


async def test_megabytes_that_wait_go_on_whole_and_in_order_at_the_cost_of_their_bytes() -> None:
    """3 MB in 30,000 requests, more than is read at once; each that goes on must not move all that stays."""
    broker_side = Recording()
    rate = 2_000_000
    async with FaultBroker(broker_side) as broker, LocalProxy(broker.port, limits_of(rate)) as proxy:
        neighbour, client = await proxy.client(), await proxy.client()
        with neighbour, client:
            await neighbour.send(produce_of(2 * rate, correlation_id=10**6))
            await neighbour.frame()
            begun_s = process_time()
            await client.send(b"".join(produce_of(100, correlation_id=i) for i in range(30_000)))
            await until(lambda: len(broker_side.ids) == 30_001, LONG_S)
            assert process_time() - begun_s < WITHIN_S
            assert broker_side.ids[1:] == list(range(30_000))
