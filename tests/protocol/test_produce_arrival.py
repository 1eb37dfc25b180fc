"""At each byte of a Produce request: exactly what is known of it by then, neither later nor before."""

from __future__ import annotations

import pytest

from sluice.protocol.produce import ProduceUsage
from testkit.frames.frames import TOPIC_ID, produce, record_batch
from testkit.frames.produce_usage import Walk, body_of, read

FIRST, SECOND, THIRD, FOURTH = (record_batch(b"%d" % n, producer_id=n) for n in range(4))
HEAD_BYTES = 61
LEGACY_HEAD_BYTES = 17


def known_from(frame: bytes, batches: list[bytes]) -> list[int]:
    """The number of bytes with which each batch is known: it may be counted when its head has come."""
    found, pos = [], 0
    for batch in batches:
        pos = frame.index(batch, pos)
        found.append(pos + HEAD_BYTES)
        pos += len(batch)
    return found


@pytest.mark.parametrize("version", [3, 8, 9, 12, 13])
@pytest.mark.parametrize("transactional_id", [None, "", "t", "t" * 130])
def test_acks_are_known_with_the_timeout_behind_them(version: int, transactional_id: str | None) -> None:
    topic = TOPIC_ID if version == 13 else "a"
    frame = produce({topic: [(0, FIRST)]}, version=version, acks=-1, transactional_id=transactional_id)
    length = len(transactional_id or "")
    prefix = 2 if version < 9 else 1 + (length >= 127)
    timeout_end = body_of(frame) + prefix + length + 6
    for arrived in range(body_of(frame), timeout_end + 3):
        usage = Walk()
        assert read(usage, frame, version, arrived) == []
        assert usage.acks == (-1 if arrived >= timeout_end else None)


@pytest.mark.parametrize("version", [3, 8, 9, 12])
@pytest.mark.parametrize(
    "shape",
    [
        {"a": [(0, FIRST)], "b": [(0, SECOND)], "c": [(0, THIRD)]},
        {"a": [(0, FIRST), (1, SECOND), (2, THIRD)]},
        {"a": [(0, FIRST + SECOND)], "b": [(0, THIRD), (1, FOURTH)]},
    ],
)
def test_a_batch_is_known_with_its_head_and_all_are_with_the_last_of_them(
    version: int, shape: dict[str, list[tuple[int, bytes | None]]]
) -> None:
    frame = produce(shape, version=version)
    batches = [batch for batch in (FIRST, SECOND, THIRD, FOURTH) if batch in frame]
    heads = known_from(frame, batches)
    last_records_end = frame.index(batches[-1]) + len(batches[-1])
    for reader in (ProduceUsage, Walk):
        for arrived in range(body_of(frame), len(frame) + 1):
            usage = reader()
            found = read(usage, frame, version, arrived)
            assert len(found) == sum(arrived >= known for known in heads)
            assert usage.heads_read == (arrived >= heads[-1])
            is_complete = arrived >= (heads[-1] if version < 9 else len(frame))
            assert usage.complete == is_complete, "a classic one ends with records, which may come later"
    assert last_records_end == len(frame) - (0 if version < 9 else 3)


@pytest.mark.parametrize("version", [3, 9])
def test_the_smallest_legacy_set_is_known_by_its_seventeen_bytes(version: int) -> None:
    """Its head is all that it has; a batch behind it is known by its own."""
    smallest = bytes(8) + (5).to_bytes(4, "big") + bytes(4) + b"\1"
    assert len(smallest) == LEGACY_HEAD_BYTES
    frame = produce({"a": [(0, smallest + FIRST), (1, smallest)]}, version=version)
    first = frame.index(smallest)
    heads = [first + 17, first + 17 + HEAD_BYTES, frame.rindex(smallest) + 17]
    for arrived in range(body_of(frame), len(frame) + 1):
        usage = ProduceUsage()
        found = read(usage, frame, version, arrived)
        assert [batch[2] for batch in found] == [17, len(FIRST), 17][: sum(arrived >= end for end in heads)]


@pytest.mark.parametrize("version", [3, 9])
def test_of_an_empty_partition_behind_the_last_batch_its_length_must_have_come(version: int) -> None:
    for records in (None, b""):
        frame = produce({"a": [(0, FIRST)], "b": [(1, records)]}, version=version)
        length_end = len(frame) - (0 if version < 9 else 3)
        for arrived in range(frame.index(FIRST) + HEAD_BYTES, len(frame) + 1):
            usage = ProduceUsage()
            assert len(read(usage, frame, version, arrived)) == 1
            assert usage.heads_read == (arrived >= length_end)
