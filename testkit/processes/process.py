"""What Linux knows of another process: CPU time, resident memory, wake-ups; and the limits of our own.

Source: proc(5), clock_getcpuclockid(3).
"""

import contextlib
import os
import resource
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from testkit.processes.guarded_process import GuardedProcess
from testkit.processes.ports import LOOPBACK

PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class BenchError(RuntimeError):
    """The measurement cannot be trusted or not be made; the message says why and what to do."""


def cpu_s(pid: int) -> float:
    """User + system CPU time of the process, all its threads, ended ones too.

    The process's own CPU clock: the sum that utime + stime of /proc/PID/stat give, in nanoseconds instead of
    ticks of 10 ms. Source: the kernel's MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED).
    """
    return time.clock_gettime((~pid << 3) | 2)


def rss_bytes(pid: int) -> int:
    """Resident memory of the process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES


def wakeups(pid: int) -> int:
    """How often the process's threads gave up the CPU of themselves: once each time that one ran out of work.

    Of all threads, as some proxies work in another than their first. What ended threads did is gone.
    """
    found = 0
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            for line in (thread / "status").read_text().splitlines():
                if line.startswith("voluntary_ctxt_switches:"):
                    found += int(line.split()[1])
    if not found:
        raise BenchError(f"no process {pid}")
    return found


def raise_fd_limit(wanted: int) -> int:
    """Raises the soft limit of open files towards `wanted`; returns what we and our children may open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and allowed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return max(allowed, soft)


def wait_for_port(port: int, process: GuardedProcess, what: str, within_s: float = 20.0) -> None:
    """Returns once something accepts on the port. Raises BenchError when the process ends or stays deaf."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if process.exit_code() is not None:
            raise BenchError(f"{what} ended with exit code {process.exit_code()} before it listened")
        with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=1):
            return
        time.sleep(0.05)
    raise BenchError(f"{what} does not listen on port {port} after {within_s:.0f} s")


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process has used up to one moment."""

    at_s: float
    cpu_s: float
    wakeups: int
    rss_bytes: int


def usage(pid: int) -> Usage:
    """A snapshot of the process, CPU time first."""
    used_s = cpu_s(pid)
    return Usage(time.perf_counter(), used_s, wakeups(pid), rss_bytes(pid))
