"""One Spark for all tests of this folder. It knows an object store, too, which lasts as long."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from sluice.quotas.files.variables import JARS_VARIABLE
from testkit.spark.jars import spark_jars
from testkit.spark.object_store import ObjectStore
from testkit.spark.session import spark_for_few_rows


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with ObjectStore(tmp_path_factory.mktemp("store")) as found:
        yield found


@pytest.fixture(scope="session")
def spark(store: ObjectStore) -> Iterator[SparkSession]:
    with spark_for_few_rows({**store.environ, JARS_VARIABLE: str(spark_jars())}) as session:
        yield session
