"""What a `kafka-configs` line asks for of brokers or topics: KIP-73's four settings. Pure.

All other settings of brokers and topics are none of Sluice's, and refused. Source: KIP-73; ConfigCommand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from sluice.proxy.cli.quotas.arguments import ADD, ArgumentError, is_known, refuse_no_text, take_removals
from sluice.quotas.files.config_error import ConfigError, Problem
from sluice.quotas.files.quota_file import DEFAULT_NAME
from sluice.quotas.files.replication_section import rate_meant
from sluice.quotas.replication.limits import RATE_KEYS, REPLICAS_KEYS, parse_rate, parse_replicas

BROKERS: Final = "brokers"
TOPICS: Final = "topics"
KEYS_OF_TYPE: Final = {BROKERS: RATE_KEYS, TOPICS: REPLICAS_KEYS}
Changes: TypeAlias = Mapping[str, str | None]
"""key → value; None: it is removed"""
_BETWEEN_SETTINGS: Final = re.compile(r",(?![^\[]*\])")
"""a comma, but none of a list in brackets"""


@dataclass(frozen=True, slots=True)
class Throttled:
    """Whose settings are asked for."""

    kind: str
    """BROKERS or TOPICS"""
    name: str | None
    """None: all of that type; DEFAULT_NAME: what holds for all brokers that have none of their own"""

    def heading(self, name: str) -> str:
        """As Kafka's tool has it."""
        if name == DEFAULT_NAME:
            return f"Default configs for {self.kind} in the cluster are:"
        return f"Dynamic configs for {self.kind[:-1]} {name} are:"

    def shown(self) -> str:
        """As Kafka's tool shows it when it is done."""
        if self.name == DEFAULT_NAME:
            return f"default config for {self.kind} in the cluster"
        return f"config for {self.kind[:-1]} {self.name}"


def throttled_of(types: Sequence[str], names: Sequence[str], *, alter: bool) -> Throttled | None:
    """None: these are not settings of brokers or topics. Raises ArgumentError."""
    if KEYS_OF_TYPE.keys().isdisjoint(types):
        return None
    if len(types) > 1 or len(names) > 1:
        raise ArgumentError("brokers and topics are asked for one at a time", "--entity-type")
    kind = types[0]
    name = names[0] if names else None
    if name is not None:
        refuse_no_text(name)
    if name is None and alter:
        raise ArgumentError(f"give --entity-name with {kind}", "--entity-type")
    if name == DEFAULT_NAME and kind == TOPICS:
        raise ArgumentError("topics have no default; give --entity-name", "--entity-default")
    if name is not None and kind == BROKERS and name != DEFAULT_NAME and not re.fullmatch("[0-9]{1,9}", name):
        raise ArgumentError(f"must be a broker's id, is {name!r}", "--entity-name")
    return Throttled(kind, name)


def throttle_changes_of(kind: str, add: str, delete: str) -> dict[str, str | None]:
    """What `key=value,…` and `key,…` ask for; a value with commas stands in brackets, as in Kafka's tool.

    Raises ConfigError that names the option and the key.
    """
    known = KEYS_OF_TYPE[kind]
    problems: list[Problem] = []
    changes: dict[str, str | None] = {}
    for text in filter(None, (part.strip() for part in _BETWEEN_SETTINGS.split(add))):
        key, _, value = (part.strip() for part in text.partition("="))
        changes[key] = value.removeprefix("[").removesuffix("]")
        if is_known(ADD, key, known, problems) and (why := _why_not(kind, key, changes[key] or "")):
            problems.append(Problem(why, path=key, source=ADD))
    take_removals(delete, known, changes, problems)
    if problems:
        raise ConfigError(problems)
    return changes


def _why_not(kind: str, key: str, value: str) -> str:
    """Empty: the setting can be made."""
    if not value:
        return "has no value; write KEY=VALUE"
    try:
        if kind == BROKERS:
            parse_rate(key, value)
        else:
            parse_replicas(key, value)
    except ValueError as error:
        meant = rate_meant(value) if kind == BROKERS else ""
        return str(error).removeprefix(f"{key} ") + meant
    return ""
