"""No night cuts a limit before a week was seen as a whole."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits
from sluice.recalibration.job import Plan, make_plan, take_day
from sluice.recalibration.policy.settings import JobSettings, PolicySettings
from sluice.recalibration.state.store import StateStore
from testkit.access_log.access_logs import DAY, row, write

LIMITS = QuotaLimits([(QuotaEntity(DEFAULT), {"producer_byte_rate": 50_000})])
JOB = JobSettings(policy=replace(PolicySettings(), min_traffic_s=30.0), compact=False)


def nights(spark: SparkSession, folder: Path, ages: list[int]) -> Plan:
    """Alice and bob far below their limits on the dates of these ages; the last one's plan."""
    store = StateStore(str(folder / "out"))
    logs = str(folder / "logs")
    for day in (DAY - timedelta(days=age) for age in ages):
        log_of(folder / "logs", day)
        files = take_day(spark, logs, store, day, LIMITS, JOB)
    return make_plan(spark, store, day, LIMITS, JOB, files)


def log_of(folder: Path, day: date) -> None:
    users = ("alice", "bob")
    write(
        folder,
        [row(at, day=day, request_bytes=20_000, user=user) for at in range(5) for user in users],
        day=day,
    )


@pytest.mark.long
def test_after_a_long_gap_a_week_must_be_seen_again(spark: SparkSession, tmp_path: Path) -> None:
    """Three weeks ago, then nothing for 17 dates: the first of the last week are missing, not before all."""
    plan = nights(spark, tmp_path, [20, 2, 1, 0])
    assert list(plan.missing) == [DAY - timedelta(days=age) for age in (6, 5, 4, 3)]
    assert {entry.reason for entry in plan.entries} == {"log_incomplete"}
    assert not any(entry.is_change for entry in plan.entries)


@pytest.mark.slow
def test_a_date_of_which_there_are_windows_but_no_state_is_missing(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A night that was killed between the two: limits were cut as if that day, and its peak, had not been."""
    nights(spark, tmp_path, list(range(9, 0, -1)))
    store = StateStore(str(tmp_path / "out"))
    lost = DAY - timedelta(days=3)
    shutil.rmtree(tmp_path / "out" / "state" / f"date={lost}")
    log_of(tmp_path / "logs", DAY)
    files = take_day(spark, str(tmp_path / "logs"), store, DAY, LIMITS, JOB)
    plan = make_plan(spark, store, DAY, LIMITS, JOB, files)
    assert plan.missing == {lost: ["all of it"]}
    assert {entry.reason for entry in plan.entries} == {"log_incomplete"}
    assert not any(entry.is_change for entry in plan.entries)
