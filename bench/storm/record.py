"""What the storm's processes write → values: the storm's lines, the good client's, the broker's GC log. Pure.

A file may be read while its process writes: whole lines only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.storm.frames import NO_ERROR
from bench.storm.good import END

NOT_ENOUGH_REPLICAS: Final = 19
"""what Sluice's slow refusal says (wire-semantics 3.4)"""
MIB: Final = 2**20
# A pause of unified logging at -Xlog:gc:file=…:timemillis, whatever the collector:
# [1732216000123ms] GC(5) Pause Young (Normal) (G1 Evacuation Pause) 100M->50M(256M) 5.123ms
_PAUSE: Final = re.compile(r"^\[(\d+)ms\] GC\(\d+\) Pause .*? (\d+)M->(\d+)M\((\d+)M\) ([\d.]+)ms$")
FULL_SHARE: Final = 0.8
FULL_BY: Final = 3
"""collections one behind the other"""
# A line of GC.class_histogram: "   1:      123456      4567890  [B (java.base@17.0.15)"; the last is the sum.
_CLASS: Final = re.compile(r"^\s*\d+:\s+(\d+)\s+\d+\s+(\S+)")
_TOTAL: Final = re.compile(r"^Total\s+\d+\s+(\d+)\s*$")
_PRODUCER_ENTRY: Final = "org.apache.kafka.storage.internals.log.ProducerStateEntry"


@dataclass(frozen=True, slots=True)
class StormAt:
    """What the storm had done by a moment."""

    at_s: float
    offered: int
    missed: int
    answers: dict[int, int]  # error code → requests
    connected: int
    gave_up: int
    ended_by_other: int
    login_failed: int
    cpu_s: float

    @property
    def accepted(self) -> int:
        """Requests that the broker took: their ids are in its heap now."""
        return self.answers.get(NO_ERROR, 0)

    @property
    def refused(self) -> int:
        """Requests that Sluice refused."""
        return self.answers.get(NOT_ENOUGH_REPLICAS, 0)


def read_storm(output: Path) -> list[StormAt]:
    """In the order of time."""
    found = []
    for line in _whole_lines(output):
        if line.startswith("{"):
            fields = json.loads(line)
            fields["answers"] = {int(code): count for code, count in fields["answers"].items()}
            found.append(StormAt(**fields))
    return found


@dataclass(frozen=True, slots=True)
class Record:
    """One record of the good client."""

    sent_s: float
    latency_s: float | None  # None: it failed


@dataclass(frozen=True, slots=True)
class Good:
    """The good client's records that something became of, and its count once it has ended."""

    records: list[Record]
    sent: int | None
    acknowledged: int | None

    def latencies_s(self, start_s: float, end_s: float) -> list[float]:
        """Latencies of acknowledged records that were sent in [start, end)."""
        return [x.latency_s for x in self.records if x.latency_s is not None and start_s <= x.sent_s < end_s]

    @property
    def last_heard_s(self) -> float:
        """When the broker last answered this client; 0: it never did."""
        answered = (x.sent_s + x.latency_s for x in self.records[-1000:] if x.latency_s is not None)
        return max(answered, default=0.0)


def read_good(output: Path) -> Good:
    """Read what storm_good wrote."""
    records: list[Record] = []
    sent = acknowledged = None
    for line in _whole_lines(output):
        first, second, third = line.split()
        if first == END:
            sent, acknowledged = int(second), int(third)
        else:
            latency_s = float(third)
            records.append(Record(float(second), latency_s if latency_s >= 0 else None))
    return Good(records, sent, acknowledged)


@dataclass(frozen=True, slots=True)
class Pause:
    """One stop of the JVM for its collector, and the heap before and behind it."""

    at_s: float  # monotonic
    before_mib: int
    after_mib: int
    committed_mib: int
    took_ms: float


def read_pauses(gc_log: Path, wall_minus_monotonic_s: float) -> list[Pause]:
    """Every pause of a log of `-Xlog:gc:file=…:timemillis`, which counts from 1970."""
    return [
        Pause(
            int(found[1]) / 1000 - wall_minus_monotonic_s,
            int(found[2]), int(found[3]), int(found[4]), float(found[5]),
        )
        for line in _whole_lines(gc_log)
        if (found := _PAUSE.match(line))
    ]  # fmt: skip


def is_full(pauses: Sequence[Pause]) -> bool:
    """Whether the last collections left hardly anything free."""
    last = pauses[-FULL_BY:]
    return bool(last) and all(x.after_mib >= FULL_SHARE * x.committed_mib for x in last)


@dataclass(frozen=True, slots=True)
class LiveHeap:
    """What lives in the broker's heap: what is left when all garbage has been collected."""

    bytes: int
    producer_entries: int
    """the broker's records of (producer id, partition)"""

    @property
    def mib(self) -> float:
        """The live heap in MiB."""
        return self.bytes / MIB


def live_heap(histogram: str) -> LiveHeap:
    """The live heap that an answer to `GC.class_histogram` tells. Raises ValueError when it is none."""
    total = None
    entries = 0
    for line in histogram.splitlines():
        if (found := _CLASS.match(line)) and found[2] == _PRODUCER_ENTRY:
            entries = int(found[1])
        elif found := _TOTAL.match(line):
            total = int(found[1])
    if total is None:
        raise ValueError(f"not a class histogram: {histogram[:200]!r}")
    return LiveHeap(total, entries)


def _whole_lines(path: Path) -> Iterator[str]:
    if path.exists():
        text = path.read_text(encoding="utf-8", errors="replace")
        yield from text[: text.rfind("\n") + 1].splitlines()
