"""What-if: the windows of the last days against two limits, the one in force and the one proposed.

*Rates.* A limit of c units per window of W seconds, a burst of B units, a_n units in window n. The debt d of
the proxy's token bucket (quotas/sensors/smooth.py) is at least −B, when it is full:
    d_n = max(−B, d_{n−1} + a_n − c),  d_0 = −B        and something waits while d > 0.
With y = d + B this is Lindley's recursion of a queue, y_n = max(0, y_{n−1} + a_n − c), y_0 = 0, whose
solution needs no loop: with S_n = Σ_{j ≤ n} (a_j − c),
    y_n = S_n − min(0, min_{k ≤ n} S_k)
for after the last k at which y was 0 it has only added up, and before that S was nowhere lower. Sum and
running minimum are window functions of SQL. Windows without traffic are no rows: between two rows S only
falls, by c for each window, so the minimum need be looked for just before each row:
    S⁻_n = S_n − (a_n − c),      y before row n = S⁻_n − min(0, min_{k ≤ n} S⁻_k).
Within a window a_n comes evenly, so y goes in a straight line from y before to max(0, y before + a_n − c);
the seconds in which it is above B are a share of W. In a gap behind it y falls by c per window.

Worked example, W = 10 s, c = 10, B = 1, a = 10, 30, 4, then two empty windows, 2:
    y before: 0, 0, 20, (14, 4), 0;  after: 0, 20, 14, (4, 0), 0
    seconds above 1: 0; 10 · 19/20 = 9.5; 10; then from 14 at 1 a second: 13 in the gap; 0: 32.5 s in all.
The proxy forgives a debt above a minute and a real client that waits asks for less; neither is in this: what
comes out is an upper bound for who is throttled for long, and close for who is throttled at times.

*Producer ids* are refused, not queued, so that there is a bound above as well: tokens T_n, capacity B, r a
window, T_n = min(B, max(0, T_{n−1} + r − a_n)), refused are max(0, a_n − r − T_{n−1}). Two bounds have no
running minimum; but there are 168 hours in a week, and SQL's AGGREGATE goes through them one by one.
Worked example, r = B = 10: 25, 0, 15 in three hours: refused 5 (10 were there, 10 came), 0, 0; left 0, 10, 5.

A throttled window hides what was wanted. What is replayed of it is its throttle-inflated amount, but at most
twice what passed: the same bound as in demand.py. Every limit holds at each proxy by itself; their seconds
are added up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from sluice.quotas.kinds import KINDS, QuotaKind
from sluice.recalibration.policy.demand import TOP_FACTOR
from sluice.recalibration.policy.plan import Expected
from sluice.recalibration.spark.local_frame import DOUBLE, INT, LONG, local_frame
from sluice.recalibration.state.measures import MEASURES
from sluice.recalibration.state.windows import entity_id

SECONDS_OF_A_DAY: Final = 86_400
_REPLAYED: Final = f"span_s * LEAST(COALESCE(offered, rate), {TOP_FACTOR!r}D * rate)"
_EACH: Final = "PARTITION BY number, proxy ORDER BY window"
_SIDES: Final = ("now", "proposed")
_EXACT: Final = "decimal(28,6)"
"""seconds or ids of a window, to a millionth"""


@dataclass(frozen=True, slots=True)
class Replayed:
    """One limit and what it is to be, in the unit of its key."""

    kind: QuotaKind
    entity: str
    now: float
    proposed: float


def replay(
    windows: DataFrame,
    limits: Iterable[Replayed],
    latest: date,
    *,
    burst_s: float = 1.0,
    burst_h: float = 1.0,
) -> dict[tuple[QuotaKind, str], Expected]:
    """What each of `limits` would have met; who has no windows is left out.

    `windows`: state/windows.py's columns and `date`, of the dates to replay, `latest` the last of them.
    `burst_s`: of the rates, `burst_h` of producer ids, as the proxy is configured.
    """
    wanted = list(limits)
    found: dict[tuple[QuotaKind, str], Expected] = {}
    for is_ids, burst in ((False, burst_s), (True, burst_h)):
        own = {
            number: each
            for number, each in enumerate(wanted)
            if (each.kind is QuotaKind.PRODUCER_IDS) == is_ids
        }
        if own:
            used = _used(windows, own)
            sums = refused(used, latest, burst) if is_ids else waiting(used, latest, burst)
            for number, *seconds in sums.collect():
                found[wanted[number].kind, wanted[number].entity] = Expected(*seconds)
    return found


def _used(windows: DataFrame, asked: Mapping[int, Replayed]) -> DataFrame:
    """Windows of those asked for: their number, what counts of each window, and what they may use.

    `now`, `proposed`: units a window.
    """
    rows = []
    for number, each in asked.items():
        span_s = MEASURES[each.kind].window_ms / 1000.0
        spans = span_s / KINDS[each.kind].limit_span_s
        key = entity_id(each.kind, each.entity)
        rows.append((key, number, span_s, each.now * spans, each.proposed * spans))
    columns = {"entity_id": LONG, "number": INT} | dict.fromkeys(("span_s", *_SIDES), DOUBLE)
    limits = local_frame(windows.sparkSession, columns, rows)
    joined = windows.join(f.broadcast(limits), "entity_id")
    return joined.selectExpr(
        "number", "proxy", "date", "window", "span_s", "now", "proposed", f"{_REPLAYED} AS used"
    )


def waiting(used: DataFrame, latest: date, burst_s: float) -> DataFrame:
    """(number, day_now, day_proposed, week_now, week_proposed): seconds in which something waits."""
    placed = used.selectExpr(
        "*",
        f"SUM(used) OVER ({_EACH} ROWS UNBOUNDED PRECEDING) - used AS used_before",
        "window - MIN(window) OVER (PARTITION BY number, proxy) AS windows_before",
        # The last one drains until its date ends.
        f"COALESCE(LEAD(window) OVER ({_EACH}), {_end_window(latest)}) - window - 1 AS gap",
    )
    below = placed.selectExpr("*", *(f"used_before - {side} * windows_before AS s_{side}" for side in _SIDES))
    before = below.selectExpr(
        "*",
        *(
            f"s_{side} - LEAST(0D, MIN(s_{side}) OVER ({_EACH} ROWS UNBOUNDED PRECEDING)) AS y_{side}"
            for side in _SIDES
        ),
    )
    after = before.selectExpr(
        "*",
        *(f"GREATEST(0D, y_{side} + used - {side}) AS z_{side}" for side in _SIDES),
        *(f"{side} * {burst_s!r}D / span_s AS b_{side}" for side in _SIDES),
    )
    seconds = after.selectExpr("number", "date", *(f"{_seconds(side)} AS {side}" for side in _SIDES))
    return _summed(seconds, latest)


def _seconds(side: str) -> str:
    """Above the burst within the window, and in the gap behind it."""
    y, z, b = (f"{name}_{side}" for name in "yzb")
    within = (
        f"CASE WHEN {y} > {b} AND {z} > {b} THEN 1D"
        f" WHEN {z} > {b} THEN ({z} - {b}) / ({z} - {y})"
        f" WHEN {y} > {b} THEN ({y} - {b}) / ({side} - used)"
        " ELSE 0D END"
    )
    return f"span_s * ({within} + LEAST(CAST(gap AS DOUBLE), GREATEST(0D, {z} - {b}) / {side}))"


def refused(used: DataFrame, latest: date, burst_h: float) -> DataFrame:
    """The same columns of producer ids: how many are refused."""
    packed = used.groupBy("number", "proxy", "now", "proposed").agg(
        f.sort_array(f.collect_list(f.struct("window", "used", "date"))).alias("hours")
    )
    counted = packed.selectExpr(
        "number", "hours.date AS dates", *(f"{_refused_by_hour(side, burst_h)} AS {side}" for side in _SIDES)
    ).selectExpr("number", "EXPLODE(ARRAYS_ZIP(dates, now, proposed)) AS hour")
    hours = counted.selectExpr("number", "hour.dates AS date", *(f"hour.{side}" for side in _SIDES))
    return _summed(hours, latest)


def _refused_by_hour(side: str, burst_h: float) -> str:
    """An array beside `hours`: how many ids of each are refused."""
    capacity = f"GREATEST({side} * {burst_h!r}D, 1D)"
    # What was left, and what came since: a full hour's refill for each hour without a new id.
    here = f"LEAST({capacity}, a.tokens + {side} * (h.window - a.window - 1))"
    start = (
        f"NAMED_STRUCT('tokens', {capacity}, 'window', hours[0].window - 1,"
        " 'refused', CAST(ARRAY() AS ARRAY<DOUBLE>))"
    )
    step = (
        "NAMED_STRUCT("
        f"'tokens', LEAST({capacity}, GREATEST(0D, {here} + {side} - h.used)),"
        " 'window', h.window,"
        f" 'refused', ARRAY_APPEND(a.refused, GREATEST(0D, h.used - {side} - {here})))"
    )
    return f"AGGREGATE(hours, {start}, (a, h) -> {step}, a -> a.refused)"


def _summed(rows: DataFrame, latest: date) -> DataFrame:
    """Sums by number, in decimals: a sum of floats depends on their order, and so on who read which file."""
    is_latest = f.col("date") == f.lit(latest)
    exact = {side: f.col(side).cast(_EXACT) for side in _SIDES}
    return rows.groupBy("number").agg(
        *(
            f.sum(f.when(is_latest, exact[side]).otherwise(0)).cast("double").alias(f"day_{side}")
            for side in _SIDES
        ),
        *(f.sum(exact[side]).cast("double").alias(f"week_{side}") for side in _SIDES),
    )


def _end_window(latest: date) -> str:
    """The number of the first window after `latest`."""
    days = (latest - date(1970, 1, 1)).days + 1
    return f"CAST({days * SECONDS_OF_A_DAY}D / span_s AS BIGINT)"
