"""Real clients at work through a relay → the requests that they sent, one of each API and version.

aiokafka, confluent-kafka (librdkafka) and kafka-python produce, in a transaction too, consume in a group and
administer; so the frames that get damaged later are such as a broker sees every day.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Callable, Iterator
from typing import Final

import aiokafka
import confluent_kafka
import kafka as kafka_python
from confluent_kafka.admin import AdminClient

from bench.hostile.frames import api_of
from bench.lib.relay import Direction, Relay
from testkit.processes.ports import LOOPBACK
from testkit.processes.process import BenchError

RECORDS: Final = 50
GROUP: Final = "recorded-group"
CLIENT_WITHIN_S: Final = 60.0
MAX_FRAME_BYTES: Final = 64 * 1024  # larger ones would make the load of damage, not its kind


class Recorder:
    """A relay's meter: keeps the first request of each API and version."""

    def __init__(self) -> None:
        self.frames: dict[tuple[int, int], bytes] = {}
        self._unread: dict[int, bytearray] = {}

    def __call__(self, connection: int, direction: Direction, _at_s: float, data: memoryview) -> None:
        if direction is not Direction.UP:
            return
        unread = self._unread.setdefault(connection, bytearray())
        unread += data
        while len(unread) >= 8:
            (size,) = struct.unpack_from(">i", unread)
            if len(unread) < 4 + size:
                return
            if size <= MAX_FRAME_BYTES:
                self.frames.setdefault(api_of(bytes(unread[:8])), bytes(unread[: 4 + size]))
            del unread[: 4 + size]


async def record(relay_port: int, broker_port: int, topic: str) -> list[bytes]:
    """Requests of all clients. The broker's listener on `broker_port` must advertise `relay_port`.

    Raises BenchError when a client fails.
    """
    recorder = Recorder()
    relay = Relay(relay_port, broker_port, recorder)
    bootstrap = f"{LOOPBACK}:{relay_port}"
    try:
        await _aiokafka(bootstrap, topic)
        for client in (_confluent, _kafka_python):
            await asyncio.wait_for(asyncio.to_thread(client, bootstrap, topic), CLIENT_WITHIN_S)
    except Exception as error:
        raise BenchError(f"a client whose requests were to be recorded failed: {error!r}") from error
    finally:
        relay.close()
    return [recorder.frames[pair] for pair in sorted(recorder.frames)]


def _value(number: int) -> bytes:
    return b"%08d" % number * 25


async def _aiokafka(bootstrap: str, topic: str) -> None:
    for transactional_id in (None, "recorded-aiokafka"):
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=True, transactional_id=transactional_id
        )
        async with producer, producer.transaction() if transactional_id else contextlib.nullcontext():
            for number in range(RECORDS):
                await producer.send(topic, _value(number), partition=0)
    consumer = aiokafka.AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=GROUP, auto_offset_reset="earliest"
    )
    async with consumer, asyncio.timeout(CLIENT_WITHIN_S):
        await consumer.getone()
        await consumer.commit()


def _confluent(bootstrap: str, topic: str) -> None:
    settings = {"bootstrap.servers": bootstrap, "client.id": "recorded"}
    producer = confluent_kafka.Producer(settings | {"transactional.id": "recorded-confluent"})
    producer.init_transactions(CLIENT_WITHIN_S)
    producer.begin_transaction()
    for number in range(RECORDS):
        producer.produce(topic, _value(number), partition=0)
    producer.commit_transaction(CLIENT_WITHIN_S)
    for protocol in ("classic", "consumer"):
        with _consumer(
            settings | {"group.id": f"{GROUP}-{protocol}", "group.protocol": protocol}
        ) as consumer:
            consumer.subscribe([topic])
            consumer.consume(1, 10.0)
            consumer.commit(asynchronous=False)
    admin = AdminClient(dict(settings))
    admin.describe_cluster().result(CLIENT_WITHIN_S)
    admin.list_consumer_groups().result(CLIENT_WITHIN_S)
    admin.describe_consumer_groups([f"{GROUP}-classic"])[f"{GROUP}-classic"].result(CLIENT_WITHIN_S)


@contextlib.contextmanager
def _consumer(settings: dict[str, str]) -> Iterator[confluent_kafka.Consumer]:
    consumer = confluent_kafka.Consumer(settings | {"auto.offset.reset": "earliest"})
    try:
        yield consumer
    finally:
        consumer.close()


def _kafka_python(bootstrap: str, topic: str) -> None:
    producer = kafka_python.KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
    with _closing(producer.close):
        sent = [producer.send(topic, _value(number), partition=0) for number in range(RECORDS)]
        producer.flush(CLIENT_WITHIN_S)
        for future in sent:
            future.get(CLIENT_WITHIN_S)
    admin = kafka_python.KafkaAdminClient(bootstrap_servers=bootstrap)
    with _closing(admin.close):
        admin.describe_cluster()
        admin.describe_topics([topic])
        admin.describe_log_dirs()
        admin.describe_metadata_quorum()
        admin.describe_user_scram_credentials()
        admin.list_groups()
        admin.list_transactions()
        admin.list_partition_reassignments()


@contextlib.contextmanager
def _closing(close: Callable[[], object]) -> Iterator[None]:
    try:
        yield
    finally:
        close()
