"""Beats: what has little to do wakes up together, and more rarely while no client is there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from sluice.proxy.runtime import tasks
from sluice.proxy.runtime.tasks import beat_of_clients


class Clock:
    """Time passes only while somebody sleeps, and as long; what is due meanwhile happens at its time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, now_s: float) -> None:
        self.now_s = now_s
        self.late_s = 0.0
        """how late who sleeps wakes up"""
        self.occupied = asyncio.Event()
        self._at: list[tuple[float, Callable[[], None]]] = []
        sleep = asyncio.sleep

        async def pass_time(delay_s: float) -> None:
            until_s = self.now_s + delay_s
            while self._at and self._at[0][0] <= until_s:
                self.now_s, change = self._at.pop(0)
                change()
                await sleep(0)
            self.now_s = until_s + self.late_s

        @asynccontextmanager
        async def timeout(delay_s: float) -> AsyncIterator[None]:
            until_s = self.now_s + delay_s
            if self._at and self._at[0][0] <= until_s:
                self.now_s, change = self._at.pop(0)
                asyncio.get_running_loop().call_soon(change)
                yield
            else:
                self.now_s = until_s + self.late_s
                raise TimeoutError

        monkeypatch.setattr(asyncio, "sleep", pass_time)
        monkeypatch.setattr(asyncio, "timeout", timeout)
        monkeypatch.setattr(tasks, "now_s", lambda: self.now_s)
        monkeypatch.setattr(tasks, "monotonic", lambda: self.now_s)

    def at(self, now_s: float, change: Callable[[], None]) -> None:
        """Have it happen then; in their order."""
        self._at.append((now_s, change))

    def beats_s(self, until_s: float) -> list[float]:
        """When it beat."""

        async def beats() -> list[float]:
            found = []
            while self.now_s < until_s:
                assert await beat_of_clients(1.0, self.occupied) == pytest.approx(self.late_s)
                found.append(self.now_s)
            return found

        return asyncio.run(beats())


@pytest.mark.parametrize(("now_s", "first_s"), [(1000.25, 1001.0), (1001.25, 1002.0), (1000.95, 1002.0)])
def test_with_a_client_it_is_the_next_beat(
    monkeypatch: pytest.MonkeyPatch, now_s: float, first_s: float
) -> None:
    clock = Clock(monkeypatch, now_s)
    clock.occupied.set()
    assert clock.beats_s(first_s + 2.0) == pytest.approx([first_s, first_s + 1.0, first_s + 2.0])


@pytest.mark.parametrize(("now_s", "first_s"), [(1000.25, 1005.0), (1003.25, 1005.0)])
def test_without_one_it_is_every_fifth_beat(
    monkeypatch: pytest.MonkeyPatch, now_s: float, first_s: float
) -> None:
    clock = Clock(monkeypatch, now_s)
    assert clock.beats_s(first_s + 10.0) == pytest.approx([first_s, first_s + 5.0, first_s + 10.0])


def test_when_a_client_comes_it_is_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 1000.0)
    clock.at(1006.5, clock.occupied.set)
    assert clock.beats_s(1009.0) == pytest.approx([1005.0, 1007.0, 1008.0, 1009.0])


def test_however_often_clients_come_and_go_it_is_not_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a beat each limit may be looked at: once for each connection that comes would be too much."""
    clock = Clock(monkeypatch, 1000.0)
    for number in range(500):
        clock.at(1000.0 + number / 100.0, clock.occupied.set)
        clock.at(1000.005 + number / 100.0, clock.occupied.clear)
    beats_s = clock.beats_s(1005.0)
    assert len(beats_s) <= 5
    assert all(after_s - before_s <= 5.0 + 1e-6 for before_s, after_s in pairwise([1000.0, *beats_s]))


def test_it_tells_how_late_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 1000.0)
    clock.late_s = 0.3
    clock.at(1011.5, clock.occupied.set)
    assert clock.beats_s(1014.0) == pytest.approx([1005.3, 1010.3, 1012.3, 1013.3, 1014.3])
