"""Three brokers whose followers fetch through Sluice; topics filled, moved by Kafka's own tool, and watched.

What is counted does not come from Sluice: the destination's log files grow, brokers' logs tell of in-sync
sets, clients time their own records.
"""

import contextlib
import hashlib
import itertools
import json
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.harness.java_tools import run_tool
from bench.harness.kafka_cluster import KafkaCluster
from bench.harness.ports import LOOPBACK, free_ports
from bench.lib.process import BenchError
from bench.lib.soak_proxy import Sluice

LISTENER: Final = "REPLICAS"
VALUE_BYTES: Final = 1024
BATCH_BYTES: Final = 16_384
"""the Java producer's default"""
SAMPLE_S: Final = 0.1
_NO_QUOTAS: Final[list[dict[str, object]]] = [{"client-id": "nobody-has-this-name", "producer_byte_rate": 1}]


class ReplicationRig:
    """The cluster and a Sluice before each broker's inter-broker listener."""

    def __init__(self, cluster: KafkaCluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.sluices: dict[int, Sluice] = {}
        self._admin_ports = dict(zip(sorted(cluster.ids), free_ports(len(cluster.ids)), strict=True))

    def start_sluices(self, *, paced: bool, section: Mapping[str, Any] | None = None) -> None:
        """One before each broker; not `paced`: they pass followers' fetches on as they are.

        `section`: of the quota file, whose throttles are in force in place of the cluster's.
        """
        self.stop_sluices()
        for node in self.cluster.nodes:
            sluice = self.sluices[node.node_id] = self._sluice(
                node.node_id, paced=paced, source="cluster" if section is None else "quotas"
            )
            if section is not None:
                quotas = {"quotas": _NO_QUOTAS, "replication": section}
                (self.folder / f"{sluice.name}-quotas.yaml").write_text(json.dumps(quotas))
            sluice.start()

    def stop_sluices(self) -> None:
        for sluice in self.sluices.values():
            sluice.close()
        self.sluices.clear()

    def _sluice(self, node_id: int, *, paced: bool, source: str) -> Sluice:
        node = self.cluster.node(node_id)
        listener = {
            "name": "replicas",
            "bind_port": node.advertised(LISTENER)[1],
            "upstream_host": LOOPBACK,
            "upstream_port": node.address(LISTENER)[1],
        }
        options: dict[str, Any] = {}
        if paced:
            options["replication"] = {
                "source": source,
                "listener": "replicas",
                "leader_id": node_id,
                "bootstrap": [other.bootstrap for other in self.cluster.nodes],
                "refresh_interval_s": 0.5,
            }
        name = f"sluice-{node_id}" if paced else f"relay-{node_id}"
        return Sluice(name, self.folder, self._admin_ports[node_id], [listener], _NO_QUOTAS, **options)

    # Topics -----------------------------------------------------------------------------------------------

    def create(self, topic: str, assignment: Sequence[Sequence[int]]) -> None:
        """A topic with these replicas of each partition, the leader first."""
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap, "log_level": 0})
        new = NewTopic(
            topic,
            num_partitions=len(assignment),
            replica_assignment=[list(replicas) for replicas in assignment],
            config={"min.insync.replicas": "1"},
        )
        admin.create_topics([new])[topic].result(30.0)
        self.cluster.await_until(lambda: self._leads(topic, assignment), f"{topic} is led")

    def _leads(self, topic: str, assignment: Sequence[Sequence[int]]) -> bool:
        with contextlib.suppress(KeyError):
            return all(self.cluster.leader(topic, x) == r[0] for x, r in enumerate(assignment))
        return False

    def fill(
        self, topic: str, total_bytes: int, partitions: int = 1, *, batch_bytes: int = BATCH_BYTES
    ) -> None:
        """Records of 1 KiB, spread over the partitions, in batches as the Java producer makes them."""
        producer = Producer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "acks": "1",
                "batch.size": batch_bytes,
                "linger.ms": 20,
                "message.max.bytes": max(1_000_000, 2 * batch_bytes),
                "queue.buffering.max.kbytes": 65_536,
                "log_level": 0,
            }
        )
        value = bytes(range(256)) * (VALUE_BYTES // 256)
        for number in range(total_bytes // VALUE_BYTES):
            key = number.to_bytes(8, "big")
            while True:
                try:
                    producer.produce(topic, value=value, key=key, partition=number % partitions)
                    break
                except BufferError:
                    producer.poll(0.1)
            if number % 1000 == 0:
                producer.poll(0)
        if producer.flush(60.0):
            raise BenchError(f"{topic} could not be filled")

    def log_bytes(self, topic: str, node_id: int) -> int:
        """What a broker has of it."""
        return sum(path.stat().st_size for path in self._segments(topic, node_id))

    def digest(self, topic: str, node_id: int) -> str:
        """Of all its log segments, in order."""
        total = hashlib.sha256()
        for path in self._segments(topic, node_id):
            with path.open("rb") as segment:
                while piece := segment.read(1 << 20):
                    total.update(piece)
        return total.hexdigest()

    def _segments(self, topic: str, node_id: int) -> list[Path]:
        data = self.cluster.node(node_id).folder / "data"
        found = [path for folder in data.glob(f"{topic}-*") for path in folder.glob("*.log")]
        return sorted(
            path
            for path in found
            if path.parent.name.removeprefix(f"{topic}-").isdigit()  # not one that is being deleted
        )

    # Moves ------------------------------------------------------------------------------------------------

    def begin_move(self, topic: str, assignment: Sequence[Sequence[int]], throttle: int | None) -> None:
        """kafka-reassign-partitions --execute, as an operator does it."""
        self._reassign(topic, assignment, "--execute", *self._throttle(throttle))

    def change_throttle(self, topic: str, assignment: Sequence[Sequence[int]], throttle: int) -> None:
        """The same once more, in mid-move."""
        self._reassign(topic, assignment, "--execute", "--additional", *self._throttle(throttle))

    def remove_throttle(self) -> None:
        """What --verify would do after the move, before it has ended: by kafka-configs, of all brokers."""
        for node in self.cluster.nodes:
            keys = "leader.replication.throttled.rate,follower.replication.throttled.rate"
            broker = ("--entity-type", "brokers", "--entity-name", str(node.node_id))
            arguments = ("--bootstrap-server", self._running(), "--alter", *broker, "--delete-config", keys)
            run_tool(self.cluster.dist, "configs", *arguments, check=False)

    def verify_move(self, topic: str, assignment: Sequence[Sequence[int]]) -> str:
        """--verify, which takes the throttle off once the move has ended."""
        return self._reassign(topic, assignment, "--verify")

    @staticmethod
    def _throttle(throttle: int | None) -> list[str]:
        return [] if throttle is None else ["--throttle", str(throttle)]

    def _reassign(self, topic: str, assignment: Sequence[Sequence[int]], *options: str) -> str:
        plan = self.folder / f"{topic}.json"
        partitions = [
            {"topic": topic, "partition": index, "replicas": list(replicas)}
            for index, replicas in enumerate(assignment)
        ]
        plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
        arguments = ("--bootstrap-server", self._running(), "--reassignment-json-file", str(plan))
        return run_tool(
            self.cluster.dist, "reassign-partitions", *arguments, *options, timeout_s=120.0
        ).stdout

    def _running(self) -> str:
        return ",".join(node.bootstrap for node in self.cluster.nodes if node.is_running)

    def is_moved(self, topic: str, assignment: Sequence[Sequence[int]]) -> bool:
        """Every partition has these replicas, all in sync."""
        with contextlib.suppress(Exception):  # a broker is away
            return all(
                set(self.cluster.replicas(topic, x)) == set(replicas)
                and self.cluster.in_sync(topic, x) == set(replicas)
                for x, replicas in enumerate(assignment)
            )
        return False

    def isr_shrinks(self) -> int:
        """How often a leader has dropped somebody from an in-sync set, as the brokers' logs say."""
        return sum(
            path.read_text(errors="replace").count("Shrinking ISR")
            for node in self.cluster.nodes
            for path in node.folder.glob("kafka.*")
        )


class Growth:
    """How a topic's logs grow at brokers, sampled in a thread."""

    def __init__(self, rig: ReplicationRig, topic: str, node_ids: Sequence[int]) -> None:
        self._rig = rig
        self._topic = topic
        self._nodes = node_ids
        self.samples: list[tuple[float, int]] = []
        """monotonic seconds, bytes there"""
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Growth":
        self._thread.start()
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ends.wait(SAMPLE_S):
            with contextlib.suppress(OSError):  # a segment has just gone
                there = sum(self._rig.log_bytes(self._topic, node) for node in self._nodes)
                self.samples.append((time.monotonic(), there))

    def lasted_s(self) -> float:
        """From the first growth to the last; at least a sample."""
        grown = [after[0] for before, after in itertools.pairwise(self.samples) if after[1] > before[1]]
        return max(grown[-1] - grown[0], SAMPLE_S) if grown else SAMPLE_S

    def per_second(self) -> list[int]:
        """Bytes in each whole second from the first growth to the last, without the first and the last two:
        there a part of a second is counted."""
        grown = [
            number
            for number in range(1, len(self.samples))
            if self.samples[number][1] > self.samples[number - 1][1]
        ]
        if len(grown) < 2:
            return []
        begun_s, ended_s = self.samples[grown[0] - 1][0], self.samples[grown[-1]][0]
        marks = [self._at(begun_s + second) for second in range(int(ended_s - begun_s) + 1)]
        return [later - earlier for earlier, later in itertools.pairwise(marks)][1:-1]

    def _at(self, moment_s: float) -> int:
        """Interpolated: a sample is 0.1 s wide."""
        before = self.samples[0]
        for after in self.samples:
            if after[0] >= moment_s:
                span_s = after[0] - before[0]
                share = (moment_s - before[0]) / span_s if span_s > 0 else 0.0
                return round(before[1] + share * (after[1] - before[1]))
            before = after
        return before[1]


class HotClient:
    """A producer with acks=all at a steady rate, which times every record."""

    def __init__(self, rig: ReplicationRig, topic: str, partitions: int, bytes_per_s: int) -> None:
        self._rig = rig
        self._topic = topic
        self._partitions = partitions
        self._pause_s = VALUE_BYTES / bytes_per_s
        self.latencies_ms: list[float] = []
        self.failed = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "HotClient":
        self._thread.start()
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self._ends.set()
        self._thread.join()

    def clear(self) -> None:
        """Forget what was timed up to now."""
        self.latencies_ms = []

    def p99_ms(self) -> float:
        ordered = sorted(self.latencies_ms)
        return ordered[int(len(ordered) * 0.99)] if ordered else 0.0

    def p50_ms(self) -> float:
        ordered = sorted(self.latencies_ms)
        return ordered[len(ordered) // 2] if ordered else 0.0

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._rig.cluster.bootstrap,
                "acks": "all",
                "linger.ms": 5,
                "log_level": 0,
            }
        )
        value = b"h" * VALUE_BYTES
        due_s = time.monotonic()
        number = 0
        while not self._ends.is_set():
            now_s = time.monotonic()
            while due_s <= now_s:
                due_s += self._pause_s
                number += 1
                with contextlib.suppress(BufferError):
                    producer.produce(
                        self._topic,
                        value=value,
                        partition=number % self._partitions,
                        on_delivery=_timed(self, time.monotonic()),
                    )
            producer.poll(min(0.005, max(0.0, due_s - time.monotonic())))
        producer.flush(30.0)


def _timed(client: HotClient, begun_s: float) -> Any:
    def delivered(error: object, _message: object) -> None:
        if error is None:
            client.latencies_ms.append((time.monotonic() - begun_s) * 1000.0)
        else:
            client.failed += 1

    return delivered


def _cluster(heap: str) -> KafkaCluster:
    """Not started. Ports that nobody has bound yet may be given twice: then another."""
    while True:
        config = {"inter.broker.listener.name": LISTENER}
        cluster = KafkaCluster(proxied=[LISTENER], config=config, heap=heap)
        ports = [
            port
            for node in cluster.nodes
            for port in (node.advertised(LISTENER)[1], *(node.address(name)[1] for name in node.listeners))
        ]
        if len(set(ports)) == len(ports):
            return cluster
        cluster.close()


@contextlib.contextmanager
def open_rig(*, heap: str = "224m") -> Iterator[ReplicationRig]:
    """Brokers and Sluices, which only pass on; all gone when the block ends."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-bench-")))
        cluster = _cluster(heap)
        rig = ReplicationRig(cluster, folder)
        stack.callback(rig.stop_sluices)
        stack.enter_context(cluster)
        rig.start_sluices(paced=False)  # behind the brokers, without which they are not ready
        yield rig
