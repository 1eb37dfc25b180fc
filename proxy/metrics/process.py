"""The process's own metrics, by the names and texts that Prometheus' client libraries give them.

prometheus_client's collector lists /proc/self/fd in one call: 15 ms with 18,000 descriptors, for which no
connection was served, at each scrape. Linux tells their number as that folder's size since 6.2; before, they
are counted a few at a time. What is read is opened once, for when no descriptor is left.
"""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import islice
from math import inf
from pathlib import Path
from typing import Final

from sluice.proxy.metrics.family import Family

_DESCRIPTORS: Final = "/proc/self/fd"
_PER_STEP: Final = 1_000
"""descriptors counted at once: about 0.8 ms"""
_PAGE_BYTES: Final = resource.getpagesize()
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
# Fields of /proc/self/stat behind the command's name (proc_pid_stat(5)), from 0.
_START_TICKS: Final = 19
_VIRTUAL_BYTES: Final = 20
_RESIDENT_PAGES: Final = 21


class ProcessMetrics:
    """What this process uses; nothing where there is no /proc. `refresh` before `collect`."""

    def __init__(self) -> None:
        self._open_fds: int | None = None
        with suppress(OSError):  # while there are descriptors
            _stat_fields()
            _boot_unix_s()

    async def refresh(self) -> None:
        """Count the open descriptors, for the next `collect`."""
        self._open_fds = await open_descriptors()

    def collect(self) -> Iterator[Family]:
        """Each family once; process_open_fds only if it could be counted."""
        try:
            fields = _stat_fields()
            started_unix_s = _boot_unix_s() + int(fields[_START_TICKS]) / _TICKS_PER_S
        except OSError:
            return
        used = resource.getrusage(resource.RUSAGE_SELF)
        yield _gauge("virtual_memory_bytes", "Virtual memory size in bytes.", int(fields[_VIRTUAL_BYTES]))
        resident_bytes = int(fields[_RESIDENT_PAGES]) * _PAGE_BYTES
        yield _gauge("resident_memory_bytes", "Resident memory size in bytes.", resident_bytes)
        help_text = "Start time of the process since unix epoch in seconds."
        yield _gauge("start_time_seconds", help_text, started_unix_s)
        yield Family(
            "process_cpu_seconds",
            "counter",
            "Total user and system CPU time spent in seconds.",
            [("process_cpu_seconds_total", used.ru_utime + used.ru_stime)],
        )
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        max_fds = inf if soft == resource.RLIM_INFINITY else soft
        yield _gauge("max_fds", "Maximum number of open file descriptors.", max_fds)
        if self._open_fds is not None:
            yield _gauge("open_fds", "Number of open file descriptors.", self._open_fds)


async def open_descriptors(*, is_told: bool = True) -> int | None:
    """How many this process has; None: no descriptor is left to count them. `is_told`: ask Linux first."""
    count = 0
    try:
        if is_told and (told := os.stat(_DESCRIPTORS).st_size):
            return told
        with os.scandir(_DESCRIPTORS) as entries:
            while found := sum(1 for _ in islice(entries, _PER_STEP)):
                count += found
                await asyncio.sleep(0)
    except OSError:
        return None
    return count - 1  # the folder itself


@cache
def _stat_descriptor() -> int:
    return os.open("/proc/self/stat", os.O_RDONLY | os.O_CLOEXEC)


def _stat_fields() -> list[bytes]:
    # The command's name may hold spaces and brackets.
    return os.pread(_stat_descriptor(), 4096, 0).rpartition(b")")[2].split()


@cache
def _boot_unix_s() -> float:
    with Path("/proc/stat").open("rb") as lines:
        return next((float(line.split()[1]) for line in lines if line.startswith(b"btime ")), 0.0)


def _gauge(name: str, help_text: str, value: float) -> Family:
    return Family(f"process_{name}", "gauge", help_text, [(f"process_{name}", value)])
