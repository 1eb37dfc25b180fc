"""Requests that name the proxy's own topic: whether one does, and the answer that refuses it. Pure.

By the codec of the cold path, for the few requests in which the topic's name or id has been found at all.
The broker's error for a topic that a principal may not use is answered, TOPIC_AUTHORIZATION_FAILED (29), for
every topic of the request: nothing of it goes on. Of a Fetch only the topic itself gets the error, the others
nothing new, for a consumer of many topics shall see which one it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

from sluice.protocol.apis import FETCH, SHARE_FETCH, ApiKey, ErrorCode
from sluice.protocol.codec.codec import DecodedFrame, encode_frame
from sluice.protocol.codec.wire import Struct, Value
from sluice.protocol.fetch_topic_ids import FETCH_FIRST_TOPIC_ID
from sluice.protocol.headers import SIZE_BYTES

BRAKE_MS: Final = 1_000
"""A consumer fetches again at once, and each refusal costs a decoding; this asks it to wait, and has its
connection wait."""
_NAMING: Final = frozenset(
    {
        "name",
        "topic",
        "topicName",
        "topicNames",
        "resourceName",
        "subscribedTopicNames",
        "sourceTopics",
        "repartitionSinkTopics",
    }
)
"""fields that hold topics' names, also of lists"""
_FIRST_WITH_MESSAGE: Final = 5
"""of DeleteTopics"""
UNKNOWN_ID: Final = "This proxy does not know yet whose topic id this is: ask for Metadata, and try again."


def names_topic(value: Value, name: str, topic_ids: Collection[str]) -> bool:
    """Whether a decoded request names this topic. `topic_ids`: all that it has had, as the codec writes
    them."""
    if isinstance(value, dict):
        return any(
            _is_topic(field, inner, name, topic_ids) or names_topic(inner, name, topic_ids)
            for field, inner in value.items()
        )
    return isinstance(value, list) and any(names_topic(inner, name, topic_ids) for inner in value)


def _is_topic(field: str, value: Value, name: str, topic_ids: Collection[str]) -> bool:
    texts = value if isinstance(value, list) else [value]
    if any(topic_id in texts for topic_id in topic_ids):
        return True
    return field in _NAMING and name in texts


def refusal(
    api_key: int, version: int, correlation_id: int, request: Any, name: str, topic_ids: Collection[str]
) -> bytes | None:
    """The answer, size included; None: there is none for this API.

    `request`: the decoded body. `name`, `topic_ids`: of the proxy's topic.
    """
    maker = _MAKERS.get(api_key)
    if api_key == FETCH:
        names = {name} if version < FETCH_FIRST_TOPIC_ID else topic_ids
        body = _fetch(version, request, names, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    elif api_key == ApiKey.DELETE_TOPICS:
        body = _delete_topics(version, request, _message(name))
    elif maker is not None:
        body = maker(request, _message(name))
    else:
        return None
    return _sized(api_key, version, correlation_id, body)


def of_unknown(
    api_key: int, version: int, correlation_id: int, request: Any, topic_ids: Collection[str]
) -> bytes:
    """The answer, size included, to a Fetch or DeleteTopics (`request`: the decoded body) of which some
    topics, `topic_ids`, are nobody's yet."""
    code = ErrorCode.UNKNOWN_TOPIC_ID
    if api_key == FETCH:
        body = _fetch(version, request, topic_ids, code)
    else:
        body = _delete_topics(version, request, UNKNOWN_ID, code)
    return _sized(api_key, version, correlation_id, body)


def of_unknown_as_a_whole(api_key: int, version: int, correlation_id: int) -> bytes:
    """The same to a Fetch or ShareFetch, without saying which topics are meant."""
    body: Struct = {"throttleTimeMs": BRAKE_MS, "errorCode": ErrorCode.UNKNOWN_TOPIC_ID, "responses": []}
    if api_key == SHARE_FETCH:
        body["errorMessage"] = UNKNOWN_ID
    return _sized(api_key, version, correlation_id, body)


def _sized(api_key: int, version: int, correlation_id: int, body: Struct) -> bytes:
    frame = encode_frame("response", api_key, version, DecodedFrame({"correlationId": correlation_id}, body))
    return len(frame).to_bytes(SIZE_BYTES, "big") + frame


def _message(name: str) -> str:
    return f"Topic authorization failed: {name} is the proxy's own."


def _fetch(version: int, request: Any, refused: Collection[str], code: int) -> Struct:
    """`refused`: names or ids, as the version has them."""
    if request.get("sessionEpoch", -1) > 0:
        # A client that loses its session asks for all its partitions anew, and is then told of each.
        return {
            "throttleTimeMs": BRAKE_MS,
            "errorCode": ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
            "responses": [],
        }
    responses: list[Value] = []
    for topic in request["topics"]:
        key = "topic" if version < FETCH_FIRST_TOPIC_ID else "topicId"
        partitions: list[Value] = [
            {
                "partitionIndex": partition["partition"],
                "errorCode": code if topic[key] in refused else 0,
                "highWatermark": -1,
                "abortedTransactions": None,
                "records": "",
            }
            for partition in topic["partitions"]
        ]
        responses.append({key: topic[key], "partitions": partitions})
    return {"throttleTimeMs": BRAKE_MS, "responses": responses}


def _list_offsets(request: Any, _message: str) -> Struct:
    return {"topics": [_with_partitions(topic, "partitionIndex") for topic in request["topics"]]}


def _delete_records(request: Any, _message: str) -> Struct:
    topics: list[Value] = [
        _with_partitions(topic, "partitionIndex", lowWatermark=-1) for topic in request["topics"]
    ]
    return {"topics": topics}


def _with_partitions(topic: Any, index: str, **more: int) -> dict[str, Value]:
    partitions: list[Value] = [
        {index: partition[index], "errorCode": ErrorCode.TOPIC_AUTHORIZATION_FAILED, **more}
        for partition in topic["partitions"]
    ]
    return {"name": topic["name"], "partitions": partitions}


def _create_topics(request: Any, message: str) -> Struct:
    return {"topics": [_named(topic["name"], message) for topic in request["topics"]]}


def _create_partitions(request: Any, message: str) -> Struct:
    return {"results": [_named(topic["name"], message) for topic in request["topics"]]}


def _delete_topics(
    version: int, request: Any, message: str, code: int = ErrorCode.TOPIC_AUTHORIZATION_FAILED
) -> Struct:
    responses = [_named(name, message, code) for name in request.get("topicNames", ())]
    for topic in request.get("topics", ()):
        responses.append(_named(topic["name"], message, code) | {"topicId": topic["topicId"]})
    if version < _FIRST_WITH_MESSAGE:
        for response in responses:
            del response["errorMessage"]
    return {"responses": list(responses)}


def _named(name: str, message: str, code: int = ErrorCode.TOPIC_AUTHORIZATION_FAILED) -> dict[str, Value]:
    return {"name": name, "errorCode": code, "errorMessage": message}


def _alter_configs(request: Any, message: str) -> Struct:
    responses: list[Value] = [
        {
            "errorCode": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            "errorMessage": message,
            "resourceType": resource["resourceType"],
            "resourceName": resource["resourceName"],
        }
        for resource in request["resources"]
    ]
    return {"responses": responses}


_MAKERS: Final[dict[int, Callable[[Any, str], Struct]]] = {
    ApiKey.LIST_OFFSETS: _list_offsets,
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_RECORDS: _delete_records,
    ApiKey.ALTER_CONFIGS: _alter_configs,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _alter_configs,
}
