"""An entry of a quota file → whom it is for and its limits, or what is wrong with it, with its line.

Knows the names of keys from quotas/kinds.py and what a value may be from there; sections.py reads what
stands beside the entries.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, NamedTuple

from sluice.quotas.addresses import usual_address
from sluice.quotas.entity import DEFAULT, Default, Prefix, QuotaEntity, Tenant
from sluice.quotas.files.config_error import (
    Problem,
    shown,
    unknown_key_message,
    why_not_user,
    wrong_limit,
)
from sluice.quotas.files.schedule_entries import SCHEDULE_KEY, ScheduleReader
from sluice.quotas.files.yaml_lines import YamlDocument, YamlPath, YamlValue, dotted
from sluice.quotas.kinds import KIND_BY_KEY, KINDS, QuotaKind
from sluice.quotas.limits.limits import why_not_for
from sluice.quotas.limits.schedule import Schedule
from sluice.quotas.numbers import as_yaml

ENTITY_KEYS: Final = ("user", "tenant", "client-id", "client-id-prefix", "ip")
SHADOW_KEY: Final = "shadow"
OVER_BUDGET_KEY: Final = "over_budget"
FORWARD: Final = "forward"
REFUSE: Final = "refuse"
REFUSABLE_KEY: Final = KINDS[QuotaKind.PRODUCE].config_key
_OPTION_KEYS: Final = (SHADOW_KEY, SCHEDULE_KEY, OVER_BUDGET_KEY)
TENANT_KEYS: Final = ("name", "members")
DEFAULT_NAME: Final = "<default>"
_WITH_DEFAULT: Final = ("user", "client-id", "ip")
_NO_LIMITS: Final = frozenset([*ENTITY_KEYS, *_OPTION_KEYS])


class ReadEntry(NamedTuple):
    """What an entry says."""

    entity: QuotaEntity
    limits: dict[str, Any]
    shadow: Collection[str]
    """keys in shadow mode"""
    schedule: Schedule
    refuses: bool
    """what has no turn in time"""


class EntryReader:
    """Reads entries of `quotas:`, and collects what is wrong with them."""

    def __init__(self, document: YamlDocument, source: str) -> None:
        self.problems: list[Problem] = []
        self.tenants: dict[str, list[str]] = {}
        """the members of each tenant, of those that are right; to be read before the entries"""
        self._document = document
        self._source = source
        self._schedules = ScheduleReader(self.problem)

    def problem(self, path: YamlPath, message: str) -> None:
        line = self._document.line_of(path)
        self.problems.append(Problem(message, path=dotted(path), source=self._source, line=line))

    def entry(self, index: int, item: YamlValue) -> ReadEntry | None:
        """One entry, or None after telling what is wrong with it."""
        at: YamlPath = ("quotas", index)
        before = len(self.problems)
        if not isinstance(item, dict):
            self.problem(at, f"must be a mapping such as `user: alice`, is {shown(item)}")
            return None
        entity = QuotaEntity(self._user(at, item), self._client_id(at, item))
        if "ip" in item:
            entity = QuotaEntity(ip=self._ip(at, item))
        elif not any(key in item for key in ENTITY_KEYS):
            self.problem(
                at,
                "names nobody; give user or tenant, or client-id or client-id-prefix, or one of each; or ip",
            )
        limits = {key: value for key, value in item.items() if key not in _NO_LIMITS}
        if not limits:
            self.problem(at, f"sets no limit; give {' or '.join(KIND_BY_KEY)}")
        for key, value in limits.items():
            self._check_limit((*at, key), key, value, entity)
        shadow = self._shadow((*at, SHADOW_KEY), item.get(SHADOW_KEY, False), limits)
        schedule: Schedule = ()
        if SCHEDULE_KEY in item:
            schedule = self._schedules.read((*at, SCHEDULE_KEY), item[SCHEDULE_KEY], limits)
        refuses = self._refuses((*at, OVER_BUDGET_KEY), item, limits)
        return ReadEntry(entity, limits, shadow, schedule, refuses) if len(self.problems) == before else None

    def _user(self, at: YamlPath, item: dict[str, YamlValue]) -> str | Default | Tenant | None:
        if "tenant" not in item:
            return self.name(at, item, "user")
        if "user" in item:
            self.problem((*at, "tenant"), "stands in the place of user; leave one of them out")
        name = self.name(at, item, "tenant")
        if not isinstance(name, str):
            return None
        if name not in self.tenants:
            self.problem((*at, "tenant"), f"{name!r} is not in `tenants:`")
        return Tenant(name)

    def _client_id(self, at: YamlPath, item: dict[str, YamlValue]) -> str | Default | Prefix | None:
        if "client-id-prefix" not in item:
            return self.name(at, item, "client-id")
        at = (*at, "client-id-prefix")
        if "client-id" in item:
            self.problem(at, "stands in the place of client-id; leave one of them out")
        text = self.name(at[:-1], item, "client-id-prefix")
        if not isinstance(text, str):
            return None
        if text.endswith("*"):
            self.problem(at, "is how client ids begin, to the letter; leave the * out")
        return Prefix(text)

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

    def _refuses(self, at: YamlPath, item: dict[str, YamlValue], limits: dict[str, Any]) -> bool:
        if OVER_BUDGET_KEY not in item:
            return False
        value = item[OVER_BUDGET_KEY]
        if value not in {FORWARD, REFUSE} if isinstance(value, str) else True:
            self.problem(at, f"must be {FORWARD} or {REFUSE}, is {shown(value)}")
        if REFUSABLE_KEY not in limits:
            self.problem(at, f"is of {REFUSABLE_KEY}, which this entry does not have")
        return value == REFUSE

    def name(self, at: YamlPath, item: dict[str, YamlValue], key: str) -> str | Default | None:
        if key not in item:
            return None
        name = item[key]
        has_default = key in _WITH_DEFAULT
        if name == DEFAULT_NAME and has_default:
            return DEFAULT
        if name is None or (isinstance(name, str) and not name.strip()):
            hint = f"; for every other {key} write {DEFAULT_NAME}" if has_default else ""
            self.problem((*at, key), f"must not be blank{hint}")
        elif not isinstance(name, str):
            self.problem(
                (*at, key), f"must be a text, is {shown(name)}; write it in quotes: '{as_yaml(name)}'"
            )
        elif name == DEFAULT_NAME:
            hint = "; write client-id for every other client id" if key == "client-id-prefix" else ""
            self.problem((*at, key), f"must name one {key}, not {DEFAULT_NAME}{hint}")
        elif key == "user" and (reason := why_not_user(name)) is not None:
            self.problem((*at, key), reason)
        else:
            return name
        return None

    def _ip(self, at: YamlPath, item: dict[str, YamlValue]) -> str | Default | None:
        others = [key for key in ENTITY_KEYS if key != "ip" and key in item]
        if others:
            self.problem((*at, "ip"), f"stands alone; leave {' and '.join(others)} out of this entry")
        text = self.name(at, item, "ip")
        if isinstance(text, str):
            try:
                return usual_address(text)
            except ValueError:
                self.problem((*at, "ip"), f"must be an address such as 10.1.2.3, is {shown(text)}")
        return text

    def _check_limit(self, at: YamlPath, key: str, value: YamlValue, entity: QuotaEntity) -> None:
        kind = KIND_BY_KEY.get(key)
        if kind is None:
            self.problem(at, unknown_key_message(key, [*ENTITY_KEYS, *KIND_BY_KEY, *_OPTION_KEYS]))
        elif value is None:
            self.problem(at, "must not be blank; leave the key out for no limit")
        else:
            reason = why_not_for(KINDS[kind], entity)
            if reason is not None:
                self.problem(at, f"{key} {reason}")
            try:
                KINDS[kind].validated(key, value)
            except ValueError as error:
                self.problem(at, wrong_limit(KINDS[kind], value, str(error)))
