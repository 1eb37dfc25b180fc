"""`sluice check` tells each mistake of a file or folder that stops `sluice run`, in the same words."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sluice.proxy.cli.check import checked
from testkit.proxy.sluice_command import Sluice
from testkit.proxy.sluice_process import SLUICE

LISTENER = {"name": "clients", "bind_port": 9092, "upstream_host": "kafka", "upstream_port": 19092}
TOPIC = {"bootstrap": ["kafka:9094"]}
SASL = {"mechanism": "PLAIN", "credentials_file": "users.yaml"}
TLS = {"certificate_file": "tls.crt", "key_file": "tls.key", "client_ca_file": "ca.crt"}
OF_BUCKET = {"bucket": "logs", "ca_file": "none.pem", "credentials_file": "none.ini"}


def with_certificates(**more: str) -> dict[str, Any]:
    tls = {**TLS, "client_auth": "required", **more}
    return {**LISTENER, "security_protocol": "SSL", "tls": tls, "accept_shared_upstream_identity": True}


REFUSED: dict[str, tuple[Mapping[str, Any], list[str]]] = {
    "the access log's folder": (
        {"access_log": {"directory": {"path": "none"}}},
        ["sluice.json:1: access_log.directory.path: there is no folder none; make it, or name one"],
    ),
    "the access log's files of a bucket": (
        {"access_log": {"bucket": OF_BUCKET}},
        [
            "sluice.json:1: access_log.bucket.ca_file: there is no file none.pem",
            "sluice.json:1: access_log.bucket.credentials_file: none.ini cannot be read: No such file",
        ],
    ),
    "the access log's login": (
        {"access_log": {"topic": {**TOPIC, "security_protocol": "SASL_PLAINTEXT", "sasl": SASL}}},
        ["users.yaml: has no `service:` with a password"],
    ),
    "all files of TLS to clients": (
        {"listeners": [with_certificates()]},
        [
            f"sluice.json:1: listeners[0].tls.{option}: {file}: cannot be read: no such file or directory"
            for option, file in TLS.items()
        ],
    ),
    "a rule for principals": (
        {"listeners": [with_certificates(principal_mapping_rules="RULES:x")]},
        [
            "sluice.json:1: listeners[0].tls.principal_mapping_rules: listener clients: "
            "'RULES:x' is no rule; a rule is DEFAULT or RULE:pattern/replacement/"
        ],
    ),
    "the quota topic's copy": (
        {"quotas": {"source": "topic", "topic": {**TOPIC, "copy_file": "none/copy.json"}}},
        ["sluice.json:1: quotas.topic.copy_file: there is no folder none; make it, or name a file in"],
    ),
    "the quota topic's login and TLS": (
        {
            "quotas": {
                "source": "topic",
                "topic": {
                    **TOPIC,
                    "security_protocol": "SASL_SSL",
                    "sasl": {**SASL, "credentials_file": "none.yaml"},
                    "tls": {"ca_file": "none.pem"},
                },
            }
        },
        [
            "none.yaml: cannot read the credentials file: no such file or directory",
            "sluice.json:1: quotas.topic.tls.ca_file: none.pem: cannot be read: no such file or directory",
        ],
    ),
    "limits in the file beside a topic": (
        {"quotas": {"source": "topic", "topic": TOPIC, "file": "quotas.yaml"}},
        ["quotas.yaml: has limits of user 'alice', client-id 'app-1'; with quotas.source: topic they come"],
    ),
    "the login for replication throttles": (
        {
            "replication": {
                "listener": "clients", "leader_id": 0, **TOPIC, "security_protocol": "SASL_PLAINTEXT",
                "sasl": SASL,
            }
        },
        ["users.yaml: has no `service:` with a password"],
    ),
    "the snapshot of producer ids": (
        {"producer_ids": {"snapshot_file": "none/ids"}},
        ["sluice.json:1: producer_ids.snapshot_file: there is no folder none; make it, or name a file"],
    ),
    "the admin socket": (
        {"admin": {"socket": "quotas.yaml"}},
        ["sluice.json:1: admin.socket: quotas.yaml is there already, and is no socket"],
    ),
    "the admin socket's folder": (
        {"admin": {"socket": "none/socket"}},
        ["sluice.json:1: admin.socket: there is no folder none; make it, or name a file in one that"],
    ),
}  # fmt: skip


def written(folder: Path, change: Mapping[str, Any]) -> Path:
    file = folder / "sluice.json"
    file.write_text(json.dumps({"listeners": [LISTENER], "quotas": {"file": "quotas.yaml"}, **change}))
    (folder / "users.yaml").write_text("users:\n  alice: {password: secret}\n")
    return file


@pytest.mark.parametrize("name", REFUSED)
def test_what_stops_a_start_is_told_by_check_all_at_once(sluice: Sluice, folder: Path, name: str) -> None:
    change, told = REFUSED[name]
    written(folder, change)
    code, _, err = sluice("check", "sluice.json")
    assert code == 2
    lines = err.splitlines()
    for line in told:
        assert any(found.startswith(line) or f": {line}" in found for found in lines), (line, lines)
    command: list[Any] = [SLUICE, "run", "sluice.json"]
    run = subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True, timeout=60)
    assert run.returncode == 2
    assert {line for line in run.stderr.splitlines() if not line.startswith("{")} <= set(lines)


def test_without_pyarrow_an_access_log_is_refused_with_what_to_install(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (folder / "log").mkdir()
    found = checked(written(folder, {"access_log": {"directory": {"path": "log"}}}), {})
    (problem,) = found.problems
    assert problem.path == "access_log"
    assert "requirements/image.txt" in problem.message
    assert "pip install '.[access-log]'" in problem.message


def test_check_leaves_the_copy_of_a_quota_topic_where_it_is(folder: Path) -> None:
    """A start moves aside what it cannot use."""
    (folder / "copy.json").write_text("damaged")
    change = {"quotas": {"source": "topic", "topic": {**TOPIC, "copy_file": "copy.json"}}}
    assert checked(written(folder, change), {}).problems == []
    assert (folder / "copy.json").read_text() == "damaged"
