"""A `kafka-configs` line → whose quotas it means, and which changes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pytest

from sluice.proxy.cli.quotas.arguments import ArgumentError, Asked, asked_of, changes_of
from sluice.proxy.cli.quotas.edit import Whom, whom_of
from sluice.proxy.cli.quotas.throttle_arguments import throttled_of
from sluice.quotas.files.config_error import ConfigError
from sluice.quotas.files.quota_file import DEFAULT_NAME

ALICE = whom_of({"user": "alice"})
BOTH = whom_of({"user": "alice", "client-id": "app"})


def asked(
    types: list[str],
    names: list[str],
    shorthands: Mapping[str, str | bool] = MappingProxyType({}),
    *,
    alter: bool = True,
) -> Asked:
    return asked_of(types, names, shorthands, alter=alter)


@pytest.mark.parametrize(
    ("types", "names", "whom"),
    [
        (["users"], ["alice"], ALICE),
        (["users"], ["User:alice"], ALICE),
        (["users"], [DEFAULT_NAME], whom_of({"user": DEFAULT_NAME})),
        (["users"], [], whom_of({"user": DEFAULT_NAME})),  # as the KIPs write it
        (["users", "clients"], ["alice", "app"], BOTH),
        (["clients", "users"], ["app", "alice"], BOTH),
        (["clients", "users"], ["app", DEFAULT_NAME], whom_of({"user": DEFAULT_NAME, "client-id": "app"})),
        (["users", "clients"], [], whom_of({"user": DEFAULT_NAME, "client-id": DEFAULT_NAME})),
        (["clients"], ["User:x"], whom_of({"client-id": "User:x"})),
        (["ips"], ["2001:DB8::0:1"], whom_of({"ip": "2001:db8::1"})),
    ],
)
def test_the_nth_name_is_of_the_nth_type(types: list[str], names: list[str], whom: Whom) -> None:
    assert asked(types, names).whom == whom


@pytest.mark.parametrize(
    ("shorthands", "whom", "shown"),
    [
        ({"user": "alice", "client": "app"}, BOTH, "config for client app"),
        ({"user": "alice"}, ALICE, "config for user alice"),
        (
            {"user": "alice", "client_defaults": True},
            whom_of({"user": "alice", "client-id": DEFAULT_NAME}),
            "config for user alice",
        ),
        ({"ip_defaults": True}, whom_of({"ip": DEFAULT_NAME}), "default config for ips"),
        ({"ip": "10.0.0.1"}, whom_of({"ip": "10.0.0.1"}), "config for ip 10.0.0.1"),
    ],
)
def test_shorthands_say_type_and_name_at_once(
    shorthands: dict[str, str | bool], whom: Whom, shown: str
) -> None:
    found = asked([], [], shorthands)
    assert (found.whom, found.shown()) == (whom, shown)


@pytest.mark.parametrize(
    ("types", "names", "shorthands", "message"),
    [
        ([], ["a"], {}, "--entity-type: give users, clients or ips"),
        (["user"], ["a"], {}, "--entity-type: must be users, clients, ips, brokers or topics, is 'user'"),
        (["users", "users"], ["a", "b"], {}, "each type only once"),
        (["users", "ips"], ["a", "10.0.0.1"], {}, "only users and clients go together"),
        (["users"], ["a", DEFAULT_NAME], {}, "more names than types"),
        (["users", "clients"], ["a"], {}, "with each --entity-type"),
        (["users"], [" "], {}, "must not be blank"),
        (["ips"], ["example.org"], {}, "must be an address"),
        (["users"], [], {"user": "a"}, "do not go with --user"),
        ([], [], {"user": "a", "user_defaults": True}, "each type only once"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_option_named(
    types: list[str], names: list[str], shorthands: dict[str, str | bool], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        asked(types, names, shorthands)
    assert message in str(caught.value)


def test_a_type_without_a_name_asks_for_all_of_that_type_and_no_other() -> None:
    users = asked(["users"], [], alter=False)
    assert [users.fits(whom) for whom in (ALICE, whom_of({"user": DEFAULT_NAME}), BOTH)] == [
        True,
        True,
        False,
    ]
    clients_of_alice = asked(["users", "clients"], ["alice"], alter=False)
    others = whom_of({"user": "bob", "client-id": "app"})
    assert [clients_of_alice.fits(whom) for whom in (ALICE, BOTH, others)] == [False, True, False]
    with pytest.raises(ConfigError):
        _ = users.whom


@pytest.mark.parametrize("text", ["producer_byte_rate", "producer_byte_rate="])
def test_a_key_without_a_value_is_told_how_it_is_written(text: str) -> None:
    with pytest.raises(
        ConfigError, match=r"^--add-config: producer_byte_rate: has no value; write KEY=VALUE$"
    ):
        changes_of(text, "")


def test_a_size_with_a_unit_is_told_as_the_quota_file_would() -> None:
    with pytest.raises(
        ConfigError, match=r"not '1MB' \(bytes per second\); write 1000000 \(1 MB\) or 1048576 \(1 MiB\)$"
    ):
        changes_of("producer_byte_rate=1MB", "")


@pytest.mark.parametrize("value", ["0", "-5", "many", "nan", "true", "[1"])
def test_what_is_no_positive_number_is_refused_with_the_key_named(value: str) -> None:
    with pytest.raises(ConfigError, match=r"^--add-config: producer_ids_rate: Quota producer_ids_"):
        changes_of(f"producer_ids_rate={value}", "")


def test_an_unknown_key_is_refused_with_what_was_meant() -> None:
    with pytest.raises(ConfigError) as caught:
        changes_of("producer_id_rate=5,producer_byte_rate=7", "consumer")
    assert str(caught.value).splitlines() == [
        "--add-config: producer_id_rate: unknown key; did you mean producer_ids_rate?",
        "--delete-config: consumer: unknown key; did you mean consumer_byte_rate?",
    ]


def test_a_key_that_is_not_for_this_kind_of_entity_is_refused_but_may_be_removed() -> None:
    address = whom_of({"ip": "10.0.0.1"})
    with pytest.raises(ConfigError, match="--add-config: producer_byte_rate: is not for addresses"):
        changes_of("producer_byte_rate=5", "", address)
    with pytest.raises(ConfigError, match="--add-config: producer_ids_rate: is for users"):
        changes_of("producer_ids_rate=5", "", BOTH)
    assert changes_of("connection_creation_rate=5", "", address) == {"connection_creation_rate": 5}
    assert changes_of("", "producer_byte_rate", address) == {"producer_byte_rate": None}


def test_a_key_is_not_set_and_removed_at_once() -> None:
    with pytest.raises(ConfigError, match="--delete-config: producer_byte_rate: is in --add-config too"):
        changes_of("producer_byte_rate=5", "producer_byte_rate")


def test_a_value_that_is_no_text_is_no_number() -> None:
    with pytest.raises(ConfigError, match="producer_byte_rate must be a whole number"):
        changes_of("producer_byte_rate=\udc80", "")


def test_a_key_that_is_removed_twice_is_removed_once() -> None:
    assert changes_of("", "producer_byte_rate,producer_byte_rate") == {"producer_byte_rate": None}


@pytest.mark.parametrize("kind", ["users", "clients", "topics"])
def test_a_name_that_is_no_text_is_refused(kind: str) -> None:
    with pytest.raises(ArgumentError, match=r"^--entity-name: must be UTF-8, is 'a\\udcff'"):
        throttled_of([kind], ["a\udcff"], alter=True) or asked_of([kind], ["a\udcff"], {}, alter=True)
