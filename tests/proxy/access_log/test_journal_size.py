"""The journal of a busy proxy, in which some file of the log is open at every moment."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from sluice.proxy.access_log.journal import AccessJournal, LostPart
from sluice.usage.access_record import REQUESTS, ROLLUP

ANEW_BYTES = 64 * 1024
LINE_BYTES = 128
TABLES = (ROLLUP, REQUESTS)


class Killed(BaseException):
    """What no `except` of the journal's catches, as nothing catches a SIGKILL."""


def journal_of(folder: Path, token: str = "a") -> AccessJournal:
    journal = AccessJournal(folder, "proxy-1", token)
    journal.begin()
    return journal


def size_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def fill(journal: AccessJournal, parts: int, first: int = 0) -> None:
    """Each is settled when the next has begun."""
    for part in range(first, first + parts):
        for rows in range(1, 4):
            journal.took(part, TABLES[part % 2], rows, part, part + rows)
        if part:
            journal.settle(part - 1)


def alive_or_told(folder: Path) -> list[tuple[str, list[LostPart]]]:
    """What the next process is told of those that have ended; nothing may fail."""
    failures: list[OSError] = []
    found = list(AccessJournal(folder, "proxy-1", "next").abandoned(failures.append))
    assert failures == []
    return found


def told(folder: Path) -> list[LostPart]:
    """What the next process is; nothing may be left."""
    found = alive_or_told(folder)
    assert list(folder.iterdir()) == []
    return [lost for _, parts in found for lost in parts]


def test_a_journal_in_which_something_is_always_open_stays_small_and_tells_what_is(tmp_path: Path) -> None:
    journal = journal_of(tmp_path)
    largest_bytes = 0
    for part in range(3_000):
        fill(journal, 1, part)
        largest_bytes = max(largest_bytes, size_bytes(tmp_path))
    assert largest_bytes <= ANEW_BYTES + LINE_BYTES
    journal.end()
    assert told(tmp_path) == [LostPart(REQUESTS, 3, 2_999, 3_002)]


def test_a_journal_of_many_open_parts_is_written_anew_once_it_has_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each line would write all: a sink that is away for hours leaves thousands of parts open."""
    replaced: list[int] = []
    replace = os.replace

    def counted(*paths: Path) -> None:
        replaced.append(1)
        replace(*paths)

    monkeypatch.setattr(os, "replace", counted)
    journal = journal_of(tmp_path)
    for part in range(20_000):
        journal.took(part, ROLLUP, 1, part, part)
    assert len(replaced) <= 6
    journal.end()
    assert len(told(tmp_path)) == 20_000


def test_it_is_locked_and_its_own_after_it_was_written_anew(tmp_path: Path) -> None:
    journal = journal_of(tmp_path)
    fill(journal, 1_000)
    assert alive_or_told(tmp_path) == []
    journal.settle(999)
    assert size_bytes(tmp_path) == 0
    journal.end()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("step", ["open", "write", "fsync", "replace", "close"])
def test_killed_at_any_step_it_tells_what_was_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    folder = tmp_path / "journal"
    journal = journal_of(folder)
    for part in range(10_000, 10_009):
        journal.took(part, ROLLUP, 1, part, part)
    done = getattr(os, step)

    def killed(*given: Any) -> Any:
        if step == "write" and len(given[1]) < 2 * LINE_BYTES:
            return done(*given)  # a line of the old file
        raise Killed

    monkeypatch.setattr(os, step, killed)
    with pytest.raises(Killed):
        fill(journal, 1_000)
    monkeypatch.undo()
    shutil.copytree(folder, left := tmp_path / "left")  # which nobody has locked
    found = told(left)
    assert found[:9] == [LostPart(ROLLUP, 1, part, part) for part in range(10_000, 10_009)]
    assert len(found) in {10, 11}


def test_who_opened_it_before_it_was_written_anew_does_not_tell_it_as_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = journal_of(tmp_path)
    fill(journal, 10)
    locked = fcntl.flock

    def flock(handle: object, how: int) -> None:
        monkeypatch.undo()
        fill(journal, 1_000, 10)
        locked(handle, how)  # type: ignore[arg-type]

    monkeypatch.setattr(fcntl, "flock", flock)
    assert alive_or_told(tmp_path) == []
    journal.end()
    assert told(tmp_path) == [LostPart(REQUESTS, 3, 1_009, 1_012)]


def test_where_it_cannot_be_written_anew_it_goes_on_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[int] = []

    def replace(*_: object) -> None:
        failed.append(1)
        raise OSError("no")

    monkeypatch.setattr(os, "replace", replace)
    journal = journal_of(tmp_path)
    told_failures = 0
    for part in range(2_000):
        try:
            fill(journal, 1, part)
        except OSError:
            told_failures += 1
            journal.took(part, TABLES[part % 2], 3, part, part + 3)
            journal.settle(part - 1)
    assert 2 <= len(failed) == told_failures <= 12, "once in 64 KiB"
    assert len(list(tmp_path.iterdir())) == 1
    journal.end()
    assert told(tmp_path) == [LostPart(REQUESTS, 3, 1_999, 2_002)]


@pytest.mark.parametrize("fitting_bytes", [0, 20])
def test_a_line_that_a_full_disk_took_a_part_of_is_told_and_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fitting_bytes: int
) -> None:
    """The next line was one with it: what that one had settled was told as lost after a kill."""
    folder = tmp_path / "journal"
    journal = journal_of(folder)
    for part in (1, 2, 3):
        journal.took(part, ROLLUP, 100, 0, 10_000)
    write = os.write

    def full(handle: int, line: bytes) -> int:
        if not fitting_bytes:
            raise OSError(errno.ENOSPC, "no room")
        return write(handle, line[:fitting_bytes])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match=r"room|No space"):
        journal.took(4, REQUESTS, 1, 0, 10_000)
    with pytest.raises(OSError, match=r"room|No space"):
        journal.settle(1)
    monkeypatch.undo()
    journal.settle(2)
    shutil.copytree(folder, left := tmp_path / "left")  # which nobody has locked
    assert told(left) == [LostPart(ROLLUP, 100, 0, 10_000), LostPart(REQUESTS, 1, 0, 10_000)]
    journal.end()


def test_what_is_put_away_behind_the_end_is_not_told_as_lost(tmp_path: Path) -> None:
    """A sink that takes a file when its process could wait no longer: the next start told it once more."""
    journal = journal_of(tmp_path)
    journal.took(1, ROLLUP, 5, 0, 10)
    journal.took(2, REQUESTS, 3, 0, 10)
    journal.end()
    journal.settle(1)
    left = (tmp_path / "proxy-1-a.journal").read_bytes()
    journal.settle(2)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "proxy-1-a.journal").write_bytes(left)
    assert told(tmp_path) == [LostPart(REQUESTS, 3, 0, 10)]


def test_what_is_put_away_when_the_next_process_has_told_it_makes_no_file(tmp_path: Path) -> None:
    journal = journal_of(tmp_path)
    journal.took(1, ROLLUP, 5, 0, 10)
    journal.took(2, REQUESTS, 3, 0, 10)
    journal.end()
    assert len(told(tmp_path)) == 2
    journal.settle(1)
    journal.settle(2)
    assert list(tmp_path.iterdir()) == []
