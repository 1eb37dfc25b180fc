"""What `producer_ids_rate` adds to a Produce request of a known producer id, in CPU time of the proxy.

    python -m bench.producer_id_cost [--quick] [--placement one-core]

Sluice with that quota against Sluice without it: the same fake broker, the same load, in the same run, by
turns. The last line of standard output is one JSON object; its goal is a `steady_cpu_ratio` of 1.05 at most.
What is measured otherwise is as in bench.cost: docs/benchmarks.md.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

from rich.table import Table

from bench.cost import Rig, measure_rounds
from bench.lib import frames
from bench.lib.cost_cases import CLIENT_ID, TOPIC, Case, all_cases
from bench.lib.cost_report import Part
from bench.lib.placement import Placement, place_benchmark
from bench.lib.process import BenchError, raise_fd_limit
from bench.lib.proxies import SLUICE, SLUICE_WITH_IDS
from bench.lib.results import machine, print_last_line, results_folder, wide_console, write_json
from bench.lib.stats import spread

ROUNDS: Final = 15
QUICK_ROUNDS: Final = 3
MIN_ROUNDS_OF_A_RESULT: Final = 7
PRODUCER_ID: Final = 4_001
GOAL: Final = 1.05


def id_cases(scale: float) -> Sequence[Case]:
    """bench.cost's Produce requests of 1 kB with a producer id, the same for all connections.

    Their sequence does not rise, which neither the proxy (no gate is set) nor the fake broker looks at.
    """
    batch = frames.record_batch(bytes(1000), producer_id=PRODUCER_ID, epoch=0, sequence=0)
    frame = bytes(frames.produce_request(CLIENT_ID, TOPIC, batch, acks=-1))
    return [
        replace(case, work=replace(case.work, frame=frame))
        for case in all_cases(scale)
        if case.name.startswith("request_")
    ]


def summary_of(parts: Sequence[Part]) -> dict[str, object]:
    """The ratio of every case, and the worst of the first placement's, by median and by its range."""
    summary: dict[str, object] = {"benchmark": "producer_id_cost"}
    ratios = {
        part.placement: {r.case.name: r.ratio(SLUICE_WITH_IDS, SLUICE) for r in part.results}
        for part in parts
    }
    worst = max(ratios[parts[0].placement].values(), key=lambda ratio: ratio.median)
    summary["steady_cpu_ratio"] = round(worst.median, 3)
    summary["steady_cpu_ratio_range"] = worst.as_range()
    summary["placement"] = str(parts[0].placement)
    for placement, by_case in ratios.items():
        summary[str(placement)] = {
            name: [round(ratio.median, 3), *ratio.as_range()] for name, ratio in by_case.items()
        }
    summary["ratios_of_lowest"] = {
        str(part.placement): {
            r.case.name: round(r.ratio_of_lowest(SLUICE_WITH_IDS, SLUICE), 3) for r in part.results
        }
        for part in parts
    }
    return summary


def report(parts: Sequence[Part], folder: Path) -> None:
    """Table, JSON, and the summary as the last line."""
    console = wide_console()
    for part in parts:
        table = Table(title=f"CPU-µs per Produce request of a known id; {part.placement}")
        for column in ("case", "without", "with producer_ids_rate", "ratio", "of lowest"):
            table.add_column(column)
        for result in part.results:
            table.add_row(
                result.case.shown,
                str(spread(result.costs(SLUICE))),
                str(spread(result.costs(SLUICE_WITH_IDS))),
                str(result.ratio(SLUICE_WITH_IDS, SLUICE)),
                f"{result.ratio_of_lowest(SLUICE_WITH_IDS, SLUICE):.3f}",
            )
        console.print(table)
    summary = summary_of(parts)
    placements = {
        str(part.placement): {
            result.case.name: {
                name: [asdict(measured) for measured in samples] for name, samples in result.samples.items()
            }
            for result in part.results
        }
        for part in parts
    }
    write_json(
        folder / "producer-id-cost.json",
        {"summary": summary, "machine": machine(), "samples": placements},
    )
    console.print(f"written: {folder / 'producer-id-cost.json'}; the goal is {GOAL}")
    print_last_line(summary)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0: measured; 2: could not be measured, and the message says why."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.producer_id_cost", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--quick", action="store_true", help="few and short rounds: a trial, no result")
    parser.add_argument("--rounds", type=int, help=f"rounds of all cases ({ROUNDS}; quick: {QUICK_ROUNDS})")
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
    rounds = arguments.rounds or (QUICK_ROUNDS if arguments.quick else ROUNDS)
    cases = id_cases(0.1 if arguments.quick else 1.0)
    try:
        raise_fd_limit(1000)
        rig = Rig()
        parts = []
        for placement in arguments.placement:
            place_benchmark(placement)
            parts.append(measure_rounds(rig, (SLUICE_WITH_IDS, SLUICE), placement, rounds, cases))
    except BenchError as error:
        print(f"bench-producer-ids-cost: {error}", file=sys.stderr)
        return 2
    official = not arguments.quick and rounds >= MIN_ROUNDS_OF_A_RESULT
    report(parts, results_folder(arguments.out, official=official))
    return 0


if __name__ == "__main__":
    sys.exit(main())
