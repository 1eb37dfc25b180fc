"""Sparks of one test process, one after the other."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from testkit.spark.session import spark_for_few_rows


def variable(spark: SparkSession) -> str | None:
    """What its Java has of it."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    found: str | None = jvm.System.getenv("ASKED_OF_SPARK")
    return found


@pytest.mark.long
def test_each_begins_with_its_own_variables() -> None:
    with spark_for_few_rows({"ASKED_OF_SPARK": "one"}) as spark:
        assert variable(spark) == "one"
        assert spark.range(3).count() == 3
    with spark_for_few_rows({}) as spark:
        assert variable(spark) is None
        assert spark.range(3).count() == 3
