"""What a connection remembers of its requests' topics is bounded, and never told of another request."""

from __future__ import annotations

import uuid
from random import Random

import pytest

from sluice.protocol.apis import OFFERED
from sluice.protocol.codec.wire import Struct, uuid_text
from sluice.proxy.session.topic_attribution import Flows
from testkit.access_log.attribution import (
    FETCHES,
    FULL,
    NEXT,
    PRODUCES,
    fetched,
    flow_of,
    logged,
    produced,
    told,
    topic_of,
)
from testkit.frames.frames import PRODUCE, SHARE_FETCH, answer, produce, record_batch, request


def test_a_connection_keeps_few_flows_however_many_topics_it_writes_to() -> None:
    shell = logged()
    for number in range(1_000):
        assert (
            topic_of(shell, produce({f"topic-{number}": [(0, record_batch())]}, acks=0)) == f"topic-{number}"
        )
    flows = shell.session._requests._flows
    assert flows is not None
    assert len(flows._flows) <= 64


@pytest.mark.parametrize("version", PRODUCES)
def test_topics_by_turns_are_told_apart_though_none_is_read_twice(version: int) -> None:
    shell = logged()
    turns = ["a", "b", "orders", "b", "a", "a", "orders", "b"]
    for topic in turns * 2:
        assert topic_of(shell, produced([topic], version, acks=0)) == told(topic, version)
        assert topic_of(shell, produced(["a", "b"], version, acks=0)) == ""
    flows = shell.session._requests._flows
    assert flows is not None
    assert len(flows.produces) == 4, "of each topic, and of several"


@pytest.mark.parametrize("version", FETCHES)
def test_fetches_of_topics_by_turns_are_told_apart_though_none_is_read_twice(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = logged()
    turns = [["a"], ["b"], ["a", "b"], ["orders"]]
    first = [topic_of(shell, fetched(topics, version)) for topics in turns]
    assert first == [told("a", version), told("b", version), "", told("orders", version)]
    monkeypatch.setattr(Flows, "_read_fetch", None)
    for topics, topic in [*zip(turns, first, strict=True)] * 3:
        assert topic_of(shell, fetched(topics, version, epoch=-1)) == topic


def test_who_has_another_client_id_is_not_taken_for_the_last_one() -> None:
    shell = logged()
    for client_id in ("app", "other", "app"):
        for topic in ("a", "b", "a"):
            assert topic_of(shell, fetched([topic], 12, client_id=client_id)) == topic
            assert flow_of(shell).client_id == client_id


def test_the_same_bytes_at_another_version_are_of_the_topic_of_that_version() -> None:
    """02 10 …: at version 12 a name of fifteen bytes, at version 13 an id that begins with 10."""
    shell, name = logged(), "fifteen-letters"
    assert topic_of(shell, fetched([name], 12)) == name
    assert topic_of(shell, fetched(["b"], 12)) == "b"
    head = b"\2\x10" + name.encode()
    old = fetched([name], 12)
    partitions = fetched(["a"], 13).partition(uuid.UUID(bytes=b"a".ljust(16, b"\0")).bytes)[2]
    new = old[:6] + b"\0\x0d" + old[8 : old.index(head)] + head + partitions
    new = (len(new) - 4).to_bytes(4, "big") + new[4:]
    assert topic_of(shell, new) == uuid_text(head[1:])


def test_a_connection_keeps_few_heads_however_many_ways_its_requests_begin() -> None:
    shell = logged()
    for number in range(1_000):
        body: Struct = {
            "transactionalId": "x" * (number % 300),
            "acks": 0,
            "timeoutMs": number,
            "topicData": [{"name": "a", "partitionData": [{"index": 0, "records": record_batch().hex()}]}],
        }
        assert topic_of(shell, request(PRODUCE, 9, body)) == "a"
    flows = shell.session._requests._flows
    assert flows is not None
    assert len(flows.produces) <= 64
    assert len(flows.produces._lengths) <= 8


def test_a_topics_name_that_is_too_long_for_one_is_not_kept() -> None:
    shell = logged()
    for name, told_as in (
        ("x" * 250, ""),
        ("x" * 249, "x" * 249),
        ("x" * 250, ""),
        ("y" * 400, ""),
        ("a", "a"),
    ):
        for _ in range(2):
            assert topic_of(shell, produce({name: [(0, record_batch())]}, acks=0)) == told_as
    flows = shell.session._requests._flows
    assert flows is not None
    assert max(len(begin) for begin in flows.produces._known) < 300
    for topics, epoch, told_as in (["x" * 250], FULL, ""), (["b"], NEXT, ""), (["b"], FULL, "b"):
        assert topic_of(shell, fetched(topics, 12, epoch=epoch)) == told_as


def test_a_session_that_is_opened_without_topics_is_not_of_the_last_ones_topic() -> None:
    shell = logged()
    for topics, epoch, expected in (
        (["a"], FULL, "a"),
        ([], NEXT, "a"),
        ([], NEXT + 1, "a"),
        ([], FULL, ""),
        ([], 1, ""),
        (["b"], 2, "b"),
        ([], 3, "b"),
    ):
        told_as = "" if not expected else told(expected, 18)
        assert topic_of(shell, fetched(topics, 18, epoch=epoch)) == told_as, (topics, epoch)


def test_a_share_fetch_is_of_no_topic_whatever_the_fetches_before_it_asked_for() -> None:
    shell = logged()
    for topics, epoch in (["a"], FULL), ([], NEXT), (["a", "b"], FULL):
        shell.client_sends(fetched(topics, 18, epoch=epoch) * 2)
        body: Struct = {"groupId": "g", "memberId": "m", "shareSessionEpoch": 3, "batchSize": 500}
        for version in range(OFFERED[SHARE_FETCH][0], OFFERED[SHARE_FETCH][1] + 1):
            assert topic_of(shell, request(SHARE_FETCH, version, body)) == ""


@pytest.mark.parametrize("version", [6, 7, 11, 12, 13, 18])
def test_whatever_requests_follow_each_other_each_is_of_its_topic(version: int) -> None:
    """Against what they say by themselves: a Fetch's session is remembered here, and no request's bytes."""
    produce_version = 13 if version >= 13 else 8 if version < 12 else 9
    for seed in range(40):
        random = Random(seed)
        shell = logged()
        session, is_several = "", False
        kinds = random.sample(range(4), 2)  # few, so that they come again
        for _ in range(60):
            kind = random.choice(kinds)
            topics = random.sample(["a", "b", "orders"], [0, 1, 1, random.randrange(4)][kind])
            if random.random() < 0.4:
                acks = random.choice([0, 1])
                frame = produced(topics, produce_version, acks=acks)
                expected = topics[0] if len(topics) == 1 else ""
            else:
                epoch = random.choice([FULL, -1, NEXT, NEXT, NEXT])
                is_new = epoch <= 0 or version < 7
                session, is_several = ("", False) if is_new else (session, is_several)
                is_several |= len(topics) > 1 or bool(session and topics and topics[0] != session)
                session = "" if is_several else topics[0] if topics else session
                frame, expected = fetched(topics, version, epoch=epoch), session
            in_flight = len(shell.session._in_flight)
            assert topic_of(shell, frame) == (expected and told(expected, version)), (seed, topics)
            if frame[4:6] == b"\0\0":
                assert len(shell.session._in_flight) - in_flight == acks


@pytest.mark.parametrize("version", PRODUCES)
def test_acks_are_those_of_each_request_whatever_the_last_of_its_topic_had(version: int) -> None:
    """A request that begins like the last is not looked at again: one whose acks differ does not begin so."""
    shell = logged()
    for acks in (1, 1, 0, 0, -1, -1, 1, 0):
        shell.client_sends(produced(["a"], version, acks=acks))
        last = shell.session._in_flight
        assert len(last) == (acks != 0)
        if acks:
            shell.broker_sends(answer(PRODUCE, version))


def test_the_same_bytes_at_another_version_have_the_acks_of_that_version() -> None:
    """00 02 X 00 00 01 …: at version 9 no tags, a transactional id of one byte and acks 0; at version 8 an id
    of two bytes and acks 1."""
    shell = logged()
    topic: Struct = {
        "name": "a",
        "partitionData": [{"index": 0, "records": record_batch().hex()}],
    }
    body: Struct = {"transactionalId": "X", "acks": 0, "timeoutMs": 0x01000000, "topicData": [topic]}
    flexible = request(PRODUCE, 9, body)
    for _ in range(2):
        shell.client_sends(flexible)
        assert len(shell.session._in_flight) == 0
    shell.client_sends(flexible[:6] + b"\0\x08" + flexible[8:])
    assert len(shell.session._in_flight) == 1


def test_a_produce_whose_topics_name_never_comes_is_of_none_and_not_of_the_last_ones() -> None:
    """200,000 bytes long: more than are waited for to know whose it is."""
    shell = logged()
    assert topic_of(shell, produced(["a"], 9)) == "a"
    late = produce({"t" * 32_767: [(0, record_batch(b"x"))]}, version=9)
    late = late.replace(b"\x80\x80\x02" + b"t" * 32_767, b"\xc1\x9a\x0c" + b"t" * 200_000)
    begin = ((len(late) - 4).to_bytes(4, "big") + late[4:])[: 130 * 1024]
    shell.client_sends(begin)
    assert (shell.cause, shell.to_broker.endswith(begin)) == (None, True)
    assert flow_of(shell).named_key()[-1] == ""
