"""FileSentinel: the loop is woken for what is new, for a look that hangs, and for nothing else."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from sluice.proxy.runtime import file_events, file_sentinel
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
        await until(lambda: watcher.watched.is_at_rest and watcher.looks > 0)
        yield watcher
    finally:
        watcher.goes_on.set()
        watcher.sentinel.close()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture(params=["polled", "told"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How the thread learns of changes: it looks after each interval, or the kernel tells it."""
    (polled if request.param == "polled" else told)(monkeypatch)
    return str(request.param)


def polled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_events, "are_local", lambda _folders: False)


def told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_events, "are_local", lambda _folders: True)


def holds(watcher: Watcher, text: str) -> bool:
    return watcher.watched.status.hash == text


def write(path: Path, text: str, written_s: float = OLD_S) -> None:
    path.write_text(text)
    os.utime(path, (written_s, written_s))


@pytest.mark.asyncio
async def test_a_file_that_does_not_change_wakes_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    polled(monkeypatch)
    path = tmp_path / "f"
    write(path, "one")
    async with following(path) as watcher:
        times_told, looks = watcher.told, watcher.looks
        await until(lambda: watcher.looks >= looks + 20)
        assert watcher.told == times_told


@pytest.mark.asyncio
async def test_where_the_kernel_tells_of_changes_nobody_looks_before_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(monkeypatch)
    path = tmp_path / "f"
    write(path, "one")
    async with following(path) as watcher:
        times_told, looks = watcher.told, watcher.looks
        await asyncio.sleep(0.2)  # 40 intervals
        assert watcher.looks - looks <= 1  # what the fixture wrote may be told by now
        looks = watcher.looks
        write(tmp_path / "beside", "it")
        await until(lambda: watcher.looks > looks)
        assert watcher.told == times_told


@pytest.mark.asyncio
@pytest.mark.usefixtures("way")
async def test_what_is_new_is_told_also_of_a_file_that_is_gone_and_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write(path, "one")
    async with following(path) as watcher:
        write(path, "another")
        await until(lambda: watcher.watched.status.hash == "another")
        aside = path.rename(tmp_path / "aside")
        times_told = watcher.told
        path.touch()
        write(path, "third")
        await until(lambda: watcher.told > times_told and watcher.watched.status.hash == "third")
        assert aside.read_text() == "another"


@pytest.mark.asyncio
@pytest.mark.usefixtures("way")
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
    polled(monkeypatch)
    monkeypatch.setattr(file_sentinel, "_ASKED_EVERY_S", 0.01)
    monkeypatch.setattr(file_sentinel, "_LATE_S", 0.05)
    path = tmp_path / "f"
    write(path, "one")
    async with following(path) as watcher:
        watcher.goes_on.clear()
        times_told = watcher.told
        await until(lambda: watcher.told > times_told)
        write(path, "another")
        watcher.goes_on.set()
        await until(lambda: watcher.watched.status.hash == "another")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.asyncio
async def test_a_thread_that_died_is_begun_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    polled(monkeypatch)
    monkeypatch.setattr(file_sentinel, "_ASKED_EVERY_S", 0.01)
    path = tmp_path / "f"
    write(path, "one")
    async with following(path) as watcher:
        watcher.fails = True
        await until(lambda: not watcher.fails)
        write(path, "another")
        await until(lambda: watcher.watched.status.hash == "another")


@pytest.mark.asyncio
@pytest.mark.usefixtures("way")
async def test_a_configmap_and_a_checked_out_folder_that_are_exchanged_are_told(tmp_path: Path) -> None:
    """Both by a link that is replaced: beside the file's own link, and above the file."""
    for number, text in enumerate(("one", "another")):
        (tmp_path / f"at-{number}").mkdir()
        write(tmp_path / f"at-{number}" / "f", text)
    (tmp_path / "data").symlink_to("at-0")
    (tmp_path / "f").symlink_to("data/f")
    for path in (tmp_path / "f", tmp_path / "data" / "f"):
        async with following(path) as watcher:
            assert watcher.watched.status.hash == "one"
            (tmp_path / "new").symlink_to("at-1")
            (tmp_path / "new").rename(tmp_path / "data")
            await until(partial(holds, watcher, "another"))
        (tmp_path / "new").symlink_to("at-0")
        (tmp_path / "new").rename(tmp_path / "data")


@pytest.mark.asyncio
async def test_what_the_kernel_does_not_tell_is_found_by_a_look_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(monkeypatch)
    monkeypatch.setattr(file_sentinel, "_SURE_S", 0.05)
    (tmp_path / "above" / "folder").mkdir(parents=True)
    path = tmp_path / "above" / "folder" / "f"
    write(path, "one")
    async with following(path) as watcher:
        (tmp_path / "new" / "folder").mkdir(parents=True)
        write(tmp_path / "new" / "folder" / "f", "another")
        (tmp_path / "above").rename(tmp_path / "old")
        (tmp_path / "new").rename(tmp_path / "above")
        await until(lambda: watcher.watched.status.hash == "another")
        write(path, "third")  # in the folder that is followed now
        await until(lambda: watcher.watched.status.hash == "third")


@pytest.mark.asyncio
@pytest.mark.parametrize("turns", range(5))
async def test_who_is_cancelled_in_the_moment_in_which_something_is_told_ends(
    tmp_path: Path, turns: int
) -> None:
    """asyncio.wait_for of Python 3.11 loses a cancellation that comes together with what it waited for."""
    path = tmp_path / "quotas.yaml"
    path.write_text("old")
    os.utime(path, (OLD_S, OLD_S))
    async with following(path) as watcher:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        watcher.sentinel._new.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        _, going_on = await asyncio.wait(tasks, timeout=5.0)
        for task in going_on:  # or it would never end here
            task.cancel()
        assert not going_on


@pytest.mark.asyncio
async def test_it_ends_and_leaves_no_descriptor_open(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write(path, "one")
    before = set(os.listdir("/proc/self/fd"))
    async with following(path):
        names = {thread.name for thread in threading.enumerate()}
        assert "file-sentinel" in names
    await until(lambda: "file-sentinel" not in {thread.name for thread in threading.enumerate()})
    assert set(os.listdir("/proc/self/fd")) <= before
