"""Starts a real Kafka (KRaft, broker and controller in one process) on loopback, in a temporary folder.

    with KafkaNode(advertised={"SLUICE": ("127.0.0.1", sluice_port)}) as node:
        node.bootstrap            "127.0.0.1:PORT" of the native listener: these clients bypass Sluice
        node.address("SLUICE")    where Sluice dials; clients of this listener are told Sluice's own address

Nothing of it outlives the Python process that started it, however that ends.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from testkit.kafka.config import (
    NATIVE,
    NATIVE_SASL,
    BrokerTls,
    Listener,
    NodeConfig,
    server_properties,
)
from testkit.kafka.dist import KafkaDist, ensure_kafka
from testkit.kafka.java_tools import BROKER, java_command
from testkit.kafka.storage import random_id, started, starting
from testkit.processes.guarded_process import GuardedProcess, log_tail, wait_for_line
from testkit.processes.ports import LOOPBACK, free_ports, give_back, keep

USERS: Final[Mapping[str, str]] = {
    "alice": "alice-secret",
    "bob": "bob-secret",
    "carol": "carol-secret",
}
STARTED = "Kafka Server started"  # KafkaRaftServer logs it once every listener takes requests


class KafkaNodeError(Exception):
    """The broker did not start; the message ends with its log's tail."""


class KafkaNode:
    """One Kafka node. Starts in 3 to 5 s on two cores.

    - `dist`: which Kafka and which Java; by default the newest that the lock files pin.
    - `advertised`: further listeners, each with the address that it tells clients: that of a Sluice in
      front of it (mode `broker`).
    - `native`: further listeners that advertise themselves, for clients that bypass Sluice, and for a Sluice
      in mode `gateway`.
    - The end of a listener's name is its security protocol: SASL (plaintext), SSL, SASL_SSL, or MTLS for SSL
      with a client's certificate. Those with TLS need `tls`.
    - `users`: user → password for PLAIN and SCRAM; OAUTHBEARER takes any unsigned token (see sasl_clients).
    - `super_users`: sets an authorizer that lets these users do everything, and others what ACLs allow.
      Clients of listeners without a login or a certificate (User:ANONYMOUS) are super users then, too.
    - `config`: server.properties that win over those of kafka_config.
    - `heap`, `java_options`: of the JVM. `quick_jit` stops at the first compiler (C1), which starts quicker
      and costs less processor time in short runs; benchmarks of the broker itself turn it off.
    - `node_id`, `voters` (node id → controller port), `cluster_id`: for several nodes of one cluster.
    """

    def __init__(
        self,
        dist: KafkaDist | None = None,
        *,
        advertised: Mapping[str, tuple[str, int]] | None = None,
        native: Sequence[str] = (),
        tls: BrokerTls | None = None,
        users: Mapping[str, str] = USERS,
        super_users: Sequence[str] | None = None,
        config: Mapping[str, str] | None = None,
        heap: str = "512m",
        java_options: Sequence[str] = (),
        quick_jit: bool = True,
        node_id: int = 1,
        voters: Mapping[int, int] | None = None,
        cluster_id: str | None = None,
    ) -> None:
        self.dist = dist or ensure_kafka()
        self.node_id = node_id
        names = [NATIVE, *native, *(advertised or {})]
        controller_port, *ports = free_ports(1 + len(names))
        listeners = tuple(
            Listener(name, port, (advertised or {}).get(name, (LOOPBACK, port)))
            for name, port in zip(names, ports, strict=True)
        )
        self.listeners: Mapping[str, Listener] = {listener.name: listener for listener in listeners}
        self._ports = (controller_port, *ports, *(listener.advertised[1] for listener in listeners))
        keep(self._ports)
        self.users = users
        self.cluster_id = cluster_id or random_id()
        self.folder = Path(tempfile.mkdtemp(prefix="sluice-kafka-"))
        self.log = self.folder / "kafka.log"
        self._config = NodeConfig(
            node_id=node_id,
            voters=voters or {node_id: controller_port},
            listeners=listeners,
            data_folder=str(self.folder / "data"),
            users=users,
            tls=tls,
            super_users=None if super_users is None else tuple(super_users),
            extra=config or {},
        )
        self._heap = heap
        self._java_options = tuple(java_options)
        self._quick_jit = quick_jit
        self._process: GuardedProcess | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        listeners = ", ".join(f"{x.name}:{x.port}" for x in self.listeners.values())
        return f"<KafkaNode {self.node_id} {listeners} {self._process or 'not running'}>"

    @property
    def bootstrap(self) -> str:
        """`host:port` of the native listener without authentication."""
        return self.bootstrap_of(NATIVE)

    @property
    def bootstrap_sasl(self) -> str:
        """`host:port` of the native SASL_PLAINTEXT listener; needs `native=["SASL"]`."""
        return self.bootstrap_of(NATIVE_SASL)

    def bootstrap_of(self, listener: str) -> str:
        """`host:port` where the broker itself listens for `listener`."""
        host, port = self.address(listener)
        return f"{host}:{port}"

    def address(self, listener: str) -> tuple[str, int]:
        """Host and port where the broker itself listens for `listener`: what a proxy dials."""
        return LOOPBACK, self.listeners[listener].port

    def advertised(self, listener: str) -> tuple[str, int]:
        """Host and port that clients of `listener` are told to dial: where a Sluice in front listens."""
        return self.listeners[listener].advertised

    @property
    def is_running(self) -> bool:
        """Whether it was started and not stopped since."""
        return self._process is not None

    @property
    def pid(self) -> int:
        """The broker's process id. Raises RuntimeError if it is not running."""
        if self._process is None:
            raise RuntimeError("the broker is not running")
        return self._process.pid

    def properties_text(self) -> str:
        """The text of server.properties."""
        return server_properties(self._config)

    def begin_start(self) -> None:
        """Start the JVM and return at once; `await_start` completes it. For several nodes at a time."""
        properties = self.folder / "server.properties"
        properties.write_text(self.properties_text(), encoding="utf-8")
        broker = java_command(
            self.dist,
            BROKER,
            [str(properties)],
            heap=self._heap,
            quick_jit=self._quick_jit,
            log_level="info",
            options=self._java_options,
        )
        if (self.folder / "data" / "meta.properties").exists():  # a restart, with its data
            command = broker
            self.log.rename(self.log.with_suffix(".before"))
        else:
            command = starting(self.dist, self._config, self.cluster_id, properties, broker)
        self._process = GuardedProcess(command, output=self.log, remove_on_death=self.folder)

    def await_start(self, timeout_s: float = 90.0) -> None:
        """Wait until the broker takes requests. Raises KafkaNodeError with the log's tail if it does not."""
        assert self._process is not None
        try:
            wait_for_line(self._process, self.log, STARTED, timeout_s)
        except RuntimeError as error:
            raise KafkaNodeError(f"Kafka did not start: {error}") from error
        started(self.dist, self._config)

    def start(self, timeout_s: float = 90.0) -> None:
        """Start the broker, the first time or again with its data; return once it takes requests."""
        self.begin_start()
        self.await_start(timeout_s)

    def stop(self, *, graceful: bool = True) -> None:
        """Stop the broker and keep its data: `graceful` with SIGTERM (controlled shutdown), else SIGKILL.

        After SIGKILL the next start takes some seconds more: the controller waits for the lost session's end.
        """
        if self._process is not None:
            if graceful:
                self._process.stop(timeout_s=20.0)
            self._process.close()
            self._process = None

    def close(self) -> None:
        """End the broker at once and remove its folder. May be called twice."""
        self.stop(graceful=False)
        give_back(self._ports)
        shutil.rmtree(self.folder, ignore_errors=True)

    def log_tail(self, lines: int = 40) -> str:
        """Return the last lines of the broker's log."""
        return log_tail(self.log, lines)
