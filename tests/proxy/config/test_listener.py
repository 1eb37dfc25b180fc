"""What a listener's options may say together: modes, TLS, SASL, and who the broker sees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from sluice.proxy.config.config import Config
from sluice.proxy.config.file import load_config
from sluice.quotas.files.config_error import ConfigError

BROKER: dict[str, Any] = {"upstream_host": "kafka", "upstream_port": 9092}
TLS: dict[str, Any] = {"certificate_file": "tls.crt", "key_file": "tls.key"}
MTLS: dict[str, Any] = {**TLS, "client_ca_file": "ca.crt", "client_auth": "required"}
SERVICE: dict[str, Any] = {"mechanism": "PLAIN", "credentials_file": "logins.yaml"}
CLUSTER: dict[str, Any] = {
    "bootstrap_upstreams": ["kafka-0:9092", "[::1]:9093"],
    "advertised_host": "localhost",
    "first_broker_port": 9100,
}


def load(folder: Path, mode: str = "broker", **listener: Any) -> Config:
    first = {"name": "clients", "bind_port": 9092, **listener}
    file = folder / "sluice.yaml"
    file.write_text(yaml.safe_dump({"mode": mode, "listeners": [first], "quotas": {"file": "q.yaml"}}))
    return load_config(file, {})


def problem(folder: Path, mode: str = "broker", **listener: Any) -> tuple[str, str]:
    """The only problem: its key below the listener and what is said of it."""
    with pytest.raises(ConfigError) as caught:
        load(folder, mode, **listener)
    (found,) = caught.value.problems
    return found.path.removeprefix("listeners[0]."), found.message


GOOD: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("broker", BROKER),
    "sasl passes": ("broker", {**BROKER, "security_protocol": "SASL_PLAINTEXT"}),
    "tls ends, nobody is known": ("broker", {**BROKER, "security_protocol": "SSL", "tls": TLS}),
    "sasl in tls on both sides": (
        "broker",
        {**BROKER, "security_protocol": "SASL_SSL", "tls": TLS, "upstream_security_protocol": "SASL_SSL"},
    ),
    "sasl in mtls": ("broker", {**BROKER, "security_protocol": "SASL_SSL", "tls": MTLS}),
    "mtls with logins": (
        "broker",
        {
            **BROKER,
            "security_protocol": "SSL",
            "tls": MTLS,
            "upstream_security_protocol": "SASL_PLAINTEXT",
            "upstream_sasl": SERVICE,
        },
    ),
    "mtls, one identity accepted": (
        "broker",
        {**BROKER, "security_protocol": "SSL", "tls": MTLS, "accept_shared_upstream_identity": True},
    ),
    "gateway": ("gateway", {"gateway": CLUSTER}),
    "gateway by name": (
        "gateway",
        {
            "security_protocol": "SSL",
            "tls": TLS,
            "gateway": {"bootstrap_upstreams": ["kafka:9092"], "sni_domain": "kafka.example"},
        },
    ),
    "gateway that asks with its own login": (
        "gateway",
        {"security_protocol": "SASL_PLAINTEXT", "gateway": CLUSTER, "upstream_sasl": SERVICE},
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_this_can_be_said(tmp_path: Path, name: str) -> None:
    mode, listener = GOOD[name]
    assert load(tmp_path, mode, **listener).mode == mode


WRONG: list[tuple[str, dict[str, Any], str, str]] = [
    ("broker", {}, "upstream_host", "missing"),
    ("broker", {"gateway": CLUSTER}, "gateway", "mode gateway"),
    ("gateway", {}, "gateway", "missing"),
    ("gateway", {"gateway": CLUSTER, "upstream_host": "kafka"}, "upstream_host", "mode broker"),
    ("gateway", {"gateway": {"bootstrap_upstreams": []}}, "gateway.bootstrap_upstreams", "at least one"),
    (
        "gateway",
        {"gateway": {**CLUSTER, "bootstrap_upstreams": ["kafka"]}},
        "gateway.bootstrap_upstreams[0]",
        "host:port",
    ),
    (
        "gateway",
        {"gateway": {**CLUSTER, "bootstrap_upstreams": ["::1:9092"]}},
        "gateway.bootstrap_upstreams[0]",
        "brackets",
    ),
    (
        "gateway",
        {"gateway": {**CLUSTER, "bootstrap_upstreams": ["localhost:9101"]}},
        "gateway.bootstrap_upstreams[0]",
        "this proxy itself",
    ),
    (
        "gateway",
        {"gateway": {**CLUSTER, "first_broker_port": 65500, "max_brokers": 37}},
        "gateway.max_brokers",
        "65536",
    ),
    (
        "gateway",
        {"gateway": {**CLUSTER, "first_broker_port": 9061}},
        "gateway.first_broker_port",
        "9092 is taken",
    ),
    ("gateway", {"gateway": {**CLUSTER, "sni_domain": "kafka.example"}}, "gateway.sni_domain", "only TLS"),
    ("broker", {**BROKER, "upstream_host": "kafka:9092"}, "upstream_host", "without its port"),
    ("broker", {**BROKER, "upstream_host": "[::1]:9092"}, "upstream_host", "write ::1"),
    ("broker", {**BROKER, "upstream_host": "kafka "}, "upstream_host", "without blanks"),
    ("broker", {**BROKER, "upstream_host": "kafka..local"}, "upstream_host", "must be a host name"),
    ("broker", {**BROKER, "bind_host": "http://0.0.0.0"}, "bind_host", "no URL"),
    (
        "gateway",
        {"gateway": {**CLUSTER, "advertised_host": "kafka.example.com:9092"}},
        "gateway.advertised_host",
        "without its port",
    ),
    (
        "gateway",
        {"gateway": {**CLUSTER, "bootstrap_upstreams": ["kafka 0:9092"]}},
        "gateway.bootstrap_upstreams[0]",
        "without blanks",
    ),
    (
        "gateway",
        {"gateway": {**CLUSTER, "bootstrap_upstreams": "kafka-0:9092"}},
        "gateway.bootstrap_upstreams",
        "write [kafka-0:9092]",
    ),
    ("broker", {**BROKER, "security_protocol": "SSL"}, "tls", "missing"),
    ("broker", {**BROKER, "tls": TLS}, "tls", "is PLAINTEXT"),
    (
        "broker",
        {
            **BROKER,
            "security_protocol": "SSL",
            "tls": {**TLS, "client_auth": "required"},
            "accept_shared_upstream_identity": True,
        },
        "tls.client_ca_file",
        "missing",
    ),
    (
        "broker",
        {**BROKER, "security_protocol": "SSL", "tls": {**TLS, "client_ca_file": "ca"}},
        "tls.client_auth",
        "is none",
    ),
    (
        "broker",
        {**BROKER, "security_protocol": "SSL", "tls": MTLS},
        "accept_shared_upstream_identity",
        "ACLs",
    ),
    (
        "broker",
        {
            **BROKER,
            "upstream_security_protocol": "SSL",
            "upstream_tls": {"certificate_file": "c", "key_file": "k"},
        },
        "accept_shared_upstream_identity",
        "ACLs",
    ),
    (
        "broker",
        {
            **BROKER,
            "upstream_security_protocol": "SSL",
            "upstream_tls": {"certificate_file": "c"},
            "accept_shared_upstream_identity": True,
        },
        "upstream_tls.key_file",
        "go together",
    ),
    ("broker", {**BROKER, "upstream_tls": {"ca_file": "c"}}, "upstream_tls", "is PLAINTEXT"),
    (
        "broker",
        {**BROKER, "security_protocol": "SASL_PLAINTEXT", "upstream_security_protocol": "SSL"},
        "upstream_security_protocol",
        "only the broker can say yes",
    ),
    ("broker", {**BROKER, "upstream_security_protocol": "SASL_SSL"}, "upstream_sasl", "the proxy has to"),
    ("broker", {**BROKER, "upstream_sasl": SERVICE}, "upstream_sasl", "without SASL"),
    (
        "broker",
        {**BROKER, "security_protocol": "SASL_PLAINTEXT", "upstream_sasl": SERVICE},
        "upstream_sasl",
        "would not be used",
    ),
    ("broker", {**BROKER, "proxy_protocol_from": ["10.0.0.1/8"]}, "proxy_protocol_from[0]", "host bits"),
    ("broker", {**BROKER, "upstream_proxy_protocol": "maybe"}, "upstream_proxy_protocol", "true or false"),
]


@pytest.mark.parametrize(
    ("mode", "listener", "key", "said"), WRONG, ids=[f"{row[2]}: {row[3]}" for row in WRONG]
)
def test_this_cannot_and_the_error_names_key_and_remedy(
    tmp_path: Path, mode: str, listener: dict[str, Any], key: str, said: str
) -> None:
    if not listener:  # both keys are missing
        with pytest.raises(ConfigError) as caught:
            load(tmp_path, mode, **listener)
        assert caught.value.problems[0].path == f"listeners[0].{key}"
        return
    found_key, message = problem(tmp_path, mode, **listener)
    assert found_key == key
    assert said in message


def test_relative_files_start_at_the_configuration_files_folder(tmp_path: Path) -> None:
    listener = load(
        tmp_path, **{**BROKER, "security_protocol": "SSL", "tls": {**TLS, "key_file": "/keys/a"}}
    ).listeners[0]
    assert listener.tls is not None
    assert listener.tls.certificate_file == tmp_path / "tls.crt"
    assert listener.tls.key_file == Path("/keys/a")


def test_what_is_not_said_of_the_broker_follows_from_the_clients(tmp_path: Path) -> None:
    assert load(tmp_path, **BROKER).listeners[0].upstream_protocol == "PLAINTEXT"
    sasl = load(tmp_path, **BROKER, security_protocol="SASL_SSL", tls=TLS).listeners[0]
    assert sasl.upstream_protocol == "SASL_PLAINTEXT"
    assert sasl.upstream_has_sasl
    assert not sasl.logs_in


# Who the broker takes for the same --------------------------------------------------------------------------


def identity(folder: Path, **upstream_tls: Any) -> object:
    options: dict[str, Any] = {"upstream_security_protocol": "SSL", "accept_shared_upstream_identity": True}
    (listener,) = load(folder, **BROKER, **options, upstream_tls=upstream_tls).listeners
    return listener.upstream_identity


def test_listeners_have_one_identity_where_all_that_a_broker_sees_before_a_login_is_the_same(
    tmp_path: Path,
) -> None:
    files = {"certificate_file": "tls.crt", "key_file": "tls.key"}
    assert identity(tmp_path, **files) == identity(tmp_path, **files)
    different: list[dict[str, Any]] = [{}, files, {"ca_file": "ca.crt"}, {"server_name": "kafka.test"}]
    assert len({identity(tmp_path, **one) for one in different}) == len(different)
    (plain,) = load(tmp_path, **BROKER).listeners
    (named,) = load(tmp_path, **BROKER, upstream_proxy_protocol=True).listeners
    (tls,) = load(tmp_path, **BROKER, upstream_security_protocol="SSL").listeners
    assert len({one.upstream_identity for one in (plain, named, tls)}) == 3
    assert tls.upstream_identity == identity(tmp_path), "its options are as by default"
