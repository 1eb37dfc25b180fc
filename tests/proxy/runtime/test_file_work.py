"""Work on files that hangs: given up, never begun twice at a time, no process waits for it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from sluice.proxy.runtime.file_work import FileHangs, FileWork, within
from sluice.quotas.files.config_error import ConfigError
from testkit.proxy.local_proxy import until

pytestmark = pytest.mark.asyncio


class Blocks:
    """Work that blocks from time to time."""

    def __init__(self) -> None:
        self.may_go_on = threading.Event()
        self.begun = 0
        self.ended = 0

    def __call__(self) -> int:
        self.begun += 1
        number = self.begun
        assert self.may_go_on.wait(30.0)
        self.ended += 1
        return number


@pytest.fixture
def blocks() -> Iterator[Blocks]:
    work = Blocks()
    yield work
    work.may_go_on.set()


async def test_what_hangs_is_given_up_and_its_result_is_the_next_ones(blocks: Blocks) -> None:
    work: FileWork[int] = FileWork(0.05)
    for _ in range(3):
        with pytest.raises(FileHangs, match=r"no answer of the file system in 0\.05 s"):
            await work.run(blocks)
    assert blocks.begun == 1, "not twice at a time"
    blocks.may_go_on.set()
    await until(lambda: blocks.ended == 1)
    assert [await work.run(blocks), await work.run(blocks)] == [1, 2]


async def test_what_writes_is_begun_anew_once_the_last_one_has_ended(blocks: Blocks) -> None:
    work: FileWork[int] = FileWork(0.05)
    with pytest.raises(FileHangs):
        await work.run_anew(blocks)
    with pytest.raises(FileHangs, match="the last one still waits"):
        await work.run_anew(blocks)
    blocks.may_go_on.set()
    await until(lambda: blocks.ended == 1)
    assert await work.run_anew(blocks) == 2


async def test_at_the_end_what_is_under_way_is_waited_for_and_then_the_last_is_written(
    blocks: Blocks,
) -> None:
    work: FileWork[int] = FileWork()
    periodic = asyncio.ensure_future(work.run_anew(blocks))
    await until(lambda: blocks.begun == 1)
    periodic.cancel()
    last = asyncio.ensure_future(work.run_last(blocks))
    await asyncio.sleep(0)
    assert not last.done(), "it waits"
    blocks.may_go_on.set()
    assert await last == 2


async def test_at_the_end_what_hangs_is_not_waited_for_long(blocks: Blocks) -> None:
    work: FileWork[int] = FileWork(0.05)
    periodic = asyncio.ensure_future(work.run_anew(blocks))
    await until(lambda: blocks.begun == 1)
    periodic.cancel()
    with pytest.raises(FileHangs, match="the last one still waits"):
        await work.run_last(blocks)
    assert blocks.begun == 1


async def test_what_the_work_raises_is_raised() -> None:
    def fails() -> int:
        raise ConfigError([])

    work: FileWork[int] = FileWork()
    for _ in range(2):
        with pytest.raises(ConfigError):
            await work.run(fails)
    with pytest.raises(ConfigError):
        within("x", fails)


async def test_at_the_start_what_hangs_is_an_error(blocks: Blocks) -> None:
    with pytest.raises(ConfigError, match=r"the\.file: cannot be read: no answer of .* in 0\.05 s"):
        within("the.file", blocks, 0.05)
    assert within("the.file", lambda: 7, 0.5) == 7


HANGS = """
import asyncio, threading
from sluice.proxy.runtime.file_work import FileHangs, FileWork
async def main():
    try:
        await FileWork(0.05).run(threading.Event().wait)
    except FileHangs:
        print("given up", flush=True)
asyncio.run(main())
"""


async def test_a_process_ends_while_work_hangs() -> None:
    done = subprocess.run(  # noqa: ASYNC221
        [sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "given up\n"
