"""The cluster that tests run against: its nodes die, come back and hand over what they lead."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from testkit.clients.kafka_clients import CONFLUENT, Options
from testkit.clients.kafka_records import create_topic, numbered
from testkit.kafka.cluster import KafkaCluster
from testkit.kafka.dist import KafkaDist
from testkit.processes.ports import LOOPBACK, PORT_RANGE, free_port_range

pytestmark = [pytest.mark.kafka, pytest.mark.long]  # of the testkit, which all others use


@pytest.fixture(scope="module")
def cluster(kafka_dist: KafkaDist) -> Iterator[KafkaCluster]:
    with KafkaCluster(kafka_dist, proxied=["SLUICE"]) as cluster:
        yield cluster


def test_a_client_of_a_proxied_listener_is_told_every_proxys_address(cluster: KafkaCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_of("SLUICE")})
    # Asked once, before the client knows of any other address: there is no proxy to answer there.
    told = admin.list_topics(timeout=30.0).brokers
    assert {node_id: (str(broker.host), broker.port) for node_id, broker in told.items()} == {
        node.node_id: node.advertised("SLUICE") for node in cluster.nodes
    }


def test_a_killed_node_hands_over_and_comes_back_with_its_copies(cluster: KafkaCluster) -> None:
    topic = create_topic(cluster, "killed")
    victim = cluster.leader(topic)
    assert cluster.in_sync(topic) == cluster.ids
    cluster.kill(victim)
    cluster.await_until(lambda: cluster.leader(topic) not in {victim, -1}, "led by another")
    assert victim not in cluster.live_ids()
    cluster.start(victim)
    cluster.await_in_sync(topic)
    assert cluster.leader(topic) != victim
    cluster.elect_preferred_leader(topic)
    assert cluster.leader(topic) == victim


def test_a_stopped_node_hands_over_before_it_ends(cluster: KafkaCluster) -> None:
    topic = create_topic(cluster, "stopped")
    victim = cluster.leader(topic)
    cluster.stop(victim)
    assert cluster.leader(topic) not in {victim, -1}
    cluster.start(victim)
    cluster.await_in_sync()


def test_a_partition_is_moved_to_the_nodes_that_are_named(cluster: KafkaCluster) -> None:
    topic = create_topic(cluster, "moved")
    wanted = [3, 1]
    cluster.reassign(topic, 0, wanted)
    assert (cluster.replicas(topic), cluster.leader(topic)) == (wanted, 3)
    assert cluster.move_leader(topic) == cluster.leader(topic) == 1


def test_the_coordinator_of_a_group_is_where_the_broker_says_and_moves(cluster: KafkaCluster) -> None:
    topic, group = create_topic(cluster, "grouped"), "a-group"
    records = numbered(10)
    CONFLUENT.produce(cluster.bootstrap, topic, records, Options())
    CONFLUENT.consume(cluster.bootstrap, topic, group, len(records), Options())
    before = cluster.coordinator_of(group)
    assert _coordinator_by_the_brokers_word(cluster, group) == before
    after = cluster.move_coordinator(group)
    assert after != before
    cluster.await_until(lambda: _coordinator_by_the_brokers_word(cluster, group) == after, "moved")


def _coordinator_by_the_brokers_word(cluster: KafkaCluster, group: str) -> int:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    try:
        described = admin.describe_consumer_groups([group])[group].result(30.0)
    except KafkaException:  # it loads the group
        return -1
    return int(described.coordinator.id)


def test_ports_in_a_row_are_free_and_in_the_range() -> None:
    first = free_port_range(20)
    assert {first, first + 19} <= set(PORT_RANGE)
    with contextlib.ExitStack() as stack:
        for port in range(first, first + 20):
            stack.enter_context(socket.create_server((LOOPBACK, port)))
