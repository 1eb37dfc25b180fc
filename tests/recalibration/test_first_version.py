"""What the first version wrote is read: its access log, its states, its plan."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from pyarrow import compute, parquet
from pyspark.sql import SparkSession

from sluice.proxy.cli.main import main
from testkit.releases import FIRST_VERSION

NIGHT: Final = "2026-11-25"
NEXT_NIGHT: Final = "2026-11-26"
DAY_MS: Final = 86_400_000
_TIMES: Final = {"rollup": "window_start_ms", "requests": "finished_ms"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FIRST_VERSION, tmp_path / "first"))


def ended(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["sluice", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


def plan_of(monkeypatch: pytest.MonkeyPatch, folder: Path, night: str) -> dict[str, Any]:
    """The plan of a night over what is there."""
    options = [f"--logs={folder / 'log'}", f"--out={folder / 'out'}", f"--quotas={folder / 'quotas.yaml'}"]
    options += [f"--settings={folder / 'settings.yaml'}", f"--date={night}"]
    assert ended(monkeypatch, "recalibrate", *options) == 0
    latest = (folder / "out/LATEST").read_text().strip()
    assert latest.startswith(night)
    found: dict[str, Any] = json.loads((folder / f"out/plans/{latest}/plan.json").read_text())
    return found


def a_day_later(folder: Path) -> None:
    """The same log once more, as of the next day."""
    for path in sorted((folder / "log").rglob("*.parquet")):
        kind = path.relative_to(folder / "log").parts[0]
        table = parquet.read_table(path, partitioning=None)
        at = table.column_names.index(_TIMES[kind])
        later = compute.add(table.column(at), pa.scalar(DAY_MS, pa.int64()))
        to = Path(str(path).replace(NIGHT, NEXT_NIGHT).replace("20261125", "20261126"))
        to.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(table.set_column(at, table.field(at), later), to)


def test_its_access_log_makes_a_night(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(folder / "out")
    plan = plan_of(monkeypatch, folder, NIGHT)
    throttled = {entry["entity"]["client-id"]: entry["throttled_share"] for entry in plan["entries"]}
    assert plan["log_files"] == 12
    assert not plan["damaged_files"]
    assert set(throttled) == {"checkout", "reports"}
    assert throttled["checkout"] == 1.0
    assert 0.0 < throttled["reports"] < 1.0


@pytest.mark.long
def test_its_states_and_windows_are_the_past_of_the_next_night(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_day_later(folder)
    plan = plan_of(monkeypatch, folder, NEXT_NIGHT)
    assert plan["replayed_days"] == 2
    assert {entry["entity"]["client-id"] for entry in plan["entries"]} == {"checkout", "reports"}
    alone = Path(shutil.copytree(folder, folder.parent / "alone"))
    shutil.rmtree(alone / "out")
    assert plan_of(monkeypatch, alone, NEXT_NIGHT)["replayed_days"] == 1, "they come from the states"


def test_its_plan_is_applied(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quotas = folder / "quotas.yaml"
    code = ended(
        monkeypatch,
        "quotas",
        "apply",
        str(folder / "out/plans/2026-11-25-1"),
        f"--quotas={quotas}",
        "--dry-run",
        "--max-age-days=36500",  # of a date that is long ago
    )
    assert code == 0
