"""Real clients through `sluice run` to a real broker: exactly the sent records come back, in order."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from testkit.clients.java_client import ALL_CLIENTS
from testkit.clients.kafka_clients import CONFLUENT, Client, Options
from testkit.clients.kafka_records import assert_exactly, await_stored, create_topic, numbered, stored
from testkit.kafka.node import KafkaNode
from testkit.proxy.sluice_process import SluiceProcess

Unique = Callable[[str], str]
each_client = pytest.mark.parametrize("client", ALL_CLIENTS, ids=lambda client: client.name)


@each_client
@pytest.mark.parametrize(
    "compression",
    [None, *(pytest.param(name, marks=pytest.mark.long) for name in ("gzip", "snappy", "lz4")), "zstd"],
)
def test_an_idempotent_producers_records_arrive_once_and_in_order(
    kafka: KafkaNode, sluice: SluiceProcess, unique: Unique, client: Client, compression: str | None
) -> None:
    topic, records = create_topic(kafka, unique("topic")), numbered(3000)
    client.produce(sluice.bootstrap(), topic, records, Options(compression=compression))
    assert_exactly(records, stored(kafka, topic))


@each_client
@pytest.mark.parametrize("acks", [0, 1])
def test_records_of_a_producer_without_idempotence_arrive_once_and_in_order(
    kafka: KafkaNode, sluice: SluiceProcess, unique: Unique, client: Client, acks: int
) -> None:
    topic, records = create_topic(kafka, unique("topic")), numbered(3000)
    client.produce(sluice.bootstrap(), topic, records, Options(acks=acks, idempotent=False))
    assert_exactly(records, await_stored(kafka, topic, len(records)))


@each_client
def test_large_records_arrive_whole(
    kafka: KafkaNode, sluice: SluiceProcess, unique: Unique, client: Client
) -> None:
    topic, records = create_topic(kafka, unique("topic")), numbered(6, size_bytes=990_000)
    client.produce(sluice.bootstrap(), topic, records, Options())
    assert_exactly(records, stored(kafka, topic))


@each_client
def test_a_committed_transaction_is_there_and_an_aborted_one_is_not(
    kafka: KafkaNode, sluice: SluiceProcess, unique: Unique, client: Client
) -> None:
    topic = create_topic(kafka, unique("topic"))
    committed, aborted = numbered(500, run="committed"), numbered(500, run="aborted")
    for records, commit in ((aborted, False), (committed, True)):
        options = Options(transactional_id=unique("transaction"), commit=commit)
        client.produce(sluice.bootstrap(), topic, records, options)
    assert_exactly(committed, stored(kafka, topic))
    assert len(stored(kafka, topic, committed_only=False)) >= len(committed)


@each_client
def test_a_group_of_one_consumes_exactly_what_is_stored(
    kafka: KafkaNode, sluice: SluiceProcess, unique: Unique, client: Client
) -> None:
    topic, records = create_topic(kafka, unique("topic")), numbered(5000)
    CONFLUENT.produce(kafka.bootstrap, topic, records, Options())
    found = client.consume(sluice.bootstrap(), topic, unique("group"), len(records), Options())
    assert_exactly(records, found)


@each_client
def test_what_one_session_has_committed_the_next_does_not_get_again(
    kafka: KafkaNode, sluice: SluiceProcess, unique: Unique, client: Client
) -> None:
    topic, group = create_topic(kafka, unique("topic")), unique("group")
    first, second = numbered(100, run="first"), numbered(100, run="second")
    for records in (first, second):
        client.produce(sluice.bootstrap(), topic, records, Options())
        assert_exactly(records, client.consume(sluice.bootstrap(), topic, group, 100, Options()))


@each_client
def test_the_bytes_of_clients_without_a_quota_are_counted_too(
    kafka: KafkaNode, sluice: SluiceProcess, unique: Unique, client: Client
) -> None:
    topic, records = create_topic(kafka, unique("topic")), numbered(1000)
    before = {quota: sluice.metric("sluice_quota_bytes_total", quota=quota) for quota in ("produce", "fetch")}
    client.produce(sluice.bootstrap(), topic, records, Options())
    client.consume(sluice.bootstrap(), topic, unique("group"), len(records), Options())
    payload_bytes = sum(len(record.value) for record in records)
    for quota, count in before.items():
        counted = sluice.metric("sluice_quota_bytes_total", quota=quota) - count
        assert payload_bytes < counted < 2 * payload_bytes, quota
