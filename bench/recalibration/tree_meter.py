"""CPU time and memory of a program with all that it starts, a JVM say, sampled while it runs."""

import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import psutil

from testkit.processes.process import BenchError

_EVERY_S: Final = 0.1
_GIB: Final = 1024.0**3


@dataclass(frozen=True, slots=True)
class TreeUsage:
    """What the processes of one run used. CPU after a process' last sample is missing: two cores for 0.1 s at
    most."""

    cpu_s: float
    peak_rss_gib: float
    """the highest sum over all processes at one moment; what they share counts twice, but for a process that
    was not there at the last look: until it runs its own program it has its parent's memory"""
    wall_s: float
    output: str
    """standard output"""


def run_metered(command: Sequence[str], environ: Mapping[str, str], within_s: float) -> TreeUsage:
    """Raises BenchError when it fails or takes longer, with the end of its standard error."""
    begun = time.monotonic()
    with subprocess.Popen(
        command, env=dict(environ), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        meter = _Meter(process.pid)
        meter.start()
        try:
            output, errors = process.communicate(timeout=within_s)
        except subprocess.TimeoutExpired:
            for each in meter.processes():
                each.kill()
            raise BenchError(f"{' '.join(command[:4])} … took more than {within_s:.0f} s") from None
        finally:
            meter.stop()
    if process.returncode:
        raise BenchError(f"exit code {process.returncode} of {' '.join(command[:4])} …: {errors[-2_000:]}")
    return TreeUsage(meter.cpu_s, meter.peak_bytes / _GIB, time.monotonic() - begun, output)


class _Meter(threading.Thread):
    def __init__(self, pid: int) -> None:
        super().__init__(name="meter", daemon=True)
        self.peak_bytes = 0
        self._root = psutil.Process(pid)
        self._cpu: dict[tuple[int, float], float] = {}
        self._ended = threading.Event()

    @property
    def cpu_s(self) -> float:
        return sum(self._cpu.values())

    def processes(self) -> list[psutil.Process]:
        try:
            return [self._root, *self._root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def run(self) -> None:
        while not self._ended.wait(_EVERY_S):
            resident = 0
            for process in self.processes():
                try:
                    times = process.cpu_times()
                    known = (process.pid, process.create_time())
                    if known in self._cpu:
                        resident += process.memory_info().rss
                    self._cpu[known] = times.user + times.system
                except psutil.Error:
                    continue  # it ended just now
            self.peak_bytes = max(self.peak_bytes, resident)

    def stop(self) -> None:
        self._ended.set()
        self.join()
