"""One Spark for all tests of this folder, made for frames of a few rows: what it would spend on compiling is
more than what they take."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from sluice.recalibration.spark.session import spark_session

FOR_FEW_ROWS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "1g",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with spark_session("tests", "local[1]", FOR_FEW_ROWS) as session:
        session.sparkContext.setLogLevel("ERROR")
        yield session
