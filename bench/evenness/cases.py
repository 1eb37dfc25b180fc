"""What clients under one quota got through → the figures of the evenness benchmark. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bench.lib.stats import coefficient_of_variation, jain, longest_gap_s, per_second, percentile

QUOTA_BYTES_PER_S: Final = 1_000_000
SETTLE_S: Final = 3  # what is before is a burst that both sides allow by design
PERCENTS: Final = (50, 95, 99)

Event = tuple[float, int]  # (monotonic time in s, bytes on the wire)


@dataclass(frozen=True, slots=True)
class Evenness:
    """One setup of clients on one side."""

    bytes_per_s: list[int]  # in each whole second measured
    rate_ratio: float  # mean rate ÷ quota
    cv: float
    jain: float
    longest_gap_s: float
    bytes_per_connection: list[int]
    latency_s: dict[str, float]  # "p50" … → seconds; empty when nobody measured it


def evenness(
    connections: Sequence[Sequence[Event]], latency_s: Mapping[str, float], start_s: float, seconds: float
) -> Evenness:
    """Figures over [start + SETTLE_S, start + seconds); one list of events per connection, by time.

    Raises ValueError when nothing at all went through.
    """
    begin_s, end_s = start_s + SETTLE_S, start_s + seconds
    rates = per_second((event for events in connections for event in events), begin_s, end_s)
    return Evenness(
        bytes_per_s=rates,
        rate_ratio=sum(rates) / len(rates) / QUOTA_BYTES_PER_S,
        cv=coefficient_of_variation(rates),
        jain=jain([_bytes_within(events, begin_s, end_s) for events in connections]),
        longest_gap_s=max(
            longest_gap_s([at_s for at_s, _ in events], begin_s, end_s) for events in connections
        ),
        bytes_per_connection=[_bytes_within(events, begin_s, end_s) for events in connections],
        latency_s=dict(latency_s),
    )


def latency_percentiles(
    latencies: Sequence[tuple[float, float]], start_s: float, seconds: float
) -> dict[str, float]:
    """Percentiles of (time of the answer, latency) pairs, of those answers that came in the measured time."""
    measured = [latency for at_s, latency in latencies if start_s + SETTLE_S <= at_s < start_s + seconds]
    return {f"p{percent}": percentile(measured, percent) for percent in PERCENTS} if measured else {}


@dataclass(frozen=True, slots=True)
class BoundResult:
    """A load that may pass the rate: wire-semantics 1.6, max(rate, bytes outstanding ÷ answer budget)."""

    shown: str
    bytes_per_s: list[int]
    bound_bytes_per_s: float

    @property
    def mean_bytes_per_s(self) -> float:
        return sum(self.bytes_per_s) / len(self.bytes_per_s)

    @property
    def ratio(self) -> float:
        """Mean rate ÷ bound: at most 1 keeps it."""
        return self.mean_bytes_per_s / self.bound_bytes_per_s


def bound_bytes_per_s(outstanding_bytes: int, answer_budget_s: float) -> float:
    """The bound of one entity with that many bytes read and not yet paid."""
    return max(QUOTA_BYTES_PER_S, outstanding_bytes / answer_budget_s)


def _bytes_within(events: Sequence[Event], begin_s: float, end_s: float) -> int:
    return sum(size for at_s, size in events if begin_s <= at_s < end_s)
