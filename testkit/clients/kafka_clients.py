"""aiokafka, confluent-kafka (librdkafka) and kafka-python behind one face: produce these records, consume so
many.

Every option that a test does not give has the client's own default, for that is what its users run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import aiokafka
import confluent_kafka
import kafka as kafka_python
import pytest

from testkit.clients.client_security import (
    NO_SECURITY,
    Security,
    aiokafka_security,
    confluent_security,
    kafka_python_security,
)
from testkit.clients.kafka_python_groups import (
    KAFKA_PYTHON_METADATA_MAX_AGE_MS,
    poll_patiently,
    subscribe_knowingly,
)
from testkit.clients.kafka_records import Record, record_of


@dataclass(frozen=True, slots=True)
class Options:
    """The options of clients that tests vary."""

    client_id: str = "app"
    acks: int = -1
    compression: str | None = None
    idempotent: bool = True
    transactional_id: str | None = None
    commit: bool = True
    """of the transaction: else it is aborted"""
    batch_bytes: int = 16_384
    security: Security = NO_SECURITY
    records_per_s: float | None = None
    """of a producer: no faster than that, so that it is at work while something happens"""
    records_per_transaction: int | None = None
    """else they are all in one"""
    transaction_tries: int = 1
    """how often a transaction that failed is begun again, with the same records, after it was aborted"""
    within_s: float = 90.0
    """how long all of it may take"""


Produce = Callable[[str, str, Iterable[Record], Options], None]
"""bootstrap, topic, records, options; returns when every record was acknowledged (acks=0: was sent)"""
Count = int | Callable[[], float]
"""how many, or who is asked again and again how many: infinity while it is not known yet"""
Consume = Callable[[str, str, str, Count, Options], list[Record]]
"""bootstrap, topic, group, how many records, options"""


class Pacer:
    """When the next record is due."""

    def __init__(self, records_per_s: float | None) -> None:
        self._step_s = 0.0 if records_per_s is None else 1.0 / records_per_s
        self._due_s = time.monotonic()

    def wait_s(self) -> float:
        """How long to wait before the next record."""
        self._due_s += self._step_s
        return max(0.0, self._due_s - time.monotonic()) if self._step_s else 0.0


def batches(records: Iterable[Record], options: Options) -> Iterator[Sequence[Record]]:
    """What belongs together in a transaction."""
    source = iter(records)
    while batch := tuple(islice(source, options.records_per_transaction)):
        yield batch


def wanted(count: Count) -> float:
    """How many records a consumer is to wait for, as far as it is known now."""
    return count if isinstance(count, int) else count()


def lacks_records(found: Sequence[Record], count: Count) -> bool:
    """More are to come. One that came twice, as to a group that began again, counts once."""
    total = wanted(count)
    return len(found) < total or len(set(found)) < total


def in_transactions(
    records: Iterable[Record],
    options: Options,
    begin: Callable[[], None],
    send: Callable[[Iterable[Record]], None],
    commit: Callable[[], None],
    abort: Callable[[], None],
) -> None:
    """Send records in transactions, each until it is committed; without a transactional id just send them."""
    if options.transactional_id is None:
        send(records)
        return
    for batch in batches(records, options):
        for tries_left in reversed(range(options.transaction_tries)):
            begin()
            try:
                send(batch)
                (commit if options.commit else abort)()
                break
            except Exception:  # each library has errors of its own; what cannot be aborted either is fatal
                if not tries_left:
                    raise
                abort()


# aiokafka ---------------------------------------------------------------------------------------------------


def _aiokafka_produce(bootstrap: str, topic: str, records: Iterable[Record], options: Options) -> None:
    asyncio.run(asyncio.wait_for(_aiokafka_send(bootstrap, topic, records, options), options.within_s))


async def _aiokafka_send(bootstrap: str, topic: str, records: Iterable[Record], options: Options) -> None:
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        client_id=options.client_id,
        acks="all" if options.acks == -1 else options.acks,
        compression_type=options.compression,
        enable_idempotence=options.idempotent,
        transactional_id=options.transactional_id,
        max_batch_size=options.batch_bytes,
        **aiokafka_security(options.security),
    )
    pacer = Pacer(options.records_per_s)

    async def send(batch: Iterable[Record]) -> None:
        sent = []
        for record in batch:
            if wait_s := pacer.wait_s():
                await asyncio.sleep(wait_s)
            sent.append(await producer.send(topic, record.value, partition=record.partition))
        await asyncio.gather(*sent)

    try:
        await producer.start()
        if options.transactional_id is None:
            await send(records)
            return
        for batch in batches(records, options):
            for tries_left in reversed(range(options.transaction_tries)):
                await producer.begin_transaction()
                try:
                    await send(batch)
                    await (producer.commit_transaction() if options.commit else producer.abort_transaction())
                    break
                except aiokafka.errors.KafkaError:
                    if not tries_left:
                        raise
                    await producer.abort_transaction()
    finally:
        await producer.stop()


def _aiokafka_consume(bootstrap: str, topic: str, group: str, count: Count, options: Options) -> list[Record]:
    return asyncio.run(
        asyncio.wait_for(_aiokafka_receive(bootstrap, topic, group, count, options), options.within_s)
    )


async def _aiokafka_receive(
    bootstrap: str, topic: str, group: str, count: Count, options: Options
) -> list[Record]:
    consumer = aiokafka.AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        client_id=options.client_id,
        group_id=group,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        **aiokafka_security(options.security),
    )
    found: list[Record] = []
    try:
        await consumer.start()
        while lacks_records(found, count):
            for messages in (await consumer.getmany(timeout_ms=500)).values():
                found += [Record(message.partition, message.value) for message in messages]
        # In `stop` aiokafka 0.14 looks for no other coordinator, and commits for ever if its own has moved,
        # also without a proxy; here it looks.
        with suppress(aiokafka.errors.KafkaError):
            await consumer.commit()
    finally:
        await consumer.stop()
    return found


# confluent-kafka --------------------------------------------------------------------------------------------


def confluent_producer(bootstrap: str, options: Options, **settings: Any) -> confluent_kafka.Producer:
    """A producer with these options; `settings` by librdkafka's names with `_` for the point."""
    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "client.id": options.client_id,
        "acks": options.acks,
        "enable.idempotence": options.idempotent,
        "compression.type": options.compression or "none",
        "batch.size": options.batch_bytes,
        **confluent_security(options.security),
        **_by_librdkafkas_names(settings),
    }
    if options.transactional_id is not None:
        config["transactional.id"] = options.transactional_id
    return confluent_kafka.Producer(config)


def _confluent_produce(bootstrap: str, topic: str, records: Iterable[Record], options: Options) -> None:
    producer = confluent_producer(bootstrap, options)
    failures: list[object] = []
    pacer = Pacer(options.records_per_s)

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failures.append(error)

    def send(batch: Iterable[Record]) -> None:
        failures.clear()
        for record in batch:
            producer.poll(pacer.wait_s())
            while True:
                try:
                    producer.produce(topic, record.value, partition=record.partition, on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(options.within_s) == 0
        assert not failures, f"{len(failures)} records failed: {failures[:3]}"

    def commit() -> None:
        while True:
            try:
                producer.commit_transaction(options.within_s)
                return
            except confluent_kafka.KafkaException as error:
                if not error.args[0].retriable():
                    raise

    if options.transactional_id is not None:
        producer.init_transactions(options.within_s)
    in_transactions(
        records,
        options,
        producer.begin_transaction,
        send,
        commit,
        lambda: producer.abort_transaction(options.within_s),
    )


def confluent_consumer(
    bootstrap: str, group: str, options: Options, **settings: Any
) -> confluent_kafka.Consumer:
    """A consumer with these options; `settings` by librdkafka's names with `_` for the point."""
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": options.client_id,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            **confluent_security(options.security),
            **_by_librdkafkas_names(settings),
        }
    )


def _by_librdkafkas_names(settings: dict[str, Any]) -> dict[str, Any]:
    """Points for underscores, but in callbacks, which are confluent-kafka's own."""
    return {
        name if name.endswith("_cb") else name.replace("_", "."): value for name, value in settings.items()
    }


def _confluent_consume(
    bootstrap: str, topic: str, group: str, count: Count, options: Options
) -> list[Record]:
    consumer = confluent_consumer(bootstrap, group, options)
    consumer.subscribe([topic])
    found: list[Record] = []
    deadline_s = time.monotonic() + options.within_s
    try:
        while lacks_records(found, count):
            assert time.monotonic() < deadline_s, f"{len(found)} of {wanted(count)} records came"
            for message in consumer.consume(1000, 0.5):
                found.append(record_of(message))
    finally:
        consumer.close()
    return found


# kafka-python -----------------------------------------------------------------------------------------------


def _kafka_python_produce(bootstrap: str, topic: str, records: Iterable[Record], options: Options) -> None:
    producer = kafka_python.KafkaProducer(
        bootstrap_servers=bootstrap,
        client_id=options.client_id,
        acks=options.acks,
        compression_type=options.compression,
        enable_idempotence=options.idempotent,
        transactional_id=options.transactional_id,
        batch_size=options.batch_bytes,
        **kafka_python_security(options.security),
    )
    pacer = Pacer(options.records_per_s)

    def send(batch: Iterable[Record]) -> None:
        sent = []
        for record in batch:
            time.sleep(pacer.wait_s())
            sent.append(producer.send(topic, record.value, partition=record.partition))
        producer.flush(timeout=options.within_s)
        for future in sent:
            future.get(timeout=options.within_s)

    try:
        if options.transactional_id is not None:
            producer.init_transactions()
        in_transactions(
            records,
            options,
            producer.begin_transaction,
            send,
            producer.commit_transaction,
            producer.abort_transaction,
        )
    finally:
        # Without a limit it waits for ever for a batch that it will never send again (docs/limits.md).
        try:
            producer.close(timeout=options.within_s)
        finally:
            producer._sender.force_close()


def _kafka_python_consume(
    bootstrap: str, topic: str, group: str, count: Count, options: Options
) -> list[Record]:
    consumer = kafka_python.KafkaConsumer(
        bootstrap_servers=bootstrap,
        client_id=options.client_id,
        group_id=group,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        metadata_max_age_ms=KAFKA_PYTHON_METADATA_MAX_AGE_MS,
        **kafka_python_security(options.security),
    )
    found: list[Record] = []
    deadline_s = time.monotonic() + options.within_s
    try:
        subscribe_knowingly(consumer, topic)
        while lacks_records(found, count):
            assert time.monotonic() < deadline_s, f"{len(found)} of {wanted(count)} records came"
            for messages in poll_patiently(consumer).values():
                found += [Record(message.partition, message.value) for message in messages]
    finally:
        consumer.close()
    return found


@dataclass(frozen=True, slots=True)
class Client:
    """What one client library can do."""

    name: str
    produce: Produce = field(repr=False)
    consume: Consume = field(repr=False)


AIOKAFKA: Final = Client("aiokafka", _aiokafka_produce, _aiokafka_consume)
CONFLUENT: Final = Client("confluent", _confluent_produce, _confluent_consume)
KAFKA_PYTHON: Final = Client("kafka-python", _kafka_python_produce, _kafka_python_consume)
CLIENTS: Final = (AIOKAFKA, CONFLUENT, KAFKA_PYTHON)

LEAVES_SOCKETS: Final = (
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.usefixtures("collect_sockets"),
)
"""For tests in which no kafka-python client comes about: it leaves what it has to the garbage collector.
Its sockets end without a word (kafka_python_leaks.py)."""
