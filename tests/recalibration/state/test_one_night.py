"""One night at a time in a folder or an object store; who may wait waits, and says so."""

from __future__ import annotations

import fcntl
import os
import threading
from contextlib import ExitStack
from errno import ENOLCK
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sluice.recalibration.spark.installed import installed_hadoop
from sluice.recalibration.state.one_night import one_night
from sluice.recalibration.state.run_lock import AnotherNightError
from testkit.spark.object_store import ObjectStore


def second_waits(spark: SparkSession, folder: str) -> None:
    told: list[str] = []
    with ExitStack() as first:
        assert first.enter_context(one_night(spark, folder, told.append))
        for wait_s in (0.0, 0.1):
            with (
                pytest.raises(AnotherNightError, match="another night runs here"),
                one_night(spark, folder, told.append, wait_s=wait_s),
            ):
                pytest.fail("two at once")
        assert [each.split(":")[0] for each in told] == ["waiting 0.1 s at most"], "who waits says so, once"
        threading.Timer(0.5, first.pop_all().close).start()
        with one_night(spark, folder, told.append, wait_s=60.0) as is_locked:
            assert is_locked
    assert f"process {os.getpid()} on " in told[-1]


def test_in_a_folder_the_second_waits_for_the_first(spark: SparkSession, tmp_path: Path) -> None:
    second_waits(spark, str(tmp_path / "logs" / ".compacting"))


@pytest.mark.long
@pytest.mark.skipif(installed_hadoop() == "3.4.1", reason="Spark 4.0 has no lock there, and says so")
def test_in_an_object_store_the_second_waits_for_the_first(
    spark: SparkSession, store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in store.environ.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    second_waits(spark, f"{store.upload(tmp_path, 'waits/logs')}/.compacting")


def test_where_nothing_locks_it_runs_and_says_so(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(descriptor: int, how: int) -> None:
        raise OSError(ENOLCK, os.strerror(ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    told: list[str] = []
    with one_night(spark, str(tmp_path), told.append) as is_locked:
        assert not is_locked
    assert told[0].startswith(
        f"not locked: {tmp_path} is on a file system without locks; run no second night"
    )
