"""A group that consumes and produces goes on under an empty bucket: its rebalance ends within its timeout.

Its members wait for their producers' ids between two polls, and so keep the whole group from its rebalance.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final

import pytest
from confluent_kafka import Consumer

from testkit.clients.kafka_clients import CONFLUENT, Options, confluent_consumer, confluent_producer
from testkit.clients.kafka_records import await_stored, create_topic, numbered
from testkit.kafka.node import KafkaNode
from testkit.proxy.sluice_process import SluiceProcess, doors_of

pytestmark = pytest.mark.kafka

RATE: Final = 4
"""no second id comes by the rate within the test"""
SESSION_TIMEOUT_MS: Final = 6_000
REBALANCE_TIMEOUT_MS: Final = 12_000
RECORDS: Final = 600
WITHIN_S: Final = 60.0


class Member(threading.Thread):
    """Consumes, produces what it consumed, flushes, commits, polls again."""

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topics: tuple[str, str],
        all_joined: threading.Event,
        is_over: Callable[[int], bool],
    ) -> None:
        """`topics`: from and to. Until `all_joined` it takes no more than one batch of an assignment.
        `is_over`: told how many records went on."""
        super().__init__(daemon=True)
        self.assigned = threading.Event()
        self.produces = threading.Event()
        self.lost = 0
        """times that its partitions were taken from it, for it had not polled in time"""
        self.errors: list[str] = []
        self._topics = topics
        self._all_joined = all_joined
        self._is_over = is_over
        options = Options(client_id="etl")
        self._producer = confluent_producer(bootstrap, options, linger_ms=0)
        self._consumer = confluent_consumer(
            bootstrap,
            group,
            options,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=1_000,
            max_poll_interval_ms=REBALANCE_TIMEOUT_MS,
            enable_auto_commit=False,
        )

    def run(self) -> None:
        source, sink = self._topics
        self._consumer.subscribe([source], on_assign=self._on_assign, on_lost=self._on_lost)
        until = time.monotonic() + WITHIN_S
        while not self._is_over(0) and time.monotonic() < until:
            found = self._consumer.consume(25, 0.2)
            self.errors += [str(message.error()) for message in found if message.error()]
            if self._all_joined.is_set():
                self._consumer.resume(self._consumer.assignment())
            records = [message for message in found if not message.error()]
            if not records:
                continue
            for message in records:
                self._producer.produce(sink, message.value(), partition=message.partition() or 0)
            self.produces.set()
            assert self._producer.flush(WITHIN_S) == 0
            self._consumer.commit(asynchronous=False)
            if not self._all_joined.is_set():
                self._consumer.pause(self._consumer.assignment())
            self._is_over(len(records))
        self._consumer.close()

    def _on_assign(self, _consumer: Consumer, partitions: list[Any]) -> None:
        if partitions:
            self.assigned.set()

    def _on_lost(self, _consumer: Consumer, _partitions: list[Any]) -> None:
        self.lost += 1


def test_a_group_that_produces_rebalances_in_time_under_an_empty_bucket(
    kafka: KafkaNode, unique: Callable[[str], str]
) -> None:
    source, sink, other = (create_topic(kafka, unique(name)) for name in ("from", "to", "other"))
    sent = numbered(RECORDS)
    CONFLUENT.produce(kafka.bootstrap, source, sent, Options())
    lock, gone = threading.Lock(), [0]

    def is_over(count: int) -> bool:
        with lock:
            gone[0] += count
            return gone[0] >= RECORDS

    limit = {"user": "<default>", "producer_ids_rate": RATE}
    # Half of the forced bucket's four is for members.
    with SluiceProcess(doors_of(kafka), [limit], producer_ids={"forced_share": 1.0}) as process:
        for _ in range(RATE):
            CONFLUENT.produce(process.bootstrap(), other, numbered(1), Options(client_id="other"))
        group = unique("etl")
        joined = threading.Event()
        first, second = (
            Member(process.bootstrap(), group, (source, sink), joined, is_over) for _ in range(2)
        )
        first.start()
        assert first.produces.wait(WITHIN_S)
        began_s = time.monotonic()
        second.start()
        assert second.assigned.wait(WITHIN_S)
        rebalance_s = time.monotonic() - began_s
        joined.set()
        for member in (first, second):
            member.join(2 * WITHIN_S)
        forced = process.metric("sluice_producer_ids_forced_total")
    assert [member.errors for member in (first, second)] == [[], []]
    assert [member.lost for member in (first, second)] == [0, 0]
    assert rebalance_s < REBALANCE_TIMEOUT_MS / 1000.0
    assert forced == 2
    stored = await_stored(kafka, sink, RECORDS)
    assert sorted(record.value for record in stored) == sorted(record.value for record in sent)
