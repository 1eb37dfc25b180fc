"""Starts several Kafka nodes as one cluster, and does to it what happens to clusters: deaths, moves.

    with KafkaCluster(proxied=["SLUICE"]) as cluster:
        cluster.bootstrap                  native listeners of all nodes: these clients bypass Sluice
        cluster.nodes[0].advertised(…)     where Sluice must listen for this node (mode `broker`)
        cluster.kill(cluster.leader("t"))
        cluster.start(1)

Every node is broker and controller. Topics have three copies and need two of them in sync, internal ones too,
so one node may be away at any time.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Self

from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient

from testkit.kafka.cluster_view import ClusterView, Copies
from testkit.kafka.config import NATIVE, BrokerTls
from testkit.kafka.dist import KafkaDist, ensure_kafka
from testkit.kafka.node import USERS, KafkaNode
from testkit.kafka.storage import random_id
from testkit.processes.ports import LOOPBACK, free_ports

GROUPS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
SEEN_WITHIN_S: Final = 60.0
"""how long the cluster may take until it is as it was told to be, on a busy machine"""
_ASK_TIMEOUT_S: Final = 10.0


class KafkaCluster:
    """Three Kafka nodes, or as many as are asked for.

    - `proxied`: names of listeners that tell clients another address, free on the loopback, one for each
      node: `node.advertised(name)`, for a Sluice in front of each in mode `broker`.
    - All else as KafkaNode has it, the same for every node.
    """

    def __init__(
        self,
        dist: KafkaDist | None = None,
        *,
        size: int = 3,
        proxied: Sequence[str] = (),
        native: Sequence[str] = (),
        tls: BrokerTls | None = None,
        users: Mapping[str, str] = USERS,
        super_users: Sequence[str] | None = None,
        config: Mapping[str, str] | None = None,
        heap: str = "224m",
        first_node_id: int = 1,
    ) -> None:
        self.dist = dist or ensure_kafka()
        self.users = users
        ids = range(first_node_id, first_node_id + size)
        ports = iter(free_ports(size * (1 + len(proxied))))
        voters = {node_id: next(ports) for node_id in ids}
        cluster_id = random_id()
        self.nodes: Sequence[KafkaNode] = [
            KafkaNode(
                self.dist,
                advertised={name: (LOOPBACK, next(ports)) for name in proxied},
                native=native,
                tls=tls,
                users=users,
                super_users=super_users,
                config=config,
                heap=heap,
                node_id=node_id,
                voters=voters,
                cluster_id=cluster_id,
            )
            for node_id in ids
        ]
        self._admin_client: AdminClient | None = None

    def __enter__(self) -> Self:
        try:
            for node in self.nodes:
                node.begin_start()
            for node in self.nodes:
                node.await_start()
            self.await_until(lambda: self.live_ids() == self.ids, "all nodes known to each other")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """End all nodes at once and remove their folders. May be called twice."""
        self._admin_client = None
        for node in self.nodes:
            node.close()

    @property
    def ids(self) -> set[int]:
        """The ids of all nodes, running or not."""
        return {node.node_id for node in self.nodes}

    @property
    def bootstrap(self) -> str:
        """`host:port` of every node's native listener without authentication."""
        return self.bootstrap_of(NATIVE)

    def bootstrap_of(self, listener: str) -> str:
        """`host:port,…` where the nodes themselves listen for `listener`."""
        return ",".join(node.bootstrap_of(listener) for node in self.nodes)

    def node(self, node_id: int) -> KafkaNode:
        """The node with this id."""
        return next(node for node in self.nodes if node.node_id == node_id)

    # Nodes come and go ------------------------------------------------------------------------------------

    def kill(self, node_id: int) -> None:
        """End a node by SIGKILL. The others take over its partitions some 5 s later."""
        self.node(node_id).stop(graceful=False)

    def stop(self, node_id: int) -> None:
        """Shut a node down as an operator does; what it led is moved before it ends."""
        self.node(node_id).stop()

    def start(self, node_id: int) -> None:
        """Start a node again with its data; return once it takes requests. It leads nothing by itself."""
        self.node(node_id).start()

    def live_ids(self) -> set[int]:
        """Which brokers the cluster counts as alive; one that was killed for some 5 s more."""
        return set(self.view().live_ids)

    # Who leads what ---------------------------------------------------------------------------------------

    def leader(self, topic: str, partition: int = 0) -> int:
        """The node that leads a partition; -1: none at the moment."""
        return self._copies(topic, partition).leader

    def replicas(self, topic: str, partition: int = 0) -> list[int]:
        """The nodes that have a copy, the preferred leader first."""
        return list(self._copies(topic, partition).replicas)

    def in_sync(self, topic: str, partition: int = 0) -> set[int]:
        """The nodes whose copy is complete."""
        return set(self._copies(topic, partition).in_sync)

    def await_in_sync(self, *topics: str) -> None:
        """Wait until every copy of every partition of these topics (none named: of all topics) is in sync."""

        def complete() -> bool:
            known = self.view().topics
            return all(
                copies.in_sync == set(copies.replicas) and copies.leader >= 0
                for name in topics or known
                for copies in known[name].values()
            )

        self.await_until(complete, f"all copies of {', '.join(topics) or 'everything'} in sync")

    def coordinator_of(self, group: str) -> int:
        """The node that leads this group's partition of the offsets topic. The group need not exist."""
        return self.leader(GROUPS_TOPIC, self._internal_partition(GROUPS_TOPIC, group))

    def transaction_coordinator_of(self, transactional_id: str) -> int:
        """The same for a transactional id."""
        return self.leader(TRANSACTIONS_TOPIC, self._internal_partition(TRANSACTIONS_TOPIC, transactional_id))

    def view(self) -> ClusterView:
        """What all nodes that take requests say. While they say different things, they are asked again.

        So what was seen once is never unseen, whoever is asked. Raises TimeoutError, with what each says.
        """
        deadline_s = time.monotonic() + SEEN_WITHIN_S
        while True:
            views = {}
            for node in self.nodes:
                if node.is_running:
                    with contextlib.suppress(OSError):  # it dies, or does not listen yet
                        views[node.node_id] = ClusterView.of(node.address(NATIVE), _ASK_TIMEOUT_S)
            told = list(views.values())
            if told and told.count(told[0]) == len(told):
                return told[0]
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"the nodes do not agree in {SEEN_WITHIN_S:g} s, or none answers: {views}")
            time.sleep(0.05)

    # Moves ------------------------------------------------------------------------------------------------

    def reassign(self, topic: str, partition: int, replicas: Sequence[int]) -> None:
        """Give a partition these copies, the first leading; return when all are in sync and it leads."""
        self.reassign_all({(topic, partition): replicas})

    def reassign_all(self, moves: Mapping[tuple[str, int], Sequence[int]]) -> None:
        """The same for several partitions at once: (topic, partition) → replicas."""
        from kafka import KafkaAdminClient  # late: of the three clients only this one can
        from kafka.structs import TopicPartition as Moved

        admin = KafkaAdminClient(bootstrap_servers=self._running_bootstrap())
        try:
            admin.alter_partition_reassignments(
                {Moved(*partition): list(replicas) for partition, replicas in moves.items()}
            )
        finally:
            admin.close()

        def done() -> bool:
            view = self.view()
            return all(
                view.copies(*partition).replicas == tuple(replicas)
                and view.copies(*partition).in_sync == set(replicas)
                for partition, replicas in moves.items()
            )

        self.await_until(done, f"reassigned: {moves}")
        self.elect_preferred_leaders(moves)

    def elect_preferred_leaders(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Let the first of its replicas lead each of these partitions; return when they do."""
        asked = list(partitions)

        def unled() -> list[TopicPartition]:
            view = self.view()
            return [
                TopicPartition(*partition)
                for partition in asked
                if view.copies(*partition).leader != view.copies(*partition).replicas[0]
            ]

        if wanted := unled():
            self._admin.elect_leaders(ElectionType.PREFERRED, wanted).result(SEEN_WITHIN_S)
            self.await_until(lambda: not unled(), f"led by their first replica: {asked}")

    def elect_preferred_leader(self, topic: str, partition: int = 0) -> None:
        """The same for one partition."""
        self.elect_preferred_leaders([(topic, partition)])

    def move_leader(self, topic: str, partition: int = 0, to: int | None = None) -> int:
        """Let another node with a copy lead a partition, `to` if it is given; returns who leads then."""
        replicas, leader = self.replicas(topic, partition), self.leader(topic, partition)
        new = next(node for node in replicas if node != leader) if to is None else to
        self.reassign(topic, partition, [new, *(node for node in replicas if node != new)])
        return new

    def move_coordinator(self, group: str) -> int:
        """Move a group's coordinator to another node; returns which."""
        return self.move_leader(GROUPS_TOPIC, self._internal_partition(GROUPS_TOPIC, group))

    def move_transaction_coordinator(self, transactional_id: str) -> int:
        """The same for a transactional id."""
        return self.move_leader(
            TRANSACTIONS_TOPIC, self._internal_partition(TRANSACTIONS_TOPIC, transactional_id)
        )

    # ------------------------------------------------------------------------------------------------------

    def await_until(self, seen: Callable[[], bool], what: str, within_s: float = SEEN_WITHIN_S) -> None:
        """Wait until something can be seen. Raises TimeoutError, with what was waited for."""
        deadline_s = time.monotonic() + within_s
        while not seen():
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"not in {within_s:g} s: {what}")
            time.sleep(0.1)

    @property
    def _admin(self) -> AdminClient:
        if self._admin_client is None:
            self._admin_client = AdminClient(
                {
                    "bootstrap.servers": self.bootstrap,
                    # A node that comes back is found again at once, and its absence is not worth a line.
                    "reconnect.backoff.max.ms": 500,
                    "log_level": 0,
                }
            )
        return self._admin_client

    def _running_bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes if node.is_running)

    def _copies(self, topic: str, partition: int) -> Copies:
        return self.view().copies(topic, partition)

    def _internal_partition(self, topic: str, name: str) -> int:
        # As GroupMetadataManager and TransactionStateManager: Utils.abs(name.hashCode()) % partitions.
        count = len(self.view().topics[topic])
        value = 0
        for character in name:
            value = (31 * value + ord(character)) & 0xFFFFFFFF
        return (value & 0x7FFFFFFF) % count
