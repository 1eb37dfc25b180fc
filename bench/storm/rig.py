"""A real broker with a small heap, a good client that never stops, and the storm: each a process.

quiet, control, through:  good client and storm → Sluice → broker
direct:                   good client and storm → broker, and no Sluice anywhere
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.storm import jvm as storm_jvm
from bench.storm.frames import BATCH_BYTES
from bench.storm.good import READY, READY_WITHIN_S
from bench.storm.record import (
    Good,
    LiveHeap,
    Pause,
    StormAt,
    live_heap,
    read_good,
    read_pauses,
    read_storm,
)
from testkit.kafka.node import USERS, KafkaNode
from testkit.processes.guarded_process import GuardedProcess, log_tail, wait_for_line
from testkit.processes.ports import LOOPBACK, free_ports
from testkit.processes.process import BenchError, cpu_s
from testkit.proxy.soak_proxy import Sluice

QUIET: Final = "quiet"
CONTROL: Final = "control"
THROUGH: Final = "through"
DIRECT: Final = "direct"
DOOR: Final = "SLUICE_SASL"
PAST: Final = "SASL"
STORM_USER: Final = "alice"
GOOD_USER: Final = "bob"
STORM_TOPIC: Final = "storm"
GOOD_TOPIC: Final = "good"
GOOD_RATE: Final = 100.0
HEAP_MIB: Final = 256
IDS_PER_HOUR: Final = 1_000
IDS_OF_A_PHASE: Final = 10**9
"""no phase has so many; the numbers of which ids are made go on from phase to phase"""
PAUSE_S: Final = 1.0
PROGRESS_EVERY_S: Final = 5.0
PROBE_WITHIN_S: Final = 15.0
MADE_WITHIN_S: Final = 30.0
SERIAL: Final = "serial"
G1: Final = "g1"
COLLECTORS: Final = {
    # As the harness has it.
    SERIAL: ("-XX:+UseSerialGC",),
    # Kafka's own, of bin/kafka-run-class.sh. Without ExplicitGCInvokesConcurrent, so that a class histogram
    # counts what lives and nothing else.
    G1: (
        "-XX:-UseSerialGC",
        "-XX:+UseG1GC",
        "-XX:MaxGCPauseMillis=20",
        "-XX:InitiatingHeapOccupancyPercent=35",
    ),
}
BROKER_CONFIG: Final = {
    "auto.create.topics.enable": "false",
    # Kafka's default, which a broker of this heap has, too; the harness takes less.
    "log.cleaner.dedupe.buffer.size": "134217728",
}
QUOTA: Final = {"user": "<default>", "producer_ids_rate": IDS_PER_HOUR}
SLUICE_OPTIONS: Final = {"producer_ids": {"broker_heap_bytes": HEAP_MIB * 2**20}}


@dataclass(frozen=True, slots=True)
class Setting:
    """What does not change from phase to phase."""

    folder: Path
    rate: float  # batches a second
    partitions: int  # of the storm's topic: batches a request
    collector: str  # of the broker's JVM


@dataclass(slots=True)
class Phase:
    """One stretch of time and what was seen of it."""

    kind: str
    start_s: float
    end_s: float = 0.0
    storm: list[StormAt] = field(default_factory=list)
    live_before: LiveHeap | None = None
    live_after: LiveHeap | None = None
    answers_at_end: bool = False  # the broker, to a client past Sluice
    cpu_cores: dict[str, float] = field(default_factory=dict)  # process → CPU seconds a second
    sluice_rss_mib: list[float] = field(default_factory=list)  # one each progress line
    sluice_metrics: dict[str, float] = field(default_factory=dict)  # growth meanwhile

    @property
    def seconds(self) -> float:
        """How long it was."""
        return self.end_s - self.start_s


def make_topics(node: KafkaNode, partitions: int) -> None:
    """The storm's, of so many partitions, and the good client's. Raises KafkaException."""
    admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0})
    topics = [NewTopic(STORM_TOPIC, partitions, 1), NewTopic(GOOD_TOPIC, 1, 1)]
    for created in admin.create_topics(topics).values():
        created.result(MADE_WITHIN_S)


def answers(node: KafkaNode, within_s: float = PROBE_WITHIN_S) -> bool:
    """Whether a new client, past Sluice, gets an answer."""
    admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0})
    try:
        return GOOD_TOPIC in admin.list_topics(timeout=within_s).topics
    except KafkaException:
        return False


def is_gone(node: KafkaNode) -> bool:
    """Its process has ended."""
    return not Path(f"/proc/{node.pid}").exists()


def pauses_of(gc_log: Path) -> list[Pause]:
    """Pauses of a broker's collector so far, of a log with -Xlog:gc:file=…:timemillis."""
    return read_pauses(gc_log, time.time() - time.monotonic())


def listener_before(node: KafkaNode, name: str) -> dict[str, Any]:
    """Sluice's, where the broker's clients are sent."""
    return {
        "name": name,
        "bind_port": node.advertised(DOOR)[1],
        "upstream_host": LOOPBACK,
        "upstream_port": node.address(DOOR)[1],
        "security_protocol": "SASL_PLAINTEXT",
    }


class Broker:
    """A Kafka node with its collector's log, both topics, and the good client's home."""

    def __init__(self, name: str, setting: Setting) -> None:
        self._partitions = setting.partitions
        self.gc_log = setting.folder / f"{name}.gc.log"
        self.node = KafkaNode(
            advertised={DOOR: (LOOPBACK, free_ports(1)[0])},  # a Sluice's, if there is one
            native=[PAST],
            config=BROKER_CONFIG,
            heap=f"{HEAP_MIB}m",
            java_options=[
                f"-Xms{HEAP_MIB}m",
                *COLLECTORS[setting.collector],
                f"-Xlog:gc:file={self.gc_log}:timemillis",
            ],
            quick_jit=False,
        )

    def __enter__(self) -> Self:
        self.node.__enter__()
        try:
            make_topics(self.node, self._partitions)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """End it at once. May be called twice."""
        pid = self.node.pid if self.node.is_running else 0
        self.node.close()
        if pid:
            storm_jvm.detach(pid)

    @property
    def is_gone(self) -> bool:
        """The process has ended."""
        return is_gone(self.node)

    def live_heap(self) -> LiveHeap:
        """Collects all garbage: some 0.2 s in which the broker does nothing else."""
        try:
            return live_heap(storm_jvm.jcmd(self.node.pid, storm_jvm.CLASS_HISTOGRAM))
        except ValueError as error:
            raise BenchError(str(error)) from error

    def pauses(self) -> list[Pause]:
        """Pauses of its collector, so far."""
        return pauses_of(self.gc_log)

    def answers(self) -> bool:
        """Whether a client past Sluice gets an answer."""
        return answers(self.node)

    def stored_batches(self) -> int:
        """The storm's batches in the broker's files: all that it took, though the answer did not arrive."""
        logs = (self.node.folder / "data").glob(f"{STORM_TOPIC}-*/*.log")
        return sum(path.stat().st_size for path in logs) // BATCH_BYTES

    def out_of_memory(self) -> int:
        """Lines of its log that tell of a heap that was full."""
        text = self.node.log.read_text(encoding="utf-8", errors="replace")
        return sum("OutOfMemoryError" in line for line in text.splitlines())

    def good_records(self) -> int:
        """How many records of the good client are stored."""
        consumer = Consumer(
            {"bootstrap.servers": self.node.bootstrap, "group.id": "reads-without-a-group", "log_level": 0}
        )
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(GOOD_TOPIC, 0), 30.0)[1])
        finally:
            consumer.close()


class GoodProcess:
    """The process of storm_good."""

    def __init__(self, bootstrap: str, name: str, folder: Path) -> None:
        self._bootstrap = bootstrap
        self._output = folder / f"{name}.good"
        self._log = folder / f"{name}.good.log"
        self._process: GuardedProcess | None = None

    def __enter__(self) -> Self:
        numbers = [self._bootstrap, GOOD_USER, USERS[GOOD_USER], GOOD_TOPIC, str(GOOD_RATE)]
        command = [sys.executable, "-m", "bench.storm.good", *numbers, str(self._output)]
        self._process = GuardedProcess(command, output=self._log)
        try:
            wait_for_line(self._process, self._log, READY, READY_WITHIN_S + 5)
        except RuntimeError as error:
            self._process.close()
            raise BenchError(f"the good client does not begin: {error}") from error
        return self

    def __exit__(self, *_exc_info: object) -> None:
        if self._process is not None:
            self._process.close()

    @property
    def pid(self) -> int:
        """The id of its process."""
        assert self._process is not None
        return self._process.pid

    def so_far(self) -> Good:
        """What it has written. Raises BenchError when its process has ended by itself."""
        assert self._process is not None
        if self._process.exit_code() is not None:
            raise BenchError(f"the good client has ended:\n{log_tail(self._log, 5)}")
        return read_good(self._output)

    def end(self) -> Good:
        """Waits for what is under way as long as it does, then returns all."""
        assert self._process is not None
        self._process.stop(30.0)
        return read_good(self._output)


class StormProcess:
    """The process of storm_load, while a block lasts."""

    def __init__(self, port: int, setting: Setting, number: int, *, with_ids: bool) -> None:
        """`number`: of the phase; no two with ids may have the same on one broker."""
        self._output = setting.folder / f"{port}.{number}.storm"
        first = 1 + number * IDS_OF_A_PHASE
        numbers = [str(x) for x in (setting.partitions, setting.rate, 3600, first)]
        self._command = [
            *(sys.executable, "-m", "bench.storm.load", str(port), STORM_USER, USERS[STORM_USER]),
            *(STORM_TOPIC, *numbers, "1" if with_ids else "0"),
        ]
        self._process: GuardedProcess | None = None

    def __enter__(self) -> Self:
        self._process = GuardedProcess(self._command, output=self._output)
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self.end()

    def so_far(self) -> list[StormAt]:
        """What it has told. Raises BenchError when its process has ended by itself."""
        if self._process is not None and self._process.exit_code() is not None:
            raise BenchError(f"the storm has ended:\n{log_tail(self._output, 5)}")
        return read_storm(self._output)

    def end(self) -> list[StormAt]:
        """What it told until its end, which is now."""
        if self._process is not None:
            self._process.stop(10.0)
            self._process.close()
            self._process = None
        return read_storm(self._output)


@contextlib.contextmanager
def open_folder() -> Iterator[Path]:
    """For all that the processes write."""
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        yield Path(folder)


def sluice_before(broker: Broker, folder: Path) -> Sluice:
    """Sluice with the same limit of new ids for every user, and no other quota."""
    listener = listener_before(broker.node, DOOR)
    return Sluice("sluice", folder, free_ports(1)[0], [listener], [QUOTA], **SLUICE_OPTIONS)


def cores(used_before_s: Mapping[str, float], pids: Mapping[str, int], seconds: float) -> dict[str, float]:
    """CPU seconds a second of each process since it had used so much; one that has ended is left out."""
    found = {}
    for name, pid in pids.items():
        with contextlib.suppress(OSError):
            found[name] = round((cpu_s(pid) - used_before_s[name]) / seconds, 3)
    return found
