"""What the access log costs a request: processor time, and bytes on disk.

    python -m bench.access_log [--quick] [--repeats N]

Minutes of the standard load (bench/access_log/traffic.py), second by second by turns through a proxy without
the log and through one with it, in this process and without sockets. The last line of standard output is one
JSON object; docs/benchmarks.md says what is measured.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Final

from rich.table import Table

from bench.access_log.load import PAIRS, REQUESTS_PER_S, TOPICS
from bench.access_log.traffic import SECONDS, Arm, Cost, Traffic, connect_all, sizes
from bench.lib.results import machine, print_last_line, results_folder, wide_console, write_json
from bench.lib.stats import Spread, median

REPEATS: Final = 15
QUICK_REPEATS: Final = 2
GOAL_US: Final = 0.6
GOAL_BYTES: Final = 2.0


@dataclass(slots=True)
class Measured:
    """Minutes of both arms, in the order in which they came."""

    without: list[list[Cost]] = field(default_factory=list)
    """by minute, by second"""
    logged: list[list[Cost]] = field(default_factory=list)
    rows: int = 0
    bytes_by_table: dict[str, int] = field(default_factory=dict)

    @property
    def requests(self) -> int:
        """Requests that one arm was sent."""
        return len(self.logged) * SECONDS * REQUESTS_PER_S


def measure(traffic: Traffic, repeats: int) -> Measured:
    """Second by second by turns."""
    measured = Measured()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        off, on = Arm(traffic, None), Arm(traffic, folder)
        connect_all(traffic, (off, on))
        _minute(off, on, 0)  # caches and templates fill
        before = _bytes_by_table(folder)
        rows = on.rows_written
        for number in range(1, repeats + 1):
            without, logged = _minute(off, on, number)
            measured.without.append(without)
            measured.logged.append(logged)
            added_us = fmean(map(_all_us, logged, without))
            print(f"{number}/{repeats}  CPU-µs added to a request: {added_us:.3f}", flush=True)
        measured.rows = on.rows_written - rows
        on.close()
        for table, size in _bytes_by_table(folder).items():
            measured.bytes_by_table[table] = size - before[table]
    return measured


def _minute(off: Arm, on: Arm, number: int) -> tuple[list[Cost], list[Cost]]:
    without: list[Cost] = []
    logged: list[Cost] = []
    for place in range(SECONDS):
        # Who goes first changes, so that none always runs on the warmer machine.
        turns = ((off, without), (on, logged)) if (number + place) % 2 else ((on, logged), (off, without))
        for arm, costs in turns:
            costs.append(arm.second(place))
    return without, logged


def _bytes_by_table(folder: Path) -> dict[str, int]:
    found = dict.fromkeys(("rollup", "requests"), 0)
    for table, size in sizes(folder):
        found[table] += size
    return found


def _us(seconds: float) -> float:
    """Of each request of a second of load."""
    return seconds / REQUESTS_PER_S * 1e6


def _loop_us(logged: Cost, without: Cost) -> float:
    """What the log adds, as do the next."""
    return _us(logged.loop_s - without.loop_s)


def _others_us(logged: Cost, without: Cost) -> float:
    # Without the log there are none: what they did in its turn they did for the other.
    return _us(logged.others_s + without.others_s)


def _all_us(logged: Cost, without: Cost) -> float:
    return _loop_us(logged, without) + _others_us(logged, without)


def of_minutes(minutes: Sequence[Sequence[float]]) -> Spread:
    """The spread of one figure by minute and second: each second of the minute has its median over the
    minutes, for in each other work is done (every tenth ends a window, the last closes files), and what
    disturbs one of them disturbs no other; the mean of those, and the range of the minutes' means."""
    means = [fmean(minute) for minute in minutes]
    return Spread(fmean(median(second) for second in zip(*minutes, strict=True)), min(means), max(means))


def least_us(minutes: Sequence[Sequence[Cost]]) -> tuple[float, float]:
    """(loop, other threads) of one arm by itself, of each second of the minute the least over the minutes: a
    busy host only ever adds, so that this is nearest to what an idle one shows."""
    seconds = list(zip(*minutes, strict=True))
    return (
        fmean(min(_us(cost.loop_s) for cost in second) for second in seconds),
        fmean(min(_us(cost.others_s) for cost in second) for second in seconds),
    )


def report(name: str, measured: Measured) -> dict[str, object]:
    """A table for people; returns the figures."""

    def added(of: Callable[[Cost, Cost], float]) -> Spread:
        pairs = zip(measured.logged, measured.without, strict=True)
        return of_minutes([list(map(of, logged, without)) for logged, without in pairs])

    base = of_minutes([[_us(cost.loop_s) for cost in minute] for minute in measured.without])
    loop, others, cpu = added(_loop_us), added(_others_us), added(_all_us)
    least_base, least_others = least_us(measured.without)
    least = sum(least_us(measured.logged)) - least_base + least_others
    by_table = {table: size / measured.requests for table, size in measured.bytes_by_table.items()}
    rows = measured.rows / measured.requests
    table = Table(title=name)
    for column in ("what", "median (range of minutes)"):
        table.add_column(column)
    table.add_row("CPU-µs a request without the log, no sockets", str(base))
    for what, found in (
        ("added on the event loop", loop), ("added in other threads", others), ("added in all threads", cpu)
    ):  # fmt: skip
        table.add_row(f"CPU-µs {what}", f"{found.median:.3f} ({found.low:.3f}–{found.high:.3f})")
    table.add_row("… of each second's least, by itself", f"{least:.3f}, to {least_base:.2f} without")
    table.add_row("bytes a request", f"{sum(by_table.values()):.3f}")
    table.add_row("rows a request", f"{rows:.3f}")
    wide_console().print(table)
    return {
        "loop_us_per_request": round(loop.median, 3),
        "loop_us_range": loop.as_range(),
        "other_threads_us_per_request": round(others.median, 3),
        "other_threads_us_range": others.as_range(),
        "cpu_us_per_request": round(cpu.median, 3),
        "cpu_us_range": cpu.as_range(),
        "least_us_per_request": round(least, 3),
        "least_without_us_per_request": round(least_base, 3),
        "bytes_per_request": round(sum(by_table.values()), 3),
        "bytes_by_table": {table: round(size, 3) for table, size in by_table.items()},
        "rows_per_request": round(rows, 4),
        "without_us_per_request": round(base.median, 3),
        "without_us_range": base.as_range(),
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
        found[topics] = report(name, measure(Traffic(topics_of_client=topics), repeats))
    summary = {
        "benchmark": "access_log",
        "pairs": PAIRS,
        "requests_per_s": REQUESTS_PER_S,
        "minutes": repeats,
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
