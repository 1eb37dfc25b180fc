"""A real broker, Sluice before it, good clients that never stop; phases with and without hostile connections.

control:  good clients → Sluice → broker
hostile:  the same, and hostile connections → Sluice → broker
direct:   the same, and hostile connections → broker, past Sluice: what the broker itself makes of them

To tell the parts of `hostile` from each other, when asked for:
decoy:    the same, and hostile connections → a sink: what the attackers' own process takes from the machine
sink:     the same, and hostile connections → Sluice → a sink: with what Sluice does, without the broker
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition

from bench.hostile.frames import at_every_version
from bench.hostile.good import FETCH, PRODUCE, read_samples
from bench.hostile.load import READY
from bench.hostile.probes import ProbeRun, ask_under_silence
from bench.hostile.record import record
from testkit.kafka.java_tools import run_tool
from testkit.kafka.node import KafkaNode
from testkit.processes.guarded_process import GuardedProcess, log_tail, wait_for_line
from testkit.processes.ports import LOOPBACK, free_ports
from testkit.processes.process import BenchError, cpu_s
from testkit.proxy.soak_proxy import Sluice

CONTROL: Final = "control"
HOSTILE: Final = "hostile"
DIRECT: Final = "direct"
DECOY: Final = "decoy"
SINK: Final = "sink"
THROUGH_SLUICE: Final = (HOSTILE, SINK)
DOORS: Final = ("SLUICE", "SLUICE_SASL")
GOOD_TOPIC: Final = "good"
RECORDED_TOPIC: Final = "recorded"
PRODUCERS: Final = 20
FETCHERS: Final = 5
PERIOD_MS: Final = 100.0
SETTLE_WITHIN_S: Final = 30.0
PAUSE_S: Final = 1.0
CALM_WITHIN_S: Final = 60.0
CALM_S: Final = 0.5  # the longest latency of a second in which nothing queues
TAIL_BYTES: Final = 100_000  # of the samples: some seconds' worth
FIRST_FETCH_RECORDS: Final = 100  # so many 1-kB records there are before the fetchers begin
GENEROUS: Final = 10**13
QUOTA: Final = {"client-id": "<default>", "producer_byte_rate": GENEROUS, "consumer_byte_rate": GENEROUS}
# Shorter than the load generator stays on (HOLD_S): some are ended by Sluice, none of the good ones.
LIMITS: Final = {"authentication_timeout_s": 3.0, "slow_frame_timeout_s": 3.0, "idle_timeout_s": 4.0}
BROKER_CONFIG: Final = {
    # Or every damaged name would become a topic, and the broker be busy with those.
    "auto.create.topics.enable": "false",
    "num.partitions": "1",
}


@dataclass(slots=True)
class Phase:
    """One stretch of time and what was seen of it."""

    kind: str
    number: int  # of its round
    start_s: float
    end_s: float
    load: dict[str, Any] | None = None  # what the load generator says of its connections
    disconnects: dict[str, int] = field(default_factory=dict)  # counted by Sluice meanwhile, by cause
    opened: int = 0
    rss_bytes: int = 0  # of Sluice, once all hostile connections are gone
    open_files: int = 0
    cpu_cores: dict[str, float] = field(default_factory=dict)  # process → CPU seconds a second

    @property
    def connections(self) -> int:
        """How many hostile connections were made."""
        return sum(self.load["began"].values()) if self.load else 0

    @property
    def uncounted(self) -> int:
        """Hostile connections through Sluice without a counted end; negative: more ends than connections."""
        through = self.connections if self.kind in THROUGH_SLUICE else 0
        return through - sum(self.disconnects.values())


class HostileRig:
    """All that runs during the benchmark."""

    def __init__(
        self,
        node: KafkaNode,
        sluice: Sluice,
        good: GuardedProcess,
        folder: Path,
        ports: tuple[int, int],
        doors: Mapping[str, Sequence[int]],
    ) -> None:
        """`ports`: of the admin, and of the probes; `doors`: of what hostile connections go to, by the kind
        of the phase."""
        self.node = node
        self._ports = ports
        self._doors = doors
        self.sluice = sluice
        self._good = good
        self._folder = folder
        self._processes = {"sluice": sluice.pid, "broker": node.pid, "good clients": good.pid}

    def phase(self, kind: str, number: int, seconds: float, damaged: int, others: int) -> Phase:
        """Runs one phase. Raises BenchError when good clients were harmed, or something ended."""
        self._await_calm()
        before, opened = self.sluice.disconnects(), self.sluice.metric("sluice_connections_opened_total")
        with contextlib.ExitStack() as stack:
            load = log = None
            if kind != CONTROL:
                log = self._folder / f"load-{number}-{kind}.log"
                command = self._load_command(kind, number, damaged, others, seconds)
                load = stack.enter_context(GuardedProcess(command, output=log))
                wait_for_line(load, log, READY, 60.0)
            phase = Phase(kind, number, time.monotonic(), 0.0)
            used_s = {name: cpu_s(pid) for name, pid in self._processes.items()}
            time.sleep(seconds)
            phase.end_s = time.monotonic()
            for name, pid in self._processes.items():
                phase.cpu_cores[name] = (cpu_s(pid) - used_s[name]) / (phase.end_s - phase.start_s)
            if load is not None and log is not None:
                load.wait(60.0)
                phase.load = _result_of(log)
                phase.cpu_cores["load generator"] = phase.load["cpu_s"] / (phase.end_s - phase.start_s)
        self._settle()
        after = self.sluice.disconnects()
        phase.disconnects = {cause: n - before.get(cause, 0) for cause, n in after.items()}
        phase.disconnects = {cause: n for cause, n in phase.disconnects.items() if n}
        phase.opened = int(self.sluice.metric("sluice_connections_opened_total") - opened)
        phase.rss_bytes = self.sluice.rss_bytes()
        phase.open_files = self.sluice.open_files()
        return phase

    def ask_probes(self, seconds: float) -> ProbeRun:
        """The probes' answers while silent connections are held at the admin port."""
        return asyncio.run(ask_under_silence(*self._ports, seconds))

    def end_good_clients(self) -> int:
        """Ends them in order and returns how many records were acknowledged to them.

        Raises BenchError when the broker has another number.
        """
        if self._good.stop(30.0) != 0:
            raise BenchError(f"good clients were harmed: {self._good_log()}")
        acknowledged = read_samples(self.good_output).records or 0
        stored = _end_offset(self.node) - FIRST_FETCH_RECORDS
        if stored != acknowledged:
            raise BenchError(f"{acknowledged} records were acknowledged to good clients, {stored} are stored")
        return acknowledged

    @property
    def good_output(self) -> Path:
        """The file that `hostile_good.read_samples` reads."""
        return self._folder / "good.samples"

    def check(self) -> None:
        """Raises BenchError when something has ended that must not."""
        self.sluice.check_alive()
        if self._good.exit_code() is not None:
            raise BenchError(f"good clients were harmed: {self._good_log()}")

    def _good_log(self) -> str:
        return log_tail(self._folder / "good.log", 5)

    def _await_calm(self) -> None:
        """What the last phase left in queues is not the next one's: waits until nothing queues any more."""
        deadline_s = time.monotonic() + CALM_WITHIN_S
        expected = 0.95 * (PRODUCERS + FETCHERS) * 1000 / PERIOD_MS
        while True:
            time.sleep(PAUSE_S)
            self.check()
            now_s = time.monotonic()
            samples = read_samples(self.good_output, TAIL_BYTES)
            seen = [x for kind in (PRODUCE, FETCH) for x in samples.latencies_s(kind, now_s - 3, now_s - 2)]
            if len(seen) >= expected and max(seen) < CALM_S:
                return
            if now_s > deadline_s:
                raise BenchError(f"good clients still wait for more than {CALM_S} s: is the machine busy?")

    def _settle(self) -> None:
        """Waits until only the good clients' connections are open."""
        deadline_s = time.monotonic() + SETTLE_WITHIN_S
        while (open_now := self.sluice.metric("sluice_connections")) != PRODUCERS + FETCHERS:
            self.check()
            if time.monotonic() > deadline_s:
                raise BenchError(
                    f"{open_now:.0f} connections, {PRODUCERS + FETCHERS} of them good, stay open"
                )
            time.sleep(0.2)
        time.sleep(PAUSE_S)  # a connection that Sluice ended lingers for up to 1 s

    def _load_command(self, kind: str, number: int, damaged: int, others: int, seconds: float) -> list[str]:
        ports = ",".join(str(port) for port in self._doors[kind])
        frames = str(self._folder / "frames")
        numbers = [str(x) for x in (number, damaged, others, seconds)]  # the round is the seed
        return [sys.executable, "-m", "bench.hostile.load", ports, frames, *numbers]


@contextlib.contextmanager
def open_rig(*, with_sink: bool = False) -> Iterator[tuple[HostileRig, int]]:
    """The rig, and of how many (API, version) pairs there are frames; all gone when the block ends.

    `with_sink`: phases DECOY and SINK can be had.
    """
    door, sasl_door, relay_port, admin_port, probe_port, *sinks = free_ports(8)
    advertised = {
        "SLUICE": (LOOPBACK, door),
        "SLUICE_SASL": (LOOPBACK, sasl_door),
        "RELAY": (LOOPBACK, relay_port),
    }
    print("starting Kafka", flush=True)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-bench-")))
        node = stack.enter_context(
            KafkaNode(advertised=advertised, config=BROKER_CONFIG, heap="1g", quick_jit=False)
        )
        for topic in (GOOD_TOPIC, RECORDED_TOPIC):
            run_tool(node.dist, "topics", "--create", "--bootstrap-server", node.bootstrap, "--topic", topic)
        print("recording requests of real clients", flush=True)
        recorded = asyncio.run(record(relay_port, node.address("RELAY")[1], RECORDED_TOPIC))
        frames = at_every_version(recorded)
        (folder / "frames").write_bytes(b"".join(frames))
        _fill(node)
        admin = {"bind_host": LOOPBACK, "bind_port": admin_port, "probes": {"bind_port": probe_port}}
        listeners = _listeners(node)
        doors = {HOSTILE: (door, sasl_door), DIRECT: [node.address(name)[1] for name in DOORS]}
        if with_sink:
            sink, *sink_doors = sinks
            listeners += [
                _listener(f"SINK_{name}", port, sink) for name, port in zip(DOORS, sink_doors, strict=True)
            ]
            doors |= {DECOY: (sink, sink), SINK: sink_doors}
            command = [sys.executable, "-m", "bench.hostile.sink", str(sink)]
            taker = stack.enter_context(GuardedProcess(command, output=folder / "sink.log"))
            wait_for_line(taker, folder / "sink.log", READY, 30.0)
        sluice = Sluice("sluice", folder, admin_port, listeners, [QUOTA], limits=LIMITS, admin=admin)
        stack.enter_context(sluice)
        numbers = [str(x) for x in (door, GOOD_TOPIC, PRODUCERS, FETCHERS, PERIOD_MS)]
        command = [sys.executable, "-m", "bench.hostile.good", *numbers, str(folder / "good.samples")]
        good = stack.enter_context(GuardedProcess(command, output=folder / "good.log"))
        rig = HostileRig(node, sluice, good, folder, (admin_port, probe_port), doors)
        try:
            yield rig, len(frames)
        except BaseException:
            print(f"--- the end of Sluice's log ---\n{log_tail(sluice.log, 10)}\n---", file=sys.stderr)
            raise


def _result_of(log: Path) -> dict[str, Any]:
    try:
        result: dict[str, Any] = json.loads(log_tail(log, 1))
    except ValueError as error:
        raise BenchError(f"the load generator failed:\n{log_tail(log)}") from error
    return result


def _listeners(node: KafkaNode) -> list[dict[str, Any]]:
    return [_listener(name, node.advertised(name)[1], node.address(name)[1]) for name in DOORS]


def _listener(name: str, port: int, upstream_port: int) -> dict[str, Any]:
    return {
        "name": name,
        "bind_port": port,
        "upstream_host": LOOPBACK,
        "upstream_port": upstream_port,
        "security_protocol": "SASL_PLAINTEXT" if name.endswith("SASL") else "PLAINTEXT",
    }


def _fill(node: KafkaNode) -> None:
    run_tool(
        node.dist,
        "producer-perf-test",
        *("--bootstrap-server", node.bootstrap, "--topic", GOOD_TOPIC, "--throughput", "-1"),
        *("--num-records", str(FIRST_FETCH_RECORDS), "--record-size", "1000"),
    )


def _end_offset(node: KafkaNode) -> int:
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "reads-without-a-group"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(GOOD_TOPIC, 0), 30.0)[1])
    finally:
        consumer.close()
