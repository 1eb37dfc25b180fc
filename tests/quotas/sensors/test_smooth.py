"""The token bucket, worked by hand: times in ms, rates in bytes per second."""

from __future__ import annotations

import math
from math import inf

import pytest

from sluice.quotas.entity import QuotaEntity, QuotaLevel
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.sensors.smooth import SmoothSensor

ALICE = QuotaEntity("alice", None)
INT32_MAX = 2**31 - 1


def sensor_of(
    rate_per_s: float, now_ms: float, *, burst_s: float = 1.0, max_debt_ms: float = 60_000.0
) -> SmoothSensor:
    return SmoothSensor(
        QuotaKind.PRODUCE,
        QuotaLevel.USER,
        ALICE,
        rate_per_s,
        now_ms,
        burst_s=burst_s,
        max_debt_ms=max_debt_ms,
    )


def test_the_worked_example_of_the_module() -> None:
    """1,000 B/s, 1 ms a byte, burst 1 s; full at 10,000 ms, so zero = 9,000.

    400 B: 9,000 → 9,400. 1,100 B: 9,400 → 10,500. 200 B: 10,500 → 10,700, its turn is 10,500.
    At 30,000 ms credit is clipped to 1 s, zero = 29,000; 100 B: 29,000 → 29,100.
    """
    sensor = sensor_of(1_000, 10_000)
    steps = []
    for amount, now_ms in [(400, 10_000), (1_100, 10_000), (200, 10_000), (100, 30_000)]:
        clears_at_ms = sensor.charge(amount, now_ms)
        steps.append((sensor.eligible_at_ms, clears_at_ms, sensor.tokens(now_ms)))
    assert steps == [
        (9_000, 9_400, 600),
        (9_400, 10_500, -500),
        (10_500, 10_700, -700),
        (29_000, 29_100, 900),
    ]


def test_a_new_bucket_is_full() -> None:
    """Burst 2.5 s of 1,000 B/s = 2,500 B."""
    assert sensor_of(1_000, 77, burst_s=2.5).tokens(77) == 2_500


def test_below_and_at_the_burst_nothing_is_owed_and_one_byte_above_it_is() -> None:
    """999 + 1 B empty the bucket of 1,000 at 0 ms: paid at 0. One more: paid at 1 ms."""
    sensor = sensor_of(1_000, 0)
    assert [sensor.charge(amount, 0) for amount in (999, 1, 1)] == [-1, 0, 1]


def test_at_the_rate_the_credit_stays_as_it_is() -> None:
    """100 B every 100 ms at 1,000 B/s."""
    sensor = sensor_of(1_000, 0)
    assert {sensor.charge(100, t) - t for t in range(0, 10_000, 100)} == {-900}


def test_credit_comes_back_at_the_rate_and_stops_at_the_burst() -> None:
    """1,500 B at 0: −500 tokens; 500 ms later 0; 1,000 ms later 500; never above 1,000."""
    sensor = sensor_of(1_000, 0)
    sensor.charge(1_500, 0)
    assert [sensor.tokens(t) for t in (0, 500, 1_000, 1_500, 1e9)] == [-500, 0, 500, 1_000, 1_000]


def test_debts_are_paid_in_the_order_of_arrival() -> None:
    """Empty bucket of 1,000 B/s: 300, 200 and 100 B at 0 ms have their turns at 0, 300, 500."""
    sensor = sensor_of(1_000, 0)
    sensor.charge(1_000, 0)
    turns = []
    for amount in (300, 200, 100):
        sensor.charge(amount, 0)
        turns.append(sensor.eligible_at_ms)
    assert turns == [0, 300, 500]


def test_a_charge_of_nothing_owes_nothing_and_tells_the_turn() -> None:
    sensor = sensor_of(1_000, 0)
    sensor.charge(1_500, 0)
    assert sensor.charge(0, 100) == 500
    assert sensor.eligible_at_ms == 500


def test_debt_ends_at_the_cap_and_what_is_beyond_is_counted() -> None:
    """Cap 60 s at 1,000 B/s, full: 70,000 B at 0 would be paid at 69,000; cut to 60,000, 9,000 B forgiven."""
    sensor = sensor_of(1_000, 0)
    assert sensor.charge(70_000, 0) == 60_000
    assert (sensor.forgiven, sensor.charged, sensor.tokens(0)) == (9_000, 70_000, -60_000)


def test_a_charge_at_the_cap_still_has_its_turn_behind_all_others() -> None:
    """In debt to 50,000 ms, 40,000 B more at 1,000 B/s: paid is cut to 60,000, but the turn is 50,000."""
    sensor = sensor_of(1_000, 0)
    sensor.charge(51_000, 0)
    assert sensor.charge(40_000, 0) == 60_000
    assert sensor.eligible_at_ms == 50_000


def test_a_charge_that_ends_exactly_at_the_cap_forgives_nothing() -> None:
    sensor = sensor_of(1_000, 0)
    assert sensor.charge(61_000, 0) == 60_000
    assert sensor.forgiven == 0


def test_a_refund_makes_as_if_the_charge_had_not_been() -> None:
    """In debt to 500 ms; 200 B more and back at 100 ms."""
    sensor = sensor_of(1_000, 0)
    sensor.charge(1_500, 0)
    sensor.charge(200, 0)
    sensor.refund(200, 100)
    assert sensor.tokens(100) == -400
    assert (sensor.charged, sensor.refunded) == (1_700, 200)


def test_a_refund_does_not_fill_above_the_burst() -> None:
    """Half full, 900 B back: 1,000, not 1,400."""
    sensor = sensor_of(1_000, 0)
    sensor.charge(500, 0)
    sensor.refund(900, 0)
    assert sensor.tokens(0) == 1_000


def test_an_abandoned_request_does_not_clear_debt_that_others_made() -> None:
    """59,000 B really passed, debt 58 s. Abandoned 100,000 B add 2 s up to the cap, 98,000 B are forgiven.

    Given back, the debt is 58 s again, not −42 s.
    """
    sensor = sensor_of(1_000, 0)
    sensor.charge(59_000, 0)
    sensor.charge(100_000, 0)
    assert sensor.forgiven == 98_000
    sensor.refund(100_000, 0)
    assert sensor.tokens(0) == -58_000


def test_a_refund_long_after_the_last_forgiving_is_whole() -> None:
    """9,000 B forgiven at 0; a refund at 60,001 ms, when no request of then can be held any more."""
    sensor = sensor_of(1_000, 0)
    sensor.charge(70_000, 0)
    sensor.charge(5_000, 60_001)
    sensor.refund(5_000, 60_001)
    assert sensor.tokens(60_001) == 1


def test_a_refund_within_the_cap_of_the_last_forgiving_closes_the_gap_first() -> None:
    """9,000 B forgiven at 0. At 60,000 ms 5,000 B charged and given back: the gap takes them."""
    sensor = sensor_of(1_000, 0)
    sensor.charge(70_000, 0)
    sensor.charge(5_000, 60_000)
    sensor.refund(5_000, 60_000)
    assert sensor.tokens(60_000) == -5_000
    sensor.refund(5_000, 60_000)  # 4,000 B of gap are left: 1,000 B come back
    assert sensor.tokens(60_000) == -4_000


@pytest.mark.parametrize(("rate_per_s", "debt_ms"), [(2_000, 250), (500, 1_000), (1_000, 500), (1, 60_000)])
def test_a_changed_limit_keeps_the_debt_in_bytes(rate_per_s: float, debt_ms: float) -> None:
    """500 B owed: 250 ms at 2,000 B/s, 1,000 ms at 500 B/s; at 1 B/s 500 s, cut to 60 s: 440 B forgiven."""
    sensor = sensor_of(1_000, 0)
    sensor.charge(1_500, 0)
    sensor.update(rate_per_s, QuotaLevel.DEFAULT_USER, 0)
    assert sensor.charge(0, 0) == debt_ms
    assert (sensor.rate_per_s, sensor.level) == (rate_per_s, QuotaLevel.DEFAULT_USER)
    assert sensor.forgiven == (440 if rate_per_s == 1 else 0)


def test_what_was_charged_whole_is_not_forgiven_by_a_charge_that_meets_the_cap() -> None:
    """1,001,000 B at once, 1,000 s owed. 500 B more have their turn behind them, and are forgiven."""
    sensor = sensor_of(1_000, 0)
    assert sensor.charge_whole(1_001_000, 0) == 1_000_000
    assert sensor.charge(500, 0) == 1_000_000
    assert (sensor.eligible_at_ms, sensor.tokens(0), sensor.forgiven) == (1_000_000, -1_000_000, 500)


def test_a_charge_adds_to_what_was_charged_whole_up_to_the_cap() -> None:
    """950 s later 50 s are owed: of 15,000 B 10,000 are owed, too, and 5,000 forgiven."""
    sensor = sensor_of(1_000, 0)
    sensor.charge_whole(1_001_000, 0)
    assert sensor.charge(15_000, 950_000) == 1_010_000
    assert sensor.forgiven == 5_000


@pytest.mark.parametrize(("rate_per_s", "debt_ms"), [(2_000, 500_000), (1_001, 999_001)])
def test_a_changed_limit_keeps_what_was_charged_whole_and_a_higher_one_is_paid_sooner(
    rate_per_s: float, debt_ms: float
) -> None:
    sensor = sensor_of(1_000, 0)
    sensor.charge_whole(1_001_000, 0)
    sensor.update(rate_per_s, QuotaLevel.USER, 0)
    assert sensor.charge(0, 0) == pytest.approx(debt_ms, abs=1)
    assert sensor.tokens(0) == pytest.approx(-1_000_000)
    assert sensor.forgiven == 0


@pytest.mark.parametrize(("whole", "more", "debt_ms"), [(1_001_000, 0, 1_000_000), (31_000, 20_000, 60_000)])
def test_a_lower_limit_makes_a_debt_last_no_longer_than_the_cap_or_than_before(
    whole: int, more: int, debt_ms: float
) -> None:
    """A tenth of the rate: an emergency's limit would keep consumers from their records for hours."""
    sensor = sensor_of(1_000, 0)
    sensor.charge_whole(whole, 0)
    sensor.charge(more, 0)
    sensor.update(100, QuotaLevel.USER, 0)
    assert sensor.charge(0, 0) == debt_ms
    assert sensor.forgiven == whole - 1_000 + more - debt_ms / 10


def test_a_debt_after_one_that_was_waived_is_cut_as_ever() -> None:
    """1,000 s owed by a whole charge and waived; 60 s of other charges, which half the rate makes 120."""
    sensor = sensor_of(1_000, 0)
    sensor.charge_whole(1_001_000, 0)
    sensor.waive(0)
    sensor.charge(60_000, 0)
    sensor.update(500, QuotaLevel.USER, 0)
    assert (sensor.tokens(0), sensor.forgiven) == (-30_000, 30_000)


def test_a_changed_limit_keeps_a_debt_of_half_a_byte() -> None:
    """0.5 ms of 1,000 B/s is 0.5 B: 0.25 ms of 2,000 B/s."""
    sensor = sensor_of(1_000, 0)
    sensor.charge(1_000.5, 0)
    sensor.update(2_000, QuotaLevel.USER, 0)
    assert sensor.tokens(0) == -0.5


def test_a_changed_limit_keeps_the_share_of_the_burst_that_is_left() -> None:
    """600 of 1,000 B left; at 2,000 B/s 1,200 of 2,000."""
    sensor = sensor_of(1_000, 0)
    sensor.charge(400, 0)
    sensor.update(2_000, QuotaLevel.USER, 0)
    assert sensor.tokens(0) == 1_200


def test_after_a_changed_limit_charges_cost_the_new_rate() -> None:
    """Empty at 0; 1,000 B at 2,000 B/s: 500 ms."""
    sensor = sensor_of(1_000, 0)
    sensor.charge(1_000, 0)
    sensor.update(2_000, QuotaLevel.USER, 0)
    assert sensor.charge(1_000, 0) == 500


def test_one_byte_a_second_is_exact() -> None:
    """1,000 ms a byte: 3 B at 0 with 1 B of credit are paid at 2,000."""
    assert sensor_of(1, 0).charge(3, 0) == 2_000


def test_the_largest_limit_takes_a_gigabyte_as_nothing() -> None:
    """2³⁰ B at 2⁶³−1 B/s: 0.12 ns."""
    sensor = sensor_of(2**63 - 1, 0)
    assert sensor.charge(2**30, 0) == pytest.approx(-1_000, abs=1e-6)


def test_an_amount_beyond_all_bounds_is_capped() -> None:
    sensor = sensor_of(1, 0)
    assert sensor.charge(2**63, 0) == 60_000


@pytest.mark.parametrize(
    ("now_ms", "bytes_off"),
    [(3.2e10, 0.002), (1e12, 0.07)],
    ids=["a year of uptime", "thirty years"],
)
def test_each_charge_errs_by_at_most_half_an_ulp_of_the_time(now_ms: float, bytes_off: float) -> None:
    """1 MB/s = 1,000 B a ms; half an ulp is 1.9 ns at 3.2e10 ms and 61 ns at 1e12 ms, 0.002 and 0.07 B.

    A thousand charges of 1,000 B at one time are 1,000 ms.
    """
    sensor = sensor_of(1_000_000, now_ms)
    assert math.ulp(now_ms) / 2 * 1_000 <= bytes_off
    for _ in range(1_000):
        sensor.charge(1_000, now_ms)
    assert sensor.tokens(now_ms) == pytest.approx(0, abs=1_000 * bytes_off)


def test_a_waived_debt_is_over_and_no_credit_is_made() -> None:
    """500 B owed, waived: 0 tokens. 300 B in credit: still 300."""
    sensor = sensor_of(1_000, 0)
    sensor.charge(1_500, 0)
    sensor.waive(0)
    assert (sensor.tokens(0), sensor.charged, sensor.forgiven) == (0, 1_500, 0)
    sensor.waive(300)
    assert sensor.tokens(300) == 300


def test_utilisation_is_the_mean_rate_over_the_limit() -> None:
    """1,000 B/s. Half the rate for 10 s: 0.5; then twice the rate for 10 s, of which 3,000 B are given back:

    17,000 B in 10 s, 1.7.
    """
    sensor = sensor_of(1_000, 0)
    assert sensor.utilisation(0) == 0
    for second in range(10):
        sensor.charge(500, second * 1_000)
    assert sensor.utilisation(10_000) == pytest.approx(0.5)
    for second in range(10, 20):
        sensor.charge(2_000, second * 1_000)
    sensor.refund(3_000, 19_000)
    assert sensor.utilisation(20_000) == pytest.approx(1.7)


def test_utilisation_asked_twice_at_once_is_the_same() -> None:
    """Several scrapers do not take from each other: 5,000 B in 10 s of 1,000 B/s, 0.5 for each."""
    sensor = sensor_of(1_000, 0)
    sensor.charge(5_000, 0)
    assert [sensor.utilisation(t) for t in (10_000, 10_000, 10_000)] == [0.5, 0.5, 0.5]


def test_utilisation_asked_often_is_still_over_ten_seconds() -> None:
    """5,000 B at once at 1,000 B/s: after 5 s 1.0 of the limit, after 8 s 0.625, after 16 s 0.3125."""
    sensor = sensor_of(1_000, 1_000_000)
    sensor.charge(5_000, 1_000_000)
    assert [sensor.utilisation(1_000_000 + t) for t in (5_000, 8_000, 16_000)] == [1.0, 0.625, 0.3125]


def test_an_idle_bucket_comes_to_no_utilisation() -> None:
    sensor = sensor_of(1_000, 0)
    sensor.charge(5_000, 0)
    sensor.utilisation(10_000)
    assert sensor.utilisation(20_000) == 0


def test_a_sensor_shows_whose_it_is_and_where_it_stands() -> None:
    sensor = sensor_of(1_000, 0)
    sensor.charge(1_500, 0)
    assert repr(sensor) == (
        "<SmoothSensor produce user user 'alice': 1000/s, zero at 500.000 ms, "
        "charged 1500, refunded 0, forgiven 0>"
    )


def test_a_bucket_never_has_more_than_its_burst_nor_is_free_of_what_is_reserved_beyond_it() -> None:
    sensor = sensor_of(1_000, 10_000)  # full: zero = 9,000
    assert sensor.free_ms(0.0, 10_000) == 9_000
    assert sensor.free_ms(999.0, 10_000) == 9_999
    assert sensor.free_ms(1_000.0, 10_000) == inf
    assert sensor.free_ms(5_000.0, 10_000) == inf
