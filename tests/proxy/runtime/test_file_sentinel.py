"""FileSentinel: the loop is woken for what is new, for a look that hangs, and for nothing else."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sluice.proxy.runtime import file_sentinel
from sluice.proxy.runtime.file_sentinel import FileSentinel, Found, states_of
from sluice.proxy.runtime.watched_file import WatchedFiles, identify
from testkit.proxy.local_proxy import until

OLD_S = 1_000_000_000.0


class Watcher:
    """Follows one file as its task would, and counts how often it was told."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.watched = WatchedFiles()
        self.looks = 0
        self.told = 0
        self.fails = False
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.sentinel = FileSentinel((path,), 0.005, self.watched, self.look)

    def look(self, paths: object) -> Found:
        self.looks += 1
        assert self.goes_on.wait(30.0)
        if self.fails:
            self.fails = False
            raise SystemExit  # a thread ends by it without a word
        return states_of((self.path,))

    async def run(self) -> None:
        while True:
            await self.sentinel.changed()
            self.told += 1
            seen = identify((self.path,))
            if self.watched.wants_reading(seen):
                self.watched.take(seen, self.path.read_text(), OLD_S * 2)
                self.watched.accept(self.path.read_text(), OLD_S * 2)


@asynccontextmanager
async def following(path: Path) -> AsyncIterator[Watcher]:
    watcher = Watcher(path)
    task = asyncio.ensure_future(watcher.run())
    try:
        await until(lambda: watcher.watched.is_at_rest and watcher.looks > 3)
        yield watcher
    finally:
        watcher.goes_on.set()
        watcher.sentinel.close()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def write(path: Path, text: str, written_s: float = OLD_S) -> None:
    path.write_text(text)
    os.utime(path, (written_s, written_s))


@pytest.mark.asyncio
async def test_a_file_that_does_not_change_wakes_nobody(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write(path, "one")
    async with following(path) as watcher:
        told, looks = watcher.told, watcher.looks
        await until(lambda: watcher.looks >= looks + 20)
        assert watcher.told == told


@pytest.mark.asyncio
async def test_what_is_new_is_told_also_of_a_file_that_is_gone_and_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write(path, "one")
    async with following(path) as watcher:
        write(path, "another")
        await until(lambda: watcher.watched.status.hash == "another")
        aside = path.rename(tmp_path / "aside")
        told = watcher.told
        path.touch()
        write(path, "third")
        await until(lambda: watcher.told > told and watcher.watched.status.hash == "third")
        assert aside.read_text() == "another"


@pytest.mark.asyncio
async def test_a_file_as_young_as_a_tick_of_its_clock_is_looked_at_again(tmp_path: Path) -> None:
    """Written twice in one tick it looks unchanged; so nobody rests until it is older."""
    path = tmp_path / "f"
    write(path, "one")
    async with following(path) as watcher:
        write(path, "two", OLD_S * 2)
        await until(lambda: watcher.watched.status.hash == "two")
        write(path, "2nd", OLD_S * 2)  # the same size, the same time
        await until(lambda: watcher.watched.status.hash == "2nd")


@pytest.mark.asyncio
async def test_a_look_that_hangs_is_told_and_what_it_finds_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_sentinel, "_ASKED_EVERY_S", 0.01)
    monkeypatch.setattr(file_sentinel, "_LATE_S", 0.05)
    path = tmp_path / "f"
    write(path, "one")
    async with following(path) as watcher:
        watcher.goes_on.clear()
        told = watcher.told
        await until(lambda: watcher.told > told)
        write(path, "another")
        watcher.goes_on.set()
        await until(lambda: watcher.watched.status.hash == "another")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.asyncio
async def test_a_thread_that_died_is_begun_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_sentinel, "_ASKED_EVERY_S", 0.01)
    path = tmp_path / "f"
    write(path, "one")
    async with following(path) as watcher:
        watcher.fails = True
        await until(lambda: not watcher.fails)
        write(path, "another")
        await until(lambda: watcher.watched.status.hash == "another")
