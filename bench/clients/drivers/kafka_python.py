"""Drives kafka-python: idempotent, in a group, in transactions."""

from __future__ import annotations

from typing import Any

import kafka
from kafka.structs import OffsetAndMetadata

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
from testkit.clients.kafka_python_groups import poll_patiently, subscribe_knowingly


def _config(work: Work) -> dict[str, Any]:
    return {
        "bootstrap_servers": work.bootstrap,
        "client_id": work.client_id,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": work.user,
        "sasl_plain_password": work.password,
    }


def produce(work: Work, worker: int) -> None:
    """All records into the client's buffer, then waits for each."""
    producer = kafka.KafkaProducer(**_config(work), enable_idempotence=True)
    sent = [
        producer.send(work.topic, work.value(worker, seq), partition=work.partition(seq))
        for seq in range(work.records)
    ]
    for seq, future in enumerate(sent):
        try:
            future.get(timeout=work.within_s)
        except kafka.errors.KafkaError as error:
            tell_error("fail", error, worker, seq)
        else:
            tell("ack", worker, seq)
    producer.close()


def transact(work: Work, worker: int) -> None:
    """Records and an offset of a group in each transaction."""
    producer = kafka.KafkaProducer(**_config(work), transactional_id=work.transactional_id(worker))
    producer.init_transactions()

    def send(batch: range) -> None:
        sent = [
            producer.send(work.topic, work.value(worker, seq), partition=work.partition(seq)) for seq in batch
        ]
        for future in sent:
            future.get(timeout=work.within_s)
        offsets = {kafka.TopicPartition(work.topic, 0): OffsetAndMetadata(batch.stop, "", -1)}
        producer.send_offsets_to_transaction(offsets, f"{work.group}-{worker}")

    run_transactions(
        work,
        worker,
        producer.begin_transaction,
        send,
        producer.commit_transaction,
        producer.abort_transaction,
    )
    producer.close()


def consume(work: Work, reading: Reading) -> None:
    """One member of the group."""
    consumer = kafka.KafkaConsumer(
        **_config(work),
        group_id=work.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    subscribe_knowingly(consumer, work.topic)
    due = Due()
    while reading.goes_on:
        for messages in poll_patiently(consumer).values():
            for message in messages:
                reading.got(message.partition, message.offset)
        if due:
            _commit(consumer)
    _commit(consumer)
    reading.wait_for_last_commits()
    consumer.close()


def _commit(consumer: Any) -> None:
    try:
        consumer.commit()
    except kafka.errors.KafkaError as error:
        tell_error("commit_failed", error)


def main() -> None:
    """Does what the command line asks for."""
    work = read_work()
    if work.role == "consume":
        reading = Reading(work)
        in_threads(work.workers, lambda _number: consume(work, reading))
    else:
        run = produce if work.role == "produce" else transact
        in_threads(work.workers, lambda number: run(work, number))
    tell("end")


if __name__ == "__main__":
    main()
