"""A log of request rows alone → the same as from a roll-up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual

from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits
from sluice.recalibration.log.reader import find_files, read_log, read_table
from sluice.recalibration.log.request_rows import as_rollup, grouped
from sluice.recalibration.state.windows import windows_of
from sluice.usage.access_record import REQUEST_COLUMNS, REQUESTS, ColumnType
from testkit.access_log.access_logs import DAY, begin_ms, row, write

LIMITS = QuotaLimits([(QuotaEntity(DEFAULT), {"producer_byte_rate": 1_000, "consumer_byte_rate": 1_000})])
ARROW = {ColumnType.TEXT: pa.string(), ColumnType.INT: pa.int32(), ColumnType.LONG: pa.int64()}
PRODUCE, FETCH = 0, 1


def request(at_ms: int, **values: Any) -> dict[str, Any]:
    """Of alice's Produce, in the sample."""
    ordinary = {column.name: "" if column.type is ColumnType.TEXT else 0 for column in REQUEST_COLUMNS}
    given = {
        "finished_ms": begin_ms(DAY) + at_ms,
        "proxy": "p1",
        "user": "alice",
        "client_id": "app",
        "address": "10.0.0.1",
        "api_key": PRODUCE,
        "why": "sample",
        "weight": 1.0,
    }
    return ordinary | given | values


def write_requests(folder: Path, rows: list[dict[str, Any]]) -> None:
    schema = pa.schema([(column.name, ARROW.get(column.type, pa.float64())) for column in REQUEST_COLUMNS])
    file = folder / f"{REQUESTS}/date={DAY}/hour=00/a.parquet"
    file.parent.mkdir(parents=True)
    parquet.write_table(pa.Table.from_pylist(rows, schema), file)


def test_windows_are_those_of_the_roll_up_that_the_same_requests_make(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A sampled row stands for ten; one that was throttled for itself."""
    write_requests(tmp_path / "requests", [
        request(0, request_bytes=300, weight=10.0),
        request(9_999, request_bytes=2_000, throttle_ms=4_000.0, why="throttled"),
        request(10_000, request_bytes=700, topic="t"),
        request(10_001, response_bytes=900, request_bytes=50, api_key=FETCH),
        request(10_002, request_bytes=90, api_key=3),
    ])  # fmt: skip
    write(tmp_path / "rollup", [
        row(0, request_bytes=5_000, mutes=1, throttle_ms=4_000.0, connections=11),
        row(1, request_bytes=700, topic="t"),
        row(1, response_bytes=900, request_bytes=50, api_class="fetch"),
    ])  # fmt: skip
    rows, files = read_log(spark, str(tmp_path / "requests"), DAY, skip_damaged=False)
    wanted, _ = read_log(spark, str(tmp_path / "rollup"), DAY, skip_damaged=False)
    assert (files.table, len(files.good)) == (REQUESTS, 1)
    found, of_groups, expected = (
        windows_of(each, LIMITS, DAY).rows for each in (rows, grouped(rows), wanted)
    )
    assertDataFrameEqual(found, expected)
    assertDataFrameEqual(of_groups, expected)


def test_requests_of_one_window_and_topic_are_one_row_of_the_roll_up(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_requests(tmp_path, [
        request(0, request_bytes=300, weight=10.0, topic="t"),
        request(1, request_bytes=200, topic="t", held_ms=5.0, throttle_ms=5.0, why="throttled"),
        request(2, request_bytes=100, topic="u", why="producer_id"),
    ])  # fmt: skip
    requests = read_table(spark, find_files(str(tmp_path), DAY, REQUESTS), skip_damaged=False)
    found = grouped(as_rollup(requests)).orderBy("topic")
    assert [
        (each.topic, each.requests, each.request_bytes, each.holds, each.mutes, each.producer_ids_new)
        for each in found.collect()
    ] == [("t", 11, 3_200, 1, 0, 0), ("u", 1, 100, 0, 0, 1)]


def test_a_roll_up_is_preferred(spark: SparkSession, tmp_path: Path) -> None:
    write_requests(tmp_path, [request(0, request_bytes=300)])
    write(tmp_path, [row(0, request_bytes=5_000)])
    rows, files = read_log(spark, str(tmp_path), DAY, skip_damaged=False)
    assert [each.request_bytes for each in rows.collect()] == [5_000]
    assert files.table != REQUESTS


def test_who_was_refused_for_producer_ids_was_not_for_bytes(spark: SparkSession, tmp_path: Path) -> None:
    refused = {"why": "refused", "request_bytes": 500, "held_ms": 90.0, "throttle_ms": 90.0}
    passed = [request(at_ms, request_bytes=10) for at_ms in (1, 10_001)]
    write_requests(tmp_path, [request(0, **refused), request(10_000, **refused, rule="user"), *passed])
    rows, _ = read_log(spark, str(tmp_path), DAY, skip_damaged=False)
    found = windows_of(rows, LIMITS, DAY).rows.orderBy("window").collect()
    assert [one.offered is not None for one in found] == [False, True]


def test_of_a_produce_that_was_refused_no_byte_has_passed(spark: SparkSession, tmp_path: Path) -> None:
    write_requests(tmp_path, [
        request(0, request_bytes=300),
        request(1, request_bytes=9_000, why="refused", rule="user", held_ms=8.0, throttle_ms=8.0),
        request(2, request_bytes=70, why="refused", api_key=25),
    ])  # fmt: skip
    requests = read_table(spark, find_files(str(tmp_path), DAY, REQUESTS), skip_damaged=False)
    found = grouped(as_rollup(requests)).orderBy("api_class").collect()
    assert [(each.requests, each.request_bytes, each.refusals) for each in found] == [(1, 70, 1), (2, 300, 1)]
