"""Bytes over quota by worked examples: what went on and was not paid at the end of its delay. 1,000 B/s.

test_over.py holds the same against a plain account, for any order of steps.
"""

from __future__ import annotations

from math import inf

import pytest

from sluice.quotas.entity import QuotaEntity, QuotaLevel
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.sensors.kafka import KafkaSensor
from sluice.quotas.sensors.sensor import Sensor
from sluice.quotas.sensors.smooth import SmoothSensor

PLACE = (QuotaKind.PRODUCE, QuotaLevel.USER, QuotaEntity("alice"), 1_000, 0.0)


def smooth(max_debt_ms: float = 60_000.0) -> SmoothSensor:
    """Full: 1,000 tokens."""
    return SmoothSensor(*PLACE, burst_s=1.0, max_debt_ms=max_debt_ms)


def test_the_worked_example_of_count_over() -> None:
    sensor = smooth()
    sensor.charge(30_000, 0.0)
    sensor.count_over(30_000, 10_000.0)
    assert sensor.over == 19_000
    sensor.charge(12_000, 10_000.0)
    sensor.hold(12_000)
    assert (sensor.held, sensor.used) == (12_000, 30_000)
    sensor.go(12_000, 20_000.0)
    assert (sensor.held, sensor.over, sensor.used) == (0, 21_000, 42_000)


def test_a_request_is_over_by_no_more_than_its_own_bytes_and_a_byte_that_is_paid_in_part_counts() -> None:
    sensor = smooth()
    sensor.charge(3_000, 0.0)
    sensor.count_over(200, 0.0)
    assert sensor.over == 200
    sensor.count_over(3_000, 1_999.5)
    assert sensor.over == 200, "they are not waited for any more"
    sensor = smooth()
    sensor.charge(1_001, 0.0)
    sensor.count_over(1_001, 0.5)
    assert sensor.over == 1
    sensor = smooth()
    sensor.charge(1_001, 0.0)
    sensor.count_over(1_001, 0.9999999)
    assert sensor.over == 0, "what rounding leaves"


def test_what_is_over_counts_anew_behind_a_debt_that_was_waived() -> None:
    sensor = smooth()
    sensor.charge(30_000, 0.0)
    sensor.count_over(30_000, 10_000.0)
    sensor.waive(0.0)
    assert (sensor.tokens(0.0), sensor.over) == (0.0, 19_000)
    sensor.charge(30_000, 0.0)
    sensor.count_over(30_000, 10_000.0)
    assert sensor.over == 19_000 + 20_000


def test_nothing_is_over_in_shadow_mode() -> None:
    sensor = smooth()
    sensor.shadow = True
    sensor.charge(3_000, 0.0)
    sensor.count_over(3_000, 0.0)
    assert sensor.over == 0


def test_what_is_held_is_not_over_and_what_is_dropped_is_given_back() -> None:
    sensor = smooth()
    sensor.charge(1_500, 0.0)
    sensor.count_over(1_500, 500.0)
    sensor.charge(400, 0.0)
    sensor.hold(400)
    sensor.count_over(0, 500.0)
    assert sensor.over == 0
    sensor.drop(400, 100.0)
    assert (sensor.held, sensor.refunded, sensor.used) == (0, 400, 1_500)
    assert sensor.tokens(100.0) == -400
    assert sensor.owed_ms(100.0) == 400.0
    assert sensor.owed_ms(700.0) == 0.0


@pytest.mark.parametrize("ends", ["it is paid", "it is given back", "it is waived"])
def test_a_new_debt_is_counted_from_its_own_begin(ends: str) -> None:
    """Of the first 2,000 B 1,000 were over; of the second debt as many are."""
    sensor = smooth()
    sensor.charge(2_000, 0.0)
    sensor.count_over(2_000, 0.0)
    now_ms = 0.0
    if ends == "it is paid":
        now_ms = 2_000.0
    elif ends == "it is given back":
        sensor.refund(2_000, 0.0)
    else:
        sensor.waive(0.0)
    tokens = sensor.tokens(now_ms)
    assert tokens == (0.0 if ends == "it is waived" else 1_000.0)
    sensor.charge(tokens + 1_000, now_ms)
    sensor.count_over(2_000, now_ms)
    assert sensor.over == 2_000


def test_a_debt_that_begins_where_the_bucket_is_just_empty_is_a_new_one() -> None:
    sensor = smooth()
    sensor.charge(2_000, 0.0)
    sensor.count_over(2_000, 0.0)
    sensor.charge(500, 1_000.0)
    sensor.count_over(500, 1_000.0)
    assert sensor.over == 1_500
    whole = smooth()
    whole.charge(2_000, 0.0)
    whole.count_over(2_000, 0.0)
    whole.charge_whole(500, 1_000.0)
    whole.count_over(500, 1_000.0)
    assert whole.over == 1_500


def test_what_the_cap_on_debt_forgave_is_over_too_and_that_of_an_earlier_debt_is_not_counted_again() -> None:
    """Debts end at 1 s: of 5,000 B 1,000 were there, 3,000 are forgiven."""
    sensor = smooth(1_000.0)
    assert sensor.charge(5_000, 0.0) == 1_000.0
    sensor.count_over(5_000, 1_000.0)
    assert (sensor.forgiven, sensor.over) == (3_000, 3_000)
    sensor.charge(1_500, 3_000.0)
    sensor.count_over(1_500, 3_000.0)
    assert sensor.over == 3_500
    sensor.charge_whole(1_500, 9_000.0)
    sensor.count_over(1_500, 9_000.0)
    assert sensor.over == 4_000


def test_of_what_was_forgiven_what_is_held_may_still_be_given_back() -> None:
    sensor = smooth(1_000.0)
    sensor.charge(2_000, 0.0)
    sensor.charge(700, 0.0)
    sensor.hold(700)
    assert (sensor.forgiven, sensor.forgiven_for_good) == (700, 0)
    sensor.drop(300, 0.0)
    assert sensor.tokens(0.0) == -1_000, "it closes the gap, and clears nothing"
    assert (sensor.forgiven, sensor.forgiven_for_good, sensor.held) == (700, 0, 400)
    sensor.go(400, 1_000.0)
    assert sensor.forgiven_for_good == 400


def test_what_was_forgiven_long_ago_is_no_gap_and_neither_is_what_was_waived() -> None:
    for later_ms, is_waived, tokens in ((1_000.0, False, 0.0), (1_000.5, False, 500.5), (100.0, True, 600.0)):
        sensor = smooth(1_000.0)
        sensor.charge(2_700, 0.0)
        if is_waived:
            sensor.waive(0.0)
        sensor.refund(500, later_ms)
        assert sensor.tokens(later_ms) == tokens, later_ms


def test_a_second_cut_prolongs_the_time_in_which_a_refund_closes_the_gap() -> None:
    sensor = smooth(1_000.0)
    sensor.charge(2_700, 0.0)
    sensor.charge(1_000, 800.0)
    assert sensor.forgiven == 900
    sensor.refund(500, 1_500.0)
    assert sensor.tokens(1_500.0) == -300.0


def test_a_batch_that_came_is_paid_for_however_large_it_is() -> None:
    sensor = smooth(1_000.0)
    assert sensor.charge_whole(5_000, 5_000.0) == 9_000.0
    assert (sensor.eligible_at_ms, sensor.tat_ms, sensor.forgiven) == (4_000.0, 9_000.0, 0.0)
    assert (sensor.charged, sensor.last_ms) == (5_000, 5_000.0)
    assert sensor.charge_whole(100, 6_000.0) == 9_100.0
    assert sensor.eligible_at_ms == 9_000.0


def test_a_bucket_that_is_looked_at_is_not_idle() -> None:
    sensor = smooth()
    sensor.charge(1, 77.0)
    assert sensor.last_ms == 77.0


def test_a_limit_that_changes_while_there_is_no_debt_leaves_the_time_where_it_was() -> None:
    sensor = smooth()
    sensor.charge(1_000, 0.0)
    sensor.update(500, QuotaLevel.DEFAULT_USER, 0.0)
    assert (sensor.tat_ms, sensor.level) == (0.0, QuotaLevel.DEFAULT_USER)
    sensor.charge(500, 0.0)
    assert sensor.tat_ms == 1_000.0
    sensor.update(1, QuotaLevel.USER, 0.0)
    assert (sensor.tat_ms, sensor.forgiven) == (60_000.0, 440)


def test_a_limit_that_changes_reaches_those_who_wait() -> None:
    sensor = smooth()
    sensor.charge(1_500, 0.0)
    queue = sensor.hold_queue()
    assert sensor.hold_queue() is queue
    ticket = queue.enter(100, 500.0, inf, 0.0)
    fetches = sensor.fetch_queue()
    assert sensor.fetch_queue() is fetches
    sensor.update(500, QuotaLevel.USER, 0.0)
    assert queue.ask(ticket, 0.0) == 1_000.0
    assert fetches._ms_per_byte == queue._ms_per_byte == 2.0


def test_when_more_than_what_is_reserved_is_free() -> None:
    sensor = smooth()
    assert sensor.free_ms(0.0, 0.0) == -1_000.0
    assert sensor.free_ms(400.0, 0.0) == -600.0
    assert sensor.free_ms(999.0, 0.0) == -1.0
    assert sensor.free_ms(1_000.0, 0.0) == inf


def paced_as_kafka() -> KafkaSensor:
    """Ten windows of a second: 10,000 B within them."""
    return KafkaSensor(*PLACE, window_num=11)


def test_kafkas_pacing_counts_what_its_delay_does_not_pay() -> None:
    sensor = paced_as_kafka()
    assert sensor.hold_queue() is None
    assert sensor.charge(10_000, 0.0) == 0.0
    clears_at_ms = sensor.charge(3_000, 0.0)
    assert clears_at_ms == 3_000.0
    sensor.count_over(3_000, clears_at_ms)
    assert sensor.over == 0
    sensor.count_over(3_000, 1_000.0)
    assert sensor.over == 2_000
    assert sensor.charge(500, 0.0) == 3_500.0
    sensor.count_over(500, 1_000.0)
    assert sensor.over == 2_500
    assert (sensor.charged, sensor.last_ms, sensor.eligible_at_ms) == (13_500, 0.0, 0.0)


def test_kafkas_pacing_begins_anew_with_each_debt() -> None:
    sensor = paced_as_kafka()
    sensor.charge(13_000, 0.0)
    sensor.count_over(13_000, 0.0)
    assert sensor.over == 3_000
    later_ms = 60_000.0
    sensor.charge(12_000, later_ms)
    sensor.count_over(12_000, later_ms)
    assert sensor.over == 5_000


def test_kafkas_pacing_waives_and_gives_back_in_the_window_of_now() -> None:
    sensor = paced_as_kafka()
    sensor.charge(13_000, 0.0)
    assert sensor.tokens(0.0) == -3_000
    sensor.waive(0.0)
    assert sensor.tokens(0.0) == 0.0
    sensor.waive(0.0)
    assert sensor.tokens(0.0) == 0.0
    sensor.refund(400, 0.0)
    assert (sensor.tokens(0.0), sensor.refunded) == (400.0, 400)
    sensor.update(2_000, QuotaLevel.DEFAULT_USER, 0.0)
    assert (sensor.tokens(0.0), sensor.level) == (10_400.0, QuotaLevel.DEFAULT_USER)


def test_kafkas_pacing_tells_when_a_fetch_may_go() -> None:
    sensor = paced_as_kafka()
    assert sensor.free_ms(9_999.0, 0.0) == 0.0
    assert sensor.free_ms(10_000.0, 0.0) > 0.0, "once less is reserved"
    sensor.charge(10_000, 0.0)
    assert sensor.free_ms(0.0, 0.0) == 0.0, "at the limit it is not above it"
    sensor.charge(3_000, 0.0)
    assert sensor.free_ms(0.0, 0.0) == 3_000.0
    assert sensor.fetch_share(0.0, 5, 0.0) == (10_000.0, 10_000.0)
    fetches = sensor.fetch_queue()
    sensor.update(500, QuotaLevel.USER, 0.0)
    assert fetches._ms_per_byte == 2.0


class Plain(SmoothSensor):
    """With what a sensor has that says nothing of its own."""

    free_ms = Sensor.free_ms
    fetch_share = Sensor.fetch_share
    charge_whole = Sensor.charge_whole
    _unpaid = Sensor._unpaid


def test_a_sensor_that_says_no_more_is_free_while_it_has_more_than_is_reserved() -> None:
    sensor = Plain(*PLACE, burst_s=1.0)
    assert sensor.free_ms(999.0, 5.0) == 5.0
    assert sensor.free_ms(1_000.0, 5.0) == inf
    assert sensor.fetch_share(0.0, 1, 0.0) == (inf, inf)
    assert sensor.charge_whole(1_500, 0.0) == 500.0
    sensor.count_over(1_500, 0.0)
    assert sensor.over == 0
