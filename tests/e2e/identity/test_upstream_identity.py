"""A client's certificate ends at the proxy: as whom does the broker see him, and who is not let in at all?"""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient

from testkit.clients.client_security import Security, confluent_security
from testkit.clients.everybody import RECORD_BYTES, RECORDS_PER_S, everybody_at_work
from testkit.clients.java_client import ALL_CLIENTS, JAVA
from testkit.clients.kafka_clients import (
    AIOKAFKA,
    CONFLUENT,
    KAFKA_PYTHON,
    Client,
    Options,
    confluent_producer,
)
from testkit.clients.kafka_records import assert_exactly, create_topic, numbered, stored
from testkit.clients.traffic import Flow
from testkit.frames.frames import METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE, decoded, request
from testkit.kafka.dist import KafkaDist
from testkit.kafka.node import USERS, KafkaNode
from testkit.kafka.sasl_clients import unsigned_token
from testkit.kafka.secured_kafka import Certificates, allow
from testkit.peers.certificates import CertificateAuthority, IdentityFiles
from testkit.processes.ports import LOOPBACK, free_ports
from testkit.proxy.sluice_process import SLUICE, Door, SluiceProcess
from testkit.proxy.tls_doors import MountedSecret, await_disconnects, secret_of, tls_connection, tls_of

pytestmark = pytest.mark.kafka
Unique = Callable[[str], str]
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
SESSION_MS = 6_000
"""how long the broker lets a login count at AGAIN: a Fetch sent before the next login has 5 % of it to
reach the broker, on a machine that others use too"""
RECORDS = numbered(200, size_bytes=500)
PAYLOAD_BYTES = sum(len(record.value) for record in RECORDS)
REFUSED = "TOPIC_AUTHORIZATION_FAILED"


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


@pytest.fixture(scope="module")
def rig(kafka_dist: KafkaDist, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("identity")
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


# As whom the broker sees a client ---------------------------------------------------------------------------


def topic_error(bootstrap: str, security: Security, topic: str) -> str | None:
    """What the broker says to somebody who asks for the topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, **confluent_security(security)})
    error = admin.list_topics(topic, timeout=20.0).topics[topic].error
    return None if error is None else str(error.name())


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
            assert not read_to_the_end(tls)
        await_disconnects(rig.sluice, "upstream_login_failed", refused + 1)
        line = rig.sluice.log_lines("connection_closed", cause="upstream_login_failed")[-1]
        assert f"no credentials for '{name}'" in line["detail"]


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
        before = {cause: rig.sluice.disconnects(cause) for cause in ("tls_failed", "client_reset")}
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
            lambda: (
                rig.sluice.disconnects("tls_failed") + rig.sluice.disconnects("client_reset")
                == sum(before.values()) + 90
            ),
            "all counted",
        )
        assert rig.sluice.metric("sluice_connections_opened_total") == opened, "they reached no broker"


def test_tls_where_none_is_spoken_is_refused_counted_and_told(rig: Rig, kafka: KafkaNode) -> None:
    with SluiceProcess([Door("plain", free_ports(1)[0], kafka.address("SLUICE"))]) as sluice:
        with (
            pytest.raises(OSError, match=r"."),
            tls_connection(sluice.doors["plain"].port, rig.certificates.ca_file),
        ):
            pytest.fail("TLS was spoken")
        await_disconnects(sluice, "tls_on_plaintext", 1)


# A login of the client's own, where the proxy has logged in -------------------------------------------------


def ask(tls: ssl.SSLSocket, frame: bytes) -> bytes | None:
    """The answer, or None if there is none for good."""
    tls.sendall(frame)
    answer = b""
    while len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4], "big"):
        try:
            more = tls.recv(65536)
        except (ssl.SSLError, ConnectionError):
            return None
        if not more:
            return None
        answer += more
    return answer


@pytest.mark.parametrize("user", ["alice", "bob"])
def test_a_client_cannot_log_in_where_his_certificate_has_said_who_he_is(rig: Rig, user: str) -> None:
    """The broker at AGAIN would take a new login, and count whatever followed as that user's."""
    with SluiceProcess([rig.door(AGAIN)]) as sluice:
        with tls_connection(sluice.doors[AGAIN].port, rig.certificates.ca_file, rig.identity("alice")) as tls:
            answer = ask(tls, request(METADATA, 12))
            assert answer is not None
            assert decoded("response", METADATA, 12, answer).body["brokers"]
            time.sleep(1.1)  # the broker takes no new login within a second of the last
            shaken = ask(tls, request(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}))
            if shaken is not None:
                token = f"\0{user}\0{USERS[user]}".encode()
                ask(tls, request(SASL_AUTHENTICATE, 2, {"authBytes": token.hex()}))
            assert shaken is None
        await_disconnects(sluice, "authentication_failed", 1)


# Files that change ------------------------------------------------------------------------------------------


@contextmanager
def restored(rig: Rig) -> Iterator[None]:
    """Both secrets as they were, and in force."""
    try:
        yield
    finally:
        authority = rig.certificates.authority
        rig.secret.put(secret_of(authority.server(), authority.certificate_pem))
        rig.logins.put(logins())
        everybody = [rig.identity(user) for user in ("alice", "bob")]
        rig.sluice.wait_until(lambda: all(is_let_in(rig, identity) for identity in everybody), "as before")


def reloads(rig: Rig, what: str, outcome: str) -> float:
    return rig.sluice.metric("sluice_config_reloads_total", file=what, outcome=outcome)


def is_let_in(rig: Rig, identity: IdentityFiles) -> bool:
    try:
        with tls_connection(rig.port(EACH), rig.certificates.ca_file, identity) as tls:
            return ask(tls, request(METADATA, 12)) is not None
    except OSError:
        return False


def test_who_is_trusted_changes_for_new_clients_and_drops_nobody(
    rig: Rig, unique: Unique, tmp_path: Path
) -> None:
    authority, newcomer = rig.certificates.authority, CertificateAuthority("another")
    stranger = newcomer.client("CN=bob,OU=Payments").write(tmp_path, "stranger")
    server = authority.server()
    rig.sluice.set_quotas({"user": "alice", "producer_byte_rate": 200_000})
    assert not is_let_in(rig, stranger)
    with restored(rig), flowing(rig, unique("topic")):
        ended = rig.sluice.disconnects("tls_failed")
        rig.secret.put(secret_of(server, newcomer.certificate_pem))
        rig.sluice.wait_until(lambda: is_let_in(rig, stranger), "let in")
        assert not is_let_in(rig, rig.identity("alice")), "whom the old authority vouches for"
        # Alice's old connections live on; she could not make new ones.
        assert rig.sluice.disconnects("tls_failed") - ended < 60
    assert is_let_in(rig, rig.identity("alice"))


def test_new_credentials_count_for_new_connections_and_bad_ones_change_nothing(
    rig: Rig, unique: Unique
) -> None:
    topic = create_topic(rig.kafka, unique("of-carol"))
    allow(rig.kafka, "User:carol", topic)
    bootstrap = rig.sluice.bootstrap(EACH)
    rig.sluice.set_quotas({"user": "alice", "producer_byte_rate": 200_000})

    def bobs_error() -> str | None:
        return topic_error(bootstrap, rig.security("bob"), topic)

    with restored(rig), flowing(rig, unique("topic")):
        assert bobs_error() == REFUSED
        invalid = reloads(rig, "credentials", "invalid")
        rig.logins.put({**logins(), f"{EACH}.yaml": "users: {bob: {pasword: hush-hush}}"})
        rig.sluice.wait_until(
            lambda: reloads(rig, "credentials", "invalid") == invalid + 1, "counted as invalid"
        )
        said = str(rig.sluice.log_lines("credentials_not_applied", listener=EACH)[-1])
        assert "pasword" in said
        assert "hush-hush" not in said
        assert bobs_error() == REFUSED
        # From now on bob is carol to the broker.
        as_carol = {"username": "carol", "password": USERS["carol"]}
        each = {"alice": {"password_file": "alice.password"}, "bob": as_carol}
        rig.logins.put({**logins(), f"{EACH}.yaml": yaml.safe_dump({"users": each})})
        rig.sluice.wait_until(lambda: bobs_error() is None, "bob is carol")
        # And now he has a password that the broker does not know.
        refused = rig.sluice.disconnects("upstream_login_failed")
        rig.logins.put({**logins(), "bob.password": "guessed"})
        rig.sluice.wait_until(lambda: not is_let_in(rig, rig.identity("bob")), "bob is refused")
        assert rig.sluice.disconnects("upstream_login_failed") > refused
        line = rig.sluice.log_lines("connection_closed", cause="upstream_login_failed")[-1]
        assert "Authentication failed" in line["detail"]
        assert "guessed" not in rig.sluice.log.read_text()


# Logging in again (KIP-368) ---------------------------------------------------------------------------------

QUIET_CAUSES = ("client_closed", "drained")


@pytest.mark.parametrize(
    ("clients", "throttled"),
    [
        pytest.param((AIOKAFKA, CONFLUENT), True, id="two-throttled"),
        pytest.param((AIOKAFKA, CONFLUENT), False, id="two-without-quota", marks=pytest.mark.slow),
        pytest.param((KAFKA_PYTHON, JAVA), True, id="the-others-throttled", marks=pytest.mark.slow),
        pytest.param((KAFKA_PYTHON, JAVA), False, id="the-others-without-quota", marks=pytest.mark.slow),
    ],
)
def test_the_proxy_logs_in_again_under_load_and_nobody_notices(
    rig: Rig, unique: Unique, clients: tuple[Client, ...], throttled: bool
) -> None:
    """One bucket for all connections of a user, so that they are held, and not only muted."""
    allow(rig.kafka, "User:alice", "*")
    who = [(client, kind) for client in clients for kind in ("idempotent", "transactional")]
    produced_bytes_per_s = len(who) * RECORDS_PER_S * RECORD_BYTES
    quota = {
        "user": "alice",
        "producer_byte_rate": 0.8 * produced_bytes_per_s,
        "consumer_byte_rate": 1.5 * produced_bytes_per_s,
    }
    with SluiceProcess([rig.door(AGAIN)]) as sluice:
        at_work = everybody_at_work(
            rig.kafka, sluice, unique, throttled=False, who=who, security=rig.security("alice")
        )
        with at_work:
            if throttled:
                sluice.set_quotas(quota)
            opened = sluice.metric("sluice_connections_opened_total")
            time.sleep(2.5 * SESSION_MS / 1000.0)
            assert ended_unquietly(sluice) == {}
            # Nobody had to come again, whose old connection the broker would have closed by now.
            assert sluice.metric("sluice_connections_opened_total") == opened
        assert ended_unquietly(sluice) == {}
        if throttled:
            assert sluice.metric("sluice_throttled_seconds_total", quota="produce", user="alice") > 1.0


def ended_unquietly(sluice: SluiceProcess) -> dict[str, float]:
    return {
        labels["cause"]: count
        for labels, count in sluice.samples("sluice_disconnects_total")
        if count and labels["cause"] not in QUIET_CAUSES
    }
