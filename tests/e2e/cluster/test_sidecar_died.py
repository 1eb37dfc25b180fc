"""A broker whose sidecar died is out of reach, but not fenced: what docs/runbook/sidecar-died.md says, seen.

Both ways out of it, the sidecar's return and the broker's shutdown, lose and double nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

import pytest

from testkit.clients.kafka_clients import CONFLUENT, Options
from testkit.clients.kafka_records import Record, assert_exactly, await_stored, create_topic, numbered
from testkit.kafka.cluster import KafkaCluster
from testkit.kafka.dist import KafkaDist
from testkit.proxy.sluice_process import SluiceProcess, doors_of_cluster

Unique = Callable[[str], str]

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

OUTAGE_S: Final = 12.0
"""more than twice what this cluster gives a broker that is really gone (broker.session.timeout.ms)"""
RECORDS: Final = 300


@pytest.fixture(scope="module")
def cluster(kafka_dist: KafkaDist) -> Iterator[KafkaCluster]:
    with KafkaCluster(kafka_dist, proxied=["SLUICE"]) as cluster:
        yield cluster


@contextmanager
def writing_while_its_leaders_sidecar_is_dead(
    cluster: KafkaCluster, topic: str, records: list[Record]
) -> Iterator[tuple[int, SluiceProcess, Future[None]]]:
    """(the leader of the first partition, its sidecar that was killed, who writes into all partitions).

    It has been so for longer than the controller waits before it fences a broker.
    """
    doors = dict(zip(cluster.ids, doors_of_cluster(cluster), strict=True))
    victim = cluster.leader(topic)
    others = [door for node_id, door in doors.items() if node_id != victim]
    with SluiceProcess(others) as sidecars, SluiceProcess([doors[victim]]) as dead:
        CONFLUENT.produce(sidecars.bootstraps, topic, records[: RECORDS // 2], Options())
        dead.kill()
        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(
                CONFLUENT.produce, sidecars.bootstraps, topic, records[RECORDS // 2 :], Options()
            )
            time.sleep(OUTAGE_S)
            yield victim, dead, writing


def test_it_goes_on_leading_and_is_written_to_again_when_its_sidecar_is_back(
    cluster: KafkaCluster, unique: Unique
) -> None:
    topic, records = create_topic(cluster, unique("topic")), numbered(RECORDS)
    with writing_while_its_leaders_sidecar_is_dead(cluster, topic, records) as (victim, dead, writing):
        assert victim in cluster.live_ids()
        assert cluster.leader(topic) == victim
        assert not writing.done()
        dead.start()
        writing.result(90.0)
    assert_exactly(records, await_stored(cluster, topic, RECORDS))


def test_shut_down_it_hands_its_partitions_over_without_its_sidecar(
    cluster: KafkaCluster, unique: Unique
) -> None:
    topic, records = create_topic(cluster, unique("topic")), numbered(RECORDS)
    with writing_while_its_leaders_sidecar_is_dead(cluster, topic, records) as (victim, _, writing):
        assert not writing.done()
        cluster.stop(victim)
        writing.result(90.0)
        assert cluster.leader(topic) != victim
    cluster.start(victim)
    cluster.await_in_sync()
    assert_exactly(records, await_stored(cluster, topic, RECORDS))
