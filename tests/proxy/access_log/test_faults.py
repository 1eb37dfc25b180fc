"""The access log in a folder that fails: full, forbidden, gone; and a proxy that is killed in mid-file."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event

import pytest
from structlog.testing import capture_logs

from sluice.proxy.access_log.journal import AccessJournal, LostPart
from sluice.proxy.access_log.sinks.directory import WRITING, DirectorySink
from sluice.proxy.access_log.sinks.sink import LogFile
from sluice.proxy.access_log.writer import AccessWriter
from sluice.usage.access_record import REQUESTS, ROLLUP
from testkit.access_log.access_rows import columns, files, read_all, rows
from testkit.access_log.access_writers import settings_of, writing
from testkit.processes.waiting import wait_until

ROOT = Path(__file__).parents[3]
NOBODY = 65_534
ROOMY_BYTES = 64 * 1024


@pytest.fixture
def logs() -> Iterator[list[dict[str, object]]]:
    with capture_logs() as lines:
        yield lines  # type: ignore[misc]


def _of(lines: list[dict[str, object]], event: str) -> list[dict[str, object]]:
    return [line for line in lines if line["event"] == event]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={ROOMY_BYTES}", "none", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("only root can mount a small disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _fill(path: Path) -> None:
    with open(path, "wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


def test_a_full_disk_costs_nothing_once_there_is_room_again(
    small_disk: Path, logs: list[dict[str, object]]
) -> None:
    filling = small_disk / "other"
    with writing(small_disk, rotate_s=0.0) as writer:
        writer.offer(ROLLUP, columns(rows(1)))
        wait_until(lambda: writer.counters.files_written == 1)
        _fill(filling)
        writer.offer(ROLLUP, columns(rows(2)))
        wait_until(lambda: writer.counters.failures > 1)  # the journal has no room either
        assert "No space left on device" in writer.counters.last_error
        assert len(files(small_disk)) == 1
        assert not list((small_disk / WRITING).glob("*.part"))
        filling.unlink()
        wait_until(lambda: writer.counters.rows_written == 3)
    assert writer.counters.rows_dropped == 0
    assert len(read_all(small_disk)) == 3
    assert _of(logs, "access_log_writes_again")


def test_a_folder_that_may_not_be_written_costs_nothing_once_it_may(tmp_path: Path) -> None:
    with writing(tmp_path, rotate_s=0.0) as writer:
        writer.offer(ROLLUP, columns(rows(1)))
        wait_until(lambda: writer.counters.files_written == 1)
        mode = tmp_path.stat().st_mode
        (tmp_path / WRITING).chmod(0o500)
        root = os.geteuid() == 0
        if root:  # whom no mode stops
            os.seteuid(NOBODY)
        try:
            writer.offer(ROLLUP, columns(rows(2)))
            wait_until(lambda: "Permission denied" in writer.counters.last_error)
        finally:
            if root:
                os.seteuid(0)
            (tmp_path / WRITING).chmod(mode)
        wait_until(lambda: writer.counters.rows_written == 3)
    assert writer.counters.rows_dropped == 0
    assert len(read_all(tmp_path)) == 3


def test_a_folder_that_vanishes_is_not_made_anew_but_waited_for(
    tmp_path: Path, logs: list[dict[str, object]]
) -> None:
    folder = tmp_path / "volume"
    folder.mkdir()
    with writing(folder, rotate_s=0.0) as writer:
        wait_until(lambda: any((folder / WRITING).glob("*.journal")))
        folder.rename(tmp_path / "away")
        writer.offer(ROLLUP, columns(rows(2)))
        # It may have gone while the writer still looked for the journals of others: that is told first.
        wait_until(lambda: writer.counters.last_error == f"SinkError: the folder {folder} is gone")
        assert not folder.exists()
        (tmp_path / "away").rename(folder)
        wait_until(lambda: writer.counters.rows_written == 2)
    assert len(read_all(folder)) == 2
    assert _of(logs, "access_log_failing")


def test_partitions_that_are_removed_while_it_writes_are_made_anew(tmp_path: Path) -> None:
    with writing(tmp_path, rotate_s=0.0) as writer:
        writer.offer(ROLLUP, columns(rows(1)))
        wait_until(lambda: writer.counters.files_written == 1)
        shutil.rmtree(tmp_path / ROLLUP)
        shutil.rmtree(tmp_path / WRITING)
        writer.offer(ROLLUP, columns(rows(2)))
        wait_until(lambda: writer.counters.files_written == 2)
    assert len(read_all(tmp_path)) == 2


# Killed ---------------------------------------------------------------------------------------------------


def _killed(folder: Path, when: str) -> None:
    """A process that has taken 7 rows of two windows, and died of SIGKILL."""
    process = subprocess.Popen(
        [sys.executable, "-m", "testkit.access_log.access_log_process", folder, when],
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    try:
        assert process.stdout is not None
        if when == "open":
            assert process.stdout.readline() == b"ready\n"
            process.kill()
        assert process.wait(60) == -9
    finally:
        process.kill()
        process.communicate()


def test_what_a_killed_proxy_had_taken_is_told_at_the_next_start(
    tmp_path: Path, logs: list[dict[str, object]]
) -> None:
    _killed(tmp_path, "open")
    assert files(tmp_path) == []
    with writing(tmp_path) as writer:
        writer.offer(ROLLUP, columns(rows(1)))
    (line,) = _of(logs, "access_log_lost")
    assert line["rows"] == 7
    assert line["windows_from"] == "2026-11-20T10:59:40Z"
    assert line["windows_until"] == "2026-11-20T11:00:00Z"
    assert line["tables"] == [ROLLUP]
    assert writer.counters.rows_lost_by_kill == 7
    assert writer.counters.rows_dropped == 0
    assert list((tmp_path / WRITING).iterdir()) == []


def test_a_file_whose_writer_was_killed_is_never_seen_and_is_removed(
    tmp_path: Path, logs: list[dict[str, object]]
) -> None:
    _killed(tmp_path, "renaming")
    assert [path.suffix for path in (tmp_path / WRITING).iterdir() if path.suffix != ".journal"] == [".part"]
    assert files(tmp_path) == []
    with writing(tmp_path):
        pass
    assert files(tmp_path) == []
    assert list((tmp_path / WRITING).iterdir()) == []
    (line,) = _of(logs, "access_log_lost")
    assert line["unfinished_files_removed"] == 1


def test_what_was_killed_is_told_once(tmp_path: Path, logs: list[dict[str, object]]) -> None:
    _killed(tmp_path, "open")
    for _ in range(2):
        with writing(tmp_path):
            pass
    assert len(_of(logs, "access_log_lost")) == 1


def test_rows_that_could_not_be_written_before_the_end_are_told_again_at_the_next_start(
    tmp_path: Path, logs: list[dict[str, object]]
) -> None:
    folder = tmp_path / "volume"
    folder.mkdir()
    with writing(folder) as writer:
        writer.offer(ROLLUP, columns(rows(6)))
        wait_until(lambda: any(path.stat().st_size for path in (folder / WRITING).glob("*.journal")))
        folder.rename(tmp_path / "away")
        writer.close(0.3)
    (tmp_path / "away").rename(folder)
    with writing(folder) as again:
        pass
    assert again.counters.rows_lost_by_kill == 6


def test_a_file_that_is_being_written_at_the_deadline_is_told_as_one_that_may_be_there(
    tmp_path: Path, logs: list[dict[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    write, began, goes_on = DirectorySink.write, Event(), Event()

    def hangs(sink: DirectorySink, file: LogFile) -> None:
        began.set()
        assert goes_on.wait(60.0)
        write(sink, file)

    monkeypatch.setattr(DirectorySink, "write", hangs)
    with writing(tmp_path, rotate_s=0.0) as writer:
        writer.offer(ROLLUP, columns(rows(2)))
        assert began.wait(60.0)
        writer.close(0.0)
        goes_on.set()
        wait_until(lambda: writer.counters.rows_written == 2)
    (line,) = _of(logs, "access_log_rows_dropped")
    assert line["reason"] == (
        "the proxy ended before the sink took them; 2 of them were being written, and may be there"
    )


@pytest.mark.parametrize("early", [0, 3])
def test_so_are_those_that_came_with_the_end(early: int, tmp_path: Path) -> None:
    """Nobody scrapes the counters of a process that ends: the next one's tell."""
    notes, folder = tmp_path / "notes", tmp_path / "volume"
    folder.mkdir()
    with writing(folder, journal_folder=notes) as writer:
        if early:
            writer.offer(ROLLUP, columns(rows(early)))
            wait_until(lambda: any(path.stat().st_size for path in notes.glob("*.journal")))
        folder.rename(tmp_path / "away")
        writer.offer(ROLLUP, columns(rows(5)))
        writer.close(0.3)
    assert writer.counters.rows_dropped == early + 5
    (tmp_path / "away").rename(folder)
    with writing(folder, journal_folder=notes) as again:
        pass
    assert again.counters.rows_lost_by_kill == early + 5


def test_the_journal_may_lie_elsewhere_than_the_log(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    log = tmp_path / "log"
    log.mkdir()
    with writing(log, journal_folder=notes) as writer:
        writer.offer(ROLLUP, columns(rows(1)))
        wait_until(lambda: any(path.stat().st_size for path in notes.glob("*.journal")))
    assert list(notes.iterdir()) == []


# The journal ----------------------------------------------------------------------------------------------


def abandoned(folder: Path, instance: str = "proxy-1") -> list[tuple[str, list[LostPart]]]:
    """What the next process of `instance` is told; nothing may fail."""
    failures: list[OSError] = []
    found = list(AccessJournal(folder, instance, "next").abandoned(failures.append))
    assert failures == []
    return found


def test_a_journal_tells_what_is_not_settled(tmp_path: Path) -> None:
    dead = AccessJournal(tmp_path, "proxy-1", "a")
    dead.begin()
    dead.took(1, ROLLUP, 5, 10_000, 20_000)
    dead.took(2, REQUESTS, 3, 10_500, 10_700)
    dead.took(1, ROLLUP, 9, 10_000, 30_000)
    dead.took(3, ROLLUP, 4, 10_000, 20_000)
    dead.settle(3)
    dead.end()
    ((token, parts),) = abandoned(tmp_path)
    assert token == "a"
    assert parts == [LostPart(ROLLUP, 9, 10_000, 30_000), LostPart(REQUESTS, 3, 10_500, 10_700)]
    assert list(tmp_path.iterdir()) == []


def test_a_journal_does_not_grow_while_all_is_settled_now_and_then(tmp_path: Path) -> None:
    journal = AccessJournal(tmp_path, "proxy-1", "a")
    journal.begin()
    for part in range(100):
        journal.took(part, ROLLUP, 5, 10_000, 20_000)
        journal.settle(part)
        assert (tmp_path / "proxy-1-a.journal").stat().st_size == 0
    journal.end()
    assert list(tmp_path.iterdir()) == []


def test_journals_of_living_processes_and_of_other_proxies_are_left_alone(tmp_path: Path) -> None:
    living, other = AccessJournal(tmp_path, "proxy", "a"), AccessJournal(tmp_path, "proxy-1", "b")
    for journal in (living, other):
        journal.begin()
        journal.took(1, ROLLUP, 5, 10_000, 20_000)
    other.end()
    assert abandoned(tmp_path, "proxy") == []
    assert len(list(tmp_path.iterdir())) == 2
    living.end()


@pytest.mark.parametrize(
    "damage", [b'{"part": 2, "ta', b"\xff\xfe\n", b"[]\n", b'"x"\n', b'{"part": "x"}\n', b"\n\n"]
)
def test_a_damaged_line_of_a_journal_costs_that_line(tmp_path: Path, damage: bytes) -> None:
    good = json.dumps({"part": 1, "table": ROLLUP, "rows": 5, "from": 1, "to": 2}).encode() + b"\n"
    (tmp_path / "proxy-1-a.journal").write_bytes(good + damage)
    ((_, parts),) = abandoned(tmp_path)
    assert parts == [LostPart(ROLLUP, 5, 1, 2)]


@pytest.mark.parametrize("in_the_way", ["proxy-1-b.journal", "proxy-1-a-1.part"])
def test_what_cannot_be_read_or_removed_keeps_no_journal_from_being_told(
    tmp_path: Path, logs: list[dict[str, object]], in_the_way: str
) -> None:
    folder = tmp_path / WRITING
    for token in ("a", "c"):
        dead = AccessJournal(folder, "proxy-1", token)
        dead.begin()
        dead.took(1, ROLLUP, 5, 10_000, 20_000)
        dead.end()
    (folder / in_the_way).mkdir()
    with writing(tmp_path) as writer:
        wait_until(lambda: writer.counters.rows_lost_by_kill == 10)
    assert writer.counters.failures == 1
    assert writer.counters.last_error.startswith("IsADirectoryError")
    assert len(_of(logs, "access_log_lost")) == 2
    assert [path.name for path in folder.iterdir()] == [in_the_way]


def test_without_a_journal_the_log_is_written_all_the_same(tmp_path: Path) -> None:
    in_the_way = tmp_path / "notes"
    in_the_way.write_text("a file where the folder should be")
    log = tmp_path / "log"
    log.mkdir()
    writer = AccessWriter(settings_of(log, journal_folder=in_the_way))
    writer.start()
    writer.offer(ROLLUP, columns(rows(2)))
    writer.close(20)
    assert writer.counters.rows_written == 2
    assert writer.counters.last_error.startswith("FileExistsError")


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["fifo", "zero"])
def test_a_journal_that_is_no_file_is_told_and_keeps_no_other_from_it(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "proxy-1-a.journal")
    dead = AccessJournal(tmp_path, "proxy-1", "b")
    dead.begin()
    dead.took(1, ROLLUP, 5, 10_000, 20_000)
    dead.end()
    failures: list[OSError] = []
    found = list(AccessJournal(tmp_path, "proxy-1", "next").abandoned(failures.append))
    assert found == [("b", [LostPart(ROLLUP, 5, 10_000, 20_000)])]
    assert [error.strerror for error in failures] == ["is no regular file"]


def test_of_a_journal_that_is_larger_than_any_the_beginning_is_read(tmp_path: Path) -> None:
    dead = AccessJournal(tmp_path, "proxy-1", "a")
    dead.begin()
    dead.took(1, ROLLUP, 5, 10_000, 20_000)
    dead.end()
    os.truncate(tmp_path / "proxy-1-a.journal", 4 * 2**30)
    tracemalloc.start()
    try:
        assert abandoned(tmp_path) == [("a", [LostPart(ROLLUP, 5, 10_000, 20_000)])]
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
