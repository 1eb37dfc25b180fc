"""Measured loads → coefficients that are not negative, and how far they are from what was measured. Pure.

Each load is one kind of request, measured as ms of broker threads a request. What is made small are the
*relative* errors, so that a cheap request counts as much as a dear one, and too much as much as too little:

    minimise Σ (x · c − y)² / (y · m)   over c ≥ 0,   x = (1, request bytes, response bytes, batches, records)

where m is x · c of the fit before, again and again. (With y² below the line, 1 and 4 would be fitted by 1.2;
so they are by 1.6.) Each time one coefficient at a time is moved to its best value, or to 0 where that is
negative, until nothing moves: that is convex, so it ends at the least sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, NamedTuple

from sluice.usage.request_cost import Coefficients

_ROUNDS: Final = 3_000
_SETTLED: Final = 1e-12
_FITS: Final = 25
_FURTHEST: Final = 100.0
"""A fit that is 0 at first would weigh without end."""
_SIZES_TO_TELL: Final = 3
"""From two noisy figures a slope may be anything."""


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


def non_negative_least_squares(
    rows: Sequence[Sequence[float]], wanted: Sequence[float], start: Sequence[float] = ()
) -> list[float]:
    """c ≥ 0 with the least Σ (row · c − wanted)²; a column of zeros gets 0. `start`: c is looked for here."""
    width = len(rows[0])
    scale = [max(abs(row[j]) for row in rows) or 1.0 for j in range(width)]
    scaled = [[row[j] / scale[j] for j in range(width)] for row in rows]
    gram = [[sum(row[i] * row[j] for row in scaled) for j in range(width)] for i in range(width)]
    right = [sum(row[i] * y for row, y in zip(scaled, wanted, strict=True)) for i in range(width)]
    found = [value * factor for value, factor in zip(start, scale, strict=False)] or [0.0] * width
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


Columns = Sequence[tuple[float, ...]]


def fit_columns(columns: Columns, wanted: Sequence[float]) -> list[float]:
    """The coefficients of `columns` (a row for each load) that come nearest to `wanted`, as said above."""
    model = list(wanted)
    found: list[float] = []
    for _ in range(_FITS):
        scale = [(y * max(m, y / _FURTHEST)) ** -0.5 for y, m in zip(wanted, model, strict=True)]
        rows = [[value * s for value in row] for row, s in zip(columns, scale, strict=True)]
        found = non_negative_least_squares(rows, [y * s for y, s in zip(wanted, scale, strict=True)], found)
        model = [sum(x * c for x, c in zip(row, found, strict=True)) for row in columns]
    return found


def fit_all(measured: Iterable[Measured]) -> dict[Kind, Coefficients]:
    """The coefficients of every kind that was measured."""
    by_kind: dict[Kind, list[Measured]] = {}
    for load in measured:
        by_kind.setdefault(load.kind, []).append(load)
    produced = {kind: loads for kind, loads in by_kind.items() if kind.api == "Produce"}
    found = fit_produce(produced) if produced else {}
    for kind, loads in by_kind.items():
        if kind not in produced:
            found[kind] = fit_api(loads)
    return found


def fit_api(loads: Sequence[Measured]) -> Coefficients:
    """The coefficients of anything but Produce: by the answer's bytes, where there are answers of enough
    sizes."""
    wanted = [load.cost_ms for load in loads]
    if len({load.name for load in loads}) < _SIZES_TO_TELL:
        return Coefficients(fit_columns([(1.0,)] * len(wanted), wanted)[0])
    request_ms, byte_ms = fit_columns([(1.0, load.response_bytes) for load in loads], wanted)
    return Coefficients(request_ms, 0.0, byte_ms)


def fit_produce(by_kind: Mapping[Kind, Sequence[Measured]]) -> dict[Kind, Coefficients]:
    """A request and a batch cost the same whatever the compression; bytes and records go by it."""
    kinds = list(by_kind)
    columns, wanted = [], []
    for place, kind in enumerate(kinds):
        for load in by_kind[kind]:
            own = [0.0] * (2 * len(kinds))
            own[2 * place : 2 * place + 2] = [load.request_bytes, load.records]
            columns.append((1.0, float(load.batches), *own))
            wanted.append(load.cost_ms)
    request_ms, batch_ms, *own = fit_columns(columns, wanted)
    return {
        kind: Coefficients(request_ms, own[2 * place], 0.0, batch_ms, own[2 * place + 1])
        for place, kind in enumerate(kinds)
    }


def lower_half(loads: Iterable[Measured]) -> list[Measured]:
    """One measurement for each load that was measured in several rounds: with its cost's first quartile.

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
    """For requests of which nothing was measured: the median, and of bytes, batches and records the least."""
    request_ms, *others = zip(*coefficients, strict=True)
    least = [min([value for value in values if value > 0.0], default=0.0) for values in others]
    return Coefficients(median(request_ms), *least)
