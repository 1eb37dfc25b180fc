"""The section `inter_broker`: who is a broker, and what would make that anybody."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sluice.proxy.assembly import policy_of
from sluice.proxy.calibration.request_cost_file import shipped_request_costs
from sluice.proxy.config.config import Config
from sluice.proxy.config.file import load_config
from sluice.proxy.session.replication.inter_broker import InterBroker
from sluice.quotas.files.config_error import ConfigError

PLAIN = {"name": "clients", "bind_port": 9092, "upstream_host": "b", "upstream_port": 19092}
SASL = {**PLAIN, "name": "sasl", "bind_port": 9093, "security_protocol": "SASL_PLAINTEXT"}
INTERNAL = {**PLAIN, "name": "internal", "bind_port": 9094}


def load(folder: Path, **further: Any) -> Config:
    listeners = further.pop("listeners", [PLAIN, SASL, INTERNAL])
    file = folder / "sluice.yaml"
    file.write_text(json.dumps({"listeners": listeners, "quotas": {"file": "quotas.yaml"}, **further}))
    return load_config(file, {})


def told(config: Config) -> dict[str, InterBroker]:
    costs = shipped_request_costs()
    return {one.name: policy_of(config, one, costs).inter_broker for one in config.listeners}


def test_without_the_section_no_replica_id_is_believed(tmp_path: Path) -> None:
    assert set(told(load(tmp_path)).values()) == {InterBroker()}


def test_a_listener_is_for_brokers_where_it_says_so_and_users_where_clients_have_a_name(
    tmp_path: Path,
) -> None:
    section = {"listeners": ["internal"], "users": ["kafka-1"]}
    assert told(load(tmp_path, inter_broker=section)) == {
        "clients": InterBroker(),
        "sasl": InterBroker(users=frozenset({"kafka-1"})),
        "internal": InterBroker(is_listener=True),
    }


REPLICATION = {"listener": "internal", "leader_id": 1, "bootstrap": ["b:1"]}


def test_the_listener_of_replication_throttles_is_a_brokers(tmp_path: Path) -> None:
    assert told(load(tmp_path, replication=REPLICATION))["internal"] == InterBroker(is_listener=True)


def test_with_principals_named_there_it_is_these_that_are_believed(tmp_path: Path) -> None:
    found = told(load(tmp_path, replication={**REPLICATION, "listener": "sasl", "users": ["kafka-1"]}))
    assert found["sasl"] == InterBroker(users=frozenset({"kafka-1"}))
    assert found["clients"] == InterBroker()


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ({"listeners": ["none"]}, "inter_broker.listeners[0]: 'none' is none of the listeners"),
        ({"users": ["User:kafka-1"]}, "inter_broker.users[0]: write it without its type: kafka-1"),
        ({"users": ["ok", "ANONYMOUS"]}, "inter_broker.users[1]: is whoever did not log in"),
        ({"user": ["a"]}, "inter_broker.user"),
    ],
)
def test_what_would_let_anybody_be_a_broker_is_refused(
    tmp_path: Path, section: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, inter_broker=section)
    assert problem in str(refused.value)


def test_principals_without_a_listener_that_authenticates_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nobody has a principal"):
        load(tmp_path, listeners=[PLAIN], inter_broker={"users": ["kafka-1"]})


@pytest.mark.parametrize(
    ("listener", "users", "problem"),
    [
        ("internal", ["kafka-1"], "replication.users: the listener 'internal' does not authenticate"),
        ("sasl", ["kafka-1", "ANONYMOUS"], "replication.users[1]: is whoever did not log in"),
        ("sasl", ["User:kafka-1"], "replication.users[0]: write it without its type: kafka-1"),
    ],
)
def test_principals_of_replication_that_no_follower_could_have_are_refused(
    tmp_path: Path, listener: str, users: list[str], problem: str
) -> None:
    """Another listener that authenticates does not help: followers come through this one."""
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, replication={**REPLICATION, "listener": listener, "users": users})
    assert problem in str(refused.value)


def test_it_is_for_mode_broker(tmp_path: Path) -> None:
    gateway = {
        "name": "g", "bind_port": 9092,
        "gateway": {"bootstrap_upstreams": ["b:1"], "advertised_host": "h", "first_broker_port": 9100},
    }  # fmt: skip
    with pytest.raises(ConfigError, match="is for mode broker"):
        load(tmp_path, mode="gateway", listeners=[gateway], inter_broker={"listeners": ["g"]})
