"""How much work a proxy finds each time that it wakes up, and ratios between proxies that found as much.

The price of a wake-up is part of what a request costs, and a faster proxy wakes up more often: it then has
paid more for the same work. So a ratio of costs says most where both woke up alike. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from bench.cost.cases import CaseResult
from bench.lib.load import Measured
from bench.lib.stats import Spread, median, spread

EQUAL: Final = 0.1
"""By so much may the two of a pair differ."""
MIN_PAIRS: Final = 3


def requests_per_wakeup(measured: Measured) -> float:
    """In one repeat."""
    return measured.requests / max(measured.wakeups, 1)


def medians(result: CaseResult, names: Sequence[str]) -> Mapping[str, float]:
    """By proxy, over the rounds."""
    return {name: round(median([requests_per_wakeup(m) for m in result.samples[name]]), 2) for name in names}


def equal_ratio(result: CaseResult, ours: str, theirs: str) -> Spread | None:
    """Of the pairs alone in which both found about as much at each wake-up; None where these are too few."""
    case = result.case
    ratios = []
    for one, other in zip(result.samples[ours], result.samples[theirs], strict=True):
        if abs(requests_per_wakeup(one) / requests_per_wakeup(other) - 1.0) <= EQUAL:
            ratios.append(case.cost(one) / case.cost(other))
    return spread(ratios) if len(ratios) >= MIN_PAIRS else None
