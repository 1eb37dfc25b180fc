"""Drives librdkafka through confluent-kafka: idempotent, without idempotence, in a group, in transactions."""

from __future__ import annotations

from typing import Any, Final

import confluent_kafka

from bench.clients.drivers.told import (
    Due,
    Reading,
    Work,
    in_threads,
    read_work,
    run_transactions,
    tell,
    tell_error,
)

WITHOUT_IDEMPOTENCE: Final = "librdkafka-plain"
BATCH_BYTES: Final = 16_384
"""batch.size, Java's default: without it librdkafka would send all that waits in one request"""


def _config(work: Work, **settings: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": work.bootstrap,
        "client.id": work.client_id,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": work.user,
        "sasl.password": work.password,
        "log_level": 3,
        **{name.replace("_", ".") if name != "log_level" else name: x for name, x in settings.items()},
    }


def _send(producer: confluent_kafka.Producer, work: Work, worker: int, seq: int, on_delivery: Any) -> None:
    while True:
        try:
            producer.produce(
                work.topic,
                work.value(worker, seq),
                partition=work.partition(seq),
                on_delivery=on_delivery,
            )
        except BufferError:
            producer.poll(0.1)
        else:
            return


def produce(work: Work, worker: int) -> None:
    """All records at once into the client's queue, then waits for the reports."""
    producer = confluent_kafka.Producer(
        _config(
            work,
            enable_idempotence=work.client != WITHOUT_IDEMPOTENCE,
            acks="all",
            batch_size=BATCH_BYTES,
        )
    )
    for seq in range(work.records):

        def reported(error: Any, _message: Any, seq: int = seq) -> None:
            if error is None:
                tell("ack", worker, seq)
            else:
                tell("fail", worker, seq, error)

        _send(producer, work, worker, seq, reported)
        producer.poll(0)
    producer.flush(work.within_s)


def transact(work: Work, worker: int) -> None:
    """Records and an offset of a group in each transaction."""
    producer = confluent_kafka.Producer(_config(work, transactional_id=work.transactional_id(worker)))
    group = confluent_kafka.Consumer(_config(work, group_id=f"{work.group}-{worker}"))
    producer.init_transactions()
    failures: list[Any] = []

    def reported(error: Any, _message: Any) -> None:
        if error is not None:
            failures.append(error)

    def send(batch: range) -> None:
        failures.clear()
        for seq in batch:
            _send(producer, work, worker, seq, reported)
        producer.flush(work.within_s)
        if failures:
            raise confluent_kafka.KafkaException(failures[0])
        offset = confluent_kafka.TopicPartition(work.topic, 0, batch.stop)
        producer.send_offsets_to_transaction([offset], group.consumer_group_metadata())

    def commit() -> None:
        while True:
            try:
                producer.commit_transaction()
            except confluent_kafka.KafkaException as error:
                if not error.args[0].retriable():
                    raise
            else:
                return

    run_transactions(work, worker, producer.begin_transaction, send, commit, producer.abort_transaction)
    group.close()


def consume(work: Work, reading: Reading) -> None:
    """One member of the group."""
    consumer = confluent_kafka.Consumer(
        _config(
            work,
            group_id=work.group,
            group_protocol=work.group_protocol,
            auto_offset_reset="earliest",
            enable_auto_commit=work.commits_on_revocation,
        )
    )
    consumer.subscribe([work.topic])
    due = Due()
    while reading.goes_on:
        for message in consumer.consume(500, 0.2):
            if message.error() is None:
                reading.got(message.partition() or 0, message.offset() or 0)
        if due:
            _commit(consumer)
    _commit(consumer)
    reading.wait_for_last_commits()
    consumer.close()


def _commit(consumer: confluent_kafka.Consumer) -> None:
    try:
        consumer.commit(asynchronous=False)
    except confluent_kafka.KafkaException as error:
        if error.args[0].code() != confluent_kafka.KafkaError._NO_OFFSET:
            tell_error("commit_failed", error)


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
