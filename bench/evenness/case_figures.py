"""What light clients noted → the figures of the evenness benchmark's cases. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from bench.evenness.cases import Event
from bench.lib.fetcher import Fetched
from bench.lib.stats import percentile

MUCH_WAITED_S: Final = 0.02  # less is no wait for a turn, but the machine's


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One case: its figure as the last line has it, and what is told beside it."""

    shown: str
    figure: float
    detail: dict[str, object] = field(default_factory=dict)


def bytes_beyond(events: Iterable[Event], start_s: float, rate: float, burst_s: float) -> float:
    """The most that what came ever was beyond rate × time + burst, in bytes (0: never)."""
    total, most = 0, 0.0
    for at_s, size in sorted(events):
        total += size
        most = max(most, total - rate * (at_s - start_s + burst_s))
    return most


def vs_rate(events: Iterable[Event], start_s: float, seconds: float, rate: float, burst_s: float) -> float:
    """Bytes of so many seconds ÷ (rate × time + burst)."""
    passed = sum(size for at_s, size in events if start_s <= at_s < start_s + seconds)
    return passed / (rate * (seconds + burst_s))


def highest_sliding_second(events: Iterable[Event], begin_s: float, end_s: float) -> int:
    """Most bytes within any one second of the time, wherever it begins."""
    within = sorted(event for event in events if begin_s <= event[0] < end_s)
    most = total = left = 0
    for at_s, size in within:
        total += size
        while within[left][0] <= at_s - 1.0:
            total -= within[left][1]
            left += 1
        most = max(most, total)
    return most


def peak_vs_bound(highest: int, request_bytes: int, bound_bytes_per_s: float) -> float:
    """(Highest second − one request) ÷ stated bound: one request may stand on the second's edge."""
    return (highest - request_bytes) / bound_bytes_per_s


def useful_share(answers: Iterable[Fetched], from_s: float) -> float:
    """Bytes of whole batches ÷ bytes of the answers from a time on. Raises ValueError on nothing."""
    useful = came = 0
    for answer in answers:
        if answer.at_s >= from_s:
            useful += answer.useful_bytes
            came += answer.wire_bytes
    if not came:
        raise ValueError("nothing was fetched")
    return useful / came


def longest_wait_s(times_s: Sequence[float], begin_s: float, end_s: float) -> float:
    """Longest time between two of these, or from the begin to the first, or from the last to the end."""
    edges = [begin_s, *sorted(t for t in times_s if begin_s < t < end_s), end_s]
    return max(later - earlier for earlier, later in pairwise(edges))


def told_vs_waited(pairs: Iterable[tuple[float, float]], most_told_s: float | None = None) -> list[float]:
    """Told ÷ waited of each (told, waited) in s; waits beyond what may be told count as that much.

    Those who were told nothing and did not wait are left out.
    """
    return [
        told_s / (waited_s if most_told_s is None else min(waited_s, most_told_s))
        for told_s, waited_s in pairs
        if told_s > 0 or waited_s > MUCH_WAITED_S
    ]


def p99(samples: Sequence[float]) -> float:
    """99th percentile. Raises ValueError when there are none."""
    return percentile(samples, 99)
