"""An object that is made once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sluice.recalibration.spark.installed import installed_hadoop
from sluice.recalibration.spark.objects import CannotCreateOnceError, create_once
from testkit.spark.object_store import ObjectStore


@pytest.mark.skipif(installed_hadoop() == "3.4.1", reason="Spark 4.0's S3A makes no object on a condition")
def test_of_several_who_make_an_object_one_does(spark: SparkSession, store: ObjectStore) -> None:
    makers_known = 0
    for index in range(5):
        uri = f"{store.uri}/once/{index}"
        with ThreadPoolExecutor(4) as pool:
            made = list(pool.map(lambda number, uri=uri: create_once(spark, uri, b"%d" % number), range(4)))
        # None of them, if the answer to the one who did it was lost and its client has tried again.
        maker = int(store.read(f"once/{index}"))
        told = [number for number in range(4) if made[number]]
        assert told in ([maker], [])
        makers_known += len(told)
    assert makers_known
    assert not create_once(spark, f"{store.uri}/once/0", b"late")


@pytest.mark.skipif(installed_hadoop() != "3.4.1", reason="that of Spark 4.0 alone")
def test_an_s3a_that_makes_no_object_on_a_condition_says_so(spark: SparkSession, store: ObjectStore) -> None:
    with pytest.raises(CannotCreateOnceError, match=r"conditional\.overwrite"):
        create_once(spark, f"{store.uri}/once/never", b"")


def test_where_nothing_can_be_made_once_it_says_so(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(CannotCreateOnceError, match=r"conditional\.overwrite"):
        create_once(spark, f"file://{tmp_path}/object", b"")
