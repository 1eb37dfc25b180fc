"""The cases of the cost benchmark and what is kept of their repeats. Pure: frames and numbers, no sockets."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from bench.lib.load import Measured, Work
from bench.lib.stats import Spread, pairwise_ratios, spread
from testkit.frames import load_frames as frames

CLIENT_ID: Final = "bench"
TOPIC: Final = "bench"
MIB: Final = 1 << 20
GIB: Final = 1 << 30
FETCH_ANSWER_BYTES: Final = (MIB, 10 * MIB)
GIB_PER_REPEAT: Final = 1


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table. Cost is per GiB of `frame_bytes` frames when that is given, else per request."""

    name: str
    shown: str
    work: Work
    frame_bytes: int = 0

    @property
    def unit(self) -> str:
        return "CPU-s per GiB" if self.frame_bytes else "CPU-µs per request"

    def cost(self, measured: Measured) -> float:
        """In `unit`."""
        if self.frame_bytes:
            return measured.cpu_s / (measured.requests * self.frame_bytes / GIB)
        return measured.cpu_s / measured.requests * 1e6


@dataclass(slots=True)
class CaseResult:
    """All repeats of one case, per proxy name; index n of each list is the n-th interleaved repeat."""

    case: Case
    samples: dict[str, list[Measured]] = field(default_factory=dict)

    def costs(self, proxy: str) -> list[float]:
        return [self.case.cost(measured) for measured in self.samples[proxy]]

    def ratio_of_lowest(self, ours: str, theirs: str) -> float:
        """Each side's cheapest repeat, the one that the rest of the machine disturbed least."""
        return min(self.costs(ours)) / min(self.costs(theirs))

    def ratio(self, ours: str, theirs: str) -> Spread:
        """Cost of ours ÷ cost of theirs, pair by pair."""
        return spread(pairwise_ratios(self.costs(ours), self.costs(theirs)))


@dataclass(slots=True)
class ProxyMemory:
    """Resident memory of one proxy, in bytes: over the whole load, and of a fresh one per idle connection."""

    at_start: int
    by_round: list[int] = field(default_factory=list)
    per_idle_connection: float = 0.0

    @property
    def growth_after_first_round(self) -> int:
        """0 is flat: the first round fills caches and buffers, the later ones repeat it."""
        return self.by_round[-1] - self.by_round[0]


def large_frames(frame: bytes, answer: bytes, frame_bytes: int, scale: float) -> Work:
    """`scale` times GIB_PER_REPEAT of frames that large, over four connections."""
    count = max(int(GIB_PER_REPEAT * GIB * scale) // frame_bytes, 16)
    return Work(frame, answer, connections=4, depth=1, requests=count, warmup_requests=8)


def all_cases(scale: float) -> Sequence[Case]:
    """Every case, with `scale` times the full number of requests."""
    produce_answer = bytes(frames.produce_response(TOPIC))
    small = bytes(frames.produce_request(CLIENT_ID, TOPIC, frames.record_batch(bytes(1000))))
    large = bytes(frames.produce_request_of(CLIENT_ID, TOPIC, MIB))

    def small_produce(connections: int, depth: int, requests: int) -> Work:
        count = int(requests * scale)
        return Work(small, produce_answer, connections, depth, count, count // 20)

    def fetch(frame_bytes: int) -> Work:
        request = bytes(frames.fetch_request(CLIENT_ID, TOPIC, max_bytes=frame_bytes))
        return large_frames(request, bytes(frames.fetch_response_of(TOPIC, frame_bytes)), frame_bytes, scale)

    return (
        Case("request_50", "50 connections × 1 in flight, 1-kB Produce", small_produce(50, 1, 40_000)),
        Case("request_50x5", "50 connections × 5 in flight, 1-kB Produce", small_produce(50, 5, 120_000)),
        Case("request_1", "1 connection × 1 in flight, 1-kB Produce", small_produce(1, 1, 15_000)),
        Case(
            "gib_produce_1mib",
            "4 connections, 1 MiB Produce frames",
            large_frames(large, produce_answer, MIB, scale),
            MIB,
        ),
        Case("gib_fetch_1mib", "4 connections, 1 MiB Fetch answers", fetch(MIB), MIB),
        Case("gib_fetch_10mib", "4 connections, 10 MiB Fetch answers", fetch(10 * MIB), 10 * MIB),
    )
