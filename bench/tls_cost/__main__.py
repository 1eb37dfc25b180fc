"""What ending TLS costs in proxy CPU time: Sluice against HAProxy, with one certificate, cipher and version.

    python -m bench.tls_cost [--quick] [--key rsa-2048] [--tls 1.2] [--cases request_50 … handshake]

Clients speak TLS, the fake broker does not. Both proxies get the same load in the same run, by turns. The
last line of standard output is one JSON object. What is measured, and why so: docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.cost.cases import FETCH_ANSWER_BYTES, TOPIC, Case, CaseResult, all_cases
from bench.cost.report import progress
from bench.lib.fake_broker import FakeBroker
from bench.lib.load import Load, Measured, Work
from bench.lib.placement import Placement, place_benchmark, place_proxy
from bench.lib.poller import Poller
from bench.lib.results import results_folder
from bench.lib.stats import median
from bench.lib.tls_socket import KEYS, VERSIONS, TlsClients, write_certificate
from bench.tls_cost.handshakes import Handshakes
from bench.tls_cost.proxies import tls_proxy
from bench.tls_cost.report import TlsRun, report
from testkit.processes.process import BenchError, raise_fd_limit, rss_bytes, usage
from testkit.proxy.proxies import HAPROXY, SLUICE, ensure_haproxy, haproxy_version

CASES: Final = ("request_50", "request_50x5", "gib_produce_1mib", "gib_fetch_1mib")
HANDSHAKE: Final = "handshake"
HANDSHAKES: Final = 1000
ROUNDS: Final = 11
QUICK_ROUNDS: Final = 2
QUICK_SHARE: Final = 0.1
MIN_ROUNDS_OF_A_RESULT: Final = 5
CLOSE_WITHIN_S: Final = 30.0
OPEN_FILES: Final = 1000


@dataclass(frozen=True, slots=True)
class Running:
    """A proxy under test."""

    name: str
    pid: int
    port: int


class Rig:
    """Load generator and fake broker in one loop of this process; the proxies are processes of their own."""

    def __init__(self, clients: TlsClients) -> None:
        self._poller = Poller()
        self._clients = clients
        self.broker = FakeBroker(self._poller, TOPIC, FETCH_ANSWER_BYTES[:1])

    def measure(self, proxy: Running, work: Work) -> Measured:
        """One repeat over fresh connections, whose handshakes are not counted."""
        load = Load(self._poller, proxy.port, work, self._clients.connect)
        try:
            return load.measure(lambda: usage(proxy.pid))
        finally:
            load.close()
            self._settle()

    def measure_handshakes(self, proxy: Running, count: int) -> Measured:
        """Measure one repeat of handshakes."""
        try:
            handshakes = Handshakes(self._poller, proxy.port, self._clients)
            return handshakes.measure(lambda: usage(proxy.pid), count, count // 10)
        finally:
            self._settle()

    def _settle(self) -> None:
        """Waits until the proxy has closed its connections to the broker."""
        broker = self.broker
        self._poller.run_until(lambda: not broker.connections, "the proxy closing upstream", CLOSE_WITHIN_S)


def measure_all(arguments: argparse.Namespace) -> TlsRun:
    """Every case in every round, both proxies by turns. Raises BenchError when it cannot be measured."""
    version = haproxy_version(ensure_haproxy())
    ours, theirs = arguments.against, f"{HAPROXY}-2" if arguments.against == HAPROXY else HAPROXY
    raise_fd_limit(OPEN_FILES)
    share = QUICK_SHARE if arguments.quick else 1.0
    place_benchmark(arguments.placement)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-bench-")))
        certificate, key = write_certificate(folder, arguments.key)
        clients = TlsClients(certificate, arguments.tls)
        rig = Rig(clients)
        running = []
        for name in (ours, theirs):
            proxy, port = tls_proxy(name, folder, rig.broker.port, certificate, key)
            stack.enter_context(proxy)
            place_proxy(arguments.placement, proxy.pid)
            running.append(Running(name, proxy.pid, port))
        agreed = _agreed(clients, running)
        print(f"{ours} against {version}, {agreed}, {arguments.key}, {arguments.placement}", flush=True)
        results = [CaseResult(case, {x.name: [] for x in running}) for case in _cases(arguments, share)]
        handshakes: dict[str, list[Measured]] = {x.name: [] for x in running if HANDSHAKE in arguments.cases}
        rss: dict[str, list[int]] = {x.name: [] for x in running}
        for number in range(arguments.rounds):
            # Who goes first changes, so that neither always runs on the warmer machine.
            turns = running if number % 2 == 0 else running[::-1]
            for result in results:
                for proxy_now in turns:
                    result.samples[proxy_now.name].append(rig.measure(proxy_now, result.case.work))
                print(f"{number + 1}/{arguments.rounds}  {progress(result, ours, theirs)}", flush=True)
            if handshakes:
                for proxy_now in turns:
                    count = int(HANDSHAKES * share)
                    handshakes[proxy_now.name].append(rig.measure_handshakes(proxy_now, count))
                print(f"{number + 1}/{arguments.rounds}  {_handshake_progress(handshakes)}", flush=True)
            for proxy_now in running:
                rss[proxy_now.name].append(rss_bytes(proxy_now.pid))
        placement = str(arguments.placement)
        return TlsRun(ours, theirs, version, agreed, arguments.key, placement, results, handshakes, rss)


def _agreed(clients: TlsClients, running: Sequence[Running]) -> str:
    """Raises BenchError when the two do not agree to the same version and cipher."""
    agreed = {proxy.name: clients.agreed(proxy.port) for proxy in running}
    if len(set(agreed.values())) > 1:
        raise BenchError(f"not the same TLS: {agreed}")
    return next(iter(agreed.values()))


def _cases(arguments: argparse.Namespace, share: float) -> Sequence[Case]:
    return [case for case in all_cases(share) if case.name in arguments.cases]


def _handshake_progress(handshakes: dict[str, list[Measured]]) -> str:
    costs = {name: samples[-1].cpu_s / samples[-1].requests * 1e6 for name, samples in handshakes.items()}
    shown = "  ".join(f"{name} {cost:7.1f}" for name, cost in costs.items())
    (first, second), rates = (
        costs.values(),
        [x.requests / x.wall_s for y in handshakes.values() for x in y[-1:]],
    )
    return f"{HANDSHAKE:<17}  {shown} ({median(rates):,.0f}/s)  ratio {first / second:.2f}  [CPU-µs each]"


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.tls_cost", description=(__doc__ or "").splitlines()[0]
    )
    names = (*CASES, HANDSHAKE)
    parser.add_argument(
        "--against", choices=(SLUICE, HAPROXY), default=SLUICE, help=f"{HAPROXY}: what noise there is"
    )
    parser.add_argument("--quick", action="store_true", help="few and short rounds: a trial, no result")
    parser.add_argument("--rounds", type=int, help=f"rounds of all cases ({ROUNDS}; quick: {QUICK_ROUNDS})")
    parser.add_argument("--cases", nargs="+", choices=names, default=list(names), help="only these")
    parser.add_argument("--key", choices=KEYS, default=KEYS[0], help=f"of the certificate ({KEYS[0]})")
    parser.add_argument("--tls", choices=list(VERSIONS), default="1.3", help="version (1.3)")
    parser.add_argument(
        "--placement", type=Placement, choices=list(Placement), default=Placement.ONE_CORE, help="see docs"
    )
    parser.add_argument("--out", type=Path, help="folder for results instead of bench/results")
    arguments = parser.parse_args(argv)
    arguments.rounds = arguments.rounds or (QUICK_ROUNDS if arguments.quick else ROUNDS)
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0: measured; 2: could not be measured, and the message says why."""
    arguments = _arguments(argv)
    try:
        run = measure_all(arguments)
    except BenchError as error:
        print(f"bench-tls: {error}", file=sys.stderr)
        return 2
    full = not arguments.quick and arguments.rounds >= MIN_ROUNDS_OF_A_RESULT and arguments.against == SLUICE
    whole = len(arguments.cases) > len(CASES) and (arguments.key, arguments.tls) == (KEYS[0], "1.3")
    report(run, results_folder(arguments.out, official=full and whole))
    return 0


if __name__ == "__main__":
    sys.exit(main())
