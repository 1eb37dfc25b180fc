"""How often the meter takes what sessions recorded: ten times a second, once a second while nothing comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace

import pytest

from sluice.proxy.metrics import usage_meter
from sluice.proxy.runtime import tasks
from sluice.usage.records import Flow, Recorder, RequestRecord
from testkit.access_log.finished import Finished
from testkit.proxy.meter_bench import NOW_MS, PRODUCE, Bench, event, limits_of

REQUEST: RequestRecord = tuple(Finished(Flow("app"), upstream_ms=1.0))  # type: ignore[assignment]


def occupied() -> asyncio.Event:
    """A client is there."""
    event = asyncio.Event()
    event.set()
    return event


class Pace:
    """Time passes only while the meter sleeps, and as long as it sleeps."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        self.looks_s: list[float] = []
        """when the meter woke up"""
        self.drains_s: list[float] = []
        """when it showed the access log what it removes"""
        self.at: dict[float, Callable[[], None]] = {}
        """what happens at a time, once"""
        self.while_asleep: Callable[[float], None] = lambda _: None
        """told how long it sleeps"""
        self._meter = bench.meter
        self._meter.access_log = self._note
        self._sleep = asyncio.sleep
        monkeypatch.setattr(asyncio, "sleep", self._pass_time)
        monkeypatch.setattr(usage_meter, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        monkeypatch.setattr(tasks, "now_s", lambda: self.now_s)
        monkeypatch.setattr(tasks, "monotonic", lambda: self.now_s)

    def run(self, until_s: float) -> None:
        """Let the meter run until then."""

        async def run() -> None:
            running = asyncio.ensure_future(self._meter.run(occupied()))
            while self.now_s < until_s:
                await self._sleep(0)
            running.cancel()

        asyncio.run(run())

    async def _pass_time(self, delay_s: float) -> None:
        if delay_s:
            self.now_s += delay_s
            self.while_asleep(delay_s)
            self.looks_s.append(self.now_s)
            for due_s in [due_s for due_s in self.at if due_s <= self.now_s]:
                self.at.pop(due_s)()
        await self._sleep(0)

    def _note(self, _recorder: Recorder, now_ms: float) -> None:
        self.drains_s.append(now_ms / 1000.0)


def longest(times_s: list[float], since_s: float) -> float:
    """Between two of them."""
    late = [time_s for time_s in times_s if time_s >= since_s]
    return max(after_s - before_s for before_s, after_s in pairwise(late))


def test_while_nothing_comes_it_looks_once_a_second_and_drains_each_five(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pace = Pace(Bench(limits_of(alice=1000)), monkeypatch)
    pace.run(1061.0)
    assert 59 <= len(pace.looks_s) <= 75
    assert longest(pace.looks_s, 1002.0) == pytest.approx(1.0)
    assert 12 <= len(pace.drains_s) <= 25
    assert longest(pace.drains_s, 1002.0) == pytest.approx(5.0)


def left(bench: Bench, kind: str) -> None:
    """A session has left one record of a kind."""
    if kind == "requests":
        bench.request()
    elif kind == "throttles":
        bench.recorder.throttles.append(event("alice"))
    else:
        getattr(bench.recorder, kind).append(object())


@pytest.mark.parametrize("kind", ["requests", "throttles", "amounts", "unanswered", "arrivals"])
def test_what_comes_after_a_silence_is_drained_at_the_next_look_and_then_ten_times_a_second(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    bench = Bench(limits_of(alice=1000))
    pace = Pace(bench, monkeypatch)
    pace.at = {1031.5: lambda: left(bench, kind), 1032.05: bench.request, 1032.45: bench.request}
    pace.run(1035.0)
    assert [round(time_s, 2) for time_s in pace.drains_s if 1031.0 < time_s < 1032.55] == pytest.approx(
        [1032.0, 1032.1, 1032.2, 1032.3, 1032.4, 1032.5]
    )


@pytest.mark.parametrize(
    ("per_s", "wanted_s"), [(19_000, 0.1), (40_000, 0.05), (100_000, 0.02), (1_000_000, 0.01)]
)
def test_the_more_come_the_sooner_they_are_drained(
    monkeypatch: pytest.MonkeyPatch, per_s: int, wanted_s: float
) -> None:
    """About DRAIN_REQUESTS at once, and a hundred times a second at most."""
    bench = Bench(limits_of(alice=1000))
    pace = Pace(bench, monkeypatch)

    def come(delay_s: float) -> None:
        rate_per_s = per_s if pace.now_s < 1003.0 else 100
        bench.recorder.requests.extend([REQUEST] * round(rate_per_s * delay_s))

    pace.while_asleep = come
    pace.run(1004.0)
    times_s = [time_s for time_s in pace.drains_s if time_s > 1002.0]
    busy = [after_s - before_s for before_s, after_s in pairwise(times_s) if after_s < 1002.95]
    calm = [after_s - before_s for before_s, after_s in pairwise(times_s) if before_s > 1003.05]
    assert busy == pytest.approx([wanted_s] * len(busy), rel=0.01)
    assert calm == pytest.approx([0.1] * len(calm))
    assert busy
    assert calm


def test_run_keeps_the_meter_current_until_it_is_cancelled() -> None:
    bench = Bench(limits_of(alice=1000))
    bench.request()
    bench.sensor("alice").charge(5, NOW_MS)

    async def follow() -> None:
        running = asyncio.ensure_future(bench.meter.run(occupied()))
        while not bench.meter.limits:  # noqa: ASYNC110  nothing tells that a fold is over
            await asyncio.sleep(0.005)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(asyncio.wait_for(follow(), 30))
    assert PRODUCE in bench.meter.apis
