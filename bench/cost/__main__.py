"""What requests and GiB cost in proxy CPU time, and idle connections in memory: Sluice against HAProxy TCP.

    python -m bench.cost [--quick] [--against relay] [--cases request_50 …] [--placement one-core]
    python -m bench.cost --old CHECKOUT     this checkout against another one: bench/cost/trees.py

Both proxies stand before the same fake broker and get the same load in the same run, by turns. The last line
of standard output is one JSON object. What is measured, and why so: docs/benchmarks.md.
"""

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench.cost import churn, trees
from bench.cost.cases import (
    Case,
    all_cases,
)
from bench.cost.report import CostRun, report
from bench.cost.rig import SPARE_FDS, Rig, measure_rounds
from bench.lib.placement import Placement, place_benchmark
from bench.lib.results import results_folder
from testkit.processes.process import BenchError, raise_fd_limit
from testkit.proxy import proxies

ROUNDS: Final = 15  # many short ones: the two of a pair are seconds apart, so that drift cancels out
FURTHER_ROUNDS: Final = 9
QUICK_ROUNDS: Final = 3
MIN_ROUNDS_OF_A_RESULT: Final = 5


def measure_all(arguments: argparse.Namespace) -> CostRun:
    """Every case in every round, both proxies by turns. Raises BenchError when it cannot be measured."""
    version = proxies.haproxy_version(proxies.ensure_haproxy())
    names = (arguments.against, proxies.HAPROXY)
    allowed = raise_fd_limit(2 * arguments.idle + SPARE_FDS)
    idle = min(arguments.idle, (allowed - SPARE_FDS) // 2)
    if idle < arguments.idle:
        print(f"only {allowed} open files are allowed here: {idle} idle connections, not {arguments.idle}")
    print(f"{arguments.against} against {version}", flush=True)
    rig = Rig()
    place_benchmark(arguments.placement[0])
    idle_bytes = {name: _measure_idle(rig, name, idle) for name in names}
    parts = []
    for placement, rounds in zip(arguments.placement, arguments.rounds, strict=True):
        place_benchmark(placement)
        parts.append(measure_rounds(rig, names, placement, rounds, _chosen_cases(arguments)))
    place_benchmark(arguments.placement[0])
    lives = _measure_lives(rig, names, arguments)
    for name, memory in parts[0].memory.items():
        memory.per_idle_connection = idle_bytes[name]
    return CostRun(*names, version, idle, parts, lives)


def _measure_idle(rig: Rig, name: str, count: int) -> float:
    """Of a fresh process: one that has worked would hide new connections in memory that it had freed."""
    with proxies.start(name, rig.broker.port, count + 100) as proxy:
        each = rig.idle_bytes_per_connection(proxy, count)
    print(f"{count:,} idle connections: {name} {each / 1024:.1f} KiB each", flush=True)
    return each


def _measure_lives(rig: Rig, names: Sequence[str], arguments: argparse.Namespace) -> churn.Lives:
    """Of fresh processes, too: an idle one shall not work off what it was asked before."""
    cases = [case for case in churn.CASES if not arguments.cases or case in arguments.cases]
    with ExitStack() as stack:
        running = [stack.enter_context(proxies.start(name, rig.broker.port, SPARE_FDS)) for name in names]
        rounds = arguments.rounds[0] if cases else 0
        return churn.measure(rig.churn_us, running, rounds, cases, 0.1 if arguments.quick else 1.0)


def _chosen_cases(arguments: argparse.Namespace) -> Sequence[Case]:
    cases = all_cases(0.1 if arguments.quick else 1.0)
    return [case for case in cases if not arguments.cases or case.name in arguments.cases]


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.cost", description=__doc__.splitlines()[0])
    parser.add_argument("--against", choices=(proxies.SLUICE, proxies.RELAY), default=proxies.SLUICE)
    parser.add_argument("--quick", action="store_true", help="few and short rounds: a trial, no result")
    parser.add_argument(
        "--rounds",
        type=int,
        help=f"rounds of all cases ({ROUNDS}, in further placements {FURTHER_ROUNDS}; quick: {QUICK_ROUNDS})",
    )
    parser.add_argument("--idle", type=int, default=5000, help="idle connections (5000)")
    parser.add_argument(
        "--cases",
        nargs="+",
        choices=[*(case.name for case in all_cases(0.0)), *churn.CASES],
        help="only these",
    )
    parser.add_argument(
        "--placement",
        type=Placement,
        nargs="+",
        choices=list(Placement),
        default=[Placement.FREE, Placement.ONE_CORE],
        help="one or several, one after the other (free one-core); see docs",
    )
    parser.add_argument("--old", type=Path, metavar="CHECKOUT", help="compare with another checkout")
    parser.add_argument("--out", type=Path, help="folder for results instead of bench/results")
    arguments = parser.parse_args(argv)
    if arguments.old and not set(arguments.cases or ["all"]).difference(churn.CASES):
        parser.error("--old compares requests: not churn and idle alone")
    first, further = (QUICK_ROUNDS,) * 2 if arguments.quick else (ROUNDS, FURTHER_ROUNDS)
    asked = arguments.rounds
    arguments.rounds = [asked or first, *[asked or further] * (len(arguments.placement) - 1)]
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0: measured; 2: could not be measured, and the message says why."""
    arguments = _arguments(argv)
    if arguments.old:
        return trees.main(arguments)
    try:
        run = measure_all(arguments)
    except BenchError as error:
        print(f"bench-cost: {error}", file=sys.stderr)
        return 2
    full = not arguments.quick and not arguments.cases and min(arguments.rounds) >= MIN_ROUNDS_OF_A_RESULT
    official = full and arguments.against == proxies.SLUICE
    report(run, results_folder(arguments.out, official=official))
    return 0


if __name__ == "__main__":
    sys.exit(main())
