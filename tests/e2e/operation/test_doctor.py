"""`sluice doctor` before a real broker: what fits, and each mistake that newcomers make, with what to do."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

from testkit.kafka.config import NATIVE
from testkit.kafka.node import KafkaNode
from testkit.processes.ports import LOOPBACK, free_port, free_port_range
from testkit.proxy.sluice_process import SLUICE

Unique = Callable[[str], str]
CONFIG = """\
listeners:
  - {{name: clients, bind_host: 127.0.0.1, bind_port: {bind_port},
      upstream_host: 127.0.0.1, upstream_port: {upstream_port}{more}}}
quotas: {{file: quotas.yaml}}
admin: {{bind_port: {admin_port}}}
"""


def told(
    folder: Path, bind_port: int, upstream_port: int, more: str = "", *options: str
) -> dict[str, tuple[str, str, str]]:
    """By check: status, what was found, what to do. The exit code is 1 if anything failed, 2 if that is the
    configuration."""
    admin_port = free_port_range(2)  # and the probes' behind it
    text = CONFIG.format(bind_port=bind_port, upstream_port=upstream_port, admin_port=admin_port, more=more)
    return told_of(folder, text, *options)


def told_of(folder: Path, text: str, *options: str) -> dict[str, tuple[str, str, str]]:
    """The same of the text of a configuration."""
    (folder / "sluice.yaml").write_text(text, encoding="utf-8")
    (folder / "quotas.yaml").write_text("quotas: []\n", encoding="utf-8")
    environ = {key: value for key, value in os.environ.items() if not key.startswith("SLUICE_")}
    done = subprocess.run(
        [SLUICE, "doctor", "--json", "sluice.yaml", *options],
        cwd=folder, env=environ, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert not done.stderr
    failed = {one["check"] for one in found if one["status"] == "failed"}
    assert done.returncode == (2 if "configuration" in failed else 1 if failed else 0)
    return {one["check"]: (one["status"], one["told"], one["todo"]) for one in found}


def test_a_sidecar_that_fits_and_a_broker_with_quotas_of_its_own(
    kafka: KafkaNode, unique: Unique, tmp_path: Path
) -> None:
    user = unique("user")
    bind_port = kafka.advertised("SLUICE")[1]
    upstream_port = kafka.address("SLUICE")[1]
    found = told(tmp_path, bind_port, upstream_port)
    assert found["configuration"][0] == "ok"
    assert found[f"port {bind_port} of listener clients"][:2] == ("ok", "free")
    assert found["broker of clients"][0] == "ok"
    assert "Produce up to version" in found["broker of clients"][1]
    assert found["way of clients to clients"][0] == "ok"
    assert found["way past clients"][0] == "ok"
    alter = [
        "--alter",
        "--entity-type",
        "users",
        "--entity-name",
        user,
        "--add-config",
        "producer_byte_rate=1",
    ]
    subprocess.run([SLUICE, "configs", "--bootstrap-server", kafka.bootstrap, *alter], check=True, timeout=60)
    status, text, todo = told(tmp_path, bind_port, upstream_port)[f"quotas at 127.0.0.1:{upstream_port}"]
    assert status == "warning"
    assert f"'{user}'" in text
    assert "explain" in todo


def test_a_listener_that_tells_clients_itself_leads_past_the_proxy(kafka: KafkaNode, tmp_path: Path) -> None:
    bind_port = free_port()
    upstream_port = kafka.address(NATIVE)[1]
    for host in ("127.0.0.1", "localhost"):
        with_host = CONFIG.replace("upstream_host: 127.0.0.1", f"upstream_host: {host}")
        text = with_host.format(
            bind_port=bind_port, upstream_port=upstream_port, admin_port=free_port_range(2), more=""
        )
        status, said, todo = told_of(tmp_path, text)["way of clients to clients"]
        assert status == "failed"
        assert f"127.0.0.1:{upstream_port}" in said
        assert f":{bind_port}" in todo


def test_no_broker_no_kafka_and_tls_where_there_is_none(kafka: KafkaNode, tmp_path: Path) -> None:
    bind_port, nobody = free_port(), free_port()
    assert told(tmp_path, bind_port, nobody)["broker of clients"][:2] == (
        "failed",
        f"127.0.0.1:{nobody}: connection refused",
    )
    upstream_port = kafka.address("SLUICE")[1]
    status, text, _ = told(tmp_path, bind_port, upstream_port, ", upstream_security_protocol: SSL")[
        "broker of clients"
    ]
    assert status == "failed"
    assert "the broker closed the connection during the TLS handshake; is there TLS on this port?" in text


def test_a_port_that_another_program_holds(kafka: KafkaNode, tmp_path: Path) -> None:
    with socket.create_server((LOOPBACK, 0)) as holder:
        port = holder.getsockname()[1]
        status, _, todo = told(tmp_path, port, kafka.address("SLUICE")[1])[f"port {port} of listener clients"]
    assert status == "failed"
    assert f":{port}" in todo


def test_mistakes_in_the_configuration_end_it_with_all_of_them(kafka: KafkaNode, tmp_path: Path) -> None:
    found = told(tmp_path, free_port(), kafka.address("SLUICE")[1], ", no_such_key: 1")
    assert list(found) == ["configuration"]
    assert "no_such_key" in found["configuration"][1]
    tls = ", upstream_security_protocol: SSL, upstream_tls: {ca_file: nope.crt}"
    found = told(tmp_path, free_port(), kafka.address("SLUICE")[1], tls)
    assert list(found) == ["configuration"]
    assert "nope.crt" in found["configuration"][1]


def test_sasl_on_one_side_alone(kafka: KafkaNode, tmp_path: Path) -> None:
    bind_port = kafka.advertised("SLUICE")[1]
    plain, sasl = kafka.address("SLUICE")[1], kafka.address("SLUICE_SASL")[1]
    found = told(tmp_path, bind_port, plain, ", security_protocol: SASL_PLAINTEXT")
    status, said, _ = found["login at the broker of clients"]
    assert (status, said) == (
        "failed",
        f"127.0.0.1:{plain} speaks no SASL at this listener: nobody can log in there",
    )
    assert found["way of clients to clients"][0] == "ok", "it is told without a login"
    found = told(tmp_path, bind_port, sasl)
    status, said, _ = found["login at the broker of clients"]
    assert (status, said) == ("warning", f"127.0.0.1:{sasl} wants a login: who brings none can do nothing")
    assert found["way of clients to clients"][0] == "not_asked"
    for port, more in ((plain, ""), (sasl, ", security_protocol: SASL_PLAINTEXT")):
        assert "login at the broker of clients" not in told(tmp_path, bind_port, port, more)


GATEWAY = """\
mode: gateway
listeners:
  - name: clients
    bind_host: 127.0.0.1
    bind_port: {bind_port}
    gateway:
      bootstrap_upstreams: ["127.0.0.1:{upstream_port}"]
      advertised_host: {host}
      first_broker_port: {first_port}
      max_brokers: 4
quotas: {{file: quotas.yaml}}
admin: {{bind_port: {admin_port}}}
"""


def test_a_gateways_ports_for_brokers_and_its_name(kafka: KafkaNode, tmp_path: Path) -> None:
    bind_port, admin_port = free_port(), free_port_range(2)
    with socket.create_server((LOOPBACK, 0)) as holder:
        held = holder.getsockname()[1]
        for first_port in (held - 3, held):
            text = GATEWAY.format(
                bind_port=bind_port, upstream_port=kafka.address("SLUICE")[1], host="no-such-host.invalid",
                first_port=first_port, admin_port=admin_port,
            )  # fmt: skip
            found = told_of(tmp_path, text)
            check = f"ports {first_port} to {first_port + 3} for brokers of listener clients"
            status, said, todo = found[check]
            assert status == "failed"
    assert f":{held}: taken by another program" in said
    assert f":{held}" in todo
    assert found["advertised host of clients"][0] == "warning"
    assert "no-such-host.invalid" in found["advertised host of clients"][1]


OWN_LOGIN = """, upstream_security_protocol: SASL_PLAINTEXT, accept_shared_upstream_identity: true,
      upstream_sasl: {mechanism: SCRAM-SHA-256, credentials_file: credentials.yaml}"""


def test_a_login_of_the_proxys_own_is_tried(kafka: KafkaNode, tmp_path: Path) -> None:
    """And what only a login is told is asked with it."""
    bind_port = kafka.advertised("SLUICE_SASL")[1]
    upstream_port = kafka.address("SLUICE_SASL")[1]
    (user, password), *_ = kafka.users.items()
    credentials = tmp_path / "credentials.yaml"
    credentials.write_text(f"service: {{username: {user}, password: {password}}}\n")
    found = told(tmp_path, bind_port, upstream_port, OWN_LOGIN)
    assert found["login at the broker of clients"][:2] == (
        "ok",
        f"127.0.0.1:{upstream_port} takes the service",
    )
    assert found["way of clients to clients"][0] == "ok"
    credentials.write_text(f"service: {{username: {user}, password: another}}\n")
    found = told(tmp_path, bind_port, upstream_port, OWN_LOGIN)
    status, said, todo = found["login at the broker of clients"]
    assert status == "failed"
    assert "the service: SCRAM-SHA-256 login at the broker: refused" in said
    assert "credentials file" in todo


def test_the_login_of_a_command_config_is_told_the_way_of_clients(kafka: KafkaNode, tmp_path: Path) -> None:
    bind_port = kafka.advertised("SLUICE_SASL")[1]
    upstream_port = kafka.address("SLUICE_SASL")[1]
    more = ", security_protocol: SASL_PLAINTEXT"
    assert told(tmp_path, bind_port, upstream_port, more)["way of clients to clients"][0] == "not_asked"
    (user, password), *_ = kafka.users.items()
    (tmp_path / "admin.properties").write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config="
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="{user}" password="{password}";\n'
    )
    found = told(tmp_path, bind_port, upstream_port, more, "--command-config", "admin.properties")
    assert found["way of clients to clients"][0] == "ok"


def test_the_login_for_the_quota_topic_is_tried(kafka: KafkaNode, tmp_path: Path) -> None:
    native = kafka.bootstrap_sasl
    (tmp_path / "credentials.yaml").write_text("service: {username: nobody, password: wrong}\n")
    text = CONFIG.format(
        bind_port=free_port(), upstream_port=kafka.address("SLUICE")[1],
        admin_port=free_port_range(2), more="",
    ).replace(
        "{file: quotas.yaml}",
        f"{{source: topic, topic: {{bootstrap: ['{native}'], security_protocol: SASL_PLAINTEXT, "
        "sasl: {mechanism: PLAIN, credentials_file: credentials.yaml}}}",
    )  # fmt: skip
    found = told_of(tmp_path, text)
    assert found["broker of the quota topic"][0] == "ok"
    assert found["login at the broker of the quota topic"][0] == "failed"
