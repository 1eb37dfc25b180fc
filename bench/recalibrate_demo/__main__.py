"""From traffic to other limits, in one go: a client that is throttled gets more, one with far too much less.

    make recalibrate-demo                     the same as: python -m bench.recalibrate_demo
    make recalibrate-demo ARGS='--keep out'   keeps log, state, plan and report there

Starts a real Kafka 4.3.1 and Sluice, which keeps an access log. `checkout` sends flat out, and may send
200 kB/s; `reports` sends 100 kB/s, and may send 1 MB/s. Then `sluice recalibrate` makes a plan from the log,
`sluice quotas apply` writes it into the quota file, and the running proxy enforces it: what both get when
they send flat out is measured before and after, and once more when the plan is rolled back.

The job's settings differ from the ordinary ones in what a demo has no time for: to cut a limit it takes an
hour of traffic on three days; here 20 seconds of one. Everything runs on loopback in a temporary folder. The
last line of standard output is JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyarrow import parquet

from bench.recalibrate_demo.traffic import Load
from sluice.recalibration.spark.java_runtime import JavaNotFoundError
from sluice.usage.access_record import ROLLUP
from testkit.kafka.lock import KafkaDistError
from testkit.kafka.node import KafkaNode, KafkaNodeError
from testkit.processes.ports import LOOPBACK, free_ports
from testkit.processes.process import BenchError
from testkit.proxy.proxies import sluice

THROTTLED, ROOMY = "checkout", "reports"
LIMITS: Final = {THROTTLED: 200_000, ROOMY: 1_000_000}
"""bytes per second"""
ROOMY_USES: Final = 100_000
SECONDS: Final = 40.0
"""of traffic: three whole windows of the log at least"""
MIN_SECONDS: Final = 35.0
_WINDOWS: Final = 3
_LOG_WITHIN_S: Final = 60.0
_COMMAND_WITHIN_S: Final = 900.0
"""half a minute on two cores that have nothing else to do"""
_SETTLE_S: Final = 3.0
_MEASURE_S: Final = 6.0
_SETTINGS: Final = "policy: {min_traffic_s: 20, min_days_to_cut: 1}\ncompact: false\n"
FAILED: Final = 2


@dataclass(frozen=True, slots=True)
class Outcome:
    """Bytes per second, by client id."""

    limits_before: dict[str, float]
    limits_after: dict[str, float]
    got_before: dict[str, float]
    """flat out"""
    got_after: dict[str, float]
    got_rolled_back: dict[str, float]
    plan_s: float
    """how long the job took, its start included"""


class Demo:
    """One run of the demo."""

    def __init__(self, folder: Path, seconds: float, *, is_kept: bool = True) -> None:
        """`folder`: where log, state and plans go; deleted at the end unless it `is_kept`."""
        self.folder = folder
        self._seconds = seconds
        self._is_kept = is_kept
        self.quota_file = folder / "quotas.yaml"
        self._logs = folder / "log"
        self._logs.mkdir(parents=True, exist_ok=True)
        (folder / "settings.yaml").write_text(_SETTINGS)

    def run(self) -> Outcome:
        """Raises BenchError, or the harness's own errors, saying what failed."""
        with self._stage() as bootstrap:
            day = datetime.now(UTC).date()
            say(f"{self._seconds:.0f} s of traffic: {THROTTLED} flat out, {ROOMY} at {shown(ROOMY_USES)}")
            with self._load(bootstrap, THROTTLED), self._load(bootstrap, ROOMY, ROOMY_USES):
                time.sleep(self._seconds)
            self._await_log(day)
            begun_s = time.monotonic()
            plan = self._plan(day)
            plan_s = time.monotonic() - begun_s
            say(f"sluice recalibrate: {plan_s:.0f} s; {report_told(plan, is_kept=self._is_kept)}")
            got_before = self._flat_out(bootstrap)  # what the plan was not made from
            say(self._sluice("quotas", "apply", str(plan), "-q", str(self.quota_file)))
            limits_after = self._limits()
            got_after = self._flat_out(bootstrap)
            say(self._sluice("quotas", "apply", str(plan), "-q", str(self.quota_file), "--rollback"))
            got_rolled_back = self._flat_out(bootstrap)
        before = {name: float(limit) for name, limit in LIMITS.items()}
        return Outcome(before, limits_after, got_before, got_after, got_rolled_back, plan_s)

    @contextlib.contextmanager
    def _stage(self) -> Iterator[str]:
        """Kafka, and Sluice in front of it; where clients begin."""
        (port,) = free_ports(1)
        say("starting Kafka, and Sluice in front of it")
        quotas = [{"client-id": name, "producer_byte_rate": limit} for name, limit in LIMITS.items()]
        access_log = {"directory": {"path": str(self._logs)}, "rotate_s": 2, "instance": "demo"}
        with KafkaNode(advertised={"SLUICE": (LOOPBACK, port)}) as node:
            upstream = node.address("SLUICE")[1]
            with sluice([upstream], quotas, [port], quota_file=self.quota_file, access_log=access_log):
                admin = AdminClient({"bootstrap.servers": node.bootstrap})
                for created in admin.create_topics([NewTopic(name, 1, 1) for name in LIMITS]).values():
                    created.result(timeout=30.0)
                yield f"{LOOPBACK}:{port}"

    def _load(self, bootstrap: str, name: str, bytes_per_s: float | None = None) -> Load:
        return Load(bootstrap, name, name, bytes_per_s)

    def _flat_out(self, bootstrap: str) -> dict[str, float]:
        """What each gets when it sends all it can."""
        with contextlib.ExitStack() as stack:
            loads = {name: stack.enter_context(self._load(bootstrap, name)) for name in LIMITS}
            time.sleep(_SETTLE_S)
            begun_s = time.monotonic()
            got = {name: load.rate(_MEASURE_S) for name, load in loads.items()}
            took_s = time.monotonic() - begun_s
        told = ", ".join(f"{name} {shown(rate)}" for name, rate in got.items())
        say(f"flat out, {took_s:.0f} s: {told}")
        return got

    def _await_log(self, day: date) -> None:
        """Until the windows of the traffic are in files. Raises BenchError."""
        deadline_s = time.monotonic() + _LOG_WITHIN_S
        while True:
            windows = self._windows(day)
            if all(len(windows[name]) >= _WINDOWS for name in LIMITS):
                told = ", ".join(f"{len(its)} windows of {name}" for name, its in windows.items())
                say(f"the access log has {told}")
                return
            if time.monotonic() > deadline_s:
                raise BenchError(f"the access log has too few windows after {_LOG_WITHIN_S:.0f} s: {windows}")
            time.sleep(0.5)

    def _windows(self, day: date) -> dict[str, set[int]]:
        found: dict[str, set[int]] = {name: set() for name in LIMITS}
        for file in (self._logs / ROLLUP / f"date={day}").glob("hour=*/[!._]*.parquet"):
            rows: pa.Table = parquet.read_table(file, columns=["client_id", "window_start_ms", "api_class"])
            for row in rows.to_pylist():
                if row["api_class"] == "produce" and row["client_id"] in found:
                    found[row["client_id"]].add(row["window_start_ms"])
        return found

    def _plan(self, day: date) -> Path:
        out = self._sluice(
            "recalibrate",
            *("--logs", str(self._logs), "--quotas", str(self.quota_file), "--out", str(self.folder / "out")),
            *("--date", str(day), "--settings", str(self.folder / "settings.yaml")),
        )
        return Path(out.splitlines()[-1])

    def _limits(self) -> dict[str, float]:
        document: dict[str, Any] = json.loads(self.quota_file.read_text())
        return {entry["client-id"]: float(entry["producer_byte_rate"]) for entry in document["quotas"]}

    def _sluice(self, *arguments: str) -> str:
        """What the command prints. Raises BenchError."""
        command = [str(Path(sys.executable).with_name("sluice")), *arguments]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_COMMAND_WITHIN_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise BenchError(str(error)) from None
        if done.returncode:
            raise BenchError(
                f"sluice {arguments[0]} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
            )
        return done.stdout.rstrip()


def say(line: str) -> None:
    """At once, also into a pipe."""
    print(line, flush=True)


def report_told(plan: Path, *, is_kept: bool) -> str:
    """Where the plan's report can be read, or how it can be kept."""
    if is_kept:
        return f"its report: {plan / 'report.html'}"
    return "its report is deleted at the end; make recalibrate-demo ARGS='--keep FOLDER' keeps it"


def shown(bytes_per_s: float) -> str:
    """A rate as people read it, in kB/s."""
    return f"{bytes_per_s / 1_000:,.0f} kB/s"


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0: shown to the end; 2: it failed, and the message says why."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.recalibrate_demo",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"of traffic ({SECONDS:.0f})")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep log, plan and report there")
    arguments = parser.parse_args(argv)
    if arguments.seconds < MIN_SECONDS:
        parser.error(f"--seconds must be at least {MIN_SECONDS:.0f}: the log's windows are 10 s long")
    try:
        with tempfile.TemporaryDirectory(prefix="sluice-demo-") as temporary:
            folder = (arguments.keep or Path(temporary)).resolve()
            outcome = Demo(folder, arguments.seconds, is_kept=arguments.keep is not None).run()
    except (BenchError, KafkaNodeError, KafkaDistError, KafkaException, JavaNotFoundError, OSError) as error:
        print(f"recalibrate-demo: {error}", file=sys.stderr)
        return FAILED
    print(json.dumps(asdict(outcome)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
