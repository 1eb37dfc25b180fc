"""Every client library under quotas that bite, Sluice's and the broker's own: what is lost, what doubled.

    python -m bench.clients [--quick] [--only kafka-go librdkafka-plain …] [--sides sluice native] [--lanes 2]

Twelve clients produce, consume in a group and, where they can, in transactions. Each record is numbered and
read back from the broker. The last line of standard output is one JSON object. What is measured, and why so:
docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from bench.clients.cases import CLIENTS, NAMES, SIDES, Client
from bench.clients.judge import Figures
from bench.clients.programs import NoProgramError, Programs
from bench.clients.report import ClientsRun, line_of, report
from bench.clients.rig import Rig, open_rig, run_part
from bench.lib.results import results_folder
from testkit.kafka.lock import KafkaDistError
from testkit.kafka.node import KafkaNodeError
from testkit.processes.process import BenchError

LANES: Final = 2
_printing: Final = threading.Lock()


def measure(arguments: argparse.Namespace) -> ClientsRun:
    """Every chosen client, some at a time. Raises BenchError when it cannot be measured."""
    begun_s = time.monotonic()
    asked = [client for client in CLIENTS if not arguments.only or client.name in arguments.only]
    missing: dict[str, str] = {}
    results: dict[str, dict[str, dict[str, Figures]]] = {}
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as name:
        folder = arguments.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        programs = Programs(folder)
        clients = [client for client in asked if _can_run(client, programs, missing)]
        if not clients:
            raise BenchError("none of the clients can run here")
        with (
            open_rig(
                clients,
                folder,
                programs,
                quick=arguments.quick,
                answer_budget_s=arguments.answer_budget,
            ) as rig,
            ThreadPoolExecutor(arguments.lanes) as lanes,
        ):
            done = [(client, lanes.submit(_run_client, rig, client, arguments.sides)) for client in clients]
            for client, future in done:
                results[client.name] = future.result()
            if arguments.keep:
                shutil.copy(rig.node.log, folder / "kafka.log")
                shutil.copy(rig.sluice.log, folder / "sluice.log")
            bites = {
                client.name: {role: rig.bite(client.user(role)) for role in client.roles}
                for client in clients
            }
    return ClientsRun(results, missing, bites, time.monotonic() - begun_s, quick=arguments.quick)


def _can_run(client: Client, programs: Programs, missing: dict[str, str]) -> bool:
    try:
        programs.command(client)
    except NoProgramError as error:
        missing[client.name] = str(error)
        print(f"{client.name} cannot run: {error}", file=sys.stderr, flush=True)
        return False
    return True


def _run_client(rig: Rig, client: Client, sides: Sequence[str]) -> dict[str, dict[str, Figures]]:
    """All roles on all sides at the same time: side → role → figures."""

    def one(role: str, side: str) -> Figures:
        figures = run_part(rig, client, role, side)
        with _printing:
            print("  " + line_of(client.name, role, side, figures), flush=True)
        return figures

    with ThreadPoolExecutor(len(sides) * len(client.roles)) as pool:
        running = {side: {role: pool.submit(one, role, side) for role in client.roles} for side in sides}
        return {
            side: {role: future.result() for role, future in roles.items()} for side, roles in running.items()
        }


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.clients", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--quick", action="store_true", help="a fourth of the records: a trial, no result")
    parser.add_argument("--only", nargs="+", choices=NAMES, metavar="CLIENT", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--lanes", type=int, default=LANES, help=f"clients at a time ({LANES})")
    parser.add_argument(
        "--answer-budget", type=float, metavar="S", help="pacing.answer_budget_s instead of the default"
    )
    parser.add_argument("--keep", type=Path, help="folder for the drivers' output, to look into")
    parser.add_argument("--out", type=Path, help="folder for results instead of bench/results")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0: measured, whatever was found; 1: measured, but not every client that was asked for could
    run; 2: could not be measured, and the message says why."""
    arguments = _arguments(argv)
    try:
        run = measure(arguments)
    except (BenchError, KafkaNodeError, KafkaDistError, TimeoutError) as error:
        print(f"bench-clients: {error}", file=sys.stderr)
        return 2
    trial = arguments.quick or arguments.only or run.missing or arguments.answer_budget
    full = not trial and len(arguments.sides) == len(SIDES)
    report(run, results_folder(arguments.out, official=full))
    return 1 if run.missing else 0


if __name__ == "__main__":
    sys.exit(main())
