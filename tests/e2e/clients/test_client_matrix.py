"""Every client in both modes, in the clear, with SASL_SSL and with certificates, with and without a quota.

Idempotent and transactional producers and the groups of their consumers, of four libraries, all at once:
exactly once and in order. TLS ends at the proxy; a login goes on to the broker, a certificate does not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any, Final

import pytest

from testkit.clients.client_security import NO_SECURITY, Login, Security
from testkit.clients.everybody import everybody_at_work
from testkit.clients.kafka_clients import LEAVES_SOCKETS
from testkit.kafka.cluster import KafkaCluster
from testkit.kafka.dist import KafkaDist
from testkit.kafka.node import USERS
from testkit.kafka.secured_kafka import Certificates
from testkit.proxy.sluice_process import Door, SluiceProcess, doors_of_cluster, gateway_door
from testkit.proxy.tls_doors import MountedSecret, secret_of, tls_of

Unique = Callable[[str], str]

pytestmark = [
    pytest.mark.kafka,
    *LEAVES_SOCKETS,
]

PLAINTEXT: Final = "PLAINTEXT"
SASL_SSL: Final = "SASL_SSL"
MTLS: Final = "mTLS"
SHORT: Final = {("broker", SASL_SSL, True), ("gateway", MTLS, True)}
"""of the matrix what is in every run of all checks, as long; the others are slow"""
AT_WORK_S: Final = 5.0
RULES: Final = r"RULE:^CN=([a-z]+),OU=Payments$/$1/"


@pytest.fixture(scope="module")
def cluster(kafka_dist: KafkaDist) -> Iterator[KafkaCluster]:
    with KafkaCluster(kafka_dist, proxied=["SLUICE", "SLUICE_SASL"], native=["SASL"]) as cluster:
        yield cluster


class Secured:
    """Certificates, and what proxy and clients make of them."""

    def __init__(self, certificates: Certificates, secret: MountedSecret) -> None:
        self._certificates = certificates
        self._secret = secret

    def client(self, kind: str) -> Security:
        if kind == SASL_SSL:
            return self._certificates.security(Login("SCRAM-SHA-256", "alice", USERS["alice"]))
        if kind == MTLS:
            return self._certificates.security(subject="CN=alice,OU=Payments")
        return NO_SECURITY

    def door(self, door: Door, kind: str) -> Door:
        """The same to which clients come so."""
        if kind == PLAINTEXT:
            return door
        options: dict[str, Any] = {"upstream_security_protocol": door.protocol}
        if kind == SASL_SSL:
            options["tls"] = tls_of(self._secret)
        else:
            options["tls"] = tls_of(self._secret, rules=RULES)
            options["accept_shared_upstream_identity"] = True
        protocol = SASL_SSL if kind == SASL_SSL else "SSL"
        return replace(door, protocol=protocol, options={**door.options, **options})


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Secured:
    folder = tmp_path_factory.mktemp("matrix")
    certificates = Certificates(folder)
    authority = certificates.authority
    return Secured(
        certificates, MountedSecret(folder / "tls", secret_of(authority.server(), authority.certificate_pem))
    )


def doors(cluster: KafkaCluster, secured: Secured, mode: str, kind: str) -> list[Door]:
    logs_in = kind == SASL_SSL
    if mode == "broker":
        found = doors_of_cluster(cluster, "SLUICE_SASL" if logs_in else "SLUICE")
    else:
        found = [gateway_door(cluster, "SASL" if logs_in else "PLAINTEXT")]
    return [secured.door(door, kind) for door in found]


@pytest.mark.parametrize(
    ("mode", "kind", "throttled"),
    [
        pytest.param(*case, marks=pytest.mark.long if case in SHORT else pytest.mark.slow)
        for case in product(("broker", "gateway"), (PLAINTEXT, SASL_SSL, MTLS), (False, True))
    ],
)
def test_every_client_writes_and_reads_exactly_once_and_in_order(
    cluster: KafkaCluster, secured: Secured, unique: Unique, mode: str, kind: str, throttled: bool
) -> None:
    with (
        SluiceProcess(doors(cluster, secured, mode, kind), mode=mode) as sluice,
        everybody_at_work(cluster, sluice, unique, throttled=throttled, security=secured.client(kind)),
    ):
        time.sleep(AT_WORK_S)
