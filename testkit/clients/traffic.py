"""Traffic that goes on while a test does something to the proxy, and is judged record by record then."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import confluent_kafka

from testkit.clients.kafka_clients import Options, confluent_producer
from testkit.clients.kafka_records import Record, assert_exactly, create_topic, numbered, stored
from testkit.kafka.node import KafkaNode
from testkit.proxy.sluice_process import SluiceProcess

RECORD_BYTES: Final = 1_000
SETTLE_S: Final = 1.0
MEASURE_S: Final = 3.0
WITHIN_S: Final = 30.0


class Flow:
    """A producer that never stops until it is told to, and what of it was acknowledged when."""

    def __init__(self, producer: confluent_kafka.Producer, topic: str) -> None:
        self.sent: list[Record] = []
        self._acknowledged_s: list[float] = []
        self._failed: list[object] = []
        self._stop = threading.Event()
        self._producer = producer
        self._topic = topic
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def rate(self) -> float:
        """Bytes a second that are acknowledged over the next MEASURE_S, once the pace has settled."""
        time.sleep(SETTLE_S)
        begun, begun_s = len(self._acknowledged_s), time.monotonic()
        time.sleep(MEASURE_S)
        count = len(self._acknowledged_s) - begun
        return count * RECORD_BYTES / (time.monotonic() - begun_s)

    def comes_to(self, is_right: Callable[[float], bool]) -> bool:
        """Whether a right rate is seen within WITHIN_S: other work may slow the machine for a while."""
        until_s = time.monotonic() + WITHIN_S
        rates: list[float] = []
        while not (rates and is_right(rates[-1])) and time.monotonic() < until_s:
            rates.append(self.rate())
        print("rates:", rates)
        return is_right(rates[-1])

    @property
    def is_unharmed(self) -> bool:
        """Nothing has failed so far."""
        return not self._failed

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(60.0) == 0
        assert not self._failed

    def _run(self) -> None:
        for record in numbered(100_000, size_bytes=RECORD_BYTES):
            while len(self._producer) > 200 and not self._stop.is_set():
                self._producer.poll(0.05)
            if self._stop.is_set():
                return
            self.sent.append(record)
            self._producer.produce(
                self._topic, record.value, partition=record.partition, on_delivery=self._delivered
            )

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self._failed.append(error)
        self._acknowledged_s.append(time.monotonic())


@contextmanager
def flowing(kafka: KafkaNode, sluice: SluiceProcess, topic: str, client_id: str) -> Iterator[Flow]:
    """Traffic during the block; afterwards exactly what was sent must be stored."""
    producer = confluent_producer(sluice.bootstrap(), Options(client_id=client_id, batch_bytes=4000))
    flow = Flow(producer, create_topic(kafka, topic))
    try:
        yield flow
    finally:
        flow.stop()
    assert_exactly(flow.sent, stored(kafka, topic))


def about(quota: float) -> Callable[[float], bool]:
    """Coarsely, for other work is done on the machine meanwhile."""
    return lambda rate: 0.6 * quota < rate < 1.3 * quota
