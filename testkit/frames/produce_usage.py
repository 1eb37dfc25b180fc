"""Produce requests of every shape, and two ways to tell what they bring: the hot path's, and the codec's."""

from __future__ import annotations

import struct
from binascii import unhexlify
from random import Random
from typing import cast

from sluice.protocol.codec.codec import encode_frame
from sluice.protocol.codec.wire import Struct, uuid_bytes
from sluice.protocol.headers import REQUEST_HEAD, REQUEST_HEAD_BYTES, request_body
from sluice.protocol.produce import ProduceUsage
from testkit.frames.frames import PRODUCE, decoded, legacy_set, record_batch, sized
from testkit.frames.message_values import random_frame

FILLERS = (b"\x00", b"\x01", b"\x02", b"\x3e", b"\x7f", b"\x80", b"\xff")
"""what may stand behind the bytes that have arrived"""
BEFORE = b"\x02" * 5

Batch = tuple[bytes, int, int, int, int, int, int]
"""topic (its bytes), partition, size, producer id, epoch, sequence, count"""


class Walk(ProduceUsage):
    """The reader without its short cut, to compare with."""

    __slots__ = ()

    def _read_simple(self, buf: bytearray, pos: int, frame_end: int, version: int) -> bool:
        return False


def body_of(frame: bytes | bytearray) -> int:
    _, api_key, version, _, length = REQUEST_HEAD.unpack_from(frame)
    client_id_end = REQUEST_HEAD_BYTES + max(length, 0)
    return request_body(bytearray(frame), client_id_end, len(frame), api_key, version)


def read(
    usage: ProduceUsage,
    frame: bytes | bytearray,
    version: int,
    arrived: int | None = None,
    filler: bytes = b"\xff",
) -> list[Batch]:
    """Read a frame, or the part of it that has arrived, from the midst of a buffer full of `filler`."""
    body = body_of(frame)
    avail = len(frame) + 100 if arrived is None else arrived  # another frame may have arrived behind
    buf = bytearray(BEFORE + frame[:avail] + filler * 100)
    start = len(BEFORE)
    usage.read(buf, start + body, start + avail, start + len(frame), version)
    return [(bytes(buf[batch[0] : batch[1]]), *batch[2:]) for batch in usage.batches]


def random_records(random: Random, payload_bytes: int) -> str | None:
    """Nothing, no bytes, batches, or message sets of the old kinds."""
    kind = random.randrange(8)
    if kind == 0:
        return None
    if kind == 1:
        return ""
    payload = random.randbytes(random.randint(0, payload_bytes))
    if kind == 2:
        return b"".join(legacy_set(payload, magic=magic) for magic in random.choice(((0,), (1, 0, 1)))).hex()
    batches = [
        record_batch(
            payload,
            producer_id=random.choice((-1, 0, 7, 2**63 - 1)),
            epoch=random.randint(-1, 2**15 - 1),
            sequence=random.choice((-1, 0, 2**31 - 1)),
            count=random.randint(1, 1_000),
        )
        for _ in range(random.choice((1, 1, 1, 2, 3)))
    ]
    return b"".join(batches).hex()


def random_produce(version: int, random: Random, payload_bytes: int) -> bytes:
    """Up to three topics of up to three partitions, unknown tagged fields at all levels."""
    value = random_frame("request", PRODUCE, version, random, unknown_tags=random.random() < 0.5)
    value.body["acks"] = random.choice((-1, 0, 1))
    if random.random() < 0.5:
        value.body["transactionalId"] = None
    for topic in cast("list[Struct]", value.body["topicData"]):
        for partition in cast("list[Struct]", topic["partitionData"]):
            partition["records"] = random_records(random, payload_bytes)
    return sized(encode_frame("request", PRODUCE, version, value))


def expected_usage(frame: bytes, version: int) -> tuple[int, list[Batch]]:
    """acks and batches as the codec sees them, and a second reading of batch heads."""
    body = decoded("request", PRODUCE, version, frame).body
    batches: list[Batch] = []
    for topic in cast("list[Struct]", body["topicData"]):
        name = (
            uuid_bytes(topic["topicId"])
            if version >= 13
            else cast(str, topic["name"]).encode("utf-8", "surrogateescape")
        )
        for partition in cast("list[Struct]", topic["partitionData"]):
            records = unhexlify(cast("str | None", partition["records"]) or "")
            while records:
                size = int.from_bytes(records[8:12], "big") + 12
                is_legacy = records[16] in {0, 1} or records[16] >= 128  # magic is signed
                head = (-1, -1, -1, 0) if is_legacy else struct.unpack(">qhii", records[43:61])
                batches.append((name, cast(int, partition["index"]), size, *head))
                records = records[size:]
    return cast(int, body["acks"]), batches
