"""Files of ours become what hangs or grows: that is told, and nothing else happens."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sluice.proxy.quota_store import file_watch
from sluice.proxy.quota_store.file_watch import QuotaFile
from sluice.proxy.runtime.watched_file import ReloadOutcome, identify
from sluice.quotas.files.config_error import QuotaFileError
from sluice.quotas.files.load import MAX_QUOTAS_BYTES, read_text
from sluice.quotas.limits.limits import QuotaLimits
from testkit.frames.frames import produce
from testkit.frames.wire import dial
from testkit.peers.fault_broker import FaultBroker, answers
from testkit.processes.ports import LOOPBACK, free_port
from testkit.proxy.sluice_process import SLUICE, Door, SluiceProcess

MIB = 1024 * 1024
PATIENCE_S = 0.5
"""of a look: long beside one that does not hang, also where its thread has to wait for a processor"""
Applied = list[QuotaLimits]
LIMITS = "quotas:\n  - client-id: a\n    producer_byte_rate: {}\n"


def fifo(path: Path) -> None:
    os.mkfifo(path)


def zero(path: Path) -> None:
    path.symlink_to("/dev/zero")


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(4 * 1024 * MIB)


BAD: dict[str, tuple[Callable[[Path], None], str]] = {
    "fifo": (fifo, "not a regular file"),
    "zero": (zero, "not a regular file"),
    "sparse": (sparse, f"has more than {MAX_QUOTAS_BYTES:,} bytes"),
}


def put(path: Path, make: Callable[[Path], None]) -> None:
    """In one step, as a ConfigMap is exchanged."""
    beside = path.with_name("beside")
    make(beside)
    os.replace(beside, path)


def text(rate: int) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_text(LIMITS.format(rate))

    return write


@pytest.mark.parametrize("name", BAD)
def test_a_quota_file_that_is_none_is_refused_at_the_start(tmp_path: Path, name: str) -> None:
    make, why = BAD[name]
    make(tmp_path / "quotas.yaml")
    with pytest.raises(QuotaFileError, match=why):
        QuotaFile(tmp_path / "quotas.yaml").load()


@pytest.mark.asyncio
@pytest.mark.parametrize("name", BAD)
async def test_a_quota_file_that_becomes_none_is_told_and_followed_further(tmp_path: Path, name: str) -> None:
    make, why = BAD[name]
    path = tmp_path / "quotas.yaml"
    put(path, text(1000))
    file, applied = QuotaFile(path), Applied()
    file.load()
    put(path, make)
    assert await file.check(applied.append) is ReloadOutcome.UNREADABLE
    assert why in file.status.last_error
    put(path, text(2000))
    assert await file.check(applied.append) is ReloadOutcome.SUCCESS
    assert len(applied) == 1
    assert not file.status.last_error


@pytest.mark.asyncio
async def test_a_quota_file_whose_read_hangs_is_told_once_and_taken_when_it_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "quotas.yaml"
    put(path, text(1000))
    file, applied = QuotaFile(path, hangs_after_s=PATIENCE_S), Applied()
    file.load()
    read, goes_on, reads = read_text, threading.Event(), []

    def hangs(path: Path, what: str) -> str:
        reads.append(what)
        assert goes_on.wait(30.0)
        return read(path, what)

    monkeypatch.setattr(file_watch, "read_text", hangs)
    put(path, text(2000))
    assert await file.check(applied.append) is ReloadOutcome.HANGING
    assert "no answer of the file system" in file.status.last_error
    assert [await file.check(applied.append) for _ in range(3)] == [None] * 3
    assert (len(reads), file.status.outcomes[ReloadOutcome.HANGING]) == (1, 1)
    goes_on.set()

    outcome = None
    for _ in range(1000):
        outcome = await file.check(applied.append)
        if outcome is not None:
            break
        await asyncio.sleep(0.01)
    assert outcome is ReloadOutcome.SUCCESS
    assert len(applied) == 1
    assert not file.status.last_error


@pytest.mark.asyncio
async def test_the_content_in_force_that_hung_in_between_is_no_error_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "quotas.yaml"
    put(path, text(1000))
    file, applied = QuotaFile(path, hangs_after_s=PATIENCE_S), Applied()
    file.load()
    goes_on = threading.Event()

    def hangs(paths: tuple[Path, ...]) -> object:
        assert goes_on.wait(30.0)
        return identify(paths)

    monkeypatch.setattr(file_watch, "identify", hangs)
    assert await file.check(applied.append) is ReloadOutcome.HANGING
    goes_on.set()
    for _ in range(1000):
        await file.check(applied.append)
        if not file.status.last_error:
            break
        await asyncio.sleep(0.01)
    assert not file.status.last_error
    assert not applied


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "fifo" else pytest.mark.long) for name in BAD]
)
async def test_a_process_serves_on_and_ends_in_time_whatever_its_files_become(name: str) -> None:
    make, why = BAD[name]
    async with FaultBroker(answers) as broker:
        proxy = SluiceProcess([Door("D0", free_port(), (LOOPBACK, broker.port))])
        await asyncio.to_thread(proxy.__enter__)
        try:
            before = peak_bytes(proxy.process.pid)
            put(proxy.folder / "quotas.yaml", make)
            put(proxy.folder / "sluice.yaml", make)

            def is_told() -> bool:
                return bool(
                    proxy.log_lines("quotas_not_applied") and proxy.log_lines("configuration_not_applied")
                )

            await asyncio.to_thread(proxy.wait_until, is_told, "both told", 30.0)
            assert why in proxy.log_lines("quotas_not_applied")[0]["problems"][0]
            with await dial(proxy.doors["D0"].port) as client:
                await client.send(produce(correlation_id=4))
                assert (await client.frame())[4:8] == (4).to_bytes(4, "big")
            assert peak_bytes(proxy.process.pid) - before < 80 * MIB
            begun_s = time.monotonic()
            assert await asyncio.to_thread(proxy.stop) == 0
            assert time.monotonic() - begun_s < 15.0
        finally:
            await asyncio.to_thread(proxy.__exit__, None, None, None)


@pytest.mark.parametrize("name", BAD)
def test_a_configuration_that_is_none_ends_the_start_with_a_line(tmp_path: Path, name: str) -> None:
    make, _ = BAD[name]
    path = tmp_path / "sluice.yaml"
    make(path)
    done = subprocess.run(
        [SLUICE, "run", "--config", path],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)),
    )
    assert done.returncode == 2, done.stderr
    assert "cannot read the configuration file" in done.stderr


def peak_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")
