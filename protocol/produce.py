"""Produce requests v3–v13 → what quotas need of them: acks, and of every record batch its size, producer id,
epoch, base sequence and record count. No copy, no decompression, no object per field.

Works on a frame that has only begun to arrive: whatever stands before `avail` is read, and `complete` says
whether
that was all. Knows nothing of quotas. Source: ProduceRequest.json 4.3.1; KIP-98 (batch head); KIP-516 (topic
ids).

    v3–v8   transactionalId nullable string, acks int16, timeoutMs int32, [name string, [index int32, records
    bytes]] v9–v12  the same, compact, each level closed by tagged fields
    v13     name is a uuid
"""

from __future__ import annotations

import struct
from struct import Struct
from typing import Final, TypeAlias

from sluice.protocol.errors import MalformedFrame
from sluice.protocol.parts import MAX_PARTS
from sluice.protocol.primitives import few_tags, skip_tags, uvarint
from sluice.protocol.record_batch import (
    CODEC_BITS,
    HEAD,
    HEAD_BYTES,
    LENGTH_AND_MAGIC,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_END,
    NO_PRODUCER_ID,
)

FIRST_FLEXIBLE: Final = 9
FIRST_TOPIC_ID: Final = 13
UUID_BYTES: Final = 16

_LOOK_BYTES: Final = 1024
_LOOK_AGAIN: Final = 1.25
"""A request of which so much has come is looked at again when so much more has: bytes that trickle in behind
thousands of heads would else have all of these read anew each time. A kilobyte has 170 at most"""

_ACKS_TIMEOUT = Struct(">hi")
_ACKS_TIMEOUT_TOPICS = Struct(">hiB")
_PARTITION = Struct(">BiB")
_NULL: Final = 0  # a compact length or count is one more than it says, so that 0 can be null
_ONE: Final = 2
_NO_TAGS: Final = b"\0\0\0"  # of partition, topic and request
_NAME_BYTES: Final = (2**31, *range(127))
"""By its length's one byte, for `_read_simple`: a null name leads out of every buffer, a longer one, whose
length takes two bytes, out of this table."""
_INT16 = Struct(">h")
_INT32 = Struct(">i")

BatchHead: TypeAlias = tuple[int, int, int, int, int, int, int, int]
"""(topic_pos, topic_end, partition, size_bytes, producer_id, producer_epoch, base_sequence, record_count).

`topic_pos:topic_end` are offsets of the topic's name (or uuid) in the buffer that was read, valid as long as
it is. A legacy message set has producer_id -1, epoch -1, sequence -1 and count 0."""


def read_acks(buf: bytearray, body: int, limit: int, version: int) -> int | None:
    """acks of the request whose body begins at `body`; None if it does not stand before `limit`.

    All that byte rates need. Raises MalformedFrame for a length that is none.
    """
    if version >= FIRST_FLEXIBLE:
        if body + 3 <= limit and buf[body] == _NULL:
            pos = body + 1
        else:
            try:
                length, pos = _uvarint(buf, body, limit)
            except _NotArrived:
                return None
            pos += length - 1 if length else 0
    else:
        if body + 2 > limit:
            return None
        (length,) = _INT16.unpack_from(buf, body)
        pos = body + 2 + max(length, 0)
    if pos + 2 > limit:
        return None
    (acks,) = _INT16.unpack_from(buf, pos)
    return int(acks)


class ProduceUsage:
    """What one Produce request brings. Reused from request to request: `read` overwrites it."""

    __slots__ = ("_again_bytes", "acks", "batches", "codecs", "complete", "first_batch", "heads_read")

    def __init__(self) -> None:
        self.acks: int | None = None
        """None until it has arrived"""
        self.batches: list[BatchHead] = []
        self.first_batch = 0
        """offset of the first of `batches`"""
        self.codecs = 0
        """bit n: among `batches` is one whose attributes name compression n"""
        self.complete = False
        """the whole request has been walked, and the walk ended where the frame ends"""
        self.heads_read = False
        """`batches` are all that the request has, though their records may still arrive"""
        self._again_bytes = 0.0  # of the request's body have come when it is looked at again

    def has_producer_id(self) -> bool:
        """Does any batch read so far carry an idempotent producer's id?"""
        return any(batch[4] != NO_PRODUCER_ID for batch in self.batches)

    def read(self, buf: bytearray, pos: int, avail: int, frame_end: int, version: int) -> None:
        """Walk the body from `pos`; bytes from `avail` on have not arrived. Offsets are absolute in `buf`.

        Where more had to come the last time, or it was malformed, and little more has come, it is not looked
        at: no heads are read.

        Raises MalformedFrame where a length or count cannot fit in the frame, where the walk of a whole frame
        does not end at `frame_end`, and for more than MAX_PARTS parts or batches.
        """
        self.batches.clear()
        if (
            version >= FIRST_FLEXIBLE
            and frame_end <= avail
            and self._read_simple(buf, pos, frame_end, version)
        ):
            return
        self.acks = None
        self.codecs = 0
        self.complete = False
        self.heads_read = False
        limit = min(avail, frame_end)
        if limit < frame_end and limit - pos < self._again_bytes:
            return
        self._again_bytes = 0.0
        try:
            end = (
                self._walk_flexible(buf, pos, limit, frame_end, version)
                if version >= FIRST_FLEXIBLE
                else self._walk_classic(buf, pos, limit, frame_end)
            )
        except _NotArrived:
            if avail < frame_end:
                if not self.heads_read:
                    self._look_later(limit - pos)
                return
            raise MalformedFrame("Produce request runs beyond its frame", offset=limit) from None
        except MalformedFrame:
            self._look_later(limit - pos)  # who reads it may wait for more all the same
            raise
        if end != frame_end:
            raise MalformedFrame(f"Produce request ends {frame_end - end} bytes before its frame", offset=end)
        self.complete = self.heads_read = True

    def _look_later(self, arrived_bytes: int) -> None:
        if arrived_bytes > _LOOK_BYTES:
            self._again_bytes = arrived_bytes * _LOOK_AGAIN

    def _read_simple(self, buf: bytearray, pos: int, frame_end: int, version: int) -> bool:
        """The shape of nearly all requests: whole, flexible, no transaction, one topic, one partition, one
        batch.

        A third of the walk's time. False, with nothing kept, for any other shape: then the walk judges.
        """
        try:
            if buf[pos] != _NULL:
                return False
            acks, _, topics = _ACKS_TIMEOUT_TOPICS.unpack_from(buf, pos + 1)
            if version >= FIRST_TOPIC_ID:
                topic_pos = pos + 8
                topic_end = topic_pos + UUID_BYTES
            else:
                topic_pos = pos + 9
                topic_end = topic_pos + _NAME_BYTES[buf[pos + 8]]
            partitions, partition, length = _PARTITION.unpack_from(buf, topic_end)
            pos = topic_end + 6
            if length > 0x7F:
                length = (length & 0x7F) | (buf[pos] & 0x7F) << 7
                if buf[pos] > 0x7F:
                    length |= (buf[pos + 1] & 0x7F) << 14
                    if buf[pos + 1] > 0x7F:
                        length |= buf[pos + 2] << 21  # the last shift of an acceptable size
                        pos += 1
                    pos += 1
                pos += 1
            batch_length, magic, attributes, producer_id, epoch, sequence, count = HEAD.unpack_from(buf, pos)
        except (IndexError, struct.error):
            return False
        size = batch_length + LOG_OVERHEAD
        if (
            topics != _ONE
            or partitions != _ONE
            or magic != MAGIC
            or length != size + 1
            or size < HEAD_BYTES
            or pos + size + 3 != frame_end
            or buf[frame_end - 3 : frame_end] != _NO_TAGS
        ):
            return False
        self.acks = acks
        self.complete = self.heads_read = True
        self.first_batch = pos
        self.codecs = 1 << (attributes & CODEC_BITS)
        self.batches.append((topic_pos, topic_end, partition, size, producer_id, epoch, sequence, count))
        return True

    def _walk_flexible(self, buf: bytearray, pos: int, limit: int, frame_end: int, version: int) -> int:
        if pos >= limit:
            raise _NotArrived
        length = buf[pos]  # transactional id: null (0) for all but transactional producers
        pos += 1
        if length:
            if length > 0x7F:
                length, pos = _uvarint(buf, pos - 1, limit)  # null, too, may take bytes that it does not need
            pos = _advance(pos, length - 1 if length else 0, frame_end)
        if pos + 6 > limit:
            raise _NotArrived
        (self.acks, _) = _ACKS_TIMEOUT.unpack_from(buf, pos)
        topics, pos = _compact_count(buf, pos + 6, limit, frame_end)
        parts = _bounded(topics, pos)
        for topics_left in range(topics - 1, -1, -1):
            if version >= FIRST_TOPIC_ID:
                topic_pos = pos
                pos = topic_end = _advance(pos, UUID_BYTES, frame_end)
            else:
                length, topic_pos = _uvarint(buf, pos, limit)
                pos = topic_end = _advance(topic_pos, length - 1, frame_end)
            partitions, pos = _compact_count(buf, pos, limit, frame_end)
            parts = _bounded(parts + partitions, pos)
            for partitions_left in range(partitions - 1, -1, -1):
                if pos + 4 > limit:
                    raise _NotArrived
                (partition,) = _INT32.unpack_from(buf, pos)
                length, pos = _uvarint(buf, pos + 4, limit)
                records_end = _advance(pos, length - 1 if length else 0, frame_end)
                if pos != records_end:
                    self._walk_batches(buf, pos, limit, records_end, topic_pos, topic_end, partition)
                self.heads_read = not (topics_left or partitions_left)
                if records_end < limit and buf[records_end] == 0:
                    pos = records_end + 1
                else:
                    pos, parts = _tags(buf, records_end, limit, parts)
            pos, parts = _tags(buf, pos, limit, parts)
        return _tags(buf, pos, limit, parts)[0]

    def _walk_classic(self, buf: bytearray, pos: int, limit: int, frame_end: int) -> int:
        if pos + 2 > limit:
            raise _NotArrived
        (length,) = _INT16.unpack_from(buf, pos)
        pos = _advance(pos + 2, length if length > 0 else 0, frame_end)
        if pos + 6 > limit:
            raise _NotArrived
        (self.acks, _) = _ACKS_TIMEOUT.unpack_from(buf, pos)
        topics, pos = _count(buf, pos + 6, limit, frame_end)
        parts = _bounded(topics, pos)
        for topics_left in range(topics - 1, -1, -1):
            if pos + 2 > limit:
                raise _NotArrived
            (length,) = _INT16.unpack_from(buf, pos)
            topic_pos = pos + 2
            pos = topic_end = _advance(topic_pos, length, frame_end)
            partitions, pos = _count(buf, pos, limit, frame_end)
            parts = _bounded(parts + partitions, pos)
            for partitions_left in range(partitions - 1, -1, -1):
                if pos + 8 > limit:
                    raise _NotArrived
                (partition,) = _INT32.unpack_from(buf, pos)
                (length,) = _INT32.unpack_from(buf, pos + 4)
                pos += 8
                records_end = _advance(pos, length if length > 0 else 0, frame_end)
                if pos != records_end:
                    self._walk_batches(buf, pos, limit, records_end, topic_pos, topic_end, partition)
                self.heads_read = not (topics_left or partitions_left)
                pos = records_end
        return pos

    def _walk_batches(
        self,
        buf: bytearray,
        pos: int,
        limit: int,
        records_end: int,
        topic_pos: int,
        topic_end: int,
        partition: int,
    ) -> None:
        while pos < records_end:
            if pos + HEAD_BYTES <= limit:
                length, magic, attributes, producer_id, epoch, sequence, count = HEAD.unpack_from(buf, pos)
            elif pos + MAGIC_END <= limit:  # a legacy set may be shorter than a magic-2 head
                length, magic = LENGTH_AND_MAGIC.unpack_from(buf, pos)
                if magic >= 2:
                    raise _NotArrived
            else:
                raise _NotArrived
            size = length + LOG_OVERHEAD
            if magic < 2:
                attributes, producer_id, epoch, sequence, count = 0, NO_PRODUCER_ID, -1, -1, 0
                if size < MAGIC_END:
                    raise MalformedFrame(f"message set of {size} bytes", offset=pos)
            elif size < HEAD_BYTES:
                raise MalformedFrame(f"record batch of {size} bytes", offset=pos)
            if pos + size > records_end:
                raise MalformedFrame(f"record batch of {size} bytes in {records_end - pos}", offset=pos)
            if not self.batches:
                self.first_batch = pos
            elif len(self.batches) >= MAX_PARTS:
                _bounded(len(self.batches) + 1, pos)
            self.codecs |= 1 << (attributes & CODEC_BITS)
            self.batches.append((topic_pos, topic_end, partition, size, producer_id, epoch, sequence, count))
            pos += size


class _NotArrived(Exception):
    """The next field lies at or behind `limit`."""


def _advance(pos: int, length: int, frame_end: int) -> int:
    """Skip `length` bytes, which need not have arrived but must lie in the frame."""
    if length < 0 or pos + length > frame_end:
        raise MalformedFrame(f"length {length} with {frame_end - pos} bytes left", offset=pos)
    return pos + length


def _uvarint(buf: bytearray, pos: int, limit: int) -> tuple[int, int]:
    if pos < limit and buf[pos] < 0x80:
        return buf[pos], pos + 1
    if pos + 5 > limit and not any(buf[i] < 0x80 for i in range(pos, limit)):
        raise _NotArrived
    return uvarint(buf, pos, limit)


def _compact_count(buf: bytearray, pos: int, limit: int, frame_end: int) -> tuple[int, int]:
    length, pos = _uvarint(buf, pos, limit)
    count = length - 1 if length else 0
    if count > frame_end - pos:  # an element takes more than a byte
        raise MalformedFrame(f"array of {count} in {frame_end - pos} bytes", offset=pos)
    return count, pos


def _count(buf: bytearray, pos: int, limit: int, frame_end: int) -> tuple[int, int]:
    if pos + 4 > limit:
        raise _NotArrived
    (count,) = _INT32.unpack_from(buf, pos)
    pos += 4
    if count > frame_end - pos:
        raise MalformedFrame(f"array of {count} in {frame_end - pos} bytes", offset=pos)
    return max(count, 0), pos


def _bounded(parts: int, pos: int) -> int:
    if parts > MAX_PARTS:
        raise MalformedFrame(
            f"Produce request of {parts:,} topics, partitions and tags, or batches, must be ≤ {MAX_PARTS:,}",
            offset=pos,
        )
    return parts


def _tags(buf: bytearray, pos: int, limit: int, parts: int) -> tuple[int, int]:
    """(where tagged fields end, `parts` with them)"""
    if pos >= limit:
        raise _NotArrived
    if buf[pos] == 0:
        return pos + 1, parts
    fields, first = _uvarint(buf, pos, limit)
    parts = _bounded(parts + few_tags(fields, first), first)
    try:
        return skip_tags(buf, pos, limit), parts
    except MalformedFrame:
        # They may be cut off by what has arrived; the whole frame will tell (`read` turns this into an error
        # then).
        raise _NotArrived from None
