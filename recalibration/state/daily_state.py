"""The windows of one date → the state of its day: per kind, entity and proxy, a histogram of rates.

    one row per kind, entity, proxy and window → one per bucket → one per kind, entity and proxy

A histogram lies in one row, as an array in ascending order: later nights find a day's percentile by going
through it once (day_figures.py), without sorting anything.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from sluice.recalibration.policy.plan import POOLED
from sluice.recalibration.state.buckets import bucket_sql

SCHEMA: Final = (
    "kind STRING, entity STRING, proxy STRING,"
    " buckets ARRAY<STRUCT<bucket: INT, free: INT, throttled: INT, inflated: INT>>"
)


_COUNTS: Final = ("free", "throttled", "inflated")


def daily_state(windows: DataFrame, names: DataFrame) -> DataFrame:
    """The columns of SCHEMA; `windows` and `names` have those of windows.py.

    `proxy` is POOLED for all together, where an entity was seen at several: else it would be the same again.
    `free`, `throttled`, `inflated` are numbers of windows with traffic: not throttled, by the bucket of their
    rate; throttled, likewise; and those again by the bucket of their throttle-inflated rate.
    """
    # Bursts shorter than a window: what they need is not their mean.
    each = windows.selectExpr(
        "entity_id", "proxy", "window", "GREATEST(rate, COALESCE(busiest, 0D)) AS rate", "offered"
    )
    if _is_of_several(windows):
        each = each.unionByName(_pooled(each))
    told = each.selectExpr(
        "entity_id",
        "proxy",
        f"{bucket_sql('rate')} AS bucket",
        f"IF(offered IS NULL, NULL, {bucket_sql('offered')}) AS offered",
    )
    alike = told.groupBy("entity_id", "proxy", "bucket", "offered").agg(f.count("*").alias("count"))
    counted = (
        _by_bucket(alike)
        .groupBy("entity_id", "proxy", "bucket")
        .agg(*(f.sum(name).cast("int").alias(name) for name in _COUNTS))
    )
    packed = f.sort_array(f.collect_list(f.struct("bucket", *_COUNTS)))
    states = counted.groupBy("entity_id", "proxy").agg(packed.alias("buckets"))
    return states.join(f.broadcast(names), "entity_id").select("kind", "entity", "proxy", "buckets")


def _is_of_several(windows: DataFrame) -> bool:
    """Whether there is another proxy than that of the first window. What Parquet knows of its pages answers
    that for most of them, unread."""
    first = windows.select("proxy").first()
    return first is not None and not windows.where(f.col("proxy") != first.proxy).isEmpty()


def _pooled(windows: DataFrame) -> DataFrame:
    """Windows of entities that were seen at several proxies, all proxies together."""
    # Numbers and counts alone: the least and the highest name would be found by sorting.
    proxies = windows.select("entity_id", "proxy").distinct().groupBy("entity_id").count()
    several = proxies.where("count > 1").select("entity_id")
    return (
        windows.join(f.broadcast(several), "entity_id", "left_semi")
        .groupBy("entity_id", f.lit(POOLED).alias("proxy"), "window")
        .agg(
            f.sum("rate").alias("rate"),
            f.sum(f.coalesce("offered", "rate")).alias("together"),
            f.count("offered").alias("throttled"),
        )
        .selectExpr("entity_id", "proxy", "window", "rate", "IF(throttled > 0, together, NULL) AS offered")
    )


def _by_bucket(alike: DataFrame) -> DataFrame:
    """Each window counts once by its rate, and again by its inflated rate if it was throttled."""
    wide = alike.selectExpr(
        "entity_id",
        "proxy",
        "bucket",
        "offered",
        "IF(offered IS NULL, count, 0L) AS free",
        "IF(offered IS NULL, 0L, count) AS throttled",
        "0L AS none",
    )
    return alike.sparkSession.sql(
        "SELECT entity_id, proxy, counted AS bucket, free, throttled, inflated FROM {wide}"
        " UNPIVOT INCLUDE NULLS ((counted, free, throttled, inflated) FOR part IN"
        " ((bucket, free, throttled, none) AS rate, (offered, none, none, throttled) AS offered))"
        " WHERE counted IS NOT NULL",
        wide=wide,
    )
