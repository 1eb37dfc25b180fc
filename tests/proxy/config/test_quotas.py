"""Where quotas come from: what the three sources need, and what contradicts them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sluice.proxy.config.config import Config
from sluice.proxy.config.file import load_config
from sluice.quotas.files.config_error import ConfigError

LISTENER = {"name": "a", "bind_port": 9000, "upstream_host": "kafka", "upstream_port": 9092}


def load(folder: Path, quotas: dict[str, Any]) -> Config:
    file = folder / "sluice.yaml"
    file.write_text(json.dumps({"listeners": [LISTENER], "quotas": quotas}))
    return load_config(file, {})


def problem(folder: Path, quotas: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        load(folder, quotas)
    return str(caught.value)


def test_without_more_than_a_file_nobody_manages_quotas_through_the_proxy(tmp_path: Path) -> None:
    options = load(tmp_path, {"file": "quotas.yaml"}).quotas
    assert (options.source, options.admins, options.named_file()) == ("file", (), tmp_path / "quotas.yaml")


def test_a_topic_has_a_name_and_needs_no_file(tmp_path: Path) -> None:
    quotas = {"source": "topic", "topic": {"bootstrap": ["kafka:9094"], "copy_file": "copy.json"}}
    options = load(tmp_path, quotas).quotas
    assert options.topic is not None
    assert (options.topic.name, options.topic.copy_file) == ("__sluice_quotas", tmp_path / "copy.json")
    with pytest.raises(ConfigError, match="topic"):
        options.named_file()


@pytest.mark.parametrize(
    ("quotas", "message"),
    [
        ({}, "quotas.file: missing"),
        ({"source": "passthrough"}, "quotas.file: missing"),
        ({"source": "topic"}, "quotas.topic: missing"),
        ({"file": "q", "topic": {"bootstrap": ["k:1"]}}, "quotas.topic: is for source: topic"),
        ({"source": "topic", "topic": {"bootstrap": []}}, "at least one entry"),
        ({"source": "topic", "topic": {"bootstrap": ["k"]}}, "host:port"),
        ({"source": "topic", "topic": {"bootstrap": ["k:1"], "name": "a b"}}, "quotas.topic.name"),
        (
            {"source": "topic", "topic": {"bootstrap": ["k:1"], "security_protocol": "SASL_SSL"}},
            "quotas.topic.sasl: missing; it is required for SASL_SSL",
        ),
        (
            {
                "source": "topic",
                "topic": {"bootstrap": ["k:1"], "sasl": {"mechanism": "PLAIN", "credentials_file": "c"}},
            },
            "security_protocol is PLAINTEXT, without SASL",
        ),
        ({"source": "topic", "topic": {"bootstrap": ["k:1"], "tls": {}}}, "make it SSL or SASL_SSL"),
        ({"file": "q", "admins": ["User:alice"]}, "without its type: alice"),
        (
            {"file": "q", "admins": ["ANONYMOUS", "alice"]},
            "quotas.admins[1]: no listener authenticates, so that everybody is ANONYMOUS and nobody 'alice'",
        ),
        (
            {"source": "topic", "topic": {"bootstrap": ["k:1", "127.0.0.1:9000"]}},
            "quotas.topic.bootstrap[1]: 127.0.0.1:9000 is listener 'a' of this proxy itself",
        ),
    ],
)
def test_what_does_not_fit_together_is_told_with_its_key(
    tmp_path: Path, quotas: dict[str, Any], message: str
) -> None:
    assert message in problem(tmp_path, quotas)
