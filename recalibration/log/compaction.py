"""The log's many small files of a date → one file an hour and table, for those dates that are over.

A proxy writes a file a minute; a hundred proxies write 144,000 a day, and opening them costs more than
reading them. All good files of an hour's folder become one, `compacted-….parquet`, in this order:

1. written under a name with a dot, that no reader looks at; its metadata lists the files that it replaces;
2. renamed into place: from now on readers leave the listed ones out (reader.py), so that nobody who reads
   the log through us sees a row twice or not at all;
3. the listed files are removed.

Killed at any point and run again it comes to the same end. A file that comes late is compacted with the
compacted one; a copy (copies.py) is removed. Damaged files stay where they are. Other programs that read the
folder see the rows twice for the moment between 2 and 3, and should read dates that have been compacted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import groupby
from typing import Final

import pyarrow as pa
from pyarrow import parquet

from sluice.recalibration.log.copies import CONTENTS_KEY, Footers, contents_of, taken_in
from sluice.recalibration.log.reader import REPLACES_KEY, LogFolder, replaced_in
from sluice.usage.access_record import TABLES, VERSION_KEY

PREFIX: Final = "compacted-"
_ROWS_PER_GROUP: Final = 500_000
"""of a row group: some 20 MB; at most twice that is in memory"""


@dataclass(frozen=True, slots=True)
class Compacted:
    """What was done for a date."""

    files_before: int
    files_after: int


def compact(folder: LogFolder, day: date) -> Compacted:
    """All tables of one date. Raises OSError if it cannot be written.

    Only for a date that is over: a proxy may still write into a folder that is not.
    """
    before = after = 0
    for table in TABLES:
        footers = folder.footers(folder.files(day, table))
        before += len(footers)
        left_over = replaced_in(footers) & footers.keys()  # a run before us was killed
        there = {path: found for path, found in footers.items() if path not in left_over}
        copies = folder.copies(there)
        for path in left_over | copies:
            folder.filesystem.delete_file(path)
        kept = {path: found for path, found in there.items() if path not in copies}
        for hour, paths in groupby(kept, key=lambda path: path.rsplit("/", 1)[0]):
            after += _compact_hour(folder, hour, {path: kept[path] for path in paths})
    return Compacted(before, after)


def _compact_hour(folder: LogFolder, hour: str, footers: Footers) -> int:
    """How many files there are now."""
    good = {path: found for path, found in footers.items() if not isinstance(found, str)}
    damaged = len(footers) - len(good)
    if len(good) < 2:
        return len(good) + damaged
    names = [path.rsplit("/", 1)[1] for path in good]
    contents = sorted(
        one
        for path, found in good.items()
        for one in taken_in(found) or {contents_of(folder.filesystem, path)}
    )
    digest = hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]
    target = f"{hour}/{PREFIX}{digest}.parquet"
    being_written = f"{hour}/.{PREFIX}{digest}.parquet.new"
    told = {REPLACES_KEY: json.dumps(names), CONTENTS_KEY: json.dumps(contents)}
    _write_one(folder, list(good), told, being_written)
    folder.filesystem.move(being_written, target)
    for path in good:
        folder.filesystem.delete_file(path)
    return 1 + damaged


def _write_one(folder: LogFolder, paths: Sequence[str], told: Mapping[str, str], target: str) -> None:
    """`told`: the file's metadata, besides its version."""
    schemas = []
    for path in paths:
        with folder.filesystem.open_input_file(path) as file:
            schemas.append(parquet.read_schema(file))
    versions = [int((schema.metadata or {}).get(VERSION_KEY.encode(), b"1")) for schema in schemas]
    schema = pa.unify_schemas([_all_nullable(each) for each in schemas]).with_metadata(
        {VERSION_KEY: str(max(versions)), **told}
    )
    with (
        folder.filesystem.open_output_stream(target) as sink,
        parquet.ParquetWriter(sink, schema, compression="zstd") as writer,
    ):
        for table in _large(_tables(folder, paths, schema)):
            writer.write_table(table, row_group_size=_ROWS_PER_GROUP)


def _all_nullable(schema: pa.Schema) -> pa.Schema:
    """For what one file has in each row another one may lack."""
    return pa.schema([field.with_nullable(True) for field in schema])


def _tables(folder: LogFolder, paths: Sequence[str], schema: pa.Schema) -> Iterator[pa.Table]:
    """Row group by row group; null where a file lacks a column: readers put the default there."""
    for path in paths:
        with folder.filesystem.open_input_file(path) as file:
            source = parquet.ParquetFile(file)
            for index in range(source.num_row_groups):
                table = source.read_row_group(index)
                columns = [
                    table[name]
                    if name in table.column_names
                    else pa.nulls(table.num_rows, schema.field(name).type)
                    for name in schema.names
                ]
                yield pa.table(columns, schema=schema)


def _large(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in pieces of a row group's size at least, but the last."""
    waiting: list[pa.Table] = []
    for table in tables:
        waiting.append(table)
        if sum(each.num_rows for each in waiting) >= _ROWS_PER_GROUP:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)
