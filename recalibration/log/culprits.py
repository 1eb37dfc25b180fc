"""A night that failed over a date's log → the files that are to blame, which may be left out.

What a file's end does not show: a page in its middle is damaged, or holds a number beyond all reason. Of some
damage Spark tells the file; of some, as of an index beyond a dictionary, it tells nothing but that. Then each
file is read by itself, by pyarrow, which is quick; and if that finds none, by Spark, by halves.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from sluice.recalibration.log.reader import (
    UNREADABLE,
    LogFiles,
    LogFolder,
    path_of,
    read_table,
    unreadable_file,
)
from sluice.recalibration.log.reason import BeyondReasonError, beyond_sql
from sluice.usage.access_record import TABLES

_AT_ONCE: Final = 8
_TOO_LARGE: Final = ("ARITHMETIC_OVERFLOW", "CAST_OVERFLOW")


def culprits(spark: SparkSession, logs: str, files: LogFiles, error: Exception) -> dict[str, str]:
    """Path → what is wrong with it; empty: no file of the log is to blame for `error`."""
    if isinstance(error, BeyondReasonError) or any(name in str(error) for name in _TOO_LARGE):
        try:
            found = files_beyond_reason(spark, files)
        except Exception as other:  # it reads them all, and one may be damaged as well
            return _damaged(spark, logs, files, other)
        if found:
            return found
    elif not isinstance(error, (PySparkException, Py4JError)):
        return {}
    return _damaged(spark, logs, files, error)


def _damaged(spark: SparkSession, logs: str, files: LogFiles, error: Exception) -> dict[str, str]:
    told = unreadable_file(error)
    if told:
        return {path: reason for path, reason in told.items() if path in files.good}
    damaged = _unread_by_arrow(LogFolder.of(logs), files)
    if not damaged and _works(spark):
        damaged = _unread_by_spark(spark, files, files.good)
    return dict.fromkeys(damaged, UNREADABLE)


def files_beyond_reason(spark: SparkSession, files: LogFiles) -> dict[str, str]:
    """The files with such numbers, and which column has one."""
    rows = read_table(spark, files, skip_damaged=True).selectExpr(
        "INPUT_FILE_NAME() AS path", f"{beyond_sql(files.table)} AS name"
    )
    found = rows.where("name IS NOT NULL").groupBy("path").agg(f.min("name")).collect()
    return {path_of(path): f"a number in its column {name} is beyond all reason" for path, name in found}


def _unread_by_arrow(folder: LogFolder, files: LogFiles) -> list[str]:
    wanted = {column.name for column in TABLES[files.table]}

    def is_readable(path: str) -> bool:
        return folder.is_readable(path.removeprefix(folder.scheme), wanted)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return [
            path
            for path, is_it in zip(files.good, pool.map(is_readable, files.good), strict=True)
            if not is_it
        ]


def _unread_by_spark(spark: SparkSession, files: LogFiles, paths: Sequence[str]) -> list[str]:
    part = replace(files, good=list(paths), damaged={})
    try:
        rows = read_table(spark, part, skip_damaged=True)
        rows.agg(f.max(f.xxhash64(*rows.columns))).collect()
    except (PySparkException, Py4JError):
        if len(paths) == 1:
            return list(paths)
        middle = len(paths) // 2
        return [
            *_unread_by_spark(spark, files, paths[:middle]),
            *_unread_by_spark(spark, files, paths[middle:]),
        ]
    return []


def _works(spark: SparkSession) -> bool:
    """Else no file is to blame: its Java has died, or its disk is full."""
    try:
        spark.range(2).repartition(2).count()
    except (PySparkException, Py4JError):
        return False
    return True
