"""A client's certificate ends at the proxy: as whom does the broker see him, and who is not let in at all?"""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from testkit.clients.java_client import ALL_CLIENTS
from testkit.clients.kafka_clients import AIOKAFKA, CONFLUENT, KAFKA_PYTHON, Client, Options
from testkit.clients.kafka_records import assert_exactly, create_topic, numbered, stored
from testkit.frames.frames import API_VERSIONS, METADATA, request
from testkit.kafka.dist import KafkaDist
from testkit.kafka.node import USERS, KafkaNode
from testkit.kafka.secured_kafka import allow, topic_error
from testkit.peers.certificates import CertificateAuthority
from testkit.processes.ports import LOOPBACK, free_ports
from testkit.proxy.identity_rig import (
    CERTIFICATE,
    EACH,
    RULES,
    SERVICE,
    TOKENS,
    Rig,
    flowing,
    identity_rig,
)
from testkit.proxy.sluice_process import SLUICE, Door, SluiceProcess
from testkit.proxy.tls_doors import MountedSecret, await_disconnects, secret_of, tls_connection, tls_of

pytestmark = pytest.mark.kafka
Unique = Callable[[str], str]
RECORDS = numbered(200, size_bytes=500)
PAYLOAD_BYTES = sum(len(record.value) for record in RECORDS)
REFUSED = "TOPIC_AUTHORIZATION_FAILED"


@pytest.fixture(scope="module")
def rig(kafka_dist: KafkaDist, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with identity_rig(kafka_dist, tmp_path_factory.mktemp("identity")) as rig:
        yield rig


# As whom the broker sees a client ---------------------------------------------------------------------------

SEEN_AS = {
    EACH: "User:alice",
    TOKENS: "User:alice",
    SERVICE: "User:carol",
    CERTIFICATE: "User:CN=sluice,OU=Payments",
}


def everybody_everywhere() -> Iterator[Any]:
    """All of it; some, in which each door occurs, are not marked slow."""
    some = {(AIOKAFKA, EACH), (CONFLUENT, SERVICE), (CONFLUENT, CERTIFICATE), (KAFKA_PYTHON, TOKENS)}
    for client in ALL_CLIENTS:
        for door in SEEN_AS:
            marks = [] if (client, door) in some else [pytest.mark.slow]
            yield pytest.param(client, door, marks=marks, id=f"{client.name}-{door}")


@pytest.mark.parametrize(("client", "door"), [*everybody_everywhere()])
def test_the_brokers_acls_hold_for_whom_the_proxy_logs_in_and_quotas_for_whom_the_certificate_names(
    rig: Rig, unique: Unique, client: Client, door: str
) -> None:
    sluice, topic = rig.sluice, create_topic(rig.kafka, unique("topic"))
    bootstrap = sluice.bootstrap(door)
    sluice.set_quotas(
        *({"user": user, "producer_byte_rate": 1e9, "consumer_byte_rate": 1e9} for user in USERS)
    )
    assert topic_error(bootstrap, rig.security("alice"), topic) == REFUSED
    allow(rig.kafka, SEEN_AS[door], topic)
    before = {(user, quota): rig.charged(user, quota) for user in USERS for quota in ("produce", "fetch")}
    options = Options(security=rig.security("alice"), transactional_id=unique("transaction"))
    client.produce(bootstrap, topic, RECORDS, options)
    found = client.consume(
        bootstrap, topic, unique("group"), len(RECORDS), Options(security=rig.security("alice"))
    )
    assert_exactly(RECORDS, stored(rig.kafka, topic))
    assert_exactly(RECORDS, found)
    for quota in ("produce", "fetch"):
        assert PAYLOAD_BYTES < rig.charged("alice", quota) - before["alice", quota] < 2 * PAYLOAD_BYTES
        for other in ("bob", "carol"):
            assert rig.charged(other, quota) == before[other, quota]


def test_what_one_user_may_the_other_may_not(rig: Rig, unique: Unique) -> None:
    topics = {user: create_topic(rig.kafka, unique(user)) for user in ("alice", "bob")}
    for user, topic in topics.items():
        allow(rig.kafka, f"User:{user}", topic)
    errors = {
        (user, owner): topic_error(rig.sluice.bootstrap(EACH), rig.security(user), topic)
        for user in topics
        for owner, topic in topics.items()
    }
    assert errors == {
        ("alice", "alice"): None,
        ("bob", "bob"): None,
        ("alice", "bob"): REFUSED,
        ("bob", "alice"): REFUSED,
    }


def test_where_one_identity_is_accepted_for_all_the_broker_cannot_tell_them_apart(
    rig: Rig, unique: Unique
) -> None:
    topic = create_topic(rig.kafka, unique("topic"))
    allow(rig.kafka, SEEN_AS[SERVICE], topic)
    for user in ("alice", "bob", "whoever"):
        assert topic_error(rig.sluice.bootstrap(SERVICE), rig.security(user), topic) is None


def test_a_user_without_credentials_is_refused_and_the_log_says_whom(rig: Rig) -> None:
    """And so is one whom only the rule DEFAULT names, by the whole of his name."""
    for subject, name in (("CN=carol,OU=Payments", "carol"), ("CN=alice,OU=Sales", "CN=alice,OU=Sales")):
        refused = rig.sluice.disconnects("upstream_login_failed")
        with tls_connection(
            rig.port(EACH), rig.certificates.ca_file, rig.certificates.client(subject)
        ) as tls:
            tls.sendall(request(API_VERSIONS, 3))
            assert not read_to_the_end(tls)
        await_disconnects(rig.sluice, "upstream_login_failed", refused + 1)
        line = rig.sluice.log_lines("connection_closed", cause="upstream_login_failed")[-1]
        assert f"no credentials for '{name}'" in line["detail"]
        assert line["user"] == name


def read_to_the_end(tls: ssl.SSLSocket) -> bytes:
    """What a client is told until it is closed; an alert is an end, too."""
    data = b""
    try:
        while more := tls.recv(4096):
            data += more
    except (ssl.SSLError, ConnectionError):
        pass
    return data


# Without either it does not start ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("upstream", "credentials", "said"),
    [
        ({}, None, "the broker would see one identity whoever the client is"),
        (
            {
                "upstream_security_protocol": "SASL_PLAINTEXT",
                "upstream_sasl": {"mechanism": "PLAIN", "credentials_file": "logins.yaml"},
            },
            {"service": {"username": "sluice", "password": "the-secret"}},
            "lists no `users:`",
        ),
    ],
    ids=["no login", "a login of the service"],
)
@pytest.mark.parametrize("command", ["run", "check"])
def test_one_identity_for_all_must_be_accepted_or_it_does_not_start(
    tmp_path: Path, command: str, upstream: dict[str, Any], credentials: object, said: str
) -> None:
    authority = CertificateAuthority()
    secret = MountedSecret(tmp_path / "tls", secret_of(authority.server(), authority.certificate_pem))
    if credentials is not None:
        (tmp_path / "logins.yaml").write_text(yaml.safe_dump(credentials))
    door = Door(
        "clients", free_ports(1)[0], (LOOPBACK, 9), "SSL", {"tls": tls_of(secret, rules=RULES), **upstream}
    )
    (tmp_path / "quotas.yaml").write_text('{"quotas": [{"user": "alice", "producer_byte_rate": 1000}]}')
    file = tmp_path / "sluice.yaml"
    file.write_text(
        json.dumps(
            {
                "listeners": [door.configuration()],
                "quotas": {"file": "quotas.yaml"},
                "admin": {"bind_host": LOOPBACK, "bind_port": 0},
            }
        )
    )
    arguments = ["--config", file] if command == "run" else [file]
    done = subprocess.run(
        [SLUICE, command, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "accept_shared_upstream_identity" in done.stderr
    assert "Traceback" not in done.stderr
    assert "the-secret" not in done.stderr + done.stdout


# Who is not let in ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["none", "expired", "foreign", "not yet valid"])
def test_without_a_good_certificate_nobody_gets_in_and_each_is_counted(
    rig: Rig, tmp_path: Path, which: str
) -> None:
    subject, authority = "CN=alice,OU=Payments", rig.certificates.authority
    identity = {
        "none": None,
        "expired": authority.expired_client(subject),
        "foreign": CertificateAuthority().client(subject),
        "not yet valid": authority.client(subject, starts_in_days=5),
    }[which]
    files = None if identity is None else identity.write(tmp_path, "bad")
    failed = rig.sluice.disconnects("tls_failed")
    try:
        with tls_connection(rig.port(EACH), rig.certificates.ca_file, files) as tls:
            tls.sendall(request(METADATA, 12))
            assert read_to_the_end(tls) == b""
    except OSError:
        pass
    await_disconnects(rig.sluice, "tls_failed", failed + 1)
    detail = rig.sluice.log_lines("connection_closed", cause="tls_failed")[-1]["detail"]
    assert "certificate" in detail


def test_good_clients_do_not_notice_bad_ones(rig: Rig, unique: Unique, tmp_path: Path) -> None:
    foreign = CertificateAuthority().client("CN=alice,OU=Payments").write(tmp_path, "foreign")
    rig.sluice.set_quotas({"user": "alice", "producer_byte_rate": 200_000})
    with flowing(rig, unique("topic")):
        before = rig.sluice.metric("sluice_disconnects_total")
        opened = rig.sluice.metric("sluice_connections_opened_total")
        for _ in range(30):
            for files in (None, foreign):
                try:
                    with tls_connection(rig.port(EACH), rig.certificates.ca_file, files) as tls:
                        read_to_the_end(tls)
                except OSError:
                    pass
            with socket.create_connection((LOOPBACK, rig.port(EACH)), timeout=20.0) as plain:
                plain.sendall(request(METADATA, 12))
        rig.sluice.wait_until(
            lambda: rig.sluice.metric("sluice_disconnects_total") >= before + 90, "all are counted"
        )
        # Of 90 none; the good client may connect anew for reasons of its own.
        assert rig.sluice.metric("sluice_connections_opened_total") < opened + 10, "they reached no broker"


def test_tls_where_none_is_spoken_is_refused_counted_and_told(rig: Rig, kafka: KafkaNode) -> None:
    with SluiceProcess([Door("plain", free_ports(1)[0], kafka.address("SLUICE"))]) as sluice:
        with (
            pytest.raises(OSError, match=r"."),
            tls_connection(sluice.doors["plain"].port, rig.certificates.ca_file),
        ):
            pytest.fail("TLS was spoken")
        await_disconnects(sluice, "tls_on_plaintext", 1)
