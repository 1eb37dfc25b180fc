"""The phases of the storm benchmark: those through Sluice, and the one past it until the broker dies."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bench.lib.stats import percentile
from bench.storm.record import Good, Pause, StormAt, is_full
from bench.storm.rig import (
    DIRECT,
    DOOR,
    PAST,
    PAUSE_S,
    PROBE_WITHIN_S,
    PROGRESS_EVERY_S,
    QUIET,
    THROUGH,
    Broker,
    GoodProcess,
    Phase,
    Setting,
    StormProcess,
    cores,
    sluice_before,
)
from testkit.processes.ports import LOOPBACK
from testkit.processes.process import BenchError, cpu_s
from testkit.proxy.soak_proxy import Sluice

SILENT_S: Final = 15.0
"""so long without an answer, while its heap is full, the broker counts as dead"""
POLL_S: Final = 0.25
WARM_UP: Final = "warm-up"
METRICS: Final = (
    "sluice_producer_ids_new_total",
    "sluice_producer_ids_forced_total",
    "sluice_producer_ids_resumed_total",
    "sluice_producer_ids_throttle_time_seconds_total",
    "sluice_producer_ids_refused_total",
    "sluice_connections_opened_total",
)


@dataclass(frozen=True, slots=True)
class Death:
    """How the broker ended, or did not."""

    exited: bool
    """its process ended"""
    silent: bool
    """the good client heard nothing for SILENT_S"""
    answers_afterwards: bool
    """a new client, once the storm has gone"""
    heap_full: bool
    """so much lives in it that collecting does not help"""
    out_of_memory_lines: int
    seconds: float  # from the storm's begin to the last answer to the good client
    ids: int  # that it had taken then, answered or not

    @property
    def died(self) -> bool:
        """One sign alone is none: a machine that is too busy makes a broker silent, too."""
        full = self.heap_full or self.out_of_memory_lines > 0
        return self.exited or self.silent + (not self.answers_afterwards) + full >= 2

    @property
    def how(self) -> str:
        """How the broker died, in words."""
        if self.exited:
            return "its process ended"
        signs = []
        if self.silent:
            signs.append(f"it did not answer the good client for {SILENT_S:.0f} s")
        if not self.answers_afterwards:
            signs.append(f"it answered nobody for {PROBE_WITHIN_S:.0f} s after the storm")
        end = ", and ".join(signs) or "it went on answering"
        heap = "full" if self.heap_full else "not full"
        return f"{end}; heap {heap}, {self.out_of_memory_lines} lines of OutOfMemoryError in its log"


@dataclass(frozen=True, slots=True)
class Through:
    """All phases with Sluice."""

    phases: Sequence[Phase]
    good: Good
    good_stored: int
    pauses: Sequence[Pause]
    faults_logged: Sequence[str]


@dataclass(frozen=True, slots=True)
class Direct:
    """The phase without Sluice."""

    phase: Phase
    good: Good
    pauses: Sequence[Pause]
    death: Death


class PhaseRunner:
    """Runs phases on one broker, with or without Sluice, beside one good client."""

    def __init__(self, broker: Broker, sluice: Sluice | None, good: GoodProcess, setting: Setting) -> None:
        self._broker = broker
        self._sluice = sluice
        self._good = good
        self._setting = setting
        self._number = 0
        self._pids = {"broker": broker.node.pid, "good client": good.pid}
        if sluice is not None:
            self._pids["sluice"] = sluice.pid

    def phase(self, kind: str, seconds: float, *, storm: bool = True, with_ids: bool = False) -> Phase:
        """One that is to end by the clock. Raises BenchError when something has ended that must not."""
        live_before = self._broker.live_heap()
        metrics = self._metrics()
        used_s = {name: cpu_s(pid) for name, pid in self._pids.items()}
        if not storm:
            phase = Phase(kind, time.monotonic(), live_before=live_before)
            self._until(phase, phase.start_s + seconds, None)
        else:
            with self._storm(with_ids) as load:
                phase = Phase(kind, time.monotonic(), live_before=live_before)
                self._until(phase, phase.start_s + seconds, load)
                phase.storm = load.end()
        phase.end_s = time.monotonic()
        phase.answers_at_end = self._broker.answers()
        self._note_cores(phase, used_s)
        phase.sluice_metrics = {name: value - metrics[name] for name, value in self._metrics().items()}
        time.sleep(PAUSE_S)
        phase.live_after = self._broker.live_heap()
        return phase

    def until_death(self, most_seconds: float) -> tuple[Phase, Death]:
        """The storm with ids, until the broker answers the good client no more."""
        live_before = self._broker.live_heap()
        stored_before = self._broker.stored_batches()
        used_s = {name: cpu_s(pid) for name, pid in self._pids.items()}
        with self._storm(True) as load:
            phase = Phase(DIRECT, time.monotonic(), live_before=live_before)
            shown_s = heard_s = phase.start_s
            ids = 0
            gone = False
            while not gone:
                time.sleep(POLL_S)
                now_s = time.monotonic()
                newly_s = self._good.so_far().last_heard_s
                if newly_s > heard_s:
                    heard_s, ids = newly_s, self._broker.stored_batches() - stored_before
                gone = self._broker.is_gone
                if now_s - heard_s > SILENT_S or now_s - phase.start_s > most_seconds:
                    break
                if now_s - shown_s >= PROGRESS_EVERY_S:
                    shown_s += PROGRESS_EVERY_S
                    self._show(phase, load.so_far(), now_s)
            phase.end_s = time.monotonic()
            phase.storm = load.so_far()
            self._note_cores(phase, used_s)
            phase.storm = load.end()
        phase.answers_at_end = not gone and self._broker.answers()
        death = Death(
            exited=gone,
            silent=phase.end_s - heard_s > SILENT_S,
            answers_afterwards=phase.answers_at_end,
            heap_full=is_full(self._broker.pauses()),
            out_of_memory_lines=self._broker.out_of_memory(),
            seconds=heard_s - phase.start_s,
            ids=ids,
        )
        return phase, death

    # Within ------------------------------------------------------------------------------------------------

    def _storm(self, with_ids: bool) -> StormProcess:
        self._number += 1
        return StormProcess(self._port(), self._setting, self._number, with_ids=with_ids)

    def _port(self) -> int:
        """Sluice's, or where there is none the broker's own."""
        node = self._broker.node
        return node.address(PAST)[1] if self._sluice is None else node.advertised(DOOR)[1]

    def _until(self, phase: Phase, end_s: float, load: StormProcess | None) -> None:
        shown_s = phase.start_s
        while (now_s := time.monotonic()) < end_s:
            time.sleep(min(POLL_S, end_s - now_s))
            if self._sluice is not None:
                self._sluice.check_alive()
            if self._broker.is_gone:
                raise BenchError(f"the broker has ended:\n{self._broker.node.log_tail(10)}")
            if now_s - shown_s >= PROGRESS_EVERY_S:
                shown_s += PROGRESS_EVERY_S
                self._show(phase, load.so_far() if load else [], now_s)

    def _show(self, phase: Phase, storm: Sequence[StormAt], now_s: float) -> None:
        """One line of progress."""
        parts = [f"{phase.kind:<8} {now_s - phase.start_s:3.0f} s"]
        if storm:
            last = storm[-1]
            parts.append(f"{last.offered:,} batches brought, {last.accepted:,} taken by the broker")
        if pauses := self._broker.pauses():
            parts.append(f"heap {pauses[-1].after_mib} of {pauses[-1].committed_mib} MiB")
        latencies_s = self._good.so_far().latencies_s(now_s - PROGRESS_EVERY_S, now_s)
        if latencies_s:
            parts.append(f"good client p99 {percentile(latencies_s, 99) * 1e3:.1f} ms")
        else:
            parts.append("good client hears nothing")
        if self._sluice is not None:
            phase.sluice_rss_mib.append(round(self._sluice.rss_bytes() / 2**20, 1))
            parts.append(f"Sluice {phase.sluice_rss_mib[-1]} MiB")
        print("  " + "; ".join(parts), flush=True)

    def _metrics(self) -> dict[str, float]:
        if self._sluice is None:
            return {}
        return {name: self._sluice.metric(name) for name in METRICS}

    def _note_cores(self, phase: Phase, used_s: dict[str, float]) -> None:
        phase.cpu_cores = cores(used_s, self._pids, phase.seconds)
        if phase.storm:
            phase.cpu_cores["storm"] = round(phase.storm[-1].cpu_s / phase.seconds, 3)


def run_through(setting: Setting, plan: Sequence[tuple[str, float]], warm_up_s: float) -> Through:
    """The phases of `plan` (kind, seconds), behind a warm-up, on one broker behind one Sluice."""
    print("starting Kafka, and Sluice before it", flush=True)
    with (
        Broker("behind", setting) as broker,
        sluice_before(broker, setting.folder) as sluice,
        GoodProcess(f"{LOOPBACK}:{broker.node.advertised(DOOR)[1]}", "through", setting.folder) as good,
    ):
        runner = PhaseRunner(broker, sluice, good, setting)
        # For the JVM's compilers, which else would work against whatever comes first.
        runner.phase(WARM_UP, warm_up_s)
        phases = [
            runner.phase(kind, seconds, storm=kind != QUIET, with_ids=kind == THROUGH)
            for kind, seconds in plan
        ]
        answers = good.end()
        stored = broker.good_records()
        return Through(phases, answers, stored, broker.pauses(), sluice.faults_logged())


def run_direct(setting: Setting, warm_up_s: float, most_seconds: float) -> Direct:
    """The storm at a fresh broker without Sluice."""
    print("starting another Kafka, without Sluice", flush=True)
    with (
        Broker("alone", setting) as broker,
        GoodProcess(f"{LOOPBACK}:{broker.node.address(PAST)[1]}", "direct", setting.folder) as good,
    ):
        runner = PhaseRunner(broker, None, good, setting)
        runner.phase(WARM_UP, warm_up_s)
        phase, death = runner.until_death(most_seconds)
        return Direct(phase, good.end(), broker.pauses(), death)
