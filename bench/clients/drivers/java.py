"""Drives Java's KafkaProducer and KafkaConsumer by py4j: idempotent, in a group, in transactions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from py4j.protocol import Py4JJavaError

from bench.clients.drivers.told import (
    Due,
    Reading,
    Work,
    in_threads,
    read_work,
    run_transactions,
    tell,
)
from testkit.clients.client_security import Login, Security
from testkit.clients.java_client import java_class, java_consumer, java_producer
from testkit.clients.kafka_clients import Options

WITHOUT_IDEMPOTENCE: Final = "java-plain"
SMALL_BATCH_BYTES: Final = 1_024


def _options(work: Work, transactional_id: str | None = None) -> Options:
    return Options(
        client_id=work.client_id,
        transactional_id=transactional_id,
        security=Security(login=Login("PLAIN", work.user, work.password)),
    )


def _without_idempotence(options: Options) -> Options:
    """As many requests behind one another as Java has in flight, with a record in each."""
    return replace(options, idempotent=False, batch_bytes=SMALL_BATCH_BYTES)


def _cause(error: Py4JJavaError) -> str:
    """What Java said, without its stack."""
    exception = error.java_exception
    return str((exception.getCause() or exception).toString())[:300]


def _send(producer: Any, work: Work, worker: int, seq: int) -> Any:
    record = java_class("org.apache.kafka.clients.producer.ProducerRecord")
    return producer.send(record(work.topic, work.partition(seq), None, work.value(worker, seq)))


def produce(work: Work, worker: int) -> None:
    """All records into the client's buffer, then waits for each."""
    options = _options(work)
    if work.client == WITHOUT_IDEMPOTENCE:
        options = _without_idempotence(options)
    producer = java_producer(work.bootstrap, options)
    sent = [_send(producer, work, worker, seq) for seq in range(work.records)]
    for seq, future in enumerate(sent):
        try:
            future.get()
        except Py4JJavaError as error:
            tell("fail", worker, seq, _cause(error))
        else:
            tell("ack", worker, seq)
    producer.close()


def transact(work: Work, worker: int) -> None:
    """Records and an offset of a group in each transaction."""
    producer = java_producer(work.bootstrap, _options(work, work.transactional_id(worker)))
    producer.initTransactions()
    group = java_class("org.apache.kafka.clients.consumer.ConsumerGroupMetadata")(f"{work.group}-{worker}")
    partition = java_class("org.apache.kafka.common.TopicPartition")(work.topic, 0)
    offset = java_class("org.apache.kafka.clients.consumer.OffsetAndMetadata")
    of = java_class("java.util.Map").of

    def send(batch: range) -> None:
        for future in [_send(producer, work, worker, seq) for seq in batch]:
            future.get()
        producer.sendOffsetsToTransaction(of(partition, offset(batch.stop)), group)

    run_transactions(
        work, worker, producer.beginTransaction, send, producer.commitTransaction, producer.abortTransaction
    )
    producer.close()


def consume(work: Work, reading: Reading) -> None:
    """One member of the group."""
    consumer = java_consumer(
        work.bootstrap,
        work.group,
        _options(work),
        enable_auto_commit=work.commits_on_revocation,
        group_protocol=work.group_protocol,
    )
    consumer.subscribe(java_class("java.util.List").of(work.topic))
    pause = java_class("java.time.Duration").ofMillis(200)
    due = Due()
    while reading.goes_on:
        records = consumer.poll(pause).iterator()
        while records.hasNext():
            record = records.next()
            reading.got(record.partition(), record.offset())
        if due:
            _commit(consumer)
    _commit(consumer)
    reading.wait_for_last_commits()
    consumer.close()


def _commit(consumer: Any) -> None:
    try:
        consumer.commitSync()
    except Py4JJavaError as error:
        tell("commit_failed", _cause(error))


def main() -> None:
    """Does what the command line asks for."""
    work = read_work()
    if work.role.startswith("consume"):
        reading = Reading(work)
        in_threads(work.workers, lambda _number: consume(work, reading))
    else:
        run = produce if work.role == "produce" else transact
        in_threads(work.workers, lambda number: run(work, number))
    tell("end")


if __name__ == "__main__":
    main()
