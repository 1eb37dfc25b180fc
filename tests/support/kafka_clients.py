"""aiokafka, confluent-kafka (librdkafka) and kafka-python behind one face: produce these records, consume so
many.

Every option that a test does not give has the client's own default, for that is what its users run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import aiokafka
import confluent_kafka
import kafka as kafka_python
from aiokafka.abc import AbstractTokenProvider
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokenProvider
from kafka_records import Record, record_of

from bench.harness.sasl_clients import unsigned_token

DONE_WITHIN_S: Final = 90.0


@dataclass(frozen=True, slots=True)
class Login:
    """How a client authenticates; with OAUTHBEARER the password is not used."""

    mechanism: str
    user: str
    password: str = ""


@dataclass(frozen=True, slots=True)
class Options:
    """What tests vary."""

    client_id: str = "app"
    acks: int = -1
    compression: str | None = None
    idempotent: bool = True
    transactional_id: str | None = None
    commit: bool = True
    """of the transaction: else it is aborted"""
    batch_bytes: int = 16_384
    login: Login | None = None


KAFKA_PYTHON_METADATA_MAX_AGE_MS: Final = 2000
"""It may take the answer to an older metadata request for that to its subscription's, join its group without
a partition of the topic, and look again only when its metadata is old: after five minutes by default."""

Produce = Callable[[str, str, Sequence[Record], Options], None]
"""bootstrap, topic, records, options; returns when every record was acknowledged (acks=0: was sent)"""
Consume = Callable[[str, str, str, int, Options], list[Record]]
"""bootstrap, topic, group, how many records, options"""


# aiokafka ---------------------------------------------------------------------------------------------------


class AioToken(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
    """aiokafka's way to be given a token."""

    def __init__(self, subject: str) -> None:
        self._token = unsigned_token(subject)

    async def token(self) -> str:
        return self._token


def aiokafka_login(login: Login | None) -> dict[str, Any]:
    if login is None:
        return {}
    settings: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": login.mechanism}
    if login.mechanism == "OAUTHBEARER":
        return settings | {"sasl_oauth_token_provider": AioToken(login.user)}
    return settings | {"sasl_plain_username": login.user, "sasl_plain_password": login.password}


def _aiokafka_produce(bootstrap: str, topic: str, records: Sequence[Record], options: Options) -> None:
    asyncio.run(asyncio.wait_for(_aiokafka_send(bootstrap, topic, records, options), DONE_WITHIN_S))


async def _aiokafka_send(bootstrap: str, topic: str, records: Sequence[Record], options: Options) -> None:
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        client_id=options.client_id,
        acks="all" if options.acks == -1 else options.acks,
        compression_type=options.compression,
        enable_idempotence=options.idempotent,
        transactional_id=options.transactional_id,
        max_batch_size=options.batch_bytes,
        **aiokafka_login(options.login),
    )
    await producer.start()
    try:
        if options.transactional_id is not None:
            await producer.begin_transaction()
        sent = [await producer.send(topic, record.value, partition=record.partition) for record in records]
        await asyncio.gather(*sent)
        if options.transactional_id is not None:
            await (producer.commit_transaction() if options.commit else producer.abort_transaction())
    finally:
        await producer.stop()


def _aiokafka_consume(bootstrap: str, topic: str, group: str, count: int, options: Options) -> list[Record]:
    return asyncio.run(
        asyncio.wait_for(_aiokafka_receive(bootstrap, topic, group, count, options), DONE_WITHIN_S)
    )


async def _aiokafka_receive(
    bootstrap: str, topic: str, group: str, count: int, options: Options
) -> list[Record]:
    consumer = aiokafka.AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        client_id=options.client_id,
        group_id=group,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        **aiokafka_login(options.login),
    )
    await consumer.start()
    found: list[Record] = []
    try:
        while len(found) < count:
            for messages in (await consumer.getmany(timeout_ms=500)).values():
                found += [Record(message.partition, message.value) for message in messages]
    finally:
        await consumer.stop()
    return found


# confluent-kafka --------------------------------------------------------------------------------------------


def confluent_login(login: Login | None) -> dict[str, Any]:
    if login is None:
        return {}
    settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": login.mechanism}
    if login.mechanism == "OAUTHBEARER":

        def token(_config: str) -> tuple[str, float]:
            return unsigned_token(login.user), time.time() + 3600

        return settings | {"oauth_cb": token}
    return settings | {"sasl.username": login.user, "sasl.password": login.password}


def confluent_producer(bootstrap: str, options: Options, **settings: Any) -> confluent_kafka.Producer:
    """A producer with these options; `settings` by librdkafka's names with `_` for the point."""
    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "client.id": options.client_id,
        "acks": options.acks,
        "enable.idempotence": options.idempotent,
        "compression.type": options.compression or "none",
        "batch.size": options.batch_bytes,
        **confluent_login(options.login),
        **_by_librdkafkas_names(settings),
    }
    if options.transactional_id is not None:
        config["transactional.id"] = options.transactional_id
    return confluent_kafka.Producer(config)


def _confluent_produce(bootstrap: str, topic: str, records: Sequence[Record], options: Options) -> None:
    producer = confluent_producer(bootstrap, options)
    failures: list[object] = []

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failures.append(error)

    if options.transactional_id is not None:
        producer.init_transactions(DONE_WITHIN_S)
        producer.begin_transaction()
    for record in records:
        while True:
            try:
                producer.produce(topic, record.value, partition=record.partition, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(DONE_WITHIN_S) == 0
    if options.transactional_id is not None:
        (producer.commit_transaction if options.commit else producer.abort_transaction)(DONE_WITHIN_S)
    assert not failures, f"{len(failures)} records failed: {failures[:3]}"


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
            **confluent_login(options.login),
            **_by_librdkafkas_names(settings),
        }
    )


def _by_librdkafkas_names(settings: dict[str, Any]) -> dict[str, Any]:
    """Points for underscores, but in callbacks, which are confluent-kafka's own."""
    return {
        name if name.endswith("_cb") else name.replace("_", "."): value for name, value in settings.items()
    }


def _confluent_consume(bootstrap: str, topic: str, group: str, count: int, options: Options) -> list[Record]:
    consumer = confluent_consumer(bootstrap, group, options)
    consumer.subscribe([topic])
    found: list[Record] = []
    deadline_s = time.monotonic() + DONE_WITHIN_S
    try:
        while len(found) < count:
            assert time.monotonic() < deadline_s, f"{len(found)} of {count} records came"
            for message in consumer.consume(1000, 0.5):
                found.append(record_of(message))
    finally:
        consumer.close()
    return found


# kafka-python -----------------------------------------------------------------------------------------------


class KafkaPythonToken(KafkaPythonTokenProvider):  # type: ignore[misc]  # kafka-python has no types
    """kafka-python's way to be given a token."""

    def __init__(self, subject: str) -> None:
        super().__init__()
        self._token = unsigned_token(subject)

    def token(self) -> str:
        return self._token


def kafka_python_login(login: Login | None) -> dict[str, Any]:
    if login is None:
        return {}
    settings: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": login.mechanism}
    if login.mechanism == "OAUTHBEARER":
        return settings | {"sasl_oauth_token_provider": KafkaPythonToken(login.user)}
    return settings | {"sasl_plain_username": login.user, "sasl_plain_password": login.password}


def _kafka_python_produce(bootstrap: str, topic: str, records: Sequence[Record], options: Options) -> None:
    producer = kafka_python.KafkaProducer(
        bootstrap_servers=bootstrap,
        client_id=options.client_id,
        acks=options.acks,
        compression_type=options.compression,
        enable_idempotence=options.idempotent,
        transactional_id=options.transactional_id,
        batch_size=options.batch_bytes,
        **kafka_python_login(options.login),
    )
    try:
        if options.transactional_id is not None:
            producer.init_transactions()
            producer.begin_transaction()
        sent = [producer.send(topic, record.value, partition=record.partition) for record in records]
        producer.flush(timeout=DONE_WITHIN_S)
        for future in sent:
            future.get(timeout=DONE_WITHIN_S)
        if options.transactional_id is not None:
            (producer.commit_transaction if options.commit else producer.abort_transaction)()
    finally:
        producer.close()


def _kafka_python_consume(
    bootstrap: str, topic: str, group: str, count: int, options: Options
) -> list[Record]:
    consumer = kafka_python.KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        client_id=options.client_id,
        group_id=group,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        metadata_max_age_ms=KAFKA_PYTHON_METADATA_MAX_AGE_MS,
        **kafka_python_login(options.login),
    )
    found: list[Record] = []
    deadline_s = time.monotonic() + DONE_WITHIN_S
    try:
        while len(found) < count:
            assert time.monotonic() < deadline_s, f"{len(found)} of {count} records came"
            for messages in consumer.poll(timeout_ms=500).values():
                found += [Record(message.partition, message.value) for message in messages]
    finally:
        consumer.close()
    return found


@dataclass(frozen=True, slots=True)
class Client:
    """One client library."""

    name: str
    produce: Produce = field(repr=False)
    consume: Consume = field(repr=False)


AIOKAFKA: Final = Client("aiokafka", _aiokafka_produce, _aiokafka_consume)
CONFLUENT: Final = Client("confluent", _confluent_produce, _confluent_consume)
KAFKA_PYTHON: Final = Client("kafka-python", _kafka_python_produce, _kafka_python_consume)
CLIENTS: Final = (AIOKAFKA, CONFLUENT, KAFKA_PYTHON)
