"""The cost benchmark's load generator and fake broker, and rounds of cases with the proxies by turns."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Final

from bench.cost import churn
from bench.cost.cases import CLIENT_ID, FETCH_ANSWER_BYTES, TOPIC, Case, CaseResult, Door, ProxyMemory
from bench.cost.report import Part, progress
from bench.lib.fake_broker import FakeBroker
from bench.lib.load import Connect, Load, Measured, connect_plain, open_idle
from bench.lib.placement import Placement, place_proxy
from bench.lib.poller import Poller
from testkit.frames import load_frames as frames
from testkit.processes.process import cpu_s, rss_bytes, usage
from testkit.proxy import proxies

CLOSE_WITHIN_S: Final = 30.0
SPARE_FDS: Final = 200  # in each process: files, libraries, listeners, the load of the cases


class Rig:
    """Load generator and fake broker in one loop of this process; the proxies are processes of their own."""

    def __init__(self, fetch_answers: Mapping[int, bytes] | None = None) -> None:
        self.poller = Poller()
        self.connect_tls: Connect = connect_plain
        """connects to doors where clients speak TLS"""
        self.broker = FakeBroker(self.poller, TOPIC, FETCH_ANSWER_BYTES, fetch_answers)

    def measure(self, proxy: proxies.Proxy, case: Case) -> Measured:
        """One repeat over fresh connections."""
        connect = self.connect_tls if case.door is Door.TLS else connect_plain
        load = Load(self.poller, proxy.port, case.work, connect)
        try:
            measured = load.measure(lambda: usage(proxy.pid))
        finally:
            load.close()
        self._settle()
        return measured

    def churn_us(self, proxy: proxies.Proxy, connections: int) -> float:
        """CPU of one connection: opened, one ApiVersions answered, closed on both sides."""
        request = bytes(frames.api_versions_request(CLIENT_ID))
        answer = self.broker.api_versions_answer
        churn.Churn(self.poller, proxy.port, request, answer).run(connections // 20)  # what is made only once
        self._settle()
        before_s = cpu_s(proxy.pid)
        churn.Churn(self.poller, proxy.port, request, answer).run(connections)
        self._settle()
        return (cpu_s(proxy.pid) - before_s) / connections * 1e6

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


def measure_rounds(
    rig: Rig,
    names: Sequence[str],
    placement: Placement,
    rounds: int,
    cases: Sequence[Case],
    start: Callable[[str, int, int], AbstractContextManager[proxies.Proxy]] = proxies.start,
) -> Part:
    """These cases in every round, the named proxies by turns, each with a plain door alone; `start` as
    `proxies.start`."""
    with ExitStack() as stack:
        running = {
            name: {Door.PLAIN: stack.enter_context(start(name, rig.broker.port, SPARE_FDS))} for name in names
        }
        return rounds_of(rig, running, placement, rounds, cases)


def rounds_of(
    rig: Rig,
    running: Mapping[str, Mapping[Door, proxies.Proxy]],
    placement: Placement,
    rounds: int,
    cases: Sequence[Case],
) -> Part:
    """These cases in every round, running proxies by turns; each case with those that have its door."""
    print(f"placement {placement}, {rounds} rounds", flush=True)
    results = []
    for case in cases:
        results.append(CaseResult(case, {name: [] for name in running if case.door in running[name]}))
    plain = {name: doors[Door.PLAIN] for name, doors in running.items()}
    for doors in running.values():
        for pid in {proxy.pid for proxy in doors.values()}:
            place_proxy(placement, pid)
    memory = {name: ProxyMemory(rss_bytes(proxy.pid)) for name, proxy in plain.items()}
    for number in range(rounds):
        for result in results:
            # Who goes first changes, so that none always runs on the warmer machine.
            turns = list(result.samples) if number % 2 == 0 else list(result.samples)[::-1]
            for name in turns:
                measured = rig.measure(running[name][result.case.door], result.case)
                result.samples[name].append(measured)
            print(f"{number + 1}/{rounds}  {progress(result, *list(result.samples)[:2])}", flush=True)
        for name, proxy in plain.items():
            memory[name].by_round.append(rss_bytes(proxy.pid))
    return Part(placement, results, memory)
