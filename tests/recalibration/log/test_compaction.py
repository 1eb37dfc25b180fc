"""A date's small files → one an hour: the same rows at every moment, whenever it is killed."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs, parquet

from sluice.recalibration.log.compaction import PREFIX, compact
from sluice.recalibration.log.reader import LogFolder, find_files
from sluice.usage.access_record import SCHEMA_VERSION, VERSION_KEY
from testkit.access_log.access_logs import DAY, row, write


def seen(logs: Path) -> list[int]:
    """What a reader of ours finds: the bytes of each row."""
    found: list[int] = []
    for path in find_files(str(logs), DAY).good:
        with open(path, "rb") as file:
            found += parquet.ParquetFile(file).read(["request_bytes"])["request_bytes"].to_pylist()
    return sorted(found)


def three_minutes(logs: Path) -> None:
    for minute in range(3):
        write(
            logs,
            [row(minute, request_bytes=minute), row(minute, request_bytes=10 + minute)],
            f"m{minute}.parquet",
        )


def names(logs: Path) -> list[str]:
    return sorted(path.name for path in logs.rglob("*") if path.is_file())


def test_an_hour_becomes_one_file_with_the_same_rows(tmp_path: Path) -> None:
    three_minutes(tmp_path)
    before = seen(tmp_path)
    done = compact(LogFolder.of(str(tmp_path)), DAY)
    assert (done.files_before, done.files_after) == (3, 1)
    assert seen(tmp_path) == before == [0, 1, 2, 10, 11, 12]
    (name,) = names(tmp_path)
    assert name.startswith(PREFIX)


def test_compacting_again_changes_nothing_and_a_late_file_is_taken_in(tmp_path: Path) -> None:
    three_minutes(tmp_path)
    compact(LogFolder.of(str(tmp_path)), DAY)
    first = names(tmp_path)
    compact(LogFolder.of(str(tmp_path)), DAY)
    assert names(tmp_path) == first
    write(tmp_path, [row(9, request_bytes=99)], "late.parquet")
    compact(LogFolder.of(str(tmp_path)), DAY)
    assert len(names(tmp_path)) == 1
    assert seen(tmp_path) == [0, 1, 2, 10, 11, 12, 99]


class Killed(Exception):
    pass


class DyingFiles(fs.FileSystemHandler):  # type: ignore[misc]
    """The machine's files, on which the n-th change does not happen any more: the process was killed."""

    def __init__(self, changes: int) -> None:
        self._inner = fs.LocalFileSystem()
        self._left = changes

    def _change(self) -> None:
        if not self._left:
            raise Killed
        self._left -= 1

    def get_type_name(self) -> str:
        return "dying"

    def get_file_info(self, paths: Any) -> Any:
        return self._inner.get_file_info(paths)

    def get_file_info_selector(self, selector: Any) -> Any:
        return self._inner.get_file_info(selector)

    def open_input_file(self, path: str) -> Any:
        return self._inner.open_input_file(path)

    def open_input_stream(self, path: str) -> Any:
        return self._inner.open_input_stream(path)

    def open_output_stream(self, path: str, metadata: Any) -> Any:
        self._change()
        return self._inner.open_output_stream(path, metadata=metadata)

    def open_append_stream(self, path: str, metadata: Any) -> Any:
        raise NotImplementedError

    def move(self, src: str, dest: str) -> None:
        self._change()
        self._inner.move(src, dest)

    def delete_file(self, path: str) -> None:
        self._change()
        self._inner.delete_file(path)

    def copy_file(self, src: str, dest: str) -> None:
        raise NotImplementedError

    def create_dir(self, path: str, recursive: bool) -> None:
        raise NotImplementedError

    def delete_dir(self, path: str) -> None:
        raise NotImplementedError

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        raise NotImplementedError

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError

    def normalize_path(self, path: str) -> str:
        return path


@pytest.mark.parametrize("changes", range(6))
def test_killed_anywhere_readers_see_each_row_once_and_the_next_run_ends_it(
    changes: int, tmp_path: Path
) -> None:
    """One file written, one renamed, three removed: killed before each, and not at all."""
    three_minutes(tmp_path)
    before = seen(tmp_path)
    dying = LogFolder(fs.PyFileSystem(DyingFiles(changes)), str(tmp_path), "")
    with pytest.raises(Killed) if changes < 5 else nullcontext():
        compact(dying, DAY)
    assert seen(tmp_path) == before
    write(tmp_path, [row(9, request_bytes=99)], "late.parquet")
    compact(LogFolder.of(str(tmp_path)), DAY)
    assert seen(tmp_path) == [*before, 99]
    assert len([name for name in names(tmp_path) if not name.startswith(".")]) == 1


def test_damaged_files_and_files_being_written_stay_where_they_are(tmp_path: Path) -> None:
    three_minutes(tmp_path)
    cut = write(tmp_path, [row(5, request_bytes=5)], "cut.parquet")
    cut.write_bytes(cut.read_bytes()[:-20])
    cut.with_name(".being-written.parquet").write_bytes(b"PAR1")
    compact(LogFolder.of(str(tmp_path)), DAY)
    found = names(tmp_path)
    assert found[0] == ".being-written.parquet"
    assert found[1].startswith(PREFIX)
    assert found[2:] == ["cut.parquet"]


def test_files_of_an_older_version_are_compacted_with_newer_ones(tmp_path: Path) -> None:
    write(tmp_path, [row(0, request_bytes=1)], "old.parquet", without=("request_cost_ms",))
    write(tmp_path, [row(1, request_bytes=2, request_cost_ms=7.0)], "new.parquet")
    compact(LogFolder.of(str(tmp_path)), DAY)
    (path,) = find_files(str(tmp_path), DAY).good
    with parquet.ParquetFile(path) as file:
        table = file.read()
    assert sorted(
        zip(table["request_bytes"].to_pylist(), table["request_cost_ms"].to_pylist(), strict=True)
    ) == [
        (1, None),
        (2, 7.0),
    ], "null stands for what the older version means by leaving it out"
    assert table.schema.metadata[VERSION_KEY.encode()] == str(SCHEMA_VERSION).encode()


@pytest.mark.parametrize(
    ("column", "other"),
    [
        ("user", pa.large_string()),
        ("topic", pa.dictionary(pa.int32(), pa.string())),
        ("requests", pa.int32()),
    ],
)
@pytest.mark.parametrize("name", ["0-first.parquet", "z-last.parquet"])
def test_a_file_whose_column_has_another_type_stays_beside_the_others(
    tmp_path: Path, column: str, other: pa.DataType, name: str
) -> None:
    three_minutes(tmp_path)
    odd = write(tmp_path, [row(5, request_bytes=55)], name)
    table = parquet.read_table(odd)
    at = table.column_names.index(column)
    parquet.write_table(table.set_column(at, column, table[column].cast(other)), odd)
    before = seen(tmp_path)
    done = compact(LogFolder.of(str(tmp_path)), DAY)
    assert (done.files_before, done.files_after, list(done.left)) == (4, 2, [str(odd)])
    assert seen(tmp_path) == before
    compact(LogFolder.of(str(tmp_path)), DAY)
    assert seen(tmp_path) == before
    assert len(names(tmp_path)) == 2


def test_a_file_of_which_a_part_cannot_be_read_stays_and_nothing_half_is_left(tmp_path: Path) -> None:
    three_minutes(tmp_path)
    bad = write(tmp_path, [row(number, request_bytes=number) for number in range(50)], "bad.parquet")
    content = bytearray(bad.read_bytes())
    content[4:400] = b"\xff" * 396
    bad.write_bytes(content)
    done = compact(LogFolder.of(str(tmp_path)), DAY)
    assert (done.files_before, done.files_after, list(done.left)) == (4, 2, [str(bad)])
    found = names(tmp_path)
    assert found[0] == "bad.parquet"
    assert found[1].startswith(PREFIX)
    bad.unlink()
    assert seen(tmp_path) == [0, 1, 2, 10, 11, 12]


def copy(file: Path, name: str) -> Path:
    return Path(shutil.copy(file, file.with_name(name)))


def test_a_copied_file_is_counted_once_and_is_gone_when_its_hour_is_compacted(tmp_path: Path) -> None:
    three_minutes(tmp_path)
    before, (first, *_) = seen(tmp_path), sorted(tmp_path.rglob("*.parquet"))
    copied = copy(first, "z-copy.parquet")
    other_hour = first.parent.parent / "hour=01"
    other_hour.mkdir()
    moved = Path(shutil.copy(first, other_hour / first.name))
    assert find_files(str(tmp_path), DAY).copies == [str(copied), str(moved)]
    assert seen(tmp_path) == before
    compact(LogFolder.of(str(tmp_path)), DAY)
    assert seen(tmp_path) == before
    assert len(names(tmp_path)) == 1


def test_a_copy_that_comes_after_its_hour_was_compacted_is_known_however_often_that_was(
    tmp_path: Path,
) -> None:
    three_minutes(tmp_path)
    aside = tmp_path / "aside"
    aside.mkdir()
    saved = [shutil.copy(file, aside) for file in sorted(tmp_path.rglob("m*.parquet"))]
    hour = next(tmp_path.rglob("hour=00"))
    logs = LogFolder.of(str(tmp_path))
    compact(logs, DAY)
    write(tmp_path, [row(9, request_bytes=99)], "late.parquet")
    compact(logs, DAY)
    before = seen(tmp_path)
    for number, file in enumerate(saved):
        shutil.copy(file, hour / f"restored-{number}.parquet")
    assert seen(tmp_path) == before
    compact(logs, DAY)
    assert seen(tmp_path) == before
    assert len(names(hour)) == 1


def test_files_alike_in_shape_whose_rows_differ_are_both_read(tmp_path: Path) -> None:
    write(tmp_path, [row(0, request_bytes=1)], "a.parquet")
    write(tmp_path, [row(0, request_bytes=2)], "b.parquet")
    assert seen(tmp_path) == [1, 2]
