"""A plan as Parquet: `plan.parquet`, a row for each limit, and `usage.parquet`, one for each of its days."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import parquet

from sluice.recalibration.policy.plan import EXPECTED, PlanEntry

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
        ("room_taken", pa.float64()),
        ("asked", pa.float64()),
        ("is_own", pa.bool_()),
        *((f"expected_{name}", pa.float64()) for name in EXPECTED),
    ]
)
_AT_ONCE: Final = 20_000
"""limits; each part is a row group"""
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
    """Write the plan's two tables, part by part: all at once, 100,000 limits were half a gigabyte of rows."""
    with (
        parquet.ParquetWriter(folder / "plan.parquet", PLAN_COLUMNS, compression="zstd") as limits,
        parquet.ParquetWriter(folder / "usage.parquet", USAGE_COLUMNS, compression="zstd") as usage,
    ):
        for begin in range(0, len(plan.entries), _AT_ONCE):
            entries = plan.entries[begin : begin + _AT_ONCE]
            limits.write_table(_limits(plan, entries))
            usage.write_table(_usage(plan, entries))


def _limits(plan: Plan, entries: Sequence[PlanEntry]) -> pa.Table:
    rows = [
        {"date": plan.day, **entry.as_json(), "entity": entry.entity}
        # Whole numbers above 2⁵³ are none of Arrow's floats: 2⁶³−1 is Kafka's "unlimited" in many files.
        | {name: float(getattr(entry, name)) for name in ("current", "proposed", "anchor", "room_taken")}
        | {f"expected_{name}": getattr(entry.expected, name) for name in EXPECTED}
        for entry in entries
    ]
    return pa.Table.from_pylist(rows, PLAN_COLUMNS)


def _usage(plan: Plan, entries: Sequence[PlanEntry]) -> pa.Table:
    days = [(entry, use) for entry in entries for use in entry.days]
    dates = {age: plan.day - timedelta(days=age) for age in {use.age_days for _, use in days}}
    columns: dict[str, list[Any]] = {
        "key": [entry.key for entry, _ in days],
        "entity": [entry.entity for entry, _ in days],
        "date": [dates[use.age_days] for _, use in days],
        **{name: [getattr(use, name) for _, use in days] for name in _OF_A_DAY},
    }
    return pa.table(columns, schema=USAGE_COLUMNS)
