"""Many idempotent producers at little cost: each one connection, one producer id, one partition, one batch in
flight.

They do what KafkaProducer does of it (`acks=all`, `max.in.flight` 1): a batch is sent again, with the same
sequence, until the broker has answered it; after an error or a lost connection where the leader is then. They
are told who leads by `door_of`, and so do not ask for metadata themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from testkit.clients.kafka_records import Record
from testkit.frames import load_frames as bench_frames
from testkit.frames.frames import decoded, request
from testkit.frames.wire import Wire, dial

_INIT_PRODUCER_ID: Final = 22
_INIT_VERSION: Final = 4
_COORDINATOR_LOAD_IN_PROGRESS: Final = 14
_AGAIN: Final = {
    3: "UNKNOWN_TOPIC_OR_PARTITION",
    5: "LEADER_NOT_AVAILABLE",
    6: "NOT_LEADER_OR_FOLLOWER",
    7: "REQUEST_TIMED_OUT",
    19: "NOT_ENOUGH_REPLICAS",
    20: "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
}
"""errors after which an idempotent producer sends the same batch again"""
_BACKOFF_S: Final = 0.2


async def new_producer_id(wire: Wire) -> int:
    """What InitProducerId answers; while the broker fetches its next thousand ids it is asked again."""
    body = {"transactionTimeoutMs": 60_000, "producerId": -1, "producerEpoch": -1, "transactionalId": None}
    while True:
        await wire.send(request(_INIT_PRODUCER_ID, _INIT_VERSION, {**body}))
        answer = decoded("response", _INIT_PRODUCER_ID, _INIT_VERSION, await wire.frame()).body
        if answer["errorCode"] != _COORDINATOR_LOAD_IN_PROGRESS:
            break
        await asyncio.sleep(_BACKOFF_S)
    assert answer["errorCode"] == 0, answer
    producer_id = answer["producerId"]
    assert isinstance(producer_id, int)
    return producer_id


def produce_frame(topic: str, record: Record, producer_id: int, sequence: int) -> bytes:
    """One record in one batch, `acks=all`; of now, for the broker deletes what is a week old."""
    now_ms = int(time.time() * 1_000)
    batch = bench_frames.record_batch(
        record.value, timestamp_ms=now_ms, producer_id=producer_id, epoch=0, sequence=sequence
    )
    frame = bench_frames.produce_request("live", topic, batch, acks=-1, partition=record.partition)
    struct.pack_into(">i", frame, bench_frames.CORRELATION_AT, sequence)
    return bytes(frame)


@dataclass(slots=True)
class LiveId:
    """One producer whose id stays in use."""

    name: str
    topic: str
    partition: int
    door_of: Callable[[int], int | None]
    """partition → port; None: nobody leads it at the moment"""
    producer_id: int = -1
    acknowledged: int = 0
    errors: list[str] = field(default_factory=list)
    """that were answered, and after which it went on"""
    stopped: bool = False

    def record(self, number: int) -> Record:
        return Record(self.partition, f"{self.name}:{number:06d}".encode())

    @property
    def sent(self) -> list[Record]:
        """All that must be stored, once it has stopped."""
        return [self.record(number) for number in range(self.acknowledged)]

    async def run(self, pause_s: float) -> None:
        """Produce record after record until it is stopped. Raises AssertionError for what a producer would
        tell its user."""
        wire: Wire | None = None
        try:
            while not self.stopped:
                try:
                    if wire is None and (port := self.door_of(self.partition)) is not None:
                        wire = await dial(port)
                    if wire is not None and await self._produce(wire):
                        await asyncio.sleep(pause_s)
                        continue
                except (OSError, EOFError):  # TimeoutError is an OSError
                    pass
                if wire is not None:
                    wire.close()
                    wire = None
                await asyncio.sleep(_BACKOFF_S)
        finally:
            if wire is not None:
                wire.close()

    async def _produce(self, wire: Wire) -> bool:
        """The next record; False: it is to be sent again, elsewhere perhaps."""
        if self.producer_id < 0:
            self.producer_id = await new_producer_id(wire)
        number = self.acknowledged
        await wire.send(produce_frame(self.topic, self.record(number), self.producer_id, number))
        answer = memoryview(await wire.frame())
        assert struct.unpack_from(">i", answer, bench_frames.ANSWER_CORRELATION_AT)[0] == number
        error, _ = bench_frames.produce_answer(answer)
        if error:
            assert error in _AGAIN, f"{self.name}: error {error} for record {number}"
            self.errors.append(_AGAIN[error])
            return False
        self.acknowledged += 1
        return True


async def bring_new_id(port: int, topic: str, record: Record, within_s: float = 1.0) -> bool:
    """A producer that begins: is its first batch answered at once? If not, it leaves."""
    with await dial(port) as wire:
        producer_id = await new_producer_id(wire)
        await wire.send(produce_frame(topic, record, producer_id, 0))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                error, _ = bench_frames.produce_answer(memoryview(await wire.frame()))
                assert error == 0, error
                return True
    return False
