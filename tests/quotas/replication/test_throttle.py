"""The bucket of catching-up followers, and the four settings that say who they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.quotas.replication.limits import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    ReplicationLimits,
    ThrottledReplicas,
    parse_rate,
    parse_replicas,
)
from sluice.quotas.replication.throttle import NATIVE_SHARE, QUANTUM_MS, ReplicationBucket

RATE = 5_000_000.0
QUANTUM_BYTES = RATE * QUANTUM_MS / 1000.0


def test_the_worked_example() -> None:
    bucket = ReplicationBucket(RATE, 0.0)
    assert bucket.room_bytes("a", 100.0) == 0
    assert bucket.room_bytes("a", 101.0) == 505_000
    bucket.grant("a", 505_000, 101.0)
    assert bucket.tat_ms == 201.0
    bucket.settle(505_000, 505_000, 120.0)
    assert bucket.room_bytes("a", 201.0) == 0
    assert bucket.wait_ms(201.0) == 1.0
    assert bucket.room_bytes("a", 202.0) == 505_000
    bucket.grant("a", 505_000, 202.0)
    bucket.settle(505_000, 1_000_000, 210.0)
    assert bucket.tat_ms == pytest.approx(401.0)
    assert bucket.passed_bytes == 1_505_000


steps = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 100), st.integers(0, 2)), max_size=80)


@given(rate=st.integers(1, 10**9), steps=steps)
def test_what_is_granted_stays_under_the_rate_from_the_start_and_over_any_time(
    rate: int, steps: list[tuple[int, int, int]]
) -> None:
    """The rate alone from the start on; two quanta more over any other time."""
    bucket = ReplicationBucket(float(rate), 0.0)
    now_ms = 0.0
    granted: list[tuple[float, int]] = []
    for pause_ms, used_percent, claimant in steps:
        now_ms += pause_ms
        room = bucket.room_bytes(claimant, now_ms)
        if room:
            bucket.grant(claimant, room, now_ms)
            came = room * used_percent // 100
            bucket.settle(room, came, now_ms)
            granted.append((now_ms, came))
    least = 2 * len(granted)  # a grant is of 1 byte at least, and rounds down
    assert sum(came for _, came in granted) <= rate * now_ms / 1000.0 + least
    for first, (begun_ms, _) in enumerate(granted):
        for last in range(first, len(granted)):
            came = sum(came for _, came in granted[first : last + 1])
            span_ms = granted[last][0] - begun_ms
            assert came <= rate * (span_ms + 2 * QUANTUM_MS) / 1000.0 + least


def test_a_kafka_window_of_ten_seconds_at_the_same_rate_is_never_exceeded() -> None:
    """The mean over the shortest window, with all the credit that there can be, in units of the rate."""
    assert NATIVE_SHARE * (1 + 2 * QUANTUM_MS / 10_000.0) < 1.0


def test_followers_who_come_back_in_time_are_let_through_in_turn() -> None:
    bucket = ReplicationBucket(RATE, 0.0)
    served = []
    now_ms = 0.0
    for _ in range(2_000):
        now_ms += 7.0
        for claimant in ("a", "b", "c"):  # "a" always asks first
            room = bucket.room_bytes(claimant, now_ms)
            if room:
                bucket.grant(claimant, room, now_ms)
                served.append(claimant)
    assert len(served) > 100
    assert max(map(served.count, "abc")) - min(map(served.count, "abc")) <= 1


def test_who_does_not_come_back_holds_nobody_up() -> None:
    bucket = ReplicationBucket(RATE, 0.0)
    assert bucket.room_bytes("gone", 50.0) == 0
    assert bucket.room_bytes("here", 60.0) == 0
    assert bucket.room_bytes("here", 110.0) == 0  # it may still come
    assert bucket.room_bytes("here", 200.0) > 0


def test_a_debt_is_forgotten_after_ten_seconds() -> None:
    bucket = ReplicationBucket(1_000.0, 0.0)
    bucket.settle(0, 10_000_000, 200.0)
    assert bucket.room_bytes("a", 10_200.0) == 0
    assert bucket.room_bytes("a", 10_201.0) > 0


def test_another_rate_changes_no_debt_in_bytes() -> None:
    bucket = ReplicationBucket(1_000.0, 0.0)
    bucket.settle(0, 2_000, 100.0)
    owed = bucket.tokens_bytes(100.0)
    bucket.update(4_000.0, 100.0)
    assert bucket.tokens_bytes(100.0) == pytest.approx(owed)


# Settings -------------------------------------------------------------------------------------------------


def test_replicas_are_pairs_or_all() -> None:
    assert parse_replicas(LEADER_REPLICAS, "0:1, 0:2,7:1") == ThrottledReplicas(
        frozenset({(0, 1), (0, 2), (7, 1)})
    )
    assert parse_replicas(LEADER_REPLICAS, "*").has(5, 9)
    assert parse_replicas(LEADER_REPLICAS, "").is_empty
    assert parse_replicas(FOLLOWER_REPLICAS, "3:2").has(3, 2)
    assert not parse_replicas(FOLLOWER_REPLICAS, "3:2").has(2, 3)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("10000", "not a number \\(10000\\): a rate is set with leader.replication.throttled.rate"),
        (10000, "not a number"),
        ("0-1,0-2", "did you mean 0:1\\?"),
        ("0:1;0:2", "partition:broker"),
        ("a:1", "partition:broker"),
        ("0:1:2", "partition:broker"),
        ("0:99999999999", "above 2147483647"),
        (True, "not True"),
        (None, "not None"),
    ],
)
def test_a_misprint_in_the_replicas_is_refused_in_words(value: object, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        parse_replicas(LEADER_REPLICAS, value)
    assert LEADER_REPLICAS in str(caught.value)


def test_a_rate_is_a_whole_number_and_kafkas_largest_is_none() -> None:
    assert parse_rate(LEADER_RATE, "5000000") == 5_000_000.0
    assert parse_rate(LEADER_RATE, str(2**63 - 1)) is None
    assert parse_rate(FOLLOWER_RATE, 7) == 7.0
    for wrong in ("", "5MB", -1, 1.5, True, 2**63):
        with pytest.raises(ValueError, match=FOLLOWER_RATE):
            parse_rate(FOLLOWER_RATE, wrong)


def test_a_followers_rate_is_shared_by_its_leaders() -> None:
    limits = ReplicationLimits(follower_rates={4: 30_000_000.0, 5: 8.0}, leaders_of={4: 3})
    assert limits.follower_share(4) == 10_000_000.0
    assert limits.follower_share(5) == 8.0
    with pytest.raises(KeyError):
        limits.follower_share(6)


def test_a_rate_may_come_as_any_number_that_is_whole() -> None:
    assert parse_rate(LEADER_RATE, 5e6) == 5_000_000.0
    assert parse_rate(LEADER_RATE, 0) == 1.0  # Kafka takes 0; a bucket needs more
    for wrong in (5.5, True, -1, 2**63, "5.0", float("inf"), None, [1]):
        with pytest.raises(ValueError, match="leader"):
            parse_rate(LEADER_RATE, wrong)


def test_limits_are_off_unless_a_rate_has_replicas_to_hold_for() -> None:
    rate, replicas = {1: 1_000.0}, {"t": ThrottledReplicas(all=True)}
    assert ReplicationLimits().is_off
    assert ReplicationLimits(rate, rate).is_off
    assert ReplicationLimits({}, {}, replicas, replicas).is_off
    assert ReplicationLimits(rate, {}, {}, replicas).is_off
    assert not ReplicationLimits(rate, {}, replicas).is_off
    assert not ReplicationLimits({}, rate, {}, replicas).is_off
    assert not ReplicationLimits(rate, rate, replicas, replicas).is_off


def test_who_was_told_to_wait_asks_again_when_there_are_tokens_or_soon_if_others_go_first() -> None:
    bucket = ReplicationBucket(RATE, 0.0)
    assert bucket.wait_ms(20.5) == 81.0  # tokens from 100 ms on
    assert bucket.wait_ms(100.0) == 1.0
    assert bucket.wait_ms(101.0) == 10.0
