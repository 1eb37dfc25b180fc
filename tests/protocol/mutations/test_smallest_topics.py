"""Requests about topics whose arrays have elements as small as their layout lets them be are no lie."""

from __future__ import annotations

import struct

import pytest

from sluice.protocol.apis import ApiKey
from sluice.protocol.codec.wire import encode_varint
from sluice.protocol.errors import MalformedFrame
from sluice.protocol.mutations.requests import MutationRequest, read_mutations
from sluice.protocol.parts import MAX_PARTS

MANY = 100
TIMEOUT = bytes(4)
Case = tuple[int, int, bytes, bytes, bytes]
"""API, version, what stands before the long array, its element, and what stands behind it"""

CASES: list[Case] = [
    # Topics: an empty name alone.
    (ApiKey.DELETE_TOPICS, 5, b"", b"\1", TIMEOUT + b"\0"),
    (ApiKey.DELETE_TOPICS, 3, b"", b"\0\0", TIMEOUT),
    (ApiKey.CREATE_PARTITIONS, 2, b"", b"\1" + bytes(4) + b"\0\0", TIMEOUT + b"\0\0"),
    # Partitions of a topic that is made, with brokers for each: none.
    (ApiKey.CREATE_TOPICS, 5, b"\2\1" + bytes(6), bytes(4) + b"\1\0", b"\1\0" + TIMEOUT + b"\0\0"),
    # Its configurations: an empty name and an empty value.
    (ApiKey.CREATE_TOPICS, 5, b"\2\1" + bytes(6) + b"\1", b"\1\1\0", b"\0" + TIMEOUT + b"\0\0"),
    (ApiKey.CREATE_TOPICS, 4, bytes(3) + b"\1" + bytes(2 + 6 + 4), bytes(4), TIMEOUT + b"\0"),
    # Partitions that a topic gets, with brokers for each: none.
    (ApiKey.CREATE_PARTITIONS, 2, b"\2\1" + bytes(4), b"\1\0", b"\0" + TIMEOUT + b"\0\0"),
    # The brokers of one of them.
    (ApiKey.CREATE_PARTITIONS, 2, b"\2\1" + bytes(4) + b"\2", bytes(4), b"\0\0" + TIMEOUT + b"\0\0"),
    (ApiKey.CREATE_TOPICS, 5, b"\2\1" + bytes(6) + b"\2" + bytes(4), bytes(4),
     b"\0" + b"\1\0" + TIMEOUT + b"\0\0"),
]  # fmt: skip


def read(case: Case, elements: int, told: int) -> MutationRequest:
    api_key, version, before, element, behind = case
    flexible = (
        version
        >= {ApiKey.DELETE_TOPICS: 4, ApiKey.CREATE_TOPICS: 5, ApiKey.CREATE_PARTITIONS: 2}[ApiKey(api_key)]
    )
    count = encode_varint(told + 1) if flexible else struct.pack(">i", told)
    frame = before + count + element * elements + behind
    return read_mutations(frame, 0, api_key, version)


@pytest.mark.parametrize("case", CASES)
def test_all_are_passed_over_and_one_more_is_missed(case: Case) -> None:
    found = read(case, MANY, MANY)
    assert len(found.topics) in {1, MANY}
    assert not found.validate_only
    with pytest.raises(MalformedFrame):
        read(case, MANY, MANY + 1)


def test_what_is_told_of_them_is_counted() -> None:
    """By hand for a hundred partitions: as many are made, or added."""
    created, grown = read(CASES[3], MANY, MANY), read(CASES[6], MANY, MANY)
    assert [topic.partitions for topic in created.topics] == [MANY]
    assert [topic.assigned for topic in grown.topics] == [MANY]
    assert [topic.assigned for topic in read(CASES[7], MANY, MANY).topics] == [1]
    assert [topic.partitions for topic in read(CASES[8], MANY, MANY).topics] == [1]


@pytest.mark.parametrize("case", CASES[3:7])
def test_no_more_are_passed_over_than_take_some_milliseconds(case: Case) -> None:
    """Partitions and configurations of a topic: a request of 512 KiB had room for 260,000, of 0.2 s."""
    read(case, MAX_PARTS, MAX_PARTS)
    with pytest.raises(MalformedFrame, match="must be ≤ 20,000"):
        read(case, MAX_PARTS + 1, MAX_PARTS + 1)


def test_their_tagged_fields_count() -> None:
    tags = b"\x63" + b"\x05\0" * 99
    for before, element, behind in (
        (b"\2\1" + bytes(6), bytes(4) + b"\1", b"\1\0"),  # partitions
        (b"\2\1" + bytes(6) + b"\1", b"\1\1", b"\0"),  # configurations
        (b"", b"\1" + bytes(6) + b"\1\1", b""),  # topics
    ):
        of_topics = not before
        case = (ApiKey.CREATE_TOPICS, 5, before, element + tags, behind + TIMEOUT + b"\0\0")
        most = MAX_PARTS // (99 if of_topics else 100)
        read(case, most, most)
        with pytest.raises(MalformedFrame, match="must be ≤ 20,000"):
            read(case, most + 1, most + 1)
