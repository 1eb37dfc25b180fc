"""How evenly a byte rate is kept: the broker's native quota and Sluice's, same clients, one after the other.

    python -m bench.evenness [--seconds 60] [--quick] [--only produce fetch_50 …] [--sides native sluice]
    python -m bench.evenness --case fetch_50 … [--seconds 20] [--sides sluice]    these cases alone

A real Kafka, real Java clients and light clients that speak the same protocol. The last line of standard
output is one JSON object. What is measured, and why so: docs/benchmarks.md.
"""

import argparse
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import uvloop

from bench.evenness.case_runs import CASES, CaseRun, run_cases
from bench.evenness.cases import SETTLE_S, BoundResult, Evenness
from bench.evenness.report import report
from bench.evenness.rig import EvenRig, Side, open_rig
from bench.evenness.setups import (
    java_consume,
    java_produce,
    large_requests,
    light_fetch,
    light_produce,
    reconnecting,
)
from bench.lib.light_rig import NATIVE
from bench.lib.results import results_folder
from testkit.kafka.lock import KafkaDistError
from testkit.kafka.node import KafkaNodeError
from testkit.processes.process import BenchError
from testkit.proxy.proxies import SLUICE

QUICK_SECONDS: Final = 15.0
BOUND_SECONDS: Final = (
    43.0  # answers come every 8 s at most (the answer budget): five such spans behind the start
)

Setup = Callable[[EvenRig, Side, float], Awaitable[Evenness]]
SETUPS: Final[Mapping[str, Setup]] = {
    "produce": java_produce,
    "consume": java_consume,
    "produce_5": lambda _, side, seconds: light_produce(side, 5, seconds),
    "produce_50": lambda _, side, seconds: light_produce(side, 50, seconds),
    "fetch_5": lambda _, side, seconds: light_fetch(side, 5, seconds),
    "fetch_50": lambda _, side, seconds: light_fetch(side, 50, seconds),
}
BOUNDS: Final[Mapping[str, Callable[[Side, float], Awaitable[BoundResult]]]] = {
    "large_requests": large_requests,
    "reconnecting": reconnecting,
}


async def measure_all(
    arguments: argparse.Namespace,
) -> tuple[dict[str, dict[str, Evenness]], dict[str, BoundResult]]:
    """Every chosen setup on every side, one at a time. Raises BenchError when one cannot be measured."""
    seconds = arguments.seconds
    results: dict[str, dict[str, Evenness]] = {}
    bounds: dict[str, BoundResult] = {}
    chosen = arguments.only or [*SETUPS, *BOUNDS]
    if arguments.case:
        return results, bounds
    async with open_rig(arguments.sides, list(SETUPS), seconds) as rig:
        for name in (x for x in SETUPS if x in chosen):
            results[name] = {side.name: await SETUPS[name](rig, side, seconds) for side in rig.sides}
        for side in (x for x in rig.sides if x.name == SLUICE):
            for name in (x for x in BOUNDS if x in chosen):
                bounds[name] = await BOUNDS[name](side, min(seconds, BOUND_SECONDS))
    return results, bounds


async def _cases(arguments: argparse.Namespace) -> CaseRun | None:
    """The cases that were asked for; all of them in a full run, at Sluice (the broker's own where told)."""
    if arguments.only and not arguments.case:
        return None
    names = arguments.case or [*CASES]
    sides = arguments.sides if arguments.case else [SLUICE]
    return await run_cases(names, sides, arguments.seconds)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.evenness", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="length of each part (60)")
    parser.add_argument(
        "--quick", action="store_true", help=f"{QUICK_SECONDS:.0f} s each: a trial, no result"
    )
    parser.add_argument("--only", nargs="+", choices=[*SETUPS, *BOUNDS], help="only these parts")
    parser.add_argument("--case", nargs="+", choices=[*CASES], help="only these cases, and no setups")
    parser.add_argument("--sides", nargs="+", choices=[NATIVE, SLUICE], default=[NATIVE, SLUICE])
    parser.add_argument("--out", type=Path, help="folder for results instead of bench/results")
    arguments = parser.parse_args(argv)
    if arguments.quick:
        arguments.seconds = QUICK_SECONDS
    if arguments.seconds < SETTLE_S + 1:
        parser.error(f"--seconds must be at least {SETTLE_S + 1}: measuring begins at second {SETTLE_S}")
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0: measured; 2: could not be measured, and the message says why."""
    arguments = _arguments(argv)
    try:
        results, bounds = uvloop.run(measure_all(arguments))
        cases = uvloop.run(_cases(arguments))
    except (BenchError, KafkaNodeError, KafkaDistError) as error:
        print(f"bench-evenness: {error}", file=sys.stderr)
        return 2
    chosen = arguments.quick or arguments.only or arguments.case
    full = not chosen and len(arguments.sides) > 1
    report(results, bounds, cases, arguments.seconds, results_folder(arguments.out, official=full))
    return 0


if __name__ == "__main__":
    sys.exit(main())
