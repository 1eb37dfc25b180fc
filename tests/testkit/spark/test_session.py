"""Sparks of one test process, one after the other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from testkit.spark.session import spark_for_few_rows

ROOT: Final = Path(__file__).resolve().parents[3]


def variable(spark: SparkSession) -> str | None:
    """What its Java has of it."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    found: str | None = jvm.System.getenv("ASKED_OF_SPARK")
    return found


def one_after_the_other() -> None:
    with spark_for_few_rows({"ASKED_OF_SPARK": "one"}) as spark:
        assert variable(spark) == "one"
        with spark_for_few_rows({"ASKED_OF_SPARK": "two"}) as same:
            assert variable(same) == "one"
        assert spark.range(3).count() == 3
    with spark_for_few_rows({}) as spark:
        assert variable(spark) is None
        assert spark.range(3).count() == 3


@pytest.mark.slow
def test_each_begins_with_its_own_variables() -> None:
    """In a process of its own: that of the tests may have a Spark, for as long as it lives."""
    call = f"from {__name__} import one_after_the_other; one_after_the_other()"
    done = subprocess.run([sys.executable, "-c", call], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
