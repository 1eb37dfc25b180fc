"""Rows of the access log: tuples, in the columns' order, and as the proxy hands them to its writer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from sluice.usage.access_record import ROLLUP, TABLES, Columns, ColumnType, Value

BEGIN_MS = int(datetime(2026, 11, 20, 10, 59, 50, tzinfo=UTC).timestamp() * 1000)
"""of the last window of an hour"""
_ZERO: dict[ColumnType, Value] = {
    ColumnType.TEXT: "",
    ColumnType.INT: 0,
    ColumnType.LONG: 0,
    ColumnType.DOUBLE: 0.0,
}


def row(table: str = ROLLUP, *, at_ms: int = BEGIN_MS, **values: Value) -> tuple[Value, ...]:
    """What is not given is zero or empty."""
    columns = TABLES[table]
    given = {columns[0].name: at_ms, **values}
    return tuple(given.get(column.name, _ZERO[column.type]) for column in columns)


def rows(count: int, *, at_ms: int = BEGIN_MS) -> list[tuple[Value, ...]]:
    """Rows of the roll-up, each of another client."""
    return [row(at_ms=at_ms, user="alice", client_id=f"app-{number}", requests=1) for number in range(count)]


def columns(rows: Sequence[tuple[Any, ...]]) -> Columns:
    """What AccessWriter.offer takes; one row at least."""
    return list(zip(*rows, strict=True))


def files(root: Path) -> list[Path]:
    """As a reader finds them: of tables, without hidden ones."""
    found = (path for table in TABLES for path in (root / table).rglob("*.parquet"))
    return sorted(path for path in found if not re.match(r"[._]", path.name))


def read(data: Path | bytes) -> list[dict[str, Any]]:
    """The rows of one file."""
    source = data if isinstance(data, Path) else pa.py_buffer(data)
    found: list[dict[str, Any]] = parquet.ParquetFile(source).read().to_pylist()
    return found


def read_all(root: Path) -> list[dict[str, Any]]:
    """The rows of all files that a reader finds."""
    return [row for path in files(root) for row in read(path)]


def clients(found: Iterable[dict[str, Any]]) -> list[str]:
    """Who they are of, in order."""
    return sorted(row["client_id"] for row in found)
