"""Consumers of every kind that note what their group did to them and when records came.

Each runs until it is told to stop, reads from the earliest offset, and never commits more than by default.
"""

from __future__ import annotations

import asyncio
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import aiokafka
import kafka as kafka_python
from confluent_kafka import Consumer, TopicPartition
from kafka.consumer.subscription_state import ConsumerRebalanceListener

from testkit.clients.kafka_clients import Options, confluent_consumer
from testkit.clients.kafka_python_groups import KAFKA_PYTHON_METADATA_MAX_AGE_MS, subscribe_knowingly
from testkit.clients.kafka_records import Record, record_of
from testkit.kafka.dist import KafkaDist
from testkit.kafka.java_tools import start_tool

SESSION_TIMEOUT_MS: Final = 6000
"""the least that a broker takes by default: with it, a client that is kept from its heartbeats is put out
soonest"""


@dataclass(slots=True)
class Observed:
    """What one consumer saw."""

    assignments: list[int] = field(default_factory=list)
    """how many partitions it was given, each time; without those before it knew the topic, which gave none"""
    revocations: int = 0
    arrivals: list[tuple[float, int]] = field(default_factory=list)
    """when records came (monotonic, s) and their bytes"""
    records: list[Record] = field(default_factory=list)

    def assigned(self, count: int) -> None:
        if count or self.assignments:
            self.assignments.append(count)

    def took(self, records: list[Record]) -> None:
        if records:
            self.arrivals.append((time.monotonic(), sum(len(record.value) for record in records)))
            self.records += records

    def longest_gap_s(self, until_s: float) -> float:
        """The longest time between two arrivals, or after the last one until `until_s`."""
        times = [at_s for at_s, _ in self.arrivals] + [until_s]
        return max((later - earlier for earlier, later in pairwise(times)), default=0.0)

    def bytes_per_s(self, settle_s: float) -> float:
        """The rate from the first arrival after `settle_s` on; the bytes of that first one do not count."""
        begun_s = self.arrivals[0][0] + settle_s
        counted = [(at_s, size) for at_s, size in self.arrivals if at_s >= begun_s]
        return sum(size for _, size in counted[1:]) / (counted[-1][0] - counted[0][0])


@dataclass(frozen=True, slots=True)
class Task:
    """What a consumer is to do."""

    bootstrap: str
    topic: str
    group: str
    client_id: str
    stop: threading.Event
    dist: KafkaDist
    folder: Path


Run = Callable[[Task, Observed], None]


def aiokafka_classic(task: Task, seen: Observed) -> None:
    asyncio.run(_aiokafka(task, seen))


async def _aiokafka(task: Task, seen: Observed) -> None:
    class Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
        def on_partitions_revoked(self, revoked: set[object]) -> None:
            seen.revocations += bool(revoked) and not task.stop.is_set()

        def on_partitions_assigned(self, assigned: set[object]) -> None:
            seen.assigned(len(assigned))

    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=task.bootstrap,
        client_id=task.client_id,
        group_id=task.group,
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=SESSION_TIMEOUT_MS // 3,
    )
    consumer.subscribe([task.topic], listener=Listener())
    await consumer.start()
    try:
        while not task.stop.is_set():
            for messages in (await consumer.getmany(timeout_ms=200)).values():
                seen.took([Record(message.partition, message.value) for message in messages])
    finally:
        await consumer.stop()


def confluent_classic(task: Task, seen: Observed) -> None:
    _confluent(task, seen, session_timeout_ms=SESSION_TIMEOUT_MS)


def confluent_kip848(task: Task, seen: Observed) -> None:
    _confluent(task, seen, group_protocol="consumer")


def _confluent(task: Task, seen: Observed, **settings: Any) -> None:
    def assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
        seen.assigned(len(partitions))

    def revoked(_: Consumer, __: list[TopicPartition]) -> None:
        seen.revocations += not task.stop.is_set()

    options = Options(client_id=task.client_id)
    consumer = confluent_consumer(task.bootstrap, task.group, options, **settings)
    consumer.subscribe([task.topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
    try:
        while not task.stop.is_set():
            seen.took([record_of(message) for message in consumer.consume(1000, 0.2)])
    finally:
        consumer.close()


def kafka_python_classic(task: Task, seen: Observed) -> None:
    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types
        def on_partitions_revoked(self, revoked: set[object]) -> None:
            seen.revocations += bool(revoked) and not task.stop.is_set()

        def on_partitions_assigned(self, assigned: set[object]) -> None:
            seen.assigned(len(assigned))

    consumer = kafka_python.KafkaConsumer(
        bootstrap_servers=task.bootstrap,
        client_id=task.client_id,
        group_id=task.group,
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=SESSION_TIMEOUT_MS // 3,
        metadata_max_age_ms=KAFKA_PYTHON_METADATA_MAX_AGE_MS,
    )
    try:
        subscribe_knowingly(consumer, task.topic, listener=Listener())
        while not task.stop.is_set():
            for messages in consumer.poll(timeout_ms=200).values():
                seen.took([Record(message.partition, message.value) for message in messages])
    finally:
        consumer.close()


def java_classic(task: Task, seen: Observed) -> None:
    _java(task, seen, "--session-timeout", str(SESSION_TIMEOUT_MS))


def java_kip848(task: Task, seen: Observed) -> None:
    _java(task, seen, "--group-protocol", "consumer")


def _java(task: Task, seen: Observed, *arguments: str) -> None:
    settings = task.folder / f"{task.group}.properties"
    settings.write_text(f"client.id={task.client_id}\n")
    output = task.folder / f"{task.group}.log"
    tool = start_tool(
        task.dist,
        "verifiable-consumer",
        *("--bootstrap-server", task.bootstrap, "--topic", task.topic, "--group-id", task.group),
        "--command-config",
        settings,
        *("--verbose", *arguments),
        output=output,
    )
    with tool, output.open() as written:
        begun = ""  # a line of which the end is not written yet
        while not task.stop.wait(0.1):
            assert tool.exit_code() is None, output.read_text()[-3000:]
            *lines, begun = (begun + written.read()).split("\n")
            seen.took(list(_java_events(lines, seen)))
        tool.send_signal(signal.SIGTERM)
        tool.wait(30.0)


def _java_events(lines: list[str], seen: Observed) -> Iterator[Record]:
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if event["name"] == "partitions_assigned":
            seen.assigned(len(event["partitions"]))
        elif event["name"] == "partitions_revoked":
            seen.revocations += bool(event["partitions"])
        elif event["name"] == "record_data":
            yield Record(int(event["partition"]), event["value"].encode())


KINDS: Final[dict[str, Run]] = {
    "aiokafka-classic": aiokafka_classic,
    "confluent-classic": confluent_classic,
    "confluent-kip848": confluent_kip848,
    "kafka-python-classic": kafka_python_classic,
    "java-classic": java_classic,
    "java-kip848": java_kip848,
}
