"""No request keeps the others waiting, whatever it names: what is long is not decoded."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.protocol.apis import ApiKey
from sluice.protocol.codec.codec import decode_frame
from sluice.protocol.codec.wire import uuid_text
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.own_topic import topic_acl
from sluice.proxy.session.own_topic.own_topic import OwnTopic
from testkit.frames.frames import METADATA, request
from testkit.proxy.playbook import Shell
from tests.proxy.session.own_topic.test_topic_acl import (
    FETCH,
    ID_TEXT,
    LIST_OFFSETS,
    NAME,
    OTHER,
    OTHER_TEXT,
    body_of,
    fetch_of,
    shell,
)
from tests.proxy.session.own_topic.test_unknown_ids import UNKNOWN, by_id

MANY = [uuid_text(number.to_bytes(16, "big")) for number in range(1_000, 3_000)]
"""of topics that nobody has named"""
FOLLOWER = request(METADATA, 12, correlation_id=2)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How long the frames were that have been decoded."""
    lengths: list[int] = []

    def noted(direction: Any, api_key: int, version: int, frame: bytes) -> Any:
        lengths.append(len(frame))
        return decode_frame(direction, api_key, version, frame)

    monkeypatch.setattr(topic_acl, "decode_frame", noted)
    return lengths


def asked_by(one: Shell) -> int:
    topic = one.shared.own_topic
    assert topic is not None
    return len(topic.wanted)


@pytest.mark.parametrize("version", range(13, 19))
def test_a_long_fetch_by_unknown_ids_is_told_so_as_a_whole(decoded: list[int], version: int) -> None:
    one = shell()
    sent = fetch_of([OTHER_TEXT, *MANY], version)
    assert len(sent) > 64 * 1024
    one.client_sends(sent)
    body = body_of(FETCH, version, one.to_client)
    assert (body["errorCode"], body["responses"]) == (UNKNOWN, [])
    assert not one.to_broker
    assert not decoded
    assert one.cause is None
    assert asked_by(one) == 1_000


@pytest.mark.parametrize("version", [1, 2])
def test_a_share_fetch_by_unknown_ids_is_never_decoded(decoded: list[int], version: int) -> None:
    one = shell()
    one.client_sends(by_id(ApiKey.SHARE_FETCH, version, OTHER_TEXT, *MANY))
    assert body_of(ApiKey.SHARE_FETCH, version, one.to_client)["errorCode"] == UNKNOWN
    assert not decoded


@pytest.mark.parametrize("version", [12, 13])
def test_a_long_fetch_that_names_it_ends_its_connection(decoded: list[int], version: int) -> None:
    own, other = (NAME, [f"orders-{number}" for number in range(2_000)]) if version < 13 else (ID_TEXT, MANY)
    one = shell()
    one.client_sends(fetch_of([*other, own], version))
    assert one.cause is DisconnectCause.OWN_TOPIC
    assert NAME in one.detail
    assert not one.to_broker
    assert not decoded


@pytest.mark.parametrize("version", [12, 13])
def test_a_long_fetch_of_others_passes(decoded: list[int], version: int) -> None:
    others = [f"orders-{number}" for number in range(3_000)] if version < 13 else [OTHER_TEXT] * 3_000
    sent = fetch_of(others, version)
    one = shell()
    one.client_sends(sent)
    assert one.to_broker == sent
    assert not decoded


def test_a_long_deletion_of_others_passes_and_one_by_unknown_ids_ends_its_connection(
    decoded: list[int],
) -> None:
    topics: Any = [{"name": f"orders-{number}"} for number in range(3_000)]
    known: Any = {"name": None, "topicId": OTHER_TEXT}
    sent = request(ApiKey.DELETE_TOPICS, 6, {"topics": [*topics, known]})
    one = shell()
    one.client_sends(sent)
    assert one.to_broker == sent
    unknown: Any = {"name": None, "topicId": MANY[0]}
    one = shell()
    one.client_sends(request(ApiKey.DELETE_TOPICS, 6, {"topics": [*topics, unknown]}))
    assert one.cause is DisconnectCause.OWN_TOPIC
    assert "no answer has named" in one.detail
    assert asked_by(one) == 1
    assert not decoded


@pytest.mark.parametrize("name", [NAME + "2", "west." + NAME, "x" + NAME + "y" * 200])
@pytest.mark.parametrize("version", [5, 6])
def test_a_name_that_contains_its_name_is_another(decoded: list[int], name: str, version: int) -> None:
    partitions: Any = [{"partitionIndex": number} for number in range(9_000)]
    sent = request(LIST_OFFSETS, version, {"topics": [{"name": name, "partitions": partitions}]})
    one = shell()
    one.client_sends(sent)
    if (name, version) == (NAME + "2", 5):  # its length is the compact one of ours
        assert one.cause is DisconnectCause.OWN_TOPIC
    else:
        assert one.to_broker == sent
    assert not decoded


@pytest.mark.parametrize("length", [b"\x10", b"\x90\0", b"\x90\x80\0", b"\x90\x80\x80\x80\x70"])
def test_its_name_is_found_however_its_length_is_written(length: bytes) -> None:
    sent = request(LIST_OFFSETS, 6, {"topics": [{"name": NAME, "partitions": []}]})
    sent = sent[4:].replace(b"\x10" + NAME.encode(), length + NAME.encode())
    one = shell()
    one.client_sends(len(sent).to_bytes(4, "big") + sent)
    assert not one.to_broker
    assert one.to_client or one.cause


@pytest.mark.parametrize("size", [1, 15, 125, 126, 127, 128, 249])
def test_names_of_any_length_are_found(size: int) -> None:
    topic = OwnTopic("q" * size, frozenset())
    for version in (5, 6):
        sent = request(LIST_OFFSETS, version, {"topics": [{"name": topic.name, "partitions": []}]})
        assert any(form in sent for form in topic.name_forms)


@pytest.mark.parametrize("version", [3, 5])
def test_what_members_of_a_group_tell_each_other_is_not_looked_into(decoded: list[int], version: int) -> None:
    written: Any = (b"\0\x0f" + NAME.encode()).hex()
    sent = request(ApiKey.SYNC_GROUP, version, {"groupId": "g", "assignments": [{"assignment": written}]})
    one = shell()
    one.client_sends(sent)
    assert one.to_broker == sent
    assert not decoded


def test_behind_a_refusal_a_connection_waits_the_longer_the_longer_the_request_was() -> None:
    topics: Any = [{"name": NAME, "partitions": [{"partitionIndex": 0}]}]
    more: Any = [{"name": f"orders-{number}", "partitions": []} for number in range(500)]
    small, half = (request(LIST_OFFSETS, 6, {"topics": each}) for each in (topics, topics + more))
    for sent, wait_ms in (
        (small, len(small) * 1_000 / 16_384),
        (half, len(half) * 1_000 / 16_384),
        (fetch_of([NAME], 12), 1_000),
        (fetch_of([MANY[0]], 13), 1_000),
    ):
        one = shell()
        one.client_sends(sent + FOLLOWER)
        assert one.to_client
        one.advance(wait_ms - 2)
        assert not one.to_broker
        one.advance(4)
        assert one.to_broker == FOLLOWER


def test_what_was_decoded_and_is_another_thing_has_its_connection_wait_too() -> None:
    sent = request(8, 7, {"groupId": NAME, "topics": []})
    one = shell()
    one.client_sends(sent + FOLLOWER)
    assert one.to_broker == sent
    one.advance(20)
    assert one.to_broker == sent + FOLLOWER


@pytest.mark.parametrize(("topics", "passes"), [(20_000, True), (20_001, False)])
def test_who_names_very_many_topics_ends_its_connection(topics: int, passes: bool) -> None:
    none = fetch_of([], 13)
    assert none.endswith(b"\1\1\1\0")
    count = bytes([(topics + 1) & 0x7F | 0x80, (topics + 1) >> 7 & 0x7F | 0x80, (topics + 1) >> 14])
    sent = none[4:-4] + count + (OTHER + b"\1\0") * topics + none[-3:]
    one = shell()
    one.client_sends(len(sent).to_bytes(4, "big") + sent)
    assert bool(one.to_broker) == passes
    assert one.cause is (None if passes else DisconnectCause.MALFORMED_FRAME)
