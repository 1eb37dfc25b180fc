"""The Python clients' own administration through the proxy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource as ConfluentResource
from confluent_kafka.cimpl import NewTopic as ConfluentTopic
from kafka.admin import KafkaAdminClient, NewTopic

from testkit.clients.kafka_clients import CONFLUENT, Options
from testkit.clients.kafka_records import create_topic, numbered
from testkit.kafka.node import KafkaNode
from testkit.proxy.sluice_process import SluiceProcess

Unique = Callable[[str], str]


def test_confluents_admin_creates_describes_and_deletes(sluice: SluiceProcess, unique: Unique) -> None:
    admin, topic = AdminClient({"bootstrap.servers": sluice.bootstrap()}), unique("topic")
    admin.create_topics([ConfluentTopic(topic, num_partitions=4, config={"retention.ms": "3600000"})])[
        topic
    ].result(30.0)
    sluice.wait_until(lambda: len(admin.list_topics(topic, 30.0).topics[topic].partitions) == 4, "there")
    resource = ConfluentResource(ConfluentResource.Type.TOPIC, topic)
    configs = admin.describe_configs([resource])[resource].result(30.0)
    assert configs["retention.ms"].value == "3600000"
    brokers = admin.describe_cluster().result(30.0).nodes
    assert [(node.host, node.port) for node in brokers] == [("127.0.0.1", sluice.doors["SLUICE"].port)]
    admin.delete_topics([topic])[topic].result(30.0)


def test_kafka_pythons_admin_creates_lists_and_deletes(sluice: SluiceProcess, unique: Unique) -> None:
    admin, topic = KafkaAdminClient(bootstrap_servers=sluice.bootstrap()), unique("topic")
    admin.create_topics([NewTopic(topic, num_partitions=2, replication_factor=1)])
    sluice.wait_until(lambda: topic in admin.list_topics(), "there")
    admin.delete_topics([topic])
    admin.close()


def test_aiokafkas_admin_creates_describes_and_lists_groups(
    kafka: KafkaNode, sluice: SluiceProcess, unique: Unique
) -> None:
    topic, group, records = create_topic(kafka, unique("topic")), unique("group"), numbered(10)
    CONFLUENT.produce(sluice.bootstrap(), topic, records, Options())
    CONFLUENT.consume(sluice.bootstrap(), topic, group, len(records), Options())

    async def ask() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=sluice.bootstrap())
        await admin.start()
        try:
            assert group in {name for name, _ in await admin.list_consumer_groups()}
            offsets = await admin.list_consumer_group_offsets(group)
            assert sum(offset.offset for offset in offsets.values()) == len(records)
            described = await admin.describe_topics([topic])
            assert len(described[0]["partitions"]) == 3
        finally:
            await admin.close()

    asyncio.run(ask())
