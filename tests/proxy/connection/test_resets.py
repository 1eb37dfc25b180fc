"""Bytes and a reset that come at once: the bytes go on, and the reset ends both sides within a moment.

The loop's own readers are called for the bytes, and never again (poller.py): the other side then waited until
the connection was taken for idle.
"""

from __future__ import annotations

import asyncio

import pytest

from sluice.proxy.session.causes import DisconnectCause
from testkit.frames.frames import produce
from testkit.frames.wire import WITHIN_S
from testkit.peers.fault_broker import BrokerSide, FaultBroker, answer_of, answer_to
from testkit.proxy.local_proxy import LocalProxy

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("cut", [None, 20, 7])
@pytest.mark.parametrize("size", [0, 100_000])
async def test_a_broker_that_answers_and_resets_at_once_ends_its_client(cut: int | None, size: int) -> None:
    """`cut`: of the answer's bytes; None: all. Of a head that is not whole nothing goes on."""
    sent = bytearray()

    async def answers_and_resets(side: BrokerSide) -> None:
        first = await side.request()
        await side.request()
        sent.extend((answer_of(first, size) if size else answer_to(first))[:cut])
        await side.send(bytes(sent))
        side.reset()

    async with FaultBroker(answers_and_resets) as broker, LocalProxy(broker.port) as proxy:
        with await proxy.client() as client:
            await client.send(produce(correlation_id=1) + produce(correlation_id=2))
            got, _ = await client.rest()
        assert got == (b"" if cut == 7 else sent)
        assert (await proxy.end()).cause == DisconnectCause.BROKER_RESET


async def test_a_client_that_asks_and_resets_at_once_ends_at_the_broker() -> None:
    left = asyncio.Event()

    async def waits(side: BrokerSide) -> None:
        await side.request()
        await side.rest()
        left.set()

    async with FaultBroker(waits) as broker, LocalProxy(broker.port) as proxy:
        client = await proxy.client()
        await client.send(produce(correlation_id=1))
        client.reset()
        assert (await proxy.end()).cause == DisconnectCause.CLIENT_RESET
        async with asyncio.timeout(WITHIN_S):
            await left.wait()
