"""Topic ids that nobody has named: one may be the own topic's, made anew a moment ago."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from sluice.protocol.apis import ApiKey
from sluice.protocol.codec.wire import uuid_text
from sluice.protocol.produce import ProduceUsage
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.own_topic.own_topic import OwnTopic
from testkit.frames.frames import METADATA, answer, request
from tests.proxy.session.own_topic.test_topic_acl import (
    FETCH,
    ID_TEXT,
    NAME,
    OTHER,
    OTHER_TEXT,
    PRODUCE,
    REFUSED,
    body_of,
    fetch_of,
    produce_to,
    shell,
)

NEW = bytes(range(200, 216))
"""of a topic that was made a moment ago"""
NEW_TEXT = uuid_text(NEW)
UNKNOWN = 100
MADE_UP = [uuid_text(number.to_bytes(16, "big")) for number in range(1_000, 2_000)]


def named(topics: Any, version: int = 12) -> tuple[bytes, bytes]:
    """A question for Metadata, and its answer; `topics`: (name, id, error)."""
    told: Any = [
        {"errorCode": code, "name": name, "topicId": uuid_text(topic_id), "partitions": [{}]}
        for name, topic_id, code in topics
    ]
    asked = request(METADATA, version, {"topics": None}, correlation_id=7)
    return asked, answer(METADATA, version, {"topics": told}, correlation_id=7)


def by_id(api_key: int, version: int, *topics: str) -> bytes:
    if api_key == PRODUCE:
        return produce_to(topics, version)
    if api_key == FETCH:
        return fetch_of(topics, version)
    if api_key == ApiKey.DELETE_TOPICS:
        return request(api_key, version, {"topics": [{"name": None, "topicId": each} for each in topics]})
    shares: Any = [{"partitionIndex": 0, "acknowledgementBatches": []}]
    wanted: Any = [{"topicId": each, "partitions": shares} for each in topics]
    return request(api_key, version, {"memberId": "m", "topics": wanted})


BY_ID = pytest.mark.parametrize(
    ("api_key", "version"),
    [(PRODUCE, 13), *((FETCH, each) for each in range(13, 19)), (ApiKey.DELETE_TOPICS, 6)]
    + [(ApiKey.SHARE_FETCH, each) for each in (1, 2)],
)


@BY_ID
def test_an_id_that_nobody_has_named_is_unknown_until_an_answer_names_it(api_key: int, version: int) -> None:
    """The topic may have been made anew: a client that asked a broker just then knew its id before us."""
    one = shell()
    sent = by_id(api_key, version, OTHER_TEXT, NEW_TEXT)
    one.client_sends(sent)
    one.advance(2_000)
    assert not one.to_broker
    assert str(UNKNOWN) in str(body_of(api_key, version, one.to_client))
    asked, told = named([("orders-2", NEW, 0)])
    one.client_sends(asked)
    one.broker_sends(told)
    one.client_sends(sent)
    assert one.to_broker == asked + sent


@BY_ID
def test_its_new_id_is_known_from_whichever_answer_names_it_and_its_old_one_stays(
    api_key: int, version: int
) -> None:
    asked, told = named([(NAME, NEW, 0)])
    for topic_id in (NEW_TEXT, ID_TEXT):
        one = shell()
        one.client_sends(asked)
        one.broker_sends(told)
        del one.to_client[:]
        one.client_sends(by_id(api_key, version, OTHER_TEXT, topic_id))
        assert one.to_broker == asked
        if api_key == ApiKey.SHARE_FETCH:
            assert one.cause is DisconnectCause.OWN_TOPIC
        else:
            assert str(REFUSED) in str(body_of(api_key, version, one.to_client))


@pytest.mark.parametrize("topics", [[(None, NEW, REFUSED)], [("orders", bytes(16), 3)]])
def test_an_answer_that_tells_no_name_or_no_id_names_nothing(topics: Any) -> None:
    """Who may not describe a topic is told that its id is one, and not whose."""
    asked, told = named(topics)
    one = shell()
    one.client_sends(asked)
    one.broker_sends(told)
    for topic_id in (NEW, bytes(16)):
        one.client_sends(produce_to([uuid_text(topic_id)], 13))
        one.advance(2_000)
    assert one.to_broker == asked


def test_a_fetch_says_which_topic_is_the_unknown_one() -> None:
    one = shell()
    one.client_sends(fetch_of([OTHER_TEXT, NEW_TEXT], 17))
    responses = body_of(FETCH, 17, one.to_client)["responses"]
    assert {each["topicId"]: each["partitions"][0]["errorCode"] for each in responses} == {
        OTHER_TEXT: 0,
        NEW_TEXT: UNKNOWN,
    }


def test_of_a_produce_to_it_and_to_an_unknown_id_the_refusal_is_told() -> None:
    for topics in ([NEW_TEXT, ID_TEXT], [ID_TEXT, NEW_TEXT]):
        one = shell()
        one.client_sends(produce_to(topics, 13))
        for response in body_of(PRODUCE, 13, one.to_client)["responses"]:
            assert response["partitionResponses"][0]["errorCode"] == REFUSED


def test_an_unacknowledged_produce_by_an_unknown_id_ends_the_connection() -> None:
    one = shell()
    one.client_sends(produce_to([NEW_TEXT], 13, acks=0))
    one.advance(2_000)
    assert not one.to_broker
    assert one.cause is DisconnectCause.OWN_TOPIC
    assert "no answer has named" in one.detail


@pytest.mark.parametrize("acks", [0, 1])
def test_a_produce_by_an_unknown_id_waits_for_the_brokers_word_and_all_behind_it(acks: int) -> None:
    """Refused while the next, known by then, was not, it would be stored behind that: also of an idempotent
    producer that is new there."""
    one = shell()
    sent = b"".join(produce_to([NEW_TEXT], 13, acks=acks, correlation_id=number) for number in range(5))
    one.client_sends(sent[:-10])
    one.advance(500)
    one.client_sends(sent[-10:] + request(METADATA, 12))
    one.advance(500)
    assert not one.to_broker
    topic = one.shared.own_topic
    assert topic is not None
    topic.learn(NEW, "orders-2")
    one.advance(20)
    assert one.to_broker == sent + request(METADATA, 12)
    assert not one.to_client


def test_a_produce_that_waits_is_walked_when_it_comes_and_when_it_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Thousands of partitions, walked anew every 20 ms, took all of the process's time."""
    walked: list[int] = []
    read = ProduceUsage.read

    def noted(usage: ProduceUsage, *where: Any) -> None:
        walked.append(1)
        read(usage, *where)

    monkeypatch.setattr(ProduceUsage, "read", noted)
    one = shell()
    topic = one.shared.own_topic
    assert topic is not None
    one.client_sends(produce_to([OTHER_TEXT, NEW_TEXT], 13))
    for _ in range(50):
        topic.wanted.clear()
        one.advance(20)
        assert list(topic.wanted) == [NEW], "it is asked about anew: of another broker perhaps"
    assert (len(walked), bytes(one.to_client)) == (1, b"")
    topic.learn(NEW, "orders-2")
    one.advance(20)
    assert (len(walked), bytes(one.to_client)) == (2, b"")
    assert one.to_broker


def test_a_produce_whose_unknown_id_turns_out_to_be_the_own_topics_is_refused_so() -> None:
    one = shell()
    topic = one.shared.own_topic
    assert topic is not None
    one.client_sends(produce_to([NEW_TEXT, MADE_UP[0]], 13))
    topic.is_known_as(NEW)
    one.advance(20)
    assert not one.to_broker
    for response in body_of(PRODUCE, 13, one.to_client)["responses"]:
        assert response["partitionResponses"][0]["errorCode"] == REFUSED


@pytest.mark.parametrize(("count", "waits"), [(100, True), (101, False)])
def test_a_produce_by_very_many_unknown_ids_does_not_wait(count: int, waits: bool) -> None:
    one = shell()
    topic = one.shared.own_topic
    assert topic is not None
    one.client_sends(produce_to(MADE_UP[:count], 13))
    assert len(topic.wanted) == count, "who tries again finds them named"
    assert (not one.to_client) == waits
    one.advance(2_000)
    responses = body_of(PRODUCE, 13, one.to_client)["responses"]
    assert {each["partitionResponses"][0]["errorCode"] for each in responses} == {UNKNOWN}
    assert not one.to_broker


@pytest.mark.parametrize(("count", "version"), [(1_000, 13), (1_000, 12), (1, 13)])
def test_behind_a_refused_produce_the_connection_waits_by_what_it_cost(count: int, version: int) -> None:
    one = shell()
    topics = MADE_UP[:count] if version >= 13 else [NAME, *(f"t{number}" for number in range(count - 1))]
    one.client_sends(produce_to(topics, version))
    one.advance(0 if count > 100 or version < 13 else 2_000)
    assert one.to_client
    del one.to_client[:]
    follower = request(METADATA, 12, correlation_id=2)
    one.client_sends(follower)
    if count > 1:
        one.advance(90)
        assert not one.to_broker
        one.advance(40)
    assert one.to_broker == follower


def test_what_an_absent_client_left_behind_waits_for_that_word_as_long_as_any() -> None:
    """The Produce before it, which is dropped when its client has left, had waited for 1.9 s: of its time the
    rest was left."""
    one = shell()
    behind = produce_to([NEW_TEXT], 13, acks=0)
    one.client_sends(produce_to([NEW_TEXT], 13) + behind)
    one.advance(1_900)
    one.client_leaves()
    one.advance(1_900)
    topic = one.shared.own_topic
    assert topic is not None
    topic.learn(NEW, "orders-2")
    one.advance(20)
    assert one.to_broker == behind
    assert one.cause is DisconnectCause.LEFT_WHILE_HELD


def test_admins_may_use_ids_that_nobody_has_named() -> None:
    sent = produce_to([NEW_TEXT], 13) + fetch_of([NEW_TEXT], 17)
    one = shell(admins=["ANONYMOUS"])
    one.client_sends(sent)
    assert one.to_broker == sent


def test_the_brokers_are_asked_about_unknown_ids_of_which_few_are_kept() -> None:
    topic = OwnTopic(NAME, frozenset())
    asked: list[int] = []
    topic.ask = lambda: asked.append(len(topic.wanted))
    for number in range(2_000):
        assert topic.error_of(number.to_bytes(16, "big")) == UNKNOWN
    assert len(asked) == len(topic.wanted) == 1_000


def test_of_very_many_topics_the_ids_that_were_named_first_are_forgotten() -> None:
    topic = OwnTopic(NAME, frozenset())
    for number in range(1, 100_002):
        topic.learn(number.to_bytes(16, "big"), "orders")
    codes = [topic.error_of(number.to_bytes(16, "big")) for number in (1, 2, 100_001)]
    assert codes == [UNKNOWN, 0, 0]


def test_it_may_be_made_anew_many_times() -> None:
    topic = OwnTopic(NAME, frozenset())
    for number in range(1, 100):
        topic.is_known_as(number.to_bytes(16, "big"))
    assert topic.topic_id == (99).to_bytes(16, "big")
    assert len(topic.own_ids) == 8
    assert [topic.error_of(number.to_bytes(16, "big")) for number in (1, 92, 99)] == [UNKNOWN, 29, 29]


def test_while_its_id_is_not_known_nobody_writes_it() -> None:
    one = shell(topic_id=b"")
    one.client_sends(produce_to([NAME], 12))
    one.client_sends(produce_to([ID_TEXT], 13, correlation_id=2))
    assert not one.to_broker


def test_an_id_that_was_taken_for_anothers_is_its_own_once_it_is_known() -> None:
    """Between two questions to the brokers our login had come to be allowed to describe it."""
    for its_id_came_first in (False, True):
        one = shell()
        topic = one.shared.own_topic
        assert topic is not None
        if its_id_came_first:
            topic.is_known_as(NEW)
        topic.learn(NEW, "")
        if not its_id_came_first:
            assert topic.error_of(NEW) == 0
            topic.is_known_as(NEW)
        assert topic.error_of(NEW) == REFUSED
        one.client_sends(produce_to([OTHER_TEXT, NEW_TEXT], 13))
        one.advance(2_000)
        one.client_sends(fetch_of([NEW_TEXT], 13))
        assert not one.to_broker


def test_a_fetch_hides_no_topic_behind_a_tagged_field_that_lies_about_its_size() -> None:
    """Two topics, and for a broker the first one's partition has a replica directory of 16 bytes, whatever
    size is told. Whoever goes by that skips the second topic, and finds one behind it that the broker does
    not read any more."""
    partition = struct.pack(">iiqiqi", 0, -1, 0, -1, -1, 1 << 20)
    second, end = b"\0" + NEW + b"\2" + partition + b"\0" + b"\0", b"\1\1\0"
    lie = b"\1\0" + bytes([16 + len(second) + len(end)]) + bytes(16) + second + end
    hidden = OTHER + b"\2" + partition + lie + b"\0" + OTHER + b"\2" + partition + b"\0" + b"\0"
    none = fetch_of([], 17)
    sent = none[4:-4] + b"\3" + hidden + end
    one = shell()
    one.client_sends(len(sent).to_bytes(4, "big") + sent)
    assert one.cause is DisconnectCause.MALFORMED_FRAME
    assert "has 16" in one.detail
    assert not one.to_broker
