"""A Spark standalone cluster on loopback: a master and workers of PySpark's own jars, each in a process.

The workers stand for other machines. Each has a folder of its own for all it writes, an environment without
this process' variables, and a mount namespace in which what it must not see is an empty folder.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pyspark

from sluice.recalibration.spark.session import java_home
from testkit.processes.guarded_process import GuardedProcess, wait_for_line
from testkit.processes.ports import LOOPBACK, free_port

SPARK_HOME: Final = Path(pyspark.__file__).parent
DAEMON_HEAP: Final = "64m"
HEAP: Final = "224m"
"""of a driver and of an executor; with two of these and the daemons all heaps are below 1 GB"""
_START_S: Final = 90.0
_HIDDEN: Final = 'for each in {folders}; do mount -t tmpfs -o size=4k none "$each"; done; exec "$@"'
SMALL: Final = {
    "spark.driver.memory": HEAP,
    "spark.executor.memory": HEAP,
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    # Of each heap Spark sets 300 MB aside, and refuses one of less than half as much again.
    "spark.testing.reservedMemory": str(32 * 1024 * 1024),
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
}
"""settings of a night of few rows"""


@dataclass(frozen=True, slots=True)
class Submitted:
    """What spark-submit came to."""

    exit_code: int
    output: str


class SparkCluster:
    """Runs in the `with` block; what its workers have started ends with it."""

    def __init__(
        self, folder: Path, *, workers: int = 2, hidden: Sequence[Path] = (), environ: Mapping[str, str] = {}
    ) -> None:
        """A cluster that is not there yet.

        `folder`: one that is there, for logs and the workers' own folders. `hidden`: folders that workers do
        not see. `environ`: what the machines of the workers have set.
        """
        self._folder = folder
        self._hidden = hidden
        self._environ = dict(environ)
        self._port = free_port()
        self._workers = workers
        self._held = ExitStack()
        self._pids: list[int] = []
        self.url = f"spark://{LOOPBACK}:{self._port}"

    def __enter__(self) -> Self:
        with ExitStack() as held:
            held.enter_context(java_home())
            self._java_home = os.environ["JAVA_HOME"]
            master = ["org.apache.spark.deploy.master.Master", "--host", LOOPBACK]
            self._start(
                held, "master", [*master, "--port", str(self._port), "--webui-port", "0"], "elected leader"
            )
            for index in range(self._workers):
                self._start_worker(held, f"worker-{index}")
            self._held = held.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()

    def submit(
        self, options: Sequence[str], environ: Mapping[str, str], *, folder: Path, within_s: float
    ) -> Submitted:
        """Run spark-submit in `folder`, which has all that it writes. Raises TimeoutError."""
        log = folder / "spark-submit.log"
        log.unlink(missing_ok=True)
        command = [str(SPARK_HOME / "bin/spark-submit"), "--master", self.url, *options]
        with GuardedProcess(
            command, output=log, env=self._clean(folder) | dict(environ), cwd=folder
        ) as process:
            code = process.wait(within_s)
        return Submitted(code, log.read_text(encoding="utf-8", errors="replace") + self._of_drivers())

    def worker_folder(self, index: int) -> Path:
        """Where a worker writes."""
        return self._folder / f"worker-{index}"

    def seen_by_worker(self, index: int, folder: Path) -> list[str]:
        """The names that a worker, and so what it starts, finds in a folder."""
        return os.listdir(f"/proc/{self._pids[index]}/root{folder}")

    def _of_drivers(self) -> str:
        """What drivers at workers have printed: spark-submit does not show it."""
        found = sorted(self._folder.glob(str(Path("worker-*", "work", "driver-*", "stdout"))))
        return "".join(file.read_text(encoding="utf-8", errors="replace") for file in found)

    def _start_worker(self, held: ExitStack, name: str) -> None:
        folder = self._folder / name
        worker = ["org.apache.spark.deploy.worker.Worker", "--host", LOOPBACK, "--webui-port", "0"]
        # Two: a driver has a place beside an executor.
        worker += ["--cores", "2", "--memory", "1g", "--work-dir", str(folder / "work"), self.url]
        started = self._start(held, name, worker, "Successfully registered with master", self._environ)
        self._pids.append(started.pid)

    def _start(
        self, held: ExitStack, name: str, arguments: list[str], ready: str, environ: Mapping[str, str] = {}
    ) -> GuardedProcess:
        folder = self._folder / name
        folder.mkdir()
        log = self._folder / f"{name}.log"
        command = [*self._apart(), str(SPARK_HOME / "bin/spark-class"), *arguments]
        own = {"SPARK_LOCAL_DIRS": str(folder)}
        process = GuardedProcess(
            command, output=log, env=self._clean(folder) | own | dict(environ), cwd=folder
        )
        held.enter_context(process)
        wait_for_line(process, log, ready, _START_S)
        return process

    def _apart(self) -> list[str]:
        """The command before a command that does not see what is hidden."""
        if not self._hidden:
            return []
        as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
        script = _HIDDEN.format(folders=shlex.join(map(str, self._hidden)))
        return ["unshare", *as_root, "--mount", "sh", "-euc", script, "sh"]

    def _clean(self, folder: Path) -> dict[str, str]:
        return {
            "PATH": "/usr/bin:/bin",
            "HOME": str(folder),
            "JAVA_HOME": self._java_home,
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_DAEMON_MEMORY": DAEMON_HEAP,
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
