"""Numbers → the figures that the benchmarks report. Pure: no clock, no files, no third-party numerics.

Knows nothing of Kafka. Samples are plain floats; every function says what it does with too few of them.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Spread:
    """A median with the smallest and the largest sample: what a few noisy repeats can honestly support."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}–{self.high:.2f})"

    def as_range(self) -> list[float]:
        """Rounded for JSON: [low, high]."""
        return [round(self.low, 3), round(self.high, 3)]


def median(samples: Sequence[float]) -> float:
    """Middle sample, or the mean of the two middle ones. Raises ValueError when there are none."""
    if not samples:
        raise ValueError("no samples")
    ordered = sorted(samples)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def spread(samples: Sequence[float]) -> Spread:
    """Median and range. Raises ValueError when there are none."""
    return Spread(median(samples), min(samples), max(samples))


def median_interval(samples: Sequence[float]) -> Spread:
    """The median and its 95 % confidence interval, whatever the samples' distribution.

    How many of n samples lie below the true median is binomial (n, ½): mean n/2, standard deviation √n/2. So
    it lies between the sorted samples number n/2 ∓ 1.96·√n/2, in 95 of 100 cases. 100 samples: from number 40
    to number 59, counted from 0. Raises ValueError when there are none.
    """
    ordered = sorted(samples)
    half = len(ordered) / 2
    reach = 1.96 * math.sqrt(len(ordered)) / 2
    low, high = max(math.floor(half - reach), 0), min(math.ceil(half + reach), len(ordered)) - 1
    return Spread(median(ordered), ordered[low], ordered[high])


def pairwise_ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """One ratio per interleaved repeat, so that slow drift of the machine cancels within each pair.

    Raises ValueError when the two differ in length: then they were not interleaved.
    """
    return [a / b for a, b in zip(ours, theirs, strict=True)]


def percentile(samples: Iterable[float], percent: float) -> float:
    """The smallest sample that at least `percent` % of the samples do not exceed (nearest rank).

    Raises ValueError when there are none.
    """
    ordered = sorted(samples)
    if not ordered:
        raise ValueError("no samples")
    rank = math.ceil(percent / 100 * len(ordered))
    return ordered[max(rank, 1) - 1]


def coefficient_of_variation(samples: Sequence[float]) -> float:
    """Standard deviation of the samples (of the population, n) ÷ their mean: 0 is perfectly even.

    Worked example: 11 seconds of which one carries everything, [11, 0 × 10]: mean 1,
    variance (10² + 10 · 1²) ÷ 11 = 10, so the coefficient is √10 ≈ 3.16. Raises ValueError on a mean of 0.
    """
    mean = math.fsum(samples) / len(samples) if samples else 0.0
    if mean == 0:
        raise ValueError("no variation without a rate")
    return math.sqrt(math.fsum((x - mean) ** 2 for x in samples) / len(samples)) / mean


def jain(shares: Sequence[float]) -> float:
    """Jain's fairness index (Σx)² ÷ (n · Σx²): 1 is equal shares, 1/n is one share that has everything.

    Worked example: two get 1 and two get nothing, (2)² ÷ (4 · 2) = 0.5. All-zero shares count as unfair: 0.
    """
    squares = math.fsum(x * x for x in shares)
    return math.fsum(shares) ** 2 / (len(shares) * squares) if squares else 0.0


def per_second(events: Iterable[tuple[float, int]], start_s: float, end_s: float) -> list[int]:
    """Bytes in each whole second of [start_s, end_s); events are (time_s, bytes), in any order.

    A last, partial second is left out: it would count as a slow one.
    """
    seconds = int(end_s - start_s)
    bins = [0] * seconds
    for time_s, size_bytes in events:
        index = math.floor(time_s - start_s)
        if 0 <= index < seconds:
            bins[index] += size_bytes
    return bins


def longest_gap_s(times_s: Sequence[float], start_s: float, end_s: float) -> float:
    """Longest time within [start_s, end_s] in which nothing happened, the edges included.

    `times_s` in rising order. An idle connection has a gap as long as the whole time.
    """
    edges = [start_s, *(t for t in times_s if start_s < t < end_s), end_s]
    return max(later - earlier for earlier, later in pairwise(edges))
