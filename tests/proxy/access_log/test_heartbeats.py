"""A heartbeat says that the rows of its window are there: it is written with them, or not at all."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sluice.proxy.access_log.access_log import AccessLog
from sluice.proxy.access_log.sums import Sums, WindowSums
from sluice.proxy.access_log.writer import AccessWriter
from sluice.proxy.config.access_log import AccessLogOptions
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.usage.access_record import HEARTBEAT_CLASS, HEARTBEAT_END_CLASS
from sluice.usage.rollup import Window
from testkit.access_log.access_records import (
    NOW_MS,
    OFFSET_MS,
    UNIX_MS,
    connection,
    flow,
    record,
    recorder_of,
)
from testkit.access_log.access_rows import read_all
from testkit.access_log.access_writers import settings_of

LOST = 1
"""the window of four that cannot be added up; the third is empty"""


@pytest.mark.parametrize("is_written", [False, True])
def test_a_window_whose_rows_are_lost_has_no_heartbeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_written: bool
) -> None:
    sum_up = WindowSums.sum_up

    def fails_once(sums: WindowSums, window: Window, *rest: object) -> Sums:
        if window.start_unix_ms == UNIX_MS + LOST * 10_000 and not is_written:
            raise MemoryError("no memory")
        return sum_up(sums, window)

    monkeypatch.setattr(WindowSums, "sum_up", fails_once)
    writer = AccessWriter(settings_of(tmp_path))
    log = AccessLog(
        AccessLogOptions(instance="p1", sample_share=0.0), QuotaManager(QuotaLimits()), writer, NOW_MS,
        lambda: OFFSET_MS,
    )  # fmt: skip
    writer.start()
    for window in (0, LOST, 3):
        at_ms = window * 10_000.0 + 5.0
        log.take(recorder_of([record(flow(connection()), at_ms)]), NOW_MS + at_ms)
        log.hand_over()
    asyncio.run(log.close(NOW_MS + 35_000.0))
    rows = read_all(tmp_path)
    told = {
        (int(row["window_start_ms"] - UNIX_MS) // 10_000, row["api_class"])
        for row in rows
        if row["api_class"] in {HEARTBEAT_CLASS, HEARTBEAT_END_CLASS}
    }
    beats = {(0, HEARTBEAT_CLASS), (2, HEARTBEAT_CLASS), (3, HEARTBEAT_END_CLASS)}
    assert told == (beats | {(LOST, HEARTBEAT_CLASS)} if is_written else beats)
    assert writer.counters.rows_written == len(rows) == len(told) + (3 if is_written else 2)
    assert writer.counters.rows_dropped == (0 if is_written else 1)
    assert writer.counters.rows_pending == 0
