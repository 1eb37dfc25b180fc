"""Produce requests that contradict themselves: refused, at a cost that their bytes bound."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from random import Random
from types import FrameType
from typing import Any

import pytest

from sluice.protocol.apis import ApiKey, readable_versions
from sluice.protocol.codec.wire import encode_varint
from sluice.protocol.errors import MalformedFrame
from sluice.protocol.produce import ProduceUsage
from testkit.frames.frames import PRODUCE, record_batch, sized
from testkit.frames.produce_usage import BEFORE, FILLERS, Walk, body_of, expected_usage, random_produce, read

VERSIONS = pytest.mark.parametrize("version", readable_versions(ApiKey.PRODUCE))


def flexible(*parts: bytes) -> bytes:
    """A v9 frame: transactional id, acks and timeout as they should be, then `parts`."""
    head = struct.pack(">hhih", PRODUCE, 9, 1, 0) + b"\0"
    return sized(head + b"\0" + struct.pack(">hi", 1, 30_000) + b"".join(parts))


def classic(*parts: bytes) -> bytes:
    """A v8 frame: transactional id, acks and timeout as they should be, then `parts`."""
    return sized(struct.pack(">hhihhhi", PRODUCE, 8, 1, 0, -1, 1, 30_000) + b"".join(parts))


BATCH = record_batch()
TOPIC = b"\x02t"
ONE = b"\x02"
TAGS = b"\0"
INDEX = struct.pack(">i", 0)
BATCH_LENGTH = encode_varint(len(BATCH) + 1)


def int32(value: int) -> bytes:
    return struct.pack(">i", value)


def batch_of_length(batch_length: int, magic: int = 2) -> bytes:
    return BATCH[:8] + int32(batch_length) + BATCH[12:16] + bytes([magic]) + BATCH[17:]


MALFORMED = {
    "more topics than bytes": flexible(
        encode_varint(2**31 - 1), TOPIC, ONE, INDEX, BATCH_LENGTH, BATCH, TAGS * 3
    ),
    "topics beyond 32 bits": flexible(
        b"\xff\xff\xff\xff\x7f", TOPIC, ONE, INDEX, BATCH_LENGTH, BATCH, TAGS * 3
    ),
    "one topic too many": flexible(b"\x03", TOPIC, ONE, INDEX, BATCH_LENGTH, BATCH, TAGS * 3),
    "one topic too few": flexible(b"\x01", TOPIC, ONE, INDEX, BATCH_LENGTH, BATCH, TAGS * 3),
    "null topic name alone": flexible(ONE, b"\0"),
    "null topic name": flexible(ONE, b"\0", ONE, INDEX, BATCH_LENGTH, BATCH, TAGS * 3),
    "topic name beyond the frame": flexible(ONE, b"\x7ft", ONE, INDEX, BATCH_LENGTH, BATCH, TAGS * 3),
    "more partitions than bytes": flexible(ONE, TOPIC, b"\xff\x7f", INDEX, BATCH_LENGTH, BATCH, TAGS * 3),
    "records beyond the frame": flexible(ONE, TOPIC, ONE, INDEX, b"\x7f", BATCH, TAGS * 3),
    "records shorter than a batch": flexible(ONE, TOPIC, ONE, INDEX, encode_varint(61), BATCH, TAGS * 3),
    "records shorter than a head, as their batch says": flexible(
        ONE, TOPIC, ONE, INDEX, encode_varint(21), batch_of_length(8)[:20], TAGS * 3
    ),
    "batch beyond its records": flexible(ONE, TOPIC, ONE, INDEX, BATCH_LENGTH, batch_of_length(50), TAGS * 3),
    "negative batch": flexible(ONE, TOPIC, ONE, INDEX, BATCH_LENGTH, batch_of_length(-1), TAGS * 3),
    "smallest batch": flexible(ONE, TOPIC, ONE, INDEX, BATCH_LENGTH, batch_of_length(-(2**31)), TAGS * 3),
    "batch of no bytes": flexible(ONE, TOPIC, ONE, INDEX, BATCH_LENGTH, batch_of_length(-12), TAGS * 3),
    "batch without a head": flexible(ONE, TOPIC, ONE, INDEX, BATCH_LENGTH, batch_of_length(48), TAGS * 3),
    "empty message set": flexible(
        ONE, TOPIC, ONE, INDEX, BATCH_LENGTH, batch_of_length(-12, magic=1), TAGS * 3
    ),
    "backward message set": flexible(
        ONE, TOPIC, ONE, INDEX, BATCH_LENGTH, batch_of_length(-40, magic=0), TAGS * 3
    ),
    "tags beyond the frame": flexible(ONE, TOPIC, ONE, INDEX, BATCH_LENGTH, BATCH, b"\x01\x05\x7f", TAGS * 2),
    "tags without an end": flexible(ONE, TOPIC, ONE, INDEX, BATCH_LENGTH, BATCH, TAGS, TAGS, b"\xff"),
    "no tags": flexible(ONE, TOPIC, ONE, INDEX, BATCH_LENGTH, BATCH, TAGS, TAGS),
    "bytes behind the end": flexible(ONE, TOPIC, ONE, INDEX, BATCH_LENGTH, BATCH, TAGS * 3, b"\0"),
    "no body": sized(struct.pack(">hhih", PRODUCE, 9, 1, 0) + b"\0"),
    "classic: more topics than bytes": classic(
        int32(2**31 - 1), b"\0\x01t", int32(1), INDEX, int32(61), BATCH
    ),
    "classic: one topic too few": classic(int32(0), b"\0\x01t", int32(1), INDEX, int32(61), BATCH),
    "classic: negative name": classic(int32(1), b"\xff\xfft", int32(1), INDEX, int32(61), BATCH),
    "classic: name beyond the frame": classic(int32(1), b"\x7f\xfft", int32(1), INDEX, int32(61), BATCH),
    "classic: partitions": classic(int32(1), b"\0\x01t", int32(2**31 - 1), INDEX, int32(61), BATCH),
    "classic: records beyond": classic(int32(1), b"\0\x01t", int32(1), INDEX, int32(62), BATCH),
    "classic: largest records": classic(int32(1), b"\0\x01t", int32(1), INDEX, int32(2**31 - 1), BATCH),
    "classic: bytes behind the end": classic(int32(1), b"\0\x01t", int32(1), INDEX, int32(61), BATCH, b"\0"),
    "classic: no body": sized(struct.pack(">hhih", PRODUCE, 8, 1, 0)),
}


@pytest.mark.parametrize("frame", MALFORMED.values(), ids=MALFORMED)
def test_what_cannot_fit_is_malformed_whatever_stands_behind(frame: bytes) -> None:
    version = frame[7]
    for filler in FILLERS:
        for usage in (ProduceUsage(), Walk()):
            with pytest.raises(MalformedFrame) as caught:
                read(usage, frame, version, filler=filler)
            assert caught.value.offset is not None
            assert len(BEFORE) <= caught.value.offset <= len(BEFORE) + len(frame)
            assert not usage.complete


def test_the_malformed_requests_are_legal_but_for_what_their_names_say() -> None:
    for frame, version in (
        (flexible(ONE, TOPIC, ONE, INDEX, BATCH_LENGTH, BATCH, TAGS * 3), 9),
        (classic(int32(1), b"\0\x01t", int32(1), INDEX, int32(61), BATCH), 8),
    ):
        assert read(ProduceUsage(), frame, version) == [(b"t", 0, 61, -1, -1, -1, 1)]


@VERSIONS
def test_no_bytes_make_it_fail_otherwise_or_see_beyond_the_frame(version: int) -> None:
    """Random legal frames with bytes changed; where the codec can still read them, both see the same."""
    random = Random(300 + version)
    agreed = 0
    for _ in range(500):
        frame = bytearray(random_produce(version, random, payload_bytes=80))
        body = body_of(frame)
        for _ in range(random.randint(1, 4)):
            at = random.randrange(body, len(frame))
            frame[at] = random.choice((0, 1, 2, 0x7F, 0x80, 0xFF, random.randrange(256)))
        usage = ProduceUsage()
        arrived = random.choice((None, random.randint(body, len(frame))))
        try:
            batches = read(usage, frame, version, arrived, random.choice(FILLERS))
        except MalformedFrame:
            continue
        start, end = len(BEFORE) + body, len(BEFORE) + len(frame)
        assert all(start <= a <= b <= end for a, b, *_ in usage.batches)
        assert sum(batch[2] for batch in batches) <= len(frame)
        if usage.complete:
            try:
                acks, expected = expected_usage(bytes(frame), version)
            except MalformedFrame:  # null where none may be, no UTF-8: the broker's to refuse
                continue
            assert (usage.acks, batches) == (acks, expected)
            agreed += 1
    assert agreed > 30


def lines_run(action: Callable[[], object]) -> int:
    """Lines of Python run by `action`: time that is the same on every machine."""
    lines = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return lines


HOSTILE = {
    "many topics": flexible(encode_varint(1_301), (b"\x02t" + b"\x01\0") * 1_000),
    "many partitions": flexible(ONE, TOPIC, encode_varint(1_001), (INDEX + b"\0\0") * 1_000, TAGS * 2),
    "many tags": flexible(encode_varint(21), (b"\x02t" + b"\x01" + b"\x64" + b"\x05\0" * 100) * 20, b"\0"),
    "many small sets": flexible(
        ONE, TOPIC, ONE, INDEX, encode_varint(4_251), (bytes(8) + int32(5) + bytes(5)) * 250, TAGS * 3
    ),
    "forged counts at each level": flexible((encode_varint(5_000) + b"\x02t") * 1_200),
    "only varints that go on": flexible(b"\x80" * 5_000),
}


@pytest.mark.parametrize("frame", HOSTILE.values(), ids=HOSTILE)
def test_no_bytes_cost_more_than_some_lines_of_code_each(frame: bytes) -> None:
    """Twelve a byte at most; a legal request of small partitions runs three."""

    def attempt() -> None:
        with suppress(MalformedFrame):
            read(ProduceUsage(), frame, 9)

    assert lines_run(attempt) < 12 * len(frame)


REST = b"\0" * 200
ARRIVED_TOO_LONG = {
    "topics": (9, flexible(encode_varint(1_000))),
    "topic name": (9, flexible(ONE, encode_varint(1_000))),
    "partitions": (9, flexible(ONE, TOPIC, encode_varint(1_000))),
    "records": (9, flexible(ONE, TOPIC, ONE, INDEX, encode_varint(1_000))),
    "classic: topics": (8, classic(int32(1_000))),
    "classic: topic name": (8, classic(int32(1), b"\x03\xe8")),
    "classic: partitions": (8, classic(int32(1), b"\0\x01t", int32(1_000))),
    "classic: records": (8, classic(int32(1), b"\0\x01t", int32(1), INDEX, int32(1_000))),
}


@pytest.mark.parametrize(("version", "begin"), ARRIVED_TOO_LONG.values(), ids=ARRIVED_TOO_LONG)
def test_a_length_that_cannot_fit_is_malformed_before_the_rest_has_come(version: int, begin: bytes) -> None:
    """Or a client could have a connection wait for what is never judged."""
    frame = bytearray(begin + REST)
    usage = ProduceUsage()
    body = 15 if version >= 9 else 14
    with pytest.raises(MalformedFrame):
        usage.read(frame, body, len(begin), len(frame), version)
    usage.read(frame, body, len(begin) - 1, len(frame), version)
    assert not usage.heads_read
