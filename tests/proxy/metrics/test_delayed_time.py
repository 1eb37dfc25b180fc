"""For how much of the last minute somebody was delayed, against a count of every millisecond."""

from __future__ import annotations

import random

import pytest

from sluice.proxy.metrics.delayed_time import (
    MAX_BUCKETS,
    NOT_DELAYED,
    SPAN_MS,
    CoveredTime,
    DelayedTime,
    DelayedTimes,
)
from sluice.quotas.entity import QuotaEntity

ALICE = QuotaEntity("alice", None)


def test_covered_time_is_the_union_of_delays_up_to_now() -> None:
    rng = random.Random(26)
    covered, union, now_ms = CoveredTime(), set[int](), 0
    for _ in range(300):
        now_ms += rng.randrange(40)
        delay_ms = rng.randrange(60)
        covered.add(now_ms, delay_ms)
        union |= set(range(now_ms, now_ms + delay_ms))
        at_ms = now_ms + rng.randrange(3)
        assert covered.ms(at_ms) == sum(ms < at_ms for ms in union)


@pytest.mark.parametrize("connections", [1, 10])
def test_who_waits_three_seconds_of_each_ten_was_delayed_for_thirty_percent(connections: int) -> None:
    """However many do so at the same time; beside it all their waits."""
    delayed = DelayedTime(0.0)
    for begun_s in range(0, 300, 10):
        for _ in range(connections):
            delayed.add(begun_s * 1000.0, 3_000.0)
    share, seconds = delayed.last_minute(300_000.0)
    assert share == pytest.approx(0.3)
    assert seconds == pytest.approx(6 * 3 * connections)


def test_those_who_take_turns_were_delayed_all_the_time() -> None:
    delayed = DelayedTime(0.0)
    for begun_s in range(100):
        delayed.add(begun_s * 1000.0, 1_000.0)
    assert delayed.last_minute(100_000.0).share == pytest.approx(1.0)


def test_a_delay_that_is_still_to_come_counts_as_it_comes() -> None:
    delayed = DelayedTime(0.0)
    delayed.add(0.0, 60_000.0)
    assert delayed.last_minute(15_000.0).share == pytest.approx(0.25)
    assert delayed.last_minute(60_000.0).share == pytest.approx(1.0)
    assert delayed.last_minute(90_000.0).share == pytest.approx(0.5)
    assert delayed.last_minute(130_000.0) == NOT_DELAYED


def test_it_is_within_a_mark_of_the_truth_at_any_time() -> None:
    rng = random.Random(3)
    delayed, union, now_ms = DelayedTime(0.0), set[int](), 0
    for _ in range(400):
        now_ms += rng.choice([10, 200, 3_000, 20_000])
        delay_ms = rng.choice([0, 5, 700, 8_000])
        delayed.add(now_ms, delay_ms)
        union = {ms for ms in union if now_ms - SPAN_MS <= ms} | set(range(now_ms, now_ms + delay_ms))
        truth = sum(ms < now_ms for ms in union) / SPAN_MS
        assert delayed.last_minute(now_ms).share == pytest.approx(truth, abs=5.0 / 60.0)


def test_buckets_are_kept_for_a_minute_and_bounded() -> None:
    times = DelayedTimes()
    times.add("produce", ALICE, 0.0, 6_000.0)
    times.add("fetch", ALICE, 0.0, 12_000.0)
    assert times.of("produce", ALICE, 30_000.0).share == pytest.approx(0.1)
    assert times.of("fetch", ALICE, 30_000.0).share == pytest.approx(0.2)
    assert times.of("fetch", QuotaEntity("bob", None), 30_000.0) == NOT_DELAYED
    assert (times.count(30_000.0), times.count(80_000.0)) == (2, 0)
    for number in range(MAX_BUCKETS + 5):
        times.add("produce", QuotaEntity(f"user-{number}", None), 100_000.0, 1_000.0)
    assert times.count(101_000.0) == MAX_BUCKETS
    times.add("produce", ALICE, 200_000.0, 1_000.0)  # the others' minute is over
    assert times.count(201_000.0) == 1
