"""A day's histogram → what a plan needs of it, in Spark SQL: how many windows, and the percentile where it is
known.

policy/demand.py's Kaplan–Meier estimate as a fold over the array: most days of most entities are never
throttled, or not at their peaks; they leave Spark as four numbers instead of as fifty buckets. Where a day's
percentile is not known, the plan asks for the whole histograms of its entity, and policy/demand.py has the
word. Both multiply the same doubles in the same order: the bucket is the same to the last window.

Worked example (policy/demand.py's): windows 98 at bucket a, 1 throttled at b, 1 at c, quantile 0.99:
    a: 100 at risk, S = 1 − 98/100 = 0.02      b: 2 at risk, S stays      c: 1 at risk, S = 0: found c
"""

from __future__ import annotations

from sluice.recalibration.policy.demand import MOST_THROTTLED

_ROUNDING = 1e-12
"""what rounding leaves of 1 − 0.99; as in policy/demand.py"""


def totals_sql(buckets: str) -> str:
    """All windows with traffic, and those in which something was throttled: a struct (windows, throttled)."""
    return (
        f"AGGREGATE({buckets}, NAMED_STRUCT('windows', 0, 'throttled', 0), (sum, b) -> NAMED_STRUCT("
        "'windows', sum.windows + b.free + b.throttled, 'throttled', sum.throttled + b.throttled))"
    )


def top_sql(buckets: str) -> str:
    """The highest bucket, of rates and throttle-inflated rates alike."""
    return f"ELEMENT_AT({buckets}, -1).bucket"


def quantile_sql(buckets: str, totals: str, quantile: float) -> str:
    """The bucket of the percentile of the demand; null: not known. `buckets`: ascending, not empty; `totals`:
    a column that has theirs.

    Spark interprets a fold, node by node: S is reckoned once for each bucket, and looked at in the next step.
    """
    beyond = 1.0 - quantile + _ROUNDING
    last = f"COALESCE(a.found, IF(a.s <= {beyond!r}D, a.last, NULL))"
    found = (
        f"AGGREGATE({buckets},"
        f" NAMED_STRUCT('at_risk', CAST({totals}.windows AS DOUBLE), 's', 1D,"
        " 'last', CAST(NULL AS INT), 'found', CAST(NULL AS INT)),"
        " (a, b) -> NAMED_STRUCT('at_risk', a.at_risk - b.free - b.throttled,"
        " 's', IF(b.free > 0, a.s * (1D - b.free / a.at_risk), a.s),"
        f" 'last', IF(b.free > 0, b.bucket, a.last), 'found', {last}),"
        f" a -> {last})"
    )
    return f"IF({totals}.throttled / {totals}.windows <= {MOST_THROTTLED!r}D, {found}, NULL)"
