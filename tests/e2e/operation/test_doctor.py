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
from testkit.processes.ports import LOOPBACK, free_ports
from testkit.proxy.sluice_process import SLUICE

Unique = Callable[[str], str]
CONFIG = """\
listeners:
  - {{name: clients, bind_host: 127.0.0.1, bind_port: {bind_port},
      upstream_host: 127.0.0.1, upstream_port: {upstream_port}{more}}}
quotas: {{file: quotas.yaml}}
admin: {{bind_port: {admin_port}}}
"""


def told(folder: Path, bind_port: int, upstream_port: int, more: str = "") -> dict[str, tuple[str, str, str]]:
    """By check: status, what was found, what to do. The exit code is 1 if anything failed."""
    admin_port = free_ports(1)[0]
    text = CONFIG.format(bind_port=bind_port, upstream_port=upstream_port, admin_port=admin_port, more=more)
    (folder / "sluice.yaml").write_text(text, encoding="utf-8")
    (folder / "quotas.yaml").write_text("quotas: []\n", encoding="utf-8")
    environ = {key: value for key, value in os.environ.items() if not key.startswith("SLUICE_")}
    done = subprocess.run(
        [SLUICE, "doctor", "--json", "sluice.yaml"],
        cwd=folder, env=environ, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert not done.stderr
    assert done.returncode == ("failed" in {one["status"] for one in found})
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
    bind_port = free_ports(1)[0]
    upstream_port = kafka.address(NATIVE)[1]
    status, text, todo = told(tmp_path, bind_port, upstream_port)["way of clients to clients"]
    assert status == "failed"
    assert f"127.0.0.1:{upstream_port}" in text
    assert f":{bind_port}" in todo


def test_no_broker_no_kafka_and_tls_where_there_is_none(kafka: KafkaNode, tmp_path: Path) -> None:
    bind_port, nobody = free_ports(2)
    assert told(tmp_path, bind_port, nobody)["broker of clients"][:2] == (
        "failed",
        f"127.0.0.1:{nobody}: connection refused",
    )
    upstream_port = kafka.address("SLUICE")[1]
    status, text, _ = told(tmp_path, bind_port, upstream_port, ", upstream_security_protocol: SSL")[
        "broker of clients"
    ]
    assert status == "failed"
    assert "TLS" in text


def test_a_port_that_another_program_holds(kafka: KafkaNode, tmp_path: Path) -> None:
    with socket.create_server((LOOPBACK, 0)) as holder:
        port = holder.getsockname()[1]
        status, _, todo = told(tmp_path, port, kafka.address("SLUICE")[1])[f"port {port} of listener clients"]
    assert status == "failed"
    assert f":{port}" in todo


def test_mistakes_in_the_configuration_end_it_with_all_of_them(kafka: KafkaNode, tmp_path: Path) -> None:
    found = told(tmp_path, free_ports(1)[0], kafka.address("SLUICE")[1], ", no_such_key: 1")
    assert list(found) == ["configuration"]
    assert "no_such_key" in found["configuration"][1]
