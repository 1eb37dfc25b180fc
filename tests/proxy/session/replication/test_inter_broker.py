"""Followers where replication is not throttled: charged to nobody if declared, else as any client."""

from __future__ import annotations

import pytest

from sluice.protocol.apis import ApiKey, readable_versions
from sluice.protocol.codec.wire import Struct, Value
from sluice.protocol.replication import fetch_request
from sluice.protocol.replication.fetch_request import ReplicaFetch, is_follower, read_replica_fetch
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.policy import SessionPolicy, SharedState
from sluice.proxy.session.replication.inter_broker import InterBroker
from sluice.proxy.session.session import Session
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from testkit.frames.frames import FETCH, TOPIC_ID, fetch, fetch_answer_of, max_bytes_of, request
from testkit.proxy.playbook import Shell, limits_of, shared_of

VERSIONS = readable_versions(ApiKey.FETCH)
LISTENER = InterBroker(is_listener=True)
NOBODY = InterBroker()


def follower_fetch(version: int, *, correlation_id: int = 1, replica_id: int = 2, **further: Value) -> bytes:
    name: Struct = {"topicId": TOPIC_ID} if version >= 13 else {"topic": "t"}
    who: Struct = (
        {"replicaState": {"replicaId": replica_id, "replicaEpoch": 7}}
        if version >= 15
        else {"replicaId": replica_id}
    )
    partition: Struct = {"partition": 0, "fetchOffset": 5, "partitionMaxBytes": 1_048_576}
    body: Struct = {
        **who, "maxWaitMs": 500, "minBytes": 1, "maxBytes": 10_485_760,
        "topics": [{**name, "partitions": [partition]}], **further,
    }  # fmt: skip
    return request(FETCH, version, body, correlation_id=correlation_id, client_id="broker-2-fetcher-0")


def connected(shared: SharedState, inter_broker: InterBroker, user: str | None = None) -> Shell:
    return Shell(Session(shared, SessionPolicy(inter_broker=inter_broker), "10.0.0.9", user))


def fetches(shell: Shell, version: int, count: int = 3, frame_bytes: int = 60_000) -> None:
    """So many fetches of a follower, each with an answer that is a minute's worth of the limit."""
    for number in range(count):
        shell.client_sends(follower_fetch(version, correlation_id=number))
        shell.broker_sends(fetch_answer_of(frame_bytes, version=version, correlation_id=number))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_declared_follower_is_neither_charged_nor_delayed_nor_lowered(version: int) -> None:
    shared = shared_of(limits_of(fetch_rate=1_000))
    shell = connected(shared, LISTENER)
    fetches(shell, version)
    session = shell.session
    assert session.pace.state is State.READING
    assert [sensor.charged for sensor in session.sensors if sensor.kind is QuotaKind.FETCH] == [0]
    assert bytes(shell.to_broker) == b"".join(follower_fetch(version, correlation_id=n) for n in range(3))
    assert shared.recorder.followers == {"exempt": 1, "charged": 0}


@pytest.mark.parametrize("version", VERSIONS)
def test_an_undeclared_follower_is_charged_as_a_client_and_counted(version: int) -> None:
    shared = shared_of(limits_of(fetch_rate=1_000))
    shell = connected(shared, NOBODY)
    fetches(shell, version, count=1)
    assert shell.session.pace.state is State.MUTED
    assert shared.recorder.followers == {"exempt": 0, "charged": 1}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_consumer_on_the_brokers_listener_is_charged(version: int) -> None:
    shared = shared_of(limits_of(fetch_rate=1_000))
    shell = connected(shared, LISTENER)
    shell.client_sends(fetch(version=version))
    shell.broker_sends(fetch_answer_of(60_000, version=version))
    assert shell.session.pace.state is State.MUTED
    assert max_bytes_of(FETCH, version, shell.to_broker) == 1_000
    assert shared.recorder.followers == {"exempt": 0, "charged": 0}


@pytest.mark.parametrize(("user", "is_muted"), [("kafka-1", False), ("mallory", True), (None, True)])
def test_a_principal_of_the_brokers_is_believed_and_no_other(user: str | None, is_muted: bool) -> None:
    shell = connected(
        shared_of(limits_of(fetch_rate=1_000)), InterBroker(users=frozenset({"kafka-1", "kafka-2"})), user
    )
    fetches(shell, 18, count=1)
    assert (shell.session.pace.state is State.MUTED) == is_muted


def test_a_consumer_of_a_brokers_principal_is_charged() -> None:
    shell = connected(
        shared_of(limits_of(fetch_rate=1_000)), InterBroker(users=frozenset({"kafka-1"})), "kafka-1"
    )
    shell.client_sends(fetch(version=18))
    shell.broker_sends(fetch_answer_of(60_000, version=18))
    assert shell.session.pace.state is State.MUTED


def test_who_began_as_a_consumer_does_not_become_a_follower_later() -> None:
    """Brokers' fetchers have connections of their own: the first Fetch tells what a connection is."""
    shell = connected(shared_of(limits_of(fetch_rate=1_000)), LISTENER)
    shell.client_sends(fetch(version=18))
    shell.broker_sends(fetch_answer_of(500, version=18))
    shell.client_sends(follower_fetch(18, correlation_id=2))
    shell.broker_sends(fetch_answer_of(60_000, version=18, correlation_id=2))
    assert shell.session.pace.state is State.MUTED


@pytest.mark.parametrize("version", [4, 12, 14, 15, 18])
@pytest.mark.parametrize("step", [1, 7])
def test_a_followers_first_fetch_may_come_in_parts(version: int, step: int) -> None:
    shared = shared_of(limits_of(fetch_rate=1_000))
    shell = connected(shared, LISTENER)
    frame = follower_fetch(version)
    for at in range(0, len(frame), step):
        shell.client_sends(frame[at : at + step])
    shell.broker_sends(fetch_answer_of(60_000, version=version))
    assert shell.session.pace.state is State.READING
    assert bytes(shell.to_broker) == frame
    assert shared.recorder.followers["exempt"] == 1


def test_a_followers_request_time_is_exempt() -> None:
    limits = {"request_percentage": 0.001, "consumer_byte_rate": 1_000}
    shared = shared_of(QuotaLimits([(QuotaEntity(DEFAULT, None), limits)]))
    shell = connected(shared, LISTENER)
    shell.client_sends(follower_fetch(18))
    shell.now_ms += 10.0
    shell.broker_sends(fetch_answer_of(60_000, version=18))
    assert shell.session.pace.state is State.READING
    assert shared.recorder.exempt_request_ms["cluster_action"] > 0.0


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("replica_id", [0, 1, 2**31 - 1])
def test_every_replica_id_from_0_on_is_one(version: int, replica_id: int) -> None:
    frame = bytearray(follower_fetch(version, replica_id=replica_id))
    head = 14 + len("broker-2-fetcher-0")
    assert is_follower(frame, 0, head, len(frame), len(frame), version) is True


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("replica_id", [-1, -2])
def test_a_negative_replica_id_is_a_consumers_or_a_tools(version: int, replica_id: int) -> None:
    frame = bytearray(follower_fetch(version, replica_id=replica_id))
    head = 14 + len("broker-2-fetcher-0")
    assert is_follower(frame, 0, head, len(frame), len(frame), version) is False


def test_a_rack_that_ends_like_a_replicas_state_makes_no_follower() -> None:
    """A consumer's rack id is behind the topics, before the tags: it could be written so on purpose."""
    frame = bytearray(follower_fetch(18, replica_id=-1, rackId="x\x01\x0d" + "\0" * 12))
    head = 14 + len("broker-2-fetcher-0")
    assert is_follower(frame, 0, head, len(frame), len(frame), 18) is False


@pytest.mark.parametrize("topics", [2_000, 8_000])
def test_a_long_fetch_of_who_is_not_believed_is_not_looked_through(
    monkeypatch: pytest.MonkeyPatch, topics: int
) -> None:
    """It is charged whatever replica it names; to look for that took 50 ms for each MB of it."""
    looked: list[int] = []

    def noted(frame: bytes, body: int, version: int) -> ReplicaFetch:
        looked.append(len(frame))
        return read_replica_fetch(frame, body, version)

    monkeypatch.setattr(fetch_request, "read_replica_fetch", noted)
    shared = shared_of(limits_of(fetch_rate=1_000))
    many: list[Value] = [{"topicId": TOPIC_ID, "partitions": []}] * topics
    sent = follower_fetch(18, topics=many)
    for believed in (False, True):
        shell = connected(shared, LISTENER if believed else NOBODY)
        looked.clear()
        shell.client_sends(sent)
        assert bool(looked) is (believed or topics == 2_000)
