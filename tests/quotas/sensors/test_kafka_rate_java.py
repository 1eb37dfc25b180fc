"""Kafka's pacing against Kafka's own classes: the same records at the same times give the same numbers.

Times stand on window edges, just beside them, and far behind them. Equal means equal: floats to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from math import isnan, nan
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluice.quotas.entity import QuotaEntity, QuotaLevel
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.sensors.kafka import KafkaSensor
from sluice.quotas.sensors.kafka_rate import Average, Rate, SimpleRate, TokenBucket
from testkit.oracles.java_quotas import JavaQuotas, java_quotas
from testkit.thorough import cases

RECORDED = Path(__file__).parent / "recorded_produce.txt"
START_MS = 1_700_000_000_000
Step: TypeAlias = tuple[int, float]
"""ms since the one before, units"""
SETTINGS = settings(
    deadline=None,
    max_examples=cases(60),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
USERS = count()


@pytest.fixture(scope="module")
def java() -> Iterator[JavaQuotas]:
    with java_quotas() as quotas:
        yield quotas


def gaps_of(window_num: int, window_ms: int) -> st.SearchStrategy[int]:
    """On the edge of a window, or of all of them, or a ms beside; or anywhere."""
    edges = [0, 1, window_ms, window_num * window_ms, (window_num - 1) * window_ms, 2 * window_ms]
    beside = sorted({max(0, edge + off) for edge in edges for off in (-1, 0, 1)})
    return st.one_of(st.sampled_from(beside), st.integers(0, (window_num + 2) * window_ms))


def steps_of(
    window_num: int, window_ms: int, amounts: st.SearchStrategy[float]
) -> st.SearchStrategy[list[Step]]:
    return st.lists(st.tuples(gaps_of(window_num, window_ms), amounts), min_size=1, max_size=30)


WINDOWS = st.tuples(st.integers(1, 12), st.sampled_from([1, 7, 100, 1_000]))
BYTES = st.one_of(st.integers(0, 200), st.integers(0, 2**31 - 1)).map(float)
PERCENTAGES = st.floats(0, 1e5)


@SETTINGS
@given(data=st.data(), window=WINDOWS)
def test_rate_and_window_are_equal_to_javas(
    java: JavaQuotas, data: st.DataObject, window: tuple[int, int]
) -> None:
    ours, theirs = Rate(*window), java.rate(*window)
    now_ms = START_MS
    for gap_ms, amount in data.draw(steps_of(*window, st.one_of(BYTES, PERCENTAGES))):
        now_ms += gap_ms
        ours.record(amount, now_ms)
        theirs.record(amount, now_ms)
        assert ours.measure(now_ms) == theirs.measure(now_ms)
        assert ours.elapsed_ms(now_ms) == theirs.window_size(now_ms)
        # Looking changes what is kept: later, and before anything is recorded there.
        later_ms = now_ms + data.draw(gaps_of(*window))
        if data.draw(st.booleans()):
            now_ms = later_ms
            assert ours.measure(now_ms) == theirs.measure(now_ms)
            assert ours.elapsed_ms(now_ms) == theirs.window_size(now_ms)


@SETTINGS
@given(data=st.data(), window=WINDOWS)
def test_a_simple_rate_and_its_window_are_equal_to_javas(
    java: JavaQuotas, data: st.DataObject, window: tuple[int, int]
) -> None:
    ours, theirs = SimpleRate(*window), java.simple_rate(*window)
    now_ms = START_MS
    for gap_ms, amount in data.draw(steps_of(*window, BYTES)):
        now_ms += gap_ms
        ours.record(amount, now_ms)
        theirs.record(amount, now_ms)
        assert ours.measure(now_ms) == theirs.measure(now_ms)
        assert ours.elapsed_ms(now_ms) == theirs.window_size(now_ms)
        later_ms = now_ms + data.draw(gaps_of(*window))
        if data.draw(st.booleans()):
            now_ms = later_ms
            assert ours.elapsed_ms(now_ms) == theirs.window_size(now_ms)
            assert ours.measure(now_ms) == theirs.measure(now_ms)


@SETTINGS
@given(gaps=st.lists(gaps_of(11, 1_000), max_size=5))
def test_a_simple_rate_without_records_is_equal_to_javas(java: JavaQuotas, gaps: list[int]) -> None:
    ours, theirs = SimpleRate(11, 1_000), java.simple_rate(11, 1_000)
    now_ms = START_MS
    for gap_ms in gaps:
        now_ms += gap_ms
        assert ours.measure(now_ms) == theirs.measure(now_ms) == 0.0
        assert ours.elapsed_ms(now_ms) == theirs.window_size(now_ms)


def test_a_broker_takes_the_rate_of_replication_simply(java: JavaQuotas) -> None:
    assert java.replication_rate_class() == "org.apache.kafka.common.metrics.stats.SimpleRate"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(SimpleRate, [1_000, 1_000, 625, 750, 375]), (Rate, [100, 100, 1_000 / 10.6, 150, 150])],
)
def test_the_example_of_a_simple_rate(kind: type[Rate], expected: list[float]) -> None:
    rate = kind(11, 1_000)
    rate.record(1_000, 0)
    told = [rate.measure(at_ms) for at_ms in (0, 1_000, 1_600)]
    rate.record(500, 2_000)
    assert [*told, rate.measure(2_000), rate.measure(4_000)] == expected


@SETTINGS
@given(gaps=st.lists(gaps_of(11, 1_000), max_size=5))
def test_a_rate_without_records_is_equal_to_javas(java: JavaQuotas, gaps: list[int]) -> None:
    ours, theirs = Rate(11, 1_000), java.rate(11, 1_000)
    now_ms = START_MS
    for gap_ms in gaps:
        now_ms += gap_ms
        assert ours.measure(now_ms) == theirs.measure(now_ms) == 0.0
        assert ours.elapsed_ms(now_ms) == theirs.window_size(now_ms)


@SETTINGS
@given(data=st.data(), window=WINDOWS)
def test_an_average_is_equal_to_javas(java: JavaQuotas, data: st.DataObject, window: tuple[int, int]) -> None:
    ours, theirs = Average(*window), java.average(*window)
    now_ms = START_MS
    assert isnan(ours.measure(now_ms))
    for gap_ms, delay_ms in data.draw(steps_of(*window, BYTES)):
        now_ms += gap_ms
        ours.record(delay_ms, 1, now_ms)
        theirs.record(delay_ms, now_ms)
        assert ours.measure(now_ms) == theirs.measure(now_ms)
        later_ms = now_ms + data.draw(gaps_of(*window))
        if data.draw(st.booleans()):
            now_ms = later_ms
            expected = theirs.measure(now_ms)
            assert ours.measure(now_ms) == (pytest.approx(nan, nan_ok=True) if isnan(expected) else expected)


def test_an_average_that_was_looked_at_while_it_was_empty_forgets_sums_and_counts_alike() -> None:
    average = Average(1, 7)
    average.record(0.0, 1, 0)
    assert isnan(average.measure(7))
    average.record(1.0, 1, 8)
    average.record(0.0, 1, 14)
    assert average.measure(15) == 0.0


def test_the_example_of_an_average() -> None:
    average = Average(2, 30_000)
    average.record(100.0 + 300.0, 2, 0)
    assert average.measure(0) == 200.0
    average.record(50.0, 1, 40_000)
    assert [average.measure(at_ms) for at_ms in (40_000, 59_999, 60_000, 99_999)] == [
        150.0,
        150.0,
        50.0,
        50.0,
    ]
    assert isnan(average.measure(100_000))


@SETTINGS
@given(
    data=st.data(), window=WINDOWS, quota=st.one_of(st.integers(1, 1_000).map(float), st.floats(0.01, 1e6))
)
def test_a_token_bucket_is_equal_to_javas(
    java: JavaQuotas, data: st.DataObject, window: tuple[int, int], quota: float
) -> None:
    ours, theirs = TokenBucket(*window), java.token_bucket(*window, quota)
    now_ms = data.draw(st.sampled_from([0, 5, START_MS]))
    for gap_ms, amount in data.draw(steps_of(*window, st.floats(-50, 1e4))):
        now_ms += gap_ms
        ours.record(amount, quota, now_ms)
        theirs.record(amount, now_ms)
        tokens = theirs.measure(now_ms)
        assert ours.measure(quota, now_ms) == tokens
        expected_ms = java.throttle_ms_of_tokens(tokens, quota) if tokens < 0 else 0
        assert ours.throttle_ms(quota, now_ms) == expected_ms


def sensor_of(rate_per_s: float, window_num: int, window_size_s: int) -> KafkaSensor:
    entity = QuotaEntity("alice")
    return KafkaSensor(
        QuotaKind.PRODUCE,
        QuotaLevel.USER,
        entity,
        rate_per_s,
        START_MS,
        window_num=window_num,
        window_size_s=window_size_s,
    )


class Pair:
    """A sensor and a broker's quota, side by side."""

    def __init__(
        self, java: JavaQuotas, rate_per_s: float, window_num: int = 11, window_size_s: int = 1
    ) -> None:
        self.ours = sensor_of(rate_per_s, window_num, window_size_s)
        self._java = java.manager(window_num, window_size_s)
        self._user = f"user-{next(USERS)}"
        self._session = self._java.limit(self._user, rate_per_s)

    def charge(self, amount: float, now_ms: int) -> int:
        """The throttle time, which both agree upon. Kafka's becomes an int: of 2³¹ ms and more, 25 days, it
        keeps the lower 32 bits, so that half of them are below 0."""
        expected_ms = self._java.charge(self._session, amount, now_ms)
        delay_ms = self.ours.charge(amount, now_ms) - now_ms
        assert delay_ms >= 0
        assert (delay_ms + 2**31) % 2**32 - 2**31 == expected_ms
        assert self.ours.eligible_at_ms == now_ms
        return expected_ms

    def refund(self, amount: float, now_ms: int) -> None:
        self._java.unrecord(self._session, amount, now_ms)
        self.ours.refund(amount, now_ms)

    def change(self, rate_per_s: float, now_ms: int) -> None:
        self._java.limit(self._user, rate_per_s)
        self.ours.update(rate_per_s, QuotaLevel.USER, now_ms)

    def check_fetch_max_bytes(self, now_ms: int) -> None:
        java_int = min(int(self._java.fetch_max_bytes(self._session)), 2**31 - 1)
        assert self.ours.fetch_queue().grant(2**31 - 1, now_ms)[0] == max(1, java_int)


@SETTINGS
@given(data=st.data(), window=st.sampled_from([(11, 1), (2, 1), (1, 1), (3, 2)]))
def test_delays_are_equal_to_the_brokers(
    java: JavaQuotas, data: st.DataObject, window: tuple[int, int]
) -> None:
    """Charges, refunds and changed limits, in any order."""
    rates = st.one_of(st.integers(1_000, 2_000), st.integers(1_000, 10**9))
    rate_per_s = data.draw(rates)
    pair = Pair(java, rate_per_s, *window)
    now_ms = START_MS
    window_num, window_size_s = window
    amounts = st.integers(0, 3 * window_num * window_size_s * rate_per_s)
    for gap_ms, what in data.draw(
        st.lists(
            st.tuples(gaps_of(window_num, 1_000 * window_size_s), st.sampled_from("ccccccrq")), max_size=30
        )
    ):
        now_ms += gap_ms
        if what == "c":
            pair.charge(data.draw(amounts), now_ms)
        elif what == "r":
            pair.refund(data.draw(st.integers(0, rate_per_s)), now_ms)
        else:
            pair.change(data.draw(rates), now_ms)
        pair.check_fetch_max_bytes(now_ms)


@pytest.mark.parametrize(("window_num", "window_size_s"), [(11, 1), (2, 1), (6, 2)])
def test_flat_out_clients_get_the_brokers_sawtooth(
    java: JavaQuotas, window_num: int, window_size_s: int
) -> None:
    """Five connections, each sends 16 KiB as soon as it may: what they are told, request by request."""
    pair = Pair(java, 100_000, window_num, window_size_s)
    free_ms = [START_MS] * 5
    told = []
    for _ in range(600):
        connection = free_ms.index(min(free_ms))
        now_ms = free_ms[connection]
        throttle_ms = pair.charge(16_384, now_ms)
        told.append(throttle_ms)
        free_ms[connection] = now_ms + max(throttle_ms, 3)
    assert told[0] == 0
    assert max(told) > 1_000 * window_size_s * (window_num - 1) / 10


def test_recorded_traffic_is_delayed_as_by_the_broker(java: JavaQuotas) -> None:
    """Real requests as they came through the proxy: at a fifth of the rate of their pacing, and at it."""
    rows = [
        tuple(map(int, line.split()))
        for line in RECORDED.read_text(encoding="utf-8").splitlines()
        if line[0] != "#"
    ]
    assert len(rows) > 500
    throttled = []
    for rate_per_s in (200_000, 1_000_000):
        pair = Pair(java, rate_per_s)
        throttled.append(sum(pair.charge(size, START_MS + at_ms) > 0 for at_ms, size in rows))
    assert throttled[0] > throttled[1] > 0


def test_a_delay_of_25_days_and_more_is_the_brokers_but_for_its_int(java: JavaQuotas) -> None:
    """2,147,493,648 bytes at 1,000 a second, 11 windows of 1 s: over the limit by 2,147,483,648 ms."""
    pair = Pair(java, 1_000)
    assert pair.charge(2_147_493_648, START_MS) == -(2**31)
