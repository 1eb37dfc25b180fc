"""One Python producer that never stops until SIGTERM: numbered records, idempotent, its library's defaults.

    python -m bench.soak.client LIBRARY BOOTSTRAP TOPIC PARTITIONS INDEX CLIENT_ID RATE SIZE ENTRIES

LIBRARY: aiokafka, confluent or kafka-python. RATE: records per second, or 0: as many as are acknowledged,
with WINDOW of them under way. SIZE: bytes of a record. What it was told of each record goes to ENTRIES
(log.py); on SIGTERM it waits for what is under way and prints one line of JSON. A producer that is
beyond use is counted and replaced.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka as kafka_python
import kafka.errors
from kafka.producer.transaction_manager import TransactionState

from bench.soak.log import AnswerLog, value_of

WINDOW: Final = 300
MAX_UNDER_WAY: Final = 50_000
"""of a client with a rate; its library's own buffer is not smaller"""
LAST_ANSWERS_S: Final = 130.0  # longer than any client's delivery timeout of 120 s
TICK_S: Final = 0.01
REPLACE_PAUSE_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What to send where."""

    bootstrap: str
    topic: str
    partitions: int
    index: int
    client_id: str
    rate: float
    record_bytes: int

    def record(self, number: int) -> tuple[bytes, int]:
        """The record of this number, as (value, partition)."""
        return value_of(self.index, number, self.record_bytes), number % self.partitions


class Pace:
    """How many records may have been sent by now. With a rate, a time without sending is made up for."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._begun_s = time.monotonic()

    def allowed(self, sent: int, answered: int) -> int:
        """A number of records in all."""
        if not self._rate:
            return answered + WINDOW
        due = int((time.monotonic() - self._begun_s) * self._rate)
        return min(due, answered + MAX_UNDER_WAY)


# Libraries with threads of their own ------------------------------------------------------------------------


class ProducerBeyondUseError(Exception):
    """It says nothing itself, and will not send again."""


class Producer(ABC):
    """One library's producer, with what both sides have to say reduced to the log."""

    def __init__(self, plan: Plan, log: AnswerLog) -> None:
        self._plan = plan
        self._log = log

    @abstractmethod
    def send(self, number: int) -> None:
        """Raises what the library raises when it takes no more records for good."""

    @abstractmethod
    def poll(self, timeout_s: float) -> None:
        """Let answers come in."""

    @abstractmethod
    def close(self) -> None:
        """Free it; what is under way may fail."""

    def check(self) -> None:  # noqa: B027 - most libraries have an exception for that
        """Raises ProducerBeyondUseError where a supervisor would find that nothing goes on for good."""


class ConfluentProducer(Producer):
    """librdkafka; it says by callback what became of a record."""

    def __init__(self, plan: Plan, log: AnswerLog) -> None:
        super().__init__(plan, log)
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": plan.bootstrap,
                "client.id": plan.client_id,
                "enable.idempotence": True,
                "log_level": 0,
            }
        )

    def send(self, number: int) -> None:
        value, partition = self._plan.record(number)

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                self._log.acknowledged(number, message.partition())
            else:
                self._log.failed(number, error)

        while True:
            try:
                self._producer.produce(self._plan.topic, value, partition=partition, on_delivery=delivered)
                return
            except BufferError:
                self._producer.poll(0.1)

    def poll(self, timeout_s: float) -> None:
        self._producer.poll(timeout_s)

    def close(self) -> None:
        self._producer.purge()
        self._producer.flush(5.0)


class KafkaPythonProducer(Producer):
    """kafka-python; its own thread says what became of a record.

    When a batch that was sent runs out of time, version 3.0.12 gives its producer id away and asks for no
    new one (`TransactionManager.init_producer_id` does so in its first state alone): it waits for ever.
    """

    def __init__(self, plan: Plan, log: AnswerLog) -> None:
        super().__init__(plan, log)
        self._producer = kafka_python.KafkaProducer(
            bootstrap_servers=plan.bootstrap, client_id=plan.client_id, enable_idempotence=True
        )

    def send(self, number: int) -> None:
        value, partition = self._plan.record(number)
        future = self._producer.send(self._plan.topic, value, partition=partition)
        future.add_callback(lambda found: self._log.acknowledged(number, found.partition))
        future.add_errback(lambda error: self._log.failed(number, error))

    def poll(self, timeout_s: float) -> None:
        time.sleep(timeout_s)

    def close(self) -> None:
        try:
            self._producer.close(timeout=5.0)
        except kafka.errors.KafkaTimeoutError:  # records are left of which nothing can become any more
            self._producer._sender.force_close()
            self._producer._sender.join(5.0)

    def check(self) -> None:
        manager = self._producer._transaction_manager
        if manager._current_state is TransactionState.READY and not manager.has_producer_id():
            raise ProducerBeyondUseError("kafka-python has given its producer id away for good")


LIBRARIES: Final[dict[str, type[Producer]]] = {
    "confluent": ConfluentProducer,
    "kafka-python": KafkaPythonProducer,
}
AIOKAFKA: Final = "aiokafka"


def run_threaded(library: type[Producer], plan: Plan, log: AnswerLog) -> None:
    """Until SIGTERM, and then until everything is answered."""
    stopped_s: list[float] = []
    signal.signal(signal.SIGTERM, lambda *_: stopped_s.append(time.monotonic()))
    producer = _opened(library, plan, log)
    pace = Pace(plan.rate)
    sent = 0
    while not stopped_s:
        try:
            producer.check()
            while sent < pace.allowed(sent, log.answered) and not stopped_s:
                producer.send(sent)
                sent = log.sent = sent + 1
        except Exception as error:
            log.failed(sent, error)
            sent = log.sent = sent + 1
            if not is_passing(error):
                log.replaced += 1
                producer.close()
                time.sleep(REPLACE_PAUSE_S)
                producer = _opened(library, plan, log)
        producer.poll(TICK_S)
        log.flush()
    while log.answered < sent and time.monotonic() < stopped_s[0] + LAST_ANSWERS_S:
        producer.poll(TICK_S)
        log.flush()
    producer.close()


def is_passing(error: Exception) -> bool:
    """Whether the producer is fine: it could not take this record because nobody was there for too long."""
    return isinstance(error, aiokafka.errors.KafkaTimeoutError | kafka.errors.KafkaTimeoutError)


def _opened(library: type[Producer], plan: Plan, log: AnswerLog) -> Producer:
    while True:
        try:
            return library(plan, log)
        except Exception as error:  # nobody there: as a service that its supervisor starts again
            print(f"opening a producer: {error!r}", file=sys.stderr)
            time.sleep(REPLACE_PAUSE_S)


# aiokafka ---------------------------------------------------------------------------------------------------


async def run_aiokafka(plan: Plan, log: AnswerLog) -> None:
    """Until SIGTERM, and then until everything is answered."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    producer = await _started(plan)
    pace = Pace(plan.rate)
    sent = 0

    def answered(number: int, future: asyncio.Future[Any]) -> None:
        if future.cancelled():
            log.failed(number, "cancelled")
        elif (error := future.exception()) is not None:
            log.failed(number, error)
        else:
            log.acknowledged(number, future.result().partition)

    while not stop.is_set():
        try:
            while sent < pace.allowed(sent, log.answered) and not stop.is_set():
                value, partition = plan.record(sent)
                future = await producer.send(plan.topic, value, partition=partition)
                future.add_done_callback(lambda done, number=sent: answered(number, done))
                sent = log.sent = sent + 1
        except Exception as error:
            log.failed(sent, error)
            sent = log.sent = sent + 1
            if not is_passing(error):
                log.replaced += 1
                await _stopped(producer)
                await asyncio.sleep(REPLACE_PAUSE_S)
                producer = await _started(plan)
        await asyncio.sleep(TICK_S)
        log.flush()
    deadline_s = time.monotonic() + LAST_ANSWERS_S
    while log.answered < sent and time.monotonic() < deadline_s:  # noqa: ASYNC110 - each has a callback already
        await asyncio.sleep(TICK_S)
    await _stopped(producer)


async def _started(plan: Plan) -> Any:
    while True:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=plan.bootstrap, client_id=plan.client_id, enable_idempotence=True
        )
        try:
            await producer.start()
            return producer
        except Exception:
            await _stopped(producer)
            await asyncio.sleep(REPLACE_PAUSE_S)


async def _stopped(producer: Any) -> None:
    try:
        async with asyncio.timeout(5.0):
            await producer.stop()
    except Exception as error:
        print(f"stopping a producer: {error!r}", file=sys.stderr)


def main(argv: Sequence[str]) -> None:
    library, bootstrap, topic, partitions, index, client_id, rate, record_bytes, entries = argv
    plan = Plan(bootstrap, topic, int(partitions), int(index), client_id, float(rate), int(record_bytes))
    with Path(entries).open("wb") as output:
        log = AnswerLog(output)
        if library == AIOKAFKA:
            asyncio.run(run_aiokafka(plan, log))
        else:
            run_threaded(LIBRARIES[library], plan, log)
        log.flush_now()
    end = {"errors": log.errors, "replaced": log.replaced, "unanswered": log.sent - log.answered}
    print(json.dumps(end), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
