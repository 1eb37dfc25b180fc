"""Files whose columns or metadata another program, or a flipped bit, has changed: none is destroyed."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from sluice.recalibration.log.compaction import compact
from sluice.recalibration.log.reader import LogFolder, find_files
from testkit.access_log.access_logs import DAY, row, write
from tests.recalibration.log.test_compaction import seen, three_minutes


def test_what_the_night_could_not_read_stays_as_it_is(tmp_path: Path) -> None:
    """Compaction took it in, with nulls in the place of what it lacked, and removed it."""
    good = [write(tmp_path, [row(each)], f"{each}.parquet") for each in range(2)]
    victim = write(tmp_path, [row(9, request_bytes=99)], "victim.parquet")
    before = victim.read_bytes()
    done = compact(LogFolder.of(str(tmp_path)), DAY, damaged={str(victim): "cannot be read"})
    assert victim.read_bytes() == before
    assert not any(each.exists() for each in good)
    assert (done.files_before, done.files_after, done.left) == (3, 2, [str(victim)])


def test_a_column_whose_name_differs_in_case_is_not_ours(tmp_path: Path) -> None:
    """In a file with both, Spark finds neither: a whole hour could not be read any more."""
    good = [str(write(tmp_path, [row(each)], f"{each}.parquet")) for each in range(2)]
    victim = write(tmp_path, [row(9, request_bytes=99)], "victim.parquet")
    table = parquet.read_table(victim)
    names = ["Request_bytes" if name == "request_bytes" else name for name in table.column_names]
    parquet.write_table(table.rename_columns(names), victim)
    found = find_files(str(tmp_path), DAY)
    assert found.good == good
    assert found.damaged == {str(victim): "its column Request_bytes is not request_bytes"}
    done = compact(LogFolder.of(str(tmp_path)), DAY)
    assert (done.left, victim.exists()) == ([str(victim)], True)
    (kept,) = [path for path in find_files(str(tmp_path), DAY).good if path != str(victim)]
    assert "Request_bytes" not in parquet.read_schema(kept).names


@pytest.mark.parametrize("parts", [2, 3])
@pytest.mark.parametrize("uneven", [0, 1])
def test_a_compacted_file_that_was_cut_in_parts_is_no_copy_of_itself(
    parts: int, uneven: int, tmp_path: Path
) -> None:
    """As a program that keeps the metadata does it."""
    three_minutes(tmp_path)
    compact(LogFolder.of(str(tmp_path)), DAY)
    expected = seen(tmp_path)
    (file,) = tmp_path.rglob("compacted-*.parquet")
    table: pa.Table = parquet.read_table(file)
    at = [table.num_rows * part // (parts + uneven) for part in range(1, parts)]
    for part, (begin, end) in enumerate(zip([0, *at], [*at, table.num_rows], strict=True)):
        parquet.write_table(table.slice(begin, end - begin), file.with_name(f"part-{part}.parquet"))
    file.unlink()
    assert seen(tmp_path) == expected
    compact(LogFolder.of(str(tmp_path)), DAY)
    assert seen(tmp_path) == expected


def test_who_says_that_it_replaces_itself_does_not(tmp_path: Path) -> None:
    file = write(tmp_path, [row(0), row(1)], "a.parquet")
    table = parquet.read_table(file)
    parquet.write_table(table.replace_schema_metadata({b"sluice_replaces": b'["a.parquet"]'}), file)
    assert find_files(str(tmp_path), DAY).good == [str(file)]
    compact(LogFolder.of(str(tmp_path)), DAY)
    assert file.exists()


def test_a_name_that_is_no_utf_8_costs_its_file_alone(tmp_path: Path) -> None:
    good = str(write(tmp_path, [row(0)], "a.parquet"))
    bad = os.fsencode(write(tmp_path, [row(1)], "b.parquet")).replace(b"b.parquet", b"\xff.parquet")
    os.rename(bad.replace(b"\xff.parquet", b"b.parquet"), bad)
    found = find_files(str(tmp_path), DAY)
    assert found.good == [good]
    assert found.damaged == {f"{os.path.dirname(good)}/\\udcff.parquet": "its own name is not UTF-8"}
    compact(LogFolder.of(str(tmp_path)), DAY)
    assert os.path.exists(bad)
