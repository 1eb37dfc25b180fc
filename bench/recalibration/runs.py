"""The single runs of the nightly job's benchmark, each a process of its own."""

import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from bench.recalibration.load import DAY, Load, write_quotas, write_requests, write_states
from bench.recalibration.tree_meter import TreeUsage, run_metered

CORES: Final = 2
WITHIN_S: Final = 3_000.0


@dataclass(frozen=True, slots=True)
class Run:
    """What one run cost."""

    name: str
    rows: int
    """request rows, or buckets of states"""
    cpu_s: float
    wall_s: float
    peak_rss_gib: float
    log_bytes: int = 0

    @property
    def cpu_us_per_row(self) -> float:
        return self.cpu_s * 1e6 / self.rows

    def as_json(self) -> dict[str, object]:
        return asdict(self) | {"cpu_us_per_row": round(self.cpu_us_per_row, 4)}


def night(name: str, load: Load, logs: Path, size: int, scratch: Path) -> Run:
    """The whole command on a log of request rows: Java's start, state, plan, replay, report."""
    quotas, settings = scratch / "quotas.yaml", scratch / "settings.yaml"
    write_quotas(quotas)
    settings.write_text("compact: false\n", encoding="utf-8")  # the next run reads the same files
    options = [f"--logs={logs}", f"--quotas={quotas}", f"--out={scratch / 'out'}", f"--date={DAY}"]
    used = _metered([*_JOB, *options, f"--settings={settings}", f"--master=local[{CORES}]"])
    return _run(name, load.rows, used, size)


def duckdb(load: Load, logs: Path, size: int, scratch: Path) -> Run:
    """The same windows and day's state by DuckDB, kept likewise, without a plan."""
    out = scratch / "duckdb"
    out.mkdir()
    used = _metered(
        [sys.executable, "-m", "bench.recalibration.duckdb_sums", str(logs), str(out), str(CORES)]
    )
    return _run("DuckDB, up to the day's state", load.rows, used, size)


def plan_of_states(name: str, days: int, entities: int, scratch: Path) -> Run:
    """States of many days → plan and files."""
    out, quotas = scratch / "out", scratch / "quotas.yaml"
    write_quotas(quotas)
    buckets = write_states(out, days, entities)
    command = [sys.executable, "-m", "bench.recalibration.plan", str(out), str(quotas), str(CORES)]
    return _run(name, buckets, _metered(command), 0)


def requests(load: Load, folder: Path) -> int:
    """Write the log's requests; returns its bytes."""
    return write_requests(load, folder)


_JOB: Final = (sys.executable, "-m", "sluice.recalibration")


def _metered(command: list[str]) -> TreeUsage:
    return run_metered(command, os.environ, WITHIN_S)


def _run(name: str, rows: int, used: TreeUsage, size: int) -> Run:
    return Run(name, rows, used.cpu_s, used.wall_s, used.peak_rss_gib, size)
