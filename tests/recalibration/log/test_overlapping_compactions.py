"""Two compacted files that share a source, as when a log is merged with a partial copy that was compacted
elsewhere: no row counts twice, none is removed, and the night names the file that it leaves out."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyarrow import parquet

from sluice.recalibration.log.compaction import compact
from sluice.recalibration.log.reader import UNREADABLE, LogFiles, LogFolder, find_files
from testkit.access_log.access_logs import DAY, row, write

SOURCES = {1: 10, 2: 20, 3: 30, 4: 40, 5: 50}
"""number → the bytes in its row"""


class Merged:
    """A folder of compacted files that were made elsewhere."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.hour = root / "log/rollup" / f"date={DAY}" / "hour=00"
        self.hour.mkdir(parents=True)

    def source(self, number: int) -> Path:
        write(self.root / "made", [row(number, request_bytes=SOURCES[number])], f"p-{number}.parquet")
        return next((self.root / "made").rglob(f"p-{number}.parquet"))

    def put(self, number: int) -> None:
        path = self.source(number)
        (self.hour / path.name).write_bytes(path.read_bytes())

    def put_compacted(self, name: str, *numbers: int) -> str:
        elsewhere = self.root / name
        for number in numbers:
            write(elsewhere, [row(number, request_bytes=SOURCES[number])], f"p-{number}.parquet")
            path = next(elsewhere.rglob(f"p-{number}.parquet"))
            path.write_bytes(self.source(number).read_bytes())
        compact(LogFolder.of(str(elsewhere)), DAY)
        (made,) = elsewhere.rglob("*.parquet")
        target = self.hour / f"{name}.parquet"
        made.rename(target)
        return str(target)

    def files(self, *unreadable: str) -> LogFiles:
        return find_files(str(self.root / "log"), DAY, unreadable=dict.fromkeys(unreadable, UNREADABLE))

    def counted(self, *unreadable: str) -> list[int]:
        found: list[int] = []
        for path in self.files(*unreadable).good:
            found += parquet.read_table(path, columns=["request_bytes"])["request_bytes"].to_pylist()
        return sorted(found)

    def compact(self) -> None:
        compact(LogFolder.of(str(self.root / "log")), DAY, is_alone=True)


@pytest.fixture
def merged(tmp_path: Path) -> Merged:
    return Merged(tmp_path)


def test_what_two_share_counts_once_and_the_smaller_is_named_and_stays(merged: Merged) -> None:
    large, small = merged.put_compacted("a", 1, 2, 4), merged.put_compacted("b", 2, 3)
    content = Path(small).read_bytes()
    reason = "it has rows of 1 file that hour=00/a.parquet has, too, and of 1 that it has not"
    for _ in range(2):
        assert merged.files().damaged == {small: reason}
        assert merged.counted() == [10, 20, 40]
        merged.compact()
    assert (Path(small).read_bytes(), Path(large).exists()) == (content, True)


def test_the_sources_that_are_put_back_count_and_make_it_a_copy(merged: Merged) -> None:
    merged.put_compacted("a", 1, 2, 4)
    small = merged.put_compacted("b", 2, 3)
    for number in (2, 3):
        merged.put(number)
    assert merged.counted() == [10, 20, 30, 40]
    merged.compact()
    assert (merged.counted(), merged.files().damaged) == ([10, 20, 30, 40], {})
    merged.compact()
    assert (merged.counted(), Path(small).exists()) == ([10, 20, 30, 40], False)


def test_where_the_larger_cannot_be_read_the_smaller_counts(merged: Merged) -> None:
    large, _ = merged.put_compacted("a", 1, 2, 4), merged.put_compacted("b", 2, 3)
    assert merged.counted(large) == [20, 30]


def test_what_is_within_one_that_is_named_counts_for_itself(merged: Merged) -> None:
    merged.put_compacted("a", 1, 2, 4)
    named = merged.put_compacted("b", 2, 3, 5)
    merged.put_compacted("c", 3, 5)
    assert (list(merged.files().damaged), merged.files().copies) == ([named], [])
    assert merged.counted() == [10, 20, 30, 40, 50]


def test_what_all_is_within_a_third_is_copies(merged: Merged) -> None:
    copies = [merged.put_compacted("a", 1, 2), merged.put_compacted("b", 2, 3)]
    merged.put_compacted("c", 1, 2, 3)
    assert (merged.files().copies, merged.files().damaged) == (copies, {})
    assert merged.counted() == [10, 20, 30]
