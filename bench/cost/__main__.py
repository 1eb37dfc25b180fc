"""What requests and GiB cost in proxy CPU time, and idle connections in memory: Sluice against HAProxy TCP.

    python -m bench.cost [--quick] [--against relay] [--cases request_50 …] [--placement one-core]
    python -m bench.cost --old CHECKOUT     this checkout against another one: bench/cost/trees.py

Both proxies stand before the same fake broker and get the same load in the same run, by turns. The last line
of standard output is one JSON object. What is measured, and why so: docs/benchmarks.md.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Final

from bench.cost.cases import (
    CLIENT_ID,
    FETCH_ANSWER_BYTES,
    TOPIC,
    Case,
    CaseResult,
    ProxyMemory,
    all_cases,
)
from bench.cost.report import CostRun, Part, progress, report
from bench.lib.fake_broker import FakeBroker
from bench.lib.load import Load, Measured, Work, open_idle
from bench.lib.placement import Placement, place_benchmark, place_proxy
from bench.lib.poller import Poller
from bench.lib.results import results_folder
from testkit.frames import load_frames as frames
from testkit.processes.process import BenchError, raise_fd_limit, rss_bytes, usage
from testkit.proxy import proxies

CLOSE_WITHIN_S: Final = 30.0
ROUNDS: Final = 15  # many short ones: the two of a pair are seconds apart, so that drift cancels out
FURTHER_ROUNDS: Final = 9
QUICK_ROUNDS: Final = 3
MIN_ROUNDS_OF_A_RESULT: Final = 5
SPARE_FDS: Final = 200  # in each process: files, libraries, listeners, the load of the cases


class Rig:
    """Load generator and fake broker in one loop of this process; the proxies are processes of their own."""

    def __init__(self, fetch_answers: Mapping[int, bytes] | None = None) -> None:
        self.poller = Poller()
        self.broker = FakeBroker(self.poller, TOPIC, FETCH_ANSWER_BYTES, fetch_answers)

    def measure(self, proxy: proxies.Proxy, work: Work) -> Measured:
        """One repeat over fresh connections."""
        load = Load(self.poller, proxy.port, work)
        try:
            measured = load.measure(lambda: usage(proxy.pid))
        finally:
            load.close()
        self._settle()
        return measured

    def idle_bytes_per_connection(self, proxy: proxies.Proxy, count: int) -> float:
        """Growth of resident memory ÷ `count` silent connections that have had one ApiVersions answer."""
        self._with_idle(proxy, 10)  # pays for what is made only once
        before = rss_bytes(proxy.pid)
        return (self._with_idle(proxy, count) - before) / count

    def _with_idle(self, proxy: proxies.Proxy, count: int) -> int:
        """Resident memory of the proxy while it has `count` idle connections."""
        idle = open_idle(self.poller, proxy.port, count, bytes(frames.api_versions_request(CLIENT_ID)))
        resident = rss_bytes(proxy.pid)
        for sock in idle:
            self.poller.remove(sock.fileno())
            sock.close()
        self._settle()
        return resident

    def _settle(self) -> None:
        """Waits until the proxy has closed its connections to the broker."""
        broker = self.broker
        self.poller.run_until(lambda: not broker.connections, "the proxy closing upstream", CLOSE_WITHIN_S)


def measure_all(arguments: argparse.Namespace) -> CostRun:
    """Every case in every round, both proxies by turns. Raises BenchError when it cannot be measured."""
    version = proxies.haproxy_version(proxies.ensure_haproxy())
    names = (arguments.against, proxies.HAPROXY)
    allowed = raise_fd_limit(2 * arguments.idle + SPARE_FDS)
    idle = min(arguments.idle, (allowed - SPARE_FDS) // 2)
    if idle < arguments.idle:
        print(f"only {allowed} open files are allowed here: {idle} idle connections, not {arguments.idle}")
    print(f"{arguments.against} against {version}", flush=True)
    rig = Rig()
    place_benchmark(arguments.placement[0])
    idle_bytes = {name: _measure_idle(rig, name, idle) for name in names}
    parts = []
    for placement, rounds in zip(arguments.placement, arguments.rounds, strict=True):
        place_benchmark(placement)
        parts.append(measure_rounds(rig, names, placement, rounds, _chosen_cases(arguments)))
    for name, memory in parts[0].memory.items():
        memory.per_idle_connection = idle_bytes[name]
    return CostRun(*names, version, idle, parts)


def measure_rounds(
    rig: Rig,
    names: Sequence[str],
    placement: Placement,
    rounds: int,
    cases: Sequence[Case],
    start: Callable[[str, int, int], AbstractContextManager[proxies.Proxy]] = proxies.start,
) -> Part:
    """These cases in every round, the named proxies by turns; `start` as `proxies.start`."""
    results = [CaseResult(case, {name: [] for name in names}) for case in cases]
    print(f"placement {placement}, {rounds} rounds", flush=True)
    with ExitStack() as stack:
        running = [stack.enter_context(start(name, rig.broker.port, SPARE_FDS)) for name in names]
        for proxy in running:
            place_proxy(placement, proxy.pid)
        memory = {proxy.name: ProxyMemory(rss_bytes(proxy.pid)) for proxy in running}
        for number in range(rounds):
            for result in results:
                # Who goes first changes, so that neither always runs on the warmer machine.
                for proxy in running if number % 2 == 0 else reversed(running):
                    result.samples[proxy.name].append(rig.measure(proxy, result.case.work))
                print(f"{number + 1}/{rounds}  {progress(result, *names)}", flush=True)
            for proxy in running:
                memory[proxy.name].by_round.append(rss_bytes(proxy.pid))
    return Part(placement, results, memory)


def _measure_idle(rig: Rig, name: str, count: int) -> float:
    """Of a fresh process: one that has worked would hide new connections in memory that it had freed."""
    with proxies.start(name, rig.broker.port, count + 100) as proxy:
        each = rig.idle_bytes_per_connection(proxy, count)
    print(f"{count:,} idle connections: {name} {each / 1024:.1f} KiB each", flush=True)
    return each


def _chosen_cases(arguments: argparse.Namespace) -> Sequence[Case]:
    cases = all_cases(0.1 if arguments.quick else 1.0)
    return [case for case in cases if not arguments.cases or case.name in arguments.cases]


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.cost", description=__doc__.splitlines()[0])
    parser.add_argument("--against", choices=(proxies.SLUICE, proxies.RELAY), default=proxies.SLUICE)
    parser.add_argument("--quick", action="store_true", help="few and short rounds: a trial, no result")
    parser.add_argument(
        "--rounds",
        type=int,
        help=f"rounds of all cases ({ROUNDS}, in further placements {FURTHER_ROUNDS}; quick: {QUICK_ROUNDS})",
    )
    parser.add_argument("--idle", type=int, default=5000, help="idle connections (5000)")
    parser.add_argument(
        "--cases", nargs="+", choices=[case.name for case in all_cases(0.0)], help="only these"
    )
    parser.add_argument(
        "--placement",
        type=Placement,
        nargs="+",
        choices=list(Placement),
        default=[Placement.FREE, Placement.ONE_CORE],
        help="one or several, one after the other (free one-core); see docs",
    )
    parser.add_argument(
        "--old", type=Path, metavar="CHECKOUT", help="compare with another checkout"
    )
    parser.add_argument("--out", type=Path, help="folder for results instead of bench/results")
    arguments = parser.parse_args(argv)
    first, further = (QUICK_ROUNDS,) * 2 if arguments.quick else (ROUNDS, FURTHER_ROUNDS)
    asked = arguments.rounds
    arguments.rounds = [asked or first, *[asked or further] * (len(arguments.placement) - 1)]
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0: measured; 2: could not be measured, and the message says why."""
    arguments = _arguments(argv)
    if arguments.old:
        from bench.cost import trees  # it needs this module

        return trees.main(arguments)
    try:
        run = measure_all(arguments)
    except BenchError as error:
        print(f"bench-cost: {error}", file=sys.stderr)
        return 2
    full = not arguments.quick and not arguments.cases and min(arguments.rounds) >= MIN_ROUNDS_OF_A_RESULT
    official = full and arguments.against == proxies.SLUICE
    report(run, results_folder(arguments.out, official=official))
    return 0


if __name__ == "__main__":
    sys.exit(main())
