"""What the nightly job costs: request rows → plan, 28 days of states → plan, and how both grow.

    python -m bench.recalibration [--rows 100000000] [--out FOLDER]
    python -m bench.recalibration --cluster-alone       only whether a cluster makes the plan of local[*]

The standard load (22,000 pairs of user and client id by Zipf's law, 50 topics) of one day; without --rows
four million, minutes. The last line of standard output is one JSON object with the figures that have goals:

    vs_duckdb                   CPU of a row, rows → plan, ÷ DuckDB's on the same rows up to a day's state
                                (duckdb_sums.py); ≤ 6 with 100 million rows, and more with fewer
    night_10m_rows_s            a night of 10 million rows, ≤ 120
    peak_rss_gb                 the highest of all the job's runs, ≤ 3.5
    entities_100k_28_days_s     28 days of states of 100,000 entities → plan, ≤ 300
    cluster_equals_local        true
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.table import Table

from bench.lib.results import machine, print_last_line, results_folder, wide_console, write_json
from bench.recalibration.cluster import ClusterNight, cluster_nights
from bench.recalibration.load import Load
from bench.recalibration.runs import Run, duckdb, night, plan_of_states, requests
from testkit.processes.process import BenchError

FULL_ROWS: Final = 100_000_000
TRIAL_ROWS: Final = 4_000_000
NIGHT_ROWS: Final = 10_000_000
DAYS: Final = 28
ENTITIES: Final = 20_000
MOST_ENTITIES: Final = 100_000
HOT_SHARE: Final = 0.5
PROXIES: Final = 20
GOALS: Final = {
    "vs_duckdb": "≤ 6",
    "night_10m_rows_s": "≤ 120",
    "peak_rss_gb": "≤ 3.5",
    "entities_100k_28_days_s": "≤ 300",
    "cluster_equals_local": "True",
}
"""figure of the last line → what it is to be"""
_BYTES_OF_A_GB: Final = 1e9
_BYTES_OF_A_GIB: Final = 1024.0**3


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.recalibration", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--rows", type=int, default=TRIAL_ROWS, help="request rows of the largest run")
    parser.add_argument("--skip-growth", action="store_true", help="only the figures of the goals")
    parser.add_argument("--out", type=Path, help="folder for results instead of bench/results")
    parser.add_argument("--cluster-alone", action="store_true", help="only the nights on a Spark cluster")
    arguments = parser.parse_args(argv)
    try:
        nights = _on_a_cluster()
        if arguments.cluster_alone:
            print_last_line(_cluster_summary(nights))
            return 0
        runs = _measure(arguments.rows, growth=not arguments.skip_growth)
    except BenchError as error:
        print(f"bench-recalibration: {error}", file=sys.stderr)
        return 2
    _report(runs, nights, results_folder(arguments.out, official=arguments.rows >= FULL_ROWS))
    return 0


@dataclass(frozen=True, slots=True)
class Runs:
    """All that was measured."""

    largest: Run
    """of request rows"""
    bound: Run
    """DuckDB's, on the same rows"""
    night: Run
    """of NIGHT_ROWS"""
    states: Run
    most_states: Run
    """of MOST_ENTITIES"""
    growth: list[Run]
    """of request rows"""
    growth_of_states: list[Run]

    @property
    def of_rows(self) -> list[Run]:
        return [self.largest, self.bound, self.night, *self.growth]

    @property
    def of_states(self) -> list[Run]:
        return [self.states, self.most_states, *self.growth_of_states]

    @property
    def peak_rss_gb(self) -> float:
        """Of the job, not of DuckDB."""
        its = [run for run in (*self.of_rows, *self.of_states) if run is not self.bound]
        return max(run.peak_rss_gib for run in its) * _BYTES_OF_A_GIB / _BYTES_OF_A_GB


def _measure(rows: int, *, growth: bool) -> Runs:
    largest, bound = _nights("standard load", Load(rows), with_duckdb=True)
    (of_night,) = _nights(f"{NIGHT_ROWS:,} rows", Load(NIGHT_ROWS))
    states, most_states = _plan(DAYS, ENTITIES), _plan(DAYS, MOST_ENTITIES)
    of_rows: list[Run] = []
    of_states: list[Run] = []
    if growth:
        part = rows // 10
        if part != NIGHT_ROWS:
            of_rows += _nights("a tenth of the rows", Load(part))
        of_rows += _nights("a tenth of the rows, half of them one pair's", Load(part, hot_share=HOT_SHARE))
        of_rows += _nights(f"a tenth of the rows, through {PROXIES} proxies", Load(part, proxies=PROXIES))
        of_states = [_plan(DAYS // 4, ENTITIES), _plan(DAYS, ENTITIES // 4)]
    return Runs(largest, bound, of_night, states, most_states, of_rows, of_states)


def _nights(name: str, load: Load, *, with_duckdb: bool = False) -> list[Run]:
    with tempfile.TemporaryDirectory(prefix="sluice-bench-", dir="/var/tmp") as folder:
        scratch = Path(folder)
        print(f"{name}: writing {load.rows:,} rows", file=sys.stderr, flush=True)
        size = requests(load, scratch / "logs")
        found = [_told(night(name, load, scratch / "logs", size, scratch))]
        if with_duckdb:
            found.append(_told(duckdb(load, scratch / "logs", size, scratch)))
        return found


def _plan(days: int, entities: int) -> Run:
    with tempfile.TemporaryDirectory(prefix="sluice-bench-", dir="/var/tmp") as folder:
        return _told(plan_of_states(f"{days} days, {entities:,} entities", days, entities, Path(folder)))


def _told(run: Run) -> Run:
    used = f"{run.cpu_s:.1f} s of CPU, {run.wall_s:.1f} s, {run.peak_rss_gib:.2f} GiB"
    print(f"{run.name}: {run.rows:,} rows, {used}", file=sys.stderr, flush=True)
    return run


def _on_a_cluster() -> list[ClusterNight]:
    with tempfile.TemporaryDirectory(prefix="sluice-bench-", dir="/var/tmp") as folder:
        nights = cluster_nights(Path(folder))
    for one in nights:
        told = ", ".join(one.differing) or "none"
        print(
            f"cluster, deploy mode {one.deploy_mode}: {one.wall_s:.1f} s; "
            f"files that differ from local[*]: {told}",
            file=sys.stderr,
            flush=True,
        )
    return nights


def _cluster_summary(nights: list[ClusterNight]) -> dict[str, object]:
    return {"cluster_equals_local": not any(one.differing for one in nights)}


def _report(runs: Runs, nights: list[ClusterNight], folder: Path) -> None:
    console = wide_console()
    console.print(_table("Request rows → plan", "rows", runs.of_rows))
    console.print(_table("States → plan", "buckets", runs.of_states))
    found = figures(runs, nights)
    goals = Table("figure", "measured", "goal", title="Goals")
    for name, value in found.items():
        goals.add_row(name, f"{value}", GOALS[name])
    console.print(goals)
    if runs.largest.rows < FULL_ROWS:
        console.print(f"vs_duckdb is of {runs.largest.rows:,} rows; its goal is of {FULL_ROWS:,}")
    write_json(
        folder / "recalibration.json",
        {
            "summary": found | more_figures(runs),
            "machine": machine(),
            "runs": [run.as_json() for run in [*runs.of_rows, *runs.of_states]],
            "cluster": [one.as_json() for one in nights],
        },
    )
    console.print(f"written: {folder / 'recalibration.json'}")
    print_last_line(found)


def figures(runs: Runs, nights: list[ClusterNight]) -> dict[str, object]:
    """Those of GOALS."""
    return {
        "vs_duckdb": round(runs.largest.cpu_us_per_row / runs.bound.cpu_us_per_row, 2),
        "night_10m_rows_s": round(runs.night.wall_s, 1),
        "peak_rss_gb": round(runs.peak_rss_gb, 2),
        "entities_100k_28_days_s": round(runs.most_states.wall_s, 1),
        **_cluster_summary(nights),
    }


def more_figures(runs: Runs) -> dict[str, object]:
    """Without goals of their own."""
    return {
        "rows": runs.largest.rows,
        "cpu_us_per_row": round(runs.largest.cpu_us_per_row, 3),
        "duckdb_us_per_row": round(runs.bound.cpu_us_per_row, 3),
        "plan_of_28_days_s": round(runs.states.wall_s, 1),
        "entities": ENTITIES,
    }


def _table(title: str, unit: str, runs: list[Run]) -> Table:
    table = Table(title=title)
    table.add_column("run")
    for heading in (unit, "CPU s", "CPU µs each", "wall s", "peak GiB", "log MB"):
        table.add_column(heading, justify="right")
    for run in runs:
        table.add_row(
            run.name,
            f"{run.rows:,}",
            f"{run.cpu_s:.1f}",
            f"{run.cpu_us_per_row:.2f}",
            f"{run.wall_s:.1f}",
            f"{run.peak_rss_gib:.2f}",
            f"{run.log_bytes / 1e6:.0f}" if run.log_bytes else "",
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
