"""A plan as Parquet: `plan.parquet`, a row for each limit, and `usage.parquet`, one for each of its days."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import parquet

from sluice.recalibration.policy.plan import EXPECTED

if TYPE_CHECKING:
    from sluice.recalibration.job import Plan

PLAN_COLUMNS: Final = pa.schema(
    [
        ("date", pa.date32()),
        ("key", pa.string()),
        ("entity", pa.string()),
        ("current", pa.float64()),
        ("proposed", pa.float64()),
        ("wanted", pa.float64()),
        ("reason", pa.string()),
        ("needs_review", pa.bool_()),
        ("confidence", pa.float64()),
        ("proxies", pa.int32()),
        ("pooled_demand", pa.float64()),
        ("throttled_share", pa.float64()),
        ("up_to", pa.float64()),
        ("first_step", pa.float64()),
        ("anchor", pa.float64()),
        *((f"expected_{name}", pa.float64()) for name in EXPECTED),
    ]
)
_OF_A_DAY: Final = ("demand", "identified", "throttled_share", "traffic_s")
USAGE_COLUMNS: Final = pa.schema(
    [
        ("key", pa.string()),
        ("entity", pa.string()),
        ("date", pa.date32()),
        ("demand", pa.float64()),
        ("identified", pa.bool_()),
        ("throttled_share", pa.float64()),
        ("traffic_s", pa.float64()),
    ]
)


def write_tables(plan: Plan, folder: Path) -> None:
    """Write the plan's two tables."""
    rows = [
        {"date": plan.day, **entry.as_json(), "entity": entry.entity}
        # Whole numbers above 2⁵³ are none of Arrow's floats: 2⁶³−1 is Kafka's "unlimited" in many files.
        | {name: float(getattr(entry, name)) for name in ("current", "proposed", "anchor")}
        | {f"expected_{name}": getattr(entry.expected, name) for name in EXPECTED}
        for entry in plan.entries
    ]
    _write(pa.Table.from_pylist(rows, PLAN_COLUMNS), folder / "plan.parquet")
    # By columns: of 20,000 limits there are half a million days.
    days = [(entry, use) for entry in plan.entries for use in entry.days]
    dates = {age: plan.day - timedelta(days=age) for age in {use.age_days for _, use in days}}
    columns: dict[str, list[Any]] = {
        "key": [entry.key for entry, _ in days],
        "entity": [entry.entity for entry, _ in days],
        "date": [dates[use.age_days] for _, use in days],
        **{name: [getattr(use, name) for _, use in days] for name in _OF_A_DAY},
    }
    _write(pa.table(columns, schema=USAGE_COLUMNS), folder / "usage.parquet")


def _write(table: pa.Table, file: Path) -> None:
    parquet.write_table(table, file, compression="zstd")
