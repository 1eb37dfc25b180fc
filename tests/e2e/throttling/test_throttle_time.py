"""throttle_time_ms as each client library shows it, and quotas of what a client asks for by itself."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import kafka as kafka_python
import pytest

from testkit.clients.java_metrics import java_metric
from testkit.clients.kafka_clients import CONFLUENT, Options, confluent_consumer, confluent_producer
from testkit.clients.kafka_records import create_topic, numbered, stored
from testkit.kafka.java_tools import run_tool
from testkit.kafka.node import KafkaNode
from testkit.proxy.sluice_process import SluiceProcess

Unique = Callable[[str], str]
QUOTA_BYTES_PER_S = 100_000
RECORDS = numbered(300, size_bytes=1_000)
"""the burst of 1 s, and 2 s of quota"""
PRODUCE_MS = 8_000
"""the answer budget: what a Produce answer tells at most"""
FETCH_TOLD_MS = 2_000
"""what a Fetch answer tells at most"""


class ToldThrottles:
    """Collects librdkafka's throttle events."""

    def __init__(self) -> None:
        self.throttles_s: list[float] = []

    def __call__(self, event: Any) -> None:
        self.throttles_s.append(event.throttle_time)


def test_librdkafka_is_told_its_producers_throttle_time(
    kafka: KafkaNode, sluice: SluiceProcess, unique: Unique
) -> None:
    topic, client_id, told = create_topic(kafka, unique("topic")), unique("app"), ToldThrottles()
    sluice.set_quotas({"client-id": client_id, "producer_byte_rate": QUOTA_BYTES_PER_S})
    producer = confluent_producer(sluice.bootstrap(), Options(client_id=client_id), throttle_cb=told)
    for record in RECORDS:
        producer.produce(topic, record.value, partition=record.partition)
    assert producer.flush(60.0) == 0
    assert 0.01 < max(told.throttles_s) <= PRODUCE_MS / 1_000


def test_librdkafka_is_told_its_consumers_throttle_time(
    kafka: KafkaNode, sluice: SluiceProcess, unique: Unique
) -> None:
    topic, client_id, told = create_topic(kafka, unique("topic")), unique("app"), ToldThrottles()
    CONFLUENT.produce(kafka.bootstrap, topic, RECORDS, Options())
    sluice.set_quotas({"client-id": client_id, "consumer_byte_rate": QUOTA_BYTES_PER_S})
    consumer = confluent_consumer(
        sluice.bootstrap(), unique("group"), Options(client_id=client_id), throttle_cb=told
    )
    consumer.subscribe([topic])
    found = 0
    while found < len(RECORDS):
        found += len(consumer.consume(1000, 0.5))
    consumer.close()
    assert 0.01 < max(told.throttles_s) <= FETCH_TOLD_MS / 1_000


@pytest.mark.long
def test_kafka_python_logs_its_producers_throttle_time(
    kafka: KafkaNode, sluice: SluiceProcess, unique: Unique, caplog: pytest.LogCaptureFixture
) -> None:
    topic, client_id = create_topic(kafka, unique("topic")), unique("app")
    sluice.set_quotas({"client-id": client_id, "producer_byte_rate": QUOTA_BYTES_PER_S})
    producer = kafka_python.KafkaProducer(bootstrap_servers=sluice.bootstrap(), client_id=client_id)
    for record in RECORDS:
        producer.send(topic, record.value, partition=record.partition)
    producer.flush()
    producer.close()
    assert 10 < max(_told_to_kafka_python(caplog, "Produce")) <= PRODUCE_MS


@pytest.mark.long
def test_kafka_python_logs_its_consumers_throttle_time(
    kafka: KafkaNode, sluice: SluiceProcess, unique: Unique, caplog: pytest.LogCaptureFixture
) -> None:
    topic, client_id = create_topic(kafka, unique("topic")), unique("app")
    CONFLUENT.produce(kafka.bootstrap, topic, RECORDS, Options())
    sluice.set_quotas({"client-id": client_id, "consumer_byte_rate": QUOTA_BYTES_PER_S})
    consumer = kafka_python.KafkaConsumer(
        topic,
        bootstrap_servers=sluice.bootstrap(),
        client_id=client_id,
        group_id=unique("group"),
        auto_offset_reset="earliest",
    )
    found = 0
    while found < len(RECORDS):
        found += sum(map(len, consumer.poll(timeout_ms=500).values()))
    consumer.close()
    assert 10 < max(_told_to_kafka_python(caplog, "Fetch")) <= FETCH_TOLD_MS


def test_javas_consumer_reports_how_long_it_was_throttled(
    kafka: KafkaNode, sluice: SluiceProcess, unique: Unique
) -> None:
    topic, client_id = create_topic(kafka, unique("topic")), unique("app")
    CONFLUENT.produce(kafka.bootstrap, topic, RECORDS, Options())
    sluice.set_quotas({"client-id": client_id, "consumer_byte_rate": QUOTA_BYTES_PER_S})
    output = run_tool(
        kafka.dist,
        "consumer-perf-test",
        *("--bootstrap-server", sluice.bootstrap(), "--topic", topic, "--group", unique("group")),
        *("--num-records", str(len(RECORDS)), "--timeout", "30000", "--print-metrics"),
        *("--command-property", f"client.id={client_id}"),
    ).stdout
    mean_ms, max_ms = (java_metric(output, f"fetch-throttle-time-{what}") for what in ("avg", "max"))
    assert 0.0 < mean_ms <= max_ms, output
    assert 10.0 < max_ms <= FETCH_TOLD_MS, output
    assert re.search(rf", {len(RECORDS)}, ", output), output  # it got them all


@pytest.mark.long
def test_javas_producer_reports_what_a_limit_on_request_time_asked_of_it(
    kafka: KafkaNode, sluice: SluiceProcess, unique: Unique
) -> None:
    """By the field that bytes are told in: the broker and the proxy write the larger of both into it."""
    topic, client_id = create_topic(kafka, unique("topic")), unique("app")
    sluice.set_quotas({"client-id": client_id, "request_percentage": 0.1})  # 1 ms a second
    output = run_tool(
        kafka.dist,
        "producer-perf-test",
        *("--bootstrap-server", sluice.bootstrap(), "--topic", topic, "--num-records", "200"),
        *("--record-size", "1000", "--throughput", "-1", "--print-metrics"),
        *("--command-property", f"client.id={client_id}", "batch.size=10000"),
    ).stdout
    assert 0.0 < java_metric(output, "produce-throttle-time-avg") <= 1_000.0, output  # a window at most
    assert sluice.metric("sluice_throttled_requests_total", quota="request", client_id=client_id) > 0
    assert len(stored(kafka, topic)) == 200


def _told_to_kafka_python(caplog: pytest.LogCaptureFixture, api: str) -> list[int]:
    """The throttle times in ms; its metrics leave them out."""
    found = (re.search(rf"{api}Response throttled by broker \((\d+) ms\)", line) for line in caplog.messages)
    return [int(match[1]) for match in found if match]
