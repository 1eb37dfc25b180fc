"""Rows that this process has → a DataFrame, by way of Arrow.

What Spark makes of a list of tuples is read by Python workers on its executors: they would need a Python, and
a second each to start. What it makes of an Arrow table lies in the JVM.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

TEXT: Final = pa.string()
INT: Final = pa.int32()
LONG: Final = pa.int64()
DOUBLE: Final = pa.float64()


def local_frame(
    spark: SparkSession, columns: Mapping[str, pa.DataType], rows: Iterable[tuple[Any, ...]]
) -> DataFrame:
    """`columns`: name → type, in the order of a row's values; None is null."""
    values = list(zip(*rows, strict=True)) or [()] * len(columns)
    arrays = [pa.array(each, kind) for each, kind in zip(values, columns.values(), strict=True)]
    return spark.createDataFrame(pa.table(arrays, names=list(columns)))
