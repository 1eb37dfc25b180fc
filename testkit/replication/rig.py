"""Three brokers whose followers fetch through Sluice; topics filled, moved by Kafka's own tool, and watched.

What is counted does not come from Sluice: the destination's log files grow, brokers' logs tell of in-sync
sets, clients time their own records.
"""

import contextlib
import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from sluice.quotas.replication.limits import FOLLOWER_RATE, FOLLOWER_REPLICAS, LEADER_RATE, LEADER_REPLICAS
from testkit.kafka.cluster import KafkaCluster
from testkit.kafka.config import BrokerTls
from testkit.kafka.java_tools import run_tool
from testkit.processes.ports import LOOPBACK, free_ports
from testkit.processes.process import BenchError
from testkit.proxy.soak_proxy import Sluice

VALUE_BYTES: Final = 1024
BATCH_BYTES: Final = 16_384
"""the Java producer's default"""
THROTTLES_ASKED_S: Final = 0.5
"""how often each Sluice asks the cluster for its throttles"""
_NO_QUOTAS: Final[list[dict[str, object]]] = [{"client-id": "nobody-has-this-name", "producer_byte_rate": 1}]


@dataclass(frozen=True, slots=True)
class Way:
    """How followers come to their leaders."""

    listener: str = "REPLICAS"
    """its name's end is its security protocol (testkit.kafka.config)"""
    broker: Mapping[str, str] = field(default_factory=dict)
    """further server.properties, such as the brokers' login"""
    tls: BrokerTls | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """of Sluice's listener"""
    users: Sequence[str] = ()
    """who is a broker; none named: whoever says so"""


IN_THE_CLEAR: Final = Way()


class ReplicationRig:
    """The cluster and a Sluice before each broker's inter-broker listener."""

    def __init__(self, cluster: KafkaCluster, folder: Path, way: Way) -> None:
        self.cluster = cluster
        self.folder = folder
        self._way = way
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
            "bind_port": node.advertised(self._way.listener)[1],
            "upstream_host": LOOPBACK,
            "upstream_port": node.address(self._way.listener)[1],
            **self._way.options,
        }
        options: dict[str, Any] = {}
        if paced:
            options["replication"] = {
                "source": source,
                "listener": "replicas",
                "leader_id": node_id,
                "bootstrap": [other.bootstrap for other in self.cluster.nodes],
                "refresh_interval_s": THROTTLES_ASKED_S,
                "users": list(self._way.users),
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
        there = self.cluster.view().topics.get(topic, {})
        return {x: copies.leader for x, copies in there.items()} == {
            x: replicas[0] for x, replicas in enumerate(assignment)
        }

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
        """A digest of all its log segments, in order."""
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
            keys = f"{LEADER_RATE},{FOLLOWER_RATE}"
            broker = ("--entity-type", "brokers", "--entity-name", str(node.node_id))
            arguments = ("--bootstrap-server", self._running(), "--alter", *broker, "--delete-config", keys)
            run_tool(self.cluster.dist, "configs", *arguments, check=False)

    def set_throttle(
        self, topic: str, leader: Mapping[int, int] | None = None, follower: Mapping[int, int] | None = None
    ) -> None:
        """bytes/s by broker, in force for all of a topic's replicas: what kafka-configs would set.

        The Sluices know it when this returns: what passes before is the broker's to hold, and not counted by
        them. `remove_throttle` takes the rates away.
        """
        admin = AdminClient({"bootstrap.servers": self._running(), "log_level": 0})
        alterations = [
            _alteration(ResourceType.BROKER, str(node_id), {key: str(rate)})
            for key, rates in ((LEADER_RATE, leader or {}), (FOLLOWER_RATE, follower or {}))
            for node_id, rate in rates.items()
        ]
        replicas = {LEADER_REPLICAS: "*", FOLLOWER_REPLICAS: "*"}
        alterations.append(_alteration(ResourceType.TOPIC, topic, replicas))
        for alteration in alterations:  # one of a resource in each request
            for done in admin.incremental_alter_configs([alteration]).values():
                done.result(30.0)
        time.sleep(2 * THROTTLES_ASKED_S)

    def replace(self, node_id: int) -> None:
        """A broker dies, and another with the same id and an empty disk comes in its place."""
        cluster = self.cluster
        cluster.kill(node_id)
        cluster.await_until(lambda: node_id not in cluster.live_ids(), f"{node_id} counted as dead")
        for folder in (cluster.node(node_id).folder / "data").glob("*-*"):
            if folder.is_dir() and folder.name != "__cluster_metadata-0":
                shutil.rmtree(folder)
        cluster.start(node_id)

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
        there = self.cluster.view().topics.get(topic, {})
        return len(there) == len(assignment) and all(
            set(there[x].replicas) == there[x].in_sync == set(replicas)
            for x, replicas in enumerate(assignment)
        )

    def isr_shrinks(self) -> int:
        """How often a leader has dropped somebody from an in-sync set, as the brokers' logs say."""
        return sum(
            path.read_text(errors="replace").count("Shrinking ISR")
            for node in self.cluster.nodes
            for path in node.folder.glob("kafka.*")
        )


def _alteration(kind: ResourceType, name: str, values: Mapping[str, str]) -> ConfigResource:
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in values.items()
    ]
    return ConfigResource(kind, name, incremental_configs=entries)


@contextlib.contextmanager
def open_rig(*, heap: str = "224m", way: Way = IN_THE_CLEAR) -> Iterator[ReplicationRig]:
    """Brokers and Sluices, which only pass on; all gone when the block ends."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-bench-")))
        config = {"inter.broker.listener.name": way.listener, **way.broker}
        cluster = KafkaCluster(proxied=[way.listener], tls=way.tls, config=config, heap=heap)
        rig = ReplicationRig(cluster, folder, way)
        stack.callback(rig.stop_sluices)
        stack.enter_context(cluster)
        rig.start_sluices(paced=False)  # behind the brokers, without which they are not ready
        yield rig
