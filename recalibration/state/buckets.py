"""Exponential buckets of rates: what a day's log is folded into, however long it is.

Rates are taken in millionths of a unit per second, for a quota of one producer id an hour is one of 278 such,
and one of 10 GB/s of 10¹⁶. Bucket i ≥ 1 holds the rates in (G^(i−1), G^i] of these, G = 1.05; bucket 0 the
rest. So
    bucket_of(rate) = ceil(ln(10⁶·rate) / ln G)        and its representative is the geometric middle G^(i−½),
which is off by at most √G = 2.5 %. No kind's rates need more than 900 buckets; a day of one entity touches
few.

Worked example, 1,000 B/s: ln 10⁹ / ln 1.05 = 424.7: bucket 425, whose middle is 1.05^424.5 = 9.88·10⁸ or 988.
`bucket_sql` is the same formula for the Spark job, so that both agree to the last window.
"""

from __future__ import annotations

from math import ceil, log
from typing import Final

GROWTH: Final = 1.05
SCALE: Final = 1e6
"""parts of a unit"""
_LN_GROWTH: Final = log(GROWTH)


def bucket_of(rate: float) -> int:
    """The bucket of a rate ≥ 0, in a kind's units per second."""
    parts = rate * SCALE
    return ceil(log(parts) / _LN_GROWTH) if parts > 1.0 else 0


def bucket_sql(rate: str) -> str:
    """The same as a Spark SQL expression over the expression `rate`."""
    parts = f"(({rate}) * {SCALE:.1f}D)"
    return f"CAST(CASE WHEN {parts} > 1 THEN CEIL(LN({parts}) / {_LN_GROWTH!r}D) ELSE 0 END AS INT)"


def middle(bucket: int) -> float:
    """The rate that stands for a bucket, in units per second."""
    return GROWTH ** (bucket - 0.5) / SCALE if bucket else 1.0 / SCALE


def upper_edge(bucket: int) -> float:
    """The largest rate of a bucket, in units per second."""
    return GROWTH**bucket / SCALE
