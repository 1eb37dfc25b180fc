"""Fetch v12 of many partitions of one topic, with or without a fetch session: request frames, answers read.

Written against Kafka's message definitions, as testkit/frames/load_frames.py, and like it without the proxy's
code.
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from testkit.frames import load_frames as frames

FULL_EPOCH: Final = 0  # a full Fetch: opens a session, and closes the one that it names
FINAL_EPOCH: Final = -1  # closes the session that it names; without one: no session wanted
NO_SESSION: Final = 0
SESSION_ID_NOT_FOUND: Final = 70


@dataclass(frozen=True, slots=True)
class FetchAsk:
    """The fields of a Fetch that clients differ in; the Java consumer's defaults."""

    max_wait_ms: int = 500
    max_bytes: int = 50 << 20
    partition_max_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """One partition of an answer."""

    index: int
    error: int
    high_watermark: int
    records: memoryview


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    """All of an answer; `partitions` of its one topic."""

    throttle_ms: int
    error: int
    session_id: int
    partitions: list[FetchedPartition]


def fetch_frame(
    client_id: str, topic: str, offsets: Mapping[int, int], ask: FetchAsk, session: tuple[int, int]
) -> bytearray:
    """A Fetch of these partitions at these offsets; `session`: its id and epoch."""
    body = struct.pack(">iiiibii", -1, ask.max_wait_ms, 1, ask.max_bytes, 0, *session)
    if offsets:
        body += frames.uvarint(2) + frames.compact(topic.encode()) + frames.uvarint(len(offsets) + 1)
        for index, offset in offsets.items():
            body += struct.pack(">iiqiqi", index, -1, offset, -1, -1, ask.partition_max_bytes)
            body += frames.NO_TAGS
        body += frames.NO_TAGS
    else:
        body += frames.uvarint(1)
    body += frames.uvarint(1) + frames.compact(b"") + frames.NO_TAGS  # nothing forgotten, no rack
    return frames.request(frames.FETCH, frames.FETCH_VERSION, client_id, body)


def read_fetch_answer(frame: memoryview) -> FetchAnswer:
    """Reads a v12 answer, size included, whatever the broker filled in."""
    throttle_ms, error, session_id = struct.unpack_from(">ihi", frame, 9)
    topics, pos = frames.read_uvarint(frame, 9 + 10)
    partitions: list[FetchedPartition] = []
    for _ in range(topics - 1):
        length, pos = frames.read_uvarint(frame, pos)
        count, pos = frames.read_uvarint(frame, pos + length - 1)
        for _ in range(count - 1):
            found, pos = _read_partition(frame, pos)
            partitions.append(found)
        pos = frames.skip_tags(frame, pos)
    return FetchAnswer(throttle_ms, error, session_id, partitions)


def whole_batches(records: memoryview) -> tuple[int, int]:
    """Bytes of a partition's whole batches, and the offset behind the last of them (−1: there is none).

    Clients discard what stands behind, a batch that was cut.
    """
    pos, next_offset = 0, -1
    while pos + 61 <= len(records):
        base_offset, length = struct.unpack_from(">qi", records, pos)
        if pos + 12 + length > len(records):
            break
        next_offset = base_offset + struct.unpack_from(">i", records, pos + 23)[0] + 1
        pos += 12 + length
    return pos, next_offset


def useful_bytes(partitions: Iterable[FetchedPartition]) -> int:
    """Bytes of whole batches in all of them."""
    return sum(whole_batches(partition.records)[0] for partition in partitions)


def _read_partition(frame: memoryview, pos: int) -> tuple[FetchedPartition, int]:
    index, error, high_watermark = struct.unpack_from(">ihq", frame, pos)
    aborted, pos = frames.read_uvarint(frame, pos + 4 + 2 + 24)
    for _ in range(aborted - 1):
        pos = frames.skip_tags(frame, pos + 16)
    length, pos = frames.read_uvarint(frame, pos + 4)  # behind the preferred replica
    size = max(length - 1, 0)
    records = frame[pos : pos + size]
    return FetchedPartition(index, error, high_watermark, records), frames.skip_tags(frame, pos + size)
