"""A drain while the proxy renews its login at the broker (KIP-368)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sluice.proxy.session.causes import DisconnectCause
from testkit.frames.frames import produce_of
from testkit.frames.wire import WITHIN_S
from testkit.peers.fault_broker import BrokerSide, Request
from testkit.proxy.local_proxy import until
from testkit.proxy.playbook import limits_of
from tests.proxy.listener.login.test_relogin import answered, ask, rig

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("first", ["held", "muted"])
async def test_what_goes_at_a_drain_goes_behind_a_login_that_is_under_way(first: str, tmp_path: Path) -> None:
    """A Produce with acks = 0, which nobody sends again, went into the midst of it, and the broker closed."""
    async with rig(tmp_path, limits_of(1_000)) as (proxy, broker):
        if first == "held":
            with await proxy.client() as neighbour:
                await neighbour.send(produce_of(20_000, correlation_id=1000))
                await answered(neighbour, 1000)
            await until(lambda: not proxy.connections)
        with await proxy.client() as client:
            await client.send(b"".join(produce_of(2_000, acks=0, correlation_id=n) for n in range(4)))
            await until(lambda: any(each.leads_to for each in proxy.connections))
            begun = broker.handshakes
            broker.holds_handshakes.clear()
            await until(lambda: broker.handshakes > begun)
            for connection in tuple(proxy.connections):
                connection.drain()
            await asyncio.sleep(0.1)
            broker.holds_handshakes.set()
            assert await client.end() == "closed"
        await until(lambda: broker.unanswered == list(range(4)) or bool(broker.broke))
        assert not broker.broke


async def test_a_drain_within_a_login_ends_the_connection(tmp_path: Path) -> None:
    async with rig(tmp_path) as (proxy, broker):
        begun, goes_on = asyncio.Event(), asyncio.Event()

        async def hangs(client: BrokerSide, request: Request) -> None:
            begun.set()
            await goes_on.wait()

        broker.answers_login = hangs
        with await proxy.client() as client:
            await ask(client, 0)
            async with asyncio.timeout(WITHIN_S):
                await begun.wait()
            for connection in tuple(proxy.connections):
                connection.drain()
            assert await client.end() == "closed"
        assert (await proxy.end()).cause is DisconnectCause.DRAINED
        goes_on.set()
