"""What is kept of one run of the soak benchmark. Pure: numbers and names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bench.soak.log import Answers
from bench.soak.verdict import Verdict

WARM_S: Final = 30.0  # of a proxy's life: until then it fills its buffers and caches


@dataclass(slots=True)
class Phase:
    """A stretch of the run, and what was done in it. Times are monotonic, in seconds."""

    name: str
    start_s: float
    end_s: float = 0.0
    restarts: int = 0
    kills: int = 0

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True)
class Event:
    """Something that was done to a proxy or a broker, until it was back."""

    what: str
    begun_s: float
    over_s: float


@dataclass(frozen=True, slots=True)
class Restart:
    """One life's end of a proxy."""

    proxy: str
    begun_s: float
    drain_s: float
    """from SIGTERM to its end"""
    away_s: float
    """from SIGTERM until the next one is ready"""
    exit_code: int
    rss_bytes: int
    """just before"""
    open_files: int


@dataclass(frozen=True, slots=True)
class Sample:
    """A proxy in the midst of its life."""

    proxy: str
    at_s: float
    rss_bytes: int
    open_files: int


@dataclass(frozen=True, slots=True)
class Flat:
    """Memory and files of a proxy that lived through a whole phase, WARM_S at its begin left out: the highest
    of the first third of the samples and of the last. A single sample says little: with a broker dead fewer
    are open."""

    rss_first: int
    rss_last: int
    open_files_first: int
    open_files_last: int


@dataclass(frozen=True, slots=True)
class SoakRun:
    """All that one run found; clients by name."""

    proxy: str
    mode: str
    phases: Sequence[Phase]
    events: Sequence[Event]
    restarts: Sequence[Restart]
    samples: Sequence[Sample]
    stopped_s: float
    """when the clients were asked to end"""
    took_s: float
    answers: Mapping[str, Answers]
    verdicts: Mapping[str, Verdict]
    faults_logged: Sequence[str]

    def total(self, figure: str) -> int:
        """The sum of one figure of all clients' verdicts."""
        return sum(int(getattr(verdict, figure)) for verdict in self.verdicts.values())

    def acknowledged_s(self, client: str) -> list[float]:
        """When, until the clients were asked to end."""
        return [at_s for _, at_s in self.answers[client].acknowledged if at_s <= self.stopped_s]

    def signs_of_life_s(self, client: str) -> list[float]:
        """The same and the end of the run: a silence that never ended counts as well."""
        return [*self.acknowledged_s(client), self.stopped_s]

    def flat(self) -> dict[str, Flat]:
        """How flat each proxy was over the longest phase without restarts; nothing if there was none."""
        quiet = [phase for phase in self.phases if not phase.restarts]
        if not quiet:
            return {}
        phase = max(quiet, key=lambda x: x.seconds)
        found: dict[str, Flat] = {}
        warm_s = min(WARM_S, phase.seconds / 2)
        for name in dict.fromkeys(sample.proxy for sample in self.samples):
            own = [
                x for x in self.samples if x.proxy == name and phase.start_s + warm_s <= x.at_s <= phase.end_s
            ]
            if third := len(own) // 3:
                rss, files = [x.rss_bytes for x in own], [x.open_files for x in own]
                found[name] = Flat(
                    max(rss[:third]), max(rss[-third:]), max(files[:third]), max(files[-third:])
                )
        return found
