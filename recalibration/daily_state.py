"""The windows of one date → the state of its day: per kind, entity and proxy, a histogram of rates.

    one row per kind, entity, proxy and window → one per bucket → one per kind, entity and proxy

A histogram lies in one row, as an array in ascending order: later nights find a day's percentile by going
through it once (day_figures.py), without sorting anything.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from sluice.recalibration.buckets import bucket_sql
from sluice.recalibration.measures import MEASURES
from sluice.recalibration.plan import POOLED

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
    spans = " ".join(
        f"WHEN '{kind.value}' THEN {each.window_ms / 1000.0!r}D" for kind, each in MEASURES.items()
    )
    span_of = names.selectExpr("number", f"CASE kind {spans} END AS span_s")
    rates = windows.join(f.broadcast(span_of), "number").selectExpr(
        "number",
        "proxy",
        "window",
        "throttled",
        "amount / span_s AS rate",
        "COALESCE(offered, amount) / span_s AS offered_rate",
    )
    each = rates
    if windows.select("proxy").distinct().count() > 1:
        each = rates.unionByName(_pooled(rates, windows))
    counted = (
        _buckets(each)
        .groupBy("number", "proxy", "bucket")
        .agg(*(f.sum(name).cast("int").alias(name) for name in _COUNTS))
    )
    packed = f.sort_array(f.collect_list(f.struct("bucket", *_COUNTS)))
    states = counted.groupBy("number", "proxy").agg(packed.alias("buckets"))
    return states.join(f.broadcast(names), "number").select("kind", "entity", "proxy", "buckets")


def _pooled(rates: DataFrame, windows: DataFrame) -> DataFrame:
    """Of those that were seen at several proxies, all together."""
    # Numbers and counts alone: the least and the highest name would be found by sorting.
    proxies = windows.select("number", "proxy").distinct().groupBy("number").count()
    several = proxies.where("count > 1").select("number")
    return (
        rates.join(f.broadcast(several), "number", "left_semi")
        .groupBy("number", f.lit(POOLED).alias("proxy"), "window")
        .agg(
            f.max("throttled").alias("throttled"),
            f.sum("rate").alias("rate"),
            f.sum("offered_rate").alias("offered_rate"),
        )
    )


def _buckets(rates: DataFrame) -> DataFrame:
    """Each window counts once by its rate, and again by its inflated rate if it was throttled."""
    wide = rates.selectExpr(
        "number",
        "proxy",
        f"{bucket_sql('rate')} AS rate_bucket",
        f"IF(throttled, {bucket_sql('offered_rate')}, NULL) AS offered_bucket",
        "IF(throttled, 0, 1) AS free",
        "IF(throttled, 1, 0) AS throttled",
        "0 AS none",
    )
    return rates.sparkSession.sql(
        "SELECT * EXCEPT (part) FROM {wide}"
        " UNPIVOT INCLUDE NULLS ((bucket, free, throttled, inflated) FOR part IN"
        " ((rate_bucket, free, throttled, none) AS rate, (offered_bucket, none, none, throttled) AS offered))"
        " WHERE bucket IS NOT NULL",
        wide=wide,
    )
