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


def windows_sql(buckets: str) -> str:
    """All windows with traffic."""
    return f"AGGREGATE({buckets}, 0, (sum, b) -> sum + b.free + b.throttled)"


def throttled_sql(buckets: str) -> str:
    """Those in which something was throttled."""
    return f"AGGREGATE({buckets}, 0, (sum, b) -> sum + b.throttled)"


def top_sql(buckets: str) -> str:
    """The highest bucket, of rates and throttle-inflated rates alike."""
    return f"ELEMENT_AT({buckets}, -1).bucket"


def quantile_sql(buckets: str, quantile: float) -> str:
    """The bucket of the percentile of the demand; null: not known. `buckets`: ascending, not empty."""
    beyond = 1.0 - quantile + _ROUNDING
    after = "a.s * (1D - b.free / a.at_risk)"
    found = (
        f"AGGREGATE({buckets},"
        f" NAMED_STRUCT('at_risk', CAST({windows_sql(buckets)} AS DOUBLE), 's', 1D,"
        " 'found', CAST(NULL AS INT)),"
        " (a, b) -> NAMED_STRUCT('at_risk', a.at_risk - b.free - b.throttled,"
        f" 's', IF(b.free > 0, {after}, a.s),"
        f" 'found', COALESCE(a.found, IF(b.free > 0, IF({after} <= {beyond!r}D, b.bucket, NULL), NULL))),"
        " a -> a.found)"
    )
    share = f"{throttled_sql(buckets)} / {windows_sql(buckets)}"
    return f"IF({share} <= {MOST_THROTTLED!r}D, {found}, NULL)"
