"""The byte rates of throttled replication against the class by which a broker takes them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sluice.proxy.metrics.replication import replication_rates
from sluice.proxy.session.replication.followers import Replication
from sluice.quotas.replication.throttle import ReplicationBucket
from testkit.oracles.java_quotas import JavaQuotas, java_quotas
from testkit.thorough import cases

START_MS = 1_700_000_000_000
GAPS_MS = st.one_of(st.sampled_from([0, 1, 999, 1_000, 1_001, 10_999, 11_000]), st.integers(0, 13_000))


@pytest.fixture(scope="module")
def java() -> Iterator[JavaQuotas]:
    with java_quotas() as quotas:
        yield quotas


@settings(
    deadline=None,
    max_examples=cases(60),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    steps=st.lists(st.tuples(GAPS_MS, st.integers(0, 2), st.integers(1, 2**31 - 1)), min_size=1, max_size=30)
)
@example([(0, 0, 1_000), (1_600, 0, 500)])
def test_the_rates_of_throttled_replication_are_equal_to_javas(
    java: JavaQuotas, steps: list[tuple[int, int, int]]
) -> None:
    """The leader's bucket (0), and those of two followers (1, 2), which are told together."""
    replication = Replication(leader_id=1)
    buckets = [ReplicationBucket(1e6, START_MS) for _ in range(3)]
    replication.leader_bucket = buckets[0]
    replication.follower_buckets = {2: buckets[1], 3: buckets[2]}
    theirs = [java.simple_rate(11, 1_000) for _ in buckets]
    now_ms = START_MS
    for gap_ms, which, size_bytes in steps:
        now_ms += gap_ms
        buckets[which].settle(0, size_bytes, now_ms)
        theirs[which].record(size_bytes, now_ms)
        leader, *followers = [rate.measure(now_ms) for rate in theirs]
        assert replication_rates(replication, now_ms) == (leader, sum(followers))
