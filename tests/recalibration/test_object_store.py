"""Nights over an object store against the same nights over a folder: logs as they come, also damaged ones."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier

import pytest
from pyspark.sql import SparkSession

from sluice.quotas.files.quota_file import parse_quotas
from sluice.recalibration.night import Night, run_night
from sluice.recalibration.settings_file import parse_settings
from sluice.recalibration.spark.installed import installed_hadoop
from sluice.recalibration.state.run_lock import AnotherNightError
from testkit.access_log.access_logs import DAY, row, write
from testkit.spark.object_store import BUCKET, ObjectStore

QUOTAS = "quotas: [{user: alice, producer_byte_rate: 1000}, {user: <default>, producer_byte_rate: 50000}]"
SETTINGS = "policy: {min_traffic_s: 30}\n"


def ugly_log(logs: Path) -> None:
    """Whole files, a copy, one cut off, one damaged within, one being written, one of an older proxy."""
    whole = write(logs, [row(each, request_bytes=10_000, mutes=1, throttle_ms=4_999.7) for each in range(9)])
    shutil.copyfile(whole, whole.with_name("copy.parquet"))
    bob = [row(each, request_bytes=20_000, user="bob", throttle_ms=0.1) for each in range(9)]
    content = bytearray(write(logs, bob, "b.parquet").read_bytes())
    whole.with_name("half.parquet").write_bytes(content[: len(content) // 2])
    whole.with_name(".b.parquet.new").write_bytes(content[: len(content) // 2])
    content[4:-1_000] = b"\xff" * (len(content) - 1_004)
    whole.with_name("middle.parquet").write_bytes(content)
    older = [row(each, request_bytes=30_000, user="carol") for each in range(9)]
    write(logs, older, "older.parquet", without="mutations")


@dataclass
class Twice:
    """The same log and output in a folder and in a part of the bucket."""

    folder: Path
    uri: str
    store: ObjectStore

    @property
    def name(self) -> str:
        """Of the part, within the bucket."""
        return self.uri.removeprefix(f"s3://{BUCKET}/")

    def night(self, spark: SparkSession, root: str) -> str:
        night = Night(f"{root}/logs", f"{root}/out", DAY)
        outcome = run_night(
            spark, night, parse_quotas(QUOTAS, ""), parse_settings(SETTINGS, ""), lambda _: None
        )
        assert outcome.folder is not None
        return outcome.folder.removeprefix(f"{root}/")

    def on_disk(self, name: str) -> dict[str, bytes]:
        place = self.folder / name
        return {
            str(file.relative_to(place)): file.read_bytes() for file in place.rglob("*") if file.is_file()
        }

    def in_store(self, name: str) -> dict[str, bytes]:
        place = f"{self.name}/{name}"
        return {file: self.store.read(f"{place}/{file}") for file in self.store.names(place)}


@pytest.fixture
def twice(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Twice:
    for name, value in store.environ.items():
        monkeypatch.setenv(name, value)
    ugly_log(tmp_path / "logs")
    part = request.node.name
    return Twice(tmp_path, store.upload(tmp_path / "logs", f"{part}/logs").removesuffix("/logs"), store)


def without_places(files: dict[str, bytes], root: str) -> dict[str, bytes]:
    """Damaged files are named by their whole path."""
    return {name: content.replace(root.encode(), b"") for name, content in files.items()}


@pytest.mark.long
def test_damaged_copied_and_half_written_files_and_the_same_night_again(
    spark: SparkSession, twice: Twice
) -> None:
    for run in ("out/plans/2026-11-20-1", "out/plans/2026-11-20-2"):
        assert twice.night(spark, str(twice.folder)) == run
        assert twice.night(spark, twice.uri) == run
        expected = without_places(twice.on_disk(run), str(twice.folder))
        assert without_places(twice.in_store(run), twice.uri) == expected
        assert expected["plan.json"].count(b"/logs/rollup/") == 2, "half.parquet and middle.parquet"
        for user in (b"alice", b"bob", b"carol"):
            assert b'"user": "%s"' % user in expected["plan.json"]
        assert twice.in_store("logs/rollup").keys() == twice.on_disk("logs/rollup").keys(), "compacted alike"


@pytest.mark.long
@pytest.mark.skipif(installed_hadoop() == "3.4.1", reason="Spark 4.0 has no lock there, and says so")
def test_of_two_nights_at_once_one_is_told_and_what_is_left_is_one_nights(
    spark: SparkSession, twice: Twice
) -> None:
    expected = twice.night(spark, str(twice.folder))
    both = Barrier(2)

    def night(_: int) -> str | None:
        both.wait(60)
        try:
            return twice.night(spark, twice.uri)
        except AnotherNightError:
            return None

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(night, range(2)), key=str) == [None, expected]
    assert without_places(twice.in_store(expected), twice.uri) == without_places(
        twice.on_disk(expected), str(twice.folder)
    )
    assert twice.night(spark, twice.uri).endswith("-2"), "the lock was given back"
