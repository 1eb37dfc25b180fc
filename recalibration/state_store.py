"""Where the states of days lie between nights: `STATE/date=YYYY-MM-DD/`, one partition a date, as Parquet.

A date that is run again overwrites its partition and no other; late files of a day are taken in that way.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from sluice.recalibration.demand import DayState
from sluice.recalibration.plan import EntityDay

_SCHEMA = (
    "kind STRING, entity STRING, proxy STRING, bucket INT, free INT, throttled INT, inflated INT, date DATE"
)


def write_state(state: DataFrame, folder: str, day: date) -> None:
    """Atomically for readers of whole partitions: Spark writes beside it and renames."""
    (
        state.withColumn("date", f.lit(day))
        .repartition(1)
        .sortWithinPartitions("kind", "entity", "proxy", "bucket")
        .write.mode("overwrite")
        .option("partitionOverwriteMode", "dynamic")
        .partitionBy("date")
        .parquet(folder)
    )


def read_states(
    spark: SparkSession, folder: str, latest: date, days: int
) -> Iterator[tuple[str, str, list[EntityDay]]]:
    """(kind, entity, its days) of the last `days` dates up to `latest`, entity by entity."""
    first = latest - timedelta(days=days - 1)
    try:
        rows = spark.read.schema(_SCHEMA).parquet(folder)
    except AnalysisException:
        return
    packed = (
        rows.where(f.col("date").between(f.lit(first), f.lit(latest)))
        .groupBy("kind", "entity", "proxy", "date")
        .agg(f.collect_list(f.struct("bucket", "free", "throttled", "inflated")).alias("buckets"))
        .groupBy("kind", "entity")
        .agg(f.collect_list(f.struct("proxy", "date", "buckets")).alias("days"))
        .orderBy("kind", "entity")
    )
    for kind, entity, its_days in packed.toLocalIterator(prefetchPartitions=True):
        yield (
            kind,
            entity,
            [EntityDay(proxy, (latest - day).days, _state(buckets)) for proxy, day, buckets in its_days],
        )


def _state(buckets: list[tuple[int, int, int, int]]) -> DayState:
    return DayState(
        free={bucket: free for bucket, free, _, _ in buckets if free},
        throttled={bucket: throttled for bucket, _, throttled, _ in buckets if throttled},
        inflated={bucket: inflated for bucket, _, _, inflated in buckets if inflated},
    )
