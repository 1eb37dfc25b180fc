"""controller_mutation_rate against Kafka's own TokenBucket: the same operations are taken and refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluice.quotas.entity import QuotaEntity, QuotaLevel
from sluice.quotas.sensors.mutation import MutationSensor
from testkit.oracles.java_quotas import JavaQuotas, java_quotas
from testkit.thorough import cases

START_MS = 1_700_000_000_000
UPTIME_MS = 5_000
"""of a machine that has just started; Kafka's clock began in 1970"""


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
    rate=st.one_of(st.integers(1, 50).map(float), st.floats(0.1, 1e4)),
    window_num=st.integers(1, 12),
    is_strict=st.booleans(),
    steps=st.lists(
        st.tuples(st.sampled_from([0, 1, 7, 500, 1_000, 11_000, 60_000]), st.integers(0, 2_000)),
        min_size=1,
        max_size=30,
    ),
)
def test_the_same_operations_pass_and_are_told_the_same_delays(
    java: JavaQuotas, rate: float, window_num: int, is_strict: bool, steps: list[tuple[int, int]]
) -> None:
    """StrictControllerMutationQuota looks, then records; the permissive one records, then looks."""
    ours = MutationSensor(QuotaLevel.USER, QuotaEntity("alice"), rate, UPTIME_MS, window_num=window_num)
    theirs = java.token_bucket(window_num, 1_000, rate)
    since_ms = 0
    for gap_ms, partitions in steps:
        since_ms += gap_ms
        now_ms, their_ms = UPTIME_MS + since_ms, START_MS + since_ms
        tokens = theirs.measure(their_ms)
        assert ours.tokens(now_ms) == tokens
        amount = 0 if is_strict and tokens < 0 else partitions
        theirs.record(amount, their_ms)
        clears_at_ms = ours.charge(amount, now_ms)
        left = theirs.measure(their_ms)
        assert clears_at_ms - now_ms == (java.throttle_ms_of_tokens(left, rate) if left < 0 else 0)
