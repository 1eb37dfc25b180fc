"""One Spark for all tests of this folder, made for frames of a few rows: what it would spend on compiling is
more than what they take. It knows an object store, too, which lasts as long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from pyspark.sql import SparkSession

from sluice.recalibration.spark.session import JARS_VARIABLE, spark_session
from testkit.spark.jars import spark_jars
from testkit.spark.object_store import ObjectStore

FOR_FEW_ROWS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "1g",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
}


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with ObjectStore(tmp_path_factory.mktemp("store")) as found:
        yield found


@pytest.fixture(scope="session")
def spark(store: ObjectStore) -> Iterator[SparkSession]:
    with pytest.MonkeyPatch.context() as patch, ExitStack() as held:
        for name, value in {**store.environ, JARS_VARIABLE: str(spark_jars())}.items():
            patch.setenv(name, value)
        session = held.enter_context(spark_session("tests", "local[1]", FOR_FEW_ROWS))
        session.sparkContext.setLogLevel("ERROR")
        patch.undo()  # other tests have no object store
        yield session
