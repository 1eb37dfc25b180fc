"""Two nights with outputs of their own compact one log at once: every row is there once, and stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from sluice.recalibration.log import compaction
from sluice.recalibration.log.compaction import PREFIX, compact
from sluice.recalibration.log.reader import LogFolder, find_files
from testkit.access_log.access_logs import DAY, row, write
from tests.recalibration.log.test_compaction import DyingFiles, names, seen, three_minutes


def unlocked(logs: Path) -> LogFolder:
    """As in a store that knows no locks."""
    return LogFolder(fs.PyFileSystem(DyingFiles(changes=-1)), str(logs), "")


class Interrupted(DyingFiles):
    """The machine's files; before the one change that is waited for, something else happens."""

    def __init__(self, at: int, then: Callable[[], Any]) -> None:
        super().__init__(changes=-1)
        self._at, self._then = at, then

    def _change(self) -> None:
        self._at -= 1
        if self._at == -1:
            self._then()


@pytest.mark.parametrize("at", range(5))
@pytest.mark.parametrize("late", [False, True])
def test_where_nothing_locks_one_that_comes_between_harms_nothing(
    at: int, late: bool, tmp_path: Path
) -> None:
    """Before each of its changes a whole compaction by another, with a file that the first has not seen."""
    three_minutes(tmp_path)
    expected = [0, 1, 2, 10, 11, 12] + [99] * late

    def other() -> None:
        if late:
            write(tmp_path, [row(9, request_bytes=99)], "late.parquet")
        compact(unlocked(tmp_path), DAY)
        assert seen(tmp_path) == expected

    compact(LogFolder(fs.PyFileSystem(Interrupted(at, other)), str(tmp_path), ""), DAY)
    assert seen(tmp_path) == expected
    compact(unlocked(tmp_path), DAY)
    assert seen(tmp_path) == expected
    assert len(names(tmp_path)) == 1


def test_two_write_no_file_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    three_minutes(tmp_path)
    written: list[str] = []
    write_one = compaction._write_one

    def noted(folder: LogFolder, good: Any, told: Any, target: str) -> int:
        written.append(target)
        if len(written) == 1:
            compact(unlocked(tmp_path), DAY)
        return write_one(folder, good, told, target)

    monkeypatch.setattr(compaction, "_write_one", noted)
    compact(unlocked(tmp_path), DAY)
    assert len(set(written)) == len(written) == 2
    assert seen(tmp_path) == [0, 1, 2, 10, 11, 12]


def test_what_replaces_nothing_whole_removes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    three_minutes(tmp_path)
    before = names(tmp_path)
    write_one = compaction._write_one

    def cut(folder: LogFolder, good: Any, told: Any, target: str) -> int:
        return write_one(folder, dict(list(good.items())[1:]), told, target)

    monkeypatch.setattr(compaction, "_write_one", cut)
    with pytest.raises(OSError, match="not what was written"):
        compact(LogFolder.of(str(tmp_path)), DAY)
    assert names(tmp_path) == before


def test_what_a_killed_one_has_left_half_written_is_removed(tmp_path: Path) -> None:
    three_minutes(tmp_path)
    hour = next(tmp_path.rglob("hour=00"))
    (hour / f".{PREFIX}0123-45.parquet.new").write_bytes(b"PAR1")
    (hour / ".of-a-proxy.parquet").write_bytes(b"PAR1")
    compact(LogFolder.of(str(tmp_path)), DAY, is_alone=True)
    assert [name[: len(PREFIX)] for name in names(tmp_path)] == [".of-a-proxy.parquet"[: len(PREFIX)], PREFIX]


def test_a_reader_who_has_listed_what_is_removed_meanwhile_looks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    three_minutes(tmp_path)
    listed = LogFolder.files
    calls = 0

    def then_compacted(folder: LogFolder, *args: Any) -> list[str]:
        nonlocal calls
        found = listed(folder, *args)
        calls += 1
        if calls == 1:
            compact(unlocked(tmp_path), DAY)
        return found

    monkeypatch.setattr(LogFolder, "files", then_compacted)
    found = find_files(str(tmp_path), DAY)
    assert (len(found.good), found.damaged) == (1, {})
    assert seen(tmp_path) == [0, 1, 2, 10, 11, 12]


def test_a_copy_that_another_removes_before_it_is_looked_at_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A FileNotFoundError ended the compaction, and told the night that it had not tidied up."""
    three_minutes(tmp_path)
    first = next(tmp_path.rglob("m0.parquet"))
    first.with_name("z-copy.parquet").write_bytes(first.read_bytes())
    footers = LogFolder.footers
    calls = 0

    def then_compacted(folder: LogFolder, paths: Any) -> Any:
        nonlocal calls
        found = footers(folder, paths)
        calls += 1
        if calls == 1:
            compact(unlocked(tmp_path), DAY)
        return found

    monkeypatch.setattr(LogFolder, "footers", then_compacted)
    done = compact(unlocked(tmp_path), DAY)
    assert (done.files_before, done.files_after, list(done.left)) == (1, 1, [])
    assert seen(tmp_path) == [0, 1, 2, 10, 11, 12]
    assert len(names(tmp_path)) == 1


def test_a_new_file_that_another_has_made_a_larger_one_of_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was "written, and cannot be read"."""
    three_minutes(tmp_path)
    check = compaction._check
    is_first = True

    def after_another(folder: LogFolder, path: str, *args: Any) -> None:
        nonlocal is_first
        if is_first and Path(path).name.startswith(PREFIX):
            is_first = False
            write(tmp_path, [row(9, request_bytes=99)], "late.parquet")
            compact(unlocked(tmp_path), DAY)
        check(folder, path, *args)

    monkeypatch.setattr(compaction, "_check", after_another)
    compact(unlocked(tmp_path), DAY)
    assert seen(tmp_path) == [0, 1, 2, 10, 11, 12, 99]
    assert len(names(tmp_path)) == 1
