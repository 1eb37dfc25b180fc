"""A day's percentile in Spark SQL and in demand.py: the same bucket, known or not."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import SparkSession

from sluice.recalibration.policy.demand import DayState, estimate
from sluice.recalibration.state.buckets import middle
from sluice.recalibration.state.daily_state import SCHEMA
from sluice.recalibration.state.day_figures import quantile_sql, top_sql, totals_sql

Bucket = tuple[int, int, int, int]


def drawn_days(count: int) -> list[list[Bucket]]:
    """Some identified, some throttled at the top, some throughout."""
    drawn = random.Random(3)
    days = []
    for index in range(count):
        buckets = sorted(drawn.sample(range(1, 60), drawn.randint(1, 20)))
        throttled_from = drawn.choice([99, 40, 0])
        day = []
        for bucket in buckets:
            free = 0 if bucket > throttled_from else drawn.randint(1, 50)
            throttled = drawn.randint(1, 20) if not free or (index % 3 == 0 and drawn.random() < 0.3) else 0
            day.append((bucket, free, throttled, drawn.randint(0, 1) if throttled else 0))
        days.append(day)
    return days


def state(day: list[Bucket]) -> DayState:
    return DayState(
        {bucket: free for bucket, free, _, _ in day if free},
        {bucket: throttled for bucket, _, throttled, _ in day if throttled},
        {bucket: inflated for bucket, _, _, inflated in day if inflated},
    )


@pytest.mark.parametrize("quantile", [0.999, 0.99, 0.5])
def test_spark_finds_the_percentile_that_python_finds(spark: SparkSession, quantile: float) -> None:
    hidden = [(10, 5, 0, 0), (40, 0, 90, 0), (41, 2, 0, 0), (60, 0, 0, 90)]  # free above what is throttled
    half_seen = [(10, 65, 0, 0), (40, 0, 60, 60), (41, 2, 0, 0)]
    days = [*drawn_days(300), hidden, half_seen]
    frame = spark.createDataFrame(
        [("produce", str(index), "p", day) for index, day in enumerate(days)], SCHEMA
    )
    counted = frame.selectExpr("*", f"{totals_sql('buckets')} AS totals")
    figures = counted.selectExpr(
        "CAST(entity AS INT) AS day",
        f"{quantile_sql('buckets', 'totals', quantile)} AS found",
        "totals.windows",
        "totals.throttled",
        f"{top_sql('buckets')} AS top",
    ).collect()
    known = 0
    assert estimate([state(half_seen)], quantile)[0].identified
    assert not estimate([state(hidden)], quantile)[0].identified
    for index, found, windows, throttled, top in figures:
        day = state(days[index])
        demand = estimate([day], quantile)[0]
        assert (windows, throttled) == (day.windows, sum(day.throttled.values()))
        assert top == max(bucket for bucket, *_ in days[index])
        assert (found is not None) == demand.identified
        if found is not None:
            assert middle(found) == demand.rate
            known += 1
    assert 50 < known < 260, "both sorts are drawn"
