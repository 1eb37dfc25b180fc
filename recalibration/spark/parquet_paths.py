"""Parquet by the paths that somebody gave, as they are: Spark takes `[ ] { } * ?` in a path for a pattern."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession

_PATTERN: Final = re.compile(r"[\[\]{}*?\\]")
_AS_THEY_ARE: Final = {"__globPaths__": "false"}
"""Spark's own option for the paths of its tables (DataSource.GLOB_PATHS_KEY, since 3.0)"""


def read_parquet(
    spark: SparkSession, paths: Sequence[str], schema: str, base: str | None = None
) -> DataFrame:
    """The rows of files or folders, with the columns of `schema`. `base`: below it, names such as `date=…`
    are columns."""
    reader = spark.read.schema(schema)
    if any(map(_PATTERN.search, paths)):
        reader = reader.options(**_AS_THEY_ARE)
    if base is not None:
        reader = reader.option("basePath", base)
    return reader.parquet(*paths)
