"""Produce requests at the edges of their layout: the longest one-byte length, nothing at all, two batches."""

from __future__ import annotations

import struct

import pytest

from sluice.protocol.codec.wire import encode_varint
from sluice.protocol.errors import MalformedFrame
from sluice.protocol.parts import MAX_PARTS
from sluice.protocol.produce import ProduceUsage
from testkit.frames.frames import PRODUCE, produce, record_batch, sized
from testkit.frames.produce_usage import BEFORE, Walk, body_of, read


def test_before_anything_is_read_nothing_is_known() -> None:
    usage = ProduceUsage()
    assert (usage.acks, usage.batches, usage.complete, usage.heads_read) == (None, [], False, False)


@pytest.mark.parametrize("length", [1, 125, 126, 127, 128, 16_382, 16_383])
@pytest.mark.parametrize("version", [8, 9, 13])
def test_a_transactional_id_may_have_any_length(length: int, version: int) -> None:
    usage = ProduceUsage()
    found = read(usage, produce(version=version, transactional_id="t" * length, acks=-1), version)
    assert (usage.acks, usage.complete, [batch[2] for batch in found]) == (-1, True, [61])


@pytest.mark.parametrize("null", [b"\x80\x00", b"\x80\x80\x80\x80\x00"])
def test_no_transactional_id_may_take_more_bytes_than_it_needs(null: bytes) -> None:
    frame = bytearray(produce(version=9, client_id=""))
    frame[15:16] = null
    struct.pack_into(">i", frame, 0, len(frame) - 4)
    usage = ProduceUsage()
    assert [batch[2] for batch in read(usage, bytes(frame), 9)] == [61]
    assert (usage.acks, usage.complete) == (1, True)


@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_a_partition_without_records_may_be_the_last(version: int) -> None:
    for records in (None, b""):
        usage = ProduceUsage()
        frame = produce({"orders": [(0, record_batch()), (1, records)]}, version=version)
        assert len(read(usage, frame, version)) == 1
        assert (usage.complete, usage.heads_read) == (True, True)


@pytest.mark.parametrize("version", [8, 9])
def test_the_first_batch_is_told_where_it_stands_whatever_follows(version: int) -> None:
    first, second = record_batch(b"first"), record_batch(b"second")
    frame = produce({"orders": [(0, None), (1, first + second)], "more": [(2, second)]}, version=version)
    for usage in (ProduceUsage(), Walk()):
        assert [batch[2] for batch in read(usage, frame, version)] == [66, 67, 67]
        assert usage.first_batch == len(BEFORE) + frame.index(first)


def test_a_count_that_takes_more_bytes_than_it_needs_is_read_at_the_frames_end() -> None:
    """No topic, told in two bytes; the request's tags behind it are its last byte."""
    head = struct.pack(">hhih", PRODUCE, 9, 1, 0) + b"\0" + b"\0" + struct.pack(">hi", 1, 30_000)
    frame = sized(head + b"\x81\x00" + b"\0")
    usage = ProduceUsage()
    assert body_of(frame) == 15
    assert read(usage, frame, 9) == []
    assert (usage.acks, usage.complete) == (1, True)


@pytest.mark.parametrize("version", [7, 9])
def test_what_trickles_in_behind_many_heads_does_not_have_them_read_anew_each_time(version: int) -> None:
    """2,000 batches, and then the long records of another partition, 100 bytes at a time. Heads are read at
    most once in each quarter more of the frame, and all the same as soon as it is whole."""
    batches = record_batch() * 2_000
    last = record_batch(bytes(200_000))
    request = produce({"t": [(0, batches), (1, last)]}, version=version)
    frame = bytearray(request.replace(last, b""))  # its head never comes

    class Counted(Walk):
        looks = 0

        def _walk_batches(self, *arguments: int) -> None:  # type: ignore[override]
            Counted.looks += 1
            super()._walk_batches(*arguments)  # type: ignore[arg-type]

    usage, body = Counted(), body_of(frame)
    frame_end = len(frame) + 200_000
    for avail in range(body + 70_000, len(frame) + 1, 100):
        usage.read(frame, body, avail, frame_end, version)
        assert not usage.heads_read
    assert Counted.looks <= 4  # of 550 reads
    whole = bytearray(produce({"t": [(0, batches)]}, version=version))
    usage.read(whole, body_of(whole), len(whole), len(whole), version)
    assert (usage.complete, len(usage.batches)) == (True, 2_000)


def parts_of(kind: str, count: int) -> dict[str, list[tuple[int, bytes | None]]]:
    """A request of so many: topics count as partitions do."""
    if kind == "partitions":
        return {"t": [(number, None) for number in range(count - 1)]}
    if kind == "topics":
        return {f"t-{number}": [(0, None)] for number in range(count // 2)}
    return {"t": [(0, record_batch() * count)]}


@pytest.mark.parametrize("version", [7, 9])
@pytest.mark.parametrize("kind", ["partitions", "topics", "batches"])
def test_a_request_of_more_parts_than_anybody_sends_is_refused(kind: str, version: int) -> None:
    usage = ProduceUsage()
    read(usage, produce(parts_of(kind, MAX_PARTS), version=version), version)
    assert usage.complete
    with pytest.raises(MalformedFrame, match="must be ≤ 20,000"):
        read(usage, produce(parts_of(kind, MAX_PARTS + 1 + (kind == "topics")), version=version), version)


@pytest.mark.parametrize("fields", [1, 100])
@pytest.mark.parametrize("place", ["partition", "topic"])
def test_tagged_fields_count_as_parts(place: str, fields: int) -> None:
    """Kafka's clients write none there: a section of 100 in each of 4,000 partitions took 0.3 s."""
    section = bytes([fields]) + b"\x05\0" * fields
    most = (MAX_PARTS - (place == "partition")) // (1 + fields)

    def request(count: int) -> bytes:
        head = struct.pack(">hhih", PRODUCE, 9, 1, 0) + b"\0" + b"\0" + struct.pack(">hi", 1, 30_000)
        if place == "topic":
            return sized(head + encode_varint(count + 1) + (b"\2t" + b"\1" + section) * count + b"\0")
        partitions = (bytes(4) + b"\1" + section) * count
        return sized(head + b"\2" + b"\2t" + encode_varint(count + 1) + partitions + b"\0\0")

    usage = ProduceUsage()
    assert read(usage, request(most), 9) == []
    assert usage.complete
    with pytest.raises(MalformedFrame, match="must be ≤ 20,000"):
        read(usage, request(most + 1), 9)


def test_a_section_of_more_than_100_tagged_fields_is_told_so_wherever_it_stands() -> None:
    batch = record_batch()
    frame = produce({"t": [(0, batch)]}, version=9)
    assert frame.endswith(batch + b"\0\0\0")
    for level in range(3):
        sections = b"\0" * level + b"\x65" + b"\x05\0" * 101 + b"\0" * (2 - level)
        longer = sized(frame[4:-3] + sections)
        for arrived in (None, len(longer) - 203 - (2 - level) + 1):
            with pytest.raises(MalformedFrame, match="101 tagged fields in one section"):
                read(ProduceUsage(), longer, 9, arrived)
