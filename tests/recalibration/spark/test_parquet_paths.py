"""Files as they are called: each row once, whatever Spark and Hadoop would make of their names."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sluice.recalibration.log.reader import read_log
from sluice.recalibration.spark.parquet_paths import read_parquet
from testkit.access_log.access_logs import DAY, row, write

PLAIN = ("a", "with space", "x%20y", "x#y", "é")
PATTERNS = ("b[1]", "c{a,b}", "d*", "e?", "f\\", "[", "{", "^!]")
COLONS = ("g:h", "2026-11-20T10:00:00", "i[1]:{j}")


@pytest.mark.parametrize("folder", ["plain", "x[1]", "y{a,b}", "z\\*?", "a:b", "a:[b]"])
def test_every_row_is_read_once(spark: SparkSession, tmp_path: Path, folder: str) -> None:
    names = PLAIN + PATTERNS + COLONS
    for at, name in enumerate(names):
        write(tmp_path / folder, [row(at, request_bytes=at)], f"{name}.parquet")
    write(tmp_path / "xa", [row(0, request_bytes=99)])  # what a pattern would find
    rows, files = read_log(spark, str(tmp_path / folder), DAY, skip_damaged=False)
    assert len(files.good) == len(names)
    assert sorted(found.request_bytes for found in rows.select("request_bytes").collect()) == [
        *range(len(names))
    ]


@pytest.mark.parametrize("folder", ["out[1]", "o:ut", "o:u[t]"])
def test_partitions_are_columns_whatever_the_folder_is_called(
    spark: SparkSession, tmp_path: Path, folder: str
) -> None:
    root = tmp_path / folder
    for age in range(3):
        day = DAY - timedelta(days=age)
        spark.range(age + 1).write.parquet(str(root / f"date={day}"))
    paths = [str(path) for path in sorted(root.rglob("*.parquet"))]
    found = read_parquet(spark, paths, "id BIGINT, date DATE", str(root)).groupBy("date").count()
    assert dict(map(tuple, found.collect())) == {DAY - timedelta(days=age): age + 1 for age in range(3)}
