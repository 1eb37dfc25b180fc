"""What the nightly job costs: request rows → plan, 28 days of states → plan, and how both grow.

    python -m bench.recalibration [--rows 100000000] [--out FOLDER]
    python -m bench.recalibration --cluster-alone       only whether a cluster makes the plan of local[*]

The standard load (22,000 pairs of user and client id by Zipf's law, 50 topics) of one day; without --rows
four million, minutes. Goals of a full run on two cores: at most 2 µs of CPU a row, 3.5 GB, and two
minutes from 28 days of 20,000 entities to a plan. DuckDB on the same sums is the lower bound. The last
line of standard output is one JSON object.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
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
DAYS: Final = 28
ENTITIES: Final = 20_000
HOT_SHARE: Final = 0.5
PROXIES: Final = 20
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
        runs, plans = _measure(arguments.rows, growth=not arguments.skip_growth)
    except BenchError as error:
        print(f"bench-recalibration: {error}", file=sys.stderr)
        return 2
    _report(runs, plans, nights, results_folder(arguments.out, official=arguments.rows >= FULL_ROWS))
    return 0


def _measure(rows: int, *, growth: bool) -> tuple[list[Run], list[Run]]:
    """Of request rows, the goal's first and DuckDB second; of states, the goal's first."""
    runs = _nights("standard load", Load(rows), with_duckdb=True)
    plans = [_plan(DAYS, ENTITIES)]
    if growth:
        part = rows // 10
        runs += _nights("a tenth of the rows", Load(part))
        runs += _nights("… half of them one pair's", Load(part, hot_share=HOT_SHARE))
        runs += _nights(f"… through {PROXIES} proxies", Load(part, proxies=PROXIES))
        plans += [_plan(DAYS // 4, ENTITIES), _plan(DAYS, ENTITIES // 4)]
    return runs, plans


def _nights(name: str, load: Load, *, with_duckdb: bool = False) -> list[Run]:
    with tempfile.TemporaryDirectory(prefix="sluice-bench-", dir="/var/tmp") as folder:
        scratch = Path(folder)
        print(f"{name}: writing {load.rows:,} rows", file=sys.stderr, flush=True)
        size = requests(load, scratch / "logs")
        found = [_told(night(name, load, scratch / "logs", size, scratch))]
        if with_duckdb:
            found.append(_told(duckdb(load, scratch / "logs", size)))
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


def _report(runs: list[Run], plans: list[Run], nights: list[ClusterNight], folder: Path) -> None:
    console = wide_console()
    console.print(_table("Request rows → plan", "rows", runs))
    console.print(_table("States → plan", "buckets", plans))
    ours, bound, states = runs[0], runs[1], plans[0]
    peak = max(run.peak_rss_gib for run in (ours, states))
    summary: dict[str, object] = {
        "cpu_us_per_row": round(ours.cpu_us_per_row, 3),
        "peak_rss_gb": round(peak * _BYTES_OF_A_GIB / _BYTES_OF_A_GB, 2),
        "rows": ours.rows,
        "duckdb_us_per_row": round(bound.cpu_us_per_row, 3),
        "plan_of_28_days_s": round(states.wall_s, 1),
        "entities": ENTITIES,
        **_cluster_summary(nights),
    }
    write_json(
        folder / "recalibration.json",
        {
            "summary": summary,
            "machine": machine(),
            "runs": [run.as_json() for run in [*runs, *plans]],
            "cluster": [one.as_json() for one in nights],
        },
    )
    console.print(f"written: {folder / 'recalibration.json'}")
    print_last_line(summary)


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
