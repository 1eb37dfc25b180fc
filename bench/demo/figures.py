"""What the clients of the demo moved and what they printed → figures and the closing sentence. Pure.

Sources: the output of ProducerPerformance, and of ToolsUtils.printMetrics behind `--print-metrics`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from bench.demo.wire import Lane
from bench.evenness.cases import QUOTA_BYTES_PER_S, Evenness, evenness
from testkit.frames.load_frames import FETCH, PRODUCE

NATIVE: Final = "native"
SLUICE: Final = "sluice"
SIDES: Final = (NATIVE, SLUICE)
KINDS: Final = {PRODUCE: "produce", FETCH: "consume"}
# A second with less is one in which the client stood still: the broker lets a request through now and then.
STANDSTILL_BYTES_PER_S: Final = QUOTA_BYTES_PER_S // 10
WAVE_GAP_S: Final = 3  # within a wave, too, one answer of 1 MiB can be followed by a second without any

_TOTAL: Final = re.compile(
    r"([\d.]+) ms max latency, (\d+) ms 50th, (\d+) ms 95th, (\d+) ms 99th, (\d+) ms 99\.9th"
)
_THROTTLE: Final = r"-metrics:{api}-throttle-time-{which}:\{{.*\}} *: *([\d.]+)"


@dataclass(frozen=True, slots=True)
class ClientReport:
    """What a Java client measured itself; throttle times over its last 30 to 60 s (its metrics' window)."""

    latency_ms: Mapping[str, float]  # "p50", "p95", "p99", "max"; empty for a consumer
    throttle_avg_ms: float
    throttle_max_ms: float


@dataclass(frozen=True, slots=True)
class LaneFigures:
    """One column of the closing table."""

    side: str
    api_key: int
    even: Evenness
    long_run_bytes_per_s: float
    standstill_s: int  # how many of the seconds measured
    longest_standstill_s: int  # how many of them in a row
    report: ClientReport


def parse_report(output: str, api_key: int) -> ClientReport:
    """Read the end of a perf tool's output. Raises ValueError naming what it lacks."""
    latency_ms: dict[str, float] = {}
    if api_key == PRODUCE:
        totals = _TOTAL.findall(output)
        if not totals:
            raise ValueError("no percentiles of the latency")
        longest, p50, p95, p99, _ = (float(ms) for ms in totals[-1])
        latency_ms = {"p50": p50, "p95": p95, "p99": p99, "max": longest}
    api = "produce" if api_key == PRODUCE else "fetch"
    throttle_ms = []
    for which in ("avg", "max"):
        found = re.search(_THROTTLE.format(api=api, which=which), output)
        if found is None:
            raise ValueError(f"no metric {api}-throttle-time-{which}")
        throttle_ms.append(float(found[1]))
    return ClientReport(latency_ms, *throttle_ms)


def figures(lane: Lane, report: ClientReport, seconds: float) -> LaneFigures:
    """Figures over `seconds` from the lane's own start on, the settling time left out (see evenness).

    Raises ValueError when nothing went through in this time.
    """
    if lane.started_s is None:
        raise ValueError(f"{lane.client_id} moved nothing")
    even = evenness([lane.events], report.latency_ms, lane.started_s, seconds)
    return LaneFigures(
        side=lane.side,
        api_key=lane.api_key,
        even=even,
        long_run_bytes_per_s=long_run_bytes_per_s(even.bytes_per_s),
        standstill_s=sum(map(stands_still, even.bytes_per_s)),
        longest_standstill_s=longest_standstill_s(even.bytes_per_s),
        report=report,
    )


def stands_still(bytes_per_s: int) -> bool:
    """Whether a second with this rate is one in which next to nothing went through."""
    return bytes_per_s < STANDSTILL_BYTES_PER_S


def long_run_bytes_per_s(bytes_per_s: Sequence[int]) -> float:
    """The mean over whole waves, from the start of the first to that of the last; of all if there are no two.

    A wave starts behind a standstill of WAVE_GAP_S. The mean of [0, 0, 0, 8, 0, 0, 0, 8, 0, 0, 0, 8] is that
    of [8, 0, 0, 0, 8, 0, 0, 0] = 2: where in a wave the measuring ended does not count.
    """
    starts = []
    still_s = 0
    for second, rate in enumerate(bytes_per_s):
        if not stands_still(rate) and still_s >= WAVE_GAP_S:
            starts.append(second)
        still_s = still_s + 1 if stands_still(rate) else 0
    whole = bytes_per_s[starts[0] : starts[-1]] if len(starts) > 1 else bytes_per_s
    return sum(whole) / len(whole)


def longest_standstill_s(bytes_per_s: Sequence[int]) -> int:
    """The longest run of such seconds."""
    runs = (sum(1 for _ in run) for still, run in groupby(bytes_per_s, stands_still) if still)
    return max(runs, default=0)


def closing_sentence(lanes: Sequence[LaneFigures]) -> str:
    """What one has seen, in the run's own figures: nothing is claimed that they do not say."""
    native, ours = (_told([lane for lane in lanes if lane.side == side]) for side in SIDES)
    return (
        f"Same clients, same quota of {QUOTA_BYTES_PER_S / 1e6:g} MB/s: on the broker's own quota they "
        f"{native}; through Sluice they {ours}."
    )


def _told(lanes: Sequence[LaneFigures]) -> str:
    still_s = max(lane.longest_standstill_s for lane in lanes)
    still = f"stood still for up to {still_s} s at a stretch" if still_s else "never stood still for a second"
    p99_ms = next(lane.report.latency_ms["p99"] for lane in lanes if lane.api_key == PRODUCE)
    return f"{still}, and 99 % of the records were through within {p99_ms / 1000:.1f} s"
