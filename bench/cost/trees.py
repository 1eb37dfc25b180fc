"""CPU time of this checkout's proxy ÷ another checkout's: the same load, by turns, in one run.

A change of a few per cent is smaller than what two processes of the same code differ by, so both are started
anew again and again; a figure is the median over pairs of processes, with its 95 % confidence interval. The
last line of standard output is one JSON object.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rich.table import Table

from bench.cost.cases import Case, CaseResult, all_cases, further_cases
from bench.cost.rig import Rig, measure_rounds
from bench.lib.placement import Placement, place_benchmark
from bench.lib.results import machine, print_last_line, results_folder, wide_console, write_json
from bench.lib.stats import Spread, median, median_interval, pairwise_ratios
from testkit.processes.process import BenchError, raise_fd_limit
from testkit.proxy import proxies

OURS: Final = proxies.SLUICE
OLD: Final = "sluice of the other checkout"
PAIRS: Final = 24
QUICK_PAIRS: Final = 4
MIN_PAIRS_OF_A_RESULT: Final = 12
ROUNDS: Final = 5
"""of each pair"""
SCALE: Final = 0.1
"""of bench.cost's cases"""
LOW_RATE_SCALE: Final = 0.5
"""of the one at a low rate: a second of it, for an idle loop's costs come in bursts"""


def command_of(checkout: Path) -> Path:
    """The other checkout's `sluice`. Raises BenchError if it has none: `make setup` there makes it."""
    command = checkout / ".venv" / "bin" / "sluice"
    if not command.exists():
        raise BenchError(f"{checkout} has no .venv/bin/sluice: run `make setup` there")
    return command.absolute()


def measure(old: Path, placement: Placement, pairs: int, cases: Sequence[Case]) -> list[CaseResult]:
    """All rounds of all pairs, one behind the other."""
    command = command_of(old)

    @contextmanager
    def start(name: str, upstream_port: int, max_connections: int) -> Iterator[proxies.Proxy]:
        program = command if name == OLD else proxies.OURS
        with proxies.start(OURS, upstream_port, max_connections, program) as proxy:
            yield proxies.Proxy(name, proxy.pid, proxy.port)

    rig = Rig()
    place_benchmark(placement)
    whole = [CaseResult(case, {OURS: [], OLD: []}) for case in cases]
    for number in range(pairs):
        names = (OURS, OLD) if number % 2 == 0 else (OLD, OURS)
        part = measure_rounds(rig, names, placement, ROUNDS, cases, start)
        for result, further in zip(whole, part.results, strict=True):
            for name, samples in further.samples.items():
                result.samples[name] += samples
    return whole


def ratios_of(result: CaseResult) -> list[float]:
    """The median of its rounds for each pair of processes."""
    ratios = pairwise_ratios(result.costs(OURS), result.costs(OLD))
    return [median(ratios[at : at + ROUNDS]) for at in range(0, len(ratios), ROUNDS)]


def summary_of(results: Sequence[CaseResult]) -> dict[str, object]:
    """The ratio over all cases (of each pair their geometric mean), and of each case."""
    by_case = {result.case.name: ratios_of(result) for result in results}
    of_pairs = [
        math.exp(math.fsum(map(math.log, pair)) / len(pair)) for pair in zip(*by_case.values(), strict=True)
    ]
    whole = median_interval(of_pairs)
    return {
        "benchmark": "cost_old_new",
        "ratio": round(whole.median, 4),
        "ratio_interval": _interval(whole),
        "pairs_of_processes": len(of_pairs),
        **{
            f"{name}_ratio": [round(found.median, 4), *_interval(found)]
            for name, found in ((name, median_interval(ratios)) for name, ratios in by_case.items())
        },
    }


def _interval(found: Spread) -> list[float]:
    return [round(found.low, 4), round(found.high, 4)]


def main(arguments: argparse.Namespace) -> int:
    """Exit code 0: measured; 2: could not be measured, and the message says why."""
    pairs = QUICK_PAIRS if arguments.quick else PAIRS
    known = [*all_cases(SCALE), *(case for case in further_cases(LOW_RATE_SCALE) if case.name == "low_rate")]
    cases = [case for case in known if not arguments.cases or case.name in arguments.cases]
    placement: Placement = arguments.placement[0]
    try:
        raise_fd_limit(1000)
        results = measure(arguments.old, placement, pairs, cases)
    except BenchError as error:
        print(f"bench-cost: {error}", file=sys.stderr)
        return 2
    table = Table(title=f"this checkout ÷ {arguments.old}, {pairs} pairs of processes; {placement}")
    for column in ("case", "unit", "old", "new", "ratio, 95 % interval"):
        table.add_column(column)
    for result in results:
        found = median_interval(ratios_of(result))
        costs = [f"{median(result.costs(name)):.3g}" for name in (OLD, OURS)]
        shown = f"{found.median:.3f} ({found.low:.3f} to {found.high:.3f})"
        table.add_row(result.case.shown, result.case.unit, *costs, shown)
    console = wide_console()
    console.print(table)
    summary = summary_of(results)
    folder = results_folder(arguments.out, official=pairs >= MIN_PAIRS_OF_A_RESULT and not arguments.cases)
    write_json(folder / "cost-old-new.json", {"summary": summary, "machine": machine()})
    print_last_line(summary)
    return 0
