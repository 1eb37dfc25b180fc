"""Beats: what has little to do wakes up together, and more rarely while no client is there."""

from __future__ import annotations

import asyncio
import time

import pytest

from sluice.proxy.runtime import tasks
from sluice.proxy.runtime.tasks import beat_of_clients


@pytest.mark.parametrize(("now_s", "wanted_s"), [(1000.25, 0.75), (1001.25, 0.75), (1000.95, 1.05)])
def test_with_a_client_it_is_the_next_beat(
    monkeypatch: pytest.MonkeyPatch, now_s: float, wanted_s: float
) -> None:
    slept_s: list[float] = []

    async def sleep(delay_s: float) -> None:
        slept_s.append(delay_s)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr(tasks, "now_s", lambda: now_s)
    occupied = asyncio.Event()
    occupied.set()
    assert asyncio.run(beat_of_clients(1.0, occupied)) == pytest.approx(wanted_s)
    assert slept_s == pytest.approx([wanted_s])


@pytest.mark.parametrize(("now_s", "wanted_s"), [(1000.25, 1.75), (1001.25, 0.75)])
def test_without_one_it_is_every_other_beat(
    monkeypatch: pytest.MonkeyPatch, now_s: float, wanted_s: float
) -> None:
    waited_s: list[float] = []

    def timeout(delay_s: float) -> asyncio.Timeout:
        waited_s.append(delay_s)
        return asyncio.Timeout(0.0)

    monkeypatch.setattr(asyncio, "timeout", timeout)
    monkeypatch.setattr(tasks, "now_s", lambda: now_s)
    assert asyncio.run(beat_of_clients(1.0, asyncio.Event())) == pytest.approx(wanted_s)
    assert waited_s == pytest.approx([wanted_s])


def test_when_a_client_comes_it_goes_on_at_once() -> None:
    occupied = asyncio.Event()

    async def wait() -> float:
        waiting = asyncio.ensure_future(beat_of_clients(100_000.0, occupied))
        await asyncio.sleep(0)
        assert not waiting.done()
        occupied.set()
        return await waiting

    begun_s = time.monotonic()
    assert asyncio.run(wait()) > 1_000.0  # what it would have slept
    assert time.monotonic() - begun_s < 1_000.0
