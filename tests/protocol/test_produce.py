"""Usage of Produce requests, against the codec's view of the same bytes, whole and cut anywhere."""

from __future__ import annotations

import struct
from random import Random
from typing import cast

import pytest

from sluice.protocol.apis import READABLE, ApiKey, readable_versions
from sluice.protocol.codec.wire import encode_varint
from sluice.protocol.errors import MalformedFrame
from sluice.protocol.produce import ProduceUsage, read_acks
from testkit.frames.frames import PRODUCE, TOPIC_ID, decoded, produce, record_batch, sized
from testkit.frames.produce_usage import (
    BEFORE,
    FILLERS,
    Batch,
    Walk,
    body_of,
    expected_usage,
    random_produce,
    read,
)

VERSIONS = pytest.mark.parametrize("version", readable_versions(ApiKey.PRODUCE))
FLEXIBLE = pytest.mark.parametrize("version", range(9, READABLE[ApiKey.PRODUCE][1] + 1))


@VERSIONS
def test_usage_is_what_the_codec_sees(version: int) -> None:
    random = Random(version)
    for _ in range(80):
        frame = random_produce(version, random, payload_bytes=20_000)
        acks, batches = expected_usage(frame, version)
        for usage in (ProduceUsage(), Walk()):
            assert read(usage, frame, version, filler=random.choice(FILLERS)) == batches
            assert (usage.acks, usage.complete) == (acks, True)
            assert usage.has_producer_id() == any(batch[3] != -1 for batch in batches)


@VERSIONS
def test_no_prefix_is_malformed_or_tells_of_batches_that_are_not_there(version: int) -> None:
    """Cut at every byte, with every filler behind the cut: what has been read is a part of what will be."""
    random = Random(100 + version)
    for _ in range(8):
        frame = random_produce(version, random, payload_bytes=70)
        acks, batches = expected_usage(frame, version)
        filler = random.choice(FILLERS)
        body = body_of(frame)
        before: list[Batch] = []
        for arrived in range(body, len(frame) + 1):
            usage = ProduceUsage()  # else it is not looked at each time
            so_far = read(usage, frame, version, arrived, filler)
            assert so_far == batches[: len(so_far)]
            assert len(so_far) >= len(before)
            assert usage.acks in {None, acks}
            assert not usage.complete or so_far == batches
            before = so_far
        assert (before, usage.acks, usage.complete) == (batches, acks, True)


@FLEXIBLE
def test_a_flexible_request_is_complete_with_its_last_byte_only(version: int) -> None:
    """It ends with tagged fields; a classic one ends with records, which need not have arrived."""
    frame = random_produce(version, Random(version), payload_bytes=40)
    usage = ProduceUsage()
    completed = []
    for arrived in range(body_of(frame), len(frame) + 1):
        read(usage, frame, version, arrived, b"\x00")
        completed.append(usage.complete)
    assert completed.index(True) == len(completed) - 1


def test_the_first_batch_is_told_as_soon_as_its_head_has_arrived() -> None:
    """So a Produce of any size is judged after its first hundred bytes."""
    batch = record_batch(bytes(9_000), producer_id=7)
    frame = produce({"orders": [(0, batch)]}, version=9)
    head_end = frame.index(batch) + 61
    usage = ProduceUsage()
    assert read(usage, frame, 9, head_end - 1) == []
    assert usage.acks == 1
    assert read(usage, frame, 9, head_end) == [(b"orders", 0, 9_061, 7, -1, -1, 1)]
    assert not usage.complete


@VERSIONS
@pytest.mark.parametrize("transactional_id", [None, "", "t", "t" * 126, "t" * 127, "t" * 32_767])
def test_acks_are_told_from_the_byte_on_that_ends_them(version: int, transactional_id: str | None) -> None:
    """Behind the transactional id: a length of 2 bytes, or of 1 to 3 in flexible versions, and its bytes."""
    length = len(transactional_id or "")
    prefix = 2 if version < 9 else 1 + (length >= 127) + (length >= 16_383)
    for acks in (-1, 0, 1, 2, -(2**15)):
        frame = produce(version=version, acks=acks, transactional_id=transactional_id)
        assert decoded("request", PRODUCE, version, frame).body["acks"] == acks
        body = body_of(frame)
        acks_end = body + prefix + length + 2
        for filler in FILLERS:
            for end in {*range(body, min(acks_end, body + 20)), acks_end - 2, acks_end - 1}:
                buf = bytearray(BEFORE + frame[:end] + filler * 40)
                assert read_acks(buf, len(BEFORE) + body, len(BEFORE) + end, version) is None
            buf = bytearray(BEFORE + frame[:acks_end] + filler * 40)
            assert read_acks(buf, len(BEFORE) + body, len(BEFORE) + acks_end, version) == acks


def test_a_negative_length_is_a_null_transactional_id_as_kafka_reads_it() -> None:
    for length in (b"\xff\xff", b"\xff\xfe", b"\x80\x00"):
        assert read_acks(bytearray(length + b"\0\7"), 0, 4, 8) == 7


def test_a_transactional_id_beyond_all_frames_has_no_acks_behind_it() -> None:
    """2^31 − 2 bytes; a length of more than 32 bits is none at all."""
    assert read_acks(bytearray(b"\xff\xff\xff\xff\x07" + bytes(100)), 0, 105, 9) is None
    with pytest.raises(MalformedFrame):
        read_acks(bytearray(b"\xff\xff\xff\xff\x7f" + bytes(100)), 0, 105, 9)


# The short cut for requests of one batch ------------------------------------------------------------------


@FLEXIBLE
@pytest.mark.parametrize("payload_bytes", [0, 65, 66, 67, 16_000, 16_322, 2_097_000, 2_097_151])
@pytest.mark.parametrize("name_bytes", [1, 6, 100, 126])
def test_the_short_cut_takes_what_producers_send(version: int, payload_bytes: int, name_bytes: int) -> None:
    """One topic, partition and batch, with a length of one to four bytes: 2^7, 2^14, 2^21 − 1 are edges."""
    topic = TOPIC_ID if version >= 13 else "t" * name_bytes
    frame = bytearray(
        produce({topic: [(3, record_batch(bytes(payload_bytes), producer_id=9))]}, version=version)
    )
    usage = ProduceUsage()
    assert usage._read_simple(frame, body_of(frame), len(frame), version)
    assert usage.batches == walked(frame, version)


def walked(frame: bytearray, version: int) -> list[tuple[int, ...]]:
    walk = Walk()
    walk.read(frame, body_of(frame), len(frame), len(frame), version)
    return cast("list[tuple[int, ...]]", walk.batches)


def assert_short_cut_agrees(frame: bytearray, version: int) -> bool:
    """Whether it took the frame; if so the walk says the same."""
    usage = ProduceUsage()
    body = body_of(frame)
    if not usage._read_simple(frame, body, len(frame), version):
        assert usage.batches == []
        return False
    walk = Walk()
    walk.read(frame, body, len(frame), len(frame), version)
    assert (usage.acks, usage.batches, usage.complete) == (walk.acks, walk.batches, walk.complete), (
        frame.hex()
    )
    return True


@FLEXIBLE
def test_the_short_cut_agrees_with_the_walk_on_whatever_it_takes(version: int) -> None:
    """Frames of its shape with bytes changed anywhere: some are still of its shape."""
    random = Random(200 + version)
    taken = 0
    for _ in range(3_000):
        topic = TOPIC_ID if version >= 13 else "t" * random.choice((1, 5, 126, 127, 200, 249))
        batch = record_batch(bytes(random.choice((0, 5, 66, 67, 300))))
        frame = bytearray(produce({topic: [(0, batch)]}, version=version))
        for _ in range(random.randint(1, 3)):
            at = random.randrange(body_of(frame), len(frame))
            frame[at] = random.choice((0, 1, 2, 3, 0x3E, 0x7F, 0x80, 0x81, 0xFF, random.randrange(256)))
        taken += assert_short_cut_agrees(frame, version)
    assert taken > 100


def test_the_short_cut_leaves_long_topic_names_to_the_walk() -> None:
    """A request that it would misread: from 127 bytes on a name's length takes two bytes.

    Read as one byte, the name ends one byte early. With \\x02 as the name's last byte, a partition index that
    is the length of a smaller batch, and the true length in four bytes where one would do, another batch
    comes to stand where the short cut looks, with another producer id.
    """
    true_batch = bytearray(record_batch(bytes(60), producer_id=666))
    size = len(true_batch)
    shown_size = size + 4  # it begins in the four bytes of the true batch's length
    length = struct.pack(">BBBB", (size + 1) & 0x7F | 0x80, (size + 1) >> 7 | 0x80, 0x80, 0)
    # Where the short cut sees batchLength (bytes 8–11) and magic (16), the true batch has its base offset and
    # its leader epoch: it may choose both.
    struct.pack_into(">i", true_batch, 4, shown_size - 12)
    true_batch[12] = 2
    name = b"n" * 126 + b"\x02"
    body = b"\0" + struct.pack(">hi", 1, 30_000) + b"\x02"
    body += encode_varint(len(name) + 1) + name + b"\x02"
    body += struct.pack(">i", shown_size + 1) + length + true_batch + b"\0\0\0"
    head = struct.pack(">hhih", PRODUCE, 9, 1, 0) + b"\0"
    frame = bytearray(sized(head + body))
    decoded("request", PRODUCE, 9, frame)  # legal, and nothing else than it seems to the codec

    assert read(ProduceUsage(), frame, 9) == [(name, shown_size + 1, size, 666, -1, -1, 1)]
