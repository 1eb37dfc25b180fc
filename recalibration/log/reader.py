"""The access log of one date → rows of the roll-up's columns as a DataFrame, whoever wrote it.

Every file's end is looked at first, where Parquet keeps its table of contents: a file that is cut off or no
Parquet is *damaged*, and is named; it is then left out, or the run refused, as the caller has it. Files whose
names begin with a dot or an underscore are being written, and are not there yet. What a compacted file has
replaced is not there any more, even while it still is (compaction.py), if that file is not damaged; a copy of
a file is not read again (copies.py). Rows of another date, in whatever folder, do not count. Columns that an
older file lacks get their defaults; those that a newer one has beyond ours are left. A log that has no
roll-up but request rows is read from these (request_rows.py).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import date
from functools import cache, partial
from types import MappingProxyType
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs, parquet
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from sluice.recalibration.log.copies import Footers, contents_of, copies_in, overlapping_in
from sluice.recalibration.log.file_metadata import REPLACES_KEY, damage_of, names_in
from sluice.recalibration.log.local_files import files_below
from sluice.recalibration.log.request_rows import as_rollup
from sluice.recalibration.spark.parquet_paths import read_parquet
from sluice.recalibration.spark.session import s3_endpoint
from sluice.usage.access_record import REQUESTS, ROLLUP, TABLES, Column, ColumnType

_AT_ONCE: Final = 8
_LISTINGS: Final = 100
"""of a folder in which another night removes what it has compacted, an hour's files at a time"""
_NONE: Final[Mapping[str, str]] = MappingProxyType({})
_UNREADABLE: Final = re.compile(r"FAILED_READ_FILE\S*\] Encountered error while reading file (\S+?)\.?\s")
UNREADABLE: Final = "a part of it cannot be read"
_TEXTS: Final = frozenset({"BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"})
_NUMBERS: Final = frozenset({"INT32", "INT64", "INT96", "FLOAT", "DOUBLE"})
_NEVER: Final = {
    ColumnType.TEXT: _NUMBERS | {"BOOLEAN"},
    ColumnType.INT: _TEXTS | {"BOOLEAN", "FLOAT", "DOUBLE"},
    ColumnType.LONG: _TEXTS | {"BOOLEAN", "FLOAT", "DOUBLE"},
    ColumnType.DOUBLE: _TEXTS | {"BOOLEAN"},
}
"""Parquet's physical types that are not read as such a column, whatever the version of Spark"""
_EPOCH: Final = date(1970, 1, 1)
_DAY_MS: Final = 86_400_000


class LogError(Exception):
    """The log of a date cannot be used; says which file, and why."""


@dataclass(frozen=True, slots=True)
class LogFiles:
    """What lies in the folder of one date."""

    good: list[str]
    damaged: dict[str, str]
    """path → what is wrong with it"""
    replaced: list[str] = field(default_factory=list)
    """left over: their rows are in a compacted file, too"""
    copies: list[str] = field(default_factory=list)
    """the same bytes as another's: counted once (copies.py)"""
    table: str = ROLLUP


@dataclass(frozen=True, slots=True)
class Listing:
    """A table's files of one date, as they lie there at one moment; paths are without the scheme."""

    footers: Footers
    """of all, in order"""
    replaced: Mapping[str, str]
    """path → the compacted file beside it that has its rows"""
    copies: Mapping[str, str]
    """path of another → whose copy it is (copies.py)"""


@dataclass(frozen=True, slots=True)
class LogFolder:
    """Where logs lie: a path, or a URI that pyarrow and Spark know (s3://bucket/folder)."""

    filesystem: fs.FileSystem
    root: str
    scheme: str
    """what Spark wants before a path: "s3://", or nothing"""

    @classmethod
    def of(cls, logs: str) -> LogFolder:
        """Raises LogError for a URI that nobody knows."""
        if "://" not in logs or logs.startswith("file://"):
            # As Spark names files that it cannot read; links stay.
            path = os.path.abspath(unquote(logs.removeprefix("file://")) if "://" in logs else logs)
            return cls(fs.LocalFileSystem(), path, "")
        scheme, _, path = logs.partition("://")
        try:
            filesystem, root = (_s3(path), path) if scheme in {"s3", "s3a"} else fs.FileSystem.from_uri(logs)
        except (pa.ArrowInvalid, OSError) as error:
            raise LogError(f"{logs}: {error}") from None
        return cls(filesystem, root, f"{scheme}://")

    def files(self, day: date, table: str, wanted: Callable[[str], bool] | None = None) -> list[str]:
        """The Parquet files of one date, or those that are `wanted`, without the scheme, in order."""
        folder = f"{self.root.rstrip('/')}/{table}/date={day.isoformat()}"
        if isinstance(self.filesystem, fs.LocalFileSystem):
            found = files_below(folder)
        else:
            there = self.filesystem.get_file_info(
                fs.FileSelector(folder, recursive=True, allow_not_found=True)
            )
            found = [info.path for info in there if info.type is fs.FileType.File]
        return sorted(filter(wanted or is_written, found))

    def footers(self, paths: Sequence[str]) -> dict[str, parquet.FileMetaData | str]:
        """Each file's table of contents, or what is wrong with it."""

        def read(path: str) -> parquet.FileMetaData | str:
            if shown(path) != path:
                return "its own name is not UTF-8"
            try:
                with self.filesystem.open_input_file(path) as file:
                    found = parquet.read_metadata(file)
            except UnicodeDecodeError:
                return "the name of one of its columns is not UTF-8"
            except (pa.ArrowException, OSError) as error:
                return str(error).splitlines()[0]
            return damage_of(found) or found

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return dict(zip(paths, pool.map(read, paths), strict=True))

    def vanished(self, paths: Sequence[str]) -> list[str]:
        """Those that are not there any more: another night compacts the log."""
        found = self.filesystem.get_file_info([path for path in paths if shown(path) == path])
        return [info.path for info in found if info.type is fs.FileType.NotFound]

    def listing(self, day: date, table: str, unreadable: Mapping[str, str] = _NONE) -> Listing:
        """What lies there, and what counts elsewhere. A file that cannot be read, or is none of ours, stands
        for no other: what it was made of may be all that there is of those rows.

        `unreadable`: path, as LogFiles has it, → why; their ends do not tell it.
        Raises LogError where files are removed all the time, OSError.
        """
        for _ in range(_LISTINGS):
            footers = {
                path: found
                if isinstance(found, str)
                else unreadable.get(self.scheme + path) or unlike(found, table) or found
                for path, found in self.footers(self.files(day, table)).items()
            }
            footers |= overlapping_in(footers)
            replaced = replaced_in(footers)
            try:
                copies = copies_in(
                    {path: found for path, found in footers.items() if path not in replaced},
                    cache(partial(contents_of, self.filesystem)),
                )
            except FileNotFoundError:
                continue
            if not self.vanished([path for path, found in footers.items() if isinstance(found, str)]):
                return Listing(footers, replaced, copies)
        raise LogError(f"{self.scheme}{self.root}: files of {day} are removed all the time; what does so?")

    def is_readable(self, path: str, wanted: Collection[str] | None = None) -> bool:
        """Whether all pages of a file can be read; `wanted`: of these columns."""
        try:
            with self.filesystem.open_input_file(path) as file:
                source = parquet.ParquetFile(file)
                names = [name for name in source.schema_arrow.names if wanted is None or name in wanted]
                for index in range(source.num_row_groups):
                    source.read_row_group(index, columns=names, use_threads=False).validate(full=True)
        except (pa.ArrowException, OSError):
            return False
        return True


def is_written(path: str) -> bool:
    """Whether it is a Parquet file, and a whole one: names of those being written begin otherwise."""
    return path.endswith(".parquet") and not path.rpartition("/")[2].startswith((".", "_"))


def _s3(path: str) -> fs.S3FileSystem:
    """File system of a path in a bucket, by the environment of AWS's own tools: region, keys, an endpoint."""
    endpoint = s3_endpoint()
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if region is None and endpoint is None:
        region = fs.resolve_s3_region(path.split("/", 1)[0])
    return fs.S3FileSystem(endpoint_override=endpoint, region=region)


def find_files(logs: str, day: date, table: str = ROLLUP, unreadable: Mapping[str, str] = _NONE) -> LogFiles:
    """A table's files of `day` below `logs`. Empty: none. `unreadable`: as `LogFolder.listing`."""
    folder = LogFolder.of(logs)
    found = folder.listing(day, table, unreadable)
    gone = found.replaced.keys() | found.copies.keys()
    return LogFiles(
        good=[
            folder.scheme + path
            for path, footer in found.footers.items()
            if not isinstance(footer, str) and path not in gone
        ],
        damaged={
            shown(folder.scheme + path): footer
            for path, footer in found.footers.items()
            if isinstance(footer, str) and path not in gone
        },
        replaced=[folder.scheme + path for path in found.footers if path in found.replaced],
        copies=[folder.scheme + path for path in found.footers if path in found.copies],
        table=table,
    )


def shown(path: str) -> str:
    """As it can be written: bytes that are no UTF-8 as \\udc… ."""
    return path.encode(errors="backslashreplace").decode()


def unlike(footer: parquet.FileMetaData, table: str) -> str | None:
    """What Spark cannot read as a column of ours; None: nothing that the file's end tells.

    Told here, for each file that Spark finds costs another reading of the whole log.
    """
    types = {column.name: column.type for column in TABLES[table]}
    for number in range(footer.num_columns):
        column = footer.schema.column(number)
        name = column.path.partition(".")[0]
        wanted = types.get(name)
        if wanted is None and name.lower() in types:  # Spark takes the two for one
            return f"its column {name} is not {name.lower()}"
        if wanted is not None and (column.max_repetition_level or column.physical_type in _NEVER[wanted]):
            return f"its column {column.path} is {column.physical_type}, not {wanted.value}"
    return None


def replaced_in(footers: Footers) -> dict[str, str]:
    """Path of a file that is there → the compacted file beside it that has its rows."""
    gone: dict[str, str] = {}
    for path, found in footers.items():
        if not isinstance(found, str):
            hour, _, its_name = path.rpartition("/")
            names = (f"{hour}/{name}" for name in names_in(found, REPLACES_KEY) if name != its_name)
            gone |= {name: path for name in names if name in footers}
    return gone


def read_log(
    spark: SparkSession, logs: str, day: date, *, skip_damaged: bool, unreadable: Mapping[str, str] = _NONE
) -> tuple[DataFrame, LogFiles]:
    """All rows of a date, and the files they are in: the roll-up's, else the request rows'.

    `unreadable`: paths that an earlier try could not read (culprits.py), and why: damaged, too, but those
    that another night has compacted since; what they had replaced is read in their place. Raises LogError
    where there is no file, or a damaged one that may not be skipped.
    """
    files = find_files(logs, day, unreadable=unreadable)
    if not files.good and not files.damaged:
        of_requests = find_files(logs, day, REQUESTS, unreadable)
        if of_requests.good or of_requests.damaged:
            files = of_requests
    if not files.good and not files.damaged:
        raise LogError(f"no log of this date: no Parquet file in {logs.rstrip('/')}/{ROLLUP}/date={day}/")
    rows = read_table(spark, files, skip_damaged=skip_damaged)
    told = as_rollup(rows) if files.table == REQUESTS else rows
    # A folder that was copied under another date, or a clock that was far off, is no evidence of this one.
    begin_ms = (day - _EPOCH).days * _DAY_MS
    return told.where(f.col("window_start_ms").between(begin_ms, begin_ms + _DAY_MS - 1)), files


def unreadable_file(error: Exception) -> dict[str, str]:
    """The file that Spark could not read, and why, by what it says; empty: something else is wrong."""
    found = _UNREADABLE.search(str(error))
    return {} if found is None else {path_of(found[1]): UNREADABLE}


def path_of(uri: str) -> str:
    """As LogFiles has it, of what Spark says."""
    return unquote(uri).removeprefix("file://")


def read_table(spark: SparkSession, files: LogFiles, *, skip_damaged: bool) -> DataFrame:
    """All rows of the files' table. Raises LogError as `read_log`."""
    if files.damaged and not skip_damaged:
        path, reason = next(iter(files.damaged.items()))
        raise LogError(f"{len(files.damaged)} damaged file(s), the first {path}: {reason}")
    if not files.good:
        damaged = "".join(f"; damaged: {path}: {reason}" for path, reason in files.damaged.items())
        raise LogError(f"no log of this date{damaged}")
    columns = TABLES[files.table]
    return read_parquet(spark, files.good, _schema(columns)).select(*map(_filled, columns))


def _schema(columns: Iterable[Column]) -> str:
    return ", ".join(f"`{column.name}` {column.type.value.upper()}" for column in columns)


def _filled(column: Column) -> SparkColumn:
    if column.default is None:
        return f.col(column.name)
    return f.coalesce(f.col(column.name), f.lit(column.default)).alias(column.name)
