"""The process's own metrics: as prometheus_client has them, with no stall for many descriptors."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import PROCESS_COLLECTOR

from sluice.proxy.metrics import process
from sluice.proxy.metrics.collector import SluiceCollector
from sluice.proxy.metrics.exposition import exposition
from sluice.proxy.metrics.family import Family, family_of
from sluice.proxy.metrics.process import ProcessMetrics, open_descriptors
from sluice.proxy.metrics.usage_meter import UsageMeter
from sluice.proxy.runtime.gauges import Gauges
from sluice.proxy.session.producer_ids.shared import ProducerIds
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.usage.records import Recorder

MANY = 3_500


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(before[1], 2 * MANY), before[1]))
    gc.collect()  # or what other tests have left open is closed between two counts
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(MANY)]
    yield
    for each in opened:
        os.close(each)
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def counted() -> int:
    return len(os.listdir("/proc/self/fd")) - 1  # the folder itself


async def told() -> dict[str, Family]:
    metrics = ProcessMetrics()
    await metrics.refresh()
    return {family.name: family for family in metrics.collect()}


@pytest.mark.asyncio
async def test_names_types_and_texts_are_those_of_prometheus_client() -> None:
    ours = await told()
    theirs = {family.name: family for family in map(family_of, PROCESS_COLLECTOR.collect())}
    assert ours.keys() == theirs.keys()
    for name, family in theirs.items():
        assert (family.type, family.documentation) == (ours[name].type, ours[name].documentation)
        assert [text for text, _ in family.samples] == [text for text, _ in ours[name].samples]
        allowed = 0.05 if name == "process_cpu_seconds" else 0.02 * family.samples[0][1] + 2.0
        assert ours[name].samples[0][1] == pytest.approx(family.samples[0][1], abs=allowed), name


COUNTS = f"""
import asyncio, os
from sluice.proxy.metrics.process import ProcessMetrics, open_descriptors

async def counts():
    metrics = ProcessMetrics()
    await metrics.refresh()
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range({MANY})]
    await metrics.refresh()
    shown = next(each for each in metrics.collect() if each.name == "process_open_fds").samples[0][1]
    listed = len(os.listdir("/proc/self/fd")) - 1  # the folder itself
    print(listed, await open_descriptors(), await open_descriptors(is_told=False), int(shown))

asyncio.run(counts())
"""


@pytest.mark.usefixtures("many_descriptors")  # for how many there may be
def test_descriptors_are_counted() -> None:
    """In a process of its own: in this one, threads that other tests have left open and close some."""
    done = subprocess.run([sys.executable, "-c", COUNTS], capture_output=True, text=True, check=True)
    listed, *counted = map(int, done.stdout.split())
    assert listed > MANY
    assert counted == [listed] * 3


@pytest.mark.asyncio
async def test_where_linux_does_not_tell_others_run_between_steps(many_descriptors: None) -> None:
    rounds = 0

    async def others() -> None:
        nonlocal rounds
        while True:
            await asyncio.sleep(0)
            rounds += 1

    running = asyncio.ensure_future(others())
    await asyncio.sleep(0)
    await open_descriptors(is_told=False)
    running.cancel()
    assert rounds >= MANY // 1_000


@pytest.mark.asyncio
@pytest.mark.skipif(not os.stat("/proc/self/fd").st_size, reason="Linux tells it since 6.2")
async def test_where_linux_tells_nothing_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    def listed(*_: Any) -> Any:
        raise AssertionError("listed")

    monkeypatch.setattr(os, "scandir", listed)
    monkeypatch.setattr(os, "listdir", listed)
    quotas = QuotaManager(QuotaLimits())
    collector = SluiceCollector(UsageMeter(Recorder(), quotas, ProducerIds()), quotas, Gauges(), {})
    page, _ = await exposition(collector, "")
    assert b"process_open_fds " in page


@pytest.mark.asyncio
async def test_no_descriptor_is_needed() -> None:
    assert await told()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            os.open(os.devnull, os.O_RDONLY)
        assert await open_descriptors(is_told=False) is None
        families = await told()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert "process_resident_memory_bytes" in families
    assert ("process_open_fds" in families) == bool(os.stat("/proc/self/fd").st_size)


@pytest.mark.asyncio
async def test_without_proc_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> int:
        raise FileNotFoundError

    monkeypatch.setattr(process, "_stat_descriptor", missing)
    assert await told() == {}


def test_the_file_is_that_of_this_process() -> None:
    assert process._stat_fields()[1] == str(os.getppid()).encode()
    assert Path("/proc/self/stat").exists()
