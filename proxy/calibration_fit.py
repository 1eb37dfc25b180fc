"""Measured loads → coefficients that are not negative, and how far they are from what was measured. Pure.

Each load is one kind of request, measured as ms of broker threads a request. Its fit makes the sum of the
squares of the *relative* errors small, so that a cheap request counts as much as a dear one:

    minimise Σ ((x · c − y) / y)²   over c ≥ 0,   x = (1, request bytes, response bytes, batches, records)

by moving one coefficient at a time to its best value, or to 0 where that is negative, until nothing moves:
the problem is convex, so it ends at the smallest sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, NamedTuple

from sluice.quotas.request_cost import Coefficients

_ROUNDS: Final = 20_000
_SETTLED: Final = 1e-12


class Kind(NamedTuple):
    """What a row of the cost file is for."""

    api: str
    compression: str | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """One load of requests that are alike."""

    kind: Kind
    name: str
    request_bytes: int
    response_bytes: float
    batches: int
    records: int
    cost_ms: float
    """broker threads, a request"""
    upstream_ms: float
    """from request to answer, in the mean"""
    paced: bool = False
    """with a pause behind each answer: threads that slept find cold caches, and take longer"""

    @property
    def features(self) -> tuple[float, ...]:
        """In the order of Coefficients."""
        return (1.0, self.request_bytes, self.response_bytes, self.batches, self.records)


def non_negative_least_squares(rows: Sequence[Sequence[float]], wanted: Sequence[float]) -> list[float]:
    """c ≥ 0 with the least Σ (row · c − wanted)²; a column of zeros gets 0."""
    width = len(rows[0])
    scale = [max(abs(row[j]) for row in rows) or 1.0 for j in range(width)]
    scaled = [[row[j] / scale[j] for j in range(width)] for row in rows]
    gram = [[sum(row[i] * row[j] for row in scaled) for j in range(width)] for i in range(width)]
    right = [sum(row[i] * y for row, y in zip(scaled, wanted, strict=True)) for i in range(width)]
    found = [0.0] * width
    for _ in range(_ROUNDS):
        moved = 0.0
        for i in range(width):
            if gram[i][i] == 0.0:
                continue
            rest = right[i] - sum(gram[i][j] * found[j] for j in range(width) if j != i)
            best = max(0.0, rest / gram[i][i])
            moved = max(moved, abs(best - found[i]))
            found[i] = best
        if moved < _SETTLED:
            break
    return [value / scale[i] for i, value in enumerate(found)]


def fit(measured: Iterable[Measured], used: Sequence[bool] = (True,) * 5) -> Coefficients:
    """The coefficients of one kind. `used`: which features may count, in the order of Coefficients."""
    loads = list(measured)
    rows = [
        [value / load.cost_ms if use else 0.0 for value, use in zip(load.features, used, strict=True)]
        for load in loads
    ]
    return Coefficients(*non_negative_least_squares(rows, [1.0] * len(rows)))


def features_used(kind: Kind) -> tuple[bool, ...]:
    """What tells the loads of a kind apart: a Produce's answer, or a Fetch's request, do not."""
    is_produce = kind.api == "Produce"
    return (True, kind.api != "Fetch", not is_produce, is_produce, is_produce)


def fit_all(measured: Iterable[Measured]) -> dict[Kind, Coefficients]:
    """Of every kind that was measured."""
    by_kind: dict[Kind, list[Measured]] = {}
    for load in measured:
        by_kind.setdefault(load.kind, []).append(load)
    return {kind: fit(loads, features_used(kind)) for kind, loads in by_kind.items()}


def lower_half(loads: Iterable[Measured]) -> list[Measured]:
    """Of each load that was measured in several rounds one, with its cost's first quartile.

    What else runs on the machine only makes a thread's time longer, for it is measured by the clock.
    """
    rounds: dict[tuple[str, bool], list[Measured]] = {}
    for load in loads:
        rounds.setdefault((load.name, load.paced), []).append(load)
    chosen = []
    for of_one in rounds.values():
        ranked = sorted(of_one, key=lambda load: load.cost_ms)
        chosen.append(ranked[(len(ranked) - 1) // 4])
    return chosen


def tls_extra(plain: Mapping[str, Measured], tls: Mapping[str, Measured]) -> Coefficients:
    """What TLS adds to a request and to its bytes, by loads that were measured both ways."""
    rows, wanted = [], []
    for name, load in tls.items():
        extra_ms = load.cost_ms - plain[name].cost_ms
        rows.append([value / load.cost_ms for value in load.features[:3]])
        wanted.append(extra_ms / load.cost_ms)
    return Coefficients(*non_negative_least_squares(rows, wanted))


def typical(coefficients: Iterable[Coefficients]) -> Coefficients:
    """For requests of which nothing was measured: the median of those that were."""
    found = list(coefficients)
    return Coefficients(*(median(values) for values in zip(*found, strict=True)))
