"""Three brokers behind the proxy: one dies, partitions and coordinators move; no record is lost or doubled.

Clients of four libraries, idempotent and transactional, and their groups are at work meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import pytest
from _pytest.mark import ParameterSet

from testkit.clients.everybody import EVERYBODY, NOT_RESENDING, WITHOUT_FRAIL, Worker, everybody_at_work
from testkit.clients.kafka_clients import LEAVES_SOCKETS
from testkit.kafka.cluster import KafkaCluster
from testkit.kafka.dist import KafkaDist
from testkit.proxy.sluice_process import SluiceProcess, doors_of_cluster, gateway_door

Unique = Callable[[str], str]
Happening = Callable[[KafkaCluster, list[Worker]], None]

pytestmark = [
    pytest.mark.kafka,
    *LEAVES_SOCKETS,
]


@pytest.fixture(scope="module")
def cluster(kafka_dist: KafkaDist) -> Iterator[KafkaCluster]:
    with KafkaCluster(kafka_dist, proxied=["SLUICE"]) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def _whole_again(cluster: KafkaCluster) -> Iterator[None]:
    """A test that failed in between must not be the next one's trouble."""
    yield
    for node in cluster.nodes:
        if not node.is_running:
            node.start()
    cluster.await_in_sync()


MODES: dict[str, Callable[[KafkaCluster], SluiceProcess]] = {
    "broker": lambda cluster: SluiceProcess(doors_of_cluster(cluster)),
    "gateway": lambda cluster: SluiceProcess([gateway_door(cluster)], mode="gateway"),
}


def a_broker_is_killed_and_comes_back(cluster: KafkaCluster, workers: list[Worker]) -> None:
    victim = cluster.transaction_coordinator_of("any")
    cluster.kill(victim)
    cluster.await_until(lambda: victim not in cluster.live_ids(), "counted as dead")
    cluster.start(victim)
    cluster.await_in_sync()
    cluster.elect_preferred_leaders((worker.topic, partition) for worker in workers for partition in range(3))


def a_broker_is_shut_down_and_comes_back(cluster: KafkaCluster, workers: list[Worker]) -> None:
    victim = cluster.leader(workers[0].topic)
    cluster.stop(victim)
    cluster.start(victim)
    cluster.await_in_sync()


def partitions_are_moved(cluster: KafkaCluster, workers: list[Worker]) -> None:
    """Each to a broker that had no copy of it, which leads it from then on."""
    moves = {}
    for worker in workers:
        for partition in range(3):
            before = cluster.replicas(worker.topic, partition)
            (newcomer,) = cluster.ids - set(before)
            moves[worker.topic, partition] = [newcomer, before[0]]
    cluster.reassign_all(moves)


def coordinators_move(cluster: KafkaCluster, workers: list[Worker]) -> None:
    """Of all groups and of all transactions, twice."""
    for _ in range(2):
        cluster.move_coordinator(workers[0].group)
        cluster.move_transaction_coordinator("any")


DEADLY = [a_broker_is_killed_and_comes_back, a_broker_is_shut_down_and_comes_back]
HAPPENINGS: list[Happening] = [*DEADLY, partitions_are_moved, coordinators_move]
MARKS: dict[tuple[str, Happening, bool], pytest.MarkDecorator] = {
    ("broker", a_broker_is_killed_and_comes_back, True): pytest.mark.long,
    ("gateway", partitions_are_moved, True): pytest.mark.long,
}
"""the others are slow: half a minute each, and they say little that these do not"""


def cases() -> Iterator[ParameterSet]:
    """Every mode with everything that happens, with and without a quota."""
    for mode, happening, throttled in product(MODES, HAPPENINGS, (False, True)):
        marks = MARKS.get((mode, happening, throttled), pytest.mark.slow)
        name = f"{mode}-{happening.__name__}-{'throttled' if throttled else 'without-quota'}"
        yield pytest.param(mode, happening, throttled, marks=marks, id=name)


@pytest.mark.parametrize(("mode", "happening", "throttled"), list(cases()))
def test_everybody_produces_exactly_once_while(
    cluster: KafkaCluster, unique: Unique, mode: str, happening: Happening, throttled: bool
) -> None:
    who = WITHOUT_FRAIL if happening in DEADLY else EVERYBODY
    if happening is partitions_are_moved and throttled:
        who = NOT_RESENDING
    with (
        MODES[mode](cluster) as proxy,
        everybody_at_work(
            cluster,
            proxy,
            unique,
            throttled=throttled,
            who=who,
            replicas=2,  # so that there is a broker to move to
            topic_config={"min.insync.replicas": "1"},
        ) as workers,
    ):
        happening(cluster, workers)
