"""Replayed traffic: what the running minimum says against loops that go through it one by one."""

from __future__ import annotations

import random
from datetime import date, timedelta

import pytest
from pyspark.sql import DataFrame, SparkSession

from sluice.quotas.entity import QuotaEntity, QuotaLevel
from sluice.quotas.kinds import KINDS, QuotaKind
from sluice.quotas.producer_ids.buckets import BucketShape, IdBucket
from sluice.quotas.sensors.smooth import SmoothSensor
from sluice.recalibration.policy.plan import Expected
from sluice.recalibration.policy.replay import SECONDS_OF_A_DAY, Replayed, replay
from sluice.recalibration.state.windows import SCHEMA, entity_id

DAY = date(2026, 11, 20)
FIRST_S = (DAY - date(1970, 1, 1)).days * SECONDS_OF_A_DAY
ALICE = '{"user": "alice"}'
ENDLESS_MS = 1e12

Row = tuple[QuotaKind, str, str, int, float, float | None, date]
"""kind, entity, proxy, window, rate, offered, date"""


def frame(spark: SparkSession, rows: list[Row]) -> DataFrame:
    told = [(entity_id(kind, entity), *rest, None, day) for kind, entity, *rest, day in rows]
    return spark.createDataFrame(told, f"{SCHEMA}, date DATE")


def windows(
    spark: SparkSession, amounts: dict[int, float], kind: QuotaKind = QuotaKind.PRODUCE, *, span_s: int = 10
) -> DataFrame:
    """Of alice at one proxy: number of the window, counted from midnight of DAY, → amount."""
    rows: list[Row] = []
    for number, amount in amounts.items():
        begin_s = FIRST_S + number * span_s
        day = date(1970, 1, 1) + timedelta(days=begin_s // SECONDS_OF_A_DAY)
        rows.append((kind, ALICE, "p1", begin_s // span_s, amount / span_s, None, day))
    return frame(spark, rows)


def test_the_worked_example_comes_out(spark: SparkSession) -> None:
    """At one unit a second; at three nothing waits."""
    replayed = windows(spark, {0: 10.0, 1: 30.0, 2: 4.0, 5: 2.0})
    found = replay(replayed, [Replayed(QuotaKind.PRODUCE, ALICE, 1.0, 3.0)], DAY)
    assert found == {(QuotaKind.PRODUCE, ALICE): Expected(32.5, 0.0, 32.5, 0.0)}


def test_a_day_before_counts_for_the_week_and_leaves_its_queue_to_the_next(spark: SparkSession) -> None:
    """50 units in the last window of the day before leave 40; with 10 more in the next they stay 40."""
    found = replay(windows(spark, {-1: 50.0, 0: 10.0}), [Replayed(QuotaKind.PRODUCE, ALICE, 1.0, 9.0)], DAY)
    day, week = 10.0 + 39.0, 10.0 + 39.0 + 9.75
    assert found == {(QuotaKind.PRODUCE, ALICE): Expected(day, 0.0, week, 0.0)}


def test_the_worked_example_of_producer_ids_comes_out(spark: SparkSession) -> None:
    hours = windows(spark, {0: 25.0, 2: 15.0}, QuotaKind.PRODUCER_IDS, span_s=3600)
    found = replay(hours, [Replayed(QuotaKind.PRODUCER_IDS, ALICE, 10.0, 100.0)], DAY)
    assert found == {(QuotaKind.PRODUCER_IDS, ALICE): Expected(5.0, 0.0, 5.0, 0.0)}


def test_throttled_windows_count_as_inflated_but_at_most_twice(spark: SparkSession) -> None:
    """10 units passed at a limit of 10. 15 were wanted: 5 are left. 90 were wanted: 20 are believed."""
    limits = [Replayed(QuotaKind.PRODUCE, ALICE, 1.0, 2.0)]
    number = FIRST_S // 10
    for offered, seconds in ((15.0, 8.0 + 4.0), (90.0, 9.0 + 9.0)):
        rows: list[Row] = [(QuotaKind.PRODUCE, ALICE, "p1", number, 1.0, offered / 10.0, DAY)]
        found = replay(frame(spark, rows), limits, DAY)
        assert found[QuotaKind.PRODUCE, ALICE].day_now == pytest.approx(seconds)


def test_proxies_are_added_up_and_who_is_not_asked_for_is_left_out(spark: SparkSession) -> None:
    number = FIRST_S // 10
    rows: list[Row] = [
        (QuotaKind.PRODUCE, entity, proxy, number, 2.0, None, DAY)
        for entity, proxy in ((ALICE, "p1"), (ALICE, "p2"), ('{"user": "bob"}', "p1"))
    ]
    found = replay(frame(spark, rows), [Replayed(QuotaKind.PRODUCE, ALICE, 1.0, 100.0)], DAY)
    assert found == {(QuotaKind.PRODUCE, ALICE): Expected(36.0, 0.0, 36.0, 0.0)}
    assert replay(frame(spark, rows), [], DAY) == {}


def simulated_waiting_s(
    amounts: dict[int, float], rate: float, drawn: random.Random, count: int = 400
) -> float:
    """The proxy's own bucket, request by request: seconds in which its debt is above nothing."""
    start_ms = FIRST_S * 1000.0
    sensor = SmoothSensor(
        QuotaKind.PRODUCE, QuotaLevel.USER, QuotaEntity("alice"), rate, start_ms, max_debt_ms=ENDLESS_MS
    )
    waited_ms = 0.0
    owed_until_ms = start_ms
    for number, amount in sorted(amounts.items()):
        begin_ms = start_ms + number * 10_000.0
        for at_ms in sorted(begin_ms + drawn.random() * 10_000.0 for _ in range(count)):
            clears_at_ms = sensor.charge(amount / count, at_ms)
            if clears_at_ms > at_ms:
                waited_ms += clears_at_ms - max(at_ms, owed_until_ms)
                owed_until_ms = clears_at_ms
    return waited_ms / 1000.0


def test_waiting_is_in_total_that_of_a_simulation_request_by_request_within_2_percent(
    spark: SparkSession,
) -> None:
    """One limit near what is used on average, and one that seldom delays: there each lucky request shows."""
    drawn = random.Random(7)
    amounts = {number: drawn.lognormvariate(9.0, 0.9) for number in range(2_000) if drawn.random() < 0.7}
    rates = (1_000.0, 3_000.0)
    found = replay(windows(spark, amounts), [Replayed(QuotaKind.PRODUCE, ALICE, *rates)], DAY)
    expected = found[QuotaKind.PRODUCE, ALICE]
    often, seldom = (simulated_waiting_s(amounts, rate, drawn) for rate in rates)
    assert often > 10 * seldom > 10_000
    assert expected.day_now + expected.day_proposed == pytest.approx(often + seldom, rel=0.02)
    assert expected.day_proposed == pytest.approx(seldom, rel=0.04)


def test_a_week_of_producer_ids_is_refused_as_in_a_simulation_within_2_percent(spark: SparkSession) -> None:
    drawn = random.Random(8)
    hours = {number: float(int(drawn.lognormvariate(5.0, 1.0))) for number in range(-144, 24) if number % 5}
    limit = 200.0
    bucket = IdBucket(BucketShape().main(limit), (FIRST_S - 144 * 3600) * 1000.0)
    refused = 0
    for number, count in sorted(hours.items()):
        begin_ms = (FIRST_S + number * 3600) * 1000.0
        for at_ms in sorted(begin_ms + drawn.random() * 3.6e6 for _ in range(int(count))):
            if bucket.reserve(1, at_ms):
                bucket.settle(1, 1, at_ms)
            else:
                refused += 1
    ids = windows(spark, hours, QuotaKind.PRODUCER_IDS, span_s=3600)
    found = replay(ids, [Replayed(QuotaKind.PRODUCER_IDS, ALICE, limit, 1e6)], DAY)
    expected = found[QuotaKind.PRODUCER_IDS, ALICE]
    assert refused > 1_000
    assert expected.week_now == pytest.approx(refused, rel=0.02)
    assert expected.week_proposed == 0.0


@pytest.mark.parametrize(
    ("kind", "limit"),
    [
        (QuotaKind.REQUEST, 100.0),
        (QuotaKind.CONTROLLER_MUTATION, 1.0),
        (QuotaKind.CONNECTION_CREATION, 1.0),
        (QuotaKind.FETCH, 1.0),
    ],
)
def test_every_kind_is_replayed_in_its_own_unit(spark: SparkSession, kind: QuotaKind, limit: float) -> None:
    """Twice what the limit lets through in one window, then nothing: 9 s of that window, 9 s of draining."""
    amount = 2 * KINDS[kind].rate_per_s(limit) * 10
    found = replay(windows(spark, {5: amount}, kind), [Replayed(kind, ALICE, limit, limit * 3)], DAY)
    expected = found[kind, ALICE]
    assert expected.day_now == expected.week_now == pytest.approx(18.0)
    assert expected.week_proposed == 0.0
