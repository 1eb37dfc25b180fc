"""Java's own clients behind the same face as the others: KafkaProducer and KafkaConsumer in a JVM, by py4j.

One JVM for a test run, started at its first use. A call takes some tenths of a millisecond, so that a few
thousand records a second pass. Nothing is compiled: a JRE will do.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Iterable
from functools import cache
from typing import Any, Final

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from testkit.clients.client_security import java_security
from testkit.clients.kafka_clients import (
    CLIENTS,
    Client,
    Count,
    Options,
    Pacer,
    in_transactions,
    lacks_records,
    wanted,
)
from testkit.clients.kafka_records import Record
from testkit.kafka.dist import ensure_kafka

_SERIALIZATION: Final = "org.apache.kafka.common.serialization"


_starting: Final = threading.Lock()  # `cache` lets two callers in at once, and there must be one JVM


def _gateway() -> Any:
    with _starting:
        return _the_gateway()


@cache
def _the_gateway() -> Any:
    kafka = ensure_kafka()
    port, token, process = launch_gateway(
        classpath=kafka.classpath,
        java_path=str(kafka.java),
        javaopts=[
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-XX:-UsePerfData",
            "-Xmx256m",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
        ],
        enable_auth=True,
        die_on_exit=True,
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))

    def end() -> None:
        gateway.shutdown()
        process.stdin.close()
        process.wait(timeout=30)

    atexit.register(end)
    return gateway


def _properties(bootstrap: str, options: Options, **settings: object) -> Any:
    properties = _gateway().jvm.java.util.Properties()
    values: dict[str, object] = {
        "bootstrap.servers": bootstrap,
        "client.id": options.client_id,
        **{name.replace("_", "."): value for name, value in settings.items()},
        **java_security(options.security),
    }
    for name, value in values.items():
        properties.put(name, str(value).lower() if isinstance(value, bool) else str(value))
    return properties


def java_class(name: str) -> Any:
    """A class of Kafka's or of Java's, by its full name."""
    found = _gateway().jvm
    for part in name.split("."):
        found = getattr(found, part)
    return found


def java_producer(bootstrap: str, options: Options, **settings: object) -> Any:
    """A KafkaProducer of bytes with these options; `settings` by Java's names with `_` for the point."""
    if options.transactional_id is not None:
        settings["transactional_id"] = options.transactional_id
    properties = _properties(
        bootstrap,
        options,
        acks=options.acks,
        enable_idempotence=options.idempotent,
        compression_type=options.compression or "none",
        batch_size=options.batch_bytes,
        key_serializer=f"{_SERIALIZATION}.ByteArraySerializer",
        value_serializer=f"{_SERIALIZATION}.ByteArraySerializer",
        **settings,
    )
    return _gateway().jvm.org.apache.kafka.clients.producer.KafkaProducer(properties)


def java_consumer(bootstrap: str, group: str, options: Options, **settings: object) -> Any:
    """A KafkaConsumer of bytes; `settings` by Java's names with `_` for the point."""
    properties = _properties(
        bootstrap,
        options,
        group_id=group,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        key_deserializer=f"{_SERIALIZATION}.ByteArrayDeserializer",
        value_deserializer=f"{_SERIALIZATION}.ByteArrayDeserializer",
        **settings,
    )
    return _gateway().jvm.org.apache.kafka.clients.consumer.KafkaConsumer(properties)


def java_admin(bootstrap: str, options: Options, **settings: object) -> Any:
    """A Java Admin; whoever opens it closes it. `settings` are Java's names with underscores for dots."""
    properties = _properties(bootstrap, options, **settings)
    return _gateway().jvm.org.apache.kafka.clients.admin.Admin.create(properties)


def java_new_topic(name: str, partitions: int) -> Any:
    """A list of one, for `java_admin(…).createTopics`; as many replicas as brokers make by themselves."""
    util, admin = _gateway().jvm.java.util, _gateway().jvm.org.apache.kafka.clients.admin
    topic = admin.NewTopic(name, util.Optional.of(partitions), util.Optional.empty())
    return util.List.of(topic)


def java_records(consumer: Any, timeout_ms: int = 500) -> list[Record]:
    """What one poll brings."""
    polled = consumer.poll(_gateway().jvm.java.time.Duration.ofMillis(timeout_ms))
    found = []
    iterator = polled.iterator()
    while iterator.hasNext():
        record = iterator.next()
        found.append(Record(record.partition(), bytes(record.value())))
    return found


def _java_produce(bootstrap: str, topic: str, records: Iterable[Record], options: Options) -> None:
    new_record = _gateway().jvm.org.apache.kafka.clients.producer.ProducerRecord
    seconds = _gateway().jvm.java.util.concurrent.TimeUnit.SECONDS
    pacer = Pacer(options.records_per_s)
    producer = java_producer(bootstrap, options)

    def send(batch: Iterable[Record]) -> None:
        sent = []
        for record in batch:
            time.sleep(pacer.wait_s())
            sent.append(producer.send(new_record(topic, record.partition, None, record.value)))
        producer.flush()
        for future in sent:
            future.get(int(options.within_s), seconds)

    try:
        if options.transactional_id is not None:
            producer.initTransactions()
        in_transactions(
            records,
            options,
            producer.beginTransaction,
            send,
            producer.commitTransaction,
            producer.abortTransaction,
        )
    finally:
        producer.close()


def _java_consume(bootstrap: str, topic: str, group: str, count: Count, options: Options) -> list[Record]:
    consumer = java_consumer(bootstrap, group, options)
    found: list[Record] = []
    deadline_s = time.monotonic() + options.within_s
    try:
        consumer.subscribe(_gateway().jvm.java.util.List.of(topic))
        while lacks_records(found, count):
            assert time.monotonic() < deadline_s, f"{len(found)} of {wanted(count)} records came"
            found += java_records(consumer)
    finally:
        consumer.close()
    return found


JAVA: Final = Client("java", _java_produce, _java_consume)
ALL_CLIENTS: Final = (*CLIENTS, JAVA)
