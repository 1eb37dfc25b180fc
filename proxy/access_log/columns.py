"""Rows of the access log, column by column → one Parquet file, as small and as cheaply as we found.

Windows of the roll-up come as columns that Arrow has added up (sums.py). Of single rows `FilePart.add`
holds the interpreter's lock, and is therefore given few at a time: a column that is the same all over costs
one comparison a row, a number is packed by `struct`, a text becomes a number (names.py). What is left
for pyarrow (`encoded`) runs without the lock: sorting, compressing.

Three things make files small, at no loss that matters:

- Rows are sorted by who they are about, so that names and topics come in runs, and dictionaries are in order.
- Times are rounded where rows are made (STEPS_PER_MS): the other bits are noise that cannot be compressed.
- Numbers that differ from row to row are split into streams of their 1st, 2nd, … bytes (BYTE_STREAM_SPLIT),
  of which the upper ones are nearly constant. PySpark 4.3, pyarrow and DuckDB read that.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from pyarrow import compute, parquet

from sluice.proxy.access_log.names import ColumnNames, FileNames, among_those_used
from sluice.proxy.access_log.runs import Pause, in_order, no_pause
from sluice.proxy.access_log.sums import Sums, warm_up_sums
from sluice.usage.access_record import (
    CODES,
    SCHEMA_VERSION,
    TABLES,
    VERSION_KEY,
    Column,
    Columns,
    ColumnType,
    Value,
)
from sluice.usage.rollup import Window

MS_SUFFIX: Final = "_ms"
_SORTED_BY: Final = ("user", "client_id", "topic", "api_class", "address")
_COMPRESSION: Final = "zstd"
_ROWS_OF_BATCH: Final = 65_536
"""at once from a column to its pages; 1,024, as it is else, cost a twentieth of a file's time"""
_TYPES: Final = {"i": pa.int32(), "q": pa.int64(), "d": pa.float64()}
_CODES: Final = {ColumnType.TEXT: "i", **CODES}


class BadRows(Exception):
    """Rows that are not of the table: a wrong number of columns, or a value of a wrong type."""


class _Cells:
    """One column of a file that is being filled: fixed-width values, and which of them are there."""

    _nothing: Value = 0
    """what stands where a value is null"""

    def __init__(self, column: Column) -> None:
        self._code = _CODES[column.type]
        self._width = struct.calcsize(f"={self._code}")
        self._values: list[bytes] = []
        """of some rows each; if those are all the same, of one"""
        self._there: list[bytes | int] = []
        """of each of `_values`: a byte a row, 0 where it is null; or how many rows, where all are there"""
        self._may_be_null = column.may_be_null
        self._has_nulls = False

    def packed(self, values: Sequence[Value]) -> tuple[bytes, bytes | int]:
        """(values, which are there) for `append`. Raises BadRows; changes nothing that is seen."""
        if isinstance(values, array):
            return self._packed_array(values)
        rows, first = len(values), values[0]
        try:
            if values[-1] == first and values.count(first) == rows:
                return self.packed_same(first, rows)
            try:
                return struct.pack(f"={rows}{self._code}", *self.numbers(values)), rows
            except (struct.error, TypeError):
                there = bytes(value is not None for value in values)
                if all(there) or not self._may_be_null:
                    raise
            filled = [self._nothing if value is None else value for value in values]
            return struct.pack(f"={rows}{self._code}", *self.numbers(filled)), there
        except (struct.error, OverflowError, TypeError) as error:
            raise BadRows(str(error)) from None

    def _packed_array(self, values: array[Any]) -> tuple[bytes, bytes | int]:
        if values.typecode != self._code:
            raise BadRows(f"packed as {values.typecode!r} instead of {self._code!r}")
        packed, rows = values.tobytes(), len(values)
        first = packed[: self._width]
        return first if packed == first * rows else packed, rows

    def append(self, values: bytes, there: bytes | int) -> None:
        """Add the columns that `packed` made."""
        self._values.append(values)
        self._there.append(there)
        self._has_nulls |= not isinstance(there, int)

    def array(self, constants: Constants) -> pa.Array:
        """All of it; of a column that is the same all over, the one that others like it have."""
        type_ = _TYPES[self._code]
        if not self._has_nulls and len(self._values[0]) == self._width and self._are_all(self._values[0]):
            return constants.array(type_, self._values[0], sum(map(_rows_of, self._there)))
        values = b"".join(
            part * _rows_of(there) if len(part) == self._width else part
            for part, there in zip(self._values, self._there, strict=True)
        )
        bitmap = None
        if self._has_nulls:
            there = b"".join(b"\x01" * part if isinstance(part, int) else part for part in self._there)
            bytes_ = pa.Array.from_buffers(pa.uint8(), len(there), [None, pa.py_buffer(there)])
            bitmap = bytes_.cast(pa.bool_()).buffers()[1]
        return pa.Array.from_buffers(type_, len(values) // self._width, [bitmap, pa.py_buffer(values)])

    def _are_all(self, value: bytes) -> bool:
        """Not by a set of them, for that would go through all bytes of each."""
        return all(part == value for part in self._values)

    def packed_same(self, value: Value, rows: int) -> tuple[bytes, bytes | int]:
        """Likewise, of one value. Raises what `struct` does, and TypeError."""
        if value is None and self._may_be_null:
            return bytes(self._width), bytes(rows)
        return struct.pack(f"={self._code}", *self.numbers((value,))), rows

    def packed_numbers(self, values: pa.Array) -> tuple[bytes, bytes | int]:
        """Likewise, of numbers that Arrow has. Raises pa.ArrowInvalid, and ValueError for a null where there
        may be none."""
        if values.type != _TYPES[self._code]:
            values = values.cast(_TYPES[self._code])
        there: bytes | int = len(values)
        if values.null_count:
            if not self._may_be_null:
                raise ValueError("a number is missing")
            there = _buffer(values.is_valid().cast(pa.uint8()))
            values = values.fill_null(0)
        return _buffer(values), there

    def numbers(self, values: Sequence[Value]) -> Sequence[Any]:
        """What `struct` packs for `values`. Raises TypeError."""
        return values


def _rows_of(there: bytes | int) -> int:
    return there if isinstance(there, int) else len(there)


class Constants:
    """Columns of a file that are the same all over, most of them 0: one array for all that are alike, for
    memory that is not read is half of what a file costs."""

    def __init__(self) -> None:
        self._arrays: dict[tuple[pa.DataType, bytes, int], pa.Array] = {}

    def array(self, type_: pa.DataType, value: bytes, rows: int) -> pa.Array:
        """So many times the packed value."""
        key = (type_, value, rows)
        if key not in self._arrays:
            self._arrays[key] = pa.Array.from_buffers(type_, rows, [None, pa.py_buffer(value * rows)])
        return self._arrays[key]

    def has(self, array: pa.Array) -> bool:
        """Is it one of them?"""
        return any(array is one for one in self._arrays.values())


def _buffer(values: pa.Array) -> bytes:
    width = values.type.bit_width // 8
    begin, end = values.offset * width, (values.offset + len(values)) * width
    return bytes(memoryview(values.buffers()[1])[begin:end])


class _Names(_Cells):
    """A column of texts: a number in each row."""

    _nothing = ""

    def __init__(self, column: Column, names: ColumnNames) -> None:
        super().__init__(column)
        self._names = names

    def numbers(self, values: Sequence[Value]) -> Sequence[int]:
        return self._names.numbers(values)

    def column(self, pause: Pause) -> tuple[pa.Array, pa.Array]:
        """(numbers, names) of its rows, with names in order, so that numbers sort as their names do."""
        ordered, ranks = self._names.in_order(pause)
        return among_those_used(ranks.take(self.array(Constants())), ordered)


_COLUMNS_AT_ONCE: Final = 8


class FilePart:
    """Rows of one table for one file, while it is being filled. Not for two threads at once."""

    def __init__(self, table: str, names: FileNames | None = None) -> None:
        """`names`: shared with other files; None: with none."""
        self.names: Final = names or FileNames()
        self._columns = TABLES[table]
        self._cells = [
            _Names(column, self.names.column(column.name))
            if column.type is ColumnType.TEXT
            else _Cells(column)
            for column in self._columns
        ]
        self._known_bytes = self.names.size_bytes
        self._row_bytes = sum(struct.calcsize(f"={_CODES[column.type]}") for column in self._columns)
        self.rows = 0

    @property
    def size_bytes(self) -> int:
        """Memory that this part takes, about: what has come since it began."""
        return self.names.size_bytes - self._known_bytes + self.rows * self._row_bytes

    def add(self, columns: Columns) -> None:
        """Rows, one at least: all of them, or none: raises BadRows. Holds the interpreter's lock for about
        0.5 µs a row."""
        if len(columns) != len(self._cells):
            raise BadRows(f"{len(columns)} columns instead of {len(self._cells)}")
        rows = len(columns[0])
        packed = []
        for column, cells, values in zip(self._columns, self._cells, columns, strict=True):
            if len(values) != rows:
                raise BadRows(f"{column.name}: {len(values)} rows instead of {rows}")
            try:
                packed.append(cells.packed(values))
            except BadRows as error:
                raise BadRows(f"{column.name}: {error}") from None
        self._append(packed, rows)

    def add_sums(self, window: Window, sums: Sums, pause: Pause = no_pause) -> None:
        """The rows of a window of the roll-up."""
        rows = len(sums.places)
        numbers_of = sums.columns | self.names.of_places(sums.places, window.index.keys, pause)
        same: dict[str, Value] = {"window_start_ms": window.start_unix_ms, "proxy": window.proxy}
        packed = []
        pause()
        for index, (column, cells) in enumerate(zip(self._columns, self._cells, strict=True), start=1):
            numbers = numbers_of.get(column.name)
            if numbers is None:
                packed.append(cells.packed_same(same.get(column.name, 0), rows))
            else:
                packed.append(cells.packed_numbers(numbers))
            if index % _COLUMNS_AT_ONCE == 0:
                pause()
        self._append(packed, rows)

    def _append(self, packed: Sequence[tuple[bytes, bytes | int]], rows: int) -> None:
        for cells, (bytes_, there) in zip(self._cells, packed, strict=True):
            cells.append(bytes_, there)
        self.rows += rows

    def finish(self, pause: Pause = no_pause) -> pa.Table:
        """The table in its final order; no more rows may be added.

        `pause` is called after each column: gathering one takes the lock for some 0.1 ms.
        """
        arrays: dict[str, pa.Array] = {}
        names: dict[str, pa.Array] = {}
        constants = Constants()
        for column, cells in zip(self._columns, self._cells, strict=True):
            if isinstance(cells, _Names):
                arrays[column.name], names[column.name] = cells.column(pause)
            else:
                arrays[column.name] = cells.array(constants)
            pause()
        order = in_order(_sort_key(arrays, names), pause)
        for name, values in arrays.items():
            ordered = values if constants.has(values) or _is_same(values) else values.take(order)
            if name in names:
                ordered = pa.DictionaryArray.from_arrays(ordered, names[name])
            arrays[name] = ordered
            pause()
        schema = [
            pa.field(column.name, arrays[column.name].type, nullable=column.may_be_null)
            for column in self._columns
        ]
        return pa.Table.from_arrays(list(arrays.values()), schema=pa.schema(schema))


def encoded(table_name: str, table: pa.Table) -> memoryview:
    """A Parquet file with zstd, its schema's version in its metadata."""
    columns = TABLES[table_name]
    spread = [column.name for column in columns if _is_spread(column)]
    out = pa.BufferOutputStream()
    with parquet.ParquetWriter(
        out,
        table.schema,
        compression=_COMPRESSION,
        use_dictionary=[column.name for column in columns if _has_dictionary(column, table[column.name])],
        column_encoding=dict.fromkeys(spread, "BYTE_STREAM_SPLIT"),
        write_statistics=[columns[0].name],
        write_batch_size=_ROWS_OF_BATCH,
        store_schema=False,  # it would make readers see dictionaries; and costs 3 KB a file
    ) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({VERSION_KEY: str(SCHEMA_VERSION)})
    return memoryview(out.getvalue())


def warm_up() -> None:
    """Have pyarrow set up what its first use sets up, which takes some tenths of a second.

    It takes its memory from malloc then: its own allocator gives memory back to the system within a moment,
    and huge pages come back zeroed, which was a fifth of this thread's work.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    for table, columns in TABLES.items():
        part = FilePart(table)
        part.add([("", "") if column.type is ColumnType.TEXT else (0, 1) for column in columns])
        encoded(table, part.finish())
    warm_up_sums()


def _sort_key(arrays: dict[str, pa.Array], names: dict[str, pa.Array]) -> pa.Array:
    """One number a row that sorts as _SORTED_BY do: far quicker than by several columns.

    With users u, clients c, topics t of U, C, T different ones: (u · C + c) · T + t. If that exceeds 64 bits
    it wraps round, and rows are in a worse order, which is of no consequence but for size.
    """
    key: pa.Array | None = None
    for name in _SORTED_BY:
        if name in arrays:
            numbers = arrays[name].cast(pa.int64()).fill_null(0)
            key = numbers if key is None else compute.add(compute.multiply(key, len(names[name])), numbers)
    return key


def _is_spread(column: Column) -> bool:
    """Differs from row to row, as sums and times do."""
    if column.name == "window_start_ms":
        return False
    return column.type is ColumnType.LONG or (
        column.type is ColumnType.DOUBLE and column.name.endswith(MS_SUFFIX)
    )


def _is_same(values: pa.Array | pa.ChunkedArray) -> bool:
    """Whether all values of a column are equal."""
    if values.null_count:
        return bool(values.null_count == len(values))
    ends = compute.min_max(values)
    return bool(ends["min"] == ends["max"])


def _has_dictionary(column: Column, values: pa.ChunkedArray) -> bool:
    """Few different values, and not one alone: that is quicker written as it is, and as small."""
    if column.type is ColumnType.TEXT or _is_spread(column):
        return column.type is ColumnType.TEXT
    ends = compute.min_max(values).as_py()
    return bool(ends["min"] != ends["max"])
