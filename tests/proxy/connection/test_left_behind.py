"""What nobody sends again, on real sockets: Produces with acks = 0 behind a request that does not go."""

from __future__ import annotations

import asyncio

import pytest

from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.connection_states import State
from testkit.frames.frames import METADATA, fetch, produce_of, request
from testkit.frames.wire import Wire
from testkit.peers.fault_broker import BrokerSide, FaultBroker, answer_to
from testkit.peers.recording_broker import Recording
from testkit.proxy.local_proxy import LocalProxy, until
from testkit.proxy.playbook import limits_of

pytestmark = pytest.mark.asyncio
RATE = 1_000_000


async def _into_debt(proxy: LocalProxy) -> Wire:
    """A neighbour of the same user spends the burst and half a second's worth more; it stays connected."""
    neighbour = await proxy.client()
    await neighbour.send(produce_of(RATE * 3 // 2, correlation_id=1000))
    await neighbour.frame()
    return neighbour


@pytest.mark.parametrize("half_closes", [True, False])
@pytest.mark.parametrize(("count", "size"), [(200, 100), (15, 100_000)])
async def test_what_stands_behind_a_held_request_of_a_client_that_left_goes(
    count: int, size: int, half_closes: bool
) -> None:
    """In order, and all of it, though not all has been read when the client leaves."""
    broker_side = Recording()
    async with FaultBroker(broker_side) as broker, LocalProxy(broker.port, limits_of(RATE)) as proxy:
        with await _into_debt(proxy), await proxy.client() as client:
            frames = [produce_of(size, acks=0, correlation_id=number) for number in range(count)]
            frames.insert(count // 2, fetch(correlation_id=501))
            await client.send(produce_of(200, correlation_id=500) + b"".join(frames))
            if half_closes:
                client.finish_sending()
                assert await client.end() == "closed"
            else:
                client.close()
            ended = await proxy.end()
            assert ended.cause == DisconnectCause.LEFT_WHILE_HELD
            assert ended.detail == "a Produce of 200 bytes not forwarded"
            await until(lambda: len(broker_side.ids) > count)
            assert broker_side.ids == [1000, *range(count)]


async def test_drain_forwards_what_stands_behind_too_much_in_flight() -> None:
    """It waits for answers by the proxy's own doing."""
    arrived: list[int] = []
    drained = asyncio.Event()

    async def slow(client: BrokerSide) -> None:
        while True:
            asked = await client.request()
            arrived.append(asked.correlation_id)
            if asked.api_key == METADATA:
                await drained.wait()
                await client.send(answer_to(asked))

    async with FaultBroker(slow) as broker, LocalProxy(broker.port) as proxy:
        with await proxy.client() as client:
            await until(lambda: bool(proxy.connections))
            (connection,) = proxy.connections
            connection.session.pace.max_in_flight = 1
            behind = [produce_of(100, acks=0, correlation_id=number) for number in (2, 3)]
            await client.send(request(METADATA, 9, correlation_id=1) + b"".join(behind))
            await until(lambda: connection.session.pace.state is State.AWAITING_BROKER)
            connection.drain()
            connection.drain()  # a second time sends nothing twice
            drained.set()
            await client.frame()
            assert await client.end() == "closed"
            await until(lambda: len(arrived) >= 3)
    assert arrived == [1, 2, 3]
