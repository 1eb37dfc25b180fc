"""What clients ask for is never taken for damage of the log: the writer's bounds beside those of the job."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits
from sluice.recalibration.log.reason import _each
from sluice.usage.access_record import LIMIT_KEYS, MOST, REQUESTS, ROLLUP, TABLES, WINDOW_MS, ColumnType
from sluice.usage.records import Amount
from sluice.usage.requests import RequestRows
from testkit.access_log.access_records import NOW_MS, OFFSET_MS, connection, flow, record, rollup
from testkit.access_log.access_windows import Told
from testkit.frames.mutation_frames import created
from testkit.proxy.mutation_session import creates
from testkit.proxy.playbook import START_MS
from tests.proxy.access_log.test_access_log import Process

DAY_MS = 86_400_000.0
ANSWERS = {"refused": 37, "its time was over": 7}
PLACES_AND_TIMES = {"window_start_ms", "finished_ms", "api_key", "api_version", "weight"}


def bounds(table: str) -> list[tuple[str, float, float]]:
    """A column that the job judges, the least and the most of it."""
    found = []
    for name, within in _each(table):
        least, most = within.partition("BETWEEN ")[2].split(" AND ")
        found.append((name, float(least.rstrip("LD")), float(most.rstrip("LD"))))
    return found


def beyond(rows: list[dict[str, Any]], table: str = ROLLUP) -> set[str]:
    return {name for row in rows for name, least, most in bounds(table) if not least <= row[name] <= most}


@pytest.mark.parametrize("partitions", [10_000, 2**31 - 1])
@pytest.mark.parametrize("error_code", ANSWERS.values(), ids=ANSWERS)
def test_a_trillion_partitions_asked_for_are_within_reason_in_every_window(
    error_code: int, partitions: int
) -> None:
    """Of topics larger than a controller makes none counts."""
    process = Process(QuotaLimits([(QuotaEntity(DEFAULT), {"controller_mutation_rate": 100.0})]))
    shell = process.connection()
    names = [f"t{number}" for number in range(500)]
    creates(shell, dict.fromkeys(names, partitions), version=4)
    shell.advance(WINDOW_MS)
    shell.broker_sends(created(dict.fromkeys(names, (error_code, -1)), version=4))
    rows = process.ends(START_MS + WINDOW_MS + 10).of(ROLLUP)
    assert rows
    assert not beyond(rows)
    is_counted = error_code != ANSWERS["refused"] and partitions == 10_000
    assert sum(row["mutations"] for row in rows) == (5e6 if is_counted else 0.0)


def test_a_thousand_answers_after_24_days_are_within_reason() -> None:
    """A Fetch may wait for 2³¹ ms; its client has as many as he has connections."""
    grows = rollup()
    fetches = flow(connection(), "c")
    grows.add_requests([record(fetches, 1.0, upstream_ms=24.0 * DAY_MS) for _ in range(1_000)], slow_ms=1e9)
    grows.close(OFFSET_MS)
    [row] = Told().rows(grows.over[0])
    assert row["upstream_ms"] == MOST[ColumnType.DOUBLE]
    assert not beyond([row])


@pytest.mark.parametrize("column", [column.name for column in TABLES[ROLLUP] if column.type in MOST])
@pytest.mark.parametrize("amount", [1e15, -1e15])
def test_no_sum_of_a_row_is_beyond_reason(column: str, amount: float) -> None:
    if column in {*LIMIT_KEYS, *PLACES_AND_TIMES}:
        return
    grows = rollup()
    grows.add_amounts([Amount(flow(connection(), "c"), column, amount, NOW_MS)])
    grows.close(OFFSET_MS)
    assert not beyond(Told().rows(grows.over[0]))


@pytest.mark.parametrize("table", TABLES)
def test_the_writer_keeps_ten_times_away_from_what_is_beyond_reason(table: str) -> None:
    type_of = {column.name: column.type for column in TABLES[table]}
    for name, least, most in bounds(table):
        if name not in PLACES_AND_TIMES:
            assert least <= 0 <= MOST[type_of[name]] <= most / 10, name


def test_a_request_of_a_sample_is_within_reason_with_its_weight() -> None:
    rows = RequestRows("p1", share=1e-6, slow_ms=1e9, max_rows=10)
    rows._next = 0
    rows.add([record(flow(connection(), "c"), 1.0, request_bytes=2**31, upstream_ms=9e7)], [], 0.0)
    [row] = [
        dict(zip((column.name for column in TABLES[REQUESTS]), values, strict=True))
        for values in zip(*rows.take(), strict=True)
    ]
    assert row["weight"] > 999_999
    for name in ("request_bytes", "upstream_ms"):
        row[name] *= row["weight"]
    assert not beyond([row], REQUESTS)
