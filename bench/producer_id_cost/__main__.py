"""What `producer_ids_rate` adds to a Produce request of a known producer id, in CPU time of the proxy.

    python -m bench.producer_id_cost [--quick] [--placement one-core]

Sluice with that quota against Sluice without it: the same fake broker, the same load, in the same run, by
turns. As few per cent are to be told from a machine's whims, turns are short, and both processes are started
anew again and again; the figure is a median with its 95 % confidence interval. The last line of standard
output is one JSON object; its goal is a `steady_cpu_ratio` of 1.05 at most. All else is as in bench.cost:
docs/benchmarks.md.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from rich.table import Table

from bench.cost.cases import CLIENT_ID, TOPIC, Case, CaseResult, all_cases
from bench.cost.report import Part
from bench.cost.rig import Rig, measure_rounds
from bench.lib.placement import Placement, place_benchmark
from bench.lib.results import machine, print_last_line, results_folder, wide_console, write_json
from bench.lib.stats import Spread, median, median_interval, pairwise_ratios
from testkit.frames import load_frames as frames
from testkit.processes.process import BenchError, raise_fd_limit
from testkit.proxy.proxies import SLUICE, SLUICE_WITH_IDS

PAIRS: Final = 12
"""of processes, one after the other: of two that are alike one is up to 7 % dearer all its life"""
QUICK_PAIRS: Final = 3
MIN_PAIRS_OF_A_RESULT: Final = 8
ROUNDS: Final = 15
"""of each pair"""
SCALE: Final = 0.05
"""of bench.cost's cases: turns of some 30 ms"""
WARMUP_OF_A_CONNECTION: Final = 8
"""requests; the first three of a connection are not yet like an earlier one"""
PRODUCER_ID: Final = 4_001


def id_cases() -> Sequence[Case]:
    """bench.cost's Produce requests of 1 kB with a producer id, the same for all connections.

    Their sequence does not rise, which neither the proxy (no gate is set) nor the fake broker looks at.
    """
    batch = frames.record_batch(bytes(1000), producer_id=PRODUCER_ID, epoch=0, sequence=0)
    frame = bytes(frames.produce_request(CLIENT_ID, TOPIC, batch, acks=-1))
    cases = []
    for case in all_cases(SCALE):
        if case.name.startswith("request_"):
            warmup = WARMUP_OF_A_CONNECTION * case.work.connections
            cases.append(
                replace(case, work=replace(case.work, frame=frame, frames=(), warmup_requests=warmup))
            )
    return cases


def ratio_of(result: CaseResult) -> Spread:
    """Of each pair of processes the median of its rounds; of these the median, and its interval."""
    ratios = pairwise_ratios(result.costs(SLUICE_WITH_IDS), result.costs(SLUICE))
    return median_interval([median(ratios[at : at + ROUNDS]) for at in range(0, len(ratios), ROUNDS)])


def measure_pairs(rig: Rig, placement: Placement, pairs: int) -> Part:
    """All rounds of all pairs, as if they were one."""
    whole = measure_rounds(rig, (SLUICE_WITH_IDS, SLUICE), placement, ROUNDS, id_cases())
    for _ in range(pairs - 1):
        more = measure_rounds(rig, (SLUICE_WITH_IDS, SLUICE), placement, ROUNDS, id_cases())
        for result, further in zip(whole.results, more.results, strict=True):
            for name, samples in further.samples.items():
                result.samples[name] += samples
    return whole


def summary_of(parts: Sequence[Part]) -> dict[str, object]:
    """The ratio of every case, and the worst of the first placement's."""
    ratios = {str(part.placement): {r.case.name: ratio_of(r) for r in part.results} for part in parts}
    worst = max(ratios[str(parts[0].placement)].values(), key=lambda ratio: ratio.median)
    return {
        "benchmark": "producer_id_cost",
        "steady_cpu_ratio": round(worst.median, 3),
        "steady_cpu_ratio_range": worst.as_range(),
        "pairs_of_processes": len(parts[0].results[0].samples[SLUICE]) // ROUNDS,
        **{
            placement: {name: [round(r.median, 3), *r.as_range()] for name, r in by_case.items()}
            for placement, by_case in ratios.items()
        },
    }


def report(parts: Sequence[Part], folder: Path) -> None:
    """Table, JSON, and the summary as the last line."""
    console = wide_console()
    for part in parts:
        table = Table(
            title=f"CPU-µs per Produce request of a known id; {part.placement}",
            caption="medians; of the ratio with its 95 % confidence interval",
        )
        for column in ("case", "without", "with producer_ids_rate", "ratio"):
            table.add_column(column)
        for result in part.results:
            costs = [f"{median(result.costs(name)):.2f}" for name in (SLUICE, SLUICE_WITH_IDS)]
            ratio = ratio_of(result)
            shown = f"{ratio.median:.3f} ({ratio.low:.3f}–{ratio.high:.3f})"
            table.add_row(result.case.shown, *costs, shown)
        console.print(table)
    summary = summary_of(parts)
    costs_us = {
        str(part.placement): {
            result.case.name: {
                name: [round(cost, 3) for cost in result.costs(name)] for name in result.samples
            }
            for result in part.results
        }
        for part in parts
    }
    content = {"summary": summary, "machine": machine(), "cpu_us_per_request": costs_us}
    write_json(folder / "producer-id-cost.json", content)
    console.print(f"written: {folder / 'producer-id-cost.json'}")
    print_last_line(summary)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0: measured; 2: could not be measured, and the message says why."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.producer_id_cost", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--quick", action="store_true", help="few pairs: a trial, no result")
    parser.add_argument("--pairs", type=int, help=f"of processes ({PAIRS}; quick: {QUICK_PAIRS})")
    parser.add_argument(
        "--placement",
        type=Placement,
        nargs="+",
        choices=list(Placement),
        default=[Placement.ONE_CORE, Placement.FREE],
        help="one or several, one after the other (one-core free); see docs",
    )
    parser.add_argument("--out", type=Path, help="folder for results instead of bench/results")
    arguments = parser.parse_args(argv)
    pairs = arguments.pairs or (QUICK_PAIRS if arguments.quick else PAIRS)
    try:
        raise_fd_limit(1000)
        rig = Rig()
        parts = []
        for placement in arguments.placement:
            place_benchmark(placement)
            parts.append(measure_pairs(rig, placement, pairs))
    except BenchError as error:
        print(f"bench-producer-ids-cost: {error}", file=sys.stderr)
        return 2
    official = pairs >= MIN_PAIRS_OF_A_RESULT
    report(parts, results_folder(arguments.out, official=official))
    return 0


if __name__ == "__main__":
    sys.exit(main())
