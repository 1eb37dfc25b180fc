"""A Spark in this process, made for frames of a few rows: to compile for them takes longer than they do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import pytest
from pyspark import SparkContext
from pyspark.errors.exceptions import captured
from pyspark.sql import SparkSession

from sluice.recalibration.spark.session import spark_session

_FOR_FEW_ROWS: Final = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "1g",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
}


_capture: Final[Callable[..., Callable[..., Any]]] = captured.capture_sql_exception


def _capture_sparks_own(f: Callable[..., Any]) -> Callable[..., Any]:
    """PySpark would have exceptions of any Java of this process judged by Spark's classes, for good."""
    capturing = _capture(f)

    def returned(answer: Any, gateway_client: Any, *rest: Any) -> Any:
        gateway = SparkContext._gateway
        is_sparks = gateway is not None and gateway_client is gateway._gateway_client
        return (capturing if is_sparks else f)(answer, gateway_client, *rest)

    return returned


captured.capture_sql_exception = _capture_sparks_own


@contextmanager
def spark_for_few_rows(environ: Mapping[str, str]) -> Iterator[SparkSession]:
    """One that began with these variables. Its Java ends with it: the next Spark of this process would have
    their values and its jars, whatever it asks for.

    While another test of this process holds one it is that one: a process has one Spark.
    """
    held_by_another = SparkSession.getActiveSession()
    if held_by_another is not None:
        yield held_by_another
        return
    with ExitStack() as held:
        held.callback(_end_java)
        with pytest.MonkeyPatch.context() as patch:  # other tests have no object store
            for name, value in environ.items():
                patch.setenv(name, value)
            session = held.enter_context(spark_session("tests", "local[1]", _FOR_FEW_ROWS))
        session.sparkContext.setLogLevel("ERROR")
        yield session


def _end_java() -> None:
    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()  # Java ends with its standard input
        gateway.proc.wait(60)
