"""The records of the quota topic's one partition, in order: what is committed, and no record left out.

aiokafka's consumer reads ahead; a batch that it cannot decode is fetched again and read here: it decodes the
names of headers on the way, so that one that is no UTF-8 would keep this batch, and all behind it, from every
reader. Does not know what a record means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from time import monotonic
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.consumer.fetcher import READ_COMMITTED, PartitionRecords
from aiokafka.errors import CorruptRecordException, NotLeaderForPartitionError, for_code
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.record.default_records import _DefaultRecordBatchPy, _DefaultRecordPy
from aiokafka.record.memory_records import _MemoryRecordsPy
from aiokafka.record.util import decode_varint

from sluice.proxy.quota_store.topic_headers import UNREADABLE
from sluice.proxy.runtime.log import get_logger

READS: Final[Mapping[str, Any]] = {
    "group_id": None,
    "enable_auto_commit": False,
    "auto_offset_reset": "none",
    "isolation_level": "read_committed",
}
"""Settings of the consumer. What a transaction wrote that was aborted was never written."""
RECORDS_PER_STEP: Final = 100
"""about a millisecond"""
_FETCH_BYTES: Final = 1_048_576
"""a batch that is larger comes whole all the same"""
_FETCH_WAIT_MS: Final = 500
_HELD_S: Final = 3.0
"""a transaction that is open for so long is told"""

_log = get_logger()


class TopicReader:
    """Reads one partition from an offset on."""

    def __init__(self, consumer: AIOKafkaConsumer, partition: TopicPartition) -> None:
        """`consumer`: has this partition alone, and reads by `READS`."""
        self._consumer = consumer
        self._partition = partition
        self._aside: PartitionRecords | None = None
        self._held_at = -1
        self._held_since_s = 0.0
        self._is_told = False

    async def bounds(self) -> tuple[int, int]:
        """Where the topic begins, and the end of what is committed, as of now."""
        begin = (await self._consumer.beginning_offsets([self._partition]))[self._partition]
        end = (await self._consumer.end_offsets([self._partition]))[self._partition]
        return begin, end

    def seek(self, offset: int) -> None:
        """Go on from there."""
        self._aside = None
        self._consumer.seek(self._partition, offset)

    async def position(self) -> int:
        """The offset from which the next record comes."""
        if self._aside is not None:
            return int(self._aside.next_fetch_offset)
        return int(await self._consumer.position(self._partition))

    async def take(self, wait_ms: int) -> Sequence[ConsumerRecord]:
        """The next records, none if there are none for so long. Raises KafkaError, OSError."""
        if self._aside is None:
            try:
                batches = await self._consumer.getmany(
                    self._partition, timeout_ms=wait_ms, max_records=RECORDS_PER_STEP
                )
                found: Sequence[ConsumerRecord] = batches.get(self._partition, ())
                return found
            # The compiled decoder raises the first; where aiokafka has none, Python's the other.
            except (UnicodeDecodeError, CorruptRecordException):
                offset = await self.position()
                self._aside = await self._fetch(offset)
        aside = self._aside
        records = list(islice(aside, RECORDS_PER_STEP))
        if len(records) < RECORDS_PER_STEP:
            self.seek(int(aside.next_fetch_offset))
        return records

    async def _fetch(self, offset: int) -> PartitionRecords:
        topic, number = self._partition
        client: Any = self._consumer._client
        leader = client.cluster.leader_for_partition(self._partition)
        if leader in {None, -1}:
            raise NotLeaderForPartitionError
        asked = [(topic, [(number, offset, _FETCH_BYTES)])]
        answer = await client.send(
            leader, FetchRequest(_FETCH_WAIT_MS, 1, _FETCH_BYTES, READ_COMMITTED, asked, rack_id="")
        )
        ((_, ((_, error_code, _, *told),)),) = answer.topics
        if error_code:
            raise for_code(error_code)
        # Before version 11: …, aborted transactions, records; from then on a replica's number between them.
        aborted = told[2] if answer.API_VERSION >= 11 else told[-2]
        batches = _Batches(told[-1] or b"")
        return PartitionRecords(self._partition, batches, aborted, offset, None, None, True, READ_COMMITTED)

    def held_from(self) -> int | None:
        """The offset of an open transaction of another tool, as of the last fetch: what stands behind it is
        read when it ends."""
        stable = self._consumer.last_stable_offset(self._partition)
        high = self._consumer.highwater(self._partition)
        return stable if stable is not None and high is not None and 0 <= stable < high else None

    def tell_held(self) -> None:
        """In the log, once, if a transaction stays open."""
        held_at = self.held_from()
        if held_at is None:
            self._held_at = -1
        elif held_at != self._held_at:
            self._held_at, self._held_since_s, self._is_told = held_at, monotonic(), False
        elif not self._is_told and monotonic() - self._held_since_s >= _HELD_S:
            self._is_told = True
            _log.warning(
                "quota_topic_held",
                topic=self._partition.topic,
                offset=held_at,
                reason="another tool's transaction is open; what is written behind it holds when it ends",
            )


class _Batch(_DefaultRecordBatchPy):  # type: ignore[misc]
    """A batch of records; one with a header name that is no UTF-8 has `UNREADABLE` for its headers."""

    def _read_msg(self, *decode: Any) -> _DefaultRecordPy:
        start = self._pos
        try:
            return super()._read_msg(*decode)
        except UnicodeDecodeError:
            return self._without_headers(start)

    def _without_headers(self, start: int) -> _DefaultRecordPy:
        buffer = self._buffer
        size, pos = decode_varint(buffer, start)
        self._pos = pos + size
        pos += 1  # attributes
        after_first_ms, pos = decode_varint(buffer, pos)
        offset_delta, pos = decode_varint(buffer, pos)
        texts: list[bytes | None] = []
        for _ in ("key", "value"):
            size, pos = decode_varint(buffer, pos)
            texts.append(bytes(buffer[pos : pos + size]) if size >= 0 else None)
            pos += max(0, size)
        is_log_time = self.timestamp_type == self.LOG_APPEND_TIME
        at_ms = self.max_timestamp if is_log_time else self.first_timestamp + after_first_ms
        offset = self.base_offset + offset_delta
        return _DefaultRecordPy(offset, at_ms, self.timestamp_type, *texts, [(UNREADABLE, None)])


class _Batches(_MemoryRecordsPy):  # type: ignore[misc]
    """The batches of one answer."""

    def next_batch(self, *more: Any) -> Any:
        found = self._next_slice
        if found is None or found[self.MAGIC_OFFSET] < 2:  # older ones have no headers
            return super().next_batch(*more)
        self._cache_next()
        return _Batch(found)
