"""Kafka's pacing, worked by hand: times in ms, rates in bytes per second."""

from __future__ import annotations

from math import inf

import pytest

from sluice.quotas.entity import QuotaEntity, QuotaLevel
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.sensors.fetch_queue import FetchPlace
from sluice.quotas.sensors.kafka import KafkaSensor
from sluice.quotas.sensors.kafka_rate import TokenBucket, java_round

INT32_MAX = 2**31 - 1


def sensor_of(rate_per_s: float = 1_000, *, window_num: int = 11, window_size_s: float = 1.0) -> KafkaSensor:
    return KafkaSensor(
        QuotaKind.PRODUCE,
        QuotaLevel.USER,
        QuotaEntity("alice"),
        rate_per_s,
        0,
        window_num=window_num,
        window_size_s=window_size_s,
    )


def test_the_worked_example_of_the_module() -> None:
    sensor = sensor_of()
    assert [sensor.charge(amount, at) - at for amount, at in [(10_000, 0), (500, 0), (100, 11_000)]] == [
        0,
        500,
        0,
    ]


def test_a_window_that_is_not_there_counts_as_an_idle_one() -> None:
    """3 windows of 1 s: W is 2 s at first, so 2,000 B are free; at 500 ms W = 2.5 s, so 500 more are."""
    sensor = sensor_of(window_num=3)
    assert sensor.charge(2_000, 0) == 0
    assert sensor.charge(500, 500) == 500
    assert sensor.charge(1, 500) == 501


def test_what_was_told_is_not_remembered_only_what_was_used() -> None:
    """1 s above the limit owes 1,000 ms; charged again at once, it is not behind the first: 1,001 ms."""
    sensor = sensor_of()
    assert sensor.charge(11_000, 0) == 1_000
    assert sensor.charge(1, 0) == 1_001


def test_every_charge_has_its_turn_at_once() -> None:
    sensor = sensor_of()
    for at in (0, 1, 2.5):
        sensor.charge(1_000_000, at)
        assert sensor.eligible_at_ms == sensor.last_ms == at


def test_time_is_cut_to_whole_milliseconds_as_the_brokers_is_and_the_delay_begins_now() -> None:
    """2,000 B free in 2 s of idle windows; at 999.9 ms the window of 0 ms still runs, W = 2.999 s."""
    sensor = sensor_of(window_num=3)
    sensor.charge(2_000, 0.9)
    assert sensor.charge(1_999, 999.9) == 999.9 + 1_000


def test_a_refund_takes_back_what_was_recorded() -> None:
    sensor = sensor_of()
    sensor.charge(15_000, 0)
    sensor.refund(15_000, 0)
    assert sensor.charge(10_000, 0) == 0
    assert (sensor.charged, sensor.refunded, sensor.forgiven) == (25_000, 15_000, 0)


def test_what_is_waived_brings_the_rate_down_to_the_limit_and_no_further() -> None:
    """10,500 B, 500 above: waived, 0 are left. At 300 ms 300 are, and waiving takes none of them."""
    sensor = sensor_of()
    sensor.charge(10_500, 0)
    sensor.waive(0)
    assert (sensor.tokens(0), sensor.charged) == (0, 10_500)
    sensor.waive(300)
    assert sensor.tokens(300) == 300


def test_tokens_are_what_may_still_pass_without_a_delay() -> None:
    """10 s of 1,000 B/s; 10,500 B leave −500; after 11 s of silence all is there again."""
    sensor = sensor_of()
    assert sensor.tokens(0) == 10_000
    sensor.charge(10_500, 0)
    assert sensor.tokens(0) == -500
    assert sensor.tokens(500) == 0
    assert sensor.tokens(11_000) == 10_000


def test_a_changed_limit_measures_what_was_used_before() -> None:
    """10,000 B in the windows; at 2,000 B/s 10,000 more are free."""
    sensor = sensor_of()
    sensor.charge(10_000, 0)
    sensor.update(2_000, QuotaLevel.DEFAULT_USER, 0)
    assert sensor.charge(10_000, 0) == 0
    assert sensor.charge(2, 0) == 1
    assert (sensor.rate_per_s, sensor.level) == (2_000, QuotaLevel.DEFAULT_USER)


@pytest.mark.parametrize(
    ("rate_per_s", "window_num", "window_size_s", "max_bytes"),
    [(1_000, 11, 1, 10_000), (1_000, 3, 0.5, 1_000), (1_000, 1, 1, 1), (2**40, 11, 1, INT32_MAX)],
)
def test_a_fetch_may_ask_for_the_quota_of_all_windows_but_one(
    rate_per_s: int, window_num: int, window_size_s: float, max_bytes: int
) -> None:
    """However much was used, however many connections fetch, whatever was promised."""
    sensor = sensor_of(rate_per_s, window_num=window_num, window_size_s=window_size_s)
    queue = sensor.fetch_queue()
    for connections in range(2):
        queue.connections = connections
        assert queue.grant(INT32_MAX, 0)[0] == max_bytes
        queue.reserve(FetchPlace(), max_bytes, inf)
        sensor.charge(50 * rate_per_s, 0)


def test_a_fetch_above_the_limit_waits_until_the_rate_is_the_limit_again() -> None:
    """In the broker it is answered without records: a new connection is no way round it there either."""
    sensor = sensor_of(1_000)
    assert sensor.free_ms(0.0, 0) == 0
    assert sensor.charge(15_000, 0) == 5_000
    assert sensor.free_ms(0.0, 0) == 5_000
    assert sensor.free_ms(0.0, 11_000) == 11_000


def test_what_is_reserved_counts_as_used_for_the_next_fetch() -> None:
    sensor = sensor_of(1_000)
    assert sensor.free_ms(9_999.0, 0) == 0
    assert sensor.free_ms(10_000.0, 0) > 0


def test_utilisation_is_the_mean_rate_over_the_limit() -> None:
    sensor = sensor_of()
    for second in range(10):
        sensor.charge(500, second * 1_000)
    assert sensor.utilisation(10_000) == pytest.approx(0.5)


def test_a_sensor_shows_whose_it_is() -> None:
    sensor = sensor_of()
    sensor.charge(1_500, 0)
    assert repr(sensor) == "<KafkaSensor produce user user 'alice': 1000/s, charged 1500, refunded 0>"


def test_a_token_bucket_holds_all_windows_and_pays_debt_at_the_quota() -> None:
    """5 a s, 3 windows of 1 s: 15 tokens. 30 taken: −15, paid in 3 s; after 1 s −10, 2 s."""
    bucket = TokenBucket(3, 1_000)
    bucket.record(30, 5, 60_000)
    assert (bucket.measure(5, 60_000), bucket.throttle_ms(5, 60_000)) == (-15, 3_000)
    assert (bucket.measure(5, 61_000), bucket.throttle_ms(5, 61_000)) == (-10, 2_000)
    assert (bucket.measure(5, 90_000), bucket.throttle_ms(5, 90_000)) == (15, 0)


@pytest.mark.parametrize(
    ("value", "rounded"),
    [
        (0.0, 0),
        (0.5, 1),
        (1.5, 2),
        (2.5, 3),
        (0.49999999999999994, 0),
        (2.0**52 + 1, 2**52 + 1),
        (1e30, 2**63 - 1),
    ],
)
def test_halves_are_rounded_up_and_nothing_else_is_as_in_java(value: float, rounded: int) -> None:
    """The largest float below a half, and 2⁵² + 1, are what floor(x + 0.5) gets wrong."""
    assert java_round(value) == rounded


@pytest.mark.parametrize("above", [0.25, 1.0, 2.0])
def test_however_little_is_above_the_limit_it_is_waived(above: float) -> None:
    sensor = sensor_of()
    sensor.charge(11_000, 0)
    free = sensor.tokens(0)
    sensor.charge(free + above, 0)
    assert sensor.tokens(0) == -above
    sensor.waive(0)
    assert sensor.tokens(0) == 0.0
    sensor.waive(0)
    assert sensor.tokens(0) == 0.0
