"""Copies of files: found by what files are made of, each looked at once."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from sluice.recalibration.log.compaction import compact
from sluice.recalibration.log.copies import copies_in
from sluice.recalibration.log.reader import LogFolder, find_files
from testkit.access_log.access_logs import DAY, row, write

FILES = 500


def written(number: int) -> bytes:
    """A file as long as the others."""
    table = io.BytesIO()
    parquet.write_table(pa.table({"rows": [number], "name": [f"{number:05}"]}), table)
    return table.getvalue()


class CountedFooter:
    """A file's table of contents that counts how often it is looked at."""

    looks = 0

    def __init__(self, contents: bytes) -> None:
        self._footer = parquet.read_metadata(io.BytesIO(contents))

    def __getattr__(self, name: str) -> object:
        found = getattr(self._footer, name)
        return self._counted(found) if name in {"equals", "write_metadata_file"} else found

    def _counted(self, call: Callable[..., object]) -> Callable[..., object]:
        def counted(*arguments: object) -> object:
            type(self).looks += 1
            return call(*(getattr(one, "_footer", one) for one in arguments))

        return counted


def test_many_small_files_of_one_shape_are_each_looked_at_once() -> None:
    """8,000 of them were compared each with each other: two minutes of a night that read 2 MB."""
    files = {f"{number}.parquet": written(number) for number in range(FILES)}
    assert len(set(map(len, files.values()))) == 1
    files["copy.parquet"] = files["7.parquet"]
    read: list[str] = []
    CountedFooter.looks = 0

    def contents(path: str) -> str:
        read.append(path)
        return files[path].hex()

    footers = {path: CountedFooter(its) for path, its in files.items()}
    assert copies_in(footers, contents) == {"copy.parquet": "7.parquet"}
    assert CountedFooter.looks <= 2 * len(files)
    assert sorted(read) == ["7.parquet", "copy.parquet"]


def test_of_two_compacted_files_of_the_same_rows_the_one_that_has_fewer_is_a_copy(tmp_path: Path) -> None:
    """As two that compact at once leave them, where nothing locks: a late file is in one of them."""
    for minute in range(3):
        write(tmp_path, [row(minute, request_bytes=minute)], f"m{minute}.parquet")
    saved = tmp_path / "saved"
    shutil.copytree(tmp_path / "rollup", saved / "rollup")
    write(saved, [row(9, request_bytes=99)], "late.parquet")
    for logs in (tmp_path, saved):
        compact(LogFolder.of(str(logs)), DAY)
    (few,), (many,) = (list((logs / "rollup").rglob("*.parquet")) for logs in (tmp_path, saved))
    many.rename(few.with_name(many.name))
    found = find_files(str(tmp_path), DAY)
    assert found.copies == [str(few)]
    assert found.good == [str(few.with_name(many.name))]
    compact(LogFolder.of(str(tmp_path)), DAY)
    assert not few.exists()
