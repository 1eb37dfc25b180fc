"""Quotas that a running process keeps, as a place of commands: a server, or a proxy through its admin socket.

A server tells entities and limits, the admin socket all that is in force, but for replication throttles. What
only a quota file can be given (shadow mode, calendars, over_budget, tenants, prefixes, exempt rules) is
refused by name rather than left out; what the place cannot even tell is named by the command (without_place).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

from sluice.proxy.cli.local_admin import SocketClient
from sluice.proxy.cli.options import CommandFailed
from sluice.proxy.cli.quotas.edit import Changes, Whom, canonical
from sluice.proxy.cli.quotas.listing import (
    OWN,
    Difference,
    Listing,
    Names,
    as_double,
    described,
    is_own,
    sort_key,
)
from sluice.proxy.cli.quotas.sections import SECTIONS
from sluice.proxy.cli.whole_file import alone_in
from sluice.quotas.files.config_error import ConfigError, Problem
from sluice.quotas.files.quota_file import (
    DEFAULT_NAME,
    ENTITY_KEYS,
    OVER_BUDGET_KEY,
    REFUSE,
    SCHEDULE_KEY,
    SHADOW_KEY,
)

UNTOLD: Final = frozenset({SHADOW_KEY, SCHEDULE_KEY, OVER_BUDGET_KEY, OWN})
"""what Kafka's API has no words for"""
ENTITIES_AT_ONCE: Final = 500
_ERRORS: Final = {
    29: "TOPIC_AUTHORIZATION_FAILED",
    31: "CLUSTER_AUTHORIZATION_FAILED",
    35: "UNSUPPORTED_VERSION",
    41: "NOT_CONTROLLER",
    42: "INVALID_REQUEST",
    44: "POLICY_VIOLATION",
}


_Told = TypeVar("_Told")
_NOT_ADMIN: Final = 31
_WAYS: Final = (
    "At a proxy, log in as one of its quotas.admins (--command-config FILE), or ask as its own user on its "
    "machine (--admin-socket FILE; admin.socket in its configuration). Without either, `sluice top --why` "
    "and the status page tell which limit applies to who is connected."
)


class RemotePlace(ABC):
    """A place (quota_commands.Place). Changes are tried before the first is made; but in part some entities
    may have been changed when one is refused."""

    name: str

    @property
    @abstractmethod
    def written(self) -> str:
        """Where a change went, and when it is in force: a sentence."""

    def listing(self) -> Listing:
        """All limits; raises CommandFailed."""
        found = self._found()
        limits = found.limits
        ordered = {whom: limits[whom] for whom in sorted(limits, key=sort_key) if limits[whom]}
        return replace(found, limits=ordered, takes_own=False)

    def alter(self, changes: Mapping[Whom, Changes]) -> bool:
        """All of it is asked for, whatever the place tells now: a record of before may still be on its way
        there. Raises CommandFailed. A limit in shadow mode that is set is in force, its number being the
        same."""
        found = self._found()
        now, shadow = found.limits, found.shadow
        is_needed = any(
            now.get(whom, {}).get(key) != _as_told(found, limit) or key in shadow.get(whom, frozenset())
            for whom, limits in changes.items()
            for key, limit in limits.items()
        )
        self._change_all(changes)
        return is_needed

    def become(self, wanted: Listing, found: Sequence[Difference], *, in_part: bool = False) -> None:
        """Raises ConfigError for what cannot be kept there, CommandFailed for what is refused."""
        problems = [
            Problem(
                f"{difference.section or described(difference.whom)}: {why}; only a quota file can have that",
                source=self.name,
            )
            for difference in found
            for why in _beyond_kafka(wanted, difference)
        ]
        if problems:
            raise ConfigError(problems)
        changes: dict[Whom, dict[str, float | None]] = {}
        for difference in found:
            limit = wanted.limits.get(difference.whom, {}).get(difference.key)
            changes.setdefault(difference.whom, {})[difference.key] = limit
        self._change_all(changes, in_part=in_part)

    def alone(self, *also: Path) -> AbstractContextManager[None]:
        """The folders `also`; of what the place itself keeps others may change meanwhile what they will."""
        return alone_in({folder: str(folder) for folder in also})

    def _change_all(self, changes: Mapping[Whom, Changes], *, in_part: bool = False) -> None:
        whoms = list(changes)
        pieces = [
            {whom: changes[whom] for whom in whoms[start : start + ENTITIES_AT_ONCE]}
            for start in range(0, len(whoms), ENTITIES_AT_ONCE)
        ]
        if len(whoms) > 1 and not in_part:  # one is changed or not, as a whole
            refused = [line for piece in pieces for line in self._change(piece, validate_only=True)]
            if refused:
                raise self._refused([*refused, "nothing is changed"])
        for piece in pieces:
            if refused := self._change(piece, validate_only=False):
                raise self._refused(refused)

    def _refused(self, lines: Iterable[str]) -> CommandFailed:
        return CommandFailed("\n".join(f"{self.name}: {line}" for line in lines))

    @abstractmethod
    def _found(self) -> Listing:
        """All that the place tells, in any order."""

    @abstractmethod
    def _change(self, changes: Mapping[Whom, Changes], *, validate_only: bool) -> list[str]:
        """Change these, or only see whether they can be. Returns what is refused, a line for each entity."""


class SocketPlace(RemotePlace):
    """A proxy, as its machine's own administrator."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._client = SocketClient(path)

    @property
    def written(self) -> str:
        """A change is answered when it is in force (QuotaTopic.alter)."""
        return (
            f"Written to the quota topic by the proxy of {self.name}: in force there; other proxies take it "
            "within a second."
        )

    def _found(self) -> Listing:
        """What the proxy has in force; of a limit that a schedule has set for now, the normal one."""
        answer = self._client.ask({"ask": "describe", "all": True})
        entries, unnamable = split_by_name((entry["entity"], entry) for entry in answer["entries"])
        sections = answer.get("sections")  # None: a proxy of an older version, which tells less
        told = {} if sections is None else sections
        return Listing(
            {whom: {**entry["limits"], **entry.get("normal", {})} for whom, entry in entries.items()},
            {whom: frozenset(entry["shadow"]) for whom, entry in entries.items() if entry.get("shadow")},
            {name: tuple(told[name]) for name in SECTIONS if name in told},
            {whom: tuple(entry[SCHEDULE_KEY]) for whom, entry in entries.items() if SCHEDULE_KEY in entry},
            frozenset(whom for whom, entry in entries.items() if entry.get(OVER_BUDGET_KEY) == REFUSE),
            untold=frozenset({SCHEDULE_KEY, OWN}) if sections is None else frozenset(),
            unnamable=tuple((names, entry["limits"]) for names, entry in unnamable),
        )

    def _change(self, changes: Mapping[Whom, Changes], *, validate_only: bool) -> list[str]:
        entries = [
            {
                "entity": names_of(whom),
                "set": {key: limit for key, limit in limits.items() if limit is not None},
                "remove": [key for key, limit in limits.items() if limit is None],
            }
            for whom, limits in changes.items()
        ]
        answer = self._client.ask({"ask": "alter", "entries": entries, "validate_only": validate_only})
        return [
            f"{described(whom_of_names(result['entity']))}: {refusal(result['error_code'], result['error'])}"
            for result in answer["results"]
            if result["error_code"]
        ]


def whom_of_names(names: Mapping[str, str | None]) -> Whom:
    """From names as Kafka's API has them: a null one is the default."""
    known = [key for key in ENTITY_KEYS if key in names]
    order = [*known, *(key for key in names if key not in ENTITY_KEYS)]
    return tuple((key, _canonical(key, names[key])) for key in order)


def split_by_name(
    found: Iterable[tuple[Mapping[str, str | None], _Told]],
) -> tuple[dict[Whom, _Told], tuple[tuple[Names, _Told], ...]]:
    """What is told of each entity, and what of those that no quota file can name: who is really called
    <default>, which a broker takes, would be taken for the default."""
    named: dict[Whom, _Told] = {}
    unnamable = []
    for names, told in found:
        if DEFAULT_NAME in names.values():
            unnamable.append((tuple(names.items()), told))
        else:
            named[whom_of_names(names)] = told
    return named, tuple(unnamable)


def _as_told(listing: Listing, limit: float | None) -> float | None:
    return as_double(limit) if listing.has_doubles and limit is not None else limit


def names_of(whom: Whom) -> dict[str, str | None]:
    """Kafka's names of an entity: the counterpart of `whom_of_names`."""
    return {key: None if name == DEFAULT_NAME else name for key, name in whom}


def refusal(code: int, message: Any) -> str:
    """`error 42 INVALID_REQUEST: …`; of who may not ask, also what he can do."""
    told = f"error {code} {_ERRORS.get(code, '')}".rstrip() + (f": {message}" if message else "")
    return f"{told.removesuffix('.')}. {_WAYS}" if code == _NOT_ADMIN else told


def _canonical(key: str, name: str | None) -> str:
    if name is None:
        return DEFAULT_NAME
    try:
        return canonical(key, name)
    except ValueError:  # a broker takes host names for addresses
        return name


def _beyond_kafka(wanted: Listing, difference: Difference) -> Iterator[str]:
    """What of the wanted state, as far as it is not so already, is beyond a place of Kafka's API."""
    whom, key = difference.whom, difference.key
    if difference.section:
        yield f"{key} {'is not there' if difference.left is None else 'would go'}"
        return
    if whom in wanted.limits and is_own(difference):
        yield "is an entity that only Sluice has"
    if key in wanted.shadow.get(whom, ()):
        yield f"{key} is in shadow mode"
    if key == SCHEDULE_KEY and whom in wanted.schedules:
        yield "has a schedule"
    if key == OVER_BUDGET_KEY:
        yield f"{'has' if whom in wanted.refusing else 'loses'} over_budget: refuse"
