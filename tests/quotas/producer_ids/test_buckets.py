"""The three buckets: what a limit makes of them, and that no reservation bends their bound."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.quotas.producer_ids.buckets import MS_PER_HOUR, BucketShape, IdBucket

SHAPE = BucketShape()


def test_a_limit_of_100_an_hour_makes_the_buckets_of_the_stated_bound() -> None:
    """burst 1 h, expiration 24 h: 100 + 100 T, 10 + 10 T, 2,500 + 100 T."""
    assert SHAPE.main(100) == (100, 100)
    assert SHAPE.forced(100) == pytest.approx((10, 10))
    assert SHAPE.resumed(100) == (2_500, 100)
    assert SHAPE.bound(100, 2.0) == pytest.approx(100 * 3 + 10 * 3 + 2_500 + 200)


def test_a_limit_below_one_an_hour_still_admits_one_id() -> None:
    bucket = IdBucket(SHAPE.main(0.5), 0.0)
    assert bucket.reserve(1, 0.0)
    assert bucket.ready_ms(1, 0.0) == pytest.approx(2 * MS_PER_HOUR)


def test_tokens_come_back_at_the_rate_up_to_the_capacity() -> None:
    bucket = IdBucket((10.0, 60.0), 0.0)
    assert bucket.reserve(10, 0.0)
    bucket.settle(10, 10, 0.0)
    assert not bucket.reserve(1, 59_000.0)
    assert bucket.reserve(1, 60_000.0)
    bucket.settle(1, 1, 60_000.0)
    assert bucket.tokens(10 * MS_PER_HOUR) == 10.0


def test_what_is_reserved_keeps_the_bucket_from_filling_and_comes_back_when_it_is_not_spent() -> None:
    bucket = IdBucket((10.0, 60.0), 0.0)
    assert bucket.reserve(4, 0.0)
    assert bucket.tokens(MS_PER_HOUR) == 6.0
    bucket.settle(4, 1, MS_PER_HOUR)
    assert bucket.tokens(MS_PER_HOUR) == 9.0
    assert bucket.reserved == 0


def test_more_than_the_capacity_is_never_ready() -> None:
    bucket = IdBucket((10.0, 60.0), 0.0)
    assert not bucket.reserve(11, 0.0)
    assert bucket.ready_ms(11, 0.0) == math.inf


def test_a_bucket_that_does_not_fill_is_never_ready_once_it_is_empty() -> None:
    bucket = IdBucket((5.0, 0.0), 0.0)
    assert bucket.reserve(5, 0.0)
    assert bucket.ready_ms(0, 1.0) == 1.0
    assert bucket.ready_ms(1, 1.0) == math.inf


def test_a_charge_may_go_below_zero_by_one_capacity_and_tells_that_it_did() -> None:
    bucket = IdBucket((10.0, 60.0), 0.0)
    assert bucket.charge(10, 0.0)
    assert not bucket.charge(1, 0.0)
    assert bucket.tokens(0.0) == -1.0
    assert not bucket.charge(1_000, 0.0)
    assert bucket.tokens(0.0) == -10.0


def test_another_limit_keeps_the_share_that_is_there() -> None:
    bucket = IdBucket((100.0, 100.0), 0.0)
    assert bucket.reserve(75, 0.0)
    bucket.settle(75, 75, 0.0)
    bucket.update((40.0, 40.0), 0.0)
    assert bucket.tokens(0.0) == 10.0
    bucket.update((400.0, 400.0), 0.0)
    assert bucket.tokens(0.0) == 100.0


@pytest.mark.parametrize("low", [1_000.0, 36.0, 1.0])
@pytest.mark.parametrize("spent", [0, 20, 50])
def test_a_limit_that_is_lowered_and_raised_again_leaves_what_was_there(low: float, spent: int) -> None:
    """50 of 3,600 tokens are reserved meanwhile, more than the lowest limit has in all."""
    bucket = IdBucket((3_600.0, 0.0), 0.0)
    assert bucket.reserve(50, 0.0)
    for capacity in (low, 3_600.0):
        bucket.update((capacity, 0.0), 0.0)
        assert bucket.tokens(0.0) == pytest.approx(3_550.0 * capacity / 3_600.0)
    bucket.settle(50, spent, 0.0, 3_600.0)
    assert bucket.tokens(0.0) == pytest.approx(3_600.0 - spent)
    assert bucket.is_full(0.0) == (spent == 0)


def test_what_comes_back_under_a_lower_limit_is_no_more_than_what_was_taken() -> None:
    """An empty bucket stays empty, whoever leaves: one token of 3,600 is no whole one of a capacity of 1."""
    bucket = IdBucket((3_600.0, 0.0), 0.0)
    assert bucket.reserve(3_599, 0.0)
    bucket.settle(3_599, 3_599, 0.0)
    assert bucket.reserve(1, 0.0)
    bucket.update((1.0, 0.0), 0.0)
    bucket.settle(1, 0, 0.0, 3_600.0)
    assert bucket.tokens(0.0) == pytest.approx(1.0 / 3_600.0)
    bucket.update((3_600.0, 0.0), 0.0)
    assert bucket.tokens(0.0) == pytest.approx(1.0)


def test_a_bucket_is_full_only_when_nothing_is_reserved() -> None:
    bucket = IdBucket((10.0, 3_600.0), 0.0)
    assert bucket.is_full(0.0)
    assert bucket.reserve(1, 0.0)
    assert not bucket.is_full(60_000.0)
    bucket.settle(1, 1, 60_000.0)
    assert not bucket.is_full(60_000.0)
    assert bucket.is_full(61_000.0)


def test_a_restored_level_has_grown_since_it_was_saved() -> None:
    bucket = IdBucket((10.0, 60.0), 1_000_000.0)
    bucket.restore(2.0, 1_000_000.0 - 180_000.0)
    assert bucket.tokens(1_000_000.0) == 5.0
    bucket.restore(1e9, 1_000_000.0)
    assert bucket.tokens(1_000_000.0) == 10.0


@given(
    per_hour=st.floats(0.1, 1e6),
    burst_h=st.floats(0.01, 5.0),
    steps=st.lists(
        st.tuples(
            st.floats(0, 1_800_000), st.integers(1, 30), st.sampled_from(["reserve", "settle", "drop"])
        ),
        max_size=60,
    ),
)
def test_in_any_span_no_more_is_spent_than_the_capacity_and_the_refill(
    per_hour: float, burst_h: float, steps: list[tuple[float, int, str]]
) -> None:
    capacity, refill = BucketShape(burst_h=burst_h).main(per_hour)
    bucket = IdBucket((capacity, refill), 0.0)
    now_ms = 0.0
    open_reservations: list[int] = []
    spent: list[tuple[float, int]] = []
    for elapsed_ms, count, action in steps:
        now_ms += elapsed_ms
        if action == "reserve":
            ready_ms = bucket.ready_ms(count, now_ms)
            took = bucket.reserve(count, now_ms)
            assert took == (ready_ms <= now_ms)
            if took:
                open_reservations.append(count)
        elif open_reservations:
            reserved = open_reservations.pop(0)
            used = reserved if action == "settle" else reserved // 2
            bucket.settle(reserved, used, now_ms)
            spent.append((now_ms, used))
        assert bucket.tokens(now_ms) + bucket.reserved <= capacity + 1e-6
        assert bucket.tokens(now_ms) >= -1e-6
    for first, (from_ms, _) in enumerate(spent):
        total = 0
        for until_ms, used in spent[first:]:
            total += used
            assert total <= capacity + refill * (until_ms - from_ms) / MS_PER_HOUR + 1e-6


@given(
    steps=st.lists(
        st.tuples(st.floats(0, 1_800_000), st.integers(0, 30), st.sampled_from([0.5, 36.0, 3_600.0])),
        max_size=60,
    )
)
def test_whatever_limits_follow_each_other_no_debt_comes_of_it_and_no_more_than_a_capacity(
    steps: list[tuple[float, int, float]],
) -> None:
    """As for users of different limits who share one bucket. Each even step ends a reservation."""
    bucket = IdBucket(SHAPE.main(3_600.0), 0.0)
    now_ms = 0.0
    open_reservations: list[tuple[int, float]] = []
    for elapsed_ms, count, per_hour in steps:
        now_ms += elapsed_ms
        bucket.update(SHAPE.main(per_hour), now_ms)
        if count % 2 and open_reservations:
            reserved, capacity = open_reservations.pop(0)
            bucket.settle(reserved, reserved // 2, now_ms, capacity)
        elif bucket.reserve(count, now_ms):
            open_reservations.append((count, bucket.capacity))
        assert -1e-6 <= bucket.tokens(now_ms) <= bucket.capacity - bucket.reserved + 1e-6
    for reserved, capacity in open_reservations:
        bucket.settle(reserved, 0, now_ms, capacity)
    assert bucket.is_full(now_ms + 48 * MS_PER_HOUR)
