"""The record batches of a Fetch answer, v4–v18, as far as it has arrived: their sizes. Pure.

    throttleTimeMs int32 | errorCode int16, sessionId int32 (from v7) |
    responses: topic string or topicId uuid (from v13), partitions: (index int32, errorCode int16,
        highWatermark int64, lastStableOffset int64, logStartOffset int64 (from v5), abortedTransactions
        (int64, int64), preferredReadReplica int32 (from v11), records)

Arrays, strings and records are compact from v12 on. A batch tells its size in its header, so that of one that
is cut the whole size is known, too. Source: FetchResponse.json 4.3.1; Kafka's RecordBatch.
"""

from __future__ import annotations

from typing import Final

from sluice.protocol._tables import FLEXIBLE
from sluice.protocol.apis import FETCH
from sluice.protocol.errors import MalformedFrame
from sluice.protocol.primitives import (
    INT32,
    UUID_BYTES,
    compact_array_count,
    int16,
    int32,
    skip,
    skip_tags,
    uvarint,
)

_FIRST_FLEXIBLE: Final = FLEXIBLE[FETCH]
_FIRST_WITH_SESSIONS: Final = 7
_FIRST_WITH_LOG_START: Final = 5
_FIRST_WITH_PREFERRED_REPLICA: Final = 11
_FIRST_WITH_TOPIC_IDS: Final = 13
_BATCH_HEAD_BYTES: Final = 12
"""base offset int64, length int32 of what follows"""
_LEAST_LENGTH: Final = 14
_ABORTED_BYTES: Final = 16
_ENOUGH: Final = 8
"""of one answer: they lie side by side in one partition, and are mostly alike"""


def batch_sizes(buf: bytearray, body: int, arrived_end: int, version: int) -> list[int] | None:
    """Sizes in bytes of the first batches of the first partition that brings any; [] if the answer brings
    none at all; None if that cannot be told from what has arrived."""
    try:
        return _sizes(buf, body, arrived_end, version)
    except MalformedFrame:
        return None  # cut off, or not what we know: what is unknown stays so


def _sizes(buf: bytearray, pos: int, end: int, version: int) -> list[int]:
    is_flexible = version >= _FIRST_FLEXIBLE
    pos = skip(pos, 4 if version < _FIRST_WITH_SESSIONS else 10, end)
    topics, pos = _count(buf, pos, end, is_flexible)
    for _ in range(topics):
        if version >= _FIRST_WITH_TOPIC_IDS:
            pos = skip(pos, UUID_BYTES, end)
        elif is_flexible:
            length, pos = uvarint(buf, pos, end)
            pos = skip(pos, length - 1, end)
        else:
            length, pos = int16(buf, pos, end)
            pos = skip(pos, length, end)
        partitions, pos = _count(buf, pos, end, is_flexible)
        for _ in range(partitions):
            records_bytes, pos = _partition(buf, pos, end, version)
            if records_bytes > 0:
                return _batches(buf, pos, min(end, pos + records_bytes), pos + records_bytes)
            if is_flexible:
                pos = skip_tags(buf, pos, end)
        if is_flexible:
            pos = skip_tags(buf, pos, end)
    return []


def _partition(buf: bytearray, pos: int, end: int, version: int) -> tuple[int, int]:
    """Bytes of its records, and where they begin."""
    is_flexible = version >= _FIRST_FLEXIBLE
    pos = skip(pos, 4 + 2 + 8 + 8 + (8 if version >= _FIRST_WITH_LOG_START else 0), end)
    aborted, pos = _count(buf, pos, end, is_flexible)
    if is_flexible:
        for _ in range(aborted):
            pos = skip_tags(buf, skip(pos, _ABORTED_BYTES, end), end)
    else:
        pos = skip(pos, aborted * _ABORTED_BYTES, end)
    if version >= _FIRST_WITH_PREFERRED_REPLICA:
        pos = skip(pos, 4, end)
    if is_flexible:
        length, pos = uvarint(buf, pos, end)
        return max(length - 1, 0), pos
    length, pos = int32(buf, pos, end)
    return max(length, 0), pos


def _count(buf: bytearray, pos: int, end: int, is_flexible: bool) -> tuple[int, int]:
    """Number of elements of an array, 0 for a null one, and where the first begins."""
    if is_flexible:
        count, pos = compact_array_count(buf, pos, end, 1)
    else:
        count, pos = int32(buf, pos, end)
    return max(count, 0), pos


def _batches(buf: bytearray, pos: int, end: int, records_end: int) -> list[int]:
    sizes: list[int] = []
    skip(pos, min(_BATCH_HEAD_BYTES, records_end - pos), end)
    while pos + _BATCH_HEAD_BYTES <= end and len(sizes) < _ENOUGH:
        (length,) = INT32.unpack_from(buf, pos + 8)
        if length < _LEAST_LENGTH:
            break
        sizes.append(_BATCH_HEAD_BYTES + length)
        pos += _BATCH_HEAD_BYTES + length
    return sizes or [records_end - pos]  # no batches as we know them: none is larger than all together
