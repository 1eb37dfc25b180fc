"""The log's many small files of a date → one file an hour and table, for those dates that are over.

A proxy writes a file a minute; a hundred proxies write 144,000 a day, and opening them costs more than
reading them. All good files of an hour's folder become one, `compacted-….parquet`, in this order:

1. written under a name of its own with a dot, that no reader looks at; its metadata lists the files that it
   replaces;
2. renamed into place: from now on readers leave the listed ones out (reader.py), so that nobody who reads
   the log through us sees a row twice or not at all;
3. the listed files are removed, once it was seen that the new one is there and whole.

Killed at any point and run again it comes to the same end. Of several nights at once one compacts a log
(state/one_night.py); where nothing locks them, none harms the other: what one no longer finds it leaves to
the other, and of two compacted files of the same rows readers leave one out (copies.py). A file that comes
late is compacted with the compacted one; a copy (copies.py) is removed. Damaged files stay where they are,
and so does one whose columns are of other types than most have: another program wrote it. So does what cannot
be removed: readers leave it out all the same. No file is removed for the sake of one that cannot be read: who
puts back what a damaged compacted file was made of has it compacted anew, under another name. Other programs
that read the folder see the rows twice for the moment between 2 and 3, and should read dates that have been
compacted.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from itertools import chain, count, groupby
from secrets import token_hex
from typing import Final

import pyarrow as pa
from pyarrow import fs, parquet

from sluice.recalibration.log.copies import contents_of, taken_in
from sluice.recalibration.log.file_metadata import CONTENTS_KEY, REPLACES_KEY, names_in, version_of
from sluice.recalibration.log.reader import UNREADABLE, Listing, LogFolder, shown
from sluice.usage.access_record import TABLES, VERSION_KEY

PREFIX: Final = "compacted-"
_BEING_WRITTEN: Final = f".{PREFIX}"
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


class _TakenError(Exception):
    """Another compaction has removed a file meanwhile."""


def compact(folder: LogFolder, day: date, is_alone: bool = False, damaged: Collection[str] = ()) -> Compacted:
    """All tables of one date. Raises OSError if it cannot be written, LogError as `LogFolder.listing`.

    `is_alone`: no other compacts this log. `damaged`: paths that could not be read as they have to be; like
    all whose columns are not ours they stay as they are, for who knows what is in them, and stand for no
    other.

    Only for a date that is over: a proxy may still write into a folder that is not.
    """
    before = after = 0
    left: list[str] = []
    for table in TABLES:
        if is_alone:  # so nobody writes them any more: somebody was killed
            _removed(folder, folder.files(day, table, _is_being_written))
        there = folder.listing(day, table, dict.fromkeys(damaged, UNREADABLE))
        before += len(there.footers)
        gone, stuck = _without_what_counts_elsewhere(folder, there)
        left += stuck
        after += len(stuck)
        kept = [path for path in there.footers if path not in gone and path not in stuck]
        for hour, paths in groupby(kept, key=lambda path: path.rsplit("/", 1)[0]):
            of_hour = {path: there.footers[path] for path in paths}
            good = {path: found for path, found in of_hour.items() if not isinstance(found, str)}
            taken, stuck = _compact_hour(folder, hour, good)
            left += sorted({*(of_hour.keys() - taken), *stuck})
            after += len(of_hour) - len(taken) + bool(taken) + len(stuck)
    return Compacted(before, after, [shown(path) for path in left])


def _without_what_counts_elsewhere(folder: LogFolder, there: Listing) -> tuple[set[str], list[str]]:
    """What a killed run has left over, and copies → those that are removed, and those that stay.

    No night may have read all of the compacted file that has their rows: it is read here. If it cannot be, it
    stays with all that it stands for, as it was found: nights decide by the columns that they need.
    """
    elsewhere = {**there.replaced, **there.copies}
    compacted = {path for path in elsewhere.values() if _is_compacted(there.footers[path])}
    unreadable = {path for path in compacted if not folder.is_readable(path)}
    stay = unreadable | {path for path, other in elsewhere.items() if other in unreadable}
    gone = elsewhere.keys() - stay
    stuck = _removed(folder, sorted(gone))
    return gone.difference(stuck), [*sorted(stay), *stuck]


def _is_compacted(footer: parquet.FileMetaData | str) -> bool:
    """Else it stands for others by the same bytes alone, which are as readable as its own."""
    return not isinstance(footer, str) and bool(names_in(footer, REPLACES_KEY) or taken_in(footer))


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
        except _TakenError:
            break
    return list(alike), []


def _is_being_written(path: str) -> bool:
    return path.rpartition("/")[2].startswith(_BEING_WRITTEN)


def _removed(folder: LogFolder, paths: Iterable[str]) -> list[str]:
    """Those that cannot be: readers leave them out all the same."""
    stuck = []
    for path in paths:
        try:
            folder.filesystem.delete_file(path)
        except FileNotFoundError:  # another has
            continue
        except OSError:
            stuck.append(path)
    return stuck


def _make_one(folder: LogFolder, hour: str, good: Mapping[str, parquet.FileMetaData]) -> list[str]:
    """Those that could not be removed behind it. Raises _Unreadable, _TakenError: nothing has been
    removed; OSError."""
    names = [path.rsplit("/", 1)[1] for path in good]
    digest = hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]
    # Never two writers of one file: it would be neither's, and what it replaces is removed.
    being_written = f"{hour}/{_BEING_WRITTEN}{digest}-{token_hex(8)}.parquet.new"
    try:
        contents = sorted(
            one
            for path, found in good.items()
            for one in taken_in(found) or {contents_of(folder.filesystem, path)}
        )
        told = {REPLACES_KEY: json.dumps(names), CONTENTS_KEY: json.dumps(contents)}
        size_bytes = _write_one(folder, good, told, being_written)
        _check(folder, being_written, size_bytes, good, told)
        if folder.vanished(list(good)):
            raise _TakenError
        target = _unused(folder, f"{hour}/{PREFIX}{digest}")
        folder.filesystem.move(being_written, target)
    except (_Unreadable, _TakenError, OSError) as error:
        with suppress(OSError):
            folder.filesystem.delete_file(being_written)
        if isinstance(error, FileNotFoundError):
            raise _TakenError from error
        raise
    try:
        _check(folder, target, size_bytes, good, told)
    except OSError:
        if folder.vanished([target]):  # another has made a larger one of it, and removes what that replaces
            raise _TakenError from None
        raise
    return _removed(folder, good)


def _unused(folder: LogFolder, stem: str) -> str:
    """A name that no file has: one that is damaged was made of the same files, and stays."""
    paths = (f"{stem}{suffix}.parquet" for suffix in chain(("",), (f"-{number}" for number in count(2))))
    return next(path for path in paths if folder.vanished([path]))


def _check(
    folder: LogFolder,
    path: str,
    size_bytes: int,
    good: Mapping[str, parquet.FileMetaData],
    told: Mapping[str, str],
) -> None:
    """That the compacted file is there, with all rows and on the disk. Raises OSError."""
    if isinstance(folder.filesystem, fs.LocalFileSystem):
        # Else a power failure may leave neither it nor what it replaces.
        _sync(path)
        with suppress(OSError):  # not every file system can for a folder
            _sync(os.path.dirname(path))
    (found,) = folder.footers([path]).values()
    size_found = folder.filesystem.get_file_info(path).size
    rows = sum(footer.num_rows for footer in good.values())
    if isinstance(found, str):
        raise OSError(f"{path}: written, and cannot be read: {found}")
    if (found.num_rows, size_found) != (rows, size_bytes) or any(
        (found.metadata or {}).get(key.encode()) != value.encode() for key, value in told.items()
    ):
        raise OSError(f"{path}: is not what was written there; what it would replace stays")


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
) -> int:
    """Its bytes. `told`: the file's metadata, besides its version. Raises _Unreadable, OSError."""
    versions = map(version_of, good.values())
    schema = pa.unify_schemas(map(_schema, good.values())).with_metadata(
        {VERSION_KEY: str(max(versions)), **told}
    )
    with folder.filesystem.open_output_stream(target) as sink:
        with parquet.ParquetWriter(sink, schema, compression="zstd") as writer:
            for table in _large(_tables(folder, list(good), schema)):
                writer.write_table(table, row_group_size=_ROWS_PER_GROUP)
        return int(sink.tell())


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
                except FileNotFoundError:  # of a file system that finds it anew for each reading
                    raise
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
