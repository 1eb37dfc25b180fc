"""Drives aiokafka: idempotent, in a group, in transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aiokafka

from bench.clients.drivers.told import (
    TRIES_OF_A_TRANSACTION,
    Due,
    Reading,
    Work,
    read_work,
    tell,
    tell_error,
)


def _config(work: Work) -> dict[str, Any]:
    return {
        "bootstrap_servers": work.bootstrap,
        "client_id": work.client_id,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": work.user,
        "sasl_plain_password": work.password,
    }


async def produce(work: Work, worker: int) -> None:
    """All records as fast as the client takes them, then waits for each."""
    producer = aiokafka.AIOKafkaProducer(**_config(work), enable_idempotence=True)
    await producer.start()
    sent = []
    for seq in range(work.records):
        try:
            sent.append(
                await producer.send(work.topic, work.value(worker, seq), partition=work.partition(seq))
            )
        except aiokafka.errors.KafkaError as error:
            failed = asyncio.get_running_loop().create_future()
            failed.set_exception(error)
            sent.append(failed)
    for seq, future in enumerate(sent):
        try:
            await future
        except aiokafka.errors.KafkaError as error:
            tell_error("fail", error, worker, seq)
        else:
            tell("ack", worker, seq)
    await producer.stop()


async def transact(work: Work, worker: int) -> None:
    """Records and an offset of a group in each transaction."""
    producer = aiokafka.AIOKafkaProducer(**_config(work), transactional_id=work.transactional_id(worker))
    await producer.start()
    for batch in work.transactions():
        for tries_left in reversed(range(TRIES_OF_A_TRANSACTION)):
            try:
                await _one_transaction(producer, work, worker, batch)
            except Exception as error:
                tell_error("commit_failed", error)
                if not tries_left:
                    raise
                await producer.abort_transaction()
            else:
                for seq in batch:
                    tell("ack", worker, seq)
                break
    await producer.stop()


async def _one_transaction(producer: Any, work: Work, worker: int, batch: range) -> None:
    await producer.begin_transaction()
    sent = [
        await producer.send(work.topic, work.value(worker, seq), partition=work.partition(seq))
        for seq in batch
    ]
    await asyncio.gather(*sent)
    offsets = {aiokafka.TopicPartition(work.topic, 0): batch.stop}
    await producer.send_offsets_to_transaction(offsets, f"{work.group}-{worker}")
    await producer.commit_transaction()


async def consume(work: Work, reading: Reading) -> None:
    """One member of the group."""
    consumer = aiokafka.AIOKafkaConsumer(
        work.topic,
        **_config(work),
        group_id=work.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    due = Due()
    while reading.goes_on:
        for messages in (await consumer.getmany(timeout_ms=200)).values():
            for message in messages:
                reading.got(message.partition, message.offset)
        if due:
            await _commit(consumer)
    await _commit(consumer)
    await asyncio.to_thread(reading.wait_for_last_commits)
    await consumer.stop()


async def _commit(consumer: Any) -> None:
    try:
        await consumer.commit()
    except aiokafka.errors.KafkaError as error:
        tell_error("commit_failed", error)


async def _all(work: Work) -> None:
    async def guarded(run: Callable[[], Awaitable[None]]) -> None:
        try:
            await run()
        except Exception as error:  # what its user would see
            tell_error("broke", error)

    reading = Reading(work)
    runs: dict[str, Callable[[int], Awaitable[None]]] = {
        "produce": lambda number: produce(work, number),
        "transact": lambda number: transact(work, number),
        "consume": lambda _number: consume(work, reading),
    }
    await asyncio.gather(
        *(guarded(lambda number=number: runs[work.role](number)) for number in range(work.workers))  # type: ignore[misc]
    )


def main() -> None:
    """Does what the command line asks for."""
    asyncio.run(_all(read_work()))
    tell("end")


if __name__ == "__main__":
    main()
