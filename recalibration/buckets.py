"""Exponential buckets of rates: what a day's log is folded into, however long it is.

Bucket i ≥ 1 holds the rates in (G^(i−1), G^i], G = 1.05; bucket 0 those up to 1 unit per second. So
    bucket_of(rate) = ceil(ln rate / ln G)         and its representative is the geometric middle G^(i−½),
which is off by at most √G = 2.5 %. 20 decades of rates fit into 945 buckets; a day of one entity touches few.

Worked example: 1,000 B/s: ln 1000 / ln 1.05 = 141.58, bucket 142, whose middle is 1,045·√(1/1.05)… = 996.5.
The same formula stands in SQL in the Spark job (`bucket_sql`), so that both agree to the last window.
"""

from __future__ import annotations

from math import ceil, log
from typing import Final

GROWTH: Final = 1.05
_LN_GROWTH: Final = log(GROWTH)


def bucket_of(rate: float) -> int:
    """The bucket of a rate ≥ 0, in any unit per second."""
    return ceil(log(rate) / _LN_GROWTH) if rate > 1.0 else 0


def middle(bucket: int) -> float:
    """The rate that stands for a bucket."""
    return GROWTH ** (bucket - 0.5) if bucket else 1.0


def upper_edge(bucket: int) -> float:
    """The largest rate of a bucket."""
    return GROWTH**bucket
