"""Files in whose middle something is wrong: found, named and left out, whatever Spark says of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sluice.quotas.entity import QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits
from sluice.recalibration.job import take_day
from sluice.recalibration.log import culprits as blame
from sluice.recalibration.log.culprits import culprits
from sluice.recalibration.log.reader import UNREADABLE, LogError, find_files
from sluice.recalibration.log.reason import beyond_sql
from sluice.recalibration.policy.settings import JobSettings
from sluice.recalibration.state.store import StateStore
from sluice.usage.access_record import REQUESTS, ROLLUP
from testkit.access_log.access_logs import DAY, row, write

LIMITS = QuotaLimits([(QuotaEntity("alice"), {"producer_byte_rate": 1_000})])


def damaged(spark: SparkSession, tmp_path: Path, *, skip_damaged: bool = True) -> dict[str, str]:
    store = StateStore(str(tmp_path / "out"))
    job = JobSettings(skip_damaged=skip_damaged)
    return take_day(spark, str(tmp_path / "logs"), store, DAY, LIMITS, job).damaged


def with_odd_index(file: Path) -> Path:
    """Its first page of the users' column points beyond the dictionary; its end and all sizes are whole."""
    rows = [row(at, user=f"u{at % 5}", request_bytes=5) for at in range(200)]
    write(file.parents[3], rows, file.name)
    table = parquet.read_table(file, partitioning=None)
    parquet.write_table(table, file, compression="none", data_page_version="1.0")
    at = table.column_names.index("user")
    column = parquet.read_metadata(file).row_group(0).column(at)
    content = bytearray(file.read_bytes())
    end = column.dictionary_page_offset + column.total_compressed_size
    content[end - 8 : end] = b"\xff" * 8
    file.write_bytes(content)
    return file


@pytest.mark.parametrize(
    "mad",
    [
        {"request_bytes": 10**16},
        {"request_bytes": -(10**12)},
        {"peak_bytes_1s": 10**17},
        {"request_cost_ms": 1e15},
        {"throttle_ms": float("nan")},
        {"upstream_ms": float("-inf")},
        {"failures": 2**31 - 1},
        {"user": "", "client_id": "", "api_class": "connection", "connections_opened": -5},
    ],
    ids=str,
)
def test_numbers_beyond_reason_need_not_overflow_to_be_found(
    spark: SparkSession, tmp_path: Path, mad: dict[str, Any]
) -> None:
    write(tmp_path / "logs", [row(0, request_bytes=500, mutations=-3.0)])
    bad = write(tmp_path / "logs", [row(1, request_bytes=500), row(2, **mad)], "bad.parquet")
    column = list(mad)[-1]
    assert damaged(spark, tmp_path) == {str(bad): f"a number in its column {column} is beyond all reason"}
    with pytest.raises(LogError, match="beyond all reason"):
        damaged(spark, tmp_path, skip_damaged=False)


def test_a_copy_of_a_mad_file_is_named_too_for_it_is_no_better(spark: SparkSession, tmp_path: Path) -> None:
    """Compaction would make it a part of its hour's one file."""
    write(tmp_path / "logs", [row(0, request_bytes=500)])
    bad = write(tmp_path / "logs", [row(1, request_bytes=10**17)], "bad.parquet")
    copied = bad.with_name("z-copy.parquet")
    copied.write_bytes(bad.read_bytes())
    assert damaged(spark, tmp_path).keys() == {str(bad), str(copied)}


def test_a_file_of_which_spark_tells_no_name_is_found_among_others(
    spark: SparkSession, tmp_path: Path
) -> None:
    for number in range(3):
        write(tmp_path / "logs", [row(number, request_bytes=500 + number)], f"{number}.parquet")
    bad = with_odd_index(write(tmp_path / "logs", [], "bad [1].parquet"))
    assert damaged(spark, tmp_path) == {str(bad): UNREADABLE}
    with pytest.raises(LogError, match="a part of it cannot be read"):
        damaged(spark, tmp_path, skip_damaged=False)


def test_what_spark_alone_cannot_read_is_found_by_halves(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        write(tmp_path / "logs", [row(number, request_bytes=500 + number)], f"{number}.parquet")
    bad = with_odd_index(write(tmp_path / "logs", [], "bad.parquet"))
    monkeypatch.setattr(blame, "_unread_by_arrow", lambda *_: [])
    assert damaged(spark, tmp_path) == {str(bad): UNREADABLE}


def test_where_each_file_can_be_read_none_is_to_blame(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, [row(0)])
    files = find_files(str(tmp_path), DAY)
    for error in (PySparkException("no space left"), OSError("no space left")):
        assert culprits(spark, str(tmp_path), files, error) == {}


def test_a_weight_makes_a_reasonable_number_an_unreasonable_one() -> None:
    """What the sum over a date finds, the search of its file finds, too."""
    assert "`request_bytes` * `weight` BETWEEN" in beyond_sql(REQUESTS)
    assert "weight" not in beyond_sql(ROLLUP)
