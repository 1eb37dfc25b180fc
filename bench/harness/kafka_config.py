"""What a test broker is asked to be → the text of its server.properties. Pure: no files, no processes.

Sources: Kafka 4.3 broker configuration; KIP-103 (one listener name per network), KIP-255 (OAUTHBEARER).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bench.harness.ports import LOOPBACK

NATIVE = "PLAINTEXT"  # the listener that advertises the broker itself
NATIVE_SASL = "SASL"  # the same with SASL_PLAINTEXT
CONTROLLER = "CONTROLLER"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

_SECURITY = "org.apache.kafka.common.security"
_UNSECURED_VALIDATOR = (
    f"{_SECURITY}.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
)


@dataclass(frozen=True, slots=True)
class Listener:
    """One listener of a broker: where it listens, and the address that it tells clients."""

    name: str
    port: int
    advertised: tuple[str, int]

    @property
    def is_sasl(self) -> bool:
        """Whether clients authenticate here: listeners are SASL_PLAINTEXT if their name ends in SASL."""
        return self.name.endswith("SASL")


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """All that one node's server.properties is made from."""

    node_id: int
    voters: Mapping[int, int]  # node id → controller port
    listeners: tuple[Listener, ...]
    data_folder: str
    users: Mapping[str, str] = field(default_factory=dict)  # user → password
    extra: Mapping[str, str] = field(default_factory=dict)  # wins over everything below


def server_properties(config: NodeConfig) -> str:
    """Return the text of server.properties: broker and controller in one process."""
    replicas = str(min(3, len(config.voters)))
    properties = {
        "process.roles": "broker,controller",
        "node.id": str(config.node_id),
        "controller.quorum.voters": ",".join(
            f"{node_id}@{LOOPBACK}:{port}" for node_id, port in sorted(config.voters.items())
        ),
        "controller.listener.names": CONTROLLER,
        "inter.broker.listener.name": NATIVE,
        "listeners": ",".join(
            [f"{listener.name}://{LOOPBACK}:{listener.port}" for listener in config.listeners]
            + [f"{CONTROLLER}://{LOOPBACK}:{config.voters[config.node_id]}"]
        ),
        "advertised.listeners": ",".join(
            f"{listener.name}://{listener.advertised[0]}:{listener.advertised[1]}"
            for listener in config.listeners
        ),
        "listener.security.protocol.map": ",".join(
            [f"{x.name}:{'SASL_PLAINTEXT' if x.is_sasl else 'PLAINTEXT'}" for x in config.listeners]
            + [f"{CONTROLLER}:PLAINTEXT"]
        ),
        "log.dirs": config.data_folder,
        # Internal topics: as few partitions and copies as there can be, or the first group, transaction and
        # share group each wait for 50 new partitions.
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        # A small heap: the cleaner's buffer alone is 128 MiB by default.
        "log.cleaner.dedupe.buffer.size": "4194304",
        "num.network.threads": "2",
        "num.io.threads": "4",
    }
    for listener in config.listeners:
        if listener.is_sasl:
            properties |= _sasl_properties(listener.name, config.users)
    properties |= config.extra
    return "".join(f"{key}={value}\n" for key, value in properties.items())


def _sasl_properties(listener_name: str, users: Mapping[str, str]) -> dict[str, str]:
    prefix = f"listener.name.{listener_name.lower()}"
    plain_users = "".join(f' user_{user}="{password}"' for user, password in users.items())
    scram = f"{_SECURITY}.scram.ScramLoginModule required;"
    return {
        f"{prefix}.sasl.enabled.mechanisms": ",".join(MECHANISMS),
        f"{prefix}.plain.sasl.jaas.config": f"{_SECURITY}.plain.PlainLoginModule required{plain_users};",
        f"{prefix}.scram-sha-256.sasl.jaas.config": scram,
        f"{prefix}.scram-sha-512.sasl.jaas.config": scram,
        # Tokens without a signature (alg: none): the simplest that the broker's own code accepts. Tests
        # only.
        f"{prefix}.oauthbearer.sasl.jaas.config": (
            f'{_SECURITY}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
        ),
        f"{prefix}.oauthbearer.sasl.server.callback.handler.class": _UNSECURED_VALIDATOR,
        "delegation.token.secret.key": "a-secret-of-the-tests",
    }


def scram_arguments(users: Mapping[str, str]) -> list[str]:
    """Return the arguments of StorageTool that create SCRAM credentials for every user (KIP-900)."""
    return [
        argument
        for user, password in users.items()
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        for argument in ("--add-scram", f"{mechanism}=[name={user},password={password}]")
    ]
