"""What the proxy writes into the access log, the nightly job reads: the same rows, next to older files."""

from __future__ import annotations

import random
from collections import Counter
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark import __version__ as pyspark_version
from pyspark.sql import SparkSession

from sluice.recalibration.log.reader import find_files, read_table
from sluice.recalibration.spark.session import reads_split_bytes
from sluice.usage.access_record import REQUESTS, ROLLUP, ROLLUP_COLUMNS, TABLES, Value
from testkit.access_log.access_logs import write
from testkit.access_log.access_rows import BEGIN_MS, columns, files, read_all, row
from testkit.access_log.access_writers import writing

DAY = date(2026, 11, 20)
VECTORIZED = "spark.sql.parquet.enableVectorizedReader"


def rows_of(count: int) -> list[tuple[Value, ...]]:
    """With all that columns may hold: nulls, many names, large and small numbers."""
    source = random.Random(7)
    return [
        row(
            user=f"ünï-{source.randrange(40)}",
            client_id=f"app-{number}",
            topic=source.choice(["", "t1", "t2"]),
            requests=source.randrange(1, 1000),
            request_bytes=source.randrange(2**62),
            upstream_ms=source.randrange(10**6) / 1024,
            mutes=source.randrange(5),
            mutations=source.random(),
            producer_byte_rate=source.choice([None, 1e6, 2.5]),
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("vectorized", ["true", "false"] if reads_split_bytes(pyspark_version) else ["false"])
def test_the_job_reads_what_the_proxy_wrote(spark: SparkSession, tmp_path: Path, vectorized: str) -> None:
    written = rows_of(3000)
    with writing(tmp_path) as writer:
        writer.offer(ROLLUP, columns(written))
    before = str(spark.conf.get(VECTORIZED))
    spark.conf.set(VECTORIZED, vectorized)
    try:
        found = read_table(spark, find_files(str(tmp_path), DAY), skip_damaged=False).collect()
    finally:
        spark.conf.set(VECTORIZED, before)
    assert Counter(map(tuple, found)) == Counter(written)


def test_the_job_reads_request_rows(spark: SparkSession, tmp_path: Path) -> None:
    written = [
        row(REQUESTS, at_ms=BEGIN_MS + number, user="alice", why="slow", weight=1.0 + number, held_ms=0.5)
        for number in range(50)
    ]
    with writing(tmp_path) as writer:
        writer.offer(REQUESTS, columns(written))
    found = read_table(spark, find_files(str(tmp_path), DAY, REQUESTS), skip_damaged=False).collect()
    assert Counter(map(tuple, found)) == Counter(written)


def test_an_older_file_beside_a_new_one_gets_the_defaults_of_what_it_lacks(
    spark: SparkSession, tmp_path: Path
) -> None:
    with writing(tmp_path) as writer:
        writer.offer(ROLLUP, columns([row(user="new", request_cost_ms=4.0)]))
    (new,) = files(tmp_path)
    table = parquet.read_table(new).drop_columns(["request_cost_ms", "producer_ids_rate"])
    older = table.set_column(table.column_names.index("user"), "user", pa.array(["old"]))
    parquet.write_table(older, new.with_name("older.parquet"), compression="zstd")
    found = read_table(spark, find_files(str(tmp_path), DAY), skip_damaged=False).collect()
    assert {row["user"]: row["request_cost_ms"] for row in found} == {"new": 4.0, "old": 0.0}
    assert len(found[0]) == len(ROLLUP_COLUMNS)


def test_a_newer_file_beside_is_read_without_what_is_not_known(spark: SparkSession, tmp_path: Path) -> None:
    with writing(tmp_path) as writer:
        writer.offer(ROLLUP, columns([row(user="now")]))
    (now,) = files(tmp_path)
    table = parquet.read_table(now)
    parquet.write_table(table.append_column("later", pa.array([1])), now.with_name("newer.parquet"))
    found = read_table(spark, find_files(str(tmp_path), DAY), skip_damaged=False)
    assert found.columns == [column.name for column in ROLLUP_COLUMNS]
    assert found.count() == 2


def test_what_is_being_written_is_not_found(tmp_path: Path) -> None:
    with writing(tmp_path) as writer:
        writer.offer(ROLLUP, columns([row()]))
    (whole,) = files(tmp_path)
    for table in TABLES:
        (whole.parent / f".{table}.parquet").write_bytes(b"PAR1")
    (tmp_path / ".writing").mkdir(exist_ok=True)
    (tmp_path / ".writing/x.parquet.part").write_bytes(b"PAR1")
    found = find_files(str(tmp_path), DAY)
    assert (found.good, found.damaged) == ([str(whole)], {})


def test_the_tests_own_logs_have_the_schema_that_the_writer_writes(tmp_path: Path) -> None:
    by_hand = write(
        tmp_path / "a", [dict(zip((c.name for c in ROLLUP_COLUMNS), row(), strict=True))], day=DAY
    )
    (tmp_path / "b").mkdir()
    with writing(tmp_path / "b") as writer:
        writer.offer(ROLLUP, columns([row()]))
    (written,) = files(tmp_path / "b")
    assert (
        parquet.read_schema(by_hand).remove_metadata().equals(parquet.read_schema(written).remove_metadata())
    )
    assert read_all(tmp_path / "a") == read_all(tmp_path / "b")
