"""The access log of one date → the roll-up as a DataFrame of the schema that we know, whoever wrote it.

Every file's end is looked at first, where Parquet keeps its table of contents: a file that is cut off or no
Parquet is *damaged*, and is named; it is then left out, or the run refused, as the caller has it. Files whose
names begin with a dot or an underscore are being written, and are not there yet. Columns that an older file
lacks get their defaults; those that a newer one has beyond ours are left.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from typing import Final

import pyarrow as pa
from pyarrow import fs, parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from sluice.quotas.access_record import ROLLUP, ROLLUP_COLUMNS

_SCHEMA: Final = ", ".join(f"`{column.name}` {column.type.value.upper()}" for column in ROLLUP_COLUMNS)
_AT_ONCE: Final = 8


class LogError(Exception):
    """The log of a date cannot be used; says which file, and why."""


@dataclass(frozen=True, slots=True)
class LogFiles:
    """What lies in the folder of one date."""

    good: list[str]
    damaged: dict[str, str]
    """path → what is wrong with it"""


def find_files(logs: str, day: date) -> LogFiles:
    """The roll-up's files of `day` below `logs`, a path or a URI that pyarrow knows. Empty: none."""
    filesystem, root = fs.FileSystem.from_uri(logs) if "://" in logs else (fs.LocalFileSystem(), logs)
    folder = f"{root.rstrip('/')}/{ROLLUP}/date={day.isoformat()}"
    found = filesystem.get_file_info(fs.FileSelector(folder, recursive=True, allow_not_found=True))
    paths = sorted(
        info.path
        for info in found
        if info.type is fs.FileType.File
        and info.path.endswith(".parquet")
        and not info.base_name.startswith((".", "_"))
    )

    def problem(path: str) -> str | None:
        try:
            with filesystem.open_input_file(path) as file:
                parquet.read_metadata(file)
        except (pa.ArrowInvalid, OSError) as error:
            return str(error).splitlines()[0]
        return None

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        problems = dict(zip(paths, pool.map(problem, paths), strict=True))
    scheme = logs.split("://", 1)[0] + "://" if "://" in logs else ""
    return LogFiles(
        good=[scheme + path for path, found in problems.items() if found is None],
        damaged={scheme + path: found for path, found in problems.items() if found is not None},
    )


def read_rollup(spark: SparkSession, files: LogFiles, *, skip_damaged: bool) -> DataFrame:
    """All rows. Raises LogError where there is no file, or a damaged one that may not be skipped."""
    if files.damaged and not skip_damaged:
        path, reason = next(iter(files.damaged.items()))
        raise LogError(f"{len(files.damaged)} damaged file(s), the first {path}: {reason}")
    if not files.good:
        raise LogError("no log of this date")
    rows = spark.read.schema(_SCHEMA).parquet(*files.good)
    return rows.select(
        *(
            f.col(column.name)
            if column.default is None
            else f.coalesce(f.col(column.name), f.lit(column.default)).alias(column.name)
            for column in ROLLUP_COLUMNS
        )
    )
