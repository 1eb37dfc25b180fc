"""Of which topic and class a request is, as the access log's records have it, whatever bytes tell it."""

from __future__ import annotations

import pytest

from sluice.protocol._tables import API_NAMES, VERSIONS
from sluice.protocol.codec.wire import Value, uuid_bytes
from sluice.proxy.session.topic_attribution import _MAX_FLOWS, Beginnings
from sluice.usage.records import Flow
from testkit.access_log.attribution import (
    FETCHES,
    FULL,
    IDS,
    NEXT,
    PRODUCES,
    fetched,
    flow_of,
    logged,
    produced,
    told,
    topic_of,
)
from testkit.frames.frames import (
    HEARTBEAT,
    METADATA,
    SASL_HANDSHAKE,
    SHARE_FETCH,
    answer,
    produce,
    record_batch,
    request,
)
from testkit.proxy.playbook import Shell, session_of


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
    assert handshake.named_key()[1] == "alice", "though nothing has followed"
    shell.client_sends(produced(["a"], 9))
    keys = [handshake.named_key(), flow_of(shell).named_key()]
    assert [key[1:] for key in keys] == [
        ("alice", "app", "", "login", ""),
        ("alice", "app", "", "produce", "a"),
    ]


def test_without_an_access_log_no_topic_is_told() -> None:
    shell = Shell(session_of())
    shell.client_sends(produced(["a"], 9))
    assert type(shell.session.identity.flow) is Flow


def test_a_topic_whose_name_is_not_told_has_none() -> None:
    shell = logged()
    shell.client_sends(request(METADATA, 12))
    topics: list[Value] = [
        {"name": name, "topicId": IDS[told], "partitions": [{"partitionIndex": 0}]}
        for name, told in ((None, "a"), ("b", "b"))
    ]
    shell.broker_sends(answer(METADATA, 12, {"topics": topics}))
    names = shell.shared.topic_names
    assert names is not None
    assert (names.name(uuid_bytes(IDS["a"])), names.name(uuid_bytes(IDS["b"]))) == (None, "b")


def test_a_client_that_begins_in_ever_new_ways_costs_no_more_memory() -> None:
    beginnings: Beginnings[int] = Beginnings()
    for number in range(3 * _MAX_FLOWS):
        beginnings.keep(b"%08d" % number, number)
        assert 0 < len(beginnings) <= _MAX_FLOWS
        assert beginnings.find(bytearray(b"%08d" % number), 0) == number


def test_a_session_of_several_topics_is_of_the_client_that_fetches_now() -> None:
    shell = logged()
    for client_id in ("app", "ape"):
        shell.client_sends(fetched(["a", "b"], 12, client_id=client_id))
        shell.client_sends(fetched([], 12, epoch=NEXT, client_id=client_id))
        assert (flow_of(shell).client_id, flow_of(shell).topic) == (client_id, "")
    shell.client_sends(fetched([], 12, epoch=NEXT, client_id="app"))
    assert flow_of(shell).client_id == "app"
