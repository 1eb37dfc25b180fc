"""The refusal of a Produce against the codec, byte by byte, and as kafka-python and Kafka read it."""

from __future__ import annotations

import importlib
import warnings
from random import Random
from typing import Any, cast

import pytest

from sluice.protocol.apis import ApiKey, ErrorCode, readable_versions
from sluice.protocol.codec.wire import Struct, Value
from sluice.protocol.errors import MalformedFrame
from sluice.protocol.produce_refusal import refuse_produce
from testkit.frames.frames import PRODUCE, TOPIC_ID, answer, decoded, produce, produce_of, sized
from testkit.frames.produce_usage import body_of, random_produce
from testkit.oracles.java_oracle import java_oracle

VERSIONS = readable_versions(ApiKey.PRODUCE)
TEXT = "producer-id quota (producer_ids_rate) of user ünï: new producer ids above 50 an hour wait"
THROTTLE_MS = 1_234


def refusal(frame: bytes, version: int, *, limit: int | None = None, correlation_id: int = 77) -> bytes:
    before = b"\xff" * 7
    buf = bytearray(before + frame + b"\xff" * 50)
    return refuse_produce(
        buf,
        len(before) + body_of(frame),
        len(before) + (len(frame) if limit is None else limit),
        version,
        correlation_id,
        error_code=ErrorCode.NOT_ENOUGH_REPLICAS,
        message=TEXT,
        throttle_ms=THROTTLE_MS,
    )


def expected(frame: bytes, version: int) -> bytes:
    body = decoded("request", PRODUCE, version, frame).body
    responses: list[Value] = []
    for topic in cast("list[Struct]", body["topicData"]):
        results: list[Value] = []
        for partition in cast("list[Struct]", topic["partitionData"]):
            result: Struct = {
                "index": partition["index"],
                "errorCode": ErrorCode.NOT_ENOUGH_REPLICAS,
                "baseOffset": -1,
                "logAppendTimeMs": -1,
            }
            if version >= 5:
                result["logStartOffset"] = -1
            if version >= 8:
                result["recordErrors"] = []
                result["errorMessage"] = TEXT
            results.append(result)
        name = "topicId" if version >= 13 else "name"
        responses.append({name: topic[name], "partitionResponses": results})
    return answer(
        PRODUCE, version, {"responses": responses, "throttleTimeMs": THROTTLE_MS}, correlation_id=77
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_every_partition_of_the_request_gets_the_error_and_nothing_else(version: int) -> None:
    random = Random(version)
    for _ in range(200):
        frame = random_produce(version, random, 300)
        assert refusal(frame, version) == expected(frame, version), frame.hex()


@pytest.mark.parametrize("version", VERSIONS)
def test_the_records_of_the_last_partition_need_not_have_arrived(version: int) -> None:
    frame = produce_of(50_000, version=version)
    assert refusal(frame, version, limit=200) == expected(frame, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_of_which_a_partition_is_missing_is_not_answered(version: int) -> None:
    random = Random(version)
    for _ in range(20):
        frame = random_produce(version, random, 30)
        whole = expected(frame, version)
        for limit in range(body_of(frame), len(frame)):
            try:
                assert refusal(frame, version, limit=limit) == whole
            except MalformedFrame:
                continue


@pytest.mark.parametrize("version", VERSIONS)
def test_an_impossible_count_is_refused_before_anything_is_written(version: int) -> None:
    frame = bytearray(produce_of(500, version=version))
    body = body_of(frame)
    flexible = version >= 9
    topics = body + (1 if flexible else 2) + 6
    frame[topics : topics + (1 if flexible else 4)] = (
        b"\xff\xff\xff\xff\x0f" if flexible else b"\x7f\xff\xff\xff"
    )
    with pytest.raises(MalformedFrame):
        refusal(bytes(frame), version)


def kafka_python_produce() -> tuple[Any, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it reads its own files in a deprecated way
        module = importlib.import_module("kafka.protocol.producer")
    return module.ProduceRequest, module.ProduceResponse


def test_kafka_python_reads_the_refusal_of_every_version_that_it_knows() -> None:
    _, response = kafka_python_produce()
    for version in range(3, response.max_version + 1):
        frame = produce_of(500, version=version)
        decoded_answer = response.decode(refusal(frame, version)[4:], version=version, header=True)
        (topic,) = decoded_answer.responses
        (partition,) = topic.partition_responses
        assert partition.error_code == 19
        assert partition.base_offset == -1
        assert partition.log_append_time_ms == -1
        assert decoded_answer.throttle_time_ms == THROTTLE_MS
        assert decoded_answer.header.correlation_id == 77
        if version >= 8:
            assert partition.error_message == TEXT


def test_kafkas_own_classes_read_the_refusal_and_write_the_same_bytes() -> None:
    random = Random(9)
    with java_oracle() as java:
        for version in VERSIONS:
            for _ in range(5):
                frame = random_produce(version, random, 100)
                answered = refusal(frame, version)[4:]
                written, _ = java.rewrite("response", PRODUCE, version, answered)
                assert written == answered


OLD_REQUEST = (  # acks 1, timeout 1000; topic "t" with partition 3 (5 bytes of records) and 4 (null)
    b"\x00\x01\x00\x00\x03\xe8\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x02"
    b"\x00\x00\x00\x03\x00\x00\x00\x05hello\x00\x00\x00\x04\xff\xff\xff\xff"
)
OLD_HEAD = "00000007" + "00000001" + "0001" + "74" + "00000002"
NONE_64 = "ffffffffffffffff"


@pytest.mark.parametrize(
    ("version", "tail", "throttle"),
    [(0, "0013" + NONE_64, ""), (1, "0013" + NONE_64, "000004d2"), (2, "0013" + NONE_64 * 2, "000004d2")],
)
def test_the_layouts_that_kafka_has_dropped_are_written_as_they_were(
    version: int, tail: str, throttle: str
) -> None:
    """ProduceResponse.json before 4.0: v1 adds throttle_time_ms, v2 the append time."""
    written = refuse_produce(
        bytearray(OLD_REQUEST),
        0,
        len(OLD_REQUEST),
        version,
        7,
        error_code=19,
        message=TEXT,
        throttle_ms=1_234,
    )
    assert written == sized(bytes.fromhex(OLD_HEAD + "00000003" + tail + "00000004" + tail + throttle))


def test_a_topic_id_is_given_back_as_it_came() -> None:
    frame = produce_of(500, version=13)
    (topic,) = cast("list[Struct]", decoded("response", PRODUCE, 13, refusal(frame, 13)).body["responses"])
    assert topic["topicId"] == TOPIC_ID


@pytest.mark.parametrize("version", [8, 9, 13])
def test_of_many_partitions_the_first_hundred_get_the_message(version: int) -> None:
    """An answer is not many times as large as what it refuses: 20,000 partitions without records took
    20 times as much."""
    topic = TOPIC_ID if version >= 13 else "orders"
    frame = produce({topic: [(number, None) for number in range(5_000)]}, version=version)
    found = decoded("response", PRODUCE, version, refusal(frame, version)).body
    (told,) = cast("list[Struct]", found["responses"])
    partitions = cast("list[Struct]", told["partitionResponses"])
    assert [partition["errorMessage"] for partition in partitions] == [TEXT] * 100 + [None] * 4_900
    assert {partition["errorCode"] for partition in partitions} == {ErrorCode.NOT_ENOUGH_REPLICAS}
