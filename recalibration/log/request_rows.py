"""Request rows → rows of the roll-up's columns, for a log that has no roll-up.

One row each, not yet summed: what comes next sums by entity and window anyway, and folding by topic and
broker before would be a second shuffle of nearly as many rows. `grouped` makes the real roll-up of them.

A row of the sample stands for `weight` requests, so amounts and times are multiplied by it: sums come out
right in the mean; peaks of rarely seen clients are too jagged, for which there is no cure. What request
rows do not tell stays zero: cost in broker threads, partitions created, connections opened. A delayed
request counts as a connection of its own, so that throttle-inflated rates come out low rather than high.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from sluice.quotas.kinds import CLIENT_KINDS
from sluice.usage.access_record import ROLLUP_COLUMNS, WINDOW_MS, Column, ColumnType
from sluice.usage.flow import REFUSED

_PRODUCE: Final = 0
_FETCH: Final = 1
_SHARE_FETCH: Final = 78
_LIMITS_IN_FORCE: Final = tuple(spec.config_key for spec in CLIENT_KINDS)
_REFUSED: Final = f"why = '{REFUSED}'"
_FOR_IDS: Final = f"IF({_REFUSED} AND api_key = {_PRODUCE} AND rule = '', weight, 0)"
"""for bytes it would have the rule of their limit"""
_KEPT: Final = ("proxy", "broker", "user", "client_id")
_TOLD: Final = {
    "window_start_ms": f"finished_ms - finished_ms % {WINDOW_MS}",
    **{name: name for name in _KEPT},
    "topic": "topic",
    "api_class": f"CASE WHEN api_key = {_PRODUCE} THEN 'produce'"
    f" WHEN api_key IN ({_FETCH}, {_SHARE_FETCH}) THEN 'fetch' ELSE 'other' END",
    "requests": "weight",
    "request_bytes": f"IF({_REFUSED} AND api_key = {_PRODUCE}, 0, request_bytes * weight)",
    "response_bytes": "response_bytes * weight",
    "upstream_ms": "upstream_ms * weight",
    "held_ms": "held_ms * weight",
    "throttle_ms": "throttle_ms * weight",
    "connections": "weight",
    "holds": "IF(held_ms > 0, weight, 0)",
    "mutes": "IF(throttle_ms > held_ms, weight, 0)",
    "refusals": f"IF({_REFUSED}, weight, 0)",
    "producer_ids_refused": _FOR_IDS,
    "producer_id_holds": f"IF(held_ms > 0, {_FOR_IDS}, 0)",
    "producer_ids_new": "IF(why = 'producer_id', weight, 0)",
}
"""column of the roll-up → SQL over a request row"""
_BY: Final = ("window_start_ms", *_KEPT, "address", "api_class", "topic")


def as_rollup(requests: DataFrame) -> DataFrame:
    """The columns of the roll-up; see above for what is not in them."""
    return requests.selectExpr(*(_expression(column) for column in ROLLUP_COLUMNS))


def grouped(rows: DataFrame) -> DataFrame:
    """One row per window, proxy, broker, user, client id, API class and topic, as the proxy writes them."""
    sums = [column for column in ROLLUP_COLUMNS if column.name not in _BY]
    return rows.groupBy(*_BY).agg(*(_total(column) for column in sums)).select(*rows.columns)


def _expression(column: Column) -> str:
    zero = "''" if column.type is ColumnType.TEXT else "0"
    told = _TOLD.get(column.name, "NULL" if column.name in _LIMITS_IN_FORCE else zero)
    return f"CAST({told} AS {column.type.value.upper()}) AS {column.name}"


def _total(column: Column) -> SparkColumn:
    if column.name in _LIMITS_IN_FORCE or column.name == "peak_bytes_1s":
        return f.max(column.name).alias(column.name)
    return f.sum(column.name).cast(column.type.value).alias(column.name)
