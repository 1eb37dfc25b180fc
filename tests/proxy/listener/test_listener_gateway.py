"""A gateway's listener: whom a client of a broker's port reaches, before and after the brokers are known."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from sluice.protocol.apis import METADATA
from sluice.proxy.assembly import assemble
from sluice.proxy.config.config import UpstreamOptions
from sluice.proxy.config.limits import LimitsOptions
from sluice.proxy.config.listener import GatewayOptions, ListenerOptions
from sluice.proxy.connection import client_side
from sluice.proxy.connection.worker import Worker
from sluice.proxy.listener import client_upstreams
from sluice.proxy.listener.circuit import Circuits
from sluice.proxy.listener.dial_queue import MAX_DIALS
from sluice.proxy.listener.listener import Listener
from sluice.proxy.listener.security import ListenerSecurity
from sluice.proxy.runtime.gauges import Gauges
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.policy import SessionPolicy
from testkit.frames.frames import answer, produce, request
from testkit.frames.wire import Wire, dial
from testkit.peers.fault_broker import BrokerSide, FaultBroker, answer_to
from testkit.processes.ports import LOOPBACK, free_port, free_port_range, full_port
from testkit.proxy.local_proxy import until
from testkit.proxy.playbook import limits_of, shared_of

pytestmark = pytest.mark.asyncio


class Cluster:
    """Two brokers, of which both answer Metadata; it can be held back, and say that broker 1 has moved."""

    def __init__(self) -> None:
        self.ports: dict[int, int] = {}
        self.may_tell = asyncio.Event()
        self.served: list[int] = []

    def behaviour(self, node_id: int):  # type: ignore[no-untyped-def]
        async def answers(client: BrokerSide) -> None:
            while True:
                request = await client.request()
                if request.api_key == METADATA:
                    await self.may_tell.wait()
                    brokers = [{"nodeId": i, "host": LOOPBACK, "port": p} for i, p in self.ports.items()]
                    body = {"brokers": brokers, "clusterId": "c", "controllerId": 0}
                    await client.send(
                        answer(METADATA, request.api_version, body, correlation_id=request.correlation_id)  # type: ignore[arg-type]
                    )
                else:
                    self.served.append(node_id)
                    await client.send(answer_to(request))

        return answers


@asynccontextmanager
async def gateway(*bootstrap_ports: int) -> AsyncIterator[tuple[Listener, int]]:
    """The listener, and the port of broker 0."""
    first = free_port_range(4)
    shared = shared_of(limits_of())
    worker = Worker(asyncio.get_running_loop(), shared.recorder, Gauges())
    options = ListenerOptions(
        name="test",
        bind_host=LOOPBACK,
        bind_port=first,
        gateway=GatewayOptions(
            bootstrap_upstreams=tuple(f"{LOOPBACK}:{port}" for port in bootstrap_ports),
            advertised_host=LOOPBACK,
            first_broker_port=first + 1,
            max_brokers=3,
            metadata_refresh_s=0.1,
        ),
    )
    assembled = assemble(
        worker,
        options,
        shared,
        SessionPolicy(),
        Circuits(),
        ListenerSecurity(),
        limits=LimitsOptions(),
        upstream=UpstreamOptions(),
    )
    listener = assembled.listener
    listener.start()
    beside = [asyncio.ensure_future(work()) for work in assembled.beside]
    try:
        yield listener, first + 1
    finally:
        listener.stop()
        for task in beside:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        for connection in tuple(listener.connections):
            connection.abort(DisconnectCause.DRAIN_DEADLINE)
        await asyncio.sleep(0)


@asynccontextmanager
async def two_brokers() -> AsyncIterator[tuple[Cluster, FaultBroker, FaultBroker]]:
    cluster = Cluster()
    async with FaultBroker(cluster.behaviour(0)) as zero, FaultBroker(cluster.behaviour(1)) as one:
        cluster.ports = {0: zero.port, 1: one.port}
        yield cluster, zero, one


async def is_served(client: Wire) -> bool:
    await client.send(produce(correlation_id=4))
    return (await client.frame())[4:8] == (4).to_bytes(4, "big")


async def test_a_client_of_a_brokers_port_waits_until_it_is_known_where_the_broker_is() -> None:
    """Led to any other it would be told NOT_LEADER for ever, for Metadata names the address that it has."""
    async with two_brokers() as (cluster, zero, _), gateway(zero.port) as (_, first_port):
        with await dial(first_port + 1) as client:
            await client.send(produce(correlation_id=4))
            await asyncio.sleep(0.1)
            assert not cluster.served
            cluster.may_tell.set()
            assert (await client.frame())[4:8] == (4).to_bytes(4, "big")
        assert cluster.served == [1]


async def test_a_broker_that_the_cluster_does_not_have_cannot_be_reached() -> None:
    async with two_brokers() as (cluster, zero, _), gateway(zero.port) as (_, first_port):
        cluster.may_tell.set()
        with await dial(first_port + 2) as client:
            await client.send(produce())
            assert await client.end() == "closed"
        assert not cluster.served


async def test_clients_of_a_broker_that_has_moved_are_sent_away_in_order() -> None:
    async with (
        two_brokers() as (cluster, zero, _),
        FaultBroker(cluster.behaviour(1)) as elsewhere,
        gateway(zero.port) as (listener, first_port),
    ):
        cluster.may_tell.set()
        with await dial(first_port + 1) as client, await dial(first_port) as other:
            assert await is_served(client)
            assert await is_served(other)
            listener.upstreams.end_misled()
            assert await is_served(client), "nothing has moved"
            cluster.ports[1] = elsewhere.port
            await until(lambda: listener.upstreams.route.upstream(1) == (LOOPBACK, elsewhere.port))
            listener.upstreams.end_misled()
            assert await client.end() == "closed"
            assert await is_served(other)
        with await dial(first_port + 1) as client:
            assert await is_served(client)
        assert len(elsewhere.clients) == 2, "the gateway itself has asked there"


async def test_who_tells_a_brokers_old_address_misleads_no_client_of_it() -> None:
    """A broker that is cut off from its controllers answers from what it knows, also the gateway itself."""
    async with two_brokers() as (cluster, zero, one), gateway(zero.port) as (listener, first_port):
        cluster.may_tell.set()
        with await dial(first_port + 1) as client, await dial(first_port - 1) as asks:
            assert await is_served(client)
            cluster.ports[1] = free_port()
            asked = len(zero.clients)
            await until(lambda: len(zero.clients) > asked + 2)
            await asks.send(request(METADATA, 12, {"topics": []}))
            await asks.frame()
            listener.upstreams.end_misled()
            assert await is_served(client)
            with await dial(first_port + 1) as new:
                assert await is_served(new)
        assert len(one.clients) == 2


async def test_who_is_being_dialled_to_where_a_broker_was_goes_on_to_where_it_is() -> None:
    """Whose host is gone says nothing: its address was dialled for 20 s though the broker was known."""
    with full_port() as gone:
        async with two_brokers() as (cluster, zero, one), gateway(zero.port) as (listener, first_port):
            upstreams = listener.upstreams
            upstreams.upstream.dial_timeout_s = 0.2
            cluster.ports[1] = gone.getsockname()[1]
            cluster.may_tell.set()
            await until(lambda: upstreams.route.upstream(1) is not None)
            with await dial(first_port + 1) as client:
                await client.send(produce(correlation_id=4))
                await until(lambda: len(upstreams.upstream._queue) == 1)
                cluster.ports[1] = one.port
                assert (await client.frame())[4:8] == (4).to_bytes(4, "big")


async def test_who_waits_to_be_dialled_to_where_a_broker_was_is_not_dialled_there_any_more() -> None:
    async with two_brokers() as (cluster, zero, one), gateway(zero.port) as (listener, first_port):
        upstreams, gone = listener.upstreams, (LOOPBACK, free_port())
        cluster.ports[1] = gone[1]
        cluster.may_tell.set()
        await until(lambda: upstreams.route.upstream(1) == gone)
        place = upstreams.upstream._queue.place(gone)
        for _ in range(MAX_DIALS):
            await place.acquire()
        with await dial(first_port + 1) as client:
            await client.send(produce(correlation_id=4))
            await until(lambda: bool(place._waiters))
            cluster.ports[1] = one.port
            await until(lambda: upstreams.route.upstream(1) == (LOOPBACK, one.port))
            place.release()
            assert (await client.frame())[4:8] == (4).to_bytes(4, "big")
        assert upstreams.upstream._circuits.of(gone).failures == 0


@pytest.mark.parametrize("others", [1, 0])
async def test_a_client_of_any_broker_that_left_without_an_answer_has_the_brokers_asked(
    others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is another to go to: the first may be frozen, and all others' clients be served."""
    monkeypatch.setattr(client_upstreams, "_UNANSWERED_S", 0.0)
    monkeypatch.setattr(client_side, "ENDING_DEADLINE_S", 0.05)
    ports = [free_port() for _ in range(others)]
    async with two_brokers() as (_, zero, _), gateway(zero.port, *ports) as (listener, first_port):
        with await dial(first_port - 1) as client, await dial(first_port - 1) as other:
            assert await is_served(other)
            await client.send(request(METADATA, 12, {"topics": []}))
            await until(lambda: len(zero.clients) > 2)
        await until(lambda: not listener.connections)
        assert listener.upstreams.upstream.cut_off.is_set() == bool(others)
