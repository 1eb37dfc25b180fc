"""Kafka's own command-line tools through the proxy: they produce, consume and administrate as without it."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from testkit.clients.kafka_clients import CONFLUENT, Options
from testkit.clients.kafka_records import assert_exactly, create_topic, number_of, numbered, stored
from testkit.kafka.java_tools import run_tool
from testkit.kafka.node import KafkaNode
from testkit.proxy.sluice_process import SluiceProcess, doors_of

Unique = Callable[[str], str]
RECORDS = numbered(2000, partitions=1)


class Tools:
    """The tools, pointed at the proxy."""

    def __init__(self, kafka: KafkaNode, sluice: SluiceProcess) -> None:
        self._dist = kafka.dist
        self._bootstrap = sluice.bootstrap()

    def __call__(self, tool: str, *arguments: str, input_text: str = "") -> str:
        """Run one to its end and return its standard output. Raises ToolError if it fails."""
        return run_tool(
            self._dist, tool, "--bootstrap-server", self._bootstrap, *arguments, input_text=input_text
        ).stdout


@pytest.fixture(scope="module")
def sluice(kafka: KafkaNode) -> Iterator[SluiceProcess]:
    """One that leaves the broker's own quotas to the broker."""
    with SluiceProcess(doors_of(kafka), quota_options={"source": "passthrough"}) as process:
        yield process


@pytest.fixture(scope="module")
def tools(kafka: KafkaNode, sluice: SluiceProcess) -> Tools:
    return Tools(kafka, sluice)


def lines_of(records: list[bytes]) -> str:
    return "".join(f"{value.decode()}\n" for value in records)


# Producing and consuming ------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_console_producers_lines_arrive_in_order_with_every_compression(
    kafka: KafkaNode, tools: Tools, unique: Unique
) -> None:
    text = lines_of([record.value for record in RECORDS])
    topics = {codec: create_topic(kafka, unique(codec), 1) for codec in ("gzip", "snappy", "lz4", "zstd")}

    def produce(codec: str, topic: str) -> None:
        tools("console-producer", "--topic", topic, "--compression-codec", codec, input_text=text)

    with ThreadPoolExecutor(2) as pool:
        for _ in pool.map(produce, *zip(*topics.items(), strict=True)):
            pass
    for topic in topics.values():
        assert_exactly(RECORDS, stored(kafka, topic))


@pytest.mark.parametrize("protocol", [pytest.param("classic", marks=pytest.mark.long), "consumer"])
def test_the_console_consumer_prints_what_is_stored(
    kafka: KafkaNode, tools: Tools, unique: Unique, protocol: str
) -> None:
    topic = create_topic(kafka, unique("topic"), 1)
    CONFLUENT.produce(kafka.bootstrap, topic, RECORDS, Options())
    printed = tools(
        "console-consumer",
        *("--topic", topic, "--group", unique("group"), "--from-beginning"),
        *("--max-messages", str(len(RECORDS)), "--command-property", f"group.protocol={protocol}"),
    )
    assert printed == lines_of([record.value for record in RECORDS])


@pytest.mark.long
def test_the_transactions_of_the_performance_producer_are_committed(
    kafka: KafkaNode, tools: Tools, unique: Unique
) -> None:
    topic = create_topic(kafka, unique("topic"))
    tools(
        "producer-perf-test",
        *("--topic", topic, "--num-records", "3000", "--record-size", "300", "--throughput", "3000"),
        *("--transactional-id", unique("transaction"), "--transaction-duration-ms", "200"),
    )
    assert len(stored(kafka, topic, committed_only=True)) == 3000


# Share groups -----------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_share_group_gets_everything_at_the_pace_of_its_quota(
    kafka: KafkaNode, sluice: SluiceProcess, tools: Tools, unique: Unique
) -> None:
    topic, group, client_id = create_topic(kafka, unique("topic")), unique("group"), unique("app")
    records = numbered(800, size_bytes=1_000)
    CONFLUENT.produce(kafka.bootstrap, topic, records, Options(batch_bytes=20_000))
    tools(
        "configs",
        *("--alter", "--entity-type", "groups", "--entity-name", group),
        *("--add-config", "share.auto.offset.reset=earliest"),
    )
    sluice.set_quotas({"client-id": client_id, "consumer_byte_rate": 150_000})
    begun_s = time.monotonic()
    printed = tools(
        "console-share-consumer",
        *("--topic", topic, "--group", group, "--max-messages", str(len(records))),
        *("--command-property", f"client.id={client_id}"),
    )
    took_s = time.monotonic() - begun_s
    assert took_s > 3.5  # 800 kB: the burst of 1 s, and 4.3 s of quota; the tool's own start counts too
    assert Counter(number_of(line.encode()) for line in printed.splitlines()) == Counter(range(800))
    assert sluice.metric("sluice_throttled_seconds_total", quota="fetch", client_id=client_id) > 2.0
    assert sluice.metric("sluice_requests_total", api_key="ShareFetch") > 0


# Administration ---------------------------------------------------------------------------------------------


def test_topics_are_created_described_altered_and_deleted(
    kafka: KafkaNode, sluice: SluiceProcess, tools: Tools, unique: Unique
) -> None:
    topic = unique("topic")
    tools("topics", "--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=3600000")
    tools("topics", "--alter", "--topic", topic, "--partitions", "5")
    described = tools("topics", "--describe", "--topic", topic)
    assert "PartitionCount: 5" in described
    assert "retention.ms=3600000" in described
    tools("topics", "--delete", "--topic", topic)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    sluice.wait_until(lambda: topic not in admin.list_topics(timeout=30.0).topics, "deleted")


@pytest.mark.parametrize(
    ("entity_type", "config"),
    [("topics", "max.message.bytes=12345"), ("clients", "producer_byte_rate=1048576")],
)
def test_configs_are_set_and_shown_and_so_are_the_brokers_own_quotas(
    kafka: KafkaNode, tools: Tools, unique: Unique, entity_type: str, config: str
) -> None:
    name = unique("entity")
    if entity_type == "topics":
        create_topic(kafka, name)
    entity = ("--entity-type", entity_type, "--entity-name", name)
    tools("configs", "--alter", *entity, "--add-config", config)
    assert config in tools("configs", "--describe", *entity)


@pytest.mark.long
def test_groups_are_listed_described_reset_and_deleted(
    kafka: KafkaNode, sluice: SluiceProcess, tools: Tools, unique: Unique
) -> None:
    topic, group = create_topic(kafka, unique("topic"), 1), unique("group")
    CONFLUENT.produce(sluice.bootstrap(), topic, RECORDS, Options())
    CONFLUENT.consume(sluice.bootstrap(), topic, group, len(RECORDS), Options())
    assert group in tools("groups", "--list")
    described = tools("consumer-groups", "--describe", "--group", group)
    assert re.search(rf"{group}\s+{topic}\s+0\s+2000\s+2000\s+0\s", described), described
    to_earliest = ("--reset-offsets", "--to-earliest", "--topic", topic, "--execute")
    tools("consumer-groups", "--group", group, *to_earliest)
    again = CONFLUENT.consume(sluice.bootstrap(), topic, group, len(RECORDS), Options())
    assert_exactly(RECORDS, again)
    tools("consumer-groups", "--delete", "--group", group)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})  # in a name: its end takes the answer along
    left = admin.list_consumer_groups().result(30.0).valid
    assert group not in {listing.group_id for listing in left}


@pytest.mark.long
def test_records_are_deleted_and_offsets_shown(
    kafka: KafkaNode, tools: Tools, unique: Unique, tmp_path: Path
) -> None:
    topic = create_topic(kafka, unique("topic"), 1)
    CONFLUENT.produce(kafka.bootstrap, topic, RECORDS, Options())
    wish = tmp_path / "delete.json"
    partition = {"topic": topic, "partition": 0, "offset": 1500}
    wish.write_text(json.dumps({"partitions": [partition], "version": 1}))
    tools("delete-records", "--offset-json-file", str(wish))
    assert f"{topic}:0:1500" in tools("get-offsets", "--topic", topic, "--time", "earliest")
    assert_exactly(RECORDS[1500:], stored(kafka, topic))


def test_the_brokers_versions_are_shown_as_far_as_they_can_be_metered(kafka: KafkaNode, tools: Tools) -> None:
    assert re.search(r"Produce\(0\): 0 to 13|Produce\(0\): 3 to 13", tools("broker-api-versions"))
