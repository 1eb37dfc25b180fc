"""One night at a time in an output folder."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sluice.recalibration.state.run_lock import AnotherNightError, NoLocksError, run_lock


def test_a_second_night_is_told_who_has_the_folder_and_the_next_may_run(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    with run_lock(out):
        with pytest.raises(AnotherNightError, match=f"process {os.getpid()} on "), run_lock(out):
            pass
        with run_lock(str(tmp_path / "other")):
            pass
    with run_lock(out):
        pass


def test_a_night_that_was_killed_holds_nothing(tmp_path: Path) -> None:
    killed = (
        "import os, sys\nfrom sluice.recalibration.state.run_lock import run_lock\n"
        "with run_lock(sys.argv[1]):\n    os.kill(os.getpid(), 9)"
    )
    ended = subprocess.run([sys.executable, "-c", killed, str(tmp_path)], check=False)
    assert ended.returncode == -9
    with run_lock(str(tmp_path)):
        pass


def failed_night(out: Path, *, has_written: bool) -> None:
    with run_lock(str(out)):
        if has_written:
            (out / "state").mkdir()
        raise ValueError("no log")


@pytest.mark.parametrize("has_written", [False, True])
def test_a_failed_night_that_wrote_nothing_leaves_nothing(tmp_path: Path, has_written: bool) -> None:
    with pytest.raises(ValueError, match="no log"):
        failed_night(tmp_path / "out", has_written=has_written)
    assert (tmp_path / "out").exists() is has_written


def test_a_lock_that_was_removed_is_no_lock(tmp_path: Path) -> None:
    """Who has opened what a failed night then removes must not work beside who makes the next."""
    out = tmp_path / "out"
    waiting: list[int] = []
    flock = fcntl.flock

    def removed_before(descriptor: int, how: int) -> None:
        waiting.append(descriptor)
        (out / ".lock").unlink()
        flock(descriptor, how)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fcntl, "flock", removed_before)
        with pytest.raises(AnotherNightError, match="ended here at this moment"), run_lock(str(out)):
            pytest.fail("beside another")
    assert waiting
    with run_lock(str(out)):
        pass


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EIO])
def test_where_nothing_locks_it_says_so(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(descriptor: int, how: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(OSError, match=re.escape(os.strerror(number))) as told, run_lock(str(tmp_path)):
        pytest.fail("held")
    assert isinstance(told.value, NoLocksError) is (number != errno.EIO)
