"""Numbered records and the one judgement on what came back: exactly those, in order, none twice.

What is in a topic is read past the proxy, from the broker itself, so that a fault on the way back cannot hide
one on the way there.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from testkit.kafka.cluster import KafkaCluster
from testkit.kafka.node import KafkaNode

Kafka = KafkaNode | KafkaCluster
PARTITIONS = 3
READ_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it was sent, or as it was received."""

    partition: int
    value: bytes


def numbered(
    count: int, *, size_bytes: int = 200, run: str = "r", partitions: int = PARTITIONS
) -> list[Record]:
    """Records of `size_bytes` each with its number in front, dealt out to the partitions in turn."""
    return [numbered_record(number, size_bytes, run, partitions) for number in range(count)]


def numbered_record(number: int, size_bytes: int, run: str, partitions: int = PARTITIONS) -> Record:
    """One record with its number in front."""
    head = f"{run}:{number:08d}:".encode()
    filling = f"{number * 2654435761 % 2**32:08x}".encode() * (size_bytes // 8 + 1)
    return Record(number % partitions, (head + filling)[:size_bytes])


def number_of(value: bytes) -> int:
    """The number of a record of `numbered`."""
    return int(value.split(b":", 2)[1])


def create_topic(
    kafka: Kafka,
    topic: str,
    partitions: int = PARTITIONS,
    *,
    replicas: int | None = None,
    config: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Create a topic past the proxy; returns its name once the broker leads it.

    `replicas`: copies; by default 1 with a single node, 3 in a cluster.
    """
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    as_the_broker_likes = -1
    new = NewTopic(topic, partitions, replicas or as_the_broker_likes, config=dict(config))
    admin.create_topics([new])[topic].result(30.0)
    # A broker tells of a topic a moment before it leads it, and closes on an acks=0 request in between.
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "reads-without-a-group"})
    deadline_s = time.monotonic() + READ_WITHIN_S
    try:
        for partition in range(partitions):
            while not _is_led(consumer, TopicPartition(topic, partition)):
                assert time.monotonic() < deadline_s
                time.sleep(0.02)
    finally:
        consumer.close()
    return topic


def _is_led(consumer: Consumer, partition: TopicPartition) -> bool:
    try:
        consumer.get_watermark_offsets(partition, 30.0)
    except KafkaException:
        return False
    return True


def stored(kafka: Kafka, topic: str, *, committed_only: bool = True) -> list[Record]:
    """Every record of a topic up to its end as it is now, partition by partition in order of offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": "reads-without-a-group",
            "enable.auto.commit": False,
            "isolation.level": "read_committed" if committed_only else "read_uncommitted",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
        }
    )
    try:
        partitions = consumer.list_topics(topic, 30.0).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        unread = set(partitions)
        found: list[Record] = []
        deadline_s = time.monotonic() + READ_WITHIN_S
        while unread:
            assert time.monotonic() < deadline_s, f"{topic}: {len(found)} records read, not at the end yet"
            for message in consumer.consume(10_000, 0.5):
                error = message.error()
                if error is None:
                    found.append(record_of(message))
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    unread.discard(message.partition() or 0)
        return sorted(found, key=lambda record: record.partition)  # stable: the order of offsets stays
    finally:
        consumer.close()


def record_of(message: Message) -> Record:
    """What confluent-kafka received, which must be no error."""
    partition, value = message.partition(), message.value()
    assert message.error() is None, message.error()
    assert partition is not None
    assert value is not None
    return Record(partition, value)


def await_stored(kafka: Kafka, topic: str, count: int, within_s: float = READ_WITHIN_S) -> list[Record]:
    """Every record of a topic once there are `count`, for producers that do not wait for their records.

    What is there after `within_s` if there are fewer.
    """
    deadline_s = time.monotonic() + within_s
    while True:
        found = stored(kafka, topic)
        if len(found) >= count or time.monotonic() > deadline_s:
            return found
        time.sleep(0.2)


def assert_exactly(sent: Iterable[Record], found: Sequence[Record], whose: str = "") -> None:
    """Each sent record was found once, in its partition, in the order of sending; and nothing else was."""
    assert by_partition(found) == by_partition(sent), f"{whose} {difference(sent, found)}"


def assert_each_at_least_once(sent: Iterable[Record], found: Sequence[Record]) -> None:
    """Nothing is lost and nothing foreign is there; a record may be there twice."""
    assert set(found) == set(sent), difference(sent, found)


def first_times(found: Iterable[Record]) -> list[Record]:
    """Without those that were received before: a group may begin again where it had last committed."""
    return list(dict.fromkeys(found))


def by_partition(records: Iterable[Record]) -> dict[int, list[bytes]]:
    """The values of each partition, in order."""
    partitions = defaultdict(list)
    for record in records:
        partitions[record.partition].append(record.value)
    return dict(partitions)


def difference(sent: Iterable[Record], found: Sequence[Record]) -> str:
    """What a reader of a failed test wants to know, without all the bytes."""
    sent_counts, found_counts = Counter(sent), Counter(found)
    missing, surplus = sent_counts - found_counts, found_counts - sent_counts
    if not missing and not surplus:
        return "every record is there once, but not in order"
    return (
        f"{sent_counts.total()} sent, {found_counts.total()} found; "
        f"{missing.total()} missing: {_shown(missing)}; {surplus.total()} too many: {_shown(surplus)}"
    )


def _shown(records: Counter[Record]) -> list[str]:
    return [f"{record.partition}/{record.value[:24]!r}" for record in sorted(records, key=repr)[:10]]
