"""Transactions' requests and refusals against the codec, in every version."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from sluice.protocol.apis import OFFERED, STATE_MAKERS, ApiKey, readable_versions
from sluice.protocol.codec.wire import Struct, Value
from sluice.protocol.errors import MalformedFrame
from sluice.protocol.parts import MAX_PARTS
from sluice.protocol.transactions.refusals import RETRIED_ERRORS, refuse_additions
from sluice.protocol.transactions.requests import (
    Addition,
    read_additions,
    read_ended_producer,
    read_handed_out,
    read_transactional_id,
)
from testkit.frames.frames import answer, decoded, request
from testkit.frames.produce_usage import body_of
from testkit.thorough import some

BEFORE = b"\xff" * 7
EVERY_VERSION = [
    (api_key, version) for api_key in sorted(STATE_MAKERS) for version in readable_versions(api_key)
]


def random_topics(random: Random, api_key: int, version: int) -> list[Value]:
    topics: list[Value] = []
    for number in range(random.randrange(4)):
        partitions: list[Any] = [random.randrange(2**31) for _ in range(random.randrange(200))]
        if api_key == ApiKey.TXN_OFFSET_COMMIT:
            partitions = [
                {
                    "partitionIndex": partition,
                    "committedOffset": random.randrange(2**62),
                    **({"committedLeaderEpoch": 7} if version >= 2 else {}),
                    "committedMetadata": random.choice([None, "", "m" * 300]),
                }
                for partition in partitions[:40]
            ]
        topics.append({"name": f"töpic-{number}" * random.choice([1, 30]), "partitions": partitions})
    return topics


def random_request(random: Random, api_key: int, version: int) -> tuple[Struct, list[Addition]]:
    """A body, and what is to be read in it."""
    producer_id, epoch = random.randrange(2**63), random.randrange(2**15)
    group = "grüppe" * random.choice([1, 30])
    if api_key == ApiKey.ADD_OFFSETS_TO_TXN:
        body: Struct = {
            "transactionalId": "täx", "producerId": producer_id, "producerEpoch": epoch, "groupId": group,
        }  # fmt: skip
        return body, [Addition("täx".encode(), producer_id, epoch, [], group.encode())]
    if api_key == ApiKey.ADD_PARTITIONS_TO_TXN and version >= 4:
        transactions: list[Any] = []
        additions = []
        for number in range(random.randrange(4)):
            topics = random_topics(random, api_key, version)
            verify_only = bool(number % 2)
            transactions.append({
                "transactionalId": f"täx{number}", "producerId": producer_id + number, "producerEpoch": epoch,
                "verifyOnly": verify_only, "topics": topics,
            })  # fmt: skip
            name = f"täx{number}".encode()
            additions.append(
                Addition(name, producer_id + number, epoch, read_of(topics), None, verify_only=verify_only)
            )
        return {"transactions": transactions}, additions
    topics = random_topics(random, api_key, version)
    if api_key == ApiKey.ADD_PARTITIONS_TO_TXN:
        body = {
            "v3AndBelowTransactionalId": "täx", "v3AndBelowProducerId": producer_id,
            "v3AndBelowProducerEpoch": epoch, "v3AndBelowTopics": topics,
        }  # fmt: skip
        return body, [Addition("täx".encode(), producer_id, epoch, read_of(topics))]
    body = {
        "transactionalId": "täx", "groupId": group, "producerId": producer_id, "producerEpoch": epoch,
        "topics": topics,
    }  # fmt: skip
    if version >= 3:
        body |= {"generationId": 3, "memberId": "member" * 30, "groupInstanceId": random.choice([None, "i"])}
    return body, [Addition("täx".encode(), producer_id, epoch, read_of(topics), group.encode())]


def read_of(topics: list[Any]) -> list[tuple[bytes, tuple[int, ...]]]:
    return [
        (
            topic["name"].encode(),
            tuple(
                partition["partitionIndex"] if isinstance(partition, dict) else partition
                for partition in topic["partitions"]
            ),
        )
        for topic in topics
    ]


def read(frame: bytes, api_key: int, version: int) -> list[Addition]:
    buf = bytearray(BEFORE + frame + b"\xff" * 50)
    return read_additions(buf, len(BEFORE) + body_of(frame), len(BEFORE) + len(frame), api_key, version)


@pytest.mark.parametrize(("api_key", "version"), EVERY_VERSION)
def test_what_a_request_adds_is_read_as_the_codec_wrote_it(api_key: int, version: int) -> None:
    random = Random(version)
    for _ in range(100):
        body, additions = random_request(random, api_key, version)
        assert read(request(api_key, version, body), api_key, version) == additions


@pytest.mark.thorough
@pytest.mark.parametrize(("api_key", "version"), EVERY_VERSION)
def test_a_request_that_is_cut_off_or_goes_on_behind_its_end_is_malformed(api_key: int, version: int) -> None:
    random = Random(version)
    body, _ = random_request(random, api_key, version)
    frame = request(api_key, version, body)
    for end in some(range(body_of(frame), len(frame))):
        with pytest.raises(MalformedFrame):
            read(frame[:end], api_key, version)
    with pytest.raises(MalformedFrame):
        read(frame + b"\0", api_key, version)


def parts_of(kind: str, count: int, api_key: int, version: int) -> Struct:
    """A request of `count` transactions, topics and partitions."""
    commits = api_key == ApiKey.TXN_OFFSET_COMMIT
    partition: Any = {"partitionIndex": 1, "committedOffset": 1} if commits else 1
    topics: list[Any] = [{"name": "t", "partitions": []}] * count
    if kind == "partitions":
        topics = [{"name": "t", "partitions": [partition] * (count // 2 - 1)}] * 2
    if commits or version < 4:
        return {("topics" if commits else "v3AndBelowTopics"): topics}
    if kind == "transactions":
        return {"transactions": [{"transactionalId": "a", "topics": []}] * count}
    return {"transactions": [{"transactionalId": "a", "topics": topics[:-1]}]}


@pytest.mark.parametrize(
    ("kind", "api_key", "version"),
    [
        ("partitions", ApiKey.ADD_PARTITIONS_TO_TXN, 0),
        ("topics", ApiKey.ADD_PARTITIONS_TO_TXN, 3),
        ("topics", ApiKey.ADD_PARTITIONS_TO_TXN, 4),
        ("transactions", ApiKey.ADD_PARTITIONS_TO_TXN, 5),
        ("partitions", ApiKey.TXN_OFFSET_COMMIT, 0),
        ("partitions", ApiKey.TXN_OFFSET_COMMIT, 3),
        ("topics", ApiKey.TXN_OFFSET_COMMIT, 3),
    ],
)
def test_a_request_of_more_parts_than_anybody_sends_is_refused(kind: str, api_key: int, version: int) -> None:
    """As a Produce: each costs a microsecond or two, in which nobody else is served."""
    assert read(request(api_key, version, parts_of(kind, MAX_PARTS, api_key, version)), api_key, version)
    more = request(api_key, version, parts_of(kind, MAX_PARTS + 2, api_key, version))
    with pytest.raises(MalformedFrame, match="must be ≤ 20,000"):
        read(more, api_key, version)


@pytest.mark.parametrize("place", ["transaction", "topic", "partition"])
def test_tagged_fields_count_as_parts(place: str) -> None:
    """Kafka's clients write none there; each section has 99."""
    tags: Any = {"_unknownTaggedFields": [{"tag": number, "hex": ""} for number in range(99)]}

    def asked(count: int) -> tuple[bytes, int, int]:
        if place == "transaction":
            many: Any = [{"transactionalId": "a", "topics": [], **tags}] * count
            return request(ApiKey.ADD_PARTITIONS_TO_TXN, 4, {"transactions": many}), 24, 4
        if place == "topic":
            many = [{"name": "t", "partitions": [], **tags}] * count
            return request(ApiKey.ADD_PARTITIONS_TO_TXN, 3, {"v3AndBelowTopics": many}), 24, 3
        many = [{"partitionIndex": 1, "committedOffset": 1, **tags}] * count
        body: Any = {"topics": [{"name": "t", "partitions": many}]}
        return request(ApiKey.TXN_OFFSET_COMMIT, 3, body), 28, 3

    most = MAX_PARTS // 100 - (place == "partition")
    assert read(*asked(most))
    with pytest.raises(MalformedFrame, match="must be ≤ 20,000"):
        read(*asked(most + 1))


@pytest.mark.parametrize(("api_key", "version"), EVERY_VERSION)
def test_every_partition_is_refused_in_the_form_of_its_api(api_key: int, version: int) -> None:
    random = Random(version)
    error = RETRIED_ERRORS[api_key]
    for _ in range(50):
        body, additions = random_request(random, api_key, version)
        frame = request(api_key, version, body)
        refused = refuse_additions(read(frame, api_key, version), api_key, version, 77, 1_234)
        expected: Struct = {"throttleTimeMs": 1_234}
        results: list[Any] = [results_of(addition, api_key, error) for addition in additions]
        if api_key == ApiKey.ADD_OFFSETS_TO_TXN:
            expected["errorCode"] = error
        elif api_key == ApiKey.TXN_OFFSET_COMMIT:
            expected["topics"] = results[0]
        elif version >= 4:
            expected["resultsByTransaction"] = [
                {"transactionalId": addition.transactional_id.decode(), "topicResults": result}
                for addition, result in zip(additions, results, strict=True)
            ]
        else:
            expected["resultsByTopicV3AndBelow"] = results[0]
        assert refused == answer(api_key, version, expected, correlation_id=77)


def results_of(addition: Addition, api_key: int, error: int) -> list[Any]:
    partitions, code = (
        ("partitions", "errorCode") if api_key == ApiKey.TXN_OFFSET_COMMIT
        else ("resultsByPartition", "partitionErrorCode")
    )  # fmt: skip
    return [
        {"name": name.decode(), partitions: [{"partitionIndex": index, code: error} for index in indices]}
        for name, indices in addition.topics
    ]


@pytest.mark.parametrize("version", range(OFFERED[ApiKey.END_TXN][1] + 1))
def test_the_producer_whose_transaction_ends_is_read(version: int) -> None:
    body: Struct = {"transactionalId": "täx", "producerId": 2**61 + 1, "producerEpoch": 3, "committed": True}
    frame = bytearray(request(ApiKey.END_TXN, version, body))
    assert read_ended_producer(frame, body_of(bytes(frame)), len(frame), version) == 2**61 + 1


@pytest.mark.parametrize(("error", "expected"), [(0, (2**61 + 1, 0)), (51, (-1, -1))])
def test_the_successor_is_read_in_an_answer_without_error(error: int, expected: tuple[int, int]) -> None:
    body: Struct = {"throttleTimeMs": 9, "errorCode": error, "producerId": 2**61 + 1, "producerEpoch": 0}
    frame = answer(ApiKey.END_TXN, 5, body)
    assert decoded("response", ApiKey.END_TXN, 5, frame).body["errorCode"] == error
    assert read_handed_out(frame, 9, len(frame)) == expected
    with pytest.raises(MalformedFrame):
        read_handed_out(frame, 9, 20)


@pytest.mark.parametrize("version", range(OFFERED[ApiKey.INIT_PRODUCER_ID][1] + 1))
@pytest.mark.parametrize("name", [None, "", "täx", "t" * 300])
def test_the_transactional_id_is_read(version: int, name: str | None) -> None:
    frame = request(ApiKey.INIT_PRODUCER_ID, version, {"transactionalId": name, "transactionTimeoutMs": 1})
    raw = None if name is None else name.encode()
    assert read_transactional_id(frame, body_of(frame), len(frame), version) == raw
