"""A storm of new producer ids against a broker with a small heap: through Sluice, and without it.

    python -m bench.storm [--quick] [--rate 10000] [--ids-per-request 50] [--no-direct]

One user brings the storm, another's producer must notice nothing. The last line of standard output is one
JSON object. What is measured, and why so: docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.lib.results import results_folder
from bench.storm.report import StormRun, report
from bench.storm.rig import COLLECTORS, CONTROL, G1, QUIET, THROUGH, Setting, open_folder
from bench.storm.run import run_direct, run_through
from testkit.kafka.lock import KafkaDistError
from testkit.kafka.node import KafkaNodeError
from testkit.processes.process import BenchError

RATE: Final = 10_000.0
IDS_PER_REQUEST: Final = 50
"""with one for each request Kafka, Sluice and the storm need more than two cores for the rate"""
SECONDS: Final = 50.0
QUICK_SECONDS: Final = 10.0
WARM_UP_S: Final = 10.0
DIRECT_WARM_UP_S: Final = 6.0
QUIET_S: Final = 10.0
CONTROL_S: Final = 15.0
"""each of two, before and behind the storm: a machine that slows down or speeds up so counts on both sides"""
DIRECT_MOST_S: Final = 75.0


def measure(arguments: argparse.Namespace) -> StormRun:
    """The whole run. Raises BenchError when it cannot be measured."""
    begun_s = time.monotonic()
    share = QUICK_SECONDS / SECONDS if arguments.quick else 1.0
    control = (CONTROL, CONTROL_S * share)
    plan = [(QUIET, QUIET_S * share), control, (THROUGH, arguments.seconds), control]
    with open_folder() as folder:
        setting = Setting(folder, arguments.rate, arguments.ids_per_request, arguments.collector)
        through = run_through(setting, plan, WARM_UP_S * share)
        direct = None if arguments.no_direct else run_direct(setting, DIRECT_WARM_UP_S, DIRECT_MOST_S)
    return StormRun(setting, time.monotonic() - begun_s, through, direct)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.storm", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--quick", action="store_true", help="a sixth of it: a trial, no result")
    parser.add_argument("--rate", type=float, default=RATE, help=f"new ids a second ({RATE:.0f})")
    parser.add_argument(
        "--ids-per-request",
        type=int,
        default=IDS_PER_REQUEST,
        help=f"each for a partition of its own ({IDS_PER_REQUEST})",
    )
    parser.add_argument("--collector", choices=list(COLLECTORS), default=G1, help="of the broker's JVM")
    parser.add_argument("--seconds", type=float, help=f"of the storm through Sluice ({SECONDS:.0f})")
    parser.add_argument("--no-direct", action="store_true", help="leave out the run without Sluice")
    parser.add_argument("--out", type=Path, help="folder for results instead of bench/results")
    arguments = parser.parse_args(argv)
    arguments.seconds = arguments.seconds or (QUICK_SECONDS if arguments.quick else SECONDS)
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0: measured, whatever was found; 2: could not be measured, and the message says why."""
    arguments = _arguments(argv)
    try:
        run = measure(arguments)
    except (BenchError, KafkaNodeError, KafkaDistError, TimeoutError) as error:
        print(f"bench-storm: {error}", file=sys.stderr)
        return 2
    full = not (arguments.quick or arguments.no_direct) and arguments.rate == RATE
    full = (
        full
        and arguments.collector == G1
        and arguments.seconds >= SECONDS
        and arguments.ids_per_request == IDS_PER_REQUEST
    )
    report(run, results_folder(arguments.out, official=full))
    return 0


if __name__ == "__main__":
    sys.exit(main())
