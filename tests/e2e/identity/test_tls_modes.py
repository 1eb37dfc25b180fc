"""TLS ends at the proxy, and users log in through it: at a broker with TLS, and at one without."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from confluent_kafka import KafkaError

from testkit.clients.client_security import Login, Security
from testkit.clients.java_client import ALL_CLIENTS, JAVA
from testkit.clients.kafka_clients import (
    AIOKAFKA,
    CONFLUENT,
    KAFKA_PYTHON,
    Client,
    Options,
    confluent_producer,
)
from testkit.clients.kafka_records import Record, assert_exactly, create_topic, numbered, stored
from testkit.clients.traffic import Flow
from testkit.kafka.dist import KafkaDist
from testkit.kafka.node import KafkaNode
from testkit.kafka.secured_kafka import Certificates
from testkit.processes.ports import LOOPBACK, free_ports
from testkit.proxy.sluice_process import Door, SluiceProcess
from testkit.proxy.tls_doors import MountedSecret, await_disconnects, certificate_at, secret_of, tls_of

pytestmark = pytest.mark.kafka
Unique = Callable[[str], str]
TO_PLAIN, TO_TLS, AGAIN = "TO_PLAIN_SASL", "TO_TLS_SASL_SSL", "AGAIN_SASL"
"""doors, and the listeners of the broker behind them: clients come with SASL_SSL to all"""
SESSION_MS = 5_000
"""how long the broker lets a login with SCRAM-SHA-256 count at AGAIN"""
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
RECORDS = numbered(200, size_bytes=500)
PAYLOAD_BYTES = sum(len(record.value) for record in RECORDS)
QUOTA_BYTES_PER_S = 50_000
BATCH_BYTES = 4_000
QUOTA_S = (PAYLOAD_BYTES - 3 * BATCH_BYTES) / QUOTA_BYTES_PER_S - 1.0
"""what it takes at least to produce them: a second's worth goes at once, and so does the request that passes
it, with a batch for each partition"""


@dataclass
class Rig:
    """A broker, the proxy in front of it, and who is who."""

    kafka: KafkaNode
    sluice: SluiceProcess
    certificates: Certificates
    secret: MountedSecret

    def security(self, mechanism: str, user: str = "alice", password: str | None = None) -> Security:
        known = self.kafka.users.get(user, "")
        return self.certificates.security(Login(mechanism, user, password or known))

    def charged(self, user: str, quota: str = "produce") -> float:
        return self.sluice.metric("sluice_quota_bytes_total", quota=quota, user=user)


@pytest.fixture(scope="module")
def rig(kafka_dist: KafkaDist, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("tls")
    certificates = Certificates(folder)
    secret = MountedSecret(folder / "secret", secret_of(certificates.authority.server()))
    names = (TO_PLAIN, TO_TLS, AGAIN)
    sessions = f"listener.name.{AGAIN.lower()}.scram-sha-256.connections.max.reauth.ms"
    advertised = {name: (LOOPBACK, port) for name, port in zip(names, free_ports(len(names)), strict=True)}
    with KafkaNode(
        kafka_dist, advertised=advertised, tls=certificates.broker, config={sessions: str(SESSION_MS)}
    ) as kafka:
        there = {
            TO_PLAIN: {},
            AGAIN: {},
            TO_TLS: {
                "upstream_security_protocol": "SASL_SSL",
                "upstream_tls": {"ca_file": str(certificates.ca_file)},
            },
        }
        doors = [
            Door(
                name,
                kafka.advertised(name)[1],
                kafka.address(name),
                "SASL_SSL",
                {"tls": tls_of(secret), **there[name]},
            )
            for name in names
        ]
        with SluiceProcess(doors) as sluice:
            yield Rig(kafka, sluice, certificates, secret)


# Whom the broker says yes to --------------------------------------------------------------------------------


def everybody_everywhere() -> Iterator[object]:
    """All of it; some, in which each client, mechanism and door occurs, are not marked slow; one not long."""
    some = {
        (AIOKAFKA, "PLAIN", TO_PLAIN),
        (CONFLUENT, "SCRAM-SHA-256", TO_TLS),
        (KAFKA_PYTHON, "SCRAM-SHA-512", TO_PLAIN),
        (JAVA, "OAUTHBEARER", TO_TLS),
    }
    for client in ALL_CLIENTS:
        for mechanism in MECHANISMS:
            for door in (TO_PLAIN, TO_TLS):
                if (client, mechanism, door) not in some:
                    marks = [pytest.mark.slow]
                else:
                    marks = [] if client is CONFLUENT else [pytest.mark.long]
                yield pytest.param(
                    client, mechanism, door, marks=marks, id=f"{client.name}-{mechanism}-{door}"
                )


@pytest.mark.parametrize(("client", "mechanism", "door"), [*everybody_everywhere()])
def test_who_logged_in_produces_and_consumes_exactly_once_at_his_quota(
    rig: Rig, unique: Unique, client: Client, mechanism: str, door: str
) -> None:
    sluice, security = rig.sluice, rig.security(mechanism)
    sluice.set_quotas(
        {"user": "alice", "producer_byte_rate": QUOTA_BYTES_PER_S, "consumer_byte_rate": 1_000_000},
        {"user": "bob", "producer_byte_rate": QUOTA_BYTES_PER_S},
    )
    before = {quota: rig.charged("alice", quota) for quota in ("produce", "fetch")}
    bob_before = rig.charged("bob")
    topics = {kind: create_topic(rig.kafka, unique(kind)) for kind in ("idempotent", "transactional")}
    for kind, topic in topics.items():
        transaction = unique("transaction") if kind == "transactional" else None
        options = Options(transactional_id=transaction, security=security, batch_bytes=BATCH_BYTES)
        begun_s = time.monotonic()
        client.produce(sluice.bootstrap(door), topic, RECORDS, options)
        assert time.monotonic() - begun_s > QUOTA_S
        found = client.consume(
            sluice.bootstrap(door), topic, unique("group"), len(RECORDS), Options(security=security)
        )
        assert_exactly(RECORDS, stored(rig.kafka, topic), kind)
        assert_exactly(RECORDS, found, f"{kind}, received")
    for quota, count in before.items():
        assert 2 * PAYLOAD_BYTES < rig.charged("alice", quota) - count < 3 * PAYLOAD_BYTES, quota
    assert rig.charged("bob") == bob_before


@pytest.mark.long
def test_two_users_with_the_same_client_id_have_a_bucket_each(rig: Rig, unique: Unique) -> None:
    """Alice pours; bob, who says less than his quota, does not wait."""
    client_id, topic = unique("app"), create_topic(rig.kafka, unique("topic"))
    rig.sluice.set_quotas(
        *(
            {"user": user, "client-id": client_id, "producer_byte_rate": QUOTA_BYTES_PER_S}
            for user in ("alice", "bob")
        )
    )

    def waited_s(user: str) -> float:
        return rig.sluice.metric(
            "sluice_throttled_seconds_total", quota="produce", user=user, client_id=client_id
        )

    security = rig.security("SCRAM-SHA-256")
    producer = confluent_producer(
        rig.sluice.bootstrap(TO_PLAIN),
        Options(client_id=client_id, security=security, batch_bytes=4_000),
    )
    flow = Flow(producer, topic)
    try:
        rig.sluice.wait_until(lambda: waited_s("alice") > 0.5, "alice throttled")
        bobs = create_topic(rig.kafka, unique("bobs"))
        few = RECORDS[:60]
        options = Options(client_id=client_id, security=rig.security("PLAIN", "bob"))
        CONFLUENT.produce(rig.sluice.bootstrap(TO_TLS), bobs, few, options)
        assert_exactly(few, stored(rig.kafka, bobs))
    finally:
        flow.stop()
    assert waited_s("bob") == 0.0
    assert waited_s("alice") > 0.5
    assert_exactly(flow.sent, stored(rig.kafka, topic))


@pytest.mark.parametrize(
    "client", [CONFLUENT, pytest.param(JAVA, marks=pytest.mark.slow)], ids=lambda client: client.name
)
@pytest.mark.long
def test_who_logs_in_again_on_his_connection_stays_who_he_is(
    rig: Rig, unique: Unique, client: Client
) -> None:
    """KIP-368, which these two know; the others are closed by the broker and come again."""
    sluice, topic = rig.sluice, create_topic(rig.kafka, unique("topic"))
    sluice.set_quotas(
        {"user": "alice", "producer_byte_rate": 1e9}, {"user": "bob", "producer_byte_rate": 1e9}
    )

    def counts() -> dict[str, float]:
        return {
            "handshakes": sluice.metric("sluice_requests_total", api_key="SaslHandshake"),
            "connections": sluice.metric("sluice_connections_opened_total"),
            "closed by the broker": sluice.disconnects("broker_closed"),
            "alice": rig.charged("alice"),
            "bob": rig.charged("bob"),
        }

    before, few = counts(), RECORDS[:60]

    def slowly() -> Iterator[Record]:
        for record in few:
            time.sleep(3 * SESSION_MS / 1000.0 / len(few))
            yield record

    client.produce(sluice.bootstrap(AGAIN), topic, slowly(), Options(security=rig.security("SCRAM-SHA-256")))
    more = {what: count - before[what] for what, count in counts().items()}
    assert_exactly(few, stored(rig.kafka, topic))
    assert more["handshakes"] > more["connections"]
    assert more["closed by the broker"] == 0
    assert more["alice"] > sum(len(record.value) for record in few)
    assert more["bob"] == 0


# Whom it does not say yes to --------------------------------------------------------------------------------


@pytest.mark.parametrize("door", [TO_PLAIN, TO_TLS])
def test_a_wrong_password_makes_nobody_a_principal_and_is_counted(
    rig: Rig, unique: Unique, door: str
) -> None:
    topic = create_topic(rig.kafka, unique("topic"))
    rig.sluice.set_quotas({"user": "alice", "producer_byte_rate": 1e9})
    before, refused = rig.charged("alice"), rig.sluice.disconnects("authentication_failed")
    told: list[KafkaError] = []
    options = Options(security=rig.security("SCRAM-SHA-512", password="wrong"))
    producer = confluent_producer(rig.sluice.bootstrap(door), options, error_cb=told.append)
    producer.produce(topic, b"x")
    rig.sluice.wait_until(
        lambda: producer.poll(0.1) >= 0 and any(e.code() == KafkaError._AUTHENTICATION for e in told),
        "told so",
    )
    rig.sluice.wait_until(
        lambda: rig.sluice.disconnects("authentication_failed") > refused, "counted as refused"
    )
    producer.purge()
    assert stored(rig.kafka, topic) == []
    assert rig.charged("alice") == before


# Who does not get so far ------------------------------------------------------------------------------------


def test_bytes_that_are_no_tls_are_refused_and_counted(rig: Rig) -> None:
    """A client that was told the wrong protocol, and a web browser's."""
    for data in (b"\0\0\0\x1f\0\x12\0\x03\0\0\0\x01\0\x05hello" + bytes(18), b"GET / HTTP/1.1\r\n\r\n"):
        failed = rig.sluice.disconnects("tls_failed")
        with socket.create_connection((LOOPBACK, rig.sluice.doors[TO_TLS].port), timeout=20.0) as client:
            client.sendall(data)
            while client.recv(4096):  # an alert, perhaps
                pass
        await_disconnects(rig.sluice, "tls_failed", failed + 1)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_tls_that_is_too_old_is_refused_and_counted(rig: Rig) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(rig.certificates.ca_file)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    failed = rig.sluice.disconnects("tls_failed")
    address = (LOOPBACK, rig.sluice.doors[TO_TLS].port)
    with (
        socket.create_connection(address, timeout=20.0) as client,
        pytest.raises(OSError, match=r"(?i)version|alert|reset"),
    ):
        context.wrap_socket(client, server_hostname=LOOPBACK)
    await_disconnects(rig.sluice, "tls_failed", failed + 1)


# Files that change ------------------------------------------------------------------------------------------


@contextmanager
def flowing(rig: Rig, topic: str) -> Iterator[Flow]:
    """A user's traffic, of which every record must arrive once and in order."""
    options = Options(security=rig.security("SCRAM-SHA-256"), batch_bytes=4_000)
    flow = Flow(confluent_producer(rig.sluice.bootstrap(TO_TLS), options), create_topic(rig.kafka, topic))
    try:
        yield flow
    finally:
        flow.stop()
    assert_exactly(flow.sent, stored(rig.kafka, topic))


def ends(sluice: SluiceProcess) -> float:
    return sluice.metric("sluice_disconnects_total")


def reloads(rig: Rig, outcome: str) -> float:
    return rig.sluice.metric("sluice_config_reloads_total", file="certificates", outcome=outcome)


def await_reloads(rig: Rig, outcome: str, count: float) -> None:
    rig.sluice.wait_until(lambda: reloads(rig, outcome) == count, f"{outcome} {count} times")


def test_a_new_certificate_is_shown_to_new_clients_and_nobody_is_dropped(rig: Rig, unique: Unique) -> None:
    port, ca_file = rig.sluice.doors[TO_TLS].port, rig.certificates.ca_file
    old = certificate_at(port, ca_file)
    rig.sluice.set_quotas({"user": "alice", "producer_byte_rate": QUOTA_BYTES_PER_S})
    with flowing(rig, unique("topic")) as flow:
        rig.sluice.wait_until(lambda: len(flow._acknowledged_s) > 100, "traffic")
        before = ends(rig.sluice)
        new = rig.certificates.authority.server()
        rig.secret.put(secret_of(new))
        probes = 0

        def is_new() -> bool:
            nonlocal probes
            probes += 1
            return certificate_at(port, ca_file) == new.der

        rig.sluice.wait_until(is_new, "the new certificate")
        acknowledged = len(flow._acknowledged_s)
        rig.sluice.wait_until(lambda: len(flow._acknowledged_s) > acknowledged + 100, "traffic goes on")
        rig.sluice.wait_until(lambda: ends(rig.sluice) == before + probes, "none ended but the probes")
        assert flow.is_unharmed
    assert old != new.der
    assert rig.sluice.log_lines("certificates_applied", listener=TO_TLS)


def whose(rig: Rig, said: int) -> set[str]:
    """The listeners of the lines behind the first `said` that tell of certificates that were not applied."""
    return {line["listener"] for line in rig.sluice.lines_behind(said, "certificates_not_applied")}


@pytest.mark.long
def test_a_bad_certificate_is_told_and_counted_and_the_good_one_stays(rig: Rig, unique: Unique) -> None:
    port, ca_file = rig.sluice.doors[TO_TLS].port, rig.certificates.ca_file
    old = certificate_at(port, ca_file)
    good, other = (rig.certificates.authority.server() for _ in range(2))
    ended = rig.certificates.authority.server(starts_in_days=-30, ends_in_days=-1)
    bad = {
        "holds no certificate": {**secret_of(good), "tls.crt": b"nonsense"},
        "does not fit the certificate": {**secret_of(good), "tls.key": other.key_pem()},
        "its certificate ended": secret_of(ended),
    }
    with flowing(rig, unique("topic")):
        for problem, files in bad.items():
            invalid, said = reloads(rig, "invalid"), len(rig.sluice.log_lines("certificates_not_applied"))
            rig.secret.put(files)
            await_reloads(rig, "invalid", invalid + 3)
            # Each is counted before its line is written.
            rig.sluice.wait_until(lambda n=said: whose(rig, n) == {TO_PLAIN, TO_TLS, AGAIN}, "told of each")  # type: ignore[misc]
            lines = rig.sluice.lines_behind(said, "certificates_not_applied")
            assert all(problem in str(line["problems"]) for line in lines), lines
            assert "PRIVATE" not in str(lines)
            assert certificate_at(port, ca_file) == old
        unreadable = reloads(rig, "unreadable")
        rig.secret.put({})
        await_reloads(rig, "unreadable", unreadable + 3)
        assert certificate_at(port, ca_file) == old
        rig.secret.put(secret_of(good))
        rig.sluice.wait_until(lambda: certificate_at(port, ca_file) == good.der, "good again")
