"""A gateway asks for its brokers: at the start, at intervals, and again soon when nobody answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from sluice.proxy.config.listener import ListenerOptions
from sluice.proxy.connection.undialled import NotConnected
from sluice.proxy.listener import cluster_watch
from sluice.proxy.listener.circuit import Circuits, Rotation
from sluice.proxy.listener.cluster_watch import ClusterWatch
from sluice.proxy.listener.route import GatewayRoute
from sluice.proxy.listener.upstream import Upstream
from sluice.proxy.session.gateway.broker_map import BrokerMap
from testkit.frames.frames import METADATA, answer, decoded
from testkit.peers.fault_broker import Behaviour, BrokerSide, FaultBroker
from testkit.processes.ports import LOOPBACK, free_port
from testkit.proxy.local_proxy import until
from testkit.proxy.playbook import START_MS

pytestmark = pytest.mark.asyncio
Lines = list[Any]


@pytest.fixture
def lines() -> Iterator[Lines]:
    with capture_logs() as caught:
        yield caught


def knows(brokers: Callable[[], dict[int, tuple[str, int]]]) -> Behaviour:
    """A broker that tells of these."""

    async def behaviour(client: BrokerSide) -> None:
        asked = await client.request()
        assert asked.api_key == METADATA
        assert decoded("request", METADATA, 12, asked.frame).body["topics"] == [], "it wants no topics"
        told: Any = [
            {"nodeId": node_id, "host": host, "port": port} for node_id, (host, port) in brokers().items()
        ]
        await client.send(answer(METADATA, 12, {"brokers": told}, correlation_id=asked.correlation_id))
        await client.request()

    return behaviour


@asynccontextmanager
async def watching(
    *ports: int, refresh_s: float = 0.05, max_brokers: int = 5
) -> AsyncIterator[tuple[BrokerMap, ClusterWatch]]:
    loop, circuits = asyncio.get_running_loop(), Circuits()
    brokers = BrokerMap("gw", 9100, 0, max_brokers, bind_port=9092)
    options = ListenerOptions(name="gw", bind_port=0)
    upstream = Upstream(loop, options, circuits, dial_timeout_s=0.5)
    route = GatewayRoute(brokers, Rotation([(LOOPBACK, port) for port in ports], circuits))
    watch = ClusterWatch(loop, "gw", upstream, route, brokers, refresh_s)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(watch.run())
        yield brokers, watch
        running.cancel()


def said(lines: Lines, event: str) -> Lines:
    return [line for line in lines if line["event"] == event]


async def test_brokers_are_learnt_at_the_start_and_followed_when_they_move(lines: Lines) -> None:
    where = {1: ("b1.internal", 9092), 2: ("b2.internal", 9092)}
    async with (
        FaultBroker(knows(lambda: where)) as broker,
        FaultBroker(knows(lambda: where)) as new,
        watching(broker.port) as (brokers, watch),
    ):
        await until(watch.answered.is_set)
        assert brokers.upstreams == where
        where[2] = (LOOPBACK, new.port)
        await until(lambda: brokers.upstream(2) == (LOOPBACK, new.port))
        del where[1]
        asked = len(broker.clients)
        await until(lambda: len(broker.clients) > asked + 1)
        assert brokers.upstream(1) == ("b1.internal", 9092), "who is down is not forgotten"
        moved = f"{LOOPBACK}:{new.port}"
    assert [line["brokers"] for line in said(lines, "brokers")] == [
        {1: "b1.internal:9092", 2: "b2.internal:9092"},
        {1: "b1.internal:9092", 2: moved},
    ]


async def test_that_a_broker_has_moved_is_asked_at_once_where_it_is_said_to_be() -> None:
    """Not of who told it. Nobody waits for the next question of all brokers, nor for an address that says
    nothing."""
    where = {1: ("b1.internal", 9092), 2: ("b2.internal", 9092)}
    async with (
        FaultBroker(knows(lambda: where)) as broker,
        FaultBroker(says_nothing) as silent,
        watching(broker.port, refresh_s=3_600.0) as (brokers, watch),
    ):
        await until(watch.answered.is_set)
        brokers.learn(2, LOOPBACK, silent.port)
        await until(lambda: bool(silent.clients))
        where[2] = (LOOPBACK, broker.port)
        brokers.learn(2, LOOPBACK, broker.port)
        await until(lambda: brokers.upstream(2) == (LOOPBACK, broker.port))
        assert len(broker.clients) == 2


async def test_who_tells_a_brokers_old_address_misleads_nobody(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is there any more, or another one by now. It is asked again, for it may be true then."""
    monkeypatch.setattr(cluster_watch, "_RETRY_S", 0.02)
    where = {1: ("b1.internal", 9092), 2: ("b2.internal", 9092)}
    dead = free_port()
    async with (
        FaultBroker(knows(lambda: where)) as broker,
        FaultBroker(knows(lambda: where)) as another,
        watching(broker.port, refresh_s=3_600.0) as (brokers, watch),
    ):
        await until(watch.answered.is_set)

        def told() -> bool:
            for port in (dead, another.port):
                brokers.learn(2, LOOPBACK, port)
            return len(another.clients) > 3

        await until(told)
        assert brokers.upstreams == where
        where[2] = (LOOPBACK, another.port)
        await until(lambda: told() and brokers.upstream(2) == where[2])
        refuted = [f"{LOOPBACK}:{dead}", f"{LOOPBACK}:{another.port}"]
    assert [line["upstream"] for line in said(lines, "broker_is_not_there")] == refuted


async def test_while_nobody_can_be_asked_a_broker_that_cannot_either_is_believed_to_have_moved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If somebody is there. A broker cut off from its controllers told the old address of one that had moved
    while the gateway's own question failed, and that one was refused from then on."""
    monkeypatch.setattr(cluster_watch, "_RETRY_S", 0.02)
    where = {1: ("b1", 1)}
    async with (
        FaultBroker(leaves) as broker,
        FaultBroker(leaves) as moved,
        FaultBroker(knows(lambda: where)) as another,
        watching(broker.port) as (brokers, watch),
    ):
        brokers.learn(2, LOOPBACK, free_port())
        await until(lambda: len(broker.clients) > 1)
        brokers.learn(2, LOOPBACK, moved.port)
        await until(lambda: brokers.upstream(2) == (LOOPBACK, moved.port))
        brokers.learn(2, LOOPBACK, free_port())
        brokers.learn(2, LOOPBACK, another.port)
        await until(lambda: len(another.clients) == cluster_watch._LOOKS and not brokers._claims)
        assert brokers.upstream(2) == (LOOPBACK, moved.port)
        assert not watch.answered.is_set()


async def test_a_broker_that_is_told_before_it_takes_connections_is_found(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_watch, "_RETRY_S", 0.3)
    port = free_port()
    where = {1: ("b1", 1), 2: (LOOPBACK, port)}
    async with (
        FaultBroker(knows(lambda: {1: ("b1", 1), 2: ("b2", 1)})) as broker,
        watching(broker.port, refresh_s=3_600.0) as (brokers, watch),
    ):
        await until(watch.answered.is_set)
        brokers.learn(2, LOOPBACK, port)
        await until(lambda: bool(said(lines, "upstream_unreachable")))
        async with FaultBroker(knows(lambda: where), port=port):
            await until(lambda: brokers.upstream(2) == where[2])
    assert not said(lines, "broker_is_not_there")


async def test_at_the_start_each_upstream_is_waited_for_shortly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two that are frozen had all clients wait for 22 s, those of brokers that were well, too."""
    monkeypatch.setattr(cluster_watch, "_FIRST_TIMEOUT_S", 0.2)
    monkeypatch.setattr(cluster_watch, "_ANSWER_TIMEOUT_S", 3_600.0)
    async with (
        FaultBroker(says_nothing) as one,
        FaultBroker(says_nothing) as two,
        FaultBroker(knows(lambda: {1: ("b1", 1)})) as broker,
        watching(one.port, two.port, broker.port, refresh_s=3_600.0) as (_, watch),
    ):
        await until(watch.answered.is_set)
        assert [len(each.clients) for each in (one, two, broker)] == [1, 1, 1]


async def test_a_broker_that_its_cluster_lists_no_more_is_asked_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sluice.proxy.session.gateway.broker_map._LEFT_MS", 0.0)
    where = {1: ("b1", 1), 2: ("b2", 1)}
    async with FaultBroker(knows(lambda: where)) as broker, watching(broker.port) as (_, watch):
        await until(watch.answered.is_set)
        assert watch._route.brokers() == (("b1", 1), ("b2", 1))
        del where[2]
        await until(lambda: watch._route.brokers() == (("b1", 1),))
        where[2] = ("b2", 1)
        await until(lambda: watch._route.brokers() == (("b1", 1), ("b2", 1)))


async def test_it_asks_the_next_one_when_the_first_is_dead_and_stays_there(lines: Lines) -> None:
    async with (
        FaultBroker(knows(lambda: {1: ("b1", 1)})) as broker,
        watching(free_port(), broker.port) as (
            brokers,
            _,
        ),
    ):
        await until(lambda: len(broker.clients) > 3)
        assert brokers.upstreams == {1: ("b1", 1)}
    assert not said(lines, "brokers_not_asked")
    assert len(said(lines, "upstream_unreachable")) == 1


async def test_nobody_to_ask_is_said_once_until_somebody_answers(lines: Lines) -> None:
    port, other = free_port(), free_port()
    async with watching(port, other) as (brokers, watch):
        await until(lambda: bool(said(lines, "brokers_not_asked")))
        await asyncio.sleep(0.3)
        assert not watch.answered.is_set()
        async with FaultBroker(knows(lambda: {1: ("b1", 1)}), port=port):
            await until(watch.answered.is_set)
        await until(lambda: len(said(lines, "brokers_not_asked")) == 2)
        assert brokers.upstreams == {1: ("b1", 1)}
    first = said(lines, "brokers_not_asked")[0]
    assert first["reason"] == "upstream_unreachable"
    assert first["upstream"] == f"{LOOPBACK}:{port}, {LOOPBACK}:{other}"


async def another_correlation_id(client: BrokerSide) -> None:
    asked = await client.request()
    await client.send(answer(METADATA, 12, correlation_id=asked.correlation_id + 1))


async def a_huge_answer(client: BrokerSide) -> None:
    await client.request()
    await client.send((2**31 - 1).to_bytes(4, "big"))
    await client.request()


async def a_negative_size(client: BrokerSide) -> None:
    await client.request()
    await client.send(b"\xff\xff\xff\xff")


async def a_broken_answer(client: BrokerSide) -> None:
    asked = await client.request()
    whole = answer(METADATA, 12, {"brokers": [{"nodeId": 1}]}, correlation_id=asked.correlation_id)
    await client.send((14).to_bytes(4, "big") + whole[4:18])  # it ends within the broker


async def leaves(client: BrokerSide) -> None:
    await client.request()


async def says_nothing(client: BrokerSide) -> None:
    while True:
        await client.request()


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        (another_correlation_id, "not the answer to our Metadata"),
        (a_huge_answer, "answer of 2147483647 bytes"),
        (a_negative_size, "answer of -1 bytes"),
        (a_broken_answer, "array of 1 in 4 bytes"),
        (leaves, "closed by the other side"),
        (says_nothing, "timed out"),
    ],
)
async def test_what_is_no_answer_teaches_nothing_and_is_asked_for_again(
    lines: Lines, monkeypatch: pytest.MonkeyPatch, behaviour: Behaviour, reason: str
) -> None:
    monkeypatch.setattr(cluster_watch, "_ANSWER_TIMEOUT_S", 0.3)
    async with FaultBroker(behaviour) as broker, watching(broker.port) as (brokers, watch):
        await until(lambda: len(broker.clients) > 1)
        broker.behaviour = knows(lambda: {1: ("b1", 1)})
        assert not brokers.upstreams
        await until(watch.answered.is_set)
        assert brokers.upstreams == {1: ("b1", 1)}
        asked = f"{LOOPBACK}:{broker.port}"
    (line,) = said(lines, "brokers_not_asked")
    assert reason in line["reason"]
    assert line["upstream"] == asked
    assert watch._upstream.cut_off.is_set() is (behaviour is leaves)


async def test_a_bootstrap_upstream_that_says_nothing_gives_way_to_the_next(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It froze while clients of other brokers were answered: it was asked again and again, nobody else, and
    each new client was led to it."""
    monkeypatch.setattr(cluster_watch, "_ANSWER_TIMEOUT_S", 0.3)
    async with (
        FaultBroker(says_nothing) as frozen,
        FaultBroker(knows(lambda: {1: ("b1", 1)})) as broker,
        watching(frozen.port, broker.port) as (brokers, watch),
    ):
        await until(lambda: len(broker.clients) > 2)
        assert brokers.upstreams == {1: ("b1", 1)}
        assert len(frozen.clients) == 1
        assert watch._route.addresses(None, START_MS)[0] == (LOOPBACK, broker.port)
    assert len(said(lines, "brokers_not_asked")) == 1


async def test_ids_without_a_port_are_said_once_for_each_new_one(lines: Lines) -> None:
    where = {4: ("b4", 1), 5: ("b5", 1), 1001: ("b1001", 1)}
    async with FaultBroker(knows(lambda: where)) as broker, watching(broker.port) as (brokers, _):
        await until(lambda: len(broker.clients) > 3)
        assert brokers.upstreams == {4: ("b4", 1)}
        where[6] = ("b6", 1)
        await until(lambda: len(said(lines, "brokers_out_of_range")) == 2)
        asked = len(broker.clients)
        await until(lambda: len(broker.clients) > asked + 2)
    assert [line["node_ids"] for line in said(lines, "brokers_out_of_range")] == [(5, 1001), (5, 6, 1001)]
    assert said(lines, "brokers_out_of_range")[0]["configured"] == "0 to 4"


async def test_a_name_that_no_resolver_takes_is_a_broker_that_cannot_be_reached(lines: Lines) -> None:
    """It is the brokers' to say, so that it is no fault of ours."""
    where = {1: ("b..1", 1)}
    async with FaultBroker(knows(lambda: where)) as broker, watching(broker.port) as (brokers, watch):
        await until(watch.answered.is_set)
        options = ListenerOptions(name="gw", bind_port=0)
        upstream = Upstream(asyncio.get_running_loop(), options, Circuits(), dial_timeout_s=0.5)
        with pytest.raises(NotConnected):
            await upstream.connect(lambda: [brokers.upstreams[1]], None, None)
    assert said(lines, "upstream_unreachable")[0]["reason"] == "'b..1' is no host's name"
