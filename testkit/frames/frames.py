"""Legal Kafka frames for tests, size prefix included, from plain values.

Everything but record batches is written by the codec of the cold path, which shares no reader with the hot
path and is itself judged by Kafka's own classes (tests/protocol/codec/test_codec_java.py).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from random import Random

from sluice.protocol.codec.codec import DecodedFrame, decode_frame, encode_frame
from sluice.protocol.codec.spec_model import Direction
from sluice.protocol.codec.tags import UNKNOWN_TAGS
from sluice.protocol.codec.wire import Struct, Value, uuid_text
from testkit.frames.message_values import random_frame

PRODUCE = 0
FETCH = 1
METADATA = 3
OFFSET_COMMIT = 8
JOIN_GROUP = 11
HEARTBEAT = 12
LIST_GROUPS = 16
SASL_HANDSHAKE = 17
API_VERSIONS = 18
SASL_AUTHENTICATE = 36
SHARE_FETCH = 78
_NOT_LEADER_OR_FOLLOWER = 6

TOPIC_ID = uuid_text(bytes(range(16)))


def sized(frame: bytes) -> bytes:
    """`frame` behind its size."""
    return struct.pack(">i", len(frame)) + frame


def request(
    api_key: int,
    version: int,
    body: Struct | None = None,
    *,
    correlation_id: int = 1,
    client_id: str | None = "app",
    header_tags: int = 0,
) -> bytes:
    """A request; a field that `body` leaves out has its default."""
    header: Struct = {
        "requestApiKey": api_key,
        "requestApiVersion": version,
        "correlationId": correlation_id,
        "clientId": client_id,
    }
    if header_tags:
        header[UNKNOWN_TAGS] = [{"tag": 100 + i, "hex": "ab" * i} for i in range(header_tags)]
    return sized(encode_frame("request", api_key, version, DecodedFrame(header, body or {})))


def answer(api_key: int, version: int, body: Struct | None = None, *, correlation_id: int = 1) -> bytes:
    """A response; a field that `body` leaves out has its default."""
    header: Struct = {"correlationId": correlation_id}
    return sized(encode_frame("response", api_key, version, DecodedFrame(header, body or {})))


def decoded(direction: Direction, api_key: int, version: int, frame: bytes | bytearray) -> DecodedFrame:
    """What the codec reads in a frame with its size, which must be right."""
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return decode_frame(direction, api_key, version, bytes(frame[4:]))


def throttle_of(api_key: int, version: int, frame: bytes | bytearray) -> int:
    """throttle_time_ms of a response."""
    value = decoded("response", api_key, version, frame).body["throttleTimeMs"]
    assert isinstance(value, int)
    return value


def max_bytes_of(api_key: int, version: int, frame: bytes | bytearray) -> int:
    """max_bytes of a Fetch or ShareFetch request."""
    value = decoded("request", api_key, version, frame).body["maxBytes"]
    assert isinstance(value, int)
    return value


def record_batch(
    payload: bytes = b"",
    *,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    count: int = 1,
) -> bytes:
    """A magic-2 batch of 61 bytes and `payload`, where its records would stand (nothing here looks)."""
    behind_length = struct.pack(">ibI", 0, 2, 0xC0DE)  # leader epoch, magic, a checksum
    behind_length += struct.pack(">hiqq", 0, count - 1, 1_700_000_000_000, 1_700_000_000_000)
    behind_length += struct.pack(">qhii", producer_id, epoch, sequence, count) + payload
    return struct.pack(">qi", 0, len(behind_length)) + behind_length


def legacy_set(payload: bytes, *, magic: int = 1) -> bytes:
    """One entry of a message set of magic 0 or 1, without a key and with `payload` as its value."""
    timestamp = struct.pack(">q", 1_700_000_000_000) if magic == 1 else b""
    message = struct.pack(">Ibb", 0xC0DE, magic, 0) + timestamp + struct.pack(">ii", -1, len(payload))
    message += payload
    return struct.pack(">qi", 0, len(message)) + message


def produce(
    topics: Mapping[str, Sequence[tuple[int, bytes | None]]] | None = None,
    *,
    version: int = 9,
    acks: int = 1,
    correlation_id: int = 1,
    client_id: str | None = "app",
    transactional_id: str | None = None,
    header_tags: int = 0,
) -> bytes:
    """A Produce of {topic: [(partition, records)]}; from v13 on a topic's name is a uuid."""
    if topics is None:
        topics = {TOPIC_ID if version >= 13 else "orders": [(0, record_batch())]}
    name = "topicId" if version >= 13 else "name"
    data: list[Value] = []
    for topic, partitions in topics.items():
        values: list[Value] = [
            {"index": index, "records": None if records is None else records.hex()}
            for index, records in partitions
        ]
        data.append({name: topic, "partitionData": values})
    body: Struct = {
        "transactionalId": transactional_id,
        "acks": acks,
        "timeoutMs": 30_000,
        "topicData": data,
    }
    return request(
        PRODUCE, version, body, correlation_id=correlation_id, client_id=client_id, header_tags=header_tags
    )


def produce_of(
    frame_bytes: int,
    *,
    version: int = 9,
    acks: int = 1,
    correlation_id: int = 1,
    client_id: str | None = "app",
    producer_id: int = -1,
) -> bytes:
    """A Produce of exactly `frame_bytes` with one batch. Raises ValueError if there is none so small."""
    topic = TOPIC_ID if version >= 13 else "t"

    def with_payload(payload_bytes: int) -> bytes:
        batch = record_batch(bytes(payload_bytes), producer_id=producer_id)
        return produce(
            {topic: [(0, batch)]},
            version=version,
            acks=acks,
            correlation_id=correlation_id,
            client_id=client_id,
        )

    payload_bytes = frame_bytes - len(with_payload(0))
    for _ in range(4):  # a longer payload's length may take a byte more
        if payload_bytes < 0:
            break
        frame = with_payload(payload_bytes)
        if len(frame) == frame_bytes:
            return frame
        payload_bytes -= len(frame) - frame_bytes
    raise ValueError(f"no Produce frame is {frame_bytes} bytes long")


def produce_answer(
    *, version: int = 9, correlation_id: int = 1, throttle_ms: int = 0, is_moved: bool = False
) -> bytes:
    """The broker took one partition's batch; `is_moved`: it has another leader, named from version 10 on."""
    name: Struct = {"topicId": TOPIC_ID} if version >= 13 else {"name": "t"}
    partition: Struct = {"index": 0, "baseOffset": 7}
    body: Struct = {"throttleTimeMs": throttle_ms}
    if is_moved:
        partition |= {"errorCode": _NOT_LEADER_OR_FOLLOWER, "baseOffset": -1}
        if version >= 10:
            partition["currentLeader"] = {"leaderId": 1, "leaderEpoch": 2}
            body["nodeEndpoints"] = [{"nodeId": 1, "host": "b1.internal", "port": 9092, "rack": None}]
    body["responses"] = [{**name, "partitionResponses": [partition]}]
    return answer(PRODUCE, version, body, correlation_id=correlation_id)


def fetch(
    *,
    version: int = 12,
    max_bytes: int = 50_000_000,
    correlation_id: int = 1,
    client_id: str | None = "app",
    max_wait_ms: int = 500,
) -> bytes:
    """A Fetch of everything that its session has."""
    body: Struct = {"maxWaitMs": max_wait_ms, "minBytes": 1, "maxBytes": max_bytes}
    return request(FETCH, version, body, correlation_id=correlation_id, client_id=client_id)


def fetch_answer_of(
    frame_bytes: int, *, version: int = 12, correlation_id: int = 1, throttle_ms: int = 0
) -> bytes:
    """A Fetch answer of exactly `frame_bytes`. Raises ValueError if there is none so small."""

    def with_records(size: int) -> bytes:
        name: Struct = {"topicId": TOPIC_ID} if version >= 13 else {"topic": "t"}
        topic: Struct = {**name, "partitions": [{"partitionIndex": 0, "records": bytes(size).hex()}]}
        body: Struct = {"throttleTimeMs": throttle_ms, "responses": [topic]}
        return answer(FETCH, version, body, correlation_id=correlation_id)

    size = frame_bytes - len(with_records(0))
    for _ in range(4):
        if size < 0:
            break
        frame = with_records(size)
        if len(frame) == frame_bytes:
            return frame
        size -= len(frame) - frame_bytes
    raise ValueError(f"no Fetch answer is {frame_bytes} bytes long")


def random_request(
    api_key: int, version: int, random: Random, *, correlation_id: int, client_id: str | None
) -> bytes:
    """Any fields, unknown tagged ones at all levels."""
    frame = random_frame("request", api_key, version, random, unknown_tags=True)
    frame.header["correlationId"] = correlation_id
    frame.header["clientId"] = client_id
    return sized(encode_frame("request", api_key, version, frame))


def random_answer(api_key: int, version: int, random: Random, *, correlation_id: int) -> bytes:
    """Any fields, unknown tagged ones at all levels."""
    frame = random_frame("response", api_key, version, random, unknown_tags=True)
    frame.header["correlationId"] = correlation_id
    return sized(encode_frame("response", api_key, version, frame))
