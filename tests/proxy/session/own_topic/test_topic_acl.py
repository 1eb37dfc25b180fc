"""The proxy's own topic: no request of a client reads or writes it, by name or id, whole or in pieces.

All else passes byte for byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from sluice.protocol.apis import OFFERED, ApiKey, readable_versions
from sluice.protocol.codec.spec_model import load_message
from sluice.protocol.codec.wire import uuid_text
from sluice.protocol.names import api_name
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.own_topic.own_topic import OwnTopic
from sluice.proxy.session.own_topic.topic_acl import TopicGuard
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.session import Session
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.usage.records import Recorder
from testkit.frames.frames import METADATA, answer, decoded, produce, produce_answer, record_batch, request
from testkit.frames.message_values import random_frame
from testkit.proxy.playbook import Shell, limits_of

NAME = "__sluice_quotas"
ID = bytes(range(100, 116))
ID_TEXT = uuid_text(ID)
OTHER = bytes(range(16))
"""of a topic that has been named"""
OTHER_TEXT = uuid_text(OTHER)
PRODUCE, FETCH, LIST_OFFSETS = 0, 1, 2
REFUSED = 29


def shell(*, admins: Sequence[str] = (), topic_id: bytes = ID) -> Shell:
    topic = OwnTopic(NAME, frozenset(admins), topic_id)
    topic.learn(OTHER, "orders")
    shared = SharedState(QuotaManager(limits_of()), Recorder(), own_topic=topic)
    return Shell(Session(shared, SessionPolicy(), "10.0.0.1"))


def body_of(api_key: int, version: int, frame: bytes | bytearray) -> Any:
    return decoded("response", api_key, version, frame).body


def produce_to(topics: Sequence[str], version: int, acks: int = 1, correlation_id: int = 1) -> bytes:
    return produce(
        {topic: [(0, record_batch(b"x" * 50))] for topic in topics},
        version=version, acks=acks, correlation_id=correlation_id,
    )  # fmt: skip


def fetch_of(topics: Sequence[str], version: int, **fields: Any) -> bytes:
    key = "topic" if version < 13 else "topicId"
    partitions = [{"partition": 0, "fetchOffset": 0, "partitionMaxBytes": 100}]
    body = {"topics": [{key: topic, "partitions": partitions} for topic in topics], **fields}
    return request(FETCH, version, body)


# Produce ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", readable_versions(ApiKey.PRODUCE))
def test_a_produce_to_it_is_refused_with_error_29(version: int) -> None:
    own, other = (NAME, "orders") if version < 13 else (ID_TEXT, OTHER_TEXT)
    one = shell()
    one.client_sends(produce_to([other, own], version))
    assert not one.to_broker
    for response in body_of(PRODUCE, version, one.to_client)["responses"]:
        assert [part["errorCode"] for part in response["partitionResponses"]] == [REFUSED]
    assert len(one.records) == 1


def test_a_refused_produce_is_counted_for_the_client_id_that_it_has_itself() -> None:
    """Under a quota on producer ids, where a Produce is first compared with those before it."""
    limits = QuotaLimits([(QuotaEntity(DEFAULT), {"producer_ids_rate": 100})])
    shared = SharedState(QuotaManager(limits), Recorder(), own_topic=OwnTopic(NAME, frozenset(), ID))
    one = Shell(Session(shared, SessionPolicy(), "10.0.0.1"))
    batch = [(0, record_batch(b"x", producer_id=7, epoch=0))]
    for _ in range(4):
        one.client_sends(produce({"orders": batch}, client_id="app"))
        one.broker_sends(produce_answer())
    one.client_sends(produce({NAME: batch}, client_id="ape"))
    assert [record.client_id for record in one.records] == ["app"] * 4 + ["ape"]


@pytest.mark.parametrize("version", readable_versions(ApiKey.PRODUCE))
def test_a_produce_elsewhere_passes_though_its_records_speak_of_it(version: int) -> None:
    other = "orders" if version < 13 else OTHER_TEXT
    sent = produce({other: [(0, record_batch(NAME.encode() + ID))]}, version=version)
    one = shell()
    one.client_sends(sent)
    assert one.to_broker == sent


@pytest.mark.parametrize("version", [7, 12, 13])
def test_a_produce_in_pieces_is_refused_in_whole(version: int) -> None:
    own = NAME if version < 13 else ID_TEXT
    sent = produce_to([own], version)
    one = shell()
    for number in range(len(sent)):
        one.client_sends(sent[number : number + 1])
    follower = produce_to(["orders"], 12, correlation_id=2)
    one.client_sends(follower)
    assert one.to_broker == follower
    assert len(one.to_client) > 0
    assert not one.session._requests._dropping


def test_a_long_produce_elsewhere_is_forwarded_before_it_has_arrived() -> None:
    sent = produce({"orders": [(0, record_batch(b"x" * 100_000))]}, version=12)
    one = shell()
    one.client_sends(sent[:1000])
    assert one.to_broker == sent[:1000]
    one.client_sends(sent[1000:])
    assert one.to_broker == sent


def test_a_long_produce_to_it_is_dropped_to_its_end() -> None:
    sent = produce({NAME: [(0, record_batch(b"x" * 100_000))]}, version=12)
    follower = produce_to(["orders"], 12, correlation_id=2)
    one = shell()
    for start in range(0, len(sent), 10_000):
        one.client_sends(sent[start : start + 10_000])
    one.client_sends(follower)
    assert one.to_broker == follower


def test_a_produce_without_acknowledgement_ends_the_connection() -> None:
    one = shell()
    one.client_sends(produce_to([NAME], 12, acks=0))
    assert not one.to_broker
    assert one.cause is DisconnectCause.OWN_TOPIC
    assert NAME in one.detail


# Fetch ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", readable_versions(ApiKey.FETCH))
def test_a_fetch_of_it_is_refused_and_says_which_it_is(version: int) -> None:
    own, other = (NAME, "orders") if version < 13 else (ID_TEXT, OTHER_TEXT)
    one = shell()
    one.client_sends(fetch_of([other, own], version))
    assert not one.to_broker
    codes = {
        response["topic" if version < 13 else "topicId"]: response["partitions"][0]["errorCode"]
        for response in body_of(FETCH, version, one.to_client)["responses"]
    }
    assert codes == {other: 0, own: REFUSED}


def test_a_fetch_session_that_turns_to_it_is_ended() -> None:
    one = shell()
    one.client_sends(fetch_of([NAME], 12, sessionId=7, sessionEpoch=3))
    assert not one.to_broker
    assert body_of(FETCH, 12, one.to_client)["errorCode"] == 70


def test_a_fetch_of_others_passes() -> None:
    sent = fetch_of(["orders", NAME + "2"], 12)
    one = shell()
    one.client_sends(sent[:20])
    assert not one.to_broker
    one.client_sends(sent[20:])
    assert one.to_broker == sent


# Others -----------------------------------------------------------------------------------------------------

PARTITION: Any = {"partitions": [{"partitionIndex": 0}]}
ADMINISTRATION: list[tuple[int, Any]] = [
    (2, {"topics": [{"name": NAME, **PARTITION}]}),
    (19, {"topics": [{"name": NAME, "numPartitions": 1, "replicationFactor": 1}]}),
    (20, {"topicNames": [NAME], "topics": [{"name": NAME}]}),
    (20, {"topicNames": [NAME], "topics": [{"name": None, "topicId": ID_TEXT}]}),
    (21, {"topics": [{"name": NAME, "partitions": [{"partitionIndex": 0, "offset": 5}]}]}),
    (33, {"resources": [{"resourceType": 2, "resourceName": NAME, "configs": []}]}),
    (37, {"topics": [{"name": NAME, "count": 3}]}),
    (44, {"resources": [{"resourceType": 2, "resourceName": NAME, "configs": []}]}),
]


@pytest.mark.parametrize(("api_key", "body"), ADMINISTRATION)
def test_administration_of_it_is_refused_with_error_29_in_every_version(api_key: int, body: Any) -> None:
    first, last = OFFERED[api_key]
    message = load_message("request", api_key)
    assert message is not None
    for version in range(first, last + 1):
        known = {field.name for field in message.fields if version in field.versions}
        fields = {field: value for field, value in body.items() if field in known}
        one = shell()
        one.client_sends(request(api_key, version, fields))
        assert not one.to_broker
        assert "29" in str(body_of(api_key, version, one.to_client))


@pytest.mark.parametrize("api_key", [8, 23, 24, 28, 34, 43, 45, 47, 68, 76, 78, 79, 88, 91, 92])
def test_what_cannot_be_answered_ends_the_connection(api_key: int) -> None:
    """Commits, transactions, elections, reassignments, groups of the new kind, shares."""
    version = OFFERED[api_key][1]
    message = load_message("request", api_key)
    assert message is not None
    touched = False
    for seed in range(40):
        frame = random_frame("request", api_key, version, Random(seed))
        if not _rename(frame.body):
            continue
        touched = True
        one = shell()
        header: Any = frame.header
        one.client_sends(request(api_key, version, frame.body, correlation_id=header["correlationId"]))
        assert not one.to_broker
        assert one.cause is DisconnectCause.OWN_TOPIC
    assert touched, f"{api_name(api_key)} was never made to name a topic"


def _rename(value: Any) -> bool:
    """Have the first field that names a topic name ours."""
    if isinstance(value, dict):
        for field, inner in value.items():
            if field in {"topic", "topicName"} and isinstance(inner, str):
                value[field] = NAME
                return True
            if (
                field == "name"
                and isinstance(inner, str)
                and {"partitions", "partitionIndexes"} & value.keys()
            ):
                value[field] = NAME
                return True
            if field == "topicId":
                value[field] = ID_TEXT
                return True
            if field == "subscribedTopicNames" and isinstance(inner, list):
                value[field] = [*inner, NAME]
                return True
            if _rename(inner):
                return True
    return isinstance(value, list) and any(_rename(inner) for inner in value)


@pytest.mark.parametrize(
    "sent",
    [
        request(3, 12, {"topics": [{"name": NAME}], "allowAutoTopicCreation": False}),
        request(32, 4, {"resources": [{"resourceType": 2, "resourceName": NAME}]}),
        request(10, 4, {"keyType": 0, "coordinatorKeys": [NAME]}),
        request(11, 9, {"groupId": NAME, "sessionTimeoutMs": 10_000, "protocols": []}),
        request(49, 1, {"entries": [{"entity": [{"entityType": "user", "entityName": NAME}], "ops": []}]}),
        request(18, 3, {"clientSoftwareName": "app"}, client_id=NAME),
        request(22, 4, {"transactionalId": NAME}, client_id=NAME),
    ],
)
def test_what_only_asks_what_it_is_or_means_something_else_passes(sent: bytes) -> None:
    one = shell()
    one.client_sends(sent)
    assert one.to_broker == sent
    assert one.cause is None


def test_admins_read_and_write_it() -> None:
    sent = produce_to([NAME], 12) + fetch_of([NAME], 12) + request(20, 6, {"topics": [{"name": NAME}]})
    one = shell(admins=["ANONYMOUS"])
    one.client_sends(sent)
    assert one.to_broker == sent


def test_refusals_stand_in_order_among_the_brokers_answers() -> None:
    one = shell()
    one.client_sends(
        request(3, 12, {"topics": None}, correlation_id=1)
        + produce_to([NAME], 12, correlation_id=2)
        + request(3, 12, {"topics": None}, correlation_id=3)
    )
    assert not one.to_client
    one.broker_sends(answer(3, 12, correlation_id=1) + answer(3, 12, correlation_id=3))
    ids, data = [], bytes(one.to_client)
    while data:
        ids.append(int.from_bytes(data[4:8], "big"))
        data = data[4 + int.from_bytes(data[:4], "big") :]
    assert ids == [1, 2, 3]


def test_without_a_topic_nothing_is_looked_at() -> None:
    shared = SharedState(QuotaManager(limits_of()), Recorder())
    one = Shell(Session(shared, SessionPolicy(), "10.0.0.1"))
    sent = produce_to([NAME], 12) + fetch_of([NAME], 12)
    one.client_sends(sent)
    assert one.to_broker == sent
    assert one.session._requests._guard is None


@pytest.mark.parametrize("version", readable_versions(ApiKey.DELETE_TOPICS))
def test_a_refused_deletion_says_why_from_the_version_on_that_can(version: int) -> None:
    topics: Any = {"topicNames": [NAME]}
    if version >= 6:
        topics = {"topics": [{"name": NAME, "topicId": uuid_text(bytes(16))}]}
    one = shell()
    one.client_sends(request(ApiKey.DELETE_TOPICS, version, {**topics, "timeoutMs": 1_000}))
    ((response),) = body_of(ApiKey.DELETE_TOPICS, version, one.to_client)["responses"]
    assert (response["name"], response["errorCode"]) == (NAME, REFUSED)
    assert (NAME in str(response.get("errorMessage"))) == (version >= 5)


def test_a_produce_of_a_version_that_cannot_be_read_is_left_to_who_judges_versions() -> None:
    one = shell()
    frame = bytearray(produce_to([ID_TEXT], OFFERED[PRODUCE][1]))
    frame[6:8] = (OFFERED[PRODUCE][1] + 1).to_bytes(2, "big")
    one.client_sends(bytes(frame))
    assert one.cause is DisconnectCause.UNMETERED_VERSION
    assert not one.to_broker


def test_a_guard_must_be_told_who_judges_behind_it() -> None:
    session = shell().session
    requests = session._requests
    guard = TopicGuard(
        OwnTopic(NAME, frozenset(), ID), session.identity, session._in_flight, requests._local, [],
        requests._drop_granted, session.pace,
    )  # fmt: skip
    sent = request(METADATA, 12)
    with pytest.raises(AssertionError, match="was not told who judges"):
        guard.judge(bytearray(sent), 0, len(sent), len(sent), METADATA, 12, 1, 17, 0.0)
