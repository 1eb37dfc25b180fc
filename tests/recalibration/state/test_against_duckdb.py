"""Windows and states of the job → the same numbers from DuckDB's SQL, which was written by itself.

So the benchmark compares what both make of the same rows; and each is checked by the other.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Final

import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from bench.recalibration import duckdb_sums
from bench.recalibration.load import DAY, write_quotas
from sluice.quotas.entity import QuotaEntity
from sluice.quotas.entity_key import key_of
from sluice.quotas.files.load import load_quotas
from sluice.quotas.kinds import QuotaKind
from sluice.recalibration.job import take_day
from sluice.recalibration.policy.settings import JobSettings
from sluice.recalibration.state.store import STATE, WINDOWS, StateStore
from sluice.recalibration.state.windows import entity_id
from tests.recalibration.log.test_request_rows import request, write_requests

ROWS: Final = 1_500
CLIENTS: Final = [("alice", "app"), ("alice", "batch"), ("bob", "app"), ("bob", ""), ("", "app")]
WHY: Final = ["sample", "throttled", "refused", "slow", "producer_id", "failed"]


def some_requests(proxies: int) -> list[dict[str, Any]]:
    """Of all that a row may be: other kinds, of nobody, without bytes, held, muted, refused for either."""
    numbers = random.Random(proxies)
    rows = []
    for _ in range(ROWS):
        user, client_id = numbers.choice(CLIENTS)
        rows.append(
            request(
                numbers.randrange(40) * 10_000 + numbers.randrange(10_000),
                user=user,
                client_id=client_id,
                proxy=f"p{numbers.randrange(proxies) if client_id else 0}",
                api_key=numbers.choice([0, 0, 1, 78, 3, 22]),
                request_bytes=numbers.choice([0, 90, numbers.randrange(9_000_000)]),
                response_bytes=numbers.choice([0, 90, numbers.randrange(9_000_000)]),
                held_ms=numbers.choice([0.0, 0.0, 0.0, 700.0]),
                throttle_ms=numbers.choice([0.0, 0.0, 0.0, numbers.randrange(9_000_000) / 1024.0]),
                rule=numbers.choice(["", "default_user_default_client"]),
                why=numbers.choice(WHY if numbers.random() < 0.3 else WHY[:1]),
                weight=numbers.choice([1.0, 1.0, 10.0, 3.7]),
            )
        )
    return rows


@pytest.mark.parametrize("proxies", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_windows_and_states_are_those_of_duckdb(spark: SparkSession, tmp_path: Path, proxies: int) -> None:
    logs, quotas = tmp_path / "logs", tmp_path / "quotas.yaml"
    write_requests(logs, some_requests(proxies))
    write_quotas(quotas)
    store = StateStore(str(tmp_path / "out"))
    take_day(spark, str(logs), store, DAY, load_quotas(quotas), JobSettings())
    assert duckdb_sums.main(str(logs), str(tmp_path), "1") == 0

    windows = store.read(spark, WINDOWS, DAY, 1)
    states = store.read(spark, STATE, DAY, 1)
    assert windows is not None
    assert states is not None
    found = sorted(tuple(row)[:-1] for row in windows.collect())
    expected = sorted(
        (_id(row), row["proxy"], row["window_number"], row["rate"], row["offered"], row["busiest"])
        for row in _rows(tmp_path / "windows.parquet")
    )
    assert [row[:3] for row in found] == [row[:3] for row in expected]
    assert [row[4] is None for row in found] == [row[4] is None for row in expected]
    for ours, theirs in zip(found, expected, strict=True):
        assert [each or 0.0 for each in ours[3:]] == pytest.approx(
            [each or 0.0 for each in theirs[3:]], rel=1e-12
        )
    assert sum(row[4] is not None for row in found) > 50  # throttled ones
    assert {
        (row.kind, row.entity, row.proxy): [tuple(one) for one in row.buckets] for row in states.collect()
    } == {
        (row["kind"], _entity(row), row["proxy"]): [tuple(one.values()) for one in row["buckets"]]
        for row in _rows(tmp_path / "state.parquet")
    }
    hours = {(row["proxy"], row["hour"]) for row in _rows(tmp_path / "hours.parquet")}
    seen = store.seen(spark, DAY, 1)[DAY]
    assert hours == {(proxy, hour) for proxy, its in seen.items() for hour in its}


def _rows(file: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = parquet.read_table(file).to_pylist()
    return rows


def _entity(row: dict[str, Any]) -> str:
    return key_of(QuotaEntity(row["user"], row["client_id"]))


def _id(row: dict[str, Any]) -> int:
    return entity_id(QuotaKind(row["kind"]), _entity(row))
