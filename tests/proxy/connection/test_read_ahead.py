"""Requests behind one another, over real sockets: the session is told when each came."""

from __future__ import annotations

import asyncio
from time import monotonic

import pytest

from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.delays import DelayLimits
from sluice.proxy.session.policy import SessionPolicy
from testkit.frames.frames import API_VERSIONS, produce_of, request
from testkit.peers.fault_broker import FaultBroker
from testkit.peers.recording_broker import Recording
from testkit.proxy.local_proxy import LocalProxy, until
from testkit.proxy.playbook import limits_of

pytestmark = pytest.mark.asyncio
RATE = 1_000
HASTY = request(
    API_VERSIONS,
    3,
    {"clientSoftwareName": "platformatic-kafka", "clientSoftwareVersion": "1"},
    correlation_id=99,
)
"""its requests wait for 4 s at most"""


@pytest.mark.parametrize("parts", [[10], [2, 8], [1, 1, 8]])
async def test_requests_behind_one_another_go_within_their_clients_patience(parts: list[int]) -> None:
    """100 s of debt and 10 requests, which come at once or in parts. A budget of 2 s each, one after the
    other, would make the last wait for 20 s. And they do not go in one lump: the fifth is gone after 3 s."""
    broker_side = Recording()
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
            begun_s, sent = monotonic(), 0
            for count in parts:
                await client.send(
                    b"".join(produce_of(5_000, correlation_id=i) for i in range(sent, sent + count))
                )
                sent += count
                await asyncio.sleep(0.2)
            await until(lambda: len(broker_side.ids) == 12)
            arrived_s = [at_s - begun_s for number, at_s in broker_side.arrived if number < 10]
            assert broker_side.ids[2:] == list(range(10))
            assert arrived_s[-1] < 4.0 + 0.2 * len(parts) + 0.5
            assert arrived_s[4] < 3.0
            assert arrived_s[0] > 0.2


async def test_what_was_read_ahead_and_has_gone_on_makes_room_for_more() -> None:
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
            begun_s = monotonic()
            await client.send(b"".join(produce_of(20_000, correlation_id=i) for i in range(30)))
            await until(lambda: len(broker_side.ids) == 32)
            assert monotonic() - begun_s < 10.5


@pytest.mark.parametrize("parts", [[2_500_000], [25_000] * 100], ids=["one request", "a hundred requests"])
async def test_a_client_that_left_is_seen_behind_megabytes_that_it_sent(parts: list[int]) -> None:
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
            begun_s = monotonic()
            assert (await proxy.end()).cause is DisconnectCause.LEFT_WHILE_HELD
            assert monotonic() - begun_s < 2.0  # 6.5 s before the first would have gone
            assert broker_side.ids == [1000]


async def test_megabytes_that_wait_go_on_whole_and_in_order_at_the_cost_of_their_bytes() -> None:
    """3 MB in 30,000 requests, more than is read at once; each that goes on must not move all that stays."""
    broker_side = Recording()
    rate = 2_000_000
    async with FaultBroker(broker_side) as broker, LocalProxy(broker.port, limits_of(rate)) as proxy:
        neighbour, client = await proxy.client(), await proxy.client()
        with neighbour, client:
            await neighbour.send(produce_of(2 * rate, correlation_id=10**6))
            await neighbour.frame()
            await client.send(b"".join(produce_of(100, correlation_id=i) for i in range(30_000)))
            await until(lambda: len(broker_side.ids) == 30_001)
            assert broker_side.ids[1:] == list(range(30_000))
