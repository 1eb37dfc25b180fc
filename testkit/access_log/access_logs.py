"""Small access logs as the proxy writes them."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from sluice.usage.access_record import ROLLUP_COLUMNS, WINDOW_MS, ColumnType

DAY = date(2026, 11, 20)
_ARROW = {
    ColumnType.TEXT: pa.string(),
    ColumnType.INT: pa.int32(),
    ColumnType.LONG: pa.int64(),
    ColumnType.DOUBLE: pa.float64(),
}


def begin_ms(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp() * 1000)


def row(window: int, *, day: date = DAY, **values: Any) -> dict[str, Any]:
    """A roll-up row of alice's produce; what is not given is zero."""
    zero = {
        ColumnType.TEXT: "",
        ColumnType.INT: 0,
        ColumnType.LONG: 0,
        ColumnType.DOUBLE: 0.0,
    }
    ordinary = {column.name: zero[column.type] for column in ROLLUP_COLUMNS}
    given = {
        "window_start_ms": begin_ms(day) + window * WINDOW_MS,
        "proxy": "p1",
        "user": "alice",
        "client_id": "app",
        "api_class": "produce",
        "connections": 1,
    }
    return ordinary | given | values


def write(
    folder: Path,
    rows: list[dict[str, Any]],
    name: str = "a.parquet",
    *,
    day: date = DAY,
    without: Collection[str] = (),
) -> Path:
    """Into the folder of `day`; `without`: columns that an older version did not have."""
    columns = [column for column in ROLLUP_COLUMNS if column.name not in without]
    schema = pa.schema(
        [pa.field(column.name, _ARROW[column.type], nullable=column.may_be_null) for column in columns]
    )
    file = folder / f"rollup/date={day}/hour=00/{name}"
    file.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.Table.from_pylist(rows, schema), file)
    return file
