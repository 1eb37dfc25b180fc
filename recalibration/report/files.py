"""What a night leaves for people and programs: plan.json, plan.parquet, usage.parquet, report.html.

Nothing in them depends on the clock: the same night again gives the same files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from sluice.recalibration.report.page import page
from sluice.recalibration.report.tables import write_tables

if TYPE_CHECKING:
    from sluice.recalibration.job import Plan


def write_outputs(plan: Plan, folder: Path) -> None:
    """All files of a plan into a folder that is there; the caller gives it its name when it is whole."""
    (folder / "plan.json").write_text(_as_text(plan), encoding="utf-8")
    write_tables(plan, folder)
    (folder / "report.html").write_text(page(plan), encoding="utf-8")


def _as_text(plan: Plan) -> str:
    """A line for each limit: what `diff` and `grep` show of two plans are whole limits."""
    head = plan.as_json()
    entries = ",\n".join("  " + json.dumps(entry, ensure_ascii=False) for entry in head.pop("entries"))
    begin = json.dumps(head, indent=1, ensure_ascii=False).removesuffix("\n}")
    return f'{begin},\n "entries": [\n{entries}\n ]\n}}\n'
