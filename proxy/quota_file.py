"""The quota file → QuotaLimits, or every problem with its key and line.

    quotas:
      - user: alice                  # or client-id, or both; `<default>` as in /config/users/<default>
        client-id: app-1
        producer_byte_rate: 1048576
        shadow: true                 # or a list of keys: measured and logged, but nobody is delayed

    exempt:                          # whom no limit delays; measured all the same
      - user: backup
        address: 10.1.0.0/16         # or one address; a client-id only beside user or address

Knows the names of keys from quotas/kinds.py and what a value may be from QuotaLimits, not when to read.
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from sluice.proxy.config_error import ConfigError, Problem, QuotaFileError, shown, unknown_key_message
from sluice.proxy.config_file import read_text
from sluice.proxy.identity import ANONYMOUS
from sluice.proxy.yaml_lines import YamlDocument, YamlPath, YamlValue, dotted, parse_yaml_in_steps
from sluice.quotas.entity import DEFAULT, Default, QuotaEntity
from sluice.quotas.exempt import ExemptRule, Network, network_of
from sluice.quotas.kinds import KIND_BY_KEY, KINDS
from sluice.quotas.limits import QuotaError, QuotaLimits, why_not_for

ENTITY_KEYS = ("user", "client-id", "ip")
SHADOW_KEY = "shadow"
EXEMPT_KEYS = ("user", "address", "client-id")
TOP_KEYS = ("quotas", "exempt")
DEFAULT_NAME = "<default>"
_ENTRIES_PER_STEP = 100


def load_quotas(file: Path) -> QuotaLimits:
    """The limits in `file`. Raises QuotaFileError when it cannot be read or used."""
    try:
        text = read_text(file, "quota")
    except ConfigError as error:
        raise QuotaFileError(error.problems) from None
    return parse_quotas(text, str(file))


def parse_quotas(text: str, source: str) -> QuotaLimits:
    """The limits in `text`. Raises QuotaFileError with every problem, naming `source`, key and line."""
    steps = parse_quotas_in_steps(text, source)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            limits: QuotaLimits = done.value
            return limits


def parse_quotas_in_steps(text: str, source: str) -> Generator[None, None, QuotaLimits]:
    """The same, pausing every millisecond or so; the limits are the generator's return value."""
    try:
        document = yield from parse_yaml_in_steps(text, source)
    except ConfigError as error:
        raise QuotaFileError(error.problems) from None
    return (yield from limits_in_steps(document, source))


def limits_in_steps(document: YamlDocument, source: str) -> Generator[None, None, QuotaLimits]:
    """The limits in a parsed document."""
    reader = _Reader(document, source)
    entries: list[tuple[QuotaEntity, dict[str, Any]]] = []
    shadow: dict[QuotaEntity, Collection[str]] = {}
    seen: dict[QuotaEntity, int] = {}
    for index, item in enumerate(reader.items()):
        if index % _ENTRIES_PER_STEP == _ENTRIES_PER_STEP - 1:
            yield
        entry = reader.entry(index, item)
        if entry is None:
            continue
        earlier = seen.setdefault(entry[0], index)
        if earlier != index:
            line = document.line_of(("quotas", earlier))
            reader.problem(
                ("quotas", index), f"{entry[0]} has limits already, on line {line}; put them together"
            )
        entity, limits, shadow[entity] = entry
        entries.append((entity, limits))
    exempt = reader.exempt()
    if reader.problems:
        raise QuotaFileError(sorted(reader.problems, key=lambda problem: problem.line or 0))
    try:
        return QuotaLimits(entries, shadow=shadow, exempt=exempt)
    except QuotaError as error:  # a rule that is checked nowhere above
        raise QuotaFileError([Problem(error.message, source=source)]) from None


def quotas_schema() -> dict[str, Any]:
    """JSON Schema of a quota file, for editors; `sluice check` knows more."""
    name = {"type": "string", "minLength": 1}
    keys: dict[str, Any] = {
        "user": {
            **name,
            "description": "The principal's name without its type; <default>: every other user.",
        },
        "client-id": {**name, "description": "The client id; <default>: every other client id."},
        "ip": {**name, "description": "A client's address; <default>: every other one. Stands alone."},
    }
    for spec in KINDS.values():
        keys[spec.config_key] = {
            "type": "number",
            "exclusiveMinimum": 0,
            "description": f"{spec.effect} In {spec.limit_unit}.",
        }
    keys[SHADOW_KEY] = {
        "description": "Measure and log these limits, or with true all of the entry, but delay nobody.",
        "anyOf": [
            {"type": "boolean"},
            {"type": "array", "items": {"enum": list(KIND_BY_KEY)}, "minItems": 1},
        ],
    }
    entry = {
        "type": "object",
        "additionalProperties": False,
        "properties": keys,
        "allOf": [
            {"anyOf": [{"required": [key]} for key in ENTITY_KEYS]},
            {"anyOf": [{"required": [spec.config_key]} for spec in KINDS.values()]},
        ],
    }
    rule_keys = {
        "user": {**name, "description": "The principal's name without its type."},
        "address": {**name, "description": "The client's: one address, or a network such as 10.1.0.0/16."},
        "client-id": {**name, "description": "Only beside user or address: clients choose it."},
    }
    rule = {
        "type": "object",
        "additionalProperties": False,
        "properties": rule_keys,
        "anyOf": [{"required": ["user"]}, {"required": ["address"]}],
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Sluice quota file",
        "type": "object",
        "additionalProperties": False,
        "required": ["quotas"],
        "properties": {
            "quotas": {"type": "array", "items": entry},
            "exempt": {
                "type": "array",
                "items": rule,
                "description": "Whom no limit delays; what they use is measured all the same.",
            },
        },
    }


class _Reader:
    """Takes a document apart and collects what is wrong with it."""

    def __init__(self, document: YamlDocument, source: str) -> None:
        self.problems: list[Problem] = []
        self._document = document
        self._source = source

    def problem(self, path: YamlPath, message: str) -> None:
        line = self._document.line_of(path)
        self.problems.append(Problem(message, path=dotted(path), source=self._source, line=line))

    def items(self) -> list[YamlValue]:
        """The entries; what stands around them is checked."""
        top = self._document.value
        if not isinstance(top, dict) or "quotas" not in top:
            # An empty file is more likely a failed write than the wish to lift every limit.
            self.problem((), "must begin with `quotas:`, a list of limits; no limits at all: `quotas: []`")
            return []
        for key in top:
            if key not in TOP_KEYS:
                self.problem((key,), unknown_key_message(key, TOP_KEYS))
        entries = top["quotas"]
        if not isinstance(entries, list):
            what = "is blank" if entries is None else "must be a list of entries (each begins with `- `)"
            self.problem(("quotas",), f"{what}; no limits at all: `quotas: []`")
            return []
        return entries

    def exempt(self) -> list[ExemptRule]:
        """The rules of `exempt:` that are right."""
        top = self._document.value
        rules = top.get("exempt", []) if isinstance(top, dict) else []
        if not isinstance(rules, list):
            what = "is blank" if rules is None else "must be a list of rules (each begins with `- `)"
            self.problem(("exempt",), f"{what}; leave it out to exempt nobody")
            return []
        found = (self._exempt_rule(("exempt", index), item) for index, item in enumerate(rules))
        return [rule for rule in found if rule is not None]

    def _exempt_rule(self, at: YamlPath, item: YamlValue) -> ExemptRule | None:
        """One rule, or None after telling what is wrong with it."""
        before = len(self.problems)
        if not isinstance(item, dict):
            self.problem(at, f"must be a mapping such as `user: backup`, is {shown(item)}")
            return None
        for key in item:
            if key not in EXEMPT_KEYS:
                self.problem((*at, key), unknown_key_message(key, EXEMPT_KEYS))
        user, client_id = (self._one_name(at, item, key) for key in ("user", "client-id"))
        network = self._network(at, item)
        if len(self.problems) != before:
            return None
        if user == ANONYMOUS and client_id is not None and network is None:
            # Whoever does not log in is ANONYMOUS.
            self.problem((*at, "client-id"), f"user {ANONYMOUS} is anybody, so this is a client-id alone")
            return None
        try:
            return ExemptRule(user, network, client_id)
        except ValueError as error:
            self.problem((*at, "client-id") if client_id is not None else at, str(error))
            return None

    def _one_name(self, at: YamlPath, item: dict[str, YamlValue], key: str) -> str | None:
        name = self._name(at, item, key)
        if isinstance(name, Default):
            self.problem((*at, key), f"must name one {key}; {DEFAULT_NAME} would exempt every other one")
            return None
        return name

    def _network(self, at: YamlPath, item: dict[str, YamlValue]) -> Network | None:
        if "address" not in item:
            return None
        text = item["address"]
        try:
            if isinstance(text, str):
                return network_of(text)
            reason = f"is {shown(text)}"
        except ValueError as error:
            reason = str(error)
        self.problem((*at, "address"), f"must be an address or a network such as 10.1.0.0/16: {reason}")
        return None

    def entry(
        self, index: int, item: YamlValue
    ) -> tuple[QuotaEntity, dict[str, Any], Collection[str]] | None:
        """(entity, limits, keys in shadow mode) of one entry, or None after telling what is wrong with it."""
        at: YamlPath = ("quotas", index)
        before = len(self.problems)
        if not isinstance(item, dict):
            self.problem(at, f"must be a mapping such as `user: alice`, is {shown(item)}")
            return None
        entity = QuotaEntity(*(self._name(at, item, key) for key in ENTITY_KEYS))
        if not any(key in item for key in ENTITY_KEYS):
            self.problem(at, "names nobody; give user, client-id or both, or ip")
        if "ip" in item:
            self._check_ip(at, item)
        limits = {key: value for key, value in item.items() if key not in (*ENTITY_KEYS, SHADOW_KEY)}
        if not limits:
            self.problem(at, f"sets no limit; give {' or '.join(KIND_BY_KEY)}")
        for key, value in limits.items():
            self._check_limit((*at, key), key, value, entity)
        shadow = self._shadow((*at, SHADOW_KEY), item.get(SHADOW_KEY, False), limits)
        return (entity, limits, shadow) if len(self.problems) == before else None

    def _shadow(self, at: YamlPath, value: YamlValue, limits: dict[str, Any]) -> Collection[str]:
        """The keys of one entry that are in shadow mode."""
        if isinstance(value, bool):
            return limits if value else ()
        if not isinstance(value, list) or not value:
            self.problem(
                at, f"must be true, or a list of keys such as [{next(iter(KIND_BY_KEY))}], is {shown(value)}"
            )
            return ()
        for index, key in enumerate(value):
            if not isinstance(key, str) or key not in limits:
                self.problem(
                    (*at, index),
                    f"{shown(key)} is no limit of this entry; it has {' and '.join(limits) or 'none'}",
                )
        return [str(key) for key in value]

    def _name(self, at: YamlPath, item: dict[str, YamlValue], key: str) -> str | Default | None:
        if key not in item:
            return None
        name = item[key]
        if name == DEFAULT_NAME:
            return DEFAULT
        if name is None or (isinstance(name, str) and not name.strip()):
            self.problem((*at, key), f"must not be blank; for every other {key} write {DEFAULT_NAME}")
        elif not isinstance(name, str):
            self.problem((*at, key), f"must be a text, is {shown(name)}; write it in quotes: '{name}'")
        else:
            return name
        return None

    def _check_ip(self, at: YamlPath, item: dict[str, YamlValue]) -> None:
        if "user" in item or "client-id" in item:
            self.problem((*at, "ip"), "stands alone; leave user and client-id out of this entry")
        text = item["ip"]
        if isinstance(text, str) and text.strip() and text != DEFAULT_NAME:
            try:
                ip_address(text)
            except ValueError:
                self.problem((*at, "ip"), f"must be an address such as 10.1.2.3, is {shown(text)}")

    def _check_limit(self, at: YamlPath, key: str, value: YamlValue, entity: QuotaEntity) -> None:
        kind = KIND_BY_KEY.get(key)
        if kind is None:
            self.problem(at, unknown_key_message(key, [*ENTITY_KEYS, *KIND_BY_KEY, SHADOW_KEY]))
        elif value is None:
            self.problem(at, "must not be blank; leave the key out for no limit")
        else:
            reason = why_not_for(KINDS[kind], entity)
            if reason is not None:
                self.problem(at, f"{key} {reason}")
            try:
                KINDS[kind].validated(key, value)
            except ValueError as error:
                self.problem(at, f"{str(error).rstrip('.')}; is {shown(value)} ({KINDS[kind].limit_unit})")
