"""Work that runs as long as the process begins again when it fails: told, counted, with growing pauses."""

from __future__ import annotations

import asyncio
import threading

import pytest
from structlog.testing import capture_logs

from sluice.proxy.runtime.supervision import BackOff, keep_running, keep_thread_running, restarts
from testkit.proxy.local_proxy import until


@pytest.mark.asyncio
async def test_a_task_that_fails_begins_again_with_growing_pauses() -> None:
    begun = 0

    async def work() -> None:
        nonlocal begun
        begun += 1
        if begun < 4:
            raise RuntimeError("boom")
        await asyncio.Event().wait()

    with capture_logs() as lines:
        task = keep_running(work, "test_task", 0.01)
        await until(lambda: begun == 4)
    assert [line["again_in_s"] for line in lines] == [0.01, 0.02, 0.04]
    assert {line["event"] for line in lines} == {"task_failed"}
    assert restarts["test_task"] == 3
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.asyncio
async def test_a_task_that_ends_by_itself_has_ended() -> None:
    async def work() -> None:
        pass

    await asyncio.wait_for(keep_running(work, "test_end"), 10.0)
    assert restarts["test_end"] == 0


def test_a_thread_that_fails_begins_again_also_if_its_clean_up_fails() -> None:
    begun, cleaned = [], []

    def work() -> None:
        begun.append(1)
        if len(begun) < 3:
            raise RuntimeError("boom")

    def clean_up(error: Exception) -> None:
        cleaned.append(str(error))
        raise OSError("that, too")

    keep_thread_running(work, "test_thread", clean_up, threading.Event(), 0.01)
    assert (len(begun), cleaned, restarts["test_thread"]) == (3, ["boom", "boom"], 2)


def test_pauses_have_an_end() -> None:
    back_off = BackOff()
    assert [back_off.failed("test_pauses", OSError()) for _ in range(8)] == [0.5, 1, 2, 4, 8, 16, 30, 30]
