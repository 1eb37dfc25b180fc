"""Files of a log that are no files of ours: named and left out, in the night and in its compaction."""

from __future__ import annotations

import errno
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs, parquet

from sluice.recalibration.log.compaction import PREFIX, compact
from sluice.recalibration.log.reader import LogFolder, find_files
from testkit.access_log.access_logs import DAY, row, write
from tests.recalibration.log.test_compaction import DyingFiles


def written(logs: Path, name: str, metadata: dict[bytes, bytes] | None = None) -> Path:
    file = write(logs, [row(window, request_bytes=len(name)) for window in range(3)], name)
    if metadata is not None:
        parquet.write_table(parquet.read_table(file).replace_schema_metadata(metadata), file)
    return file


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"sluice_replaces", b"no json"),
        (b"sluice_replaces", b"7"),
        (b"sluice_replaces", b"[7]"),
        (b"sluice_replaces", b"[" * 100_000),
        (b"sluice_replaces", b"\xff"),
        (b"sluice_contents", b"7"),
        (b"sluice_contents", b"[[]]"),
        (b"sluice_contents", b"{"),
        (b"sluice_schema_version", b"1.5"),
        (b"sluice_schema_version", b"x"),
        (b"sluice_schema_version", b"9" * 5_000),
    ],
)
def test_a_file_whose_metadata_is_not_what_we_write_is_damaged_and_stays(
    key: bytes, value: bytes, tmp_path: Path
) -> None:
    good = [str(written(tmp_path, name)) for name in ("a.parquet", "bb.parquet")]
    bad = written(tmp_path, "bad.parquet", {key: value})
    found = find_files(str(tmp_path), DAY)
    assert found.good == good
    assert list(found.damaged) == [str(bad)]
    assert found.damaged[str(bad)].startswith(f"its metadata {key.decode()} is not what Sluice writes")
    done = compact(LogFolder.of(str(tmp_path)), DAY)
    assert (done.files_before, done.files_after) == (3, 2)
    assert bad.exists()


@pytest.mark.parametrize("name", [b"request_bytes", b"client_id"])
def test_a_flipped_bit_in_the_name_of_a_column_costs_its_file_alone(name: bytes, tmp_path: Path) -> None:
    """pyarrow reads names as UTF-8, and ends with a UnicodeDecodeError."""
    good = [str(written(tmp_path, each)) for each in ("a.parquet", "bb.parquet")]
    bad = written(tmp_path, "bad.parquet")
    content = bad.read_bytes()
    at = content.index(name, len(content) - 8 - int.from_bytes(content[-8:-4], "little"))
    bad.write_bytes(content[: at + 2] + bytes([content[at + 2] | 0x80]) + content[at + 3 :])
    found = find_files(str(tmp_path), DAY)
    assert found.good == good
    assert found.damaged == {str(bad): "the name of one of its columns is not UTF-8"}
    done = compact(LogFolder.of(str(tmp_path)), DAY)
    assert (done.files_before, done.files_after) == (3, 2)


def loop(logs: Path, name: str = "loop", to: str = "..") -> None:
    (logs / f"rollup/date={DAY}/hour=00" / name).symlink_to(to)


def test_a_loop_of_links_makes_no_file_a_copy_of_itself(tmp_path: Path) -> None:
    """Compaction removed the copies: the file itself, under its other name."""
    files = [str(written(tmp_path, name)) for name in ("a.parquet", "bb.parquet")]
    loop(tmp_path)
    loop(tmp_path, "again", ".")  # two are 2⁴⁰ ways
    found = find_files(str(tmp_path), DAY)
    assert (found.good, found.copies) == (files, [])
    done = compact(LogFolder.of(str(tmp_path)), DAY)
    assert (done.files_before, done.files_after, list(done.left)) == (2, 1, [])
    (left,) = find_files(str(tmp_path), DAY).good
    assert Path(left).name.startswith(PREFIX)
    assert parquet.read_metadata(left).num_rows == 6


def test_a_link_to_a_file_of_the_same_date_is_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, "b.parquet")
    (file.parent / "a.parquet").symlink_to("b.parquet")
    (file.parent / "itself.parquet").symlink_to("itself.parquet")
    (file.parent / "nowhere.parquet").symlink_to("/nonexistent")
    assert find_files(str(tmp_path), DAY).good == [str(file)]
    compact(LogFolder.of(str(tmp_path)), DAY)
    assert parquet.read_metadata(file).num_rows == 3


def test_an_hour_to_which_another_links_has_its_own_name(tmp_path: Path) -> None:
    file = written(tmp_path, "a.parquet")
    for hour in ("hour=00-link", "hour=23"):
        (file.parent.parent / hour).symlink_to("hour=00")
    file.parent.rename(file.parent.parent / "hour=05")
    (file.parent.parent / "hour=00").symlink_to("hour=05")
    assert find_files(str(tmp_path), DAY).good == [f"{tmp_path}/rollup/date={DAY}/hour=05/a.parquet"]


def test_folders_that_are_links_are_read(tmp_path: Path) -> None:
    """As where an older date was moved to another disk."""
    written(tmp_path / "other", "a.parquet")
    (tmp_path / "rollup").mkdir()
    (tmp_path / f"rollup/date={DAY}").symlink_to(tmp_path / f"other/rollup/date={DAY}")
    expected = f"{tmp_path}/rollup/date={DAY}/hour=00/a.parquet"
    assert find_files(str(tmp_path), DAY).good == [expected]
    hour = tmp_path / f"other/rollup/date={DAY}/hour=00"
    hour.rename(tmp_path / "elsewhere")
    hour.symlink_to(tmp_path / "elsewhere")
    assert find_files(str(tmp_path), DAY).good == [expected]


class KeepingOne(DyingFiles):
    """The machine's files, of which one cannot be removed."""

    def __init__(self, kept: Path) -> None:
        super().__init__(changes=-1)
        self._kept = str(kept)

    def delete_file(self, path: str) -> None:
        if path == self._kept:
            raise PermissionError(errno.EPERM, "Operation not permitted", path)
        super().delete_file(path)


@pytest.mark.parametrize("name", ["z.parquet", "bb.parquet"])
def test_what_cannot_be_removed_is_told_and_the_others_are_compacted(name: str, tmp_path: Path) -> None:
    """A copy, or a file whose rows are in a compacted one."""
    a = written(tmp_path, "a.parquet")
    written(tmp_path, "bb.parquet")
    a.with_name("z.parquet").write_bytes(a.read_bytes())
    kept = a.with_name(name)
    logs = LogFolder(fs.PyFileSystem(KeepingOne(kept)), str(tmp_path), "")
    for _ in range(2):
        assert list(compact(logs, DAY).left) == [str(kept)]
        assert len(list(a.parent.glob(f"{PREFIX}*"))) == 1
    assert len(list(tmp_path.rglob("*.parquet"))) == 2
    (found,) = find_files(str(tmp_path), DAY).good
    assert parquet.read_metadata(found).num_rows == 6


@pytest.mark.parametrize("types", [[pa.int64(), pa.null()], [pa.null(), pa.int64()]])
def test_a_column_of_nulls_alone_is_compacted(types: list[pa.DataType], tmp_path: Path) -> None:
    folder = tmp_path / f"rollup/date={DAY}/hour=00"
    folder.mkdir(parents=True)
    for name, kind in zip("ab", types, strict=True):
        parquet.write_table(pa.table({"x": pa.nulls(2, kind)}), folder / f"{name}.parquet")
    done = compact(LogFolder.of(str(tmp_path)), DAY)
    assert done.files_before == 2
