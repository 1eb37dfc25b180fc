"""What a test broker is asked to be → the text of its server.properties. Pure: no files, no processes.

Sources: Kafka 4.3 broker configuration; KIP-103 (one listener name per network), KIP-255 (OAUTHBEARER),
KIP-651 (PEM key stores), KIP-801 (StandardAuthorizer).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from testkit.processes.ports import LOOPBACK

NATIVE = "PLAINTEXT"  # the listener that advertises the broker itself
NATIVE_SASL = "SASL"  # the same with SASL_PLAINTEXT
CONTROLLER = "CONTROLLER"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

_SECURITY = "org.apache.kafka.common.security"
_UNSECURED_VALIDATOR = (
    f"{_SECURITY}.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
)
_TIMES_AND_SIZES = {
    "group.initial.rebalance.delay.ms": "0",
    # How long a broker that was killed still counts as alive (9 s by default), and how often it shows that it
    # is.
    "broker.session.timeout.ms": "5000",
    "broker.heartbeat.interval.ms": "1000",
    # Leaders stay where a test puts them.
    "auto.leader.rebalance.enable": "false",
    # A small heap: the cleaner's buffer alone is 128 MiB by default.
    "log.cleaner.dedupe.buffer.size": "4194304",
    "num.network.threads": "2",
    "num.io.threads": "4",
}


@dataclass(frozen=True, slots=True)
class Listener:
    """One listener of a broker: where it listens, and the address that it tells clients."""

    name: str
    port: int
    advertised: tuple[str, int]

    @property
    def protocol(self) -> str:
        """The security protocol, which the end of the name tells: SASL, SSL, SASL_SSL, else PLAINTEXT.

        A name that ends in MTLS is SSL and asks for the client's certificate.
        """
        if self.name.endswith("SASL_SSL"):
            return "SASL_SSL"
        if self.name.endswith("SASL"):
            return "SASL_PLAINTEXT"
        return "SSL" if self.name.endswith(("SSL", "MTLS")) else "PLAINTEXT"

    @property
    def is_sasl(self) -> bool:
        """Whether clients log in with a user's name here."""
        return self.protocol.startswith("SASL")

    @property
    def is_tls(self) -> bool:
        """Whether clients use TLS here."""
        return self.protocol.endswith("SSL")

    @property
    def asks_for_certificates(self) -> bool:
        """Whether a client must have a certificate here."""
        return self.name.endswith("MTLS")


@dataclass(frozen=True, slots=True)
class BrokerTls:
    """The broker's certificate, and whose certificates it trusts: PEM files."""

    keystore: Path  # private key in PKCS #8 without a password, then the certificates
    truststore: Path


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """All that one node's server.properties is made from."""

    node_id: int
    voters: Mapping[int, int]  # node id → controller port
    listeners: tuple[Listener, ...]
    data_folder: str
    users: Mapping[str, str] = field(default_factory=dict)  # user → password
    tls: BrokerTls | None = None  # for listeners with TLS
    super_users: tuple[str, ...] | None = None  # None: no authorizer
    extra: Mapping[str, str] = field(default_factory=dict)  # wins over everything below


def server_properties(config: NodeConfig) -> str:
    """Return the text of server.properties: broker and controller in one process."""
    properties = _network_properties(config) | _storage_properties(config) | _TIMES_AND_SIZES
    for listener in config.listeners:
        if listener.is_sasl:
            properties |= _sasl_properties(listener.name, config.users)
        if listener.is_tls:
            properties |= _tls_properties(listener, config.tls)
    if config.super_users is not None:
        # The brokers talk to each other on listeners without a login, as ANONYMOUS.
        super_users = ("ANONYMOUS", *config.super_users)
        properties |= {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": ";".join(f"User:{user}" for user in super_users),
        }
    properties |= config.extra
    return "".join(f"{key}={value}\n" for key, value in properties.items())


def _network_properties(config: NodeConfig) -> dict[str, str]:
    return {
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
            [f"{listener.name}:{listener.protocol}" for listener in config.listeners]
            + [f"{CONTROLLER}:PLAINTEXT"]
        ),
    }


def _storage_properties(config: NodeConfig) -> dict[str, str]:
    replicas, in_sync = (str(min(most, len(config.voters))) for most in (3, 2))
    return {
        "log.dirs": config.data_folder,
        # Records of tests have one fixed time, of years ago: the broker would delete them each five minutes.
        "log.retention.ms": "-1",
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        # Internal topics: as few partitions and copies as there can be, or the first group, transaction and
        # share group each wait for 50 new partitions.
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": "1",
    }


def _sasl_properties(listener_name: str, users: Mapping[str, str]) -> dict[str, str]:
    prefix = f"listener.name.{listener_name.lower()}"
    scram = f"{_SECURITY}.scram.ScramLoginModule required;"
    return {
        f"{prefix}.sasl.enabled.mechanisms": ",".join(MECHANISMS),
        f"{prefix}.plain.sasl.jaas.config": plain_login(users),
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


def plain_login(users: Mapping[str, str], as_user: str | None = None) -> str:
    """The JAAS entry of PLAIN: whom a broker takes, and `as_user`, who it is itself at other brokers."""
    login = "" if as_user is None else f' username="{as_user}" password="{users[as_user]}"'
    takes = "".join(f' user_{user}="{password}"' for user, password in users.items())
    return f"{_SECURITY}.plain.PlainLoginModule required{login}{takes};"


def _tls_properties(listener: Listener, tls: BrokerTls | None) -> dict[str, str]:
    if tls is None:
        raise ValueError(f"the listener {listener.name} needs a certificate")
    prefix = f"listener.name.{listener.name.lower()}"
    return {
        f"{prefix}.ssl.keystore.type": "PEM",
        f"{prefix}.ssl.keystore.location": str(tls.keystore),
        f"{prefix}.ssl.truststore.type": "PEM",
        f"{prefix}.ssl.truststore.location": str(tls.truststore),
        f"{prefix}.ssl.client.auth": "required" if listener.asks_for_certificates else "none",
    }


def scram_arguments(users: Mapping[str, str]) -> list[str]:
    """Return the arguments of StorageTool that create SCRAM credentials for every user (KIP-900)."""
    return [
        argument
        for user, password in users.items()
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        for argument in ("--add-scram", f"{mechanism}=[name={user},password={password}]")
    ]
