"""The cases of the cost benchmark and what is kept of their repeats. Pure: frames and numbers, no sockets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from bench.lib.load import Measured, Work
from bench.lib.stats import Spread, median, pairwise_ratios, spread
from testkit.frames import load_frames as frames

CLIENT_ID: Final = "bench"
TOPIC: Final = "bench"
MIB: Final = 1 << 20
GIB: Final = 1 << 30
FETCH_ANSWER_BYTES: Final = (MIB, 10 * MIB)
GIB_PER_REPEAT: Final = 0.5
PRODUCER_ID: Final = 4_001
"""of the first connection; each has its own"""
CONNECTIONS: Final = 50
WARMUP_OF_A_CONNECTION: Final = 5
"""requests; the first three of a connection are not yet like an earlier one"""
ANSWERS_OF_A_CONNECTION: Final = 10
"""at least: thousands of connections are served in turns of all of them, of which a count should cut few"""
LOW_RATE_PER_S: Final = 1_000
SLOPE_FROM: Final = "request_50"
SLOPES: Final = {"request_500": 500, "request_5000": 5_000}
"""case → connections, one request in flight on each"""

ENTITIES: Final = "entities"
ENTITY_COUNTS: Final = (1, 10_000)


class Door(StrEnum):
    """Where a load connects."""

    PLAIN = "plain"
    TLS = "tls"
    """the proxy ends TLS, and is plain towards the broker"""
    GATEWAY = "gateway"
    """Sluice: a broker's port of a gateway, which rewrites brokers' addresses; others: as PLAIN"""


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table. Cost is per GiB of `frame_bytes` frames when that is given, else per request."""

    name: str
    shown: str
    work: Work
    frame_bytes: int = 0
    door: Door = Door.PLAIN

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


@dataclass(slots=True)
class Entities:
    """By number of entities, all of whose buckets run: the repeats, one a round."""

    samples: dict[int, list[Measured]] = field(default_factory=dict)
    scrape_ms: dict[int, float] = field(default_factory=dict)
    """CPU of one page of metrics"""

    def costs_us(self, count: int) -> list[float]:
        """Of a request."""
        return [one.cpu_s / one.requests * 1e6 for one in self.samples[count]]

    def ratio(self) -> Spread:
        """Pair by pair, many ÷ one."""
        few, many = (self.costs_us(count) for count in ENTITY_COUNTS)
        return spread(pairwise_ratios(many, few))

    def newest(self) -> str:
        """One line."""
        shown = ", ".join(f"{count:,}: {self.costs_us(count)[-1]:.1f} µs" for count in ENTITY_COUNTS)
        return f"entities {shown}"

    def summary(self, prefix: str) -> Mapping[str, object]:
        """For the last line."""
        ratio = self.ratio()
        few, many = (round(median(self.costs_us(count)), 2) for count in ENTITY_COUNTS)
        return {
            f"{prefix}entities_10000_vs_1": round(ratio.median, 3),
            f"{prefix}entities_10000_vs_1_range": ratio.as_range(),
            f"{prefix}entities_us": {"1": few, "10000": many},
            f"{prefix}scrape_ms": {str(count): round(spent, 1) for count, spent in self.scrape_ms.items()},
        }


def large_frames(frame: bytes, answer: bytes, frame_bytes: int, scale: float) -> Work:
    """`scale` times GIB_PER_REPEAT of frames that large, over four connections."""
    count = max(int(GIB_PER_REPEAT * GIB * scale) // frame_bytes, 16)
    return Work(frame, answer, connections=4, depth=1, requests=count, warmup_requests=8)


def small_produces(connections: int, depth: int, requests: int, requests_per_s: float = 0.0) -> Work:
    """Idempotent producers of 1 kB with acks=all, as a Java producer is by default, a producer id each.

    Their sequence does not rise, which neither the proxies (no gate is set) nor the fake broker looks at.
    """
    frames_of = [
        bytes(frames.produce_request(CLIENT_ID, TOPIC, _batch(PRODUCER_ID + number), acks=-1))
        for number in range(min(connections, CONNECTIONS))
    ]
    each = [frames_of[number % len(frames_of)] for number in range(connections)]
    answer = bytes(frames.produce_response(TOPIC))
    warm_up = max(requests // 20, WARMUP_OF_A_CONNECTION * connections)
    return Work(each[0], answer, connections, depth, requests, warm_up, each, requests_per_s)


def _batch(producer_id: int) -> bytes:
    return frames.record_batch(bytes(1000), producer_id=producer_id, epoch=0, sequence=0)


def all_cases(scale: float) -> Sequence[Case]:
    """Every case through a plain port, as fast as it goes; `scale` times the full number of requests."""
    produce_answer = bytes(frames.produce_response(TOPIC))
    large = frames.produce_request_of(CLIENT_ID, TOPIC, MIB, producer_id=PRODUCER_ID, epoch=0, acks=-1)

    def fetch(frame_bytes: int) -> Work:
        request = bytes(frames.fetch_request(CLIENT_ID, TOPIC, max_bytes=frame_bytes))
        return large_frames(request, bytes(frames.fetch_response_of(TOPIC, frame_bytes)), frame_bytes, scale)

    def small(connections: int, depth: int, requests: int) -> Work:
        return small_produces(connections, depth, int(requests * scale))

    return (
        Case("request_50", "50 connections × 1 in flight, 1-kB Produce", small(CONNECTIONS, 1, 40_000)),
        Case("request_50x5", "50 connections × 5 in flight, 1-kB Produce", small(CONNECTIONS, 5, 80_000)),
        Case("request_1", "1 connection × 1 in flight, 1-kB Produce", small(1, 1, 10_000)),
        Case(
            "gib_produce_1mib",
            "4 connections, 1 MiB Produce frames",
            large_frames(bytes(large), produce_answer, MIB, scale),
            MIB,
        ),
        Case("gib_fetch_1mib", "4 connections, 1 MiB Fetch answers", fetch(MIB), MIB),
        Case("gib_fetch_10mib", "4 connections, 10 MiB Fetch answers", fetch(10 * MIB), 10 * MIB),
    )


def further_cases(scale: float) -> Sequence[Case]:
    """1,000 requests a second; and 50 connections at a gateway, and with TLS."""
    paced = small_produces(CONNECTIONS, 1, int(LOW_RATE_PER_S * 2 * scale), LOW_RATE_PER_S)
    fifty = small_produces(CONNECTIONS, 1, int(40_000 * scale))
    return (
        Case("low_rate", "1,000 requests/s over 50 connections", paced),
        Case("gateway_50", "50 × 1, at a gateway", fifty, door=Door.GATEWAY),
        Case("tls_50", "50 × 1, TLS to clients", replace(fifty, requests=fifty.requests // 2), door=Door.TLS),
    )


def slope_cases(scale: float) -> Sequence[Case]:
    """One request in flight on 50, 500 and 5,000 connections."""
    return tuple(
        Case(
            name,
            f"{count:,} connections × 1 in flight",
            small_produces(count, 1, max(int(40_000 * scale), ANSWERS_OF_A_CONNECTION * count)),
        )
        for name, count in {SLOPE_FROM: CONNECTIONS, **SLOPES}.items()
    )


CASES: Final = (
    "request_50", "request_50x5", "request_1", "gib_produce_1mib", "gib_fetch_1mib", "gib_fetch_10mib",
    "low_rate", "gateway_50", "tls_50",
)  # fmt: skip
