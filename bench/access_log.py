"""What the access log costs a request: processor time, and bytes on disk.

    python -m bench.access_log [--quick] [--repeats N]

A minute of the standard load (bench/lib/access_traffic.py) by turns through a proxy without the log and
through one with it, in this process and without sockets. The last line of standard output is one JSON object;
docs/benchmarks.md says what is measured.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.table import Table

from bench.lib.access_load import PAIRS, REQUESTS_PER_S, TOPICS
from bench.lib.access_traffic import (
    SECONDS,
    Arm,
    Cost,
    Traffic,
    connect_all,
    sizes,
)
from bench.lib.results import machine, print_last_line, results_folder, wide_console, write_json
from bench.lib.stats import pairwise_ratios, spread

REPEATS: Final = 7
QUICK_REPEATS: Final = 2
GOAL_US: Final = 0.6
GOAL_BYTES: Final = 2.0


def measure(traffic: Traffic, repeats: int) -> tuple[list[Cost], list[Cost], dict[str, int]]:
    """(without the log, with it, bytes by table), minute by minute."""
    without: list[Cost] = []
    logged: list[Cost] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        off, on = Arm(traffic, None), Arm(traffic, folder)
        connect_all(traffic, (off, on))
        for arm in (off, on):  # caches and templates fill
            arm.minute()
        before = dict.fromkeys(("rollup", "requests"), 0)
        for table, size in sizes(folder):
            before[table] += size
        for number in range(repeats):
            # Who goes first changes, so that none always runs on the warmer machine.
            for arm, costs in (
                ((off, without), (on, logged)) if number % 2 else ((on, logged), (off, without))
            ):
                costs.append(arm.minute())
            added_us = _us(logged[-1].cpu_s - without[-1].cpu_s, logged[-1])
            print(f"{number + 1}/{repeats}  CPU-µs added to a request: {added_us:.3f}", flush=True)
        on.close()
        after = dict.fromkeys(before, 0)
        for table, size in sizes(folder):
            after[table] += size
    return without, logged, {table: after[table] - before[table] for table in after}


def _us(seconds: float, of: Cost) -> float:
    return seconds / of.requests * 1e6


def report(
    name: str, without: Sequence[Cost], logged: Sequence[Cost], by_table: dict[str, int]
) -> dict[str, object]:
    """A table for people; returns the figures."""
    loop = spread([_us(on.loop_s - off.loop_s, on) for on, off in zip(logged, without, strict=True)])
    cpu = spread([_us(on.cpu_s - off.cpu_s, on) for on, off in zip(logged, without, strict=True)])
    ratio = spread(pairwise_ratios([on.loop_s for on in logged], [off.loop_s for off in without]))
    requests = sum(one.requests for one in logged)
    size = spread([one.bytes_written / one.requests for one in logged])
    rows = sum(one.rows for one in logged) / requests
    base = spread([_us(one.loop_s, one) for one in without])
    table = Table(title=name)
    for column in ("what", "median (range)"):
        table.add_column(column)
    table.add_row("CPU-µs a request without the log, no sockets", str(base))
    table.add_row("CPU-µs added on the event loop", f"{loop.median:.3f} ({loop.low:.3f}–{loop.high:.3f})")
    table.add_row("CPU-µs added in all threads", f"{cpu.median:.3f} ({cpu.low:.3f}–{cpu.high:.3f})")
    table.add_row("bytes a request", f"{size.median:.3f} ({size.low:.3f}–{size.high:.3f})")
    table.add_row("rows a request", f"{rows:.3f}")
    wide_console().print(table)
    return {
        "loop_us_per_request": round(loop.median, 3),
        "loop_us_range": loop.as_range(),
        "cpu_us_per_request": round(cpu.median, 3),
        "cpu_us_range": cpu.as_range(),
        "loop_ratio": round(ratio.median, 3),
        "loop_ratio_range": ratio.as_range(),
        "bytes_per_request": round(size.median, 3),
        "bytes_by_table": {table: round(total / requests, 3) for table, total in by_table.items()},
        "rows_per_request": round(rows, 4),
        "without_us_per_request": round(base.median, 3),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0: measured."""
    parser = argparse.ArgumentParser(prog="python -m bench.access_log", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few repeats: a trial, no result")
    parser.add_argument("--repeats", type=int, help=f"minutes of load ({REPEATS}; quick: {QUICK_REPEATS})")
    parser.add_argument("--out", type=Path, help="folder for results instead of bench/results")
    arguments = parser.parse_args(argv)
    repeats = arguments.repeats or (QUICK_REPEATS if arguments.quick else REPEATS)
    found = {}
    for topics in (1, 3):
        name = f"each client of {topics} of the {TOPICS} topics"
        found[topics] = report(name, *measure(Traffic(topics_of_client=topics), repeats))
    summary = {
        "benchmark": "access_log",
        "repeats": repeats,
        "pairs": PAIRS,
        "requests_per_s": REQUESTS_PER_S,
        "minutes": repeats * SECONDS // 60,
        **found[1],
        "goal_us": GOAL_US,
        "goal_bytes": GOAL_BYTES,
        "three_topics": found[3],
    }
    official = not arguments.quick and repeats >= 5
    folder = results_folder(arguments.out, official=official)
    write_json(folder / "access-log.json", {"machine": machine(), "summary": summary})
    print_last_line(summary)
    return 0


if __name__ == "__main__":
    sys.exit(main())
