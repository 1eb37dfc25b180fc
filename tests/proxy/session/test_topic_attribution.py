"""Of which topic and class a request is, as the access log's records have it, whatever bytes tell it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from random import Random

import pytest

from sluice.protocol._tables import API_NAMES, VERSIONS
from sluice.protocol.codec.wire import Struct, Value, uuid_text
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.session import Session
from sluice.proxy.session.topic_attribution import Flows
from sluice.quotas.manager import QuotaManager
from sluice.usage.flow import AccessFlow, TopicNames
from sluice.usage.records import Flow, Recorder
from testkit.frames.frames import (
    FETCH,
    HEARTBEAT,
    METADATA,
    PRODUCE,
    SASL_HANDSHAKE,
    SHARE_FETCH,
    answer,
    produce,
    record_batch,
    request,
)
from testkit.proxy.playbook import Shell, limits_of, session_of

PRODUCES = range(VERSIONS[PRODUCE][0], VERSIONS[PRODUCE][1] + 1)
FETCHES = range(VERSIONS[FETCH][0], VERSIONS[FETCH][1] + 1)
IDS = {name: uuid_text(name.encode().ljust(16, b"\0")) for name in ("a", "b", "orders")}
FULL, NEXT = 0, 5
"""a fetch session's epoch in its first request, and in a later one"""


def logged(*, authentication_required: bool = False) -> Shell:
    """A connection of a process with an access log."""
    shared = SharedState(QuotaManager(limits_of()), Recorder(), topic_names=TopicNames())
    policy = SessionPolicy(authentication_required=authentication_required)
    return Shell(Session(shared, policy, "10.0.0.7", broker="1"))


def flow_of(shell: Shell) -> AccessFlow:
    """Of the request that was judged last."""
    flow = shell.session.identity.flow
    assert isinstance(flow, AccessFlow)
    return flow


def topic_of(shell: Shell, frame: bytes) -> str:
    shell.client_sends(frame)
    assert shell.to_broker.endswith(frame)
    return flow_of(shell).named_key()[-1]


def produced(topics: Sequence[str], version: int, *, acks: int = 1, header_tags: int = 0) -> bytes:
    names = [IDS[topic] if version >= 13 else topic for topic in topics]
    batches = {name: [(0, record_batch(bytes(40)))] for name in names}
    return produce(batches, version=version, acks=acks, header_tags=header_tags)


def fetched(
    topics: Sequence[str], version: int, *, epoch: int = FULL, client_id: str | None = "app"
) -> bytes:
    name = "topicId" if version >= 13 else "topic"
    values: list[Value] = [
        {name: IDS[topic] if version >= 13 else topic, "partitions": [{"partition": 0}]} for topic in topics
    ]
    body: Struct = {"maxWaitMs": 500, "minBytes": 1, "maxBytes": 1_000_000, "topics": values}
    if version >= 7:
        body |= {"sessionId": 77, "sessionEpoch": epoch}
    return request(FETCH, version, body, client_id=client_id)


def told(topic: str, version: int) -> str:
    return IDS[topic] if version >= 13 else topic


@pytest.mark.parametrize("version", PRODUCES)
def test_a_produce_is_of_its_topic_and_one_of_several_topics_of_none(version: int) -> None:
    shell = logged()
    asked = [["a"], ["a"], ["b"], ["a", "b"], ["a"], []]
    found = [topic_of(shell, produced(topics, version)) for topics in asked]
    assert found == [told("a", version), told("a", version), told("b", version), "", told("a", version), ""]
    assert flow_of(shell).api_class == "produce"


@pytest.mark.parametrize("version", [3, 9, 13])
def test_a_produce_is_of_its_topic_whatever_stands_before_it(version: int) -> None:
    shell = logged()
    one = [(0, record_batch(bytes(40)))]
    name = IDS["orders"] if version >= 13 else "orders"
    frames = [
        produce({name: one}, version=version, acks=acks, transactional_id=transaction, header_tags=tags)
        for acks in (0, 1, -1)
        for transaction in (None, "tx-1")
        for tags in ((0, 2) if version >= 9 else (0,))
    ]
    assert {topic_of(shell, frame) for frame in frames} == {told("orders", version)}


@pytest.mark.parametrize("version", [9, 13])
@pytest.mark.parametrize("step", [1, 7])
def test_it_makes_no_difference_how_the_bytes_arrive(version: int, step: int) -> None:
    shell = logged()
    frames = [produced(["a"], version), fetched(["b"], 18), produced(["b"], version)]
    seen = []
    for frame in frames:
        for at in range(0, len(frame), step):
            shell.client_sends(frame[at : at + step])
        seen.append(flow_of(shell).topic)
    assert shell.to_broker == b"".join(frames)
    assert seen == [told("a", version), IDS["b"], told("b", version)]


def test_what_lies_behind_the_bytes_that_have_arrived_is_not_looked_at() -> None:
    """The rest of an earlier Produce to `a` stands there, in the very place; this one is to `b`."""
    shell = logged()
    first, second = produced(["a"], 9), produced(["b"], 9)
    assert topic_of(shell, first) == "a"
    at = first.index(b"\2\2a") + 1
    shell.stale = first[at:]
    shell.client_sends(second[:at])
    shell.client_sends(second[at:])
    assert flow_of(shell).topic == "b"


@pytest.mark.parametrize("version", [4, 12])
def test_nor_behind_those_of_a_fetch(version: int) -> None:
    shell = logged()
    first, second = fetched(["a"], version), fetched(["b"], version)
    assert [topic_of(shell, frame) for frame in (first, second)] == ["a", "b"]
    at = second.rindex(b"b")
    shell.stale = first[at:]
    shell.client_sends(second[:at])
    shell.client_sends(second[at:])
    assert flow_of(shell).topic == "b"


@pytest.mark.parametrize("version", [8, 9, 13])
@pytest.mark.parametrize("tags", [0, 2])
def test_a_produce_that_ends_too_soon_is_what_it_is_without_a_log(version: int, tags: int) -> None:
    """Its own size says so, and behind it stands all that would make it one that begins like the last."""
    whole = produced(["a"], version, header_tags=tags if version >= 9 else 0)
    behind_client_id = 14 + int.from_bytes(whole[12:14], "big")
    for size in range(behind_client_id - 4, whole.index(b"a", behind_client_id) + 20):
        found = []
        for shell in (logged(), Shell(session_of())):
            shell.client_sends(whole)
            shell.client_sends(size.to_bytes(4, "big") + whole[4:])
            found.append((shell.cause, shell.detail, bytes(shell.to_broker), list(shell.session._in_flight)))
        with_log, without = ((*one[:3], [(*work[:3], *work[4:]) for work in one[3]]) for one in found)
        assert with_log == without


@pytest.mark.parametrize("version", FETCHES)
def test_a_fetch_is_of_the_one_topic_that_it_asks_for(version: int) -> None:
    shell = logged()
    found = [topic_of(shell, fetched(topics, version)) for topics in (["a"], ["a"], ["b"], ["a", "b"], [])]
    assert found == [told("a", version), told("a", version), told("b", version), "", ""]
    assert flow_of(shell).api_class == "fetch"


@pytest.mark.parametrize("version", [7, 12, 18])
def test_a_fetch_of_a_session_is_of_the_sessions_topic_whatever_it_names_itself(version: int) -> None:
    """None while nothing changes, one of two when that has brought records; its answer may bring any."""
    shell = logged()
    a, b = told("a", version), told("b", version)

    def found(topics: list[str], epoch: int) -> str:
        return topic_of(shell, fetched(topics, version, epoch=epoch))

    assert [found(["a"], FULL), found([], NEXT), found(["a"], NEXT), found([], NEXT)] == [a, a, a, a]
    assert [found(["b"], NEXT), found(["a"], NEXT), found([], NEXT)] == ["", "", ""]
    assert [found(["b"], FULL), found([], NEXT)] == [b, b], "another session"


def metadata_answer(version: int, *names: str) -> bytes:
    topics: list[Value] = [
        {"name": name, "topicId": IDS[name], "partitions": [{"partitionIndex": 0, "leaderId": 1}]}
        for name in names
    ]
    return answer(METADATA, version, {"brokers": [{"nodeId": 1, "host": "h", "port": 9}], "topics": topics})


@pytest.mark.parametrize("version", [10, 11, 12, 13])
def test_an_id_becomes_a_name_when_an_answer_to_metadata_has_passed(version: int) -> None:
    shell = logged()
    before = topic_of(shell, produced(["orders"], 13, acks=0))
    told_names = metadata_answer(version, "a", "orders")
    shell.client_sends(request(METADATA, version))
    shell.broker_sends(told_names)
    assert shell.to_client == told_names
    after = [topic_of(shell, produced(["orders"], 13, acks=0)), topic_of(shell, fetched(["orders"], 13))]
    assert (before, after) == (IDS["orders"], ["orders", "orders"])


def test_an_answer_to_metadata_that_cannot_be_read_passes_as_it_is() -> None:
    shell = logged()
    shell.client_sends(request(METADATA, 12))
    broken = metadata_answer(12, "a")
    broken = broken[:12] + b"\xff" * (len(broken) - 12)
    shell.broker_sends(broken)
    assert shell.to_client == broken


def test_every_api_has_a_class_and_those_unknown_are_others() -> None:
    shell = logged()
    classes = {}
    for api_key in (HEARTBEAT, METADATA, SHARE_FETCH, 19, 22, 999):
        version = VERSIONS.get(api_key, (0, 0))[1]
        frame = (
            request(api_key, version)
            if api_key in API_NAMES
            else bytes.fromhex("0000000a03e7000000000001ffff")
        )
        shell.client_sends(frame)
        classes[api_key] = flow_of(shell).api_class
    assert classes == {
        HEARTBEAT: "group",
        METADATA: "metadata",
        SHARE_FETCH: "fetch",
        19: "admin",
        22: "other",
        999: "other",
    }


def test_another_client_id_on_a_connection_is_another_flow_and_the_same_again_the_first() -> None:
    shell = logged()
    flows = []
    for client_id in ("one", "two", "one"):
        shell.client_sends(produce(client_id=client_id))
        flows.append(flow_of(shell))
    assert [flow.client_id for flow in flows] == ["one", "two", "one"]
    assert flows[0] is flows[2]


def test_a_login_belongs_to_the_user_whom_the_broker_said_yes_to() -> None:
    shell = logged(authentication_required=True)
    shell.client_sends(request(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}))
    handshake = flow_of(shell)
    shell.broker_sends(answer(SASL_HANDSHAKE, 1, {"mechanisms": ["PLAIN"]}))
    shell.client_sends(request(36, 2, {"authBytes": b"\0alice\0secret".hex()}))
    shell.broker_sends(answer(36, 2))
    shell.client_sends(produced(["a"], 9))
    keys = [handshake.named_key(), flow_of(shell).named_key()]
    assert [key[1:] for key in keys] == [
        ("alice", "app", "", "login", ""),
        ("alice", "app", "", "produce", "a"),
    ]


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
        for version in range(VERSIONS[SHARE_FETCH][0], VERSIONS[SHARE_FETCH][1] + 1):
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


def test_without_an_access_log_no_topic_is_told() -> None:
    shell = Shell(session_of())
    shell.client_sends(produced(["a"], 9))
    assert type(shell.session.identity.flow) is Flow


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
