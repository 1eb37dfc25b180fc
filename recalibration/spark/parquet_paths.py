"""Parquet by the paths that somebody gave, as they are, whatever is in their names.

Spark takes `[ ] { } * ? \\` in a path for a pattern. Its own option against that reads *all* paths once more
for each path that has one (DataSource.checkAndGlobPathIfNecessary), so they are escaped instead; that costs
a look-up for each such path, and nothing for others. Hadoop cannot look up a pattern with a colon in one of
its names, nor open a file of this machine with one where it looks for a checksum beside it: the former are
read one by one, the latter without looking.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, DataFrameReader, SparkSession

_PATTERN: Final = re.compile(r"[\[\]{}*?\\]")
_SCHEME: Final = re.compile(r"^\w+://")
_AS_IT_IS: Final = {"__globPaths__": "false"}
"""Spark's own option for the paths of its tables (DataSource.GLOB_PATHS_KEY); right for one path"""
_NO_CHECKSUMS: Final = {
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",  # else the one that all others use, which looks for them
}


def read_parquet(
    spark: SparkSession, paths: Sequence[str], schema: str, base: str | None = None
) -> DataFrame:
    """The rows of files or folders, each once, with the columns of `schema`. `base`: below it, names such as
    `date=…` are columns."""
    has_colon = any(map(_has_colon, paths))

    def reader() -> DataFrameReader:
        found = spark.read.schema(schema)
        if has_colon:
            found = found.options(**_NO_CHECKSUMS)
        return found if base is None else found.option("basePath", base)

    alone = {path for path in paths if _PATTERN.search(path) and _has_colon(path)}
    frames = [reader().options(**_AS_IT_IS).parquet(path) for path in sorted(alone)]
    others = [path for path in paths if path not in alone]
    if others:
        frames.append(reader().parquet(*(_PATTERN.sub(r"\\\g<0>", path) for path in others)))
    while len(frames) > 1:  # by halves: a chain of thousands is gone through at each link
        frames = [_both(frames[at : at + 2]) for at in range(0, len(frames), 2)]
    return frames[0]


def _has_colon(path: str) -> bool:
    return ":" in _SCHEME.sub("", path)


def _both(frames: Sequence[DataFrame]) -> DataFrame:
    return frames[0] if len(frames) == 1 else frames[0].union(frames[1])
