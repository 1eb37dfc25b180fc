"""What is in force for an inter-broker listener: buckets, what passed, and which sessions are mirrored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest

from sluice.protocol.replication.fetch_request import ReplicaFetch
from sluice.proxy.session.replication.followers import MAX_SESSIONS, OTHER_REPLICAS, Replication
from sluice.proxy.session.replication.mirror import SessionMirror
from sluice.quotas.replication.limits import NO_REPLICATION_LIMITS, ReplicationLimits, ThrottledReplicas
from sluice.quotas.replication.throttle import FOLLOWER_SAVED_MS, QUANTUM_MS

ORDERS, RETURNS = b"o" * 16, b"r" * 16
NAMES = {ORDERS: "orders", RETURNS: "returns"}
LEADER, FOLLOWER = 1, 0


def throttled(**pairs: set[tuple[int, int]]) -> dict[str, ThrottledReplicas]:
    """(partition, replica) by topic."""
    return {name: ThrottledReplicas(pairs=frozenset(found)) for name, found in pairs.items()}


def limits_of(
    leader: float | None = 1_000.0, follower: float | None = 500.0, leaders: int = 1, **options: Any
) -> ReplicationLimits:
    """orders-0 is throttled at the leader, returns-1 at the follower."""
    values: dict[str, Any] = {
        "leader_rates": {} if leader is None else {LEADER: leader},
        "follower_rates": {} if follower is None else {FOLLOWER: follower},
        "leader_replicas": throttled(orders={(0, LEADER)}),
        "follower_replicas": throttled(returns={(1, FOLLOWER)}),
        "leaders_of": {FOLLOWER: leaders},
    }
    return ReplicationLimits(**(values | options))


def applied(limits: ReplicationLimits | None = None, **options: Any) -> Replication:
    replication = Replication(LEADER, **options)
    replication.apply(limits or limits_of(), NAMES, 0.0)
    return replication


def test_nothing_is_in_force_until_something_is_applied() -> None:
    replication = Replication(LEADER)
    assert replication.limits is NO_REPLICATION_LIMITS
    assert replication.buckets_of((ORDERS, 0), FOLLOWER) == replication.all_buckets(FOLLOWER) == ()
    assert (replication.leader_throttled_bytes, replication.follower_throttled_bytes) == (0, {})
    assert (replication.generation, replication.unknown_sessions, replication.move_ratio) == (0, 0, None)


def test_a_partition_is_charged_where_its_replica_is_throttled() -> None:
    replication = applied()
    leader, follower = replication.leader_bucket, replication.follower_buckets[FOLLOWER]
    assert leader is not None
    assert replication.buckets_of((ORDERS, 0), FOLLOWER) == (leader,)
    assert replication.buckets_of((RETURNS, 1), FOLLOWER) == (follower,)
    assert replication.all_buckets(FOLLOWER) == (leader, follower)
    assert replication.all_buckets(7) == (leader,)
    for key in ((ORDERS, 1), (RETURNS, 0), (b"x" * 16, 0)):
        assert replication.buckets_of(key, FOLLOWER) == (), key
    both = applied(limits_of(follower_replicas=throttled(orders={(0, FOLLOWER)})))
    assert both.buckets_of((ORDERS, 0), FOLLOWER) == both.all_buckets(FOLLOWER)
    assert both.buckets_of((ORDERS, 0), 7) == (both.leader_bucket,)
    alone = applied(limits_of(None, follower_replicas=throttled(orders={(0, FOLLOWER)})))
    assert alone.buckets_of((ORDERS, 0), FOLLOWER) == (alone.follower_buckets[FOLLOWER],)
    assert alone.all_buckets(7) == ()


def test_rates_are_shared_among_leaders_and_lowered_where_the_broker_throttles_too() -> None:
    replication = applied(limits_of(leaders=2), rate_share=0.98)
    leader, follower = replication.leader_bucket, replication.follower_buckets[FOLLOWER]
    assert leader is not None
    assert (leader.rate_bytes_per_s, follower.rate_bytes_per_s) == (980.0, 245.0)
    assert (leader.saved_ms, follower.saved_ms) == (QUANTUM_MS, FOLLOWER_SAVED_MS)


@pytest.mark.parametrize(
    ("num", "size_s", "debt_ms"), [(11, 1.0, 10_000), (3, 2.0, 4_000), (100, 1.0, 10_000)]
)
def test_a_debt_lasts_as_long_as_the_brokers_windows_remember_and_ten_seconds_at_most(
    num: int, size_s: float, debt_ms: float
) -> None:
    leader = applied(window_num=num, window_size_s=size_s).leader_bucket
    assert leader is not None
    assert leader.max_debt_ms == debt_ms
    assert (leader.rate.window_num, leader.rate.window_ms) == (num, size_s * 1_000)


def test_without_a_rate_or_a_replica_there_is_no_bucket() -> None:
    assert applied(limits_of(None)).leader_bucket is None
    assert applied(limits_of(leader_replicas={})).leader_bucket is None
    assert applied(limits_of(follower=None)).follower_buckets == {}
    assert applied(limits_of(follower_replicas={})).follower_buckets == {}


def test_what_changes_is_applied_to_the_same_buckets_and_what_does_not_changes_nothing() -> None:
    replication = applied()
    leader = replication.leader_bucket
    assert leader is not None
    follower = replication.follower_buckets[FOLLOWER]
    replication.apply(limits_of(), dict(NAMES), 5.0)
    assert replication.generation == 1
    replication.apply(limits_of(2_000.0), NAMES, 5.0)
    assert replication.generation == 2
    assert replication.leader_bucket is leader
    assert replication.follower_buckets == {FOLLOWER: follower}
    assert leader.rate_bytes_per_s == 2_000.0
    assert leader.tat_ms == 5.0 + 95.0 / 2
    replication.apply(limits_of(2_000.0), {ORDERS: "orders"}, 5.0)
    assert replication.generation == 3
    assert replication.buckets_of((RETURNS, 1), FOLLOWER) == ()


def test_what_passed_does_not_fall_when_a_bucket_ends_or_begins_anew() -> None:
    replication = applied()
    for _ in range(2):
        leader = replication.leader_bucket
        assert leader is not None
        leader.settle(0, 100, 1.0)
        replication.follower_buckets[FOLLOWER].settle(0, 30, 1.0)
        replication.apply(limits_of(None, None), NAMES, 2.0)
        replication.apply(limits_of(), NAMES, 3.0)
    leader = replication.leader_bucket
    assert leader is not None
    leader.settle(0, 1, 4.0)
    replication.follower_buckets[FOLLOWER].settle(0, 2, 4.0)
    assert replication.leader_throttled_bytes == 201
    assert replication.follower_throttled_bytes == {FOLLOWER: 62}


def test_what_went_to_each_follower_is_counted_and_those_beyond_a_thousand_together() -> None:
    replication = Replication(LEADER)
    for replica in range(MAX_SESSIONS):
        replication.passed(replica, 1)
    replication.passed(0, 5)
    replication.passed(5_000, 7)
    replication.passed(5_001, 7)
    assert replication.passed_bytes[0] == 6
    assert replication.passed_bytes[OTHER_REPLICAS] == 14
    assert len(replication.passed_bytes) == MAX_SESSIONS + 1


@dataclass
class Asked:
    """What `find` looks at."""

    session_id: int
    epoch: int
    replica_id: int = FOLLOWER


class Mirror(SessionMirror):
    left = 0

    def dropped(self) -> None:
        self.left += 1
        super().dropped()


def found(replication: Replication, *asked: int) -> SessionMirror | None:
    return replication.find(cast(ReplicaFetch, Asked(*asked)))


def test_a_session_is_found_by_its_id_its_epoch_and_its_replica() -> None:
    replication = Replication(LEADER)
    mirror = Mirror(FOLLOWER, replication)
    replication.begun(mirror, 7)
    assert mirror.session_id == 7
    assert found(replication, 8, 1) is None
    assert found(replication, 7, 1) is mirror
    assert found(replication, 7, 1) is mirror
    assert found(replication, 7, 2) is None
    assert (replication.sessions, mirror.left) == ((), 1), "it is to be closed"
    replication.begun(mirror, 7)
    assert found(replication, 7, 1, 3) is None
    assert (replication.sessions, mirror.left) == ((), 2)


def test_a_session_that_is_forgotten_or_whose_id_is_given_anew_has_no_place_any_more() -> None:
    replication = Replication(LEADER)
    first, second = Mirror(FOLLOWER, replication), Mirror(FOLLOWER, replication)
    replication.begun(first, 7)
    replication.begun(second, 7)
    assert (first.left, second.left, replication.sessions) == (1, 0, (second,))
    replication.forget(7)
    replication.forget(7)
    assert (second.left, replication.sessions) == (1, ())


def test_of_more_than_a_thousand_sessions_the_longest_unused_is_forgotten() -> None:
    replication = Replication(LEADER)
    mirrors = [Mirror(FOLLOWER, replication) for _ in range(MAX_SESSIONS + 1)]
    for number, mirror in enumerate(mirrors[:-1]):
        replication.begun(mirror, number)
    assert found(replication, 0, 1) is mirrors[0]
    assert len(replication.sessions) == MAX_SESSIONS
    replication.begun(mirrors[-1], MAX_SESSIONS)
    assert len(replication.sessions) == MAX_SESSIONS
    assert (mirrors[0].left, mirrors[1].left, mirrors[2].left) == (0, 1, 0)


def test_what_is_in_sync_is_measured_over_the_brokers_windows() -> None:
    assert Replication(LEADER, window_num=3, window_size_s=2.0).written_rate.window_ms == 2_000
    assert Replication(LEADER, window_num=3, window_size_s=0.5).written_rate.window_ms == 500
