"""The sizes of the batches that a Fetch answer brings, in every version, as far as it has arrived."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.protocol.apis import ApiKey, readable_versions
from sluice.protocol.fetch_batches import batch_sizes
from sluice.protocol.headers import response_body
from testkit.frames.frames import FETCH, TOPIC_ID, answer, record_batch

VERSIONS = pytest.mark.parametrize("version", readable_versions(ApiKey.FETCH))
ABORTED = [{"producerId": 1, "firstOffset": 2}, {"producerId": 3, "firstOffset": 4}]
BATCHES = record_batch(b"a" * 10) + record_batch(b"b" * 200) + record_batch()
SIZES = [71, 261, 61]


def partition(index: int, records: bytes | None, *, aborted: Any = None) -> Any:
    return {
        "partitionIndex": index,
        "abortedTransactions": aborted,
        "records": None if records is None else records.hex(),
    }


def answer_of(version: int, *topics: list[Any]) -> bytes:
    name = {"topicId": TOPIC_ID} if version >= 13 else {"topic": "orders" * 30}
    body: Any = {"responses": [{**name, "partitions": partitions} for partitions in topics]}
    return answer(FETCH, version, body)


def sizes_in(frame: bytes, version: int, arrived_bytes: int | None = None) -> list[int] | None:
    buf = bytearray(frame + b"\xff" * 100)
    body = response_body(buf, 0, len(frame), FETCH, version)
    return batch_sizes(buf, body, len(frame) if arrived_bytes is None else arrived_bytes, version)


@VERSIONS
def test_they_are_those_of_the_first_partition_that_brings_any(version: int) -> None:
    """Behind partitions and topics that bring none, with aborted transactions, none, or null."""
    frame = answer_of(
        version,
        [partition(0, None, aborted=ABORTED), partition(1, b"", aborted=[])],
        [],
        [partition(2, b""), partition(3, BATCHES, aborted=ABORTED), partition(4, record_batch(b"c" * 999))],
    )
    assert sizes_in(frame, version) == SIZES


@VERSIONS
def test_an_answer_without_records_brings_none(version: int) -> None:
    without: list[list[list[Any]]] = [[], [[]], [[partition(0, b"")], [partition(1, None, aborted=ABORTED)]]]
    for topics in without:
        assert sizes_in(answer_of(version, *topics), version) == []


@VERSIONS
def test_until_a_batchs_head_has_come_nothing_is_known_and_then_its_whole_size(version: int) -> None:
    frame = answer_of(version, [partition(0, None)], [partition(1, BATCHES)])
    records = frame.index(BATCHES)
    head = response_body(bytearray(frame), 0, len(frame), FETCH, version)
    for arrived_bytes in range(head, records + 12):
        assert sizes_in(frame, version, arrived_bytes) is None
    for arrived_bytes in range(records + 12, records + 71 + 12):
        assert sizes_in(frame, version, arrived_bytes) == SIZES[:1]
    assert sizes_in(frame, version, records + 71 + 12) == SIZES[:2]


def test_eight_tell_enough() -> None:
    frame = answer_of(12, [partition(0, record_batch() * 7 + record_batch(b"x") * 3)])
    assert sizes_in(frame, 12) == [61] * 7 + [62]


def test_the_last_batch_may_be_cut_by_the_broker_and_is_known_by_its_head() -> None:
    """max_bytes cut it: a batch of 1,061 bytes, of which 100 came."""
    frame = answer_of(12, [partition(0, record_batch() + record_batch(b"x" * 1_000)[:100])])
    assert sizes_in(frame, 12) == [61, 1_061]
    frame = answer_of(12, [partition(0, record_batch() + record_batch(b"x" * 1_000)[:11])])
    assert sizes_in(frame, 12) == [61]


@pytest.mark.parametrize("length", [13, 0, -1, -(2**31)])
def test_what_is_no_batch_is_taken_for_one_of_all_that_came(length: int) -> None:
    """A batch's length is 14 at least, of an empty message set's entry."""
    records = bytes(8) + length.to_bytes(4, "big", signed=True) + bytes(70)
    assert sizes_in(answer_of(12, [partition(0, records)]), 12) == [82]
    shortest = bytes(8) + (14).to_bytes(4, "big") + bytes(14)
    assert sizes_in(answer_of(12, [partition(0, shortest + record_batch())]), 12) == [26, 61]


def test_records_shorter_than_a_batchs_head_are_one_of_their_size() -> None:
    for records in (b"short", b"x"):
        assert sizes_in(answer_of(12, [partition(0, records)]), 12) == [len(records)]
