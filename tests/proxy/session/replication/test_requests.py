"""Who counts as a follower on an inter-broker listener, and what becomes of broken and odd frames there."""

from __future__ import annotations

import pytest

from sluice.proxy.session.connection_states import State
from sluice.proxy.session.errors import BrokerMalformed
from sluice.proxy.session.in_flight import CHARGE, DECLARED, REPLICA
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.replication.followers import MAX_SESSIONS, OTHER_REPLICAS, Replication
from sluice.proxy.session.replication.inter_broker import InterBroker
from sluice.proxy.session.replication.mirror import SessionMirror
from sluice.proxy.session.session import Session
from sluice.quotas.manager import QuotaManager
from sluice.usage.flow import AccessFlow, TopicNames
from sluice.usage.records import Recorder
from testkit.frames.frames import FETCH, decoded, request
from testkit.oracles.replica_model import Log, ModelFollower, key_of
from testkit.oracles.replica_world import Door, World
from testkit.proxy.playbook import limits_of, shared_of


def session_of(replication: Replication | None, user: str | None = None) -> Session:
    shared = shared_of(limits_of(fetch_rate=1_000))
    return Session(shared, SessionPolicy(replication=replication), "10.0.0.1", user)


def work_of(session: Session, frame: bytes) -> object:
    """What is to be done with the answer to a Fetch."""
    assert session.client_data(bytearray(frame), 0, len(frame), 10_000.0) == len(frame)
    return session._in_flight[-1][9]


def a_followers_fetch(version: int = 18) -> bytes:
    follower = ModelFollower(2, version)
    follower.wanted[key_of(0, 0)] = 0
    return follower.ask()


def test_a_followers_fetch_is_looked_through_on_an_inter_broker_listener_alone() -> None:
    assert work_of(session_of(Replication(1)), a_followers_fetch()) is REPLICA
    assert work_of(session_of(None), a_followers_fetch()) is CHARGE


@pytest.mark.parametrize("version", [12, 13, 14, 15, 18])
def test_a_consumers_fetch_is_charged_there_as_anywhere(version: int) -> None:
    body = {"maxWaitMs": 500, "minBytes": 1, "maxBytes": 50_000}
    frame = request(FETCH, version, {**body}, correlation_id=1, client_id="app")
    assert work_of(session_of(Replication(1)), frame) is CHARGE


def test_a_follower_that_names_topics_is_left_alone() -> None:
    frame = request(FETCH, 12, {"replicaId": 2, "maxBytes": 1_000}, correlation_id=1, client_id="f")
    assert work_of(session_of(Replication(1)), frame) is CHARGE


def test_only_brokers_principals_are_followers_where_they_are_named() -> None:
    replication = Replication(1, users=frozenset({"broker"}))
    assert work_of(session_of(replication, "broker"), a_followers_fetch()) is REPLICA
    assert work_of(session_of(replication, "mallory"), a_followers_fetch()) is CHARGE


def test_a_followers_fetch_that_is_broken_ends_the_connection() -> None:
    frame = bytearray(a_followers_fetch())
    frame[frame.index(key_of(0, 0)[0]) + 16] = 0x7F  # 126 partitions, where there is one
    session = session_of(Replication(1))
    session.client_data(frame, 0, len(frame), 10_000.0)
    assert session.pace.state is State.ENDING


def test_an_answer_that_contradicts_its_layout_ends_the_connection() -> None:
    """Its records would go beyond its end, which shows when the rest comes."""
    world = World()
    world.broker.logs[key_of(0, 0)] = Log(100, 5)
    follower = ModelFollower(2)
    follower.wanted[key_of(0, 0)] = 0
    door = Door(world.replication)
    _, out = door.ask(follower.ask(), 1_000.0)
    answer = bytearray(world.broker.serve(out))
    at = answer.index(b"\xab") - 1
    answer[at] = 0x7F  # 126 bytes of records follow, it says, where 501 do
    first, rest = answer[: at + 20], answer[at + 20 :]
    assert door.session.broker_data(first, 0, len(first), 1_000.0) == len(first)
    with pytest.raises(BrokerMalformed):
        door.session.broker_data(rest, 0, len(rest), 1_000.0)


def test_sessions_and_followers_are_bounded() -> None:
    replication = Replication(1)
    for number in range(MAX_SESSIONS + 5):
        replication.begun(SessionMirror(number, replication), number + 1)
        replication.passed(number, 10)
    assert len(replication.sessions) == MAX_SESSIONS
    assert replication.sessions[0].session_id == 6  # the oldest went
    assert len(replication.passed_bytes) == MAX_SESSIONS + 1
    assert replication.passed_bytes[OTHER_REPLICAS] == 50


def test_a_broker_may_have_the_id_0() -> None:
    follower = ModelFollower(0)
    follower.wanted[key_of(0, 0)] = 0
    assert work_of(session_of(Replication(1)), follower.ask()) is REPLICA


def test_a_session_that_begins_again_under_its_id_is_the_youngest() -> None:
    replication = Replication(1)
    first, second, again = (SessionMirror(number, replication) for number in (1, 2, 3))
    for mirror, session_id in ((first, 1), (second, 2), (again, 1)):
        replication.begun(mirror, session_id)
    assert replication.sessions == (second, again)


def test_the_refusal_of_a_session_that_is_not_known_tells_no_throttle_and_its_id() -> None:
    world = World()
    follower = ModelFollower(2)
    follower.wanted[key_of(0, 0)] = 0
    follower.session_id, follower.epoch = 77, 3
    what, frame = world.door(follower).ask(follower.ask(), 1_000.0)
    body = decoded("response", FETCH, 18, frame).body
    told = body["throttleTimeMs"], body["errorCode"], body["sessionId"], body["responses"]
    assert (what, told) == ("answered", (0, 71, 77, []))


@pytest.mark.parametrize("named", [None, "broker"])
def test_a_followers_fetch_is_no_topics_in_the_access_log(named: str | None) -> None:
    """Judged by the mirror of its session, or, on a client's listener, let pass for its principal's sake."""
    shared = SharedState(QuotaManager(limits_of(fetch_rate=1_000)), Recorder(), topic_names=TopicNames())
    policy = (
        SessionPolicy(replication=Replication(1))
        if named is None
        else SessionPolicy(inter_broker=InterBroker(users=frozenset({named})))
    )
    session = Session(shared, policy, "10.0.0.1", named)
    assert work_of(session, a_followers_fetch()) is (REPLICA if named is None else DECLARED)
    flow = session.identity.flow
    assert isinstance(flow, AccessFlow)
    assert flow.named_key()[-2:] == ("fetch", "")


def test_a_fetch_of_a_session_that_is_not_known_is_answered_here_and_took_no_time() -> None:
    replication = Replication(1)
    session = session_of(replication)
    frame = request(
        FETCH,
        18,
        {"replicaState": {"replicaId": 2}, "sessionId": 9, "sessionEpoch": 4, "maxBytes": 1_000},
        correlation_id=77,
    )
    session.client_data(bytearray(frame), 0, len(frame), 10_000.0)
    assert replication.unknown_sessions == 1
    (record,) = session._requests._records
    assert record[1] == len(frame)
    assert record[3:6] == (0.0, 0.0, 0.0), "upstream, throttle and hold"
