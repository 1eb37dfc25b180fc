"""Plans are published whole, however many publish at once."""

from __future__ import annotations

import errno
import os
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import NoReturn

import pytest

from sluice.recalibration.job import Plan
from sluice.recalibration.log.reader import LogFiles
from sluice.recalibration.policy.settings import PolicySettings
from sluice.recalibration.report.publish import LATEST, write_plan

PLAN = Plan(date(2026, 11, 20), [], LogFiles([], {}), PolicySettings(), {})


def test_two_dozen_that_publish_at_once_have_a_folder_each(tmp_path: Path) -> None:
    """Eight of them died: they filled one folder, and removed it under each other."""
    with ThreadPoolExecutor(24) as pool:
        folders = list(pool.map(lambda _: write_plan(PLAN, str(tmp_path)), range(24)))
    assert sorted(int(Path(folder).name.rpartition("-")[2]) for folder in folders) == list(range(1, 25))
    assert all(Path(folder, "plan.json").is_file() for folder in folders)
    assert {path.name for path in (tmp_path / "plans").iterdir()} == {Path(folder).name for folder in folders}
    assert (tmp_path / LATEST).read_text().strip() in {Path(folder).name for folder in folders}
    assert {path.name for path in tmp_path.iterdir()} == {"plans", LATEST}


def test_what_a_killed_night_left_is_removed_a_day_later(tmp_path: Path) -> None:
    old, young = tmp_path / "plans" / ".2026-11-19-0.new", tmp_path / "plans" / ".2026-11-20-0.new"
    for folder in (old, young):
        folder.mkdir(parents=True)
    os.utime(old, (time.time() - 90_000, time.time() - 90_000))
    write_plan(PLAN, str(tmp_path))
    assert (old.exists(), young.exists()) == (False, True)


def test_a_latest_that_cannot_be_replaced_leaves_nothing_of_the_try(tmp_path: Path) -> None:
    """Each night left a file more."""
    (tmp_path / LATEST).mkdir()
    with pytest.raises(OSError, match=f"{LATEST}: cannot be replaced"):
        write_plan(PLAN, str(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == {"plans", LATEST}


def test_a_plan_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_full(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("sluice.recalibration.report.publish.write_outputs", is_full)
    with pytest.raises(OSError, match="No space left on device"):
        write_plan(PLAN, str(tmp_path))
    assert list((tmp_path / "plans").iterdir()) == []


def test_a_folder_whose_number_is_none_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "plans" / "2026-11-20-²").mkdir(parents=True)
    assert write_plan(PLAN, str(tmp_path)).endswith("/2026-11-20-1")
