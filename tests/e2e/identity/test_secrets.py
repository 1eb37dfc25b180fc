"""No secret shows in anything that Sluice writes or answers, at no level of its log, whatever goes wrong."""

from __future__ import annotations

import json
import secrets
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from testkit.clients.client_security import Login, Security, confluent_security
from testkit.clients.kafka_clients import CONFLUENT, Options
from testkit.clients.kafka_records import Record, create_topic
from testkit.frames.frames import SASL_AUTHENTICATE, SASL_HANDSHAKE, request
from testkit.frames.wire import dial
from testkit.kafka.dist import KafkaDist
from testkit.kafka.node import KafkaNode
from testkit.kafka.sasl_clients import unsigned_token
from testkit.kafka.secured_kafka import Certificates
from testkit.processes.ports import LOOPBACK, free_ports
from testkit.proxy.sluice_process import SLUICE, Door, SluiceProcess
from testkit.proxy.tls_doors import MountedSecret, secret_of, tls_of
from testkit.repository.secret_search import shown

pytestmark = pytest.mark.kafka
Unique = Callable[[str], str]
OBSERVED, OURS = "OBSERVED_SASL", "OURS_SASL"
"""Clients log in themselves; clients show a certificate, and the proxy logs in at the broker for them."""


def fresh(between: str = "") -> str:
    """A secret that stands nowhere else; `between`: what a file or a log may escape."""
    return f"{secrets.token_hex(16)}{between}{secrets.token_hex(16)}"


@dataclass
class Rig:
    """A broker whose users have such passwords, files with secrets, and every secret by a name."""

    kafka: KafkaNode
    certificates: Certificates
    tls: MountedSecret
    logins: MountedSecret
    status_token: Path
    secrets: dict[str, bytes]

    def door(self, name: str, protocol: str, options: dict[str, Any] | None = None) -> Door:
        port, upstream = self.kafka.advertised(name)[1], self.kafka.address(name)
        return Door(name, port, upstream, protocol, options or {})

    def doors(self) -> list[Door]:
        return [
            self.door(OBSERVED, "SASL_PLAINTEXT"),
            self.door(
                OURS,
                "SSL",
                {
                    "tls": tls_of(self.tls, rules=r"RULE:^CN=([a-z]+)$/$1/, DEFAULT"),
                    "upstream_security_protocol": "SASL_PLAINTEXT",
                    "upstream_sasl": {
                        "mechanism": "SCRAM-SHA-512",
                        "credentials_file": str(self.logins / "logins.yaml"),
                    },
                },
            ),
        ]


def login_files(passwords: dict[str, str], broken: str | None = None) -> dict[str, bytes | str]:
    """Alice's in the file, bob's in a file of its own; carol's is one that the broker refuses."""
    users = {
        "alice": {"password": passwords["alice"]},
        "bob": {"password_file": "bob.password"},
        "carol": {"password": passwords["wrong"]},
    }
    text = yaml.safe_dump({"users": users}, allow_unicode=True) if broken is None else broken
    return {"logins.yaml": text, "bob.password": passwords["bob"]}


@pytest.fixture(scope="module")
def passwords() -> dict[str, str]:
    awkward = {"wrong": '"ü:', "renewed": "'ü\\"}
    return {name: fresh(awkward.get(name, "")) for name in ("alice", "bob", "carol", *awkward)}


@pytest.fixture(scope="module")
def rig(
    kafka_dist: KafkaDist, tmp_path_factory: pytest.TempPathFactory, passwords: dict[str, str]
) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("secrets")
    certificates = Certificates(folder)
    authority = certificates.authority
    identity = authority.server()
    tls = MountedSecret(folder / "tls", secret_of(identity, authority.certificate_pem))
    logins = MountedSecret(folder / "logins", login_files(passwords))
    token = folder / "status.token"
    token.write_text(secrets.token_urlsafe(32))
    key_lines = identity.key_pem().decode().splitlines()
    hidden = {f"password of {user}": password.encode() for user, password in passwords.items()}
    hidden |= {"key": key_lines[1].encode(), "status token": token.read_bytes()}
    names = (OBSERVED, OURS)
    users = {user: passwords[user] for user in ("alice", "bob", "carol")}
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    with KafkaNode(
        kafka_dist, advertised={name: (LOOPBACK, port) for name, port in ports.items()}, users=users
    ) as kafka:
        yield Rig(kafka, certificates, tls, logins, token, hidden)


def asked(bootstrap: str, security: Security, within_s: float = 10.0) -> bool:
    """Whether a client with this login is answered."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, **confluent_security(security)})
    try:
        admin.list_topics(timeout=within_s)
    except KafkaException:
        return False
    return True


async def bearer(port: int, token: str) -> bytes:
    """Log in with a token, and return the answer."""
    with await dial(port) as client:
        await client.send(request(SASL_HANDSHAKE, 1, {"mechanism": "OAUTHBEARER"}))
        await client.frame()
        first = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
        await client.send(request(SASL_AUTHENTICATE, 2, {"authBytes": first.hex()}))
        return await client.frame()


def pages(sluice: SluiceProcess) -> str:
    """What the admin port answers, errors too."""
    found = []
    for path in (
        "metrics",
        "top?why=true",
        "livez",
        "readyz",
        "startupz",
        "status",
        "api/v1/status",
        "nothing",
    ):
        try:
            with urllib.request.urlopen(
                f"http://{LOOPBACK}:{sluice.admin_port}/{path}", timeout=10
            ) as answer:
                found.append(answer.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                found.append(error.read().decode())
    return "\n".join(found)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("level", "form"),
    [
        ("debug", "json"),
        pytest.param("debug", "console", marks=pytest.mark.slow),
        *(pytest.param(level, "json", marks=pytest.mark.slow) for level in ("info", "warning", "error")),
    ],
)
async def test_no_secret_is_in_the_log_or_on_a_page(
    rig: Rig, passwords: dict[str, str], unique: Unique, level: str, form: str
) -> None:
    rig.logins.put(login_files(passwords))
    payload, token = fresh(), unsigned_token("alice", marker=secrets.token_hex(24))
    hidden = {**rig.secrets, "record": payload.encode(), "token": token.rstrip(".").encode()}
    process = SluiceProcess(
        rig.doors(), [{"user": "alice", "producer_byte_rate": 1000}], log={"level": level, "format": form}
    )
    file = process.folder / "sluice.yaml"
    config: dict[str, Any] = json.loads(file.read_text())
    config["admin"]["status"] = {"token_file": str(rig.status_token)}
    file.write_text(json.dumps(config))
    with process as sluice:
        observed, ours = sluice.bootstrap(OBSERVED), sluice.bootstrap(OURS)
        # Logins that are right, by the client …
        topic = create_topic(rig.kafka, unique("topic"))
        alice = Security(Login("PLAIN", "alice", passwords["alice"]))
        CONFLUENT.produce(observed, topic, [Record(0, payload.encode() * 40)], Options(security=alice))
        assert asked(observed, Security(Login("SCRAM-SHA-512", "bob", passwords["bob"])))
        await bearer(sluice.doors[OBSERVED].port, token)
        # … and wrong ones.
        for mechanism in ("PLAIN", "SCRAM-SHA-256"):
            assert not asked(observed, Security(Login(mechanism, "alice", passwords["wrong"])), 2.0)
        await bearer(sluice.doors[OBSERVED].port, token[:-20])
        # Logins by the proxy, of which the broker refuses carol's.
        for user, is_right in (("alice", True), ("bob", True), ("carol", False)):
            security = rig.certificates.security(subject=f"CN={user}")
            assert asked(ours, security, 10.0 if is_right else 2.0) is is_right
        # Somebody spoils the files while it runs: the lines that are wrong are those with the secrets.
        for broken in broken_logins(passwords):
            rig.logins.put(login_files(passwords, broken))
            sluice.wait_until(lambda: refused(sluice) > 0, "a refused file")
            rig.logins.put(login_files(passwords))
            sluice.wait_until(lambda: refused(sluice) == 0, "a good file")
        written = sluice.log.read_text() + pages(sluice)
    assert "sluice_build_info" in written
    assert ("connection_closed" in written) is (level in {"debug", "info", "warning"})
    assert shown(written, hidden) == []


def refused(sluice: SluiceProcess) -> float:
    """Of how many files the newest state is not in force."""
    return sum(sample.value for sample in sluice.page() if sample.name == "sluice_config_refused")


def broken_logins(passwords: dict[str, str]) -> list[str]:
    renewed = json.dumps(passwords["renewed"], ensure_ascii=False)
    return [
        f"users: {{alice: {{password: {renewed}",
        f"users:\n  alice: {{password: {renewed}, pasword: {renewed}}}\n",
        f"users:\n  alice: {renewed}\n",
        f"users:\n  alice: {{password: [{renewed}]}}\n",
        f"users:\n  alice: {{password: {renewed}}}\n  alice: {{password: {renewed}}}\n",
    ]


def test_no_mistake_in_a_file_of_credentials_makes_the_check_tell_a_secret(
    rig: Rig, passwords: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "sluice.yaml"
    (tmp_path / "quotas.yaml").write_text("quotas: []")
    doors = [door.configuration() for door in rig.doors()]
    file.write_text(json.dumps({"listeners": doors, "quotas": {"file": "quotas.yaml"}}))
    for broken in broken_logins(passwords):
        rig.logins.put(login_files(passwords, broken))
        checked = subprocess.run(
            [SLUICE, "check", file], capture_output=True, text=True, timeout=60, check=False
        )
        assert checked.returncode == 2, broken
        assert "logins.yaml" in checked.stderr
        assert shown(checked.stdout + checked.stderr, rig.secrets) == []
