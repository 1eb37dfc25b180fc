"""Plain values → whole Kafka frames, size included, for load generators and the fake broker.

Written against the message definitions of Kafka 4.3.1 (Produce v12, Fetch v12 and a follower's v14,
ApiVersions v3); knows no other version. It shares no code with the proxy on purpose: a mistake in ours must
not cancel out here.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

PRODUCE: Final = 0
FETCH: Final = 1
METADATA: Final = 3
API_VERSIONS: Final = 18

PRODUCE_VERSION: Final = 12  # the last that names topics; v13 needs ids from Metadata first
FETCH_VERSION: Final = 12
REPLICA_FETCH_VERSION: Final = 14  # the last whose body begins with the follower's id
API_VERSIONS_VERSION: Final = 3

CORRELATION_AT: Final = 8  # in a request: size 4, api key 2, api version 2
ANSWER_CORRELATION_AT: Final = 4  # in an answer: size 4
FETCH_MAX_BYTES_AT: Final = 12  # within the body of Fetch v3–v14

NO_TAGS: Final = b"\x00"


def _crc32c_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ 0x82F63B78 if crc & 1 else crc >> 1
        table.append(crc)
    return tuple(table)


_CRC32C: Final = _crc32c_table()


def crc32c(data: bytes) -> int:
    """Castagnoli CRC, byte by byte: about 0.15 s per MiB, which only ever runs before the clock starts."""
    crc = 0xFFFFFFFF
    table = _CRC32C
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def uvarint(value: int) -> bytes:
    """Unsigned varint, as in compact strings and arrays."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    """Zigzag varint, as inside a record."""
    return uvarint(value << 1 if value >= 0 else (-value << 1) - 1)


def compact(data: bytes) -> bytes:
    """Compact string or bytes: length + 1 as uvarint, then the bytes."""
    return uvarint(len(data) + 1) + data


def record_batch(
    value: bytes,
    count: int = 1,
    timestamp_ms: int = 1_700_000_000_000,
    *,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
) -> bytes:
    """One magic-2 batch of `count` records without key, each with `value`; producer id −1: not idempotent."""
    records = bytearray()
    for offset_delta in range(count):
        body = (
            b"\x00" + varint(0) + varint(offset_delta) + varint(-1) + varint(len(value)) + value + varint(0)
        )
        records += varint(len(body)) + body
    behind_crc = struct.pack(
        ">hiqqqhii", 0, count - 1, timestamp_ms, timestamp_ms, producer_id, epoch, sequence, count
    ) + bytes(records)
    behind_length = struct.pack(">ibI", 0, 2, crc32c(behind_crc)) + behind_crc
    return struct.pack(">qi", 0, len(behind_length)) + behind_length


def request(api_key: int, api_version: int, client_id: str, body: bytes) -> bytearray:
    """A frame with request header v2 and correlation id 0, to be patched at CORRELATION_AT."""
    name = client_id.encode()
    header = struct.pack(">hhih", api_key, api_version, 0, len(name)) + name + NO_TAGS
    return bytearray(struct.pack(">i", len(header) + len(body)) + header + body)


def produce_request(
    client_id: str, topic: str, batch: bytes, *, acks: int = 1, partition: int = 0, timeout_ms: int = 30_000
) -> bytearray:
    """Produce v12 with one batch for one partition."""
    body = (
        uvarint(0)  # no transactional id
        + struct.pack(">hi", acks, timeout_ms)
        + uvarint(2)
        + compact(topic.encode())
        + uvarint(2)
        + struct.pack(">i", partition)
        + compact(batch)
        + NO_TAGS * 3  # partition, topic, request
    )
    return request(PRODUCE, PRODUCE_VERSION, client_id, body)


def produce_request_of(
    client_id: str, topic: str, frame_bytes: int, *, producer_id: int = -1, epoch: int = -1, acks: int = 1
) -> bytearray:
    """A Produce frame of exactly `frame_bytes` with one record. Raises ValueError when there is none."""
    value_bytes = frame_bytes - len(produce_request(client_id, topic, record_batch(b"")))
    sequence = -1 if producer_id < 0 else 0
    for _ in range(8):  # length prefixes grow with the value; a few steps find the fixed point
        batch = record_batch(bytes(value_bytes), producer_id=producer_id, epoch=epoch, sequence=sequence)
        frame = produce_request(client_id, topic, batch, acks=acks)
        if len(frame) == frame_bytes:
            return frame
        value_bytes -= len(frame) - frame_bytes
    raise ValueError(f"no Produce frame is {frame_bytes} bytes long")


def metadata_response(host: str, port: int) -> bytearray:
    """Metadata v12 of a cluster of one broker, id 0, and no topics asked for."""
    body = (
        struct.pack(">i", 0)
        + uvarint(2)
        + struct.pack(">i", 0)
        + compact(host.encode())
        + struct.pack(">i", port)
        + uvarint(0)  # no rack
        + NO_TAGS
        + compact(b"bench")  # cluster
        + struct.pack(">i", 0)  # controller
        + uvarint(1)  # topics
        + NO_TAGS
    )
    return _answer_v1(body)


def produce_response(topic: str, *, throttle_ms: int = 0) -> bytearray:
    """The answer to `produce_request`: one partition, no error."""
    body = (
        uvarint(2)
        + compact(topic.encode())
        + uvarint(2)
        + struct.pack(">ihqqq", 0, 0, 0, -1, 0)  # partition, error, base offset, log append time, log start
        + uvarint(1)  # no record errors
        + uvarint(0)  # no error message
        + NO_TAGS * 2  # partition, topic
        + struct.pack(">i", throttle_ms)
        + NO_TAGS
    )
    return _answer_v1(body)


def fetch_request(
    client_id: str, topic: str, *, offset: int = 0, max_bytes: int, max_wait_ms: int = 500, partition: int = 0
) -> bytearray:
    """Fetch v12 of one partition without a fetch session (session id 0, epoch −1), at least one byte."""
    body = (
        struct.pack(">iiiibii", -1, max_wait_ms, 1, max_bytes, 0, 0, -1)
        + uvarint(2)
        + compact(topic.encode())
        + uvarint(2)
        + struct.pack(">iiqiqi", partition, -1, offset, -1, -1, max_bytes)
        + NO_TAGS * 2  # partition, topic
        + uvarint(1)  # nothing forgotten
        + compact(b"")  # no rack
        + NO_TAGS
    )
    return request(FETCH, FETCH_VERSION, client_id, body)


def fetch_response_of(topic: str, frame_bytes: int) -> bytearray:
    """A Fetch v12 answer of exactly `frame_bytes` with one partition and throttle 0.

    The records are one batch with a valid header but without a checksum: nothing between broker and client
    looks inside, and the generator does not either. Raises ValueError when that size cannot be had.
    """
    before = struct.pack(">ihi", 0, 0, 0) + uvarint(2) + compact(topic.encode()) + uvarint(2)
    before += _fetched_partition(0)
    after = NO_TAGS * 3
    overhead = len(_answer_v1(before + after))
    for length_bytes in range(1, 6):
        size = frame_bytes - overhead - length_bytes
        if size > 61 and len(uvarint(size + 1)) == length_bytes:
            return _answer_v1(before + compact(_batch_of(size)) + after)
    raise ValueError(f"no Fetch answer is {frame_bytes} bytes long")


def _fetched_partition(index: int) -> bytes:
    """Of a Fetch answer, up to its records."""
    return struct.pack(">ihqqq", index, 0, 1, 1, 0) + uvarint(0) + struct.pack(">i", -1)


def _batch_of(size: int) -> bytes:
    """One batch of so many bytes, without a checksum."""
    head = struct.pack(">qiibI", 0, size - 12, 0, 2, 0)
    head += struct.pack(">hiqqqhii", 0, 0, 0, 0, -1, -1, -1, 1)
    return head + bytes(size - len(head))


def replica_fetch_request(replica_id: int, topic_id: bytes, partitions: int, max_bytes: int) -> bytearray:
    """A follower's full Fetch of so many partitions, without a session (session id 0, epoch −1)."""
    body = struct.pack(">iiiibii", replica_id, 500, 1, max_bytes, 0, 0, -1) + uvarint(2) + topic_id
    body += uvarint(partitions + 1)
    for index in range(partitions):
        body += struct.pack(">iiqiqi", index, -1, 0, -1, -1, 1 << 20) + NO_TAGS
    body += NO_TAGS + uvarint(1) + compact(b"") + NO_TAGS  # topic, nothing forgotten, no rack, request
    return request(FETCH, REPLICA_FETCH_VERSION, "broker-2-fetcher-0", body)


def replica_fetch_response(topic_id: bytes, partitions: int, records_bytes: int) -> bytearray:
    """The answer to `replica_fetch_request`: so many bytes of records of each partition."""
    body = struct.pack(">ihi", 0, 0, 0) + uvarint(2) + topic_id + uvarint(partitions + 1)
    records = compact(_batch_of(records_bytes)) + NO_TAGS
    body += b"".join(_fetched_partition(index) + records for index in range(partitions))
    return _answer_v1(body + NO_TAGS * 2)


def api_versions_request(client_id: str) -> bytearray:
    """ApiVersions v3, the first frame of every real client."""
    return request(API_VERSIONS, API_VERSIONS_VERSION, client_id, compact(b"bench") + compact(b"1") + NO_TAGS)


def api_versions_response() -> bytearray:
    """ApiVersions v3 (response header v0, as always): the four APIs that the fake broker answers."""
    known = ((PRODUCE, 3, 13), (FETCH, 4, 18), (METADATA, 0, 13), (API_VERSIONS, 0, 4))
    keys = b"".join(struct.pack(">hhh", *key) + NO_TAGS for key in known)
    body = struct.pack(">h", 0) + uvarint(len(known) + 1) + keys + struct.pack(">i", 0) + NO_TAGS
    return bytearray(struct.pack(">ii", 4 + len(body), 0) + body)


def _answer_v1(body: bytes) -> bytearray:
    return bytearray(struct.pack(">ii", 5 + len(body), 0) + NO_TAGS + body)


def read_uvarint(data: memoryview | bytes, pos: int) -> tuple[int, int]:
    """(value, offset behind it)."""
    value = shift = 0
    while True:
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
        shift += 7


def produce_answer(frame: memoryview) -> tuple[int, int]:
    """(error code, throttle_time_ms) of an answer to `produce_request`, whatever the broker filled in."""
    _, pos = read_uvarint(frame, 9)  # topics; 9 = size, correlation id, header tags
    length, pos = read_uvarint(frame, pos)
    _, pos = read_uvarint(frame, pos + length - 1)  # partitions
    error: int = struct.unpack_from(">h", frame, pos + 4)[0]
    pos += 4 + 2 + 24
    record_errors, pos = read_uvarint(frame, pos)
    length, pos = read_uvarint(frame, pos)
    if record_errors > 1 or error:
        return error, 0  # the failed record list is not walked: the caller stops at any error
    pos = skip_tags(frame, pos + max(length - 1, 0))
    pos = skip_tags(frame, pos)
    return error, struct.unpack_from(">i", frame, pos)[0]


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    """What matters of an answer to `fetch_request`."""

    error: int
    throttle_ms: int
    high_watermark: int  # −1 when the answer names no partition, as a throttled broker's does
    records: memoryview


def fetch_answer(frame: memoryview) -> FetchAnswer:
    """Reads an answer to `fetch_request`, whatever the broker filled in."""
    throttle_ms, error = struct.unpack_from(">ih", frame, 9)
    topics, pos = read_uvarint(frame, 9 + 4 + 2 + 4)
    if error or topics < 2:
        return FetchAnswer(error, throttle_ms, -1, frame[:0])
    length, pos = read_uvarint(frame, pos)
    _, pos = read_uvarint(frame, pos + length - 1)
    error, high_watermark = struct.unpack_from(">hq", frame, pos + 4)
    aborted, pos = read_uvarint(frame, pos + 4 + 2 + 24)
    for _ in range(aborted - 1):
        pos = skip_tags(frame, pos + 16)
    length, pos = read_uvarint(frame, pos + 4)
    return FetchAnswer(error, throttle_ms, high_watermark, frame[pos : pos + max(length - 1, 0)])


def last_offsets(records: memoryview) -> Iterator[int]:
    """The last offset of every whole batch in a Fetch answer's records."""
    pos = 0
    while pos + 61 <= len(records):
        base_offset, length = struct.unpack_from(">qi", records, pos)
        if pos + 12 + length > len(records):
            return
        yield base_offset + struct.unpack_from(">i", records, pos + 23)[0]
        pos += 12 + length


def skip_tags(data: memoryview, pos: int) -> int:
    """Offset behind the tagged fields that begin here."""
    count, pos = read_uvarint(data, pos)
    for _ in range(count):
        _, pos = read_uvarint(data, pos)
        length, pos = read_uvarint(data, pos)
        pos += length
    return pos
