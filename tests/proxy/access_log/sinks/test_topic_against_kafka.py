"""The access log in a topic of a real broker: records that are whole files, made, refused, waited for."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from structlog.testing import capture_logs

from sluice.proxy.access_log.fetch import Fetched, FetchFailed, fetch_files
from sluice.proxy.access_log.sinks.directory import DirectorySink
from sluice.proxy.access_log.sinks.sink import LogFile, TopicSettings
from sluice.proxy.config.quotas import QuotaTopicOptions
from sluice.usage.access_record import REQUESTS, ROLLUP, SCHEMA_VERSION, VERSION_KEY
from testkit.access_log.access_rows import BEGIN_MS, clients, columns, read, read_all, row, rows
from testkit.access_log.access_writers import writing
from testkit.clients.kafka_records import create_topic
from testkit.kafka.dist import KafkaDist
from testkit.kafka.node import KafkaNode
from testkit.processes.ports import free_ports
from testkit.processes.waiting import wait_until

pytestmark = pytest.mark.kafka
_names = count(1)


_OF_THE_TOPIC = {"partitions", "retention_s", "max_record_bytes"}


def topic_of(kafka: KafkaNode, *, bootstrap: str = "", **more: Any) -> TopicSettings:
    options: dict[str, Any] = {"partitions": 2, "request_timeout_s": 30.0, **more}
    cluster = QuotaTopicOptions(
        name=f"access-{os.getpid()}-{next(_names)}",
        bootstrap=(bootstrap or kafka.bootstrap,),
        **{key: value for key, value in options.items() if key not in _OF_THE_TOPIC},
    )
    return TopicSettings(cluster, **{key: value for key, value in options.items() if key in _OF_THE_TOPIC})


def records(kafka: KafkaNode, name: str) -> list[Any]:
    """All that are in the topic."""
    consumer = KafkaConsumer(bootstrap_servers=kafka.bootstrap, enable_auto_commit=False)
    try:
        partitions = [TopicPartition(name, number) for number in consumer.partitions_for_topic(name) or ()]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(partitions)
        found: list[Any] = []
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            for batch in consumer.poll(timeout_ms=1000).values():
                found += batch
        return found
    finally:
        consumer.close()


def headers_of(record: Any) -> dict[str, str]:
    return {key: value.decode() for key, value in record.headers}


def test_each_record_is_a_file_and_says_where_it_belongs(kafka: KafkaNode, tmp_path: Path) -> None:
    topic = topic_of(kafka)
    with writing(topic) as writer:
        writer.offer(ROLLUP, columns([*rows(300), row(at_ms=BEGIN_MS - 10_000)]))
        writer.offer(REQUESTS, columns([row(REQUESTS, at_ms=BEGIN_MS + 17)]))
    assert (writer.counters.rows_written, writer.counters.failures) == (302, 0)
    found = {headers_of(record)["table"]: record for record in records(kafka, topic.cluster.name)}
    assert set(found) == {ROLLUP, REQUESTS}
    assert found[ROLLUP].key == f"rollup/{BEGIN_MS - 10_000}".encode()
    assert found[REQUESTS].key == f"requests/{BEGIN_MS}".encode()
    headers = headers_of(found[ROLLUP])
    assert headers["folder"] == "rollup/date=2026-11-20/hour=10"
    assert headers["name"].startswith("proxy-1-")
    assert (headers["rows"], headers[VERSION_KEY]) == ("301", str(SCHEMA_VERSION))
    assert len(read(found[ROLLUP].value)) == 301


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_it_logs_in(kafka: KafkaNode, tmp_path: Path, mechanism: str) -> None:
    file = tmp_path / "credentials.yaml"
    file.write_text("service: {username: alice, password: alice-secret}")
    topic = topic_of(
        kafka,
        bootstrap=kafka.bootstrap_sasl,
        security_protocol="SASL_PLAINTEXT",
        sasl={"mechanism": mechanism, "credentials_file": file},
    )
    with capture_logs() as logs, writing(topic) as writer:
        writer.offer(ROLLUP, columns(rows(1)))
    assert (writer.counters.rows_written, writer.counters.failures) == (1, 0)
    assert "alice-secret" not in str(logs)


def test_the_topic_is_made_with_its_retention(kafka: KafkaNode) -> None:
    topic = topic_of(kafka, partitions=3, retention_s=7200.0)
    with writing(topic) as writer:
        writer.offer(ROLLUP, columns(rows(1)))
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    name = topic.cluster.name
    assert len(admin.list_topics(name, timeout=10).topics[name].partitions) == 3
    resource = ConfigResource(ResourceType.TOPIC, name)
    (configs,) = (future.result(10) for future in admin.describe_configs([resource]).values())
    assert configs["retention.ms"].value == "7200000"
    assert configs["cleanup.policy"].value == "delete"


def test_a_file_that_is_larger_than_a_record_may_be_is_cut(kafka: KafkaNode) -> None:
    topic = topic_of(kafka, max_record_bytes=20_000)
    with writing(topic) as writer:
        writer.offer(
            ROLLUP, columns([row(client_id=f"{n * 7919:x}" * 20, request_bytes=n**3) for n in range(2000)])
        )
    found = records(kafka, topic.cluster.name)
    assert len(found) > 1
    assert all(len(record.value) <= 20_000 for record in found)
    assert len({headers_of(record)["name"] for record in found}) == len(found)
    assert writer.counters.rows_written == 2000
    names = [name for record in found for name in clients(read(record.value))]
    assert sorted(names) == sorted(f"{n * 7919:x}" * 20 for n in range(2000))


def test_what_the_topic_will_never_take_is_dropped_and_the_rest_is_written(kafka: KafkaNode) -> None:
    topic = topic_of(kafka, partitions=1)
    create_topic(kafka, topic.cluster.name, config={"max.message.bytes": "12000"})
    with writing(topic, rotate_s=0.0) as writer:
        writer.offer(
            ROLLUP, columns([row(client_id=f"{n * 7919:x}" * 20, request_bytes=n**3) for n in range(2000)])
        )
        wait_until(lambda: writer.counters.rows_dropped == 2000)
        writer.offer(ROLLUP, columns(rows(1)))
    assert writer.counters.rows_written == 1
    assert "too large" in writer.counters.last_error


def test_a_cluster_that_is_down_is_waited_for(kafka: KafkaNode) -> None:
    (port,) = free_ports(1)
    topic = topic_of(kafka, bootstrap=f"127.0.0.1:{port}")
    with writing(topic, rotate_s=0.0) as writer:
        assert writer.offer(ROLLUP, columns(rows(2)))
        wait_until(lambda: writer.counters.failures > 1)
        assert writer.offer(ROLLUP, columns(rows(2)))
        wait_until(lambda: writer.counters.rows_pending == 0)
        writer.close(1.0)
    assert (writer.counters.rows_written, writer.counters.rows_dropped) == (0, 4)


@pytest.mark.slow
def test_rows_come_late_and_complete_when_the_broker_was_down_for_a_while(kafka_dist: KafkaDist) -> None:
    with KafkaNode(kafka_dist) as node:
        topic = topic_of(node, partitions=1)
        with writing(topic, rotate_s=0.0) as writer:
            writer.offer(ROLLUP, columns(rows(1)))
            wait_until(lambda: writer.counters.rows_written == 1)
            node.stop(graceful=False)
            for _ in range(3):
                writer.offer(ROLLUP, columns(rows(2)))
            wait_until(lambda: writer.counters.failures > 0, within_s=60)
            assert writer.counters.rows_written == 1
            node.start()
            wait_until(lambda: writer.counters.rows_written == 7, within_s=60)
        found = records(node, topic.cluster.name)
    by_name = {headers_of(record)["name"]: record for record in found}  # one may have come twice
    assert sum(len(read(record.value)) for record in by_name.values()) == 7
    assert writer.counters.rows_dropped == 0


def _fetched(topic: TopicSettings, folder: Path) -> Fetched:
    return asyncio.run(fetch_files(topic.cluster, folder, f"group-of-{topic.cluster.name}"))


def test_what_is_fetched_is_the_log_as_a_folder_has_it_and_comes_once(
    kafka: KafkaNode, tmp_path: Path
) -> None:
    topic = topic_of(kafka)
    with writing(topic, rotate_s=0.0) as writer:
        for number in range(1, 4):
            writer.offer(ROLLUP, columns(rows(number)))
            wait_until(lambda number=number: writer.counters.files_written == number)  # type: ignore[misc]
    assert _fetched(topic, tmp_path) == Fetched(files=3)
    assert len(read_all(tmp_path)) == 1 + 2 + 3
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap)
    try:
        again = records(kafka, topic.cluster.name)[0]
        producer.send(topic.cluster.name, value=again.value, headers=again.headers).get(10)
        producer.send(topic.cluster.name, value=b"something else").get(10)
    finally:
        producer.close()
    assert _fetched(topic, tmp_path) == Fetched(there=1, foreign=1)
    assert _fetched(topic, tmp_path) == Fetched()
    assert len(read_all(tmp_path)) == 1 + 2 + 3


def test_a_topic_that_is_not_there_cannot_be_fetched(kafka: KafkaNode, tmp_path: Path) -> None:
    with pytest.raises(FetchFailed, match="there is no topic"):
        _fetched(topic_of(kafka), tmp_path)


def test_a_fetch_ends_with_a_reason_when_the_broker_goes_silent_in_its_midst(
    kafka: KafkaNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asked for ever, without a word, and the night behind it never came."""
    topic = topic_of(kafka, partitions=1)
    hasty = replace(topic, cluster=topic.cluster.model_copy(update={"request_timeout_s": 1.0}))
    with writing(topic, rotate_s=0.0) as writer:
        for number in range(1, 4):
            writer.offer(ROLLUP, columns(rows(number)))
            wait_until(lambda number=number: writer.counters.files_written == number)  # type: ignore[misc]
    write = DirectorySink.write

    def write_while_it_freezes(sink: DirectorySink, file: LogFile) -> None:
        os.kill(kafka.pid, signal.SIGSTOP)
        write(sink, file)

    monkeypatch.setattr(DirectorySink, "write", write_while_it_freezes)
    try:
        with pytest.raises(FetchFailed, match=r"answered nothing for 4 s; .*; 3 files came before that"):
            _fetched(hasty, tmp_path)
    finally:
        os.kill(kafka.pid, signal.SIGCONT)
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        wait_until(lambda: bool(admin.list_topics(timeout=10).brokers), within_s=60)
    assert len(read_all(tmp_path)) == 1 + 2 + 3
    monkeypatch.undo()
    assert _fetched(topic, tmp_path) in (Fetched(there=3), Fetched()), "it may have committed when it woke up"
    assert len(read_all(tmp_path)) == 1 + 2 + 3
