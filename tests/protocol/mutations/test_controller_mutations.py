"""Requests that change topics, and their answers, as the codec has them: each API and version."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from random import Random
from typing import cast

import pytest

from sluice.protocol.apis import MUTATION_APIS, ApiKey, readable_versions
from sluice.protocol.codec.codec import DecodedFrame, encode_frame
from sluice.protocol.codec.wire import Struct, Value, encode_varint, uuid_bytes, uuid_text
from sluice.protocol.errors import FrameTooLarge, MalformedFrame
from sluice.protocol.headers import request_body
from sluice.protocol.mutations.requests import NO_ID, MutationRequest, read_mutations
from sluice.protocol.mutations.responses import (
    ResultReader,
    TopicResult,
    refusals,
    refusing_answer,
    with_refused,
)
from sluice.protocol.mutations.topic_sizes import SizeReader, TopicSize, size_question
from testkit.frames.frames import decoded, sized
from testkit.frames.message_values import random_frame
from testkit.frames.mutation_frames import CREATE_TOPICS, METADATA, create, delete, grow, question, sizes
from testkit.frames.produce_usage import body_of

EVERY = [(api_key, version) for api_key in sorted(MUTATION_APIS) for version in readable_versions(api_key)]
TOLD: dict[int, str] = {
    ApiKey.CREATE_TOPICS: "topics",
    ApiKey.DELETE_TOPICS: "responses",
    ApiKey.CREATE_PARTITIONS: "results",
}
TEXT = "the quota of user ünï"
BEFORE = b"\xff" * 5


def asked_key(api_key: int, version: int) -> str:
    return "topicNames" if api_key == ApiKey.DELETE_TOPICS and version < 6 else "topics"


def bodies(api_key: int, version: int, rounds: int) -> Iterator[tuple[DecodedFrame, bytes]]:
    random = Random(f"{api_key} {version}")
    for _ in range(rounds):
        frame = random_frame("request", api_key, version, random, unknown_tags=version >= 5)
        yield frame, sized(encode_frame("request", api_key, version, frame))


def read(frame: bytes, api_key: int, version: int) -> MutationRequest:
    head = 14 + max(int.from_bytes(frame[12:14], "big", signed=True), 0)
    body = request_body(bytearray(frame), head, len(frame), api_key, version)
    return read_mutations(frame, body, api_key, version)


@pytest.mark.parametrize(("api_key", "version"), EVERY)
def test_topics_are_those_that_the_codec_reads(api_key: int, version: int) -> None:
    for value, frame in bodies(api_key, version, 60):
        topics = cast("list[Value]", value.body[asked_key(api_key, version)])
        found = read(frame, api_key, version)
        assert found.validate_only == bool(value.body.get("validateOnly"))
        assert len(found.topics) == len(topics)
        for mutation, topic in zip(found.topics, topics, strict=True):
            if isinstance(topic, str):
                assert (mutation.name, mutation.topic_id) == (topic, NO_ID)
                continue
            assert isinstance(topic, dict)
            assert mutation.name == topic["name"]
            if "topicId" in topic:
                assert mutation.topic_id == uuid_bytes(topic["topicId"])
            if api_key == ApiKey.CREATE_PARTITIONS:
                assert mutation.partitions == topic["count"]
                brokers = topic["assignments"]
                assert mutation.assigned == (len(brokers) if isinstance(brokers, list) else None)
            if api_key == ApiKey.CREATE_TOPICS:
                by_hand = cast("list[Value]", topic["assignments"])
                assert mutation.partitions == (len(by_hand) or topic["numPartitions"])


@pytest.mark.parametrize(("api_key", "version"), EVERY)
def test_a_request_without_some_topics_is_what_the_codec_writes(api_key: int, version: int) -> None:
    random = Random(7)
    for value, frame in bodies(api_key, version, 60):
        found = read(frame, api_key, version)
        left_out = [topic for topic in found.topics if random.random() < 0.5]
        random.shuffle(left_out)
        key = asked_key(api_key, version)
        kept = [
            topic
            for topic, mutation in zip(cast("list[Value]", value.body[key]), found.topics, strict=True)
            if mutation not in left_out
        ]
        body = {**value.body, key: kept}
        expected = encode_frame("request", api_key, version, DecodedFrame(value.header, body))
        assert found.without(left_out) == sized(expected)


@pytest.mark.parametrize(("api_key", "version"), EVERY)
def test_a_request_that_is_cut_off_or_goes_on_is_malformed(api_key: int, version: int) -> None:
    _, frame = next(iter(bodies(api_key, version, 1)))
    for cut in range(body_of(frame), len(frame)):
        with pytest.raises(MalformedFrame):
            read(frame[:cut], api_key, version)
    with pytest.raises(MalformedFrame):
        read(frame + b"\0", api_key, version)


def test_what_a_broker_will_refuse_in_any_case_is_told_apart() -> None:
    asked = {"a": 0, "b": -2, "c": -1, "d": 3, "ünï": 1, "..": 1, "e" * 249: 1, "e" * 250: 1, "": 1}
    found = read(create(asked), ApiKey.CREATE_TOPICS, 7)
    assert [topic.name for topic in found.topics if topic.is_sound] == ["c", "d", "e" * 249]
    found = read(delete(["a", "b", "a"], ids=[0, 5]), ApiKey.DELETE_TOPICS, 6)
    assert [topic.is_sound for topic in found.topics] == [False, True, False, False, True]
    found = read(grow({"a": 0, "b": 2}), ApiKey.CREATE_PARTITIONS, 3)
    assert [topic.is_sound for topic in found.topics] == [False, True]


def test_more_topics_than_a_controller_takes_are_not_read() -> None:
    names = [f"t-{n}" for n in range(10_001)]
    assert len(read(delete(names[1:]), ApiKey.DELETE_TOPICS, 6).topics) == 10_000
    with pytest.raises(FrameTooLarge):
        read(delete(names), ApiKey.DELETE_TOPICS, 6)


# Answers --------------------------------------------------------------------------------------------------


def refused_values(api_key: int, version: int, topics: list[tuple[str | None, bytes]]) -> list[Value]:
    """As the codec takes them."""
    values: list[Value] = []
    for name, topic_id in topics:
        value: Struct = {"name": name, "errorCode": 89}
        if api_key != ApiKey.DELETE_TOPICS or version >= 5:
            value["errorMessage"] = TEXT
        if (api_key == ApiKey.CREATE_TOPICS and version >= 7) or (
            api_key == ApiKey.DELETE_TOPICS and version >= 6
        ):
            value["topicId"] = uuid_text(topic_id)
        if api_key == ApiKey.CREATE_TOPICS and version >= 5:
            value |= {"numPartitions": -1, "replicationFactor": -1, "configs": []}
        values.append(value)
    return values


REFUSED: list[tuple[str | None, bytes]] = [("a", NO_ID), ("ünï", bytes(range(16)))]


@pytest.mark.parametrize(("api_key", "version"), EVERY)
def test_an_answer_of_refusals_is_what_the_codec_writes(api_key: int, version: int) -> None:
    written = refusing_answer(api_key, version, 77, 1_234, 2, refusals(api_key, version, REFUSED, TEXT))
    body: Struct = {"throttleTimeMs": 1_234, TOLD[api_key]: refused_values(api_key, version, REFUSED)}
    expected = encode_frame("response", api_key, version, DecodedFrame({"correlationId": 77}, body))
    assert written == sized(expected)


@pytest.mark.parametrize(("api_key", "version"), EVERY)
def test_refusals_stand_in_front_of_the_brokers_topics(api_key: int, version: int) -> None:
    random = Random(f"{api_key} {version}")
    refused = refusals(api_key, version, REFUSED, TEXT)
    for _ in range(60):
        value = random_frame("response", api_key, version, random, unknown_tags=version >= 5, tame=True)
        frame = sized(encode_frame("response", api_key, version, value))
        buf = bytearray(BEFORE + frame + b"\xff" * 9)
        end = len(BEFORE) + len(frame)
        first, head = with_refused(buf, len(BEFORE), end, api_key, version, 40, 2, refused)
        topics = cast("list[Value]", value.body[TOLD[api_key]])
        throttle_ms = max(cast(int, value.body["throttleTimeMs"]), 40)
        body = {
            **value.body,
            "throttleTimeMs": throttle_ms,
            TOLD[api_key]: refused_values(api_key, version, REFUSED) + topics,
        }
        expected = encode_frame("response", api_key, version, DecodedFrame(value.header, body))
        assert head + bytes(buf[first:end]) == sized(expected)


@pytest.mark.parametrize(("api_key", "version"), [(CREATE_TOPICS, 2), (CREATE_TOPICS, 7)])
def test_an_answer_of_more_topics_than_its_bytes_has_none_put_in(api_key: int, version: int) -> None:
    count = b"\x7f\xff\xff\xff" if version == 2 else b"\x00" + b"\xff\xff\xff\xff\x0f"
    frame = bytearray(sized(b"\0\0\0\1" + count[: version == 7] + bytes(4) + count[version == 7 :]))
    with pytest.raises(MalformedFrame):
        with_refused(frame, 0, len(frame), api_key, version, 40, 2, b"")


@pytest.mark.parametrize(("api_key", "version"), EVERY)
def test_what_became_of_each_topic_is_read_however_the_answer_is_cut(api_key: int, version: int) -> None:
    random = Random(f"{api_key} {version}")
    for _ in range(60):
        value = random_frame("response", api_key, version, random, unknown_tags=version >= 5)
        frame = sized(encode_frame("response", api_key, version, value))
        expected = []
        for topic in cast("list[Struct]", value.body[TOLD[api_key]]):
            told = topic.get("numPartitions")
            expected.append(
                TopicResult(
                    cast("str | None", topic["name"]),
                    uuid_bytes(topic["topicId"]) if "topicId" in topic else NO_ID,
                    cast(int, topic["errorCode"]),
                    told if isinstance(told, int) and told > 0 else None,
                )
            )
        reader = ResultReader(api_key, version)
        found: list[TopicResult] = []
        start = 0
        while start < len(frame):
            stop = start + random.randint(1, 40)
            found += reader.feed(frame[start:stop])
            start = stop
        assert found == expected
        assert reader.is_done


# The question before --------------------------------------------------------------------------------------


def test_the_question_creates_nothing() -> None:
    assert size_question(["a", "b"], 5, "app") == question(["a", "b"], correlation_id=5)
    assert size_question([(7).to_bytes(16, "big")], 5, "app") == question(ids=[7], correlation_id=5)
    assert (
        decoded("request", METADATA, 12, size_question(["a"], 5, "app")).body["allowAutoTopicCreation"]
        is False
    )


def test_sizes_are_read_however_the_answer_is_cut() -> None:
    random = Random(3)
    for _ in range(300):
        value = random_frame("response", METADATA, 12, random, unknown_tags=True)
        frame = sized(encode_frame("response", METADATA, 12, value))[8:]
        expected = [
            TopicSize(
                cast("str | None", topic["name"]),
                uuid_bytes(topic["topicId"]),
                len(cast("list[Value]", topic["partitions"])),
            )
            for topic in cast("list[Struct]", value.body["topics"])
            if topic["partitions"]
        ]
        reader = SizeReader()
        start = 0
        while start < len(frame):
            stop = start + random.randint(1, 60)
            reader.feed(frame[start:stop])
            start = stop
        reader.finish()
        assert reader.sizes == expected


def partition(replicas: int, in_sync: int, offline: int, tags: bytes = b"\0") -> bytes:
    """By hand: its counts, and as many zeros."""
    lists = (bytes([count + 1]) + bytes([255]) * (4 * count) for count in (replicas, in_sync, offline))
    return bytes(14) + b"".join(lists) + tags


def topics_of(*parts: list[bytes]) -> bytes:
    """The answer's body, for one topic of each."""
    out = b"\0" + bytes(4) + b"\1" + b"\0" + bytes(4) + bytes([len(parts) + 1])
    for partitions in parts:
        out += b"\0\0" + b"\2a" + bytes(15) + b"\1" + b"\0" + encode_varint(len(partitions) + 1)
        out += b"".join(partitions) + bytes(4) + b"\0"
    return out + b"\0"


@pytest.mark.parametrize("piece_bytes", [7, 61, 1_000, 100_000])
def test_partitions_are_counted_whatever_follows_which(piece_bytes: int) -> None:
    """Runs of the same layout, single ones between them, tags, more than 126 replicas in sync or none."""
    random = Random(5)
    kinds = [
        partition(3, 3, 0),
        partition(3, 2, 1),
        partition(3, 3, 0, b"\1\5\3abc"),
        partition(0, 0, 0),
        bytes(14) + b"\2" + bytes(4) + b"\x81\1" + bytes(4 * 128) + b"\0\0",
    ]
    parts = [
        [
            kind
            for _ in range(random.randint(1, 30))
            for kind in [random.choice(kinds)] * random.randint(1, 40)
        ]
        for _ in range(20)
    ]
    frame = topics_of(*parts)
    reader = SizeReader()
    for begin in range(0, len(frame), piece_bytes):
        reader.feed(frame[begin : begin + piece_bytes])
    reader.finish()
    assert [size.partitions for size in reader.sizes] == [len(partitions) for partitions in parts]


def test_partitions_of_one_layout_are_passed_over_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 of them in twenty steps; where all differ, each is read, and no more than the next looked at."""
    steps: list[int] = []
    one_by_one = SizeReader._partition

    def counted(reader: SizeReader, buf: bytes, pos: int, end: int) -> int:
        steps.append(pos)
        return one_by_one(reader, buf, pos, end)

    monkeypatch.setattr(SizeReader, "_partition", counted)
    for partitions, most in (
        ([partition(3, 3, 0)] * 10_000, 20),
        ([partition(3, 3 - n % 2, 0) for n in range(1_000)], 1_000),
    ):
        reader = SizeReader()
        reader.feed(topics_of(partitions))
        reader.finish()
        assert len(steps) <= most
        steps.clear()


def test_an_answer_that_ends_early_or_late_is_none() -> None:
    frame = sizes({"a": (1, 2)})[8:]
    for cut in range(len(frame)):
        reader = SizeReader()
        reader.feed(frame[:cut])
        with pytest.raises(MalformedFrame):
            reader.finish()
    reader = SizeReader()
    reader.feed(frame + b"\0")
    with pytest.raises(MalformedFrame):
        reader.finish()


def test_what_cannot_become_an_answer_is_not_kept_without_end() -> None:
    """A broker's host of 2 GiB."""
    reader = SizeReader()
    endless = b"\0" + bytes(4) + b"\x02" + bytes(4) + b"\xff\xff\xff\xff\x07"
    reader.feed(endless)
    reader.feed(bytes(200_000))
    with pytest.raises(MalformedFrame):
        reader.feed(bytes(100_000))


def test_a_topic_that_cannot_end_is_not_kept_without_end() -> None:
    """A name of 2 GiB in an answer to CreateTopics: a megabyte of it is kept, no more."""
    reader = ResultReader(CREATE_TOPICS, 7)
    begin = struct.pack(">iib", 2**31 - 1, 1, 0) + bytes(4) + b"\x02" + b"\xff\xff\xff\xff\x07"
    assert reader.feed(begin) == []
    assert reader.feed(bytes(1024 * 1024 - 5)) == []
    with pytest.raises(MalformedFrame):
        reader.feed(bytes(1))
