"""What old nights leave, and how long."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from sluice.recalibration.policy.settings import JobSettings
from sluice.recalibration.state.retention import forget
from testkit.access_log.access_logs import DAY

JOB = JobSettings(keep_state_days=60)


def filled(folder: Path, ages: range) -> tuple[Path, Path]:
    out, logs = folder / "out", folder / "logs"
    for day in (DAY - timedelta(days=age) for age in ages):
        for table in (out / "windows", out / "state", logs / "rollup", logs / "requests"):
            (table / f"date={day}").mkdir(parents=True)
            (table / f"date={day}" / "a.parquet").write_bytes(b"PAR1")
        for name in ("standing", "beats"):
            (out / name).mkdir(exist_ok=True)
            (out / name / f"{day}.json").write_text("{}")
    (logs / "rollup" / "notes.txt").write_text("not ours")
    return out, logs


def ages_in(folder: Path) -> set[int]:
    names = (path.name.removeprefix("date=").removesuffix(".json") for path in folder.iterdir())
    dates = {str(DAY - timedelta(days=age)): age for age in range(500)}
    return {dates[name] for name in names if name in dates}


def test_each_is_kept_for_its_time_and_the_log_for_ever_unless_it_is_said(tmp_path: Path) -> None:
    out, logs = filled(tmp_path, range(100))
    assert forget(str(out), str(logs), DAY, JOB).dates == 0
    assert ages_in(out / "windows") == set(range(28))
    for kept in (out / "state", out / "standing", out / "beats"):
        assert ages_in(kept) == set(range(60)), kept
    assert ages_in(logs / "rollup") == set(range(100))


def test_of_the_log_only_what_a_night_has_read_is_removed(tmp_path: Path) -> None:
    out, logs = filled(tmp_path, range(40))
    for table in ("state", "standing"):
        for age in (33, 35):
            path = next((out / table).glob(f"*{DAY - timedelta(days=age)}*"))
            path.rename(path.with_name("elsewhere" + str(age)))
    assert forget(str(out), str(logs), DAY, replace(JOB, keep_log_days=30)).dates == 8
    for table in ("rollup", "requests"):
        assert ages_in(logs / table) == {*range(30), 33, 35}
    assert (logs / "rollup" / "notes.txt").exists()


def test_what_a_day_was_is_kept_for_a_year_and_a_months_end(tmp_path: Path) -> None:
    """Without a word in the settings: 400 dates of daily histograms, anchors and heartbeats."""
    out, logs = filled(tmp_path, range(410))
    forget(str(out), str(logs), DAY, JobSettings())
    for kept in (out / "state", out / "standing", out / "beats"):
        assert ages_in(kept) == set(range(400)), kept


def test_what_a_killed_night_was_writing_is_removed_with_all_that_is_in_it(tmp_path: Path) -> None:
    out, logs = filled(tmp_path, range(2))
    for table in ("windows", "state"):
        left = out / table / ".spark-staging-0ad7a294" / f"date={DAY}"
        left.mkdir(parents=True)
        (left / "part-0.parquet").write_bytes(b"PAR1")
    forget(str(out), str(logs), DAY, JOB)
    for table in ("windows", "state"):
        assert sorted(path.name for path in (out / table).iterdir()) == [
            f"date={DAY - timedelta(days=1)}", f"date={DAY}"
        ]  # fmt: skip


def test_what_is_only_called_like_a_date_is_left(tmp_path: Path) -> None:
    """A copy that was renamed so that no reader takes it was removed, and a file ended each night."""
    out, logs = filled(tmp_path, range(100))
    old, older = (DAY - timedelta(days=age) for age in (95, 99))
    folders = [logs / "rollup" / str(old), *(out / table / str(old) for table in ("windows", "state"))]
    folders += [out / "windows" / f"{old}.json", out / "standing" / f"date={old}", out / "beats" / str(old)]
    for folder in folders:
        folder.mkdir()
    files = [
        logs / "requests" / f"{old}.json",
        logs / "requests" / f"date={old}.json",
        out / "standing" / str(old),
    ]
    for table in (logs / "rollup", out / "windows", out / "state"):
        shutil.rmtree(table / f"date={older}")
        files.append(table / f"date={older}")
    (out / "beats" / f"{older}.json").unlink()
    (out / "beats" / f"{older}.json").mkdir()
    for file in files:
        file.write_text("a person's")
    assert forget(str(out), str(logs), DAY, replace(JOB, keep_log_days=90)).dates == 9
    assert [file for file in files if not file.is_file()] == []
    assert [folder for folder in folders if not folder.is_dir()] == []
    assert (out / "beats" / f"{older}.json").is_dir()
