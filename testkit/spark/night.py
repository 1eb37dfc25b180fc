"""One night of `sluice recalibrate`, on this machine's files or on a cluster with an object store alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Final

from sluice.quotas.files.variables import JARS_VARIABLE
from sluice.recalibration import __main__ as job_module
from testkit.processes.ports import LOOPBACK
from testkit.spark.cluster import SMALL, SPARK_HOME, SparkCluster, Submitted
from testkit.spark.jars import spark_jars
from testkit.spark.object_store import ObjectStore

DRIVER_OPENS: Final = " ".join(
    (
        "-Dio.netty.tryReflectionSetAccessible=true",
        *(
            f"--add-opens=java.base/{package}=ALL-UNNAMED"
            for package in ("java.lang", "java.nio", "java.util", "sun.nio.ch", "sun.util.calendar")
        ),
    )
)
"""Spark opens these in every JVM but a driver's in cluster mode at a standalone master. Without java.nio
Arrow has no memory."""
_DRIVER_OPTIONS: Final = "spark.driver.extraJavaOptions"
NO_PYTHON: Final = "/no/python"
"""what executors are told to run Python with: they must need none"""
PYTHON_RUNNER: Final = "org.apache.spark.deploy.PythonRunner"
WITHIN_S: Final = 400.0
Files = Mapping[str, bytes]
"""of a plan's folder: name → content"""


class NightError(RuntimeError):
    """A night made no plan; has the end of what it said."""


@dataclass(frozen=True, slots=True)
class NightInput:
    """What a night is made of, as files of this machine."""

    day: date
    logs: Path
    quotas: Path
    settings: Path
    before: Path | None = None
    """the output folder of nights before; it stays as it is"""

    def upload(self, store: ObjectStore) -> None:
        """To where `on_cluster` reads it."""
        store.upload(self.logs, "logs")
        store.upload(self.quotas, "given/quotas.yaml")
        store.upload(self.settings, "given/settings.yaml")


def on_this_machine(night: NightInput, out: Path, *conf: str, master: str = "local[*]") -> Files:
    """In a process of its own, files alone, into `out`, which is not there yet. Raises NightError."""
    if night.before is not None:
        shutil.copytree(night.before, out)
    options = [
        f"--logs={night.logs}",
        f"--out={out}",
        f"--quotas={night.quotas}",
        f"--settings={night.settings}",
    ]
    options += [f"--date={night.day}", f"--master={master}", *(f"--conf={each}" for each in conf)]
    ended = _recalibrated(options)
    if ended.returncode:
        raise NightError(ended.stderr[-2_000:])
    return {path.name: path.read_bytes() for path in Path(ended.stdout.strip()).iterdir()}


def client_mode(
    night: NightInput,
    cluster: SparkCluster,
    store: ObjectStore,
    out: str,
    folder: Path,
    settings: Mapping[str, str] = SMALL,
) -> Files:
    """The driver runs here, in `folder`, with the jars of its machine; executors get these from it.

    `out`: a folder of the bucket. Raises NightError.
    """
    _upload_before(night, store, out)
    jars = ",".join(map(str, sorted(spark_jars().glob("*.jar"))))
    given = [f"--quotas={night.quotas}", f"--settings={night.settings}"]
    options = ["--deploy-mode", "client", *_conf(settings), "--jars", jars, *_job(night, store, out), *given]
    environ = {
        **store.environ,
        "TMPDIR": str(folder),
        "SPARK_LOCAL_DIRS": str(folder),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYSPARK_PYTHON": NO_PYTHON,
    }
    return _plan(cluster.submit(options, environ, folder=folder, within_s=WITHIN_S), night, store, out)


def by_command(night: NightInput, cluster: SparkCluster, store: ObjectStore, out: str, folder: Path) -> Files:
    """`sluice recalibrate --master spark://…` in `folder`, without spark-submit. Raises NightError."""
    _upload_before(night, store, out)
    given = [f"--quotas={night.quotas}", f"--settings={night.settings}", f"--master={cluster.url}"]
    _, *arguments = _job(night, store, out)
    environ = {
        **os.environ,
        **store.environ,
        JARS_VARIABLE: str(spark_jars()),
        "PYSPARK_PYTHON": NO_PYTHON,
        "SPARK_LOCAL_IP": LOOPBACK,
        "TMPDIR": str(folder),
    }
    ended = _recalibrated([*arguments, *given, *_conf(SMALL)], environ, folder)
    return _plan(Submitted(ended.returncode, ended.stderr), night, store, out)


def cluster_mode(
    night: NightInput,
    cluster: SparkCluster,
    store: ObjectStore,
    out: str,
    folder: Path,
    settings: Mapping[str, str] = SMALL,
) -> Files:
    """The driver runs at a worker, and has what is in the object store and what each machine has installed.

    spark-submit takes no Python file for that at a standalone master; so it is given what it makes of one
    elsewhere, PythonRunner with the file as its argument. Raises NightError.
    """
    _upload_before(night, store, out)
    jars = f"{spark_jars()}/*"
    places = {"spark.driver.extraClassPath": jars, "spark.executor.extraClassPath": jars}
    more = {
        _DRIVER_OPTIONS: f"{settings.get(_DRIVER_OPTIONS, '')} {DRIVER_OPENS}",
        "spark.standalone.submit.waitAppCompletion": "true",
    }
    any_jar = next((SPARK_HOME / "jars").glob("spark-tags_*.jar"))
    job, *arguments = _job(night, store, out)
    given = [f"--quotas={store.uri}/given/quotas.yaml", f"--settings={store.uri}/given/settings.yaml"]
    options = [
        "--deploy-mode",
        "cluster",
        "--class",
        PYTHON_RUNNER,
        *_conf({**settings, **places, **more}),
    ]
    options += [f"file:{any_jar}", job, "", *arguments, *given]  # "": no --py-files
    return _plan(cluster.submit(options, {}, folder=folder, within_s=WITHIN_S), night, store, out)


def node_environ(store: ObjectStore) -> dict[str, str]:
    """What a worker's machine has set for drivers that run there."""
    return {**store.environ, "PYSPARK_DRIVER_PYTHON": sys.executable, "PYSPARK_PYTHON": NO_PYTHON}


def _recalibrated(
    arguments: Sequence[str], environ: Mapping[str, str] | None = None, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """`sluice recalibrate` in a process of its own; None: the environment and the folder of this one."""
    command = [sys.executable, "-m", "sluice.recalibration", *arguments]
    return subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=WITHIN_S, env=environ, cwd=folder
    )


def _job(night: NightInput, store: ObjectStore, out: str) -> list[str]:
    arguments = [f"--logs={store.uri}/logs", f"--out={store.uri}/{out}", f"--date={night.day}"]
    return [os.path.abspath(str(job_module.__file__)), *arguments]


def _conf(settings: Mapping[str, str]) -> list[str]:
    return [f"--conf={key}={value}" for key, value in settings.items()]


def _upload_before(night: NightInput, store: ObjectStore, out: str) -> None:
    if night.before is not None:
        store.upload(night.before, out)


def _plan(submitted: Submitted, night: NightInput, store: ObjectStore, out: str) -> Files:
    """By LATEST: in cluster mode spark-submit ends with 0, whatever became of the driver."""
    try:
        if submitted.exit_code:
            raise NightError(f"exit code {submitted.exit_code}: {submitted.output[-2_000:]}")
        run = store.read(f"{out}/LATEST").decode().strip()
    except FileNotFoundError:
        run = "none"
    if not run.startswith(night.day.isoformat()):
        raise NightError(f"no plan of {night.day}, but {run}: {submitted.output[-2_000:]}")
    folder = f"{out}/plans/{run}"
    return {name: store.read(f"{folder}/{name}") for name in store.names(folder)}
