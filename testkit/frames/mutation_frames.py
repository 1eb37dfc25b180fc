"""Frames of CreateTopics, DeleteTopics and CreatePartitions, and of the proxy's questions before them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sluice.protocol.codec.wire import Struct, Value, uuid_text
from testkit.frames.frames import answer, decoded, request

CREATE_TOPICS = 19
DELETE_TOPICS = 20
CREATE_PARTITIONS = 37
METADATA = 3
NO_ID = uuid_text(bytes(16))
REFUSED = 89


def topic_id(number: int) -> str:
    """A topic's id, as the codec has it."""
    return uuid_text(number.to_bytes(16, "big"))


def create(
    topics: Mapping[str, int], *, version: int = 7, validate_only: bool = False, correlation_id: int = 1
) -> bytes:
    """CreateTopics of {name: partitions}."""
    values: list[Value] = [
        {"name": name, "numPartitions": partitions, "replicationFactor": -1}
        for name, partitions in topics.items()
    ]
    body: Struct = {"topics": values, "timeoutMs": 30_000, "validateOnly": validate_only}
    return request(CREATE_TOPICS, version, body, correlation_id=correlation_id)


def created(
    results: Mapping[str, tuple[int, int]],
    *,
    version: int = 7,
    throttle_ms: int = 0,
    correlation_id: int = 1,
    configs: int = 0,
) -> bytes:
    """Its answer: {name: (error, partitions told)}."""
    told: list[Value] = []
    for name, (error, partitions) in results.items():
        value: Struct = {"name": name, "errorCode": error, "errorMessage": None}
        if version >= 5:
            value |= {"numPartitions": partitions, "replicationFactor": -1}
            many: list[Value] = [
                {"name": f"config.{n}", "value": "x" * n, "configSource": 5} for n in range(configs)
            ]
            value["configs"] = many
        told.append(value)
    body: Struct = {"throttleTimeMs": throttle_ms, "topics": told}
    return answer(CREATE_TOPICS, version, body, correlation_id=correlation_id)


def delete(
    topics: Sequence[str], *, ids: Sequence[int] = (), version: int = 6, correlation_id: int = 1
) -> bytes:
    """DeleteTopics of these names, then of these ids."""
    if version < 6:
        body: Struct = {"topicNames": list(topics), "timeoutMs": 30_000}
    else:
        asked: list[Value] = [{"name": name, "topicId": NO_ID} for name in topics]
        asked += [{"name": None, "topicId": topic_id(number)} for number in ids]
        body = {"topics": asked, "timeoutMs": 30_000}
    return request(DELETE_TOPICS, version, body, correlation_id=correlation_id)


def deleted(
    results: Mapping[str, tuple[int, int]], *, version: int = 6, throttle_ms: int = 0, correlation_id: int = 1
) -> bytes:
    """Its answer: {name: (error, id)}."""
    told: list[Value] = []
    for name, (error, number) in results.items():
        value: Struct = {"name": name, "errorCode": error}
        if version >= 6:
            value["topicId"] = topic_id(number)
        told.append(value)
    body: Struct = {"throttleTimeMs": throttle_ms, "responses": told}
    return answer(DELETE_TOPICS, version, body, correlation_id=correlation_id)


def grow(
    topics: Mapping[str, int], *, version: int = 3, validate_only: bool = False, correlation_id: int = 1
) -> bytes:
    """CreatePartitions of {name: partitions in the end}."""
    values: list[Value] = [
        {"name": name, "count": count, "assignments": None} for name, count in topics.items()
    ]
    body: Struct = {"topics": values, "timeoutMs": 30_000, "validateOnly": validate_only}
    return request(CREATE_PARTITIONS, version, body, correlation_id=correlation_id)


def grown(
    results: Mapping[str, int], *, version: int = 3, throttle_ms: int = 0, correlation_id: int = 1
) -> bytes:
    """Its answer: {name: error}."""
    told: list[Value] = [{"name": name, "errorCode": error} for name, error in results.items()]
    body: Struct = {"throttleTimeMs": throttle_ms, "results": told}
    return answer(CREATE_PARTITIONS, version, body, correlation_id=correlation_id)


def question(topics: Sequence[str] = (), *, ids: Sequence[int] = (), correlation_id: int = 1) -> bytes:
    """What the proxy asks the broker."""
    asked: list[Value] = [{"topicId": NO_ID, "name": name} for name in topics]
    asked += [{"topicId": topic_id(number), "name": None} for number in ids]
    body: Struct = {"topics": asked, "allowAutoTopicCreation": False}
    return request(METADATA, 12, body, correlation_id=correlation_id)


def sizes(topics: Mapping[str, tuple[int, int]], *, correlation_id: int = 1) -> bytes:
    """What the broker answers: {name: (id, partitions)}; 0 partitions: there is no such topic."""
    told: list[Value] = []
    for name, (number, count) in topics.items():
        partitions: list[Value] = [
            {
                "errorCode": 0,
                "partitionIndex": index,
                "leaderId": 1,
                "leaderEpoch": 0,
                "replicaNodes": [1, 2, 3],
                "isrNodes": [1, 2],
                "offlineReplicas": [3],
            }
            for index in range(count)
        ]
        told.append(
            {
                "errorCode": 0 if count else 3,
                "name": name,
                "topicId": topic_id(number),
                "isInternal": False,
                "partitions": partitions,
                "topicAuthorizedOperations": -(2**31),
            }
        )
    brokers: list[Value] = [{"nodeId": 1, "host": "broker-1", "port": 9092, "rack": None}]
    body: Struct = {
        "throttleTimeMs": 0,
        "brokers": brokers,
        "clusterId": "cluster",
        "controllerId": 1,
        "topics": told,
    }
    return answer(METADATA, 12, body, correlation_id=correlation_id)


def errors_in(api_key: int, version: int, frame: bytes | bytearray) -> dict[str | None, int]:
    """{name: error} of an answer."""
    body = decoded("response", api_key, version, frame).body
    key = {CREATE_TOPICS: "topics", DELETE_TOPICS: "responses", CREATE_PARTITIONS: "results"}[api_key]
    topics = body[key]
    assert isinstance(topics, list)
    found: dict[str | None, int] = {}
    for topic in topics:
        assert isinstance(topic, dict)
        name, error = topic["name"], topic["errorCode"]
        assert name is None or isinstance(name, str)
        assert isinstance(error, int)
        found[name] = error
    return found
