"""Sessions of followers over time: partitions that come late or leave, others' sessions, what never falls."""

from __future__ import annotations

from typing import Any

from sluice.protocol.apis import ErrorCode
from sluice.protocol.replication.fetch_request import ReplicaFetch
from sluice.proxy.session.replication.followers import Replication
from sluice.proxy.session.replication.mirror import SessionMirror
from sluice.quotas.replication.limits import ReplicationLimits, ThrottledReplicas
from testkit.oracles.replica_model import CAP, Log, ModelFollower, key_of
from testkit.oracles.replica_world import ALL_REPLICAS, LEADER, NAMES, World

KEYS = [key_of(index % 3, index) for index in range(6)]


def a_world(rate: float = 500.0, followers: int = 1) -> tuple[World, list[ModelFollower]]:
    """Followers that are behind on six partitions, each of 100 records of 100 bytes."""
    world = World()
    world.limit(ReplicationLimits({LEADER: rate}, {}, ALL_REPLICAS))
    found = [ModelFollower(2 + number) for number in range(followers)]
    for key in KEYS:
        world.broker.logs[key] = Log(100, 100)
        for follower in found:
            follower.wanted[key] = 0
    return world, found


def rounds(world: World, follower: ModelFollower, count: int) -> None:
    for _ in range(count):
        world.fetch(follower)
        world.now_ms += 50.0


def mirror_of(world: World, follower: ModelFollower) -> SessionMirror:
    (mirror,) = (m for m in world.replication.sessions if m.session_id == follower.session_id)
    return mirror


def test_what_is_followed_no_more_leaves_the_brokers_session_and_waits_no_more() -> None:
    """Whether it was let through just now, or left out: one after the other, with fetches between."""
    world, (follower,) = a_world()
    rounds(world, follower, 4)
    for key in KEYS:
        del follower.wanted[key]
        if not follower.wanted:
            break
        rounds(world, follower, 3)  # each holds the broker's session against the mirror's
        assert key not in world.broker.sessions[follower.session_id].partitions
        assert mirror_of(world, follower).waiting.keys() <= follower.wanted.keys()
    assert follower.errors == []
    assert mirror_of(world, follower).partitions.keys() == {KEYS[-1]}


def test_what_left_may_come_back() -> None:
    world, (follower,) = a_world()
    rounds(world, follower, 4)
    for key in KEYS[:3]:
        at = follower.wanted.pop(key)
        rounds(world, follower, 2)
        follower.wanted[key] = at
        rounds(world, follower, 2)
    rounds(world, follower, 2_000)
    assert all(at == 100 for at in follower.wanted.values())
    assert follower.errors == []


def test_a_partition_that_comes_late_is_known_as_soon_as_another_is_let_through() -> None:
    """How far it is behind costs nothing to learn; its turn comes later."""
    world, (follower,) = a_world()
    rounds(world, follower, 4)
    late = key_of(3, 0)
    world.broker.logs[late] = Log(100, 70)
    follower.wanted[late] = 0
    before = sum(follower.came_bytes.values())
    while sum(follower.came_bytes.values()) == before:
        rounds(world, follower, 1)
    assert mirror_of(world, follower).partitions[late].high_watermark == 70
    assert follower.wanted[late] == 0


def test_without_sessions_what_a_full_fetch_names_no_more_is_forgotten() -> None:
    """Five of six are given up; the one that is left gets all of the rate."""
    world, (follower,) = a_world(1_000.0)
    world.broker.gives_sessions = False
    rounds(world, follower, 3)
    for key in KEYS[1:]:
        del follower.wanted[key]
    begun_ms = world.now_ms
    while follower.wanted[KEYS[0]] < 100:
        world.fetch(follower)
        world.now_ms += 5.0
    assert world.now_ms - begun_ms < 1.2 * 10_000.0
    assert follower.errors == []


def test_a_session_is_its_followers_and_nobody_elses() -> None:
    """Who names another's session is told so; so is the other then, and fetches all anew."""
    world, (one, other) = a_world(1e6, followers=2)
    rounds(world, one, 2)
    rounds(world, other, 2)
    other.session_id, other.epoch = one.session_id, one.epoch
    rounds(world, other, 1)
    assert other.errors == [ErrorCode.INVALID_FETCH_SESSION_EPOCH]
    rounds(world, one, 1)
    assert one.errors == [ErrorCode.INVALID_FETCH_SESSION_EPOCH]
    rounds(world, one, 2)
    assert len(one.errors) == 1


def test_an_epoch_that_is_not_the_next_one_is_refused() -> None:
    world, (follower,) = a_world()
    rounds(world, follower, 2)
    follower.epoch += 1
    rounds(world, follower, 1)
    assert follower.errors == [ErrorCode.INVALID_FETCH_SESSION_EPOCH]


def test_the_lag_is_what_is_left_of_all_that_is_known() -> None:
    world, (follower,) = a_world(1e6)
    rounds(world, follower, 1)
    for key, log in world.broker.logs.items():
        log.end += 1 + key[1]
    rounds(world, follower, 1)
    behind = sum(log.high_watermark - follower.session[key] for key, log in world.broker.logs.items())
    assert mirror_of(world, follower).lag == behind > 0


def test_bytes_that_passed_a_throttle_do_not_fall_when_it_ends_or_another_begins() -> None:
    world, (follower,) = a_world(1e6)
    limits = ReplicationLimits({LEADER: 1e6}, {2: 1e6}, ALL_REPLICAS, ALL_REPLICAS)
    world.limit(limits)
    rounds(world, follower, 5)
    replication = world.replication
    came = sum(follower.came_bytes.values())
    assert came > 0
    assert (replication.leader_throttled_bytes, replication.follower_throttled_bytes) == (came, {2: came})
    assert replication.passed_bytes == {2: came}
    world.limit(ReplicationLimits())
    assert (replication.leader_throttled_bytes, replication.follower_throttled_bytes) == (came, {2: came})
    for log in world.broker.logs.values():
        log.end += 10
    rounds(world, follower, 5)
    assert sum(follower.came_bytes.values()) > came
    assert (replication.leader_throttled_bytes, replication.follower_throttled_bytes) == (came, {2: came})
    unthrottled = sum(follower.came_bytes.values()) - came
    world.limit(limits)
    for log in world.broker.logs.values():
        log.end += 10
    rounds(world, follower, 5)
    throttled = sum(follower.came_bytes.values()) - unthrottled
    assert throttled > came
    assert replication.leader_throttled_bytes == replication.follower_throttled_bytes[2] == throttled


def test_a_topic_without_a_name_and_a_partition_that_is_not_listed_are_not_throttled() -> None:
    replication = Replication(LEADER)
    listed = {"t0": ThrottledReplicas(frozenset({(0, LEADER), (1, 2)}))}
    replication.apply(ReplicationLimits({LEADER: 9.0}, {2: 8.0}, listed, listed), NAMES, 0.0)
    leader, follower = replication.leader_bucket, replication.follower_buckets[2]
    assert replication.buckets_of(key_of(0, 0), 2) == (leader,)
    assert replication.buckets_of(key_of(0, 1), 2) == (follower,)
    assert replication.buckets_of(key_of(0, 1), 3) == ()
    assert replication.buckets_of(key_of(1, 0), 2) == ()
    assert replication.buckets_of((bytes(16), 0), 2) == ()
    assert replication.all_buckets(2) == (leader, follower)
    assert replication.all_buckets(3) == (leader,)


def test_the_epoch_behind_the_last_is_the_first() -> None:
    mirror = SessionMirror(2, Replication(LEADER))
    mirror.epoch = 2**31 - 2
    mirror.went()
    assert mirror.epoch == 2**31 - 1
    mirror.went()
    assert mirror.epoch == 1


def test_a_session_of_which_all_has_left_is_closed_by_the_broker_and_forgotten() -> None:
    world, (follower,) = a_world(1e6)
    rounds(world, follower, 2)
    assert len(world.replication.sessions) == 1
    follower.wanted.clear()
    rounds(world, follower, 1)
    assert len(world.replication.sessions) == len(world.broker.sessions) == 0


def test_what_is_wanted_again_before_the_broker_knew_that_it_had_left_is_in_its_session_still() -> None:
    """The fetch that forgot it was held, and its connection ended."""
    world, (follower,) = a_world()
    rounds(world, follower, 1)
    mirror = mirror_of(world, follower)
    first = KEYS[0]
    assert mirror.partitions[first].inside
    mirror.take(asking(mirror, forgotten=[first]))
    assert first not in mirror.partitions
    mirror.take(asking(mirror, asked=[(first, 0, CAP, b"entry")]))
    assert mirror.partitions[first].inside
    assert not mirror.plan(asking(mirror), world.now_ms).taken_out


def asking(mirror: SessionMirror, **fields: Any) -> ReplicaFetch:
    """A later fetch of its session."""
    return ReplicaFetch(
        **{
            "frame": bytes(64), "version": 18, "fixed": 0, "topics": 0, "tail": 0,
            "replica_id": mirror.replica_id, "max_wait_ms": 500, "max_bytes": 10_000_000,
            "session_id": mirror.session_id,
            "epoch": mirror.epoch, "asked": [], "forgotten": [], **fields,
        }
    )  # fmt: skip


def test_a_session_that_the_broker_has_lost_is_forgotten_and_what_was_granted_comes_back() -> None:
    """The broker has restarted: error 70. The follower begins anew, and its bucket owes nothing for it."""
    world, (follower,) = a_world()
    rounds(world, follower, 2)
    lost = mirror_of(world, follower)
    bucket = world.replication.leader_bucket
    assert bucket is not None
    request = world.to_broker(follower)
    assert request is not None
    tokens = bucket.tokens_bytes(world.now_ms)
    granted = sum(expected for sent in sent_of(world, follower) for _, _, expected, _ in sent.grants)
    assert granted > 0
    world.broker.sessions.clear()
    answer = world.broker.serve(request)
    world.door(follower).pass_on(answer, world.now_ms, 20)
    follower.handle(answer, world.broker.logs)
    assert follower.errors[-1] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert lost not in world.replication.sessions
    assert bucket.tokens_bytes(world.now_ms) == tokens + granted
    rounds(world, follower, 2_000)
    assert all(at == 100 for at in follower.wanted.values())


def sent_of(world: World, follower: ModelFollower) -> list[Any]:
    replicas = world.door(follower).session._requests.replicas
    assert replicas is not None
    return list(replicas._sent)


def test_two_followers_that_take_turns_on_one_connection_without_sessions_leave_no_place_behind() -> None:
    world, (first,) = a_world()
    world.broker.gives_sessions = False
    second = ModelFollower(3)
    second.wanted = dict(first.wanted)
    door = world.door(first)
    world.doors[second] = door
    rounds(world, first, 2)
    replicas = door.session._requests.replicas
    assert replicas is not None
    before = replicas._sessionless
    rounds(world, second, 1)
    assert replicas._sessionless is not before
    assert replicas._sessionless is not None
    assert replicas._sessionless.replica_id == 3


def test_what_is_let_through_at_its_own_cap_and_brought_nothing_is_not_asked_for_anew() -> None:
    """A rate that is never reached: the broker's session has it as it should be."""
    world, (follower,) = a_world(rate=1e9)
    late = key_of(3, 0)
    rounds(world, follower, 1)
    mirror = mirror_of(world, follower)
    for key in KEYS:
        assert mirror.partitions[key].inside
    world.broker.logs[late] = Log(100, 70)
    follower.wanted[late] = 0
    request = world.to_broker(follower)
    assert request is not None
    mirror.answered(sent_of(world, follower)[-1].grants, [], CAP, world.now_ms)
    plan = mirror.plan(asking(mirror, max_bytes=CAP, topics=32), world.now_ms)
    assert {partition.key for partition, *_ in plan.grants} >= {late}
    assert plan.sent == []


def test_a_follower_that_begins_anew_with_its_old_session_has_left_that_one_when_its_request_goes() -> None:
    """KIP-227: epoch 0 with an id closes that session, and asks for another."""
    world, (follower,) = a_world()
    rounds(world, follower, 2)
    assert [mirror.session_id for mirror in world.replication.sessions] == [follower.session_id]
    follower.epoch = 0
    assert follower.session_id
    assert world.to_broker(follower) is not None
    assert world.replication.sessions == ()
