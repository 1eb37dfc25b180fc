"""The relay of the bypass benchmark counts what comes whole, and passes it on."""

from __future__ import annotations

import pytest

from bench.bypass.counting_relay import counting_relay
from testkit.frames.frames import produce
from testkit.frames.wire import dial
from testkit.peers.fault_broker import FaultBroker, answers

PRODUCE = 0


@pytest.mark.asyncio
async def test_whole_requests_are_counted_of_who_stays_and_of_who_leaves() -> None:
    async with FaultBroker(answers) as broker, counting_relay(broker.port) as relay:
        with await dial(relay.port) as client:
            await client.send(produce(correlation_id=1))
            assert (await client.frame())[4:8] == (1).to_bytes(4, "big")
            await client.send(produce(correlation_id=2) + produce(correlation_id=3)[:-1])
            await client.frame()
        with await dial(relay.port) as client:
            await client.send(produce(correlation_id=4))
            client.finish_sending()
            assert (await client.frame())[4:8] == (4).to_bytes(4, "big")
        assert relay.requests == {PRODUCE: 3}
