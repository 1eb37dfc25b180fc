"""One fault after the other: what is lost, doubled or out of order, what is told, how soon it is over.

    python -m bench.faults [--quick] [--only PART_OF_A_NAME ...]

The last line of standard output is one JSON object. What is measured, and why so: docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.faults.catalog import Fault, all_faults
from bench.faults.report import FaultRow, progress, report
from bench.faults.rig import Clients, FaultRig, Newcomers, open_rig
from bench.faults.told import Metric, Watch, value_of
from bench.lib.results import results_folder
from testkit.kafka.lock import KafkaDistError
from testkit.kafka.node import KafkaNodeError
from testkit.processes.process import BenchError

KILLS: Final = 30
QUICK_KILLS: Final = 2
PATIENCE_S: Final = 20.0
"""how long a fault stays that has not been told yet"""
RECOVERS_WITHIN_S: Final = 90.0
_LOSSES: Final = (
    Metric("sluice_access_log_rows_dropped_total"),
    Metric("sluice_access_log_rows_lost_by_kill_total"),
)


def measure(rig: FaultRig, number: int, fault: Fault) -> FaultRow:
    """One row. Raises BenchError when it cannot be measured: clients that never began, no broker."""
    clients = rig.start_clients(number)
    newcomers = Newcomers(rig.properties())
    newcomers.start()
    watch = Watch(rig.admin, rig.sluice.log, fault.tells)
    rows_before = _rows_lost(rig)
    rss_before = rig.sluice.rss_bytes()
    watch.start()
    begun_s = time.monotonic()
    undo = fault.begin(rig, clients)
    highest = rss_before
    while time.monotonic() < begun_s + fault.held_s or not (
        watch.told.by or time.monotonic() > begun_s + PATIENCE_S
    ):
        time.sleep(0.2)
        highest = max(highest, rig.sluice.rss_bytes() if rig.sluice.is_alive() else 0)
    undo()
    over_s = time.monotonic()
    recovered_s = _recovered(rig, fault, newcomers, over_s, clients)
    time.sleep(1.0)
    watch.stop()
    newcomers.stop()
    alive = rig.sluice.is_alive()
    row = FaultRow(
        name=fault.name,
        begun_s=begun_s,
        over_s=over_s,
        recovered_s=recovered_s,
        alive=alive,
        told=watch.told,
        found=rig.end_clients(clients),
        turned_away=sum(map(len, newcomers.turned_away.values())),
        newcomers=sum(map(len, newcomers.served.values())) + sum(map(len, newcomers.turned_away.values())),
        access_log_rows_lost=int(_rows_lost(rig) - rows_before) if alive and not fault.ends_proxy else None,
        rss_growth_bytes=highest - rss_before,
    )
    if not alive:
        rig.sluice.close()
        rig.sluice.start()
    return row


def _recovered(
    rig: FaultRig, fault: Fault, newcomers: Newcomers, over_s: float, clients: Clients
) -> float | None:
    """Seconds from the fault's end until everybody is served and the proxy says so; None: not in time."""
    well = fault.well()
    while time.monotonic() < over_s + RECOVERS_WITHIN_S and rig.sluice.is_alive():
        try:
            is_well = rig.admin.ready()[0] and well(rig)
        except OSError:
            is_well = False
        if is_well and clients.all_acknowledged_since(over_s) and newcomers.all_served_since(over_s):
            return time.monotonic() - over_s
        time.sleep(0.1)
        if "token" in fault.name:
            rig.admin.ask_with_token()
    return None


def _rows_lost(rig: FaultRig) -> float:
    samples = rig.admin.samples()
    return sum(value_of(samples, metric) for metric in _LOSSES)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.faults", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_KILLS} kills: a trial, no result")
    parser.add_argument("--only", nargs="+", help="faults whose name has one of these in it")
    parser.add_argument("--out", type=Path, help="folder for results instead of bench/results")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0: measured, whatever was found; 2: could not be measured, and the message says why."""
    arguments = _arguments(argv)
    faults = all_faults(QUICK_KILLS if arguments.quick else KILLS)
    if arguments.only:
        faults = [fault for fault in faults if any(part in fault.name for part in arguments.only)]
    rows: list[FaultRow] = []
    try:
        with open_rig() as rig:
            for number, fault in enumerate(faults, 1):
                rows.append(measure(rig, number, fault))
                print(f"{number}/{len(faults)}  {progress(rows[-1])}", flush=True)
            kept = results_folder(arguments.out, official=False) / "faults.log"
            kept.write_bytes(rig.sluice.log.read_bytes())
            if log := rig.sluice.faults_logged():
                print(f"{len(log)} lines of {kept} tell of a fault of its own, the injected ones included")
    except (BenchError, KafkaNodeError, KafkaDistError, TimeoutError) as error:
        print(f"bench-faults: {error}", file=sys.stderr)
        return 2
    report(rows, results_folder(arguments.out, official=not (arguments.quick or arguments.only)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
