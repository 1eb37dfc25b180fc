"""Clients of every library at work through the proxy, all at once, while something happens to the brokers.

Each has a topic of its own with an idempotent or transactional producer and a group of one consumer. What
they are judged by: what a producer was told is stored is there once and in order, and nothing else is.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from testkit.clients.client_security import NO_SECURITY, Security
from testkit.clients.java_client import ALL_CLIENTS
from testkit.clients.kafka_clients import CONFLUENT, KAFKA_PYTHON, Client, Options
from testkit.clients.kafka_records import (
    Kafka,
    Record,
    assert_exactly,
    create_topic,
    first_times,
    numbered_record,
    stored,
)
from testkit.proxy.sluice_process import NO_QUOTAS, Quota, SluiceProcess

RECORD_BYTES: Final = 500
RECORDS_PER_S: Final = 25.0
"""of each producer: little, for it is time that counts"""
QUOTA_BYTES_PER_S: Final = int(RECORDS_PER_S * RECORD_BYTES)
"""of each client id: with what surrounds the records it is too little all the time, but not by much"""
DONE_WITHIN_S: Final = 240.0
UNDER_WAY_WITHIN_S: Final = 60.0
AFTERWARDS_S: Final = 2.0
"""how long traffic flows on when all has happened"""
EVERYBODY: Final = tuple((client, kind) for client in ALL_CLIENTS for kind in ("idempotent", "transactional"))
WITHOUT_FRAIL: Final = tuple(each for each in EVERYBODY if each != (KAFKA_PYTHON, "transactional"))
"""kafka-python 3.0.12 waits for ever in commit_transaction once its coordinator was killed, also without a
proxy"""
NOT_RESENDING: Final = tuple(each for each in EVERYBODY if each != (KAFKA_PYTHON, "idempotent"))
"""Throttled, kafka-python 3.0.12 may send batches of moved partitions to the old leader for ever, at
the broker's own quota, too: it looks for the new one only over connections that are not throttled
(docs/limits.md)."""
OF_A_LAST_BROKER: Final = tuple(each for each in WITHOUT_FRAIL if each[0] is not CONFLUENT)
"""The last broker of a cluster answers Metadata without any broker for some 10 ms of its shutdown (3.9, 4.3).
librdkafka 2.16 that asks just then forgets the broker and may stay without one for ever, whatever its
metadata.recovery.rebootstrap.trigger.ms; it has closed its connections itself."""


class Stream:
    """Numbered records, one after the other, until it is told to stop."""

    def __init__(self, run: str) -> None:
        self.given: list[Record] = []
        self.stopped = threading.Event()
        self._run = run

    def __iter__(self) -> Iterator[Record]:
        while not self.stopped.is_set():
            record = numbered_record(len(self.given), RECORD_BYTES, self._run)
            self.given.append(record)
            yield record


@dataclass(slots=True)
class Worker:
    """One library's producer of one kind, and the consumer of what it writes."""

    client: Client
    kind: str
    topic: str
    group: str
    client_id: str
    stream: Stream
    received: list[Record] = field(default_factory=list)
    work: list[Future[None]] = field(default_factory=list)
    total: float = math.inf

    @property
    def transactional_id(self) -> str | None:
        return f"transaction-{self.topic}" if self.kind == "transactional" else None

    def produce(self, bootstrap: str, security: Security) -> None:
        options = Options(
            client_id=self.client_id,
            transactional_id=self.transactional_id,
            records_per_transaction=20,
            transaction_tries=10,
            records_per_s=RECORDS_PER_S,
            security=security,
            within_s=DONE_WITHIN_S,
        )
        try:
            self.client.produce(bootstrap, self.topic, self.stream, options)
        finally:
            self.total = len(self.stream.given)

    def consume(self, bootstrap: str, security: Security) -> None:
        options = Options(client_id=self.client_id, security=security, within_s=DONE_WITHIN_S)
        self.received += self.client.consume(bootstrap, self.topic, self.group, lambda: self.total, options)


@contextmanager
def everybody_at_work(
    kafka: Kafka,
    proxy: SluiceProcess,
    name: Callable[[str], str],
    *,
    throttled: bool,
    who: Sequence[tuple[Client, str]] = EVERYBODY,
    replicas: int | None = None,
    security: Security = NO_SECURITY,
    topic_config: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[list[Worker]]:
    """They are at work when the block begins, and have been judged when it has ended.

    `throttled`: each client id has a quota of a little less than it produces. `name` makes names that nobody
    else has; `replicas` and `topic_config` are the topics'.
    """
    workers = []
    for client, kind in who:
        topic, group, app = (name(f"{what}-{client.name}-{kind}") for what in ("topic", "group", "app"))
        create_topic(kafka, topic, replicas=replicas, config=topic_config)
        workers.append(Worker(client, kind, topic, group, app, Stream(kind)))
    proxy.set_quotas(*(_quotas_of(workers) if throttled else NO_QUOTAS))
    begun_s = time.monotonic()
    with ThreadPoolExecutor(2 * len(workers)) as pool:
        try:
            for worker in workers:
                for task in (worker.produce, worker.consume):
                    worker.work.append(pool.submit(task, proxy.bootstraps, security))
            _await_under_way(kafka, workers)
            yield workers
            time.sleep(AFTERWARDS_S)
            for worker in workers:
                assert not any(done.done() for done in worker.work), worker
        finally:
            for worker in workers:
                worker.stream.stopped.set()
        for worker in workers:
            for done in worker.work:
                done.result(DONE_WITHIN_S)
    if throttled:
        _assert_throttled(proxy, workers, time.monotonic() - begun_s)
    for worker in workers:
        what = f"{worker.client.name}, {worker.kind}"
        assert len(worker.stream.given) > RECORDS_PER_S, what
        assert_exactly(worker.stream.given, stored(kafka, worker.topic), what)
        # A group that lost its coordinator for longer than its session begins again where it last committed.
        assert_exactly(worker.stream.given, first_times(worker.received), f"{what}, received")


def _await_under_way(kafka: Kafka, workers: Sequence[Worker]) -> None:
    deadline_s = time.monotonic() + UNDER_WAY_WITHIN_S
    for worker in workers:
        while not stored(kafka, worker.topic):
            for done in worker.work:
                assert not done.done() or done.result() is None, worker
            assert time.monotonic() < deadline_s, f"nothing was stored of {worker}"
            time.sleep(0.1)


def _quotas_of(workers: Sequence[Worker]) -> list[Quota]:
    return [
        {
            "client-id": worker.client_id,
            "producer_byte_rate": QUOTA_BYTES_PER_S,
            "consumer_byte_rate": 2 * QUOTA_BYTES_PER_S,
        }
        for worker in workers
    ]


def _assert_throttled(proxy: SluiceProcess, workers: Sequence[Worker], took_s: float) -> None:
    below = []
    for worker in workers:
        if worker.kind == "transactional":  # on a busy machine its commits alone may keep it below the quota
            continue
        labels = {"quota": "produce", "client_id": worker.client_id}
        seconds = proxy.metric("sluice_throttled_seconds_total", **labels)
        if seconds <= 1.0:
            below.append(worker)
            # Or it had a start of half a minute: of what is not there nobody is throttled.
            wrote = len(worker.stream.given) * RECORD_BYTES
            assert wrote < QUOTA_BYTES_PER_S * took_s, f"{worker.client.name}, {worker.kind}: {seconds}"
    assert len(below) <= 1, f"the quotas bit too few: {[worker.client.name for worker in below]}"
