"""The roll-up of one date → the state of its day: per kind, entity and proxy, a histogram of rates.

    raw rows → one row per kind, (user, client id) and window → one per entity and window → one per bucket

Only DataFrame and SQL functions; the rules by which an entity is found are the proxy's own (QuotaLimits),
asked once for each pair of user and client id that occurs, and joined. The state is all that later nights
read.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

from sluice.quotas.entity_key import key_of_address, key_of_client
from sluice.quotas.kinds import KINDS, QuotaKind, Scope
from sluice.quotas.limits import QuotaLimits
from sluice.recalibration.buckets import bucket_sql
from sluice.recalibration.measures import MEASURES, Measure
from sluice.recalibration.plan import POOLED

INFLATION_MAX: Final = 10.0
"""a window that was throttled nearly throughout says that more was wanted, not ten thousand times more"""
_PAIRS: Final = StructType(
    [
        StructField(name, StringType(), nullable=False)
        for name in ("kind", "user", "client_id", "address", "entity")
    ]
)


def daily_state(rollup: DataFrame, limits: QuotaLimits) -> DataFrame:
    """Columns: kind, entity (entity_key.py), proxy (POOLED: of all), bucket, free, throttled, inflated.

    The last three are numbers of windows with traffic: not throttled, by the bucket of their rate; throttled,
    likewise; and those again by the bucket of their throttle-inflated rate.
    """
    usage = _usage(rollup).cache()
    try:
        entities = _entities(rollup.sparkSession, usage, limits)
        charged = usage.join(f.broadcast(entities), ["kind", "user", "client_id", "address"])
        by_proxy = _windows(charged, "proxy")
        pooled = _windows(charged.withColumn("proxy", f.lit(POOLED)), "proxy")
        return _histograms(by_proxy.unionByName(pooled)).localCheckpoint()
    finally:
        usage.unpersist()


def _usage(rollup: DataFrame) -> DataFrame:
    """(kind, user, client_id, address, proxy, window) → amount, throttled, throttle_ms, connections."""
    return reduce(DataFrame.unionByName, (_usage_of(rollup, measure) for measure in MEASURES.values()))


def _usage_of(rollup: DataFrame, measure: Measure) -> DataFrame:
    return (
        rollup.where(measure.rows)
        .groupBy(
            f.lit(measure.kind.value).alias("kind"),
            "user",
            "client_id",
            "address",
            "proxy",
            f.expr(f"window_start_ms DIV {measure.window_ms}").alias("window"),
        )
        .agg(
            f.expr(f"SUM({measure.amount})").alias("amount"),
            f.expr(f"MAX({measure.throttled})").alias("throttled"),
            f.sum("throttle_ms").alias("throttle_ms"),
            f.sum("connections").alias("connections"),
        )
    )


def _entities(spark: SparkSession, usage: DataFrame, limits: QuotaLimits) -> DataFrame:
    """(kind, user, client_id, address) → entity, by the proxy's own precedence; who has no limit has none."""
    found = usage.select("kind", "user", "client_id", "address").distinct().collect()
    return spark.createDataFrame(list(_resolved(found, limits)), _PAIRS)


def _resolved(
    pairs: Iterable[tuple[str, str, str, str]], limits: QuotaLimits
) -> Iterable[tuple[str, str, str, str, str]]:
    for name, user, client_id, address in pairs:
        kind = QuotaKind(name)
        if KINDS[kind].scope is Scope.IPS:
            key = key_of_address(limits, address)
        else:
            key = key_of_client(limits, kind, user, client_id)
        if key is not None:
            yield name, user, client_id, address, key


def _windows(charged: DataFrame, proxy: str) -> DataFrame:
    """(kind, entity, proxy, window) → rate and inflated rate in units per second, throttled."""
    spans = f.create_map(
        *(part for kind, each in MEASURES.items() for part in (f.lit(kind.value), f.lit(each.window_ms)))
    )
    whole = charged.groupBy("kind", "entity", proxy, "window").agg(
        f.sum("amount").alias("amount"),
        f.max("throttled").alias("throttled"),
        f.sum("throttle_ms").alias("throttle_ms"),
        f.sum("connections").alias("connections"),
    )
    share = f.col("throttle_ms") / (f.greatest(f.col("connections"), f.lit(1)) * f.col("span_ms"))
    return (
        whole.where("amount > 0")
        .withColumn("span_ms", spans[f.col("kind")])
        .withColumn("rate", f.col("amount") * 1000.0 / f.col("span_ms"))
        .withColumn("inflated", f.col("rate") / f.greatest(f.lit(1.0) - share, f.lit(1.0 / INFLATION_MAX)))
    )


def _histograms(windows: DataFrame) -> DataFrame:
    """Each window counts once by its rate, and again by its inflated rate if it was throttled."""
    by_rate = windows.select(
        "kind", "entity", "proxy",
        f.expr(bucket_sql("rate")).alias("bucket"),
        f.expr("IF(throttled, 0, 1)").alias("free"),
        f.expr("IF(throttled, 1, 0)").alias("throttled"),
        f.lit(0).alias("inflated"),
    )  # fmt: skip
    by_inflated = windows.where("throttled").select(
        "kind", "entity", "proxy",
        f.expr(bucket_sql("inflated")).alias("bucket"),
        f.lit(0).alias("free"),
        f.lit(0).alias("throttled"),
        f.lit(1).alias("inflated"),
    )  # fmt: skip
    sums = (f.sum(name).cast("int").alias(name) for name in ("free", "throttled", "inflated"))
    return by_rate.unionByName(by_inflated).groupBy("kind", "entity", "proxy", "bucket").agg(*sums)
