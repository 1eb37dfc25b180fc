"""A broker with ACLs and a proxy that logs in there for clients with certificates, in each way it can."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from testkit.clients.client_security import Security
from testkit.clients.kafka_clients import Options, confluent_producer
from testkit.clients.kafka_records import assert_exactly, create_topic, stored
from testkit.clients.traffic import Flow
from testkit.kafka.dist import KafkaDist
from testkit.kafka.node import USERS, KafkaNode
from testkit.kafka.sasl_clients import unsigned_token
from testkit.kafka.secured_kafka import Certificates, allow
from testkit.peers.certificates import IdentityFiles
from testkit.processes.ports import LOOPBACK, free_ports
from testkit.proxy.sluice_process import Door, SluiceProcess
from testkit.proxy.tls_doors import MountedSecret, secret_of, tls_of

EACH, TOKENS, SERVICE, CERTIFICATE, AGAIN = (
    "EACH_SASL",
    "TOKENS_SASL_SSL",
    "SERVICE_SASL_SSL",
    "OURS_MTLS",
    "AGAIN_SASL",
)
"""Doors, and the listeners of the broker behind them. Clients come with a certificate to all. At the broker
the proxy logs in as each user by a password, or by his token, or as one for all, or shows a certificate for
all."""
RULES = r"RULE:^CN=([a-z]+),OU=Payments$/$1/, DEFAULT"
SESSION_MS = 10_000
"""how long the broker lets a login count at AGAIN: a Fetch sent before the next login has 5 % of it to
reach the broker, on a machine that others use too"""


@dataclass
class Rig:
    """A broker with ACLs, the proxy in front of it, and the proxy's files."""

    kafka: KafkaNode
    certificates: Certificates
    secret: MountedSecret
    logins: MountedSecret
    sluice: SluiceProcess = field(init=False)

    def security(self, user: str = "alice") -> Security:
        return self.certificates.security(subject=f"CN={user},OU=Payments")

    def identity(self, user: str) -> IdentityFiles:
        found = self.security(user).tls
        assert found is not None
        assert found.identity is not None
        return found.identity

    def port(self, door: str) -> int:
        return self.sluice.doors[door].port

    def charged(self, user: str, quota: str = "produce") -> float:
        return self.sluice.metric("sluice_quota_bytes_total", quota=quota, user=user)

    def door(self, name: str) -> Door:
        return Door(
            name,
            self.kafka.advertised(name)[1],
            self.kafka.address(name),
            "SSL",
            {"tls": tls_of(self.secret, rules=RULES), **self._upstream(name)},
        )

    def _upstream(self, name: str) -> dict[str, Any]:
        protocol = self.kafka.listeners[name].protocol
        options: dict[str, Any] = {"upstream_security_protocol": protocol}
        if protocol.endswith("SSL"):
            options["upstream_tls"] = {"ca_file": str(self.certificates.ca_file)}
        if name == CERTIFICATE:
            ours = self.identity("sluice")
            options["upstream_tls"] |= {"certificate_file": str(ours.certificate), "key_file": str(ours.key)}
        else:
            options["upstream_sasl"] = {
                "mechanism": {EACH: "SCRAM-SHA-512", TOKENS: "OAUTHBEARER", SERVICE: "PLAIN"}.get(
                    name, "SCRAM-SHA-256"
                ),
                "credentials_file": str(self.logins / f"{name}.yaml"),
            }
        if name in {SERVICE, CERTIFICATE}:
            options["accept_shared_upstream_identity"] = True
        return options


def logins() -> dict[str, bytes | str]:
    """Carol has none of her own at EACH."""
    each = {user: {"password_file": f"{user}.password"} for user in ("alice", "bob")}
    return {
        f"{EACH}.yaml": yaml.safe_dump({"users": each}),
        f"{AGAIN}.yaml": yaml.safe_dump({"users": each}),
        f"{SERVICE}.yaml": yaml.safe_dump({"service": {"username": "carol", "password": USERS["carol"]}}),
        f"{TOKENS}.yaml": yaml.safe_dump({"users": {"alice": {"token_file": "alice.token"}}}),
        "alice.token": unsigned_token("alice"),
        "alice.password": USERS["alice"],
        "bob.password": USERS["bob"] + "\n",
    }


@contextmanager
def identity_rig(kafka_dist: KafkaDist, folder: Path) -> Iterator[Rig]:
    """Broker and proxy at work, their files in the folder."""
    certificates = Certificates(folder)
    authority = certificates.authority
    secret = MountedSecret(folder / "tls", secret_of(authority.server(), authority.certificate_pem))
    mounted = MountedSecret(folder / "logins", logins())
    names = (EACH, TOKENS, SERVICE, CERTIFICATE, AGAIN)
    with KafkaNode(
        kafka_dist,
        advertised={name: (LOOPBACK, port) for name, port in zip(names, free_ports(len(names)), strict=True)},
        tls=certificates.broker,
        super_users=[],
        config={f"listener.name.{AGAIN.lower()}.scram-sha-256.connections.max.reauth.ms": str(SESSION_MS)},
    ) as kafka:
        rig = Rig(kafka, certificates, secret, mounted)
        with SluiceProcess([rig.door(name) for name in names if name != AGAIN]) as rig.sluice:
            yield rig


@contextmanager
def flowing(rig: Rig, topic: str, door: str = EACH) -> Iterator[Flow]:
    """Alice's traffic, of which every record must arrive once and in order."""
    create_topic(rig.kafka, topic)
    allow(rig.kafka, "User:alice", topic)
    options = Options(security=rig.security("alice"), batch_bytes=4_000)
    flow = Flow(confluent_producer(rig.sluice.bootstrap(door), options), topic)
    try:
        rig.sluice.wait_until(lambda: len(flow._acknowledged_s) > 50, "traffic")
        yield flow
        acknowledged = len(flow._acknowledged_s)
        rig.sluice.wait_until(lambda: len(flow._acknowledged_s) > acknowledged + 50, "traffic goes on")
    finally:
        flow.stop()
    assert_exactly(flow.sent, stored(rig.kafka, topic))
