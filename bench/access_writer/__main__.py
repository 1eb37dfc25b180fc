"""What the access log's writer costs, and that the loop beside it answers as quickly as without it.

    python -m bench.access_writer [--quick]

Cost: processor time and bytes per row and per request of the roll-up at the standard load
(bench/access_log/load.py), of Parquet and, for comparison, of JSON; and bytes of a small proxy's windows.
Tail: how long a loop that answers 2,000 messages a second takes for each,
with the writer's threads beside it, without them, and with the same work in the loop, by turns; windows and
files come five times as often as at the standard load, so that what they do shows at the 99.9th percentile.
The last line of standard output is one JSON object. docs/access-log-sinks.md has the table.
"""

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import process_time
from typing import Final

import zstandard
from rich.table import Table

from bench.access_log.load import REQUESTS_PER_WINDOW, Load
from bench.access_writer.echo import MESSAGE_BYTES
from bench.lib.results import machine, print_last_line, results_folder, wide_console, write_json
from bench.lib.stats import median, percentile
from sluice.proxy.access_log.columns import FilePart, encoded, warm_up
from sluice.proxy.access_log.names import FileNames
from sluice.proxy.access_log.sums import WindowSums
from sluice.usage.access_record import ROLLUP
from testkit.processes.ports import LOOPBACK
from testkit.processes.process import BenchError

WINDOWS_A_FILE: Final = 6
SPEED_UP: Final = 5
WINDOW_S: Final = 10.0 / SPEED_UP
ROTATE_S: Final = 60.0 / SPEED_UP
MESSAGES_PER_S: Final = 2_000
TURN_S: Final = 2 * ROTATE_S
ROUNDS: Final = 5
QUICK_ROUNDS: Final = 1
REPEATS: Final = 5
SMALL_PAIRS: Final = 20
KINDS: Final = ("none", "thread", "loop")
PERCENTILES: Final = (50.0, 99.0, 99.9, 99.99, 100.0)


@dataclass(frozen=True, slots=True)
class Cost:
    """What one way to write a file of six windows costs; medians of some repeats."""

    name: str
    row_us: float
    """to make a row: of JSON its text"""
    file_us: float
    """of a row, to make a file of them"""
    rows: int
    size_bytes: int

    def per_request(self, figure: float) -> float:
        """A figure per row as one per request."""
        return figure * self.rows / (WINDOWS_A_FILE * REQUESTS_PER_WINDOW)


def parquet_cost(load: Load) -> Cost:
    """As the writer does it: the file after one that had the same keys."""
    made, filed, size, rows = [], [], 0, 0
    sums, names = WindowSums(), FileNames()
    for repeat in range(REPEATS + 1):
        part = FilePart(ROLLUP, names)
        begin = process_time()
        for window in load.windows:
            found = sums.sum_up(window)
            part.add_sums(window, found)
        between = process_time()
        rows = part.rows
        size = len(encoded(ROLLUP, part.finish()))
        if repeat:
            made.append(between - begin)
            filed.append(process_time() - between)
    return Cost("Parquet", median(made) * 1e6 / rows, median(filed) * 1e6 / rows, rows, size)


def json_cost(load: Load) -> Cost:
    """Compact lines without zeros, empty texts and nulls, compressed as a producer does: by window."""
    made, filed, size, rows = [], [], 0, 0
    windows = []
    for window in load.windows:
        part = FilePart(ROLLUP)
        sums = WindowSums().sum_up(window)
        part.add_sums(window, sums)
        windows.append(part.finish().to_pylist())
        rows += part.rows
    for _ in range(2):
        begin = process_time()
        texts = ["\n".join(map(_line, window)).encode() for window in windows]
        between = process_time()
        size = sum(len(zstandard.compress(text)) for text in texts)
        made.append(between - begin)
        filed.append(process_time() - between)
    return Cost("JSON, zstd", min(made) * 1e6 / rows, min(filed) * 1e6 / rows, rows, size)


def _line(row: dict[str, object]) -> str:
    return json.dumps({name: value for name, value in row.items() if value}, separators=(",", ":"))


@dataclass(slots=True)
class Tail:
    """Answer times of one kind, turn by turn."""

    turns: list[dict[float, float]] = field(default_factory=list)
    """percentile → µs"""

    def figure(self, percent: float) -> float:
        """The median over the turns."""
        return median([turn[percent] for turn in self.turns])


def measure_turn(kind: str, turn_s: float) -> dict[float, float]:
    """One process, one connection, a message every 1 ÷ MESSAGES_PER_S s. Raises BenchError."""
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.access_writer.echo", folder, kind, str(WINDOW_S), str(ROTATE_S)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            port = process.stdout.readline().strip()
            if not port:
                raise BenchError(f"the process with {kind} did not start")
            times_us = _answer_times_us(int(port), turn_s)
            told, _ = process.communicate("end\n", timeout=30)
        finally:
            process.kill()
            process.wait()
    if kind == "thread" and (not told or int(told.split()[1]) != 0 or int(told.split()[0]) == 0):
        raise BenchError(f"the writer did not write all rows: {told!r}")
    return {percent: percentile(times_us, percent) for percent in PERCENTILES}


def _answer_times_us(port: int, turn_s: float) -> list[float]:
    message = bytes(MESSAGE_BYTES)
    times = []
    with socket.create_connection((LOOPBACK, port)) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        begin = due = time.perf_counter()
        while due - begin < turn_s:
            due += 1 / MESSAGES_PER_S
            while (left := due - time.perf_counter()) > 0:
                time.sleep(left)
            # From when it was due: what a stall keeps from being sent has waited as well.
            client.sendall(message)
            received = 0
            while received < MESSAGE_BYTES:
                received += len(client.recv(MESSAGE_BYTES))
            times.append((time.perf_counter() - due) * 1e6)
    return times


def measure_tails(rounds: int, say: Callable[[str], None]) -> dict[str, Tail]:
    """By turns, so that what else the machine does meets all alike."""
    tails = {kind: Tail() for kind in KINDS}
    for number in range(rounds):
        for kind in KINDS:
            tails[kind].turns.append(measure_turn(kind, TURN_S))
        say(f"round {number + 1} of {rounds}")
    return tails


def summary_of(costs: Sequence[Cost], small_bytes: int, tails: dict[str, Tail]) -> dict[str, object]:
    """Parquet's costs, and the tails."""
    parquet = costs[0]
    return {
        "benchmark": "access_writer",
        "cpu_us_per_request": round(parquet.per_request(parquet.row_us + parquet.file_us), 3),
        "bytes_per_request": round(parquet.per_request(parquet.size_bytes / parquet.rows), 3),
        "row_us": round(parquet.row_us, 3),
        "file_us_per_row": round(parquet.file_us, 3),
        "bytes_per_row": {cost.name: round(cost.size_bytes / cost.rows, 2) for cost in costs},
        "small_window_bytes": small_bytes,
        "rows_per_window": round(parquet.rows / WINDOWS_A_FILE),
        **{
            f"answer_us_{kind}": {f"p{percent:g}": round(tail.figure(percent), 1) for percent in PERCENTILES}
            for kind, tail in tails.items()
            if tail.turns
        },
    }


def report(costs: Sequence[Cost], tails: dict[str, Tail], small_bytes: int, folder: Path) -> None:
    """Tables, JSON, and the summary as the last line."""
    console = wide_console()
    table = Table(title="a file of six windows at the standard load")
    for column in (
        "form",
        "µs to make a row",
        "µs a row in a file",
        "bytes a row",
        "µs a request",
        "bytes a request",
    ):
        table.add_column(column)
    for cost in costs:
        figures = (
            cost.row_us,
            cost.file_us,
            cost.size_bytes / cost.rows,
            cost.per_request(cost.row_us + cost.file_us),
            cost.per_request(cost.size_bytes / cost.rows),
        )
        table.add_row(cost.name, *(f"{figure:.2f}" for figure in figures))
    console.print(table)
    table = Table(title=f"answer times in µs at {MESSAGES_PER_S} messages a second; medians of turns")
    for column in ("writer", *(f"p{percent:g}" for percent in PERCENTILES)):
        table.add_column(column)
    for kind, tail in tails.items():
        if tail.turns:
            table.add_row(kind, *(f"{tail.figure(percent):.0f}" for percent in PERCENTILES))
    console.print(table)
    summary = summary_of(costs, small_bytes, tails)
    turns = {
        kind: [{f"p{percent:g}": round(us, 1) for percent, us in turn.items()} for turn in tail.turns]
        for kind, tail in tails.items()
    }
    content = {"summary": summary, "machine": machine(), "answer_us_by_turn": turns}
    write_json(folder / "access-writer.json", content)
    console.print(f"written: {folder / 'access-writer.json'}")
    print_last_line(summary)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0: measured; 2: could not be measured, and the message says why."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.access_writer", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--quick", action="store_true", help="one round: a trial, no result")
    parser.add_argument("--rounds", type=int, help=f"of turns ({ROUNDS}; quick: {QUICK_ROUNDS})")
    parser.add_argument("--out", type=Path, help="folder for results instead of bench/results")
    arguments = parser.parse_args(argv)
    rounds = arguments.rounds if arguments.rounds is not None else QUICK_ROUNDS if arguments.quick else ROUNDS
    warm_up()
    load = Load(WINDOWS_A_FILE)
    costs = [parquet_cost(load), json_cost(load)]
    small_bytes = parquet_cost(Load(1, pairs=SMALL_PAIRS, requests=1000)).size_bytes
    try:
        tails = measure_tails(rounds, lambda line: print(line, file=sys.stderr))
    except BenchError as error:
        print(f"bench-access-writer: {error}", file=sys.stderr)
        return 2
    report(costs, tails, small_bytes, results_folder(arguments.out, official=rounds >= ROUNDS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
