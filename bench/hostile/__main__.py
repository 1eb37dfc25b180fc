"""What good clients notice of hostile ones behind one Sluice, and what those leave behind in it.

    python -m bench.hostile [--quick] [--rounds 15] [--seconds 36]

Phases by turns, on a real broker: without hostile connections, with them, and with them at the broker itself.
The last line of standard output is one JSON object. What is measured, and why so: docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.hostile.good import read_samples
from bench.hostile.probes import SILENT
from bench.hostile.report import HostileRun, progress, report
from bench.hostile.rig import CONTROL, DECOY, DIRECT, HOSTILE, SINK, Phase, open_rig
from bench.lib.results import results_folder
from testkit.kafka.lock import KafkaDistError
from testkit.kafka.node import KafkaNodeError
from testkit.processes.process import BenchError

DAMAGED_FRAMES: Final = 20_000  # over all rounds, through Sluice
OTHER_CONNECTIONS: Final = 5_000  # a third each: garbage, half-open, slow drips
ROUNDS: Final = 15
SECONDS: Final = 36.0  # 100 hostile connections a second
PROBES_S: Final = 60.0
QUICK_PROBES_S: Final = 10.0
QUICK_ROUNDS: Final = 2
QUICK_SECONDS: Final = 8.0
QUICK_SHARE: Final = 0.1
WARM_UP_S: Final = 8.0  # for the broker's compilers, what goes wrong included
KINDS: Final = (CONTROL, HOSTILE, DIRECT)
PARTS: Final = (DECOY, SINK)


def measure_all(arguments: argparse.Namespace) -> HostileRun:
    """Every kind of phase in every round. BenchError: it cannot be measured, or good clients failed."""
    share = (QUICK_SHARE if arguments.quick else 1.0) / arguments.rounds
    damaged, others = round(DAMAGED_FRAMES * share), round(OTHER_CONNECTIONS * share)
    phases: list[Phase] = []
    with open_rig(with_sink=not set(PARTS).isdisjoint(arguments.phases)) as (rig, frame_kinds):
        print(
            f"{frame_kinds} kinds of requests; a phase has {damaged} damaged ones, {others} other connections"
        )
        rig.phase(HOSTILE, 0, WARM_UP_S, round(WARM_UP_S * 50), round(WARM_UP_S * 10))
        for number in range(1, arguments.rounds + 1):
            for kind in arguments.phases:
                phases.append(rig.phase(kind, number, arguments.seconds, damaged, others))
                rig.check()
                samples = read_samples(rig.good_output)
                print(f"{number}/{arguments.rounds}  {progress(phases[-1], samples)}", flush=True)
        print(f"probes, while {SILENT:,} silent connections are held at the admin port", flush=True)
        probes = rig.ask_probes(QUICK_PROBES_S if arguments.quick else PROBES_S)
        records = rig.end_good_clients()
        faults = rig.sluice.faults_logged()
        return HostileRun(phases, read_samples(rig.good_output), records, frame_kinds, faults, probes)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.hostile", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of it: a trial, no result")
    parser.add_argument("--rounds", type=int, help=f"of all phases ({ROUNDS}; quick: {QUICK_ROUNDS})")
    parser.add_argument(
        "--seconds", type=float, help=f"of a phase ({SECONDS:.0f}; quick: {QUICK_SECONDS:.0f})"
    )
    parser.add_argument(
        "--phases",
        nargs="+",
        choices=[*KINDS, *PARTS],
        default=list(KINDS),
        help="only these; decoy and sink, which are in no ordinary run, tell what of hostile is whose",
    )
    parser.add_argument("--out", type=Path, help="folder for results instead of bench/results")
    arguments = parser.parse_args(argv)
    arguments.rounds = arguments.rounds or (QUICK_ROUNDS if arguments.quick else ROUNDS)
    arguments.seconds = arguments.seconds or (QUICK_SECONDS if arguments.quick else SECONDS)
    if not {CONTROL, HOSTILE} <= set(arguments.phases):
        parser.error(f"--phases needs {CONTROL} and {HOSTILE}: one is held against the other")
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0: measured; 2: could not be measured, or good clients failed; the message says why."""
    arguments = _arguments(argv)
    try:
        run = measure_all(arguments)
    except (BenchError, KafkaNodeError, KafkaDistError) as error:
        print(f"bench-hostile: {error}", file=sys.stderr)
        return 2
    full = not arguments.quick and arguments.rounds >= ROUNDS and set(arguments.phases) == set(KINDS)
    report(run, results_folder(arguments.out, official=full))
    return 0


if __name__ == "__main__":
    sys.exit(main())
