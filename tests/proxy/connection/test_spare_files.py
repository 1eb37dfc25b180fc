"""Sockets whose connection is over: they have the descriptors that the connections leave."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from sluice.proxy.connection import lingering_close
from testkit.frames.frames import produce
from testkit.frames.wire import Wire
from testkit.peers.fault_broker import FaultBroker, answers
from testkit.proxy.local_proxy import LocalProxy, until

pytestmark = pytest.mark.asyncio
GARBAGE = b"\xff" * 8


async def test_those_that_linger_take_no_descriptor_that_a_connection_may_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lingering_close, "_LINGER_S", 60.0)
    async with FaultBroker(answers) as broker, LocalProxy(broker.port) as proxy:
        spare = proxy._worker.limits.spare
        spare.most = 6
        with ExitStack() as stack:

            async def comes(says: bytes) -> Wire:
                client = stack.enter_context(await proxy.client())
                await client.send(says)
                return client

            async def ends_in_order(number: int) -> None:
                await until(lambda: len(proxy.ended) == number)

            served = await comes(produce())
            await served.frame()
            for number in range(1, 9):
                assert await (await comes(GARBAGE)).end() == "closed"
                await ends_in_order(number)
            # The one that is served may have two, each that came two until it ended.
            assert len(proxy.connections) == 1 + 3
            for left in (2, 0):
                newer = await comes(produce())
                await newer.frame()
                assert sum(one.is_closed for one in proxy.connections) == left
            await served.send(produce())
            await served.frame()
