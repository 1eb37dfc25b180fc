"""Plans are published whole, however many publish at once."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

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
