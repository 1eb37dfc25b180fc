"""The live reload over every option and section of the schema: with it, without it, with its default written
out, in every order. What is told and put in force is held against plain dictionaries, and against a start."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

import pytest
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from sluice.proxy.config.config import LIVE_OPTIONS, Config
from sluice.proxy.config.limits import LimitsOptions
from sluice.proxy.config.messages import inner_section
from sluice.proxy.config.options import Options
from sluice.proxy.config.watch import change_of
from sluice.proxy.connection.limits import ConnectionLimits
from sluice.proxy.parts import follow_connection_limits

Document = dict[str, Any]
At = tuple[str | int, ...]
"""the path of an option or a section; of listeners the first"""

_BROKERS: Final = {
    "bootstrap": ["kafka:9093"],
    "security_protocol": "SASL_SSL",
    "tls": {"ca_file": "ca.pem", "certificate_file": "own.pem", "key_file": "own.key"},
    "sasl": {"mechanism": "PLAIN", "credentials_file": "login.yaml"},
}
_TO_THE_TOPIC: Final = {**_BROKERS, "tls": {"ca_file": "ca.pem"}}
_NO_LOGIN: Final = {"bootstrap": ["kafka:9092"]}
_TLS: Final = {"certificate_file": "a.pem", "key_file": "a.key"}
_PLAIN: Final = {"name": "clients", "bind_port": 9092, "upstream_host": "kafka", "upstream_port": 9092}
_GATEWAY: Final = {
    "bootstrap_upstreams": ["kafka:9092"],
    "advertised_host": "proxy",
    "first_broker_port": 9100,
}
_FILE: Final = {"file": "q.yaml"}

_DOCUMENTS: Final[Mapping[str, Document]] = {
    "plain": {"listeners": [_PLAIN], "quotas": _FILE},
    "directory": {
        "listeners": [{**_PLAIN, "security_protocol": "SASL_SSL", "tls": _TLS}],
        "quotas": _FILE,
        "access_log": {"directory": {"path": "log"}, "instance": "a"},
        "admin": {"status": {"token_file": "token"}},
        "inter_broker": {},
    },
    "full": {
        "listeners": [
            {
                **_PLAIN,
                "security_protocol": "SSL",
                "tls": {**_TLS, "client_auth": "required", "client_ca_file": "ca.pem"},
                "upstream_security_protocol": "SASL_SSL",
                "upstream_tls": _BROKERS["tls"],
                "upstream_sasl": _BROKERS["sasl"],
            }
        ],
        "quotas": {**_FILE, "source": "topic", "topic": _TO_THE_TOPIC},
        "access_log": {"topic": _TO_THE_TOPIC},
        "replication": {"listener": "clients", "leader_id": 1, **_TO_THE_TOPIC},
        "inter_broker": {"listeners": ["clients"], "users": ["alice"]},
    },
    "without logins": {
        "listeners": [_PLAIN, {**_PLAIN, "name": "other", "bind_port": 9093}],
        "quotas": {"source": "topic", "topic": _NO_LOGIN},
        "access_log": {"topic": _NO_LOGIN},
        "replication": {"listener": "clients", "leader_id": 1, **_NO_LOGIN},
    },
    "gateway": {
        "mode": "gateway",
        "listeners": [{"name": "clients", "bind_port": 9092, "gateway": _GATEWAY}],
        "quotas": _FILE,
        "access_log": {"bucket": {"bucket": "logs"}},
    },
    "names": {
        "mode": "gateway",
        "listeners": [
            {
                "name": "clients",
                "bind_port": 9092,
                "security_protocol": "SSL",
                "tls": _TLS,
                "gateway": {"bootstrap_upstreams": ["kafka:9092"], "sni_domain": "kafka.example"},
            }
        ],
        "quotas": _FILE,
    },
}
DOCUMENTS: Final[list[Document]] = [json.loads(json.dumps(one)) for one in _DOCUMENTS.values()]
"""no part of one is part of another; between them all options are used"""
_NEVER: Final = ("quotas", "topic", "tls", "server_name")
"""is refused in every file"""
_YIELDING: Final = ("max_connections_per_user", "max_unauthenticated_connections")


# What a document says, by plain dictionaries ---------------------------------------------------------------


Flat = dict[str, Any]
"""section → its options, or the value of what is no section (None: left out)"""


def flat(config: Config) -> Flat:
    """Of the two options whose default yields to others, it is told whether they are set, too."""
    found = config.model_dump()
    for option in _YIELDING:
        found["limits"][option] = found["limits"][option], option in config.limits.model_fields_set
    return found


def difference(before: Flat, after: Flat) -> set[str]:
    """As the log names it."""
    found = set()
    for section, old in before.items():
        new = after[section]
        if not isinstance(old, dict) or not isinstance(new, dict):
            found |= {section} if old != new else set()
        else:
            found |= {f"{section}.{name}" for name in old if old[name] != new[name]}
    return found


def taken(before: Flat, after: Flat, options: set[str]) -> Flat:
    found = {section: dict(inner) if isinstance(inner, dict) else inner for section, inner in before.items()}
    for option in options:
        section, _, name = option.partition(".")
        if name:
            found[section][name] = after[section][name]
        else:
            found[section] = after[section]
    return found


def bounds(options: LimitsOptions) -> list[Any]:
    """All that follows from the section `limits` for connections."""
    limits = ConnectionLimits()
    follow_connection_limits(limits, options, 1e6)
    return [
        limits.max_connections,
        limits.max_connections_per_address,
        limits.max_connections_per_user,
        limits.max_unauthenticated,
        limits.caps_shared_names,
        limits.guests.share,
    ]


# Every option and section ----------------------------------------------------------------------------------


def options_below(section: type[Options], at: At = ()) -> Iterator[tuple[At, FieldInfo]]:
    """Every option and section, with where it stands."""
    for name, field in section.model_fields.items():
        here = (*at, name)
        yield here, field
        inner = inner_section(field.annotation)
        if inner is not None:
            yield from options_below(inner, (*here, 0) if name == "listeners" else here)


SCHEMA: Final = list(options_below(Config))
SECTIONS: Final = {at for at, field in SCHEMA if inner_section(field.annotation) is not None}


def is_good(document: Document) -> bool:
    try:
        Config.model_validate(document)
    except ValidationError:
        return False
    return True


def holder(document: Document, at: At, *, make: bool = False) -> Any:
    """What holds the last part of `at`; None: the document has no such section. `make`: makes it, empty."""
    found: Any = document
    for part in at[:-1]:
        if isinstance(found, dict) and part not in found and make:
            found[part] = {}
        try:
            found = found[part]
        except (KeyError, IndexError):
            return None
    return found


def without(document: Document, at: At) -> Document:
    found = deepcopy(document)
    inside = holder(found, at)
    if inside is not None:
        inside.pop(at[-1], None)
    return found


def with_value(document: Document, at: At, value: Any) -> Document:
    found = deepcopy(document)
    holder(found, at, make=True)[at[-1]] = value
    return found


def other_values(field: FieldInfo) -> Iterator[Any]:
    """Some that an option may take besides its default; the first good one is used."""
    kinds, default = list(kinds_of(field.annotation)), field.default
    for kind in kinds:
        if isinstance(kind, str):
            yield kind
    if bool in kinds:
        yield not default
    if int in kinds or float in kinds:
        if isinstance(default, int | float):
            yield from (default / 2, default // 2, default + 1, 2 * default)
        yield from (7, 7000, 0.5)
    if str in kinds or Path in kinds:
        yield from ("other", "10.0.0.1")
    if tuple in kinds:
        yield from (["other:9"], ["10.0.0.0/8"], ["clients"], ["alice"], ["ANONYMOUS"])
    if dict in kinds:
        yield {"kgo": 60.0}


def kinds_of(annotation: Any) -> Iterator[Any]:
    """The types that it is made of; of a Literal its texts."""
    if get_origin(annotation) is Literal:
        yield from get_args(annotation)
    elif get_origin(annotation) in {tuple, dict}:
        yield get_origin(annotation)
    elif get_args(annotation):
        yield from itertools.chain.from_iterable(map(kinds_of, get_args(annotation)))
    else:
        yield annotation


def written_out(section: type[Options]) -> Document:
    """All its defaults; those of sections below, too."""
    return {
        name: json.loads(field.default.model_dump_json())
        if isinstance(field.default, Options)
        else field.default
        for name, field in section.model_fields.items()
        if not field.is_required()
    }


def states_of_option(at: At, field: FieldInfo) -> list[Document]:
    """Good documents that differ in this option: without it, with its default written out, with another
    value; where it cannot be left out, as it is. Of the first document that has the most."""
    best: list[Document] = []
    for document in DOCUMENTS:
        if len(at) > 1 and holder(document, at) is None and not is_good(with_value(document, at[:-1], {})):
            continue
        left_out = without(document, at)
        found = [left_out if is_good(left_out) else document]
        if not field.is_required() and is_good(default := with_value(document, at, field.default)):
            found.append(default)
        before = [Config.model_validate(one) for one in found]
        for value in other_values(field):
            changed = with_value(document, at, value)
            if is_good(changed) and Config.model_validate(changed) not in before:
                found.append(changed)
                break
        else:
            continue
        if len(found) > len(best):
            best = found
    return best


def states_of_section(at: At, section: type[Options]) -> Iterator[list[Document]]:
    """Of each document that has the section, and of the first that may have it: with it, without it, empty or
    as it is, with its defaults written out."""
    lacks_it = False
    for document in DOCUMENTS:
        inside = holder(document, at)
        value = None if inside is None else inside.get(at[-1])
        if value is None and lacks_it:
            continue
        written = with_value(document, at, {**written_out(section), **(value or {})})
        found = [document, without(document, at), with_value(document, at, value or {}), written]
        good = [one for one in found if is_good(one)]
        distinct = [one for number, one in enumerate(good) if one not in good[:number]]
        if len(distinct) > 1:
            lacks_it = lacks_it or value is None
            yield distinct


def is_changed_with_others(at: At) -> bool:
    """By whole configurations that become another: some have it, others do not or have another value."""
    inside = [holder(document, at) for document in DOCUMENTS]
    values = [None if one is None else one.get(at[-1]) for one in inside]
    return any(value != values[0] for value in values)


# The walk --------------------------------------------------------------------------------------------------


def walk_in_every_order(documents: Sequence[Document]) -> None:
    """Start with each, go to two others (or all) in every order, and back."""
    configs = [Config.model_validate(document) for document in documents]
    states = [(config, flat(config)) for config in configs]
    for order in itertools.permutations(states, min(3, len(states))):
        walk(order)


def walk(order: Sequence[tuple[Config, Flat]]) -> None:
    (start, state), *others = order
    in_force = start
    for new, said in (*others, order[0]):
        changed = difference(state, said)
        live = changed & LIVE_OPTIONS
        change = change_of(in_force, new)
        assert set(change.live) == live
        assert set(change.waiting) == changed - live
        assert change.problems == []
        assert len(change.live) + len(change.waiting) == len(changed), "each is told once"
        state = taken(state, said, live)
        in_force = change.config
        assert flat(in_force) == state
        assert bounds(in_force.limits) == bounds(new.limits)
    assert in_force == start
    assert flat(in_force) == order[0][1], "as a start with this file"


def with_canaries(documents: Sequence[Document]) -> list[Document]:
    """What is changed at the same time, in an emergency."""
    return [
        with_value(document, ("limits", "max_connections"), 9000 + number)
        for number, document in enumerate(documents)
    ]


@pytest.mark.parametrize("top", sorted({str(at[0]) for at, _ in SCHEMA}))
def test_every_option_is_told_and_put_in_force_as_at_a_start(top: str) -> None:
    for at, field in SCHEMA:
        if at[0] != top or at in SECTIONS or at == _NEVER:
            continue
        states = states_of_option(at, field)
        assert states or is_changed_with_others(at), f"{at}: DOCUMENTS need one in which it may change"
        if states:
            walk_in_every_order(states)


@pytest.mark.parametrize("top", sorted({str(at[0]) for at in SECTIONS}))
def test_a_section_comes_and_goes_and_what_is_live_beside_it_is_put_in_force(top: str) -> None:
    for at, field in SCHEMA:
        section = inner_section(field.annotation)
        if at[0] != top or section is None or at == ("listeners",):
            continue
        found = list(states_of_section(at, section))
        assert found or is_changed_with_others(at), f"{at}: DOCUMENTS need one in which it may be left out"
        for states in found:
            walk_in_every_order(with_canaries(states))


def test_one_whole_configuration_becomes_another() -> None:
    walk_in_every_order(DOCUMENTS)
    walk_in_every_order(with_canaries(DOCUMENTS))
