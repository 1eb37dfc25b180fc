"""The log's many small files of a date → one file an hour and table, for those dates that are over.

A proxy writes a file a minute; a hundred proxies write 144,000 a day, and opening them costs more than
reading them. All good files of an hour's folder become one, `compacted-….parquet`, in this order:

1. written under a name with a dot, that no reader looks at; its metadata lists the files that it replaces;
2. renamed into place: from now on readers leave the listed ones out (reader.py), so that nobody who reads
   the log through us sees a row twice or not at all;
3. the listed files are removed.

Killed at any point and run again it comes to the same end. A file that comes late is compacted with the
compacted one; a copy (copies.py) is removed. Damaged files stay where they are, and so does one whose columns
are of other types than most have: another program wrote it. So does what cannot be removed: readers leave it
out all the same. Other programs that read the folder see the rows twice for the moment between 2 and 3, and
should read dates that have been compacted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import groupby
from typing import Final

import pyarrow as pa
from pyarrow import parquet

from sluice.recalibration.log.copies import contents_of, taken_in
from sluice.recalibration.log.file_metadata import CONTENTS_KEY, REPLACES_KEY, version_of
from sluice.recalibration.log.reader import LogFolder, replaced_in
from sluice.usage.access_record import TABLES, VERSION_KEY

PREFIX: Final = "compacted-"
_ROWS_PER_GROUP: Final = 500_000
"""of a row group: some 20 MB; at most twice that is in memory"""


@dataclass(frozen=True, slots=True)
class Compacted:
    """What was done for a date."""

    files_before: int
    files_after: int
    left: Sequence[str] = ()
    """paths of those that stay: of other types, with a part that cannot be read, or that cannot be removed"""


class _Unreadable(Exception):
    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


def compact(folder: LogFolder, day: date) -> Compacted:
    """All tables of one date. Raises OSError if it cannot be written.

    Only for a date that is over: a proxy may still write into a folder that is not.
    """
    before = after = 0
    left: list[str] = []
    for table in TABLES:
        footers = folder.footers(folder.files(day, table))
        before += len(footers)
        left_over = replaced_in(footers) & footers.keys()  # a run before us was killed
        there = {path: found for path, found in footers.items() if path not in left_over}
        copies = folder.copies(there)
        stuck = _removed(folder, sorted(left_over | copies))
        left += stuck
        after += len(stuck)
        kept = {path: found for path, found in there.items() if path not in copies}
        for hour, paths in groupby(kept, key=lambda path: path.rsplit("/", 1)[0]):
            of_hour = {path: kept[path] for path in paths}
            good = {path: found for path, found in of_hour.items() if not isinstance(found, str)}
            taken, stuck = _compact_hour(folder, hour, good)
            left += sorted({*(good.keys() - taken), *stuck})
            after += len(of_hour) - len(taken) + bool(taken) + len(stuck)
    return Compacted(before, after, left)


def _compact_hour(
    folder: LogFolder, hour: str, good: Mapping[str, parquet.FileMetaData]
) -> tuple[list[str], list[str]]:
    """Those that were made one, or are; those of them that are still there."""
    alike = {path: good[path] for path in _alike({path: _schema(found) for path, found in good.items()})}
    while len(alike) > 1:
        try:
            return list(alike), _make_one(folder, hour, alike)
        except _Unreadable as error:
            del alike[error.path]
    return list(alike), []


def _removed(folder: LogFolder, paths: Iterable[str]) -> list[str]:
    """Those that cannot be: readers leave them out all the same."""
    stuck = []
    for path in paths:
        try:
            folder.filesystem.delete_file(path)
        except OSError:
            stuck.append(path)
    return stuck


def _make_one(folder: LogFolder, hour: str, good: Mapping[str, parquet.FileMetaData]) -> list[str]:
    """Those that could not be removed behind it. Raises _Unreadable: nothing has been done."""
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
    try:
        _write_one(folder, good, told, being_written)
    except _Unreadable:
        folder.filesystem.delete_file(being_written)
        raise
    folder.filesystem.move(being_written, target)
    return _removed(folder, good)


def _alike(schemas: Mapping[str, pa.Schema]) -> Sequence[str]:
    """The paths of most files whose columns go together."""
    kinds: list[tuple[pa.Schema, list[str]]] = []
    for path, schema in schemas.items():
        for number, (common, paths) in enumerate(kinds):
            try:
                kinds[number] = pa.unify_schemas([common, schema]), [*paths, path]
            except pa.ArrowException:
                continue
            break
        else:
            kinds.append((schema, [path]))
    return max((paths for _, paths in kinds), key=len, default=())


def _write_one(
    folder: LogFolder, good: Mapping[str, parquet.FileMetaData], told: Mapping[str, str], target: str
) -> None:
    """`told`: the file's metadata, besides its version. Raises _Unreadable."""
    versions = map(version_of, good.values())
    schema = pa.unify_schemas(map(_schema, good.values())).with_metadata(
        {VERSION_KEY: str(max(versions)), **told}
    )
    with (
        folder.filesystem.open_output_stream(target) as sink,
        parquet.ParquetWriter(sink, schema, compression="zstd") as writer,
    ):
        for table in _large(_tables(folder, list(good), schema)):
            writer.write_table(table, row_group_size=_ROWS_PER_GROUP)


def _schema(footer: parquet.FileMetaData) -> pa.Schema:
    """For what one file has in each row another one may lack."""
    return pa.schema([field.with_nullable(True) for field in footer.schema.to_arrow_schema()])


def _tables(folder: LogFolder, paths: Sequence[str], schema: pa.Schema) -> Iterator[pa.Table]:
    """Row group by row group; null where a file lacks a column: readers put the default there."""
    for path in paths:
        with folder.filesystem.open_input_file(path) as file:
            source = parquet.ParquetFile(file)
            for index in range(source.num_row_groups):
                try:
                    table = source.read_row_group(index)
                except (pa.ArrowException, OSError) as error:
                    raise _Unreadable(path) from error
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
