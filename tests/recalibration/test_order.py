"""A plan does not depend on the order in which rows are read and summed up."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sluice.quotas.files.quota_file import parse_quotas
from sluice.recalibration.job import make_plan, take_day
from sluice.recalibration.policy.settings import JobSettings, PolicySettings
from sluice.recalibration.report.publish import write_plan
from sluice.recalibration.state.store import StateStore
from testkit.access_log.access_logs import DAY, row, write

LIMITS = parse_quotas("quotas: [{user: <default>, producer_byte_rate: 1000}]", "")
JOB = JobSettings(policy=replace(PolicySettings(), min_traffic_s=30.0))
FILES = 6


def log_of(folder: Path, names: list[str]) -> None:
    """The same rows, a file for each name: clients of six users, throttled for fractions of a second."""
    numbers = random.Random(3)
    for index, name in enumerate(names):
        rows = [
            row(
                index * 30 + window,
                proxy=f"proxy-{index % 3}",
                user=f"user-{user}",
                client_id=f"app-{client}",
                request_bytes=numbers.randrange(1_000, 9_000 * (user + 1)),
                mutes=1,
                throttle_ms=numbers.random() * 3_000.0,
            )
            for window in range(60)
            for user in range(6)
            for client in range(2)
        ]
        write(folder, rows, name)


def plan_files(spark: SparkSession, folder: Path, partitions: int) -> dict[str, bytes]:
    spark.conf.set("spark.sql.shuffle.partitions", partitions)
    try:
        store = StateStore(str(folder / "out"))
        files = take_day(spark, str(folder / "logs"), store, DAY, LIMITS, JOB)
        written = Path(write_plan(make_plan(spark, store, DAY, LIMITS, JOB, files), str(folder / "out")))
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", 1)
    return {path.name: path.read_bytes() for path in written.iterdir()}


@pytest.mark.long
def test_files_in_another_order_and_other_partitions_make_the_same_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    names = [f"{index}.parquet" for index in range(FILES)]
    log_of(tmp_path / "one/logs", names)
    log_of(tmp_path / "other/logs", names[::-1])
    one, other = plan_files(spark, tmp_path / "one", 1), plan_files(spark, tmp_path / "other", 5)
    assert {name for name in one if one[name] != other[name]} == set()
    assert one.keys() == other.keys()
