"""Followers that fetch through Sluice are no clients: the in-sync sets stay whole (two real brokers)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from testkit.clients.kafka_clients import LEAVES_SOCKETS
from testkit.kafka.cluster import KafkaCluster
from testkit.kafka.dist import KafkaDist
from testkit.proxy.sluice_process import SluiceProcess, doors_of_cluster

pytestmark = [pytest.mark.kafka, *LEAVES_SOCKETS]

SMALL = [{"user": "<default>", "consumer_byte_rate": 20_000}]
"""bytes a second: a follower that is charged needs half a minute for its part of what is produced here"""
PARTITIONS = 4
RECORDS = 1_200
VALUE = bytes(1_000)
THROUGH_SLUICE = {"inter.broker.listener.name": "SLUICE", "replica.lag.time.max.ms": "5000"}


def produce_to_all(cluster: KafkaCluster, topic: str) -> None:
    """Records to every partition with acks=all, past the proxy: each needs both brokers in sync."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    asked = NewTopic(topic, PARTITIONS, 2, config={"min.insync.replicas": "2"})
    admin.create_topics([asked])[topic].result(30)
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "acks": "all", "delivery.timeout.ms": 60_000}
    )
    failed: list[Any] = []

    def noted(error: Any, _message: Any) -> None:
        if error is not None:
            failed.append(error)

    for number in range(RECORDS):
        producer.produce(topic, VALUE, partition=number % PARTITIONS, on_delivery=noted)
        producer.poll(0)
    assert producer.flush(90) == 0
    assert failed == []


def shrunk(cluster: KafkaCluster, topic: str) -> list[int]:
    return [number for number in range(PARTITIONS) if len(cluster.in_sync(topic, number)) != 2]


def test_declared_followers_are_in_sync_whatever_the_default_limit_is(
    kafka_dist: KafkaDist, unique: Callable[[str], str]
) -> None:
    topic = unique("t")
    with KafkaCluster(kafka_dist, size=2, proxied=["SLUICE"], config=THROUGH_SLUICE) as cluster:
        doors = doors_of_cluster(cluster)
        declared = {"listeners": [door.name for door in doors]}
        with SluiceProcess(doors, SMALL, inter_broker=declared) as proxy:
            produce_to_all(cluster, topic)
            assert shrunk(cluster, topic) == []
            assert proxy.metric("sluice_followers_total", treated="exempt") >= 2
            assert proxy.metric("sluice_followers_total", treated="charged") == 0
            assert "inter_broker_not_declared" not in proxy.log.read_text()


@pytest.mark.long
def test_what_is_not_declared_is_named_at_the_start_and_counted(
    kafka_dist: KafkaDist, unique: Callable[[str], str]
) -> None:
    """A limit that is far away, for a follower that is charged would leave the in-sync set."""
    with KafkaCluster(kafka_dist, size=2, proxied=["SLUICE"], config=THROUGH_SLUICE) as cluster:
        roomy = [{"user": "<default>", "consumer_byte_rate": 10**9}]
        with SluiceProcess(doors_of_cluster(cluster), roomy) as proxy:
            produce_to_all(cluster, unique("t"))
            assert proxy.metric("sluice_followers_total", treated="charged") >= 2
            assert proxy.metric("sluice_followers_total", treated="exempt") == 0
            assert "inter_broker_not_declared" in proxy.log.read_text()
