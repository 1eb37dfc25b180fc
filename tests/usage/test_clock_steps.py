"""A wall clock that is set while the proxy runs: no window is told twice, nor has more than its time."""

from __future__ import annotations

from itertools import pairwise

import pytest

from sluice.usage.access_record import WINDOW_MS
from sluice.usage.collector import AccessCollector
from sluice.usage.requests import RequestRows
from sluice.usage.rollup import Window
from testkit.access_log.access_records import (
    NOW_MS,
    OFFSET_MS,
    UNIX_MS,
    RowOfNames,
    connection,
    flow,
    record,
    recorder_of,
    rollup,
)
from testkit.access_log.access_windows import Told

EVERY_MS = 100.0
SIZE = 100
SECOND = 10 * SIZE
STEP_AT_MS = 23_450.0


def rows_around(step_ms: float, lasts_ms: float = 120_000.0) -> list[RowOfNames]:
    """Ten requests a second, told of each half second; the clock is set at STEP_AT_MS."""
    alice = flow(connection())
    collected = AccessCollector(rollup(), RequestRows("p1", share=0.0, slow_ms=1e9, max_rows=10))
    at_ms = 0.0
    while at_ms < lasts_ms:
        records = [
            record(alice, at_ms + n * EVERY_MS, request_bytes=SIZE, response_bytes=0) for n in range(5)
        ]
        at_ms += 5 * EVERY_MS
        offset_ms = OFFSET_MS + (step_ms if at_ms > STEP_AT_MS else 0.0)
        collected.take(recorder_of(records), NOW_MS + at_ms, NOW_MS + at_ms + offset_ms)
    collected.close(NOW_MS + at_ms, NOW_MS + at_ms + OFFSET_MS + step_ms)
    told = Told()
    return [row for ready in collected.ready() if isinstance(ready, Window) for row in told.rows(ready)]


def begins(rows: list[RowOfNames]) -> list[int]:
    return [int(row["window_start_ms"] - UNIX_MS) for row in rows]


@pytest.mark.parametrize("step_ms", [-599_000, -30_000, -30_500, -4_500, -40, 40, 4_500, 5_500, 26_000, 9e7])
def test_no_window_comes_twice_nor_has_more_than_its_time(step_ms: float) -> None:
    rows = rows_around(step_ms)
    assert sum(row["request_bytes"] for row in rows) == 120 * SECOND
    assert all(after - before >= WINDOW_MS for before, after in pairwise(begins(rows)))
    assert max(row["peak_bytes_1s"] for row in rows) == SECOND
    assert max(row["request_bytes"] for row in rows) <= 1.01 * 10 * SECOND
    assert min(row["request_bytes"] for row in rows[:-1]) >= 0.99 * 10 * SECOND


@pytest.mark.parametrize("step_ms", [-30_000, 4_500])
def test_the_log_comes_back_to_the_clock(step_ms: float) -> None:
    """By a hundredth of each window."""
    after_ms = STEP_AT_MS + 101 * abs(step_ms) + 20_000
    rows = rows_around(step_ms, after_ms)
    assert begins(rows)[-1] == (after_ms + step_ms) // WINDOW_MS * WINDOW_MS


def test_a_clock_that_is_set_back_very_far_is_followed() -> None:
    """It was wrong before: a log of tomorrow would be of no use."""
    assert begins(rows_around(-86_400_000))[3:6] == [-86_370_000, -86_360_000, -86_350_000]
