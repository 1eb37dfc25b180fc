"""A follower's Fetch, v13–v18: what it asks for, and the same request with other partitions and caps.

    replicaId int32 (v13, v14) | maxWaitMs, minBytes, maxBytes int32 | isolationLevel int8 |
    sessionId, sessionEpoch int32 |
    topics: topicId uuid, partitions: (index int32, leaderEpoch int32, fetchOffset int64,
        lastFetchedEpoch int32, logStartOffset int64, partitionMaxBytes int32, tags), tags |
    forgottenTopicsData: topicId uuid, partitions int32, tags | rackId |
    tags: 1 replicaState (from v15 on)

(All arrays and strings compact.) Below v13 topics go by their names; brokers from Kafka 3.1 on, with topic
ids everywhere, do not send those. An entry is kept as its bytes, tags included: what is not understood here
goes on unharmed. Source: FetchRequest.json 4.3.1; KIP-227 (sessions), KIP-516 (topic ids), KIP-903
(replicaState).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct
from typing import Final, TypeAlias

from sluice.protocol.apis import FETCH, READABLE
from sluice.protocol.codec.wire import encode_varint
from sluice.protocol.errors import MalformedFrame
from sluice.protocol.headers import SIZE_BYTES, request_body
from sluice.protocol.primitives import (
    INT32,
    UUID_BYTES,
    compact_array_count,
    int32,
    skip,
    skip_compact_nullable,
    skip_tags,
    tag_count,
    uvarint,
)

FIRST_WITH_TOPIC_IDS: Final = 13
LAST_KNOWN: Final = READABLE[FETCH][1]
_FIRST_WITHOUT_REPLICA_ID: Final = 15
_REPLICA_STATE_TAG: Final = 1
_STATE_BYTES: Final = 15
"""of replicaState at a frame's end: tag, size, replica id, epoch, no tags"""
_STATE_BEGIN: Final = b"\x01\x0d"
"""tag 1, 13 bytes"""
_FIXED: Final = Struct(">iiibii")
"""maxWaitMs, minBytes, maxBytes, isolationLevel, sessionId, sessionEpoch"""
_ENTRY: Final = Struct(">iiqiqi")
_CAP_AT: Final = 28
"""of partitionMaxBytes in an entry"""
_ENTRY_MIN_BYTES: Final = _ENTRY.size + 1
_TOPIC_MIN_BYTES: Final = UUID_BYTES + 2
NO_REPLICA: Final = -1
FINAL_EPOCH: Final = -1
"""of a full fetch that closes its session and wants no other"""
INITIAL_EPOCH: Final = 0
"""of a full fetch that closes its session, if it names one, and wants a new one"""

PartitionKey: TypeAlias = tuple[bytes, int]
"""topic id and partition"""
Asked: TypeAlias = tuple[PartitionKey, int, int, bytes]
"""partition, fetch offset, partition_max_bytes, and all of its entry as bytes"""


@dataclass(slots=True)
class ReplicaFetch:
    """One follower's Fetch; `frame` is whole, its size included."""

    frame: bytes
    version: int
    fixed: int
    """where the fixed fields begin in `frame`"""
    topics: int
    """where the topics begin"""
    tail: int
    """what stands behind the forgotten topics begins here"""
    replica_id: int
    max_wait_ms: int
    max_bytes: int
    session_id: int
    epoch: int
    asked: list[Asked]
    forgotten: list[PartitionKey]

    @property
    def is_full(self) -> bool:
        """It names all that it wants, whatever was asked for in its session."""
        return self.epoch <= INITIAL_EPOCH


def read_replica_fetch(frame: bytes, body: int, version: int) -> ReplicaFetch:
    """The request in `frame`, whose body begins at `body`; version 13 to 18.

    Of a client that is no follower `replica_id` is -1. Raises MalformedFrame if the frame is not as the
    version has it, to its last byte.
    """
    end = len(frame)
    replica_id = NO_REPLICA
    fixed = body
    if version < _FIRST_WITHOUT_REPLICA_ID:
        replica_id, fixed = int32(frame, body, end)
    topics = skip(fixed, _FIXED.size, end)
    max_wait_ms, _, max_bytes, _, session_id, epoch = _FIXED.unpack_from(frame, fixed)
    asked, pos = _read_asked(frame, topics, end)
    forgotten, tail = _read_forgotten(frame, pos, end)
    pos = skip_compact_nullable(frame, tail, end)
    if version >= _FIRST_WITHOUT_REPLICA_ID:
        replica_id, pos = _read_replica_id(frame, pos, end)
    else:
        pos = skip_tags(frame, pos, end)
    if pos != end:
        raise MalformedFrame(f"{end - pos} bytes behind the end of the request", offset=pos)
    return ReplicaFetch(
        frame, version, fixed, topics, tail, replica_id, max_wait_ms, max_bytes, session_id, epoch,
        asked, forgotten,
    )  # fmt: skip


def _read_asked(frame: bytes, pos: int, end: int) -> tuple[list[Asked], int]:
    asked: list[Asked] = []
    topics, pos = compact_array_count(frame, pos, end, _TOPIC_MIN_BYTES)
    for _ in range(topics):
        start, pos = pos, skip(pos, UUID_BYTES, end)
        topic_id = frame[start:pos]
        partitions, pos = compact_array_count(frame, pos, end, _ENTRY_MIN_BYTES)
        for _ in range(partitions):
            start, pos = pos, skip(pos, _ENTRY.size, end)
            index, _, offset, _, _, max_bytes = _ENTRY.unpack_from(frame, start)
            pos = skip_tags(frame, pos, end)
            asked.append(((topic_id, index), offset, max_bytes, frame[start:pos]))
        pos = skip_tags(frame, pos, end)
    return asked, pos


def _read_forgotten(frame: bytes, pos: int, end: int) -> tuple[list[PartitionKey], int]:
    forgotten: list[PartitionKey] = []
    topics, pos = compact_array_count(frame, pos, end, _TOPIC_MIN_BYTES)
    for _ in range(topics):
        start, pos = pos, skip(pos, UUID_BYTES, end)
        topic_id = frame[start:pos]
        partitions, pos = compact_array_count(frame, pos, end, 4)
        for _ in range(partitions):
            index, pos = int32(frame, pos, end)
            forgotten.append((topic_id, index))
        pos = skip_tags(frame, pos, end)
    return forgotten, pos


def _read_replica_id(frame: bytes, pos: int, end: int) -> tuple[int, int]:
    """From the tagged fields at the end: (replica id, where they end)."""
    replica_id = NO_REPLICA
    fields, pos = tag_count(frame, pos, end)
    for _ in range(fields):
        tag, pos = uvarint(frame, pos, end)
        size, pos = uvarint(frame, pos, end)
        after = skip(pos, size, end)
        if tag == _REPLICA_STATE_TAG:
            replica_id, _ = int32(frame, pos, after)
        pos = after
    return replica_id, pos


def with_cap(entry: bytes, max_bytes: int) -> bytes:
    """The entry of a partition with another partition_max_bytes."""
    return entry[:_CAP_AT] + INT32.pack(max_bytes) + entry[_CAP_AT + 4 :]


def rewrite_replica_fetch(
    request: ReplicaFetch,
    entries: Iterable[tuple[bytes, bytes]],
    forgotten: Iterable[PartitionKey],
    max_wait_ms: int,
) -> bytes:
    """The frame of `request` with these partitions, in this order, and this max_wait_ms; all else as it was.

    `entries`: (topic id, entry). Neighbours of one topic stand in one array.
    """
    frame = request.frame
    out = bytearray(frame[: request.topics])
    INT32.pack_into(out, request.fixed, max_wait_ms)
    _write_topics(out, entries)
    _write_topics(out, ((topic_id, INT32.pack(index)) for topic_id, index in forgotten))
    out += frame[request.tail :]
    INT32.pack_into(out, 0, len(out) - SIZE_BYTES)
    return bytes(out)


def _write_topics(out: bytearray, elements: Iterable[tuple[bytes, bytes]]) -> None:
    """A compact array of topics without tags of their own, each with its elements as they are."""
    topics: list[tuple[bytes, list[bytes]]] = []
    for topic_id, element in elements:
        if not topics or topics[-1][0] != topic_id:
            topics.append((topic_id, []))
        topics[-1][1].append(element)
    out += encode_varint(len(topics) + 1)
    for topic_id, parts in topics:
        out += topic_id
        out += encode_varint(len(parts) + 1)
        for part in parts:
            out += part
        out.append(0)


def is_follower(
    buf: bytearray, pos: int, client_id_end: int, end: int, frame_end: int, version: int
) -> bool | None:
    """Does the Fetch at `pos` name a replica? None: what tells has not arrived (`end` < `frame_end`).

    Source: FetchRequest.json: replicaId up to v14, ReplicaState (tag 1, at the end) from v15 on.
    """
    limit = min(end, frame_end)
    if version < _FIRST_WITHOUT_REPLICA_ID:
        body = request_body(buf, client_id_end, limit, FETCH, version)
        if body + 4 > limit:
            return None
        replica_id, _ = int32(buf, body, limit)
        return replica_id > NO_REPLICA
    if frame_end > end:
        return None
    begin = frame_end - _STATE_BYTES
    if begin <= client_id_end or not buf.startswith(_STATE_BEGIN, begin):
        return False
    frame = bytes(buf[pos:frame_end])
    body = request_body(buf, client_id_end, limit, FETCH, version) - pos
    return read_replica_fetch(frame, body, version).replica_id > NO_REPLICA
