"""A compacted file that is damaged later, beside what it was made of, restored: the rows that can be read are
counted, and none of them is removed for the sake of the one that cannot."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyarrow import fs, parquet
from pyspark.sql import SparkSession

from sluice.quotas.entity import QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits
from sluice.recalibration.log.compaction import PREFIX, compact
from sluice.recalibration.log.reader import UNREADABLE, LogFolder, find_files
from sluice.recalibration.night import Night, run_night
from sluice.recalibration.policy.settings import JobSettings
from sluice.usage.access_record import REQUESTS, ROLLUP
from testkit.access_log.access_logs import DAY, row, write
from testkit.spark.object_store import ObjectStore

MINUTES = 3
ROWS = sorted(minute * 100 + second for minute in range(MINUTES) for second in range(50))


@dataclass
class Log:
    """A log in a folder or in a bucket, of one hour."""

    logs: str
    made: Path
    """where its files are made"""
    table: str = ROLLUP

    @property
    def folder(self) -> LogFolder:
        return LogFolder.of(self.logs)

    @property
    def hour(self) -> str:
        return f"{self.folder.root}/{self.table}/date={DAY}/hour=00"

    def minutes(self) -> dict[str, bytes]:
        """What proxies write: name → content."""
        for minute in range(MINUTES):
            rows = [row(second, request_bytes=minute * 100 + second) for second in range(50)]
            write(self.made, rows, f"p1-{minute}.parquet")
        return {path.name: path.read_bytes() for path in sorted(self.made.rglob("p1-*.parquet"))}

    def put(self, files: dict[str, bytes]) -> None:
        self.folder.filesystem.create_dir(self.hour, recursive=True)
        for name, content in files.items():
            with self.folder.filesystem.open_output_stream(f"{self.hour}/{name}") as sink:
                sink.write(content)

    def files(self) -> dict[str, bytes]:
        """Name → content, as they are there now."""
        found = {}
        for info in self.folder.filesystem.get_file_info(fs.FileSelector(self.hour)):
            with self.folder.filesystem.open_input_file(info.path) as file:
                found[info.base_name] = file.read()
        return found

    def compacted(self) -> str:
        (name,) = (name for name in self.files() if name.startswith(PREFIX))
        return name

    def path(self, name: str) -> str:
        """As LogFiles has it."""
        return f"{self.folder.scheme}{self.hour}/{name}"

    def seen(self, unreadable: Sequence[str] = ()) -> list[int]:
        """The rows that a night counts, which has found out what it cannot read."""
        why = {self.path(name): UNREADABLE for name in unreadable}
        rows: list[int] = []
        for path in find_files(self.logs, DAY, self.table, why).good:
            with self.folder.filesystem.open_input_file(path.removeprefix(self.folder.scheme)) as file:
                rows += parquet.ParquetFile(file).read(["request_bytes"])["request_bytes"].to_pylist()
        return sorted(rows)


@pytest.fixture(params=["folder", "store"])
def log(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Log:
    if request.param == "folder":
        return Log(str(tmp_path / "log"), tmp_path / "made")
    store: ObjectStore = request.getfixturevalue("store")
    for name, value in store.environ.items():
        monkeypatch.setenv(name, value)
    return Log(f"{store.uri}/{tmp_path.name}/log", tmp_path / "made")


def damaged_within(content: bytes) -> bytes:
    """No page of its first column can be read; its end is whole."""
    column = parquet.read_metadata(io.BytesIO(content)).row_group(0).column(0)
    begin = 4
    return (
        content[:begin]
        + bytes(byte ^ 0x5A for byte in content[begin : begin + column.total_compressed_size])
        + content[begin + column.total_compressed_size :]
    )


def renamed(files: dict[str, bytes]) -> dict[str, bytes]:
    return {f"r-{name}": content for name, content in files.items()}


def compacted_then_damaged(log: Log) -> tuple[str, bytes]:
    log.put(log.minutes())
    compact(log.folder, DAY)
    name = log.compacted()
    content = damaged_within(log.files()[name])
    log.put({name: content})
    return name, content


@pytest.mark.parametrize("restored", [dict, renamed])
def test_what_the_night_named_damaged_hides_nothing_and_removes_nothing(restored: type, log: Log) -> None:
    name, content = compacted_then_damaged(log)
    log.put(restored(log.minutes()))
    assert log.seen([name]) == ROWS
    done = compact(log.folder, DAY, damaged=[log.path(name)])
    assert log.seen([name]) == ROWS
    assert log.files()[name] == content, "it stays as it is"
    assert list(done.left) == [f"{log.hour}/{name}"]
    assert (done.files_before, done.files_after, len(log.files())) == (MINUTES + 1, 2, 2)
    compact(log.folder, DAY, damaged=[log.path(name)])
    assert log.seen([name]) == ROWS


@pytest.mark.parametrize("restored", [dict, renamed])
@pytest.mark.parametrize("table", [ROLLUP, REQUESTS])
def test_what_no_night_has_read_is_read_before_anything_is_removed_for_it(
    restored: type, table: str, log: Log
) -> None:
    """A night reads one table, and the columns that it needs."""
    log.table = table
    name, _ = compacted_then_damaged(log)
    log.put(restored(log.minutes()))
    before = log.files()
    done = compact(log.folder, DAY)
    assert log.files() == before
    assert log.seen([name]) == ROWS
    assert sorted(done.left) == sorted(f"{log.hour}/{each}" for each in before)
    assert done.files_after == done.files_before == len(before)


@pytest.mark.parametrize("restored", [dict, renamed])
def test_one_whose_columns_are_not_ours_removes_nothing(restored: type, log: Log) -> None:
    """The night read what it was made of; compaction took its end at its word, and removed exactly that."""
    log.put(log.minutes())
    compact(log.folder, DAY)
    name = log.compacted()
    content = log.files()[name].replace(b"request_bytes", b"rEquest_bytes")
    log.put({name: content, **restored(log.minutes())})
    assert log.seen() == ROWS
    compact(log.folder, DAY)
    assert log.seen() == ROWS
    assert log.files()[name] == content


def test_one_that_is_cut_off_is_not_written_over(log: Log) -> None:
    """The new file is made of the same names; of a damaged one nobody knows what is in it."""
    log.put(log.minutes())
    compact(log.folder, DAY)
    name = log.compacted()
    content = log.files()[name][:-20]
    log.put({name: content, **log.minutes()})
    compact(log.folder, DAY)
    assert log.files()[name] == content
    assert log.seen() == ROWS
    assert len(log.files()) == 2


@pytest.mark.parametrize("is_named", [True, False])
def test_a_smaller_compacted_file_within_a_damaged_larger_one_counts_and_stays(
    is_named: bool, log: Log
) -> None:
    log.put(log.minutes())
    compact(log.folder, DAY)
    small = log.compacted()
    content = log.files()[small]
    write(log.made, [row(9, request_bytes=999)], "late.parquet")
    log.put({"late.parquet": next(log.made.rglob("late.parquet")).read_bytes()})
    compact(log.folder, DAY)
    large = log.compacted()
    log.put({large: damaged_within(log.files()[large]), f"backup-{small}": content})
    assert log.seen([large]) == ROWS
    compact(log.folder, DAY, damaged=[log.path(large)] if is_named else [])
    assert log.seen([large]) == ROWS
    assert log.files().keys() == {large, f"backup-{small}"}


@pytest.mark.parametrize("restored", [dict, renamed])
def test_a_whole_one_still_stands_for_what_it_was_made_of(restored: type, log: Log) -> None:
    log.put(log.minutes())
    compact(log.folder, DAY)
    name = log.compacted()
    log.put(restored(log.minutes()))
    assert log.seen() == ROWS
    compact(log.folder, DAY)
    assert log.seen() == ROWS
    assert list(log.files()) == [name]


@pytest.mark.parametrize("restored", [dict, renamed])
def test_a_night_reads_what_was_restored_and_so_do_those_after_it(
    restored: type, spark: SparkSession, tmp_path: Path
) -> None:
    """It ended with "no log of this date", beside good files, or left the hour out and removed them."""
    log = Log(str(tmp_path / "log"), tmp_path / "made")
    limits = QuotaLimits([(QuotaEntity("alice"), {"producer_byte_rate": 1_000})])
    name, content = compacted_then_damaged(log)
    log.put(restored(log.minutes()))
    plans = []
    for _ in range(3):
        night = Night(log.logs, str(tmp_path / "out"), DAY)
        plans.append(run_night(spark, night, limits, JobSettings(), lambda _: None).plan)
        assert log.seen([name]) == ROWS
        if len(plans) == 1:
            assert log.files()[name] == content
    assert [len(plan.files.good) for plan in plans] == [MINUTES, 1, 1]
    assert plans[0].files.damaged == {log.path(name): UNREADABLE}
    assert [plan.entries for plan in plans[1:]] == [plans[0].entries] * 2
