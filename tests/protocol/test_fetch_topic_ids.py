"""The topics that a Fetch or ShareFetch asks for by their ids; the codec says which they are."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from sluice.protocol.apis import ApiKey, readable_versions
from sluice.protocol.codec.codec import encode_frame
from sluice.protocol.codec.wire import uuid_text
from sluice.protocol.errors import MalformedFrame
from sluice.protocol.fetch_topic_ids import FETCH_FIRST_TOPIC_ID, fetch_topic_ids
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
