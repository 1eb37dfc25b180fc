"""What clients were told and what is stored → what was lost, doubled, out of order; silences. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from bench.soak.log import Answers

EXAMPLES: Final = 5


@dataclass(slots=True)
class Stored:
    """Numbers of one client's records as they are stored: by partition, in order of offset."""

    by_partition: dict[int, list[int]] = field(default_factory=dict)

    def add(self, partition: int, number: int) -> None:
        self.by_partition.setdefault(partition, []).append(number)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one client. The goal is 0 for lost, doubled and out_of_order."""

    acknowledged: int
    failed: int
    """the client was told that they failed; they may be stored or not"""
    stored: int
    lost: int
    """acknowledged, not stored"""
    doubled: int
    """stored more often than once: how many copies too many"""
    out_of_order: int
    """stored behind a later record of the same partition, copies left out"""
    unexplained: int
    """stored, neither acknowledged nor failed: the client ended before it was told"""
    examples: Sequence[str]

    @property
    def is_exact(self) -> bool:
        return not (self.lost or self.doubled or self.out_of_order)


def verdict(answers: Answers, stored: Stored) -> Verdict:
    """Compare what was answered with what is stored."""
    seen: set[int] = set()
    doubled: list[str] = []
    out_of_order: list[str] = []
    count = 0
    for partition, numbers in sorted(stored.by_partition.items()):
        highest = -1
        for offset, number in enumerate(numbers):
            count += 1
            where = f"{number} at place {offset} of partition {partition}"
            if number in seen:
                doubled.append(f"doubled: {where}")
                continue
            seen.add(number)
            if number < highest:
                out_of_order.append(f"out of order: {where}, behind {highest}")
            highest = max(highest, number)
    acknowledged = {number for number, _ in answers.acknowledged}
    lost = acknowledged - seen
    return Verdict(
        acknowledged=len(acknowledged),
        failed=len(set(answers.failed)),
        stored=count,
        lost=len(lost),
        doubled=len(doubled),
        out_of_order=len(out_of_order),
        unexplained=len(seen - acknowledged - set(answers.failed)),
        examples=[
            *(f"lost: {number}" for number in sorted(lost)[:EXAMPLES]),
            *doubled[:EXAMPLES],
            *out_of_order[:EXAMPLES],
        ],
    )


def longest_silence(times_s: Sequence[float]) -> tuple[float, float]:
    """(begin, length) of the longest gap between two of these rising times; (0, 0) for less than two."""
    gaps = [(later - earlier, earlier) for earlier, later in pairwise(times_s)]
    length_s, begin_s = max(gaps, default=(0.0, 0.0))
    return begin_s, length_s


def silences_by_phase(
    times_s: Sequence[float], phases: Mapping[str, tuple[float, float]]
) -> dict[str, float]:
    """The longest gap that begins in each phase (name → start, end)."""
    gaps = list(pairwise(times_s))
    return {
        name: max((later - earlier for earlier, later in gaps if start_s <= earlier < end_s), default=0.0)
        for name, (start_s, end_s) in phases.items()
    }


def acknowledged_per_s(times_s: Iterable[float], start_s: float, end_s: float) -> list[int]:
    """How many in each whole second of [start, end)."""
    counts = [0] * int(end_s - start_s)
    for at_s in times_s:
        second = int(at_s - start_s)
        if 0 <= second < len(counts) and at_s >= start_s:
            counts[second] += 1
    return counts
