"""The requests of a transaction → the producer id and the partitions on which the broker will keep state for
it.

A partition of a transaction gets an entry for its producer when the marker that ends the transaction is
written, whether anything was produced or not. AddOffsetsToTxn adds a partition of __consumer_offsets in the
same way. Knows no quota. Source: {AddPartitionsToTxn,AddOffsetsToTxn,TxnOffsetCommit,EndTxn,InitProducerId}
Request.json 4.3.1; KIP-98; KIP-890.

    AddPartitionsToTxn  v0–v3 txn id, producer id int64, epoch int16, [topic, [partition int32]];
                        v4, v5 [txn id, producer id, epoch, verify only bool, [topic, [partition]]]
    AddOffsetsToTxn     txn id, producer id, epoch, group
    TxnOffsetCommit     txn id, group, producer id, epoch, v3 on: generation int32, member, instance nullable;
                        [topic, [partition int32, offset int64, v2 on: leader epoch int32, metadata nullable]]
    EndTxn              txn id, producer id, epoch, committed bool
    InitProducerId      txn id nullable, timeout int32, …
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import Final, TypeAlias

from sluice.protocol._tables import FLEXIBLE
from sluice.protocol.apis import ApiKey
from sluice.protocol.errors import MalformedFrame
from sluice.protocol.parts import Parts
from sluice.protocol.primitives import (
    Buffer,
    array_count,
    compact_array_count,
    int32,
    nullable_string,
    skip,
    skip_compact_nullable,
    skip_nullable_string,
    skip_tags,
    uvarint,
)

FIRST_BATCHED: Final = 4
"""AddPartitionsToTxn of several transactions at once, as between brokers"""
FIRST_WITH_SUCCESSOR: Final = 5
"""EndTxn whose answer tells the producer's next id and epoch"""
_FIRST_WITH_MEMBER: Final = 3
_FIRST_WITH_LEADER_EPOCH: Final = 2
_PRODUCER: Final = Struct(">qh")
_PRODUCER_BYTES: Final = 10
_INT32_BYTES: Final = 4
_PARTS: Final = "transactions, topics, partitions and tags"

Topics: TypeAlias = list[tuple[bytes, tuple[int, ...]]]
"""(name, partitions), as the request has them"""
_ReadPartitions: TypeAlias = Callable[[Buffer, int, int], tuple[tuple[int, ...], int]]


@dataclass(frozen=True, slots=True)
class Addition:
    """What one request adds to one transaction."""

    transactional_id: bytes
    producer_id: int
    epoch: int
    topics: Topics
    """whose partitions; TxnOffsetCommit: those whose offsets are committed"""
    group: bytes | None = None
    """whose partition of __consumer_offsets is added, in place of the topics'"""
    verify_only: bool = False
    """nothing is added: a broker asks whether they are in the transaction"""


def is_flexible(api_key: int, version: int) -> bool:
    """Compact strings and arrays, and tags."""
    return version >= FLEXIBLE[api_key]


def read_additions(buf: Buffer, body: int, end: int, api_key: int, version: int) -> list[Addition]:
    """What a whole request of STATE_MAKERS adds, whose body is `buf[body:end]`.

    Raises MalformedFrame if a count or length does not fit, if the walk does not end at `end`, and for more
    than MAX_PARTS transactions, topics, partitions and tagged fields.
    """
    flexible = is_flexible(api_key, version)
    if api_key == ApiKey.ADD_PARTITIONS_TO_TXN:
        additions, pos = _read_partitions_request(buf, body, end, version)
    elif api_key == ApiKey.ADD_OFFSETS_TO_TXN:
        transactional_id, pos = _text(buf, body, end, flexible)
        (producer_id, epoch), pos = _producer(buf, pos, end)
        group, pos = _text(buf, pos, end, flexible)
        additions = [Addition(transactional_id, producer_id, epoch, [], group)]
    else:
        addition, pos = _read_offsets_request(buf, body, end, version)
        additions = [addition]
    if flexible:
        pos = skip_tags(buf, pos, end)
    if pos != end:
        raise MalformedFrame(f"{end - pos} bytes behind the end of the body", offset=pos)
    return additions


def read_ended_producer(buf: Buffer, body: int, end: int, version: int) -> int:
    """The producer id of an EndTxn request. Raises MalformedFrame."""
    _, pos = _text(buf, body, end, is_flexible(ApiKey.END_TXN, version))
    (producer_id, _), _ = _producer(buf, pos, end)
    return producer_id


def read_handed_out(buf: Buffer, body: int, end: int) -> tuple[int, int]:
    """The (producer id, epoch) that an answer hands out whose body begins at `body`: to InitProducerId, or to
    EndTxn from FIRST_WITH_SUCCESSOR on. An id below 0: none.

    Raises MalformedFrame.
    """
    pos = skip(body, _INT32_BYTES, end)
    error = skip(pos, 2, end)
    producer, _ = _producer(buf, error, end)
    return (-1, -1) if buf[pos] or buf[pos + 1] else producer


def read_transactional_id(buf: Buffer, body: int, end: int, version: int) -> bytes | None:
    """The transactional id of an InitProducerId request; None: a producer without transactions. Raises
    MalformedFrame."""
    if is_flexible(ApiKey.INIT_PRODUCER_ID, version):
        length, pos = uvarint(buf, body, end)
        return bytes(buf[pos : skip(pos, length - 1, end)]) if length else None
    name, pos = nullable_string(buf, body, end)
    return None if name is None else bytes(buf[body + 2 : pos])


def read_transaction_timeout_ms(buf: Buffer, body: int, end: int, version: int) -> int:
    """After how long the broker aborts a transaction, as an InitProducerId request asks. Raises
    MalformedFrame."""
    skip_name = (
        skip_compact_nullable if is_flexible(ApiKey.INIT_PRODUCER_ID, version) else skip_nullable_string
    )
    timeout_ms, _ = int32(buf, skip_name(buf, body, end), end)
    return timeout_ms


def _read_partitions_request(buf: Buffer, pos: int, end: int, version: int) -> tuple[list[Addition], int]:
    parts = Parts(_PARTS)
    if version < FIRST_BATCHED:
        flexible = is_flexible(ApiKey.ADD_PARTITIONS_TO_TXN, version)
        transactional_id, pos = _text(buf, pos, end, flexible)
        (producer_id, epoch), pos = _producer(buf, pos, end)
        topics, pos = _read_topics(buf, pos, end, flexible, parts, _partition_list(flexible, parts))
        return [Addition(transactional_id, producer_id, epoch, topics)], pos
    count, pos = _count(buf, pos, end, True, _PRODUCER_BYTES)
    parts.add(count, pos)
    additions = []
    for _ in range(count):
        transactional_id, pos = _text(buf, pos, end, True)
        (producer_id, epoch), pos = _producer(buf, pos, end)
        verify_at, pos = pos, skip(pos, 1, end)
        topics, pos = _read_topics(buf, pos, end, True, parts, _partition_list(True, parts))
        pos = parts.skip_tags(buf, pos, end)
        additions.append(
            Addition(transactional_id, producer_id, epoch, topics, None, verify_only=bool(buf[verify_at]))
        )
    return additions, pos


def _read_offsets_request(buf: Buffer, pos: int, end: int, version: int) -> tuple[Addition, int]:
    flexible = is_flexible(ApiKey.TXN_OFFSET_COMMIT, version)
    skip_text = skip_compact_nullable if flexible else skip_nullable_string
    transactional_id, pos = _text(buf, pos, end, flexible)
    group, pos = _text(buf, pos, end, flexible)
    (producer_id, epoch), pos = _producer(buf, pos, end)
    if version >= _FIRST_WITH_MEMBER:
        pos = skip_text(buf, skip_text(buf, skip(pos, _INT32_BYTES, end), end), end)
    fixed_bytes = 16 if version >= _FIRST_WITH_LEADER_EPOCH else 12
    parts = Parts(_PARTS)

    def read_partitions(buf: Buffer, pos: int, end: int) -> tuple[tuple[int, ...], int]:
        count, pos = _count(buf, pos, end, flexible, fixed_bytes + 1)
        parts.add(count, pos)
        found = []
        for _ in range(count):
            partition, _ = int32(buf, pos, end)
            found.append(partition)
            pos = skip_text(buf, skip(pos, fixed_bytes, end), end)
            if flexible:
                pos = parts.skip_tags(buf, pos, end)
        return tuple(found), pos

    topics, pos = _read_topics(buf, pos, end, flexible, parts, read_partitions)
    return Addition(transactional_id, producer_id, epoch, topics, group), pos


def _read_topics(
    buf: Buffer, pos: int, end: int, flexible: bool, parts: Parts, read_partitions: _ReadPartitions
) -> tuple[Topics, int]:
    count, pos = _count(buf, pos, end, flexible, 2)
    parts.add(count, pos)
    topics: Topics = []
    for _ in range(count):
        name, pos = _text(buf, pos, end, flexible)
        partitions, pos = read_partitions(buf, pos, end)
        topics.append((name, partitions))
        if flexible:
            pos = parts.skip_tags(buf, pos, end)
    return topics, pos


def _partition_list(flexible: bool, parts: Parts) -> _ReadPartitions:
    def read(buf: Buffer, pos: int, end: int) -> tuple[tuple[int, ...], int]:
        count, pos = _count(buf, pos, end, flexible, _INT32_BYTES)
        parts.add(count, pos)
        stop = skip(pos, count * _INT32_BYTES, end)
        return Struct(f">{count}i").unpack_from(buf, pos), stop

    return read


def _producer(buf: Buffer, pos: int, end: int) -> tuple[tuple[int, int], int]:
    """The pair (producer id, epoch) at `pos`, and where it ends."""
    stop = skip(pos, _PRODUCER_BYTES, end)
    producer_id, epoch = _PRODUCER.unpack_from(buf, pos)
    return (producer_id, epoch), stop


def _text(buf: Buffer, pos: int, end: int, flexible: bool) -> tuple[bytes, int]:
    """A string that is not null, as it stands there."""
    if flexible:
        length, start = uvarint(buf, pos, end)
        stop = skip(start, length - 1, end)
    else:
        stop = skip_nullable_string(buf, pos, end)
        start = pos + 2
    return bytes(buf[start:stop]), stop


def _count(buf: Buffer, pos: int, end: int, flexible: bool, element_min_bytes: int) -> tuple[int, int]:
    count, pos = (compact_array_count if flexible else array_count)(buf, pos, end, element_min_bytes)
    return max(count, 0), pos
