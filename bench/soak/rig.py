"""Three brokers, a proxy before each (or one gateway), and idempotent clients that never stop.

client → proxy (restarted) → broker (killed)
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.soak.log import Answers, client_and_number, read_answers, read_java_answers
from bench.soak.verdict import Stored
from testkit.kafka.cluster import KafkaCluster
from testkit.kafka.java_tools import start_tool
from testkit.processes.guarded_process import GuardedProcess, log_tail
from testkit.processes.ports import LOOPBACK, free_port_range, free_ports
from testkit.processes.process import BenchError
from testkit.proxy.proxies import HAPROXY, RELAY
from testkit.proxy.soak_proxy import BareRelay, Haproxy, RestartableProxy, Sluice

TOPIC: Final = "soak"
PARTITIONS: Final = 6
LISTENER: Final = "SLUICE"
JAVA: Final = "java"
LIBRARIES: Final = ("aiokafka", "confluent", "kafka-python", JAVA)
PACED: Final = "paced"
HELD: Final = "held"
PACED_RATE: Final = 50.0  # records per second: of two cores enough is left for proxies to start
RECORD_BYTES: Final = 500
# What a proxy lets a held client through: less than it asks for at any time, so that a SIGTERM always finds
# requests held. VerifiableProducer's records are a few bytes each.
HELD_BYTES_PER_S: Final = {JAVA: 1_000}
HELD_BYTES_PER_S_ELSE: Final = 25_000
CLIENT_NICE: Final = 10
READ_WITHIN_S: Final = 180.0
END_WITHIN_S: Final = 200.0  # clients wait for what is under way, behind a send() that may wait a minute
BROKER, GATEWAY = "broker", "gateway"


@dataclass(frozen=True, slots=True)
class Client:
    """One producer; its name is its client id."""

    index: int
    library: str
    kind: str

    @property
    def name(self) -> str:
        return f"{self.library}-{self.kind}"

    @property
    def quota(self) -> dict[str, object]:
        """The limit of a client that is held."""
        return {
            "client-id": self.name,
            "producer_byte_rate": HELD_BYTES_PER_S.get(self.library, HELD_BYTES_PER_S_ELSE),
        }


def all_clients(libraries: Sequence[str], kinds: Sequence[str]) -> list[Client]:
    """One of each library and kind."""
    return [
        Client(index, library, kind)
        for index, (library, kind) in enumerate((x, y) for x in libraries for y in kinds)
    ]


class SoakRig:
    """All that runs while things are restarted and killed."""

    def __init__(
        self,
        cluster: KafkaCluster,
        proxies: Sequence[RestartableProxy],
        clients: Sequence[Client],
        bootstrap: str,
        folder: Path,
    ) -> None:
        self.cluster = cluster
        self.proxies = proxies
        self.clients = clients
        self._bootstrap = bootstrap
        self._folder = folder
        self._running: dict[Client, GuardedProcess] = {}

    def start_clients(self) -> None:
        """Returns once each has had a record acknowledged. Raises BenchError when one does not."""
        for client in self.clients:
            self._running[client] = process = self._start(client)
            # A library that spins while it is held must not take the core on which its proxy starts. Each has
            # a session of its own, and where the kernel groups by them, it shares its time among those first.
            group = Path(f"/proc/{process.pid}/autogroup")
            if group.exists():
                group.write_text(str(CLIENT_NICE))
            os.setpriority(os.PRIO_PROCESS, process.pid, CLIENT_NICE)
        deadline_s = time.monotonic() + 60.0
        while waiting := [x.name for x in self.clients if not self.answers(x).acknowledged]:
            self.check()
            if time.monotonic() > deadline_s:
                raise BenchError(f"no record acknowledged: {', '.join(waiting)}")
            time.sleep(0.5)

    def stop_clients(self) -> None:
        """SIGTERM to all, then wait until each has ended, or is ended."""
        for process in self._running.values():
            process.send_signal(15)
        deadline_s = time.monotonic() + END_WITHIN_S
        for process in self._running.values():
            with contextlib.suppress(TimeoutError):
                process.wait(max(0.0, deadline_s - time.monotonic()))
        self.close()

    def log_tail(self, client: Client) -> str:
        """What the client's library said last."""
        return log_tail(self._log(client), 12)

    def close(self) -> None:
        """End all clients at once. May be called twice."""
        for process in self._running.values():
            process.close()

    def check(self) -> None:
        """Raises BenchError when a client or a proxy has ended by itself."""
        for proxy in self.proxies:
            proxy.check_alive()
        for client, process in self._running.items():
            if (code := process.exit_code()) is not None:
                raise BenchError(f"{client.name} ended with code {code}:\n{log_tail(self._log(client))}")

    def answers(self, client: Client) -> Answers:
        """What the client was told so far."""
        log, entries = self._log(client), self._entries(client)
        if client.library == JAVA:
            return read_java_answers(log) if log.exists() else Answers()
        return read_answers(entries, log) if entries.exists() else Answers()

    def stored(self) -> dict[int, Stored]:
        """Every record of the topic, past the proxies, by client. Raises BenchError if it takes too long."""
        found = {client.index: Stored() for client in self.clients}
        consumer = Consumer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "group.id": "reads-without-a-group",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        try:
            consumer.assign([TopicPartition(TOPIC, x, OFFSET_BEGINNING) for x in range(PARTITIONS)])
            unread = set(range(PARTITIONS))
            deadline_s = time.monotonic() + READ_WITHIN_S
            while unread:
                if time.monotonic() > deadline_s:
                    raise BenchError(f"the topic was not read in {READ_WITHIN_S:.0f} s")
                for message in consumer.consume(10_000, 1.0):
                    partition, value, error = message.partition() or 0, message.value(), message.error()
                    if error is None and value is not None:
                        index, number = client_and_number(value)
                        found[index].add(partition, number)
                    elif error is not None and error.code() == KafkaError._PARTITION_EOF:
                        unread.discard(partition)
        finally:
            consumer.close()
        return found

    def faults_logged(self) -> list[str]:
        """Lines in the proxies' logs that tell of a fault of their own."""
        return [line for x in self.proxies if isinstance(x, Sluice) for line in x.faults_logged()]

    def _start(self, client: Client) -> GuardedProcess:
        if client.library == JAVA:
            return self._start_java(client)
        rate = PACED_RATE if client.kind == PACED else 0.0
        plan = (self._bootstrap, TOPIC, PARTITIONS, client.index, client.name, rate, RECORD_BYTES)
        command = [sys.executable, "-m", "bench.soak.client", client.library, *map(str, plan)]
        return GuardedProcess([*command, str(self._entries(client))], output=self._log(client))

    def _start_java(self, client: Client) -> GuardedProcess:
        # The tool sets retries=0, and so turns idempotence off; these are the producer's own defaults.
        properties = self._folder / f"{client.name}.properties"
        properties.write_text(
            f"client.id={client.name}\nenable.idempotence=true\nretries=2147483647\n", encoding="utf-8"
        )
        return start_tool(
            self.cluster.dist,
            "verifiable-producer",
            *("--bootstrap-server", self._bootstrap, "--topic", TOPIC, "--acks", "-1"),
            *("--throughput", str(int(PACED_RATE)), "--value-prefix", str(client.index)),
            *("--command-config", properties),
            output=self._log(client),
        )

    def _log(self, client: Client) -> Path:
        return self._folder / f"{client.name}.log"

    def _entries(self, client: Client) -> Path:
        return self._folder / f"{client.name}.entries"


@contextlib.contextmanager
def open_rig(proxy: str, mode: str, clients: Sequence[Client]) -> Iterator[SoakRig]:
    """Cluster, topic and proxies; the clients are not started yet. All gone when the block ends."""
    print("starting three brokers", flush=True)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-bench-")))
        cluster = stack.enter_context(KafkaCluster(proxied=[LISTENER]))
        _create_topic(cluster)
        if mode == GATEWAY:
            proxies, bootstrap = _gateway(cluster, clients, folder)
        else:
            proxies = [_before(proxy, index, cluster, clients, folder) for index in range(len(cluster.nodes))]
            bootstrap = ",".join(f"{LOOPBACK}:{node.advertised(LISTENER)[1]}" for node in cluster.nodes)
        for one in proxies:
            stack.enter_context(one)
        rig = SoakRig(cluster, proxies, clients, bootstrap, folder)
        stack.callback(rig.close)
        try:
            yield rig
        except BaseException:
            for one in proxies:
                print(f"--- the end of {one.name}'s log ---\n{log_tail(one.log, 5)}\n---", file=sys.stderr)
            raise


def _before(
    proxy: str, index: int, cluster: KafkaCluster, clients: Sequence[Client], folder: Path
) -> RestartableProxy:
    node = cluster.nodes[index]
    port, upstream = node.advertised(LISTENER)[1], node.address(LISTENER)[1]
    name = f"{proxy}-{index + 1}"
    if proxy == HAPROXY:
        return Haproxy(name, folder, port, upstream)
    if proxy == RELAY:
        return BareRelay(name, folder, port, upstream)
    listener = {
        "name": "soak",
        "bind_port": port,
        "upstream_host": LOOPBACK,
        "upstream_port": upstream,
    }
    return Sluice(name, folder, free_ports(1)[0], [listener], _quotas(clients))


def _gateway(
    cluster: KafkaCluster, clients: Sequence[Client], folder: Path
) -> tuple[list[RestartableProxy], str]:
    first_port = free_port_range(2 + len(cluster.nodes))
    listener: dict[str, Any] = {
        "name": "soak",
        "bind_port": first_port,
        "gateway": {
            "bootstrap_upstreams": [node.bootstrap for node in cluster.nodes],
            "advertised_host": LOOPBACK,
            "first_broker_port": first_port + 2,
            "first_broker_id": min(cluster.ids),
            "max_brokers": len(cluster.nodes),
        },
    }
    sluice = Sluice("gateway", folder, first_port + 1, [listener], _quotas(clients), mode=GATEWAY)
    return [sluice], f"{LOOPBACK}:{first_port}"


def _quotas(clients: Sequence[Client]) -> list[dict[str, object]]:
    nobody: dict[str, object] = {"client-id": "nobody-has-this-name", "producer_byte_rate": 1}
    return [nobody, *(client.quota for client in clients if client.kind == HELD)]


def _create_topic(cluster: KafkaCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    new = NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=3)
    admin.create_topics([new])[TOPIC].result(30.0)
    cluster.await_until(lambda: _is_everywhere(cluster), f"{TOPIC} on all brokers")


def _is_everywhere(cluster: KafkaCluster) -> bool:
    there = cluster.view().topics.get(TOPIC, {})
    return len(there) == PARTITIONS and all(copies.in_sync == cluster.ids for copies in there.values())
