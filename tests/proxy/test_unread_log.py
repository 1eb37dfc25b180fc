"""`sluice run` whose standard error nobody reads, or that has none: it serves on, and ends in time."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testkit.frames.frames import produce
from testkit.frames.wire import dial
from testkit.peers.fault_broker import FaultBroker, answers
from testkit.processes.ports import LOOPBACK, free_port
from testkit.proxy.sluice_process import SLUICE, Door, SluiceProcess

PIPE_BYTES = 4096
LIMIT = {"client-id": "a"}


@contextmanager
def unread(path: Path) -> Iterator[int]:
    """A pipe as small as can be, with a name. Yields a descriptor that nobody has read from."""
    os.mkfifo(path)
    descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def told_to(redirection: str) -> tuple[str | Path, ...]:
    return "sh", "-c", f'exec "$0" "$@" {redirection}', SLUICE


async def is_served(proxy: SluiceProcess) -> None:
    async with asyncio.timeout(30.0):
        with await dial(proxy.doors["D0"].port) as client:
            await client.send(produce(correlation_id=4))
            assert (await client.frame())[4:8] == (4).to_bytes(4, "big")


@pytest.mark.asyncio
@pytest.mark.parametrize("is_read", [False, True])
async def test_a_log_that_nobody_reads_stops_nobody(tmp_path: Path, is_read: bool) -> None:
    """Each new quota file is a line of the log."""
    with unread(tmp_path / "log") as log:
        async with FaultBroker(answers) as broker:
            doors = [Door("D0", free_port(), (LOOPBACK, broker.port))]
            proxy = SluiceProcess(doors, program=told_to(f'2>"{tmp_path}/log"'))
            try:
                await asyncio.to_thread(proxy.start)
                for rate in range(30):
                    await asyncio.to_thread(proxy.set_quotas, LIMIT | {"producer_byte_rate": 1000 + rate})
                await is_served(proxy)
                assert proxy.metric("sluice_log_lines_dropped_total") == 0  # they wait
                lines = bytearray(os.read(log, PIPE_BYTES))
                while is_read and lines.count(b"quotas_applied") < 30:
                    lines += await asyncio.to_thread(wait_and_read, log)
                assert await asyncio.to_thread(proxy.stop) == 0
            finally:
                await asyncio.to_thread(proxy.close)
    for line in lines.splitlines() if is_read else ():
        json.loads(line)


def wait_and_read(descriptor: int) -> bytes:
    os.set_blocking(descriptor, True)
    return os.read(descriptor, PIPE_BYTES)


@pytest.mark.asyncio
@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-"])
async def test_a_process_without_standard_files_serves(closed: str) -> None:
    """Their numbers are those of the next files which are opened: nothing is written to these."""
    async with FaultBroker(answers) as broker:
        doors = [Door("D0", free_port(), (LOOPBACK, broker.port))]
        with SluiceProcess(doors, program=told_to(closed)) as proxy:
            await is_served(proxy)
            standard = [os.readlink(f"/proc/{proxy.process.pid}/fd/{number}") for number in range(3)]
            assert standard.count(os.devnull) == len(closed.split()) + ("<" not in closed)  # it has no input
            assert proxy.log.read_text() == ""


@pytest.mark.parametrize(
    ("arguments", "code", "printed"),
    [(["check", "--config", "none"], 2, ""), (["version"], 0, "sluice "), (["healthcheck"], 1, "")],
)
def test_a_command_without_standard_error_prints_what_it_prints(
    tmp_path: Path, arguments: list[str], code: int, printed: str
) -> None:
    """Errors nowhere, and not among what it prints."""
    done = subprocess.run([*told_to("2>&-"), *arguments], stdout=-1, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout[: len("sluice ")]) == (code, printed)
    assert subprocess.run([*told_to(">&- 2>&-"), *arguments], check=False, cwd=tmp_path).returncode == code
