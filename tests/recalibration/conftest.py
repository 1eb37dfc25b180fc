"""One Spark for all tests of this folder: it takes half a minute to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from sluice.recalibration.spark import spark_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with spark_session("tests", "local[1]", {"spark.sql.shuffle.partitions": "1"}) as session:
        session.sparkContext.setLogLevel("ERROR")
        yield session
