"""The proxy's logins at the broker: repeated, changed with their files, and never a client's own."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from testkit.clients.everybody import RECORD_BYTES, RECORDS_PER_S, everybody_at_work
from testkit.clients.java_client import JAVA
from testkit.clients.kafka_clients import AIOKAFKA, CONFLUENT, KAFKA_PYTHON, Client
from testkit.clients.kafka_records import create_topic
from testkit.frames.frames import METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE, decoded, request
from testkit.kafka.dist import KafkaDist
from testkit.kafka.node import USERS
from testkit.kafka.secured_kafka import allow, topic_error
from testkit.peers.certificates import CertificateAuthority, IdentityFiles
from testkit.proxy.identity_rig import (
    AGAIN,
    EACH,
    SESSION_MS,
    Rig,
    flowing,
    identity_rig,
    logins,
)
from testkit.proxy.sluice_process import SluiceProcess
from testkit.proxy.tls_doors import await_disconnects, secret_of, tls_connection

pytestmark = pytest.mark.kafka
Unique = Callable[[str], str]
REFUSED = "TOPIC_AUTHORIZATION_FAILED"


@pytest.fixture(scope="module")
def rig(kafka_dist: KafkaDist, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with identity_rig(kafka_dist, tmp_path_factory.mktemp("identity")) as rig:
        yield rig


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
    looks = 0

    def stranger_is_let_in() -> bool:
        nonlocal looks
        looks += 1
        return is_let_in(rig, stranger)

    with restored(rig), flowing(rig, unique("topic")):
        ended = rig.sluice.disconnects("tls_failed")
        rig.secret.put(secret_of(server, newcomer.certificate_pem))
        rig.sluice.wait_until(stranger_is_let_in, "let in")
        assert not is_let_in(rig, rig.identity("alice")), "whom the old authority vouches for"
        # Alice's old connections live on; she could not make new ones. Ours that were refused count, too.
        assert rig.sluice.disconnects("tls_failed") - ended < looks + 40
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
        rig.sluice.wait_until(lambda: rig.sluice.disconnects("upstream_login_failed") > refused, "counted")
        line = rig.sluice.log_lines("connection_closed", cause="upstream_login_failed")[-1]
        assert "Authentication failed" in line["detail"]
        assert "guessed" not in rig.sluice.log.read_text()


# Logging in again (KIP-368) ---------------------------------------------------------------------------------

QUIET_CAUSES = ("client_closed", "drained")


@pytest.mark.parametrize(
    ("clients", "throttled"),
    [
        pytest.param((AIOKAFKA, CONFLUENT), True, id="two-throttled", marks=pytest.mark.long),
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
