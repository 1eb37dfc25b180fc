"""A follower's Fetch, read and rewritten, and its answer walked in pieces; the codec judges both."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.protocol.codec.codec import DecodedFrame, decode_frame, encode_frame
from sluice.protocol.codec.wire import uuid_bytes, uuid_text
from sluice.protocol.errors import MalformedFrame
from sluice.protocol.headers import REQUEST_HEAD, REQUEST_HEAD_BYTES, RESPONSE_HEAD_BYTES, request_body
from sluice.protocol.replication.fetch_request import (
    FIRST_WITH_TOPIC_IDS,
    LAST_KNOWN,
    ReplicaFetch,
    read_replica_fetch,
    rewrite_replica_fetch,
    with_cap,
)
from sluice.protocol.replication.fetch_response import ReplicaAnswer
from testkit.frames.frames import FETCH, sized
from testkit.frames.message_values import random_frame

VERSIONS = pytest.mark.parametrize("version", range(FIRST_WITH_TOPIC_IDS, LAST_KNOWN + 1))
FRAMES = 15


def read(frame: bytes, version: int) -> ReplicaFetch:
    *_, length = REQUEST_HEAD.unpack_from(frame)
    body = request_body(bytearray(frame), REQUEST_HEAD_BYTES + max(length, 0), len(frame), FETCH, version)
    return read_replica_fetch(frame, body, version)


def a_request(version: int, seed: int, *, unknown_tags: bool = False) -> tuple[DecodedFrame, bytes]:
    value = random_frame("request", FETCH, version, Random(seed), unknown_tags=unknown_tags)
    return value, sized(encode_frame("request", FETCH, version, value))


def replica_of(body: dict[str, Any], version: int) -> int:
    if version < 15:
        return int(body["replicaId"])
    return int(body.get("replicaState", {}).get("replicaId", -1))


@VERSIONS
def test_what_a_follower_asks_for_is_read_as_the_codec_reads_it(version: int) -> None:
    for seed in range(FRAMES):
        value, frame = a_request(version, seed, unknown_tags=True)
        body: Any = value.body
        request = read(frame, version)
        assert request.replica_id == replica_of(body, version)
        assert request.max_wait_ms == body["maxWaitMs"]
        assert request.max_bytes == body["maxBytes"]
        assert (request.session_id, request.epoch) == (body["sessionId"], body["sessionEpoch"])
        assert [(key, offset, cap) for key, offset, cap, _ in request.asked] == [
            ((uuid_bytes(topic["topicId"]), p["partition"]), p["fetchOffset"], p["partitionMaxBytes"])
            for topic in body["topics"]
            for p in topic["partitions"]
        ]
        assert request.forgotten == [
            (uuid_bytes(topic["topicId"]), index)
            for topic in body["forgottenTopicsData"]
            for index in topic["partitions"]
        ]


@VERSIONS
def test_a_request_rewritten_with_other_partitions_differs_in_nothing_else(version: int) -> None:
    for seed in range(FRAMES):
        value, frame = a_request(version, seed)
        request = read(frame, version)
        body: Any = value.body
        kept = request.asked[::2]
        entries = [(key[0], with_cap(entry, 77)) for key, _, _, entry in kept]
        forgotten = [*request.forgotten, *(key for key, *_ in request.asked[1::2])]

        rewritten = rewrite_replica_fetch(request, entries, forgotten, 33)

        assert int.from_bytes(rewritten[:4], "big") == len(rewritten) - 4
        again: Any = decode_frame("request", FETCH, version, rewritten[4:]).body
        flat = [(t["topicId"], p) for t in again["topics"] for p in t["partitions"]]
        before = [(t["topicId"], p) for t in body["topics"] for p in t["partitions"]]
        assert flat == [(topic, {**p, "partitionMaxBytes": 77}) for topic, p in before[::2]]
        assert read(rewritten, version).forgotten == forgotten
        changed = {"topics": 0, "forgottenTopicsData": 0, "maxWaitMs": 33}
        assert {**again, **changed} == {**body, **changed}


@VERSIONS
def test_a_request_cut_anywhere_is_malformed(version: int) -> None:
    _, frame = a_request(version, 1)
    *_, length = REQUEST_HEAD.unpack_from(frame)
    body = request_body(bytearray(frame), REQUEST_HEAD_BYTES + max(length, 0), len(frame), FETCH, version)
    for end in range(body, len(frame)):
        with pytest.raises(MalformedFrame):
            read_replica_fetch(frame[:end], body, version)
    with pytest.raises(MalformedFrame):
        read_replica_fetch(frame + b"\x00", body, version)


@VERSIONS
@given(seed=st.integers(0, 200), cuts=st.lists(st.integers(1, 400), min_size=1, max_size=12))
def test_an_answer_in_pieces_of_any_size_is_walked_as_the_codec_reads_it(
    version: int, seed: int, cuts: list[int]
) -> None:
    value = random_frame("response", FETCH, version, Random(seed), unknown_tags=True)
    frame = sized(encode_frame("response", FETCH, version, value))
    body: Any = value.body
    walk = ReplicaAnswer(len(frame) - RESPONSE_HEAD_BYTES)
    pos, turn = RESPONSE_HEAD_BYTES, 0
    while pos < len(frame):
        end = min(len(frame), pos + cuts[turn % len(cuts)])
        walk.feed(b"\xff" * 3 + frame[pos:end] + b"\xff" * 9, 3, 3 + end - pos)
        pos, turn = end, turn + 1
    assert walk.left_bytes == 0
    assert (walk.error_code, walk.session_id) == (body["errorCode"], body["sessionId"])
    assert walk.partitions == [
        (
            (uuid_bytes(topic["topicId"]), p["partitionIndex"]),
            p["errorCode"],
            p["highWatermark"],
            len(p["records"] or "") // 2,
        )
        for topic in body["responses"]
        for p in topic["partitions"]
    ]


@VERSIONS
def test_an_answer_that_ends_too_early_is_malformed(version: int) -> None:
    """Of every prefix, as if its size said that it were all; without the last tags alone it has all."""
    value = random_frame("response", FETCH, version, Random(3))
    value.body.pop("nodeEndpoints", None)
    frame = sized(encode_frame("response", FETCH, version, value))
    for end in range(RESPONSE_HEAD_BYTES + 1, len(frame) - 1):
        walk = ReplicaAnswer(end - RESPONSE_HEAD_BYTES)
        with pytest.raises(MalformedFrame):
            walk.feed(frame, RESPONSE_HEAD_BYTES, end)


def test_an_answer_whose_counts_lie_ends_with_its_frame() -> None:
    """2³¹ topics are announced; none comes."""
    body = b"\x00" + bytes(10) + b"\xff\xff\xff\xff\x07"
    walk = ReplicaAnswer(len(body))
    with pytest.raises(MalformedFrame):
        walk.feed(body, 0, len(body))


def test_what_stands_between_records_is_not_kept_without_end() -> None:
    """A tag of a gigabyte, before the head: a megabyte of it is kept, no more."""
    walk = ReplicaAnswer(2**31)
    begin = b"\x01\x00\xff\xff\xff\xff\x03"
    walk.feed(begin, 0, len(begin))
    walk.feed(bytes(1024 * 1024 - len(begin)), 0, 1024 * 1024 - len(begin))
    with pytest.raises(MalformedFrame):
        walk.feed(bytes(1), 0, 1)


@pytest.mark.parametrize("partitions", [150, 1_000])
def test_an_answer_of_many_partitions_may_be_cut_anywhere(partitions: int) -> None:
    """As at a broker's start: a full fetch, and hardly any partition brings records. Two reads, of which the
    second holds far more than what the cut left open."""
    entries: list[Any] = [
        {"partitionIndex": index, "highWatermark": 7, "abortedTransactions": None, "records": ""}
        for index in range(partitions)
    ]
    topic: Any = {"topicId": uuid_text(bytes(range(16))), "partitions": entries}
    value = DecodedFrame({"correlationId": 1}, {"sessionId": 5, "responses": [topic]})
    frame = sized(encode_frame("response", FETCH, LAST_KNOWN, value))
    for cut in range(RESPONSE_HEAD_BYTES + 1, len(frame), 41):
        walk = ReplicaAnswer(len(frame) - RESPONSE_HEAD_BYTES)
        walk.feed(frame, RESPONSE_HEAD_BYTES, cut)
        walk.feed(frame, cut, len(frame))
        assert walk.left_bytes == 0
        assert [key[1] for key, *_ in walk.partitions] == list(range(partitions))
