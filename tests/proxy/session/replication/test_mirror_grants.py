"""Whose turn it is among a follower's partitions, and how much of each is expected to come."""

from __future__ import annotations

from sluice.quotas.replication.throttle import ReplicationBucket
from tests.proxy.session.replication.test_mirror_alone import NOW_MS, A, B, C, Follower, goes


def test_those_that_wait_are_let_through_by_turns() -> None:
    follower = Follower(A, B, C)
    plan = follower.fetches(A, B, C)
    assert goes(plan)[0] == [(A, 200), (B, 1), (C, 1)]
    follower.is_answered(plan, (A, 1_000, 200), (B, 1_000, 0), (C, 1_000, 0))
    found = []
    for number in range(4):
        follower.now_ms += 10_000.0
        plan = follower.fetches(at=number)
        found.append([partition.key for partition, *_ in plan.grants])
        assert [key for key, cap in goes(plan)[0] if cap > 1] == found[-1]
        key = found[-1][0]
        follower.is_answered(plan, (key, 1_000, 200))
    assert found == [[B], [C], [A], [B]]


def test_several_with_little_left_go_with_one_grant() -> None:
    """A record weighs 10 B: five are left of A, and of B."""
    follower = Follower(A, B)
    plan = follower.fetches(A, B)
    follower.is_answered(plan, (A, 15, 100), (B, 5, 0))
    follower.mirror.take(follower.asks(A, at=10))
    follower.now_ms += 10_000.0
    plan = follower.fetches()
    grants = {partition.key: (cap, expected) for partition, cap, expected, _ in plan.grants}
    assert grants == {B: (200, 51), A: (149, 51)}
    assert follower.bucket.tat_ms == follower.now_ms - 100.0 + 102.0


def test_how_much_is_left_is_guessed_by_the_sessions_records_with_a_cap_of_four_times_that() -> None:
    """10 B a record in A; three records are left of B, of which nothing has come: 31 B, 124 at most."""
    follower = Follower(A, B)
    plan = follower.fetches(A, B)
    follower.is_answered(plan, (A, 1_000, 100), (B, 3, 0))
    follower.mirror.take(follower.asks(A, at=10))
    follower.now_ms += 10_000.0
    plan = follower.fetches()
    grants = {partition.key: (cap, expected) for partition, cap, expected, _ in plan.grants}
    assert grants == {B: (124, 31), A: (169, 169)}


def test_of_one_whose_lag_is_not_known_all_that_is_asked_for_is_expected() -> None:
    follower = Follower(A, B)
    plan = follower.fetches(A, B)
    follower.is_answered(plan, (A, 1_000, 100))
    follower.mirror.take(follower.asks(A, at=10))
    follower.now_ms += 10_000.0
    plan = follower.fetches()
    assert [(p.key, cap, expected) for p, cap, expected, _ in plan.grants] == [(B, 200, 200)]


def test_a_cap_that_was_too_small_for_a_batch_is_no_guess() -> None:
    follower = Follower(A, B)
    plan = follower.fetches(A, B)
    follower.is_answered(plan, (A, 1_000, 100), (B, 3, 0))
    follower.mirror.partitions[B].least_cap = 180
    follower.mirror.take(follower.asks(A, at=10))
    follower.now_ms += 10_000.0
    assert next(cap for _, cap, _, _ in follower.fetches().grants) == 180


def test_who_asks_again_for_what_has_come_or_goes_on_without_it_tells_nothing_of_records() -> None:
    """100 B came for A, and it asks at the same offset again; then from 10 on, for which nothing came."""
    follower = Follower(A, B)
    plan = follower.fetches(A, B)
    follower.is_answered(plan, (A, 1_000, 100), (B, 3, 0))
    follower.mirror.take(follower.asks(A, at=0))
    follower.mirror.take(follower.asks(A, at=10))
    follower.now_ms += 10_000.0
    plan = follower.fetches()
    grants = {partition.key: (cap, expected) for partition, cap, expected, _ in plan.grants}
    assert grants[B] == (200, 200)


def test_what_is_followed_no_more_is_not_asked_for_beside_those_that_are_let_through() -> None:
    """Nothing is known yet of either."""
    follower = Follower(A, B, C)
    follower.fetches(A, B, C)
    follower.now_ms += 10_000.0
    asked, forgotten, _ = goes(follower.fetches(forgets=(B,)))
    assert ({key for key, _ in asked}, forgotten) == ({A, C}, [B])


def test_what_was_asked_before_a_session_began_anew_is_not_asked_for() -> None:
    follower = Follower()
    follower.mirror.take(follower.asks(A, B))
    follower.epoch = 0
    asked = follower.asks(A)
    follower.mirror.begin_anew(asked)
    plan = follower.plans(asked)
    assert [partition.key for partition, _ in plan.sent] == [A]


def test_something_may_be_let_through_when_the_last_of_their_buckets_has_room() -> None:
    follower = Follower(A)
    other = ReplicationBucket(1_000.0, 0.0)
    follower.rules.throttled[B] = (other,)
    assert follower.mirror.wait_ms(NOW_MS) == 0.0, "nothing waits"
    follower.fetches(A, B)
    follower.bucket.tat_ms, other.tat_ms = NOW_MS + 300.0, NOW_MS + 700.0
    waits = follower.bucket.wait_ms(NOW_MS), other.wait_ms(NOW_MS)
    assert 0.0 < waits[0] < waits[1] == follower.mirror.wait_ms(NOW_MS)
