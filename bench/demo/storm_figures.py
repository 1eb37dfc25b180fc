"""What storm, good client and collector of one side wrote → what is shown of it, and whether its broker died.

Pure: it is given what was read, and the time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bench.lib.stats import percentile
from bench.storm.record import Good, Pause, StormAt, is_full

OUT_OF_MEMORY: Final = "OutOfMemoryError"
SILENT_S: Final = 10.0
"""so long without an answer while its heap is full, a broker counts as dead though its process is there"""


@dataclass(frozen=True, slots=True)
class Death:
    """How a broker ended, and what it had taken by then."""

    after_s: float  # since the storm began; of a silent broker: until its last answer
    ids: int
    how: str


@dataclass(frozen=True, slots=True)
class Seen:
    """One side of the storm at one moment."""

    side: str
    heap_mib: int
    heap_by_second: list[float]  # MiB in use behind the last collection, for each whole second
    offered: int  # new ids that the storm brought
    taken: int  # of these, ids that the broker has taken and answered
    silent_s: float  # since the broker last answered the good client
    good_ms: float | None  # median latency of the good client in the last second
    death: Death | None


@dataclass(frozen=True, slots=True)
class StormFigures:
    """What came of one side."""

    side: str
    heap_mib: int
    heap_used_mib: float
    seconds: float  # that the storm lasted on this side
    offered: int
    taken: int
    death: Death | None
    answers_afterwards: bool  # a new client, past Sluice, once the storm has gone
    good_answered: int
    good_p99_ms: float | None

    @property
    def lives(self) -> bool:
        """It did not die, and it answers."""
        return self.death is None and self.answers_afterwards


def heap_by_second(pauses: Sequence[Pause], start_s: float, now_s: float) -> list[float]:
    """MiB in use behind the last collection by the end of each whole second; 0 while there was none yet."""
    found = []
    used, index = 0.0, 0
    for second in range(math.floor(now_s - start_s)):
        while index < len(pauses) and pauses[index].at_s < start_s + second + 1:
            used = float(pauses[index].after_mib)
            index += 1
        found.append(used)
    return found


def last_words(log: str) -> str:
    """Why a broker's process ended, by its log."""
    # "Terminating due to java.lang.OutOfMemoryError: Java heap space", the JVM's own words.
    found = next((line for line in reversed(log.splitlines()) if OUT_OF_MEMORY in line), "")
    return found[found.index(OUT_OF_MEMORY) :] if found else "its process ended"


def seen(
    side: str,
    heap_mib: int,
    storm: Sequence[StormAt],
    good: Good,
    pauses: Sequence[Pause],
    times_s: tuple[float, float],
    last_words: str | None,
) -> Seen:
    """One side at a moment; `times_s`: when the storm began, and now.

    `last_words`: why the broker's process ended; None while it is there.
    """
    start_s, now_s = times_s
    silent_s = now_s - max(start_s, good.last_heard_s)
    latencies_s = good.latencies_s(now_s - 1.0, now_s)
    taken = storm[-1].accepted if storm else 0
    death = None
    if last_words is not None:
        death = Death(now_s - start_s, taken, last_words)
    elif silent_s > SILENT_S and is_full(pauses):
        death = Death(now_s - silent_s - start_s, taken, "its heap is full, and it answers nobody")
    return Seen(
        side=side,
        heap_mib=heap_mib,
        heap_by_second=heap_by_second(pauses, start_s, now_s),
        offered=storm[-1].offered if storm else 0,
        taken=taken,
        silent_s=silent_s,
        good_ms=percentile(latencies_s, 50) * 1e3 if latencies_s else None,
        death=death,
    )


def storm_figures(
    last: Seen, good: Good, start_s: float, end_s: float, *, answers_afterwards: bool
) -> StormFigures:
    """The whole of a side whose storm lasted from start to end (its death, if it died)."""
    latencies_s = good.latencies_s(start_s, end_s)
    return StormFigures(
        side=last.side,
        heap_mib=last.heap_mib,
        heap_used_mib=last.heap_by_second[-1] if last.heap_by_second else 0.0,
        seconds=end_s - start_s,
        offered=last.offered,
        taken=last.taken,
        death=last.death,
        answers_afterwards=answers_afterwards,
        good_answered=len(latencies_s),
        good_p99_ms=percentile(latencies_s, 99) * 1e3 if latencies_s else None,
    )
