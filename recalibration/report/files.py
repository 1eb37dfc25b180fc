"""What a night leaves for people and programs: plan.json, plan.parquet, usage.parquet, report.html.

Nothing in them depends on the clock: the same night again gives the same files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from sluice.recalibration.report.page import page
from sluice.recalibration.report.tables import write_tables

if TYPE_CHECKING:
    from sluice.recalibration.job import Plan


def write_outputs(plan: Plan, folder: Path) -> None:
    """All files of a plan into a folder that is there; the caller gives it its name when it is whole."""
    with (folder / "plan.json").open("w", encoding="utf-8") as file:
        file.writelines(_as_text(plan))
    write_tables(plan, folder)
    (folder / "report.html").write_text(page(plan), encoding="utf-8")


def _as_text(plan: Plan) -> Iterator[str]:
    """A line for each limit that is listed: what `diff` and `grep` show of two plans are whole limits."""
    head = json.dumps(plan.head_as_json(), indent=1, ensure_ascii=False).removesuffix("\n}")
    yield f'{head},\n "entries": [\n'
    before = ""
    for entry in plan.listed:
        yield f"{before}  {json.dumps(entry.as_json(), ensure_ascii=False)}"
        before = ",\n"
    yield "\n ]\n}\n"
