"""A table of the access log → as many Parquet files as a sink's bound of a file's size asks for.

Rows lie by user, so that the heartbeats would all be in the first file, and the loss of any other would leave
no hole. So each has those of all windows, with its number and how many files there are; the nightly job takes
a window for whole only if it has found them all (recalibration/state/beats.py).
"""

from __future__ import annotations

from itertools import pairwise
from math import ceil

import pyarrow as pa
from pyarrow import compute

from sluice.proxy.access_log.columns import encoded
from sluice.usage.access_record import (
    FILE_PART,
    FILE_PARTS,
    HEARTBEAT_CLASSES,
    ROLLUP,
    TABLES,
    ColumnType,
)


def encoded_within(table_name: str, table: pa.Table, max_bytes: int) -> list[tuple[int, memoryview]]:
    """(rows, file) of parts with as many rows each that fit into `max_bytes`; a single row is never cut."""
    data = encoded(table_name, table)
    if len(data) <= max_bytes or table.num_rows == 1:
        return [(table.num_rows, data)]
    for index, column in enumerate(TABLES[table_name]):
        if column.type is ColumnType.TEXT:  # else each part would carry the names of all
            field = pa.field(column.name, pa.string(), nullable=column.may_be_null)
            table = table.set_column(index, field, table.column(index).cast(pa.string()))
    beats, rows = _beats_apart(table) if table_name == ROLLUP else (table.slice(0, 0), table)
    largest, number = len(data), 1
    while True:
        number = min(max(number + 1, ceil(number * largest / max_bytes)), rows.num_rows)
        bounds = [rows.num_rows * part // number for part in range(number + 1)]
        parts = [
            pa.concat_tables([_numbered(beats, part, number), rows.slice(begin, end - begin)])
            for part, (begin, end) in enumerate(pairwise(bounds), start=1)
        ]
        files = [(part.num_rows, encoded(table_name, part)) for part in parts]
        largest = max(len(file) for _, file in files)
        if largest <= max_bytes or number == rows.num_rows:
            return files


def _beats_apart(table: pa.Table) -> tuple[pa.Table, pa.Table]:
    """(heartbeats, the other rows); of heartbeats alone none is apart."""
    are_beats = compute.is_in(table["api_class"], pa.array(HEARTBEAT_CLASSES))
    rows = table.filter(compute.invert(are_beats))
    return (table.filter(are_beats), rows) if rows.num_rows else (table.slice(0, 0), table)


def _numbered(beats: pa.Table, part: int, parts: int) -> pa.Table:
    for name, number in ((FILE_PART, part), (FILE_PARTS, parts)) if beats.num_rows else ():
        index = beats.schema.get_field_index(name)
        numbers = pa.array([number] * beats.num_rows, pa.int32())
        beats = beats.set_column(index, beats.schema.field(index), numbers)
    return beats
