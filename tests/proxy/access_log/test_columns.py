"""Rows of the access log → Parquet: what is written is read, whatever it is; what is no row is refused."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from sluice.proxy.access_log.columns import (
    BadRows,
    FilePart,
    encoded,
)
from sluice.usage.access_record import (
    CODES,
    ROLLUP,
    ROLLUP_COLUMNS,
    SCHEMA_VERSION,
    TABLES,
    VERSION_KEY,
    Column,
    Columns,
    ColumnType,
    Value,
)
from testkit.access_log.access_rows import BEGIN_MS, columns, read, row, rows
from testkit.thorough import cases

_CELLS: dict[ColumnType, st.SearchStrategy[Value]] = {
    ColumnType.TEXT: st.one_of(st.sampled_from(["", "alice", "bob", "ünïcode 漢字"]), st.text(max_size=20)),
    ColumnType.INT: st.one_of(st.just(0), st.integers(-(2**31), 2**31 - 1)),
    ColumnType.LONG: st.one_of(st.just(0), st.integers(-(2**63), 2**63 - 1)),
    ColumnType.DOUBLE: st.one_of(st.just(0.0), st.floats(allow_nan=False, allow_infinity=False, width=32)),
}


def _cells(column: Column) -> st.SearchStrategy[Value]:
    cells = _CELLS[column.type]
    return st.one_of(st.none(), cells) if column.may_be_null else cells


def _rows_of(table: str) -> st.SearchStrategy[list[tuple[Value, ...]]]:
    return st.lists(
        st.tuples(*map(_cells, TABLES[table])),
        min_size=1,
        max_size=10,
    )


def _packed(table: str, given: Columns) -> Columns:
    """With arrays for its numbers, where none is null."""
    found: list[Sequence[Value]] = []
    for column, values in zip(TABLES[table], given, strict=True):
        numbers = [value for value in values if isinstance(value, int | float)]
        is_packed = column.type in CODES and len(numbers) == len(values)
        found.append(array(CODES[column.type], numbers) if is_packed else values)
    return found


def _file(table: str, *pieces: list[tuple[Value, ...]], are_packed: bool = False) -> bytes:
    part = FilePart(table)
    for piece in pieces:
        given = columns(piece)
        part.add(_packed(table, given) if are_packed else given)
    return bytes(encoded(table, part.finish()))


def _as_read(column: Column, value: Value) -> Value:
    if column.type is ColumnType.TEXT and isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    return value


@pytest.mark.parametrize("are_packed", [False, True])
@pytest.mark.parametrize("table", TABLES)
@settings(max_examples=cases(25), deadline=None)
@given(data=st.data())
def test_what_is_written_is_read(table: str, are_packed: bool, data: st.DataObject) -> None:
    pieces = data.draw(st.lists(_rows_of(table), min_size=1, max_size=3))
    found = Counter(tuple(found.values()) for found in read(_file(table, *pieces, are_packed=are_packed)))
    expected = Counter(
        tuple(_as_read(column, value) for column, value in zip(TABLES[table], row, strict=True))
        for piece in pieces
        for row in piece
    )
    assert found == expected


@pytest.mark.parametrize("table", TABLES)
def test_a_file_has_the_schema_of_the_table_and_says_its_version(table: str) -> None:
    file = parquet.ParquetFile(pa.py_buffer(_file(table, [row(table)])))
    types = {"string": "string", "int": "int32", "bigint": "int64", "double": "double"}
    assert [(field.name, str(field.type)) for field in file.schema_arrow] == [
        (column.name, types[column.type.value]) for column in TABLES[table]
    ]
    assert [field.name for field in file.schema_arrow if field.nullable] == [
        column.name for column in TABLES[table] if column.may_be_null
    ]
    assert file.metadata.metadata[VERSION_KEY.encode()] == str(SCHEMA_VERSION).encode()
    compressions = {file.metadata.row_group(0).column(i).compression for i in range(len(TABLES[table]))}
    assert compressions == {"ZSTD"}


def test_rows_lie_by_user_client_topic_and_window() -> None:
    given_rows = [
        row(user=user, client_id=client, topic=topic, at_ms=BEGIN_MS + window)
        for window in (10_000, 0)
        for topic in ("t2", "t1")
        for client in ("b", "a")
        for user in ("zoe", "bob", "alice")
    ]
    part = FilePart(ROLLUP)
    part.add(columns(given_rows[12:]))
    part.add(columns(given_rows[:12]))
    found = [
        (row["user"], row["client_id"], row["topic"], row["window_start_ms"])
        for row in read(bytes(encoded(ROLLUP, part.finish())))
    ]
    assert found == sorted(found)


def test_a_lone_surrogate_in_a_name_does_not_cost_the_file() -> None:
    found = read(_file(ROLLUP, [row(client_id="a\ud800b"), row(client_id="c")]))
    assert [row["client_id"] for row in found] == ["a\\ud800b", "c"]


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (row(user=5), "user: a text was expected, not int"),
        (row(user=None), "user: a text was expected, not NoneType"),
        (row(requests="many"), "requests"),
        (row(requests=None), "requests"),
        (row(requests=1.5), "requests"),
        (row(mutes=2**31), "mutes"),
        (row(requests=2**63), "requests"),
        (row(upstream_ms="1"), "upstream_ms"),
    ],
)
@pytest.mark.parametrize("beside", [0, 3])
def test_rows_that_are_not_of_the_table_are_refused_and_leave_no_trace(
    bad: tuple[Any, ...], told: str, beside: int
) -> None:
    part = FilePart(ROLLUP)
    part.add(columns(rows(2)))
    with pytest.raises(BadRows, match=told):
        part.add(columns([*rows(beside), bad]))
    part.add(columns(rows(2)))
    found = read(bytes(encoded(ROLLUP, part.finish())))
    assert [row["client_id"] for row in found] == ["app-0", "app-0", "app-1", "app-1"]


def test_columns_that_do_not_belong_together_are_refused() -> None:
    part = FilePart(ROLLUP)
    good = columns(rows(2))
    for bad, told in (
        (good[:-1], f"{len(good) - 1} columns instead of {len(good)}"),
        ([*good[:3], [""], *good[4:]], "user: 1 rows instead of 2"),
        ([array("i", (1, 2)), *good[1:]], "window_start_ms: packed as 'i' instead of 'q'"),
    ):
        with pytest.raises(BadRows, match=told):
            part.add(bad)
    assert part.rows == 0


def test_its_size_in_memory_grows_with_rows_and_with_new_names() -> None:
    part = FilePart(ROLLUP)
    widths = {ColumnType.TEXT: 4, ColumnType.INT: 4, ColumnType.LONG: 8, ColumnType.DOUBLE: 8}
    row_bytes = sum(widths[column.type] for column in ROLLUP_COLUMNS)
    part.add(columns([row()]))
    empty = part.size_bytes
    part.add(columns([row()] * 10))
    assert part.size_bytes - empty == 10 * row_bytes
    part.add(columns([row(client_id="x" * 30_000)]))
    assert part.size_bytes - empty > 30_000
