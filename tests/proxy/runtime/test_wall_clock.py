"""A wall clock that jumps is told; one that is merely slewed is not."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from sluice.proxy.runtime.wall_clock import WallClock, watch_wall_clock
from testkit.proxy.local_proxy import until


def told(*readings: tuple[float, float]) -> list[float]:
    """By how much, for readings of (monotonic, Unix) seconds one after the other."""
    first, *others = readings
    clock = WallClock(*first)
    with capture_logs() as lines:
        for reading in others:
            clock.look(*reading)
    assert {line["event"] for line in lines} <= {"clock_jumped"}
    return [line["by_s"] for line in lines]


def test_a_jump_is_told_once_and_the_way_back_too() -> None:
    hour_s = 3600.0
    readings = [(100.0, 1e9), (105.0, 1e9 + 5 + hour_s), (110.0, 1e9 + 10 + hour_s), (115.0, 1e9 + 15)]
    assert told(*readings) == [hour_s, -hour_s]
    assert told((0.0, 1e9), (5.0, 1e9 - 24 * hour_s)) == [-24 * hour_s - 5]


def test_a_clock_that_is_slewed_or_a_loop_that_is_late_is_no_jump() -> None:
    slewed = [(5.0 * number, 1e9 + 5.0025 * number) for number in range(2000)]
    assert told(*slewed) == []
    assert told((0.0, 1e9), (300.0, 1e9 + 300.0)) == []


@pytest.mark.asyncio
async def test_it_is_watched_until_it_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    off_s = 0.0
    monkeypatch.setattr("sluice.proxy.runtime.wall_clock.time", lambda: 1e9 + off_s)
    monkeypatch.setattr("sluice.proxy.runtime.wall_clock.monotonic", lambda: 0.0)
    with capture_logs() as lines:
        watching = asyncio.get_running_loop().create_task(watch_wall_clock(0.01))
        await asyncio.sleep(0)
        off_s = 60.0
        await until(lambda: bool(lines))
    assert [(line["event"], line["log_level"], line["by_s"]) for line in lines] == [
        ("clock_jumped", "warning", 60.0)
    ]
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching
