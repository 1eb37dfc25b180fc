"""What the connections of the overload were answered → second by second, and the figures. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.demo.figures import longest_standstill_s, stands_still
from bench.evenness.cases import QUOTA_BYTES_PER_S
from bench.lib.stats import per_second, percentile
from bench.lib.wire_clients import ClientLog


@dataclass(frozen=True, slots=True)
class Poured:
    """All connections of one side since they began, the first second included."""

    side: str
    start_s: float
    logs: Sequence[ClientLog]

    def bytes_per_s(self, now_s: float) -> list[int]:
        """Of each whole second that is over: bytes of the requests answered in it."""
        return per_second((event for log in self.logs for event in log.events), self.start_s, now_s)

    def starved(self) -> int:
        """Connections that were not answered yet."""
        return sum(not log.events for log in self.logs)


@dataclass(frozen=True, slots=True)
class OverloadFigures:
    """What came of one side."""

    side: str
    bytes_per_s: list[int]
    longest_standstill_s: int
    standstill_s: int
    starved: int
    wait_p99_s: float | None
    """from a request's sending to its answer, of those that were answered"""

    @property
    def highest_vs_quota(self) -> float:
        """How many seconds' worth of the quota the highest second let pass."""
        return max(self.bytes_per_s, default=0) / QUOTA_BYTES_PER_S


def overload_figures(poured: Poured, end_s: float) -> OverloadFigures:
    """Figures from the first connection on, until `end_s`."""
    rates = poured.bytes_per_s(end_s)
    waits_s = [wait_s for log in poured.logs for _, wait_s in log.latencies_s]
    return OverloadFigures(
        side=poured.side,
        bytes_per_s=rates,
        longest_standstill_s=longest_standstill_s(rates),
        standstill_s=sum(map(stands_still, rates)),
        starved=poured.starved(),
        wait_p99_s=percentile(waits_s, 99) if waits_s else None,
    )
