"""The topics that a Fetch or ShareFetch asks for by their ids; the codec says which they are."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from sluice.protocol.apis import ApiKey, readable_versions
from sluice.protocol.codec.codec import encode_frame
from sluice.protocol.codec.wire import encode_varint, uuid_text
from sluice.protocol.errors import MalformedFrame
from sluice.protocol.fetch_topic_ids import FETCH_FIRST_TOPIC_ID, deleted_topic_ids, fetch_topic_ids
from sluice.protocol.headers import request_body
from testkit.frames.frames import FETCH, SHARE_FETCH, request, sized
from testkit.frames.message_values import random_frame

VERSIONS = pytest.mark.parametrize(
    ("api_key", "version"),
    [(FETCH, version) for version in readable_versions(ApiKey.FETCH) if version >= FETCH_FIRST_TOPIC_ID]
    + [(SHARE_FETCH, version) for version in readable_versions(ApiKey.SHARE_FETCH)],
)
PARTITION: Any = {"partition": 0, "fetchOffset": 2**62 - 1, "partitionMaxBytes": 100}


def ids_of(frame: bytes, api_key: int, version: int, end: int | None = None) -> list[str]:
    buf = bytearray(frame)
    client_id_end = 14 + max(0, int.from_bytes(buf[12:14], "big", signed=True))
    body = request_body(buf, client_id_end, len(buf), api_key, version)
    found = fetch_topic_ids(buf, body, len(buf) if end is None else end, api_key, version)
    return [uuid_text(each) for each in found]


@VERSIONS
@pytest.mark.parametrize("unknown_tags", [False, True])
def test_the_ids_of_all_topics_are_found(api_key: int, version: int, unknown_tags: bool) -> None:
    named = 0
    for seed in range(60):
        value = random_frame("request", api_key, version, Random(seed), unknown_tags=unknown_tags)
        frame = sized(encode_frame("request", api_key, version, value))
        topics: Any = value.body["topics"]
        named += len(topics)
        assert ids_of(frame, api_key, version) == [topic["topicId"] for topic in topics]
    assert named


def test_topics_of_many_partitions_without_tags_are_found() -> None:
    ids = [uuid_text(bytes([number]) * 16) for number in range(1, 5)]
    topics: Any = [{"topicId": each, "partitions": [PARTITION] * number} for number, each in enumerate(ids)]
    assert ids_of(request(FETCH, 17, {"topics": topics}), FETCH, 17) == ids


@pytest.mark.parametrize("odd", range(4))
@pytest.mark.parametrize(
    "partitions", [[], [PARTITION], [{**PARTITION, "highWatermark": 7}], [PARTITION] * 2]
)
def test_among_topics_of_one_partition_each_one_may_be_otherwise(odd: int, partitions: Any) -> None:
    ids = [uuid_text(bytes([number]) * 16) for number in range(1, 5)]
    topics: list[Any] = [{"topicId": each, "partitions": [PARTITION]} for each in ids]
    topics[odd]["partitions"] = partitions
    assert ids_of(request(FETCH, 18, {"topics": topics}), FETCH, 18) == ids


def test_a_long_fetch_has_no_tags_in_its_topics() -> None:
    ids = [uuid_text(bytes([number]) * 16) for number in range(1, 5)]
    topics: list[Any] = [{"topicId": each, "partitions": [PARTITION] * 2_000} for each in ids]
    assert ids_of(request(FETCH, 18, {"topics": topics}), FETCH, 18) == ids
    topics[3]["partitions"] = [*topics[3]["partitions"], {**PARTITION, "highWatermark": 7}]
    assert ids_of(request(FETCH, 18, {"topics": topics[3:]}), FETCH, 18) == ids[3:]
    with pytest.raises(MalformedFrame, match="tagged fields"):
        ids_of(request(FETCH, 18, {"topics": topics}), FETCH, 18)


@pytest.mark.parametrize(
    ("version", "tag", "size"),
    [(17, 0, 16), (17, 1, 8), (18, 0, 16), (18, 1, 8), (17, 2, 8), (18, 300, 9), (16, 0, 3)],
)
@pytest.mark.parametrize("off", [-1, 1, 90])
@pytest.mark.parametrize("long_form", [False, True])
def test_a_tagged_field_that_brokers_know_has_the_size_that_they_read(
    version: int, tag: int, size: int, off: int, long_form: bool
) -> None:
    """They read it whatever size is told: one that lied hid the topics behind it from here."""
    head = request(FETCH, version, {})
    assert head.endswith(b"\1\1\1\0")

    def named(told: int) -> bytes:
        size_bytes = bytes([told | 0x80, 0]) if long_form else bytes([told])
        tags = b"\2" + b"\5\0" + encode_varint(tag) + size_bytes + bytes(told)
        partition = bytes(32) + tags
        return sized(head[4:-4] + b"\2" + b"t" * 16 + b"\2" + partition + b"\0" + head[-3:])

    is_known = tag == 0 or (tag == 1 and version == 18)
    assert ids_of(named(size), FETCH, version) == [uuid_text(b"t" * 16)]
    if is_known and version > 16:
        with pytest.raises(MalformedFrame, match=f"tagged field {tag} of {size + off} bytes, has {size}"):
            ids_of(named(size + off), FETCH, version)
    else:
        assert ids_of(named(size + off), FETCH, version) == [uuid_text(b"t" * 16)]


@pytest.mark.parametrize(("partitions", "batches"), [(20_000, 0), (199, 101)])
def test_a_share_fetch_has_no_more_parts_than_are_walked_at_once(partitions: int, batches: int) -> None:
    batch = bytes(16) + b"\1\0"
    one = bytes(4) + bytes([batches + 1]) + batch * batches + b"\0"
    whole = request(SHARE_FETCH, 2, {"memberId": "m", "topics": []})
    assert whole.endswith(b"\1\1\0")

    def named(count: int) -> bytes:
        number = bytes([(count + 1) & 0x7F | 0x80, (count + 1) >> 7 & 0x7F | 0x80, (count + 1) >> 14])
        return sized(whole[4:-3] + b"\2" + b"t" * 16 + number + one * count + b"\0" + whole[-2:])

    assert ids_of(named(partitions - 5), SHARE_FETCH, 2) == [uuid_text(b"t" * 16)]
    with pytest.raises(MalformedFrame, match="more than 20000"):
        ids_of(named(partitions), SHARE_FETCH, 2)


@pytest.mark.parametrize("unknown_tags", [False, True])
def test_the_ids_by_which_topics_are_deleted_are_found(unknown_tags: bool) -> None:
    by_id = 0
    for seed in range(60):
        value = random_frame("request", ApiKey.DELETE_TOPICS, 6, Random(seed), unknown_tags=unknown_tags)
        buf = bytearray(sized(encode_frame("request", ApiKey.DELETE_TOPICS, 6, value)))
        client_id_end = 14 + max(0, int.from_bytes(buf[12:14], "big", signed=True))
        body = request_body(buf, client_id_end, len(buf), ApiKey.DELETE_TOPICS, 6)
        topics: Any = value.body["topics"]
        expected = [topic["topicId"] for topic in topics if topic["name"] is None]
        by_id += len(expected)
        assert [uuid_text(each) for each in deleted_topic_ids(buf, body, len(buf))] == expected
    assert by_id


@VERSIONS
def test_a_request_that_is_cut_off_within_its_topics_is_refused(api_key: int, version: int) -> None:
    topic: Any = {"topicId": uuid_text(b"t" * 16), "partitions": [PARTITION]}
    body: Any = {"topics": [topic]}
    if api_key == SHARE_FETCH:
        topic["partitions"] = [{"partitionIndex": 0, "acknowledgementBatches": []}]
        body["memberId"] = "m"
    frame = request(api_key, version, body)
    at = frame.index(b"t" * 16)
    for end in range(at - 1, at + 16):
        with pytest.raises(MalformedFrame):
            ids_of(frame, api_key, version, end)
