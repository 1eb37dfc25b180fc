"""Rolling restarts of the proxy and kills of brokers under idempotent producers: what is lost or doubled.

    python -m bench.soak [--quick] [--mode broker|gateway] [--proxy sluice|haproxy|relay]

Three brokers, four client libraries. The last line of standard output is one JSON object. What is measured,
and why so: docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bench.lib.results import results_folder
from bench.soak.report import report
from bench.soak.rig import BROKER, GATEWAY, HELD, LIBRARIES, PACED, SoakRig, all_clients, open_rig
from bench.soak.run import Event, Phase, Restart, Sample, SoakRun
from bench.soak.verdict import verdict
from testkit.kafka.lock import KafkaDistError
from testkit.kafka.node import KafkaNodeError
from testkit.processes.process import BenchError
from testkit.proxy.proxies import HAPROXY, RELAY, SLUICE
from testkit.proxy.soak_proxy import RestartableProxy

BOUND_S: Final = 45 * 60.0  # on a slow machine all 300 take more than half an hour
END_S: Final = 5 * 60.0  # of it: for clients to end and for reading what is stored
RESTART_EVERY_S: Final = 2.4
UP_S: Final = 1.5  # what is back stays so long at least, or one gateway would never be there for anybody
KILL_EVERY_S: Final = 25.0
DOWN_S: Final = 6.0  # longer than the cluster takes to see that a broker is gone
SAMPLE_EVERY_S: Final = 5.0
SETTLE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Plan:
    """One phase: both go on at once."""

    name: str
    restarts: int
    kills: int


FULL: Final = (Plan("restarts", 180, 0), Plan("kills", 0, 10), Plan("both", 120, 10))
QUICK: Final = (Plan("restarts", 12, 0), Plan("kills", 0, 2), Plan("both", 6, 1))


class Soak:
    """One run: what is done to proxies and brokers, and what was seen of it."""

    def __init__(self, rig: SoakRig, deadline_s: float, pause_s: float, at_once: bool) -> None:
        """`pause_s`: between the end of a proxy and the next start; `at_once`: not the proxies in turn."""
        self._rig = rig
        self._pause_s = pause_s
        self._at_once = at_once
        self._deadline_s = deadline_s
        self.events: list[Event] = []
        self.restarts: list[Restart] = []
        self.samples: list[Sample] = []
        self.phases: list[Phase] = []
        self._proxies_stand_still = threading.Lock()
        self._broken = threading.Event()

    def run(self, plans: Sequence[Plan]) -> None:
        """All phases, one after the other. Raises BenchError when a client or a proxy ends by itself."""
        for plan in plans:
            phase = Phase(plan.name, time.monotonic())
            self.phases.append(phase)
            done = threading.Event()
            with ThreadPoolExecutor(3) as pool:
                work = [
                    pool.submit(self._repeat, plan.restarts, RESTART_EVERY_S, self._restart, phase),
                    pool.submit(self._repeat, plan.kills, KILL_EVERY_S, self._kill, phase),
                ]
                watch = pool.submit(self._watch, done)
                try:
                    for one in work:
                        one.result()
                except BaseException:
                    self._broken.set()
                    raise
                finally:
                    done.set()
                watch.result()
            time.sleep(SETTLE_S)
            phase.end_s = time.monotonic()
            print(
                f"{plan.name}: {phase.restarts} restarts, {phase.kills} kills in {phase.seconds:.0f} s",
                flush=True,
            )

    def _repeat(self, times: int, every_s: float, act: Callable[[int, Phase], None], phase: Phase) -> None:
        for number in range(times):
            begun_s = time.monotonic()
            if begun_s > self._deadline_s or self._broken.is_set():
                return
            act(number, phase)
            self._broken.wait(max(UP_S, begun_s + every_s - time.monotonic()))

    def _restart(self, number: int, phase: Phase) -> None:
        proxies = self._rig.proxies
        chosen = proxies if self._at_once else [proxies[number % len(proxies)]]
        with self._proxies_stand_still:
            ends = [self._end(proxy) for proxy in chosen]
            time.sleep(self._pause_s)
            for proxy in chosen:
                proxy.start()
        ready_s = time.monotonic()
        self.restarts += [replace(end, away_s=ready_s - end.begun_s) for end in ends]
        self.events.append(Event(f"restart {', '.join(x.name for x in chosen)}", ends[0].begun_s, ready_s))
        phase.restarts += 1
        if phase.restarts % 10 == 0:
            print(f"  {phase.name}: {phase.restarts} restarts", flush=True)

    @staticmethod
    def _end(proxy: RestartableProxy) -> Restart:
        rss_bytes, open_files = proxy.rss_bytes(), proxy.open_files()
        begun_s = time.monotonic()
        code = proxy.stop()
        return Restart(proxy.name, begun_s, time.monotonic() - begun_s, 0.0, code, rss_bytes, open_files)

    def _kill(self, number: int, phase: Phase) -> None:
        cluster = self._rig.cluster
        node_id = sorted(cluster.ids)[number % len(cluster.ids)]
        begun_s = time.monotonic()
        cluster.kill(node_id)
        time.sleep(DOWN_S)
        cluster.start(node_id)
        cluster.await_in_sync()
        ready_s = time.monotonic()
        self.events.append(Event(f"kill broker {node_id}", begun_s, ready_s))
        phase.kills += 1
        print(f"  {phase.name}: {phase.kills} kills, the last {ready_s - begun_s:.0f} s", flush=True)

    def _watch(self, done: threading.Event) -> None:
        while not done.wait(SAMPLE_EVERY_S):
            with self._proxies_stand_still:
                try:
                    self._rig.check()
                except BenchError:
                    self._broken.set()
                    raise
                now_s = time.monotonic()
                self.samples += [
                    Sample(x.name, now_s, x.rss_bytes(), x.open_files()) for x in self._rig.proxies
                ]


def measure(arguments: argparse.Namespace) -> SoakRun:
    """The whole run. Raises BenchError when it cannot be measured."""
    started_s = time.monotonic()
    clients = all_clients(arguments.clients, [PACED] if arguments.proxy != SLUICE else [PACED, HELD])
    with open_rig(arguments.proxy, arguments.mode, clients) as rig:
        print(f"starting {len(clients)} clients", flush=True)
        rig.start_clients()
        soak = Soak(rig, started_s + BOUND_S - END_S, arguments.pause_s, arguments.at_once)
        plans = QUICK if arguments.quick else FULL
        soak.run([plan for plan in plans if plan.name in arguments.phases])
        print("clients end", flush=True)
        stopped_s = time.monotonic()
        rig.stop_clients()
        print("reading what is stored", flush=True)
        stored = rig.stored()
        answers = {client: rig.answers(client) for client in clients}
        for client in (x for x in clients if answers[x].hung):
            print(f"{client.name} hung; its log ends:\n{rig.log_tail(client)}", flush=True)
        return SoakRun(
            proxy=arguments.proxy,
            mode=arguments.mode,
            phases=soak.phases,
            events=soak.events,
            restarts=soak.restarts,
            samples=soak.samples,
            stopped_s=stopped_s,
            took_s=time.monotonic() - started_s,
            answers={client.name: found for client, found in answers.items()},
            verdicts={client.name: verdict(found, stored[client.index]) for client, found in answers.items()},
            faults_logged=rig.faults_logged(),
        )


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few restarts and kills: a trial, no result")
    parser.add_argument("--mode", choices=(BROKER, GATEWAY), default=BROKER, help="of Sluice")
    parser.add_argument(
        "--proxy", choices=(SLUICE, HAPROXY, RELAY), default=SLUICE, help="what is restarted instead"
    )
    parser.add_argument(
        "--pause-s", type=float, default=0.0, help="between a proxy's end and the next one's start (0)"
    )
    parser.add_argument(
        "--at-once", action="store_true", help="restart all proxies at once, as if there were one only"
    )
    names = [plan.name for plan in FULL]
    parser.add_argument("--phases", nargs="+", choices=names, default=names, help="only these")
    parser.add_argument("--clients", nargs="+", choices=LIBRARIES, default=list(LIBRARIES), help="only these")
    parser.add_argument("--out", type=Path, help="folder for results instead of bench/results")
    arguments = parser.parse_args(argv)
    if arguments.mode == GATEWAY and arguments.proxy != SLUICE:
        parser.error(f"{arguments.proxy} cannot rewrite addresses: mode {GATEWAY} is Sluice's alone")
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0: measured, whatever was found; 2: could not be measured, and the message says why."""
    arguments = _arguments(argv)
    try:
        run = measure(arguments)
    except (BenchError, KafkaNodeError, KafkaDistError, TimeoutError) as error:
        print(f"bench-soak: {error}", file=sys.stderr)
        return 2
    full = (
        not (arguments.quick or arguments.pause_s or arguments.at_once)
        and set(arguments.clients) == set(LIBRARIES)
        and len(run.phases) == len(FULL)
    )
    report(run, results_folder(arguments.out, official=full))
    return 0


if __name__ == "__main__":
    sys.exit(main())
