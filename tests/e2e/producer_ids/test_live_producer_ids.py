"""A broker or a proxy dies under 500 live producer ids: at a rate of 100 new ids an hour all of them go on.

Three brokers, before each a proxy of its own. The live ids turn up at proxies that never saw them, and come
in as resumed ones: the buckets for new ids are empty by then.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from itertools import count
from typing import Final

import pytest

from testkit.clients.kafka_clients import AIOKAFKA, CONFLUENT, LEAVES_SOCKETS, Client, Options
from testkit.clients.kafka_records import Record, create_topic, stored
from testkit.clients.live_ids import LiveId, bring_new_id
from testkit.kafka.cluster import KafkaCluster
from testkit.kafka.dist import KafkaDist
from testkit.proxy.sluice_process import Quota, SluiceProcess, doors_of_cluster

pytestmark = [pytest.mark.kafka, pytest.mark.slow, *LEAVES_SOCKETS]

LIVE: Final = 500
LIBRARIES: Final[tuple[Client, ...]] = (AIOKAFKA, CONFLUENT) * 6
"""of the live ids so many are of whole clients; the others are only what idempotence is (live_ids.py)"""
PARTITIONS: Final = 6
PAUSE_S: Final = 1.5
WITHIN_S: Final = 90.0
PLENTY: Final[Quota] = {"user": "<default>", "producer_ids_rate": 100_000}
LIMIT_PER_HOUR: Final = 100
LIMIT: Final[Quota] = {"user": "<default>", "producer_ids_rate": LIMIT_PER_HOUR}


@pytest.fixture(scope="module")
def cluster(kafka_dist: KafkaDist) -> Iterator[KafkaCluster]:
    with KafkaCluster(kafka_dist, proxied=["SLUICE"]) as cluster:
        yield cluster


@pytest.fixture
def proxies(cluster: KafkaCluster) -> Iterator[dict[int, SluiceProcess]]:
    """One process for each broker, by the broker's id."""
    with ExitStack() as stack:
        doors = doors_of_cluster(cluster)
        yield {
            node.node_id: stack.enter_context(SluiceProcess([door], [PLENTY]))
            for node, door in zip(cluster.nodes, doors, strict=True)
        }


class WholeClient:
    """A library's producer of one partition, in a thread."""

    def __init__(self, client: Client, name: str, partition: int) -> None:
        self.client = client
        self.name = name
        self.sent: list[Record] = []
        self.stopped = threading.Event()
        self._partition = partition
        self.done: Future[None] | None = None

    def __iter__(self) -> Iterator[Record]:
        for number in count():
            if self.stopped.is_set():
                return
            self.sent.append(Record(self._partition, f"{self.name}:{number:06d}".encode()))
            yield self.sent[-1]

    def produce(self, bootstrap: str, topic: str) -> None:
        options = Options(client_id=self.name, records_per_s=1.0 / PAUSE_S, within_s=2 * WITHIN_S)
        self.client.produce(bootstrap, topic, self, options)


class Population:
    """All live ids, and where the partitions' leaders are."""

    def __init__(self, cluster: KafkaCluster, proxies: dict[int, SluiceProcess], topic: str) -> None:
        self.cluster = cluster
        self.proxies = proxies
        self.topic = topic
        self.leaders: dict[int, int] = {}
        self.look()
        self.light = [
            LiveId(f"light-{number:03d}", topic, number % PARTITIONS, self._door_of)
            for number in range(LIVE - len(LIBRARIES))
        ]
        self.whole = [
            WholeClient(client, f"{client.name}-{number:03d}", number % PARTITIONS)
            for number, client in enumerate(LIBRARIES)
        ]

    def look(self) -> None:
        """Who leads now."""
        for partition in range(PARTITIONS):
            self.leaders[partition] = self.cluster.leader(self.topic, partition)

    def door(self, node_id: int) -> int:
        (door,) = self.proxies[node_id].doors.values()
        return door.port

    def _door_of(self, partition: int) -> int | None:
        leader = self.leaders[partition]
        return None if leader < 0 else self.door(leader)

    def metric(self, name: str, *node_ids: int) -> float:
        """Sum over the proxies of these brokers, or of all."""
        return sum(self.proxies[node_id].metric(name) for node_id in node_ids or self.proxies)

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        bootstrap = ",".join(proxy.bootstraps for proxy in self.proxies.values())
        with ThreadPoolExecutor(len(self.whole)) as pool:
            for client in self.whole:
                client.done = pool.submit(client.produce, bootstrap, self.topic)
            try:
                async with asyncio.TaskGroup() as group:
                    for one in self.light:
                        group.create_task(one.run(PAUSE_S))
                    try:
                        yield
                    finally:
                        for one in self.light:
                            one.stopped = True
            finally:
                for client in self.whole:
                    client.stopped.set()
        for client in self.whole:
            assert client.done is not None
            client.done.result()

    async def until_each_has(self, more: int) -> None:
        """So many records more of each light client are acknowledged, and no whole one has given up."""
        goals = [one.acknowledged + more for one in self.light]
        deadline_s = time.monotonic() + WITHIN_S
        while late := [one for one, goal in zip(self.light, goals, strict=True) if one.acknowledged < goal]:
            assert time.monotonic() < deadline_s, f"{len(late)} of {LIVE} do not go on: {late[:3]}"
            for client in self.whole:
                assert client.done is not None
                assert not client.done.done() or client.done.result() is None, client.name
            await asyncio.sleep(0.1)

    def judge(self) -> None:
        """Record by record: each once, in the order of sending, nothing else."""
        found: defaultdict[str, list[Record]] = defaultdict(list)
        for record in stored(self.cluster, self.topic):
            found[record.value.decode().split(":")[0]].append(record)
        everyone: list[LiveId | WholeClient] = [*self.light, *self.whole]
        for each in everyone:
            assert found.pop(each.name) == each.sent, each.name
        assert all(name.startswith("new-") for name in found)


async def spend_the_bucket(population: Population, node_id: int) -> int:
    """New ids at the proxy of this broker until one has to wait. Returns how many had not to."""
    partition = next(p for p, leader in population.leaders.items() if leader == node_id)
    for number in count():
        record = Record(partition, f"new-{node_id}:{number:06d}".encode())
        if not await bring_new_id(population.door(node_id), population.topic, record):
            return number
        assert number <= LIMIT_PER_HOUR + 10, "more than the bucket holds"
    raise AssertionError


@pytest.mark.asyncio
async def test_500_live_ids_go_on_at_100_new_ids_an_hour_when_a_broker_and_when_a_proxy_is_killed(
    cluster: KafkaCluster, proxies: dict[int, SluiceProcess], unique: Callable[[str], str]
) -> None:
    topic = create_topic(cluster, unique("live"), PARTITIONS)
    population = Population(cluster, proxies, topic)
    async with population.at_work():
        await population.until_each_has(2)
        assert population.metric("sluice_producer_ids_new_total") >= LIVE
        for proxy in proxies.values():
            await asyncio.to_thread(proxy.set_quotas, LIMIT)
        spent_s = time.monotonic()
        for node_id in proxies:
            assert await spend_the_bucket(population, node_id) > LIMIT_PER_HOUR / 2
        await population.until_each_has(1)
        assert population.metric("sluice_producer_ids_resumed_total") == 0

        victim = cluster.leader(topic, 0)
        moved = [one for one in population.light if population.leaders[one.partition] == victim]
        survivors = [node_id for node_id in proxies if node_id != victim]
        await asyncio.to_thread(cluster.kill, victim)
        while not set(population.leaders.values()) <= set(survivors):
            await asyncio.to_thread(population.look)
        await population.until_each_has(2)
        resumed = population.metric("sluice_producer_ids_resumed_total", *survivors)
        assert len(moved) > LIVE / 5
        assert resumed >= len(moved)

        assert population.metric("sluice_producer_ids_refused_total", *survivors) == 0

        restarted = survivors[0]
        proxies[restarted].kill()
        await asyncio.to_thread(proxies[restarted].start)
        await population.until_each_has(2)
        assert population.metric("sluice_producer_ids_resumed_total", restarted) > LIVE / 5

        # And the limit was in force all the time.
        refilled = LIMIT_PER_HOUR * (time.monotonic() - spent_s) / 3_600
        assert await spend_the_bucket(population, survivors[1]) <= refilled + 2
    for name in ("forced", "refused"):
        assert population.metric(f"sluice_producer_ids_{name}_total", *survivors) == 0
    population.judge()
