"""The configured limits, as one immutable snapshot: entities and numbers in, the limit of a connection out.

The most specific level that has a limit *of this kind* wins; one with limits of other kinds is passed over.
The empty (or null) client id matches no exact entity and gets the defaults by the same precedence; the broker
looks it up as a name and falls to `user`, `default user` or unlimited (wire-semantics 2, measured).
A limit in shadow mode takes its place in the precedence as any other, and delays nobody: who is to be covered
by it is then not covered by a less specific limit either, as it will be when it is put in force.
Knows no usage: manager.py does. Source: Kafka design 4.10, "Quota Configuration"; ClientQuotaManager.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from sluice.quotas.entity import DEFAULT, QuotaEntity, QuotaLevel
from sluice.quotas.exempt import ExemptRule, ExemptRules
from sluice.quotas.kinds import KIND_BY_KEY, KINDS, KindSpec, QuotaKind, Scope

_DEFAULT_IP: Final = QuotaEntity(ip=DEFAULT)
_NO_LIMITS: Final[Mapping[str, float]] = MappingProxyType({})
_Found: TypeAlias = tuple[QuotaLevel, float, bool]
"""level, limit, whether it is in shadow mode"""


class QuotaError(Exception):
    """A limit that cannot be. `key` is None where the entity itself is at fault."""

    def __init__(self, message: str, entity: QuotaEntity, key: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.entity = entity
        self.key = key


class Match(NamedTuple):
    """The limit that applies to a connection."""

    level: QuotaLevel
    limit: float
    """as configured, in the kind's limit_unit"""
    bucket: QuotaEntity
    """whose connections share one sensor"""
    shadow: bool = False
    """measured and logged, but nobody is delayed by it"""


@dataclass(frozen=True, slots=True)
class LevelExplanation:
    """What one level says of a connection and a kind."""

    level: QuotaLevel
    entity: QuotaEntity
    """the entity that was looked up"""
    limit: float | None
    """what is configured for it, None if nothing is"""
    chosen: bool
    shadow: bool
    """the limit is in shadow mode"""
    why: str
    """one sentence"""


class _Row:
    """The limits of one kind under one user, the default user or no user: up to three of the eight levels."""

    __slots__ = ("clients", "default_client", "own")

    def __init__(self) -> None:
        self.clients: dict[str, _Found] = {}
        self.default_client: _Found | None = None
        self.own: _Found | None = None

    def find(self, client_id: str) -> _Found | None:
        """In order of precedence: client id, default client id, the user alone."""
        return self.clients.get(client_id) or self.default_client or self.own


class _Table:
    """The limits of one kind, by user, so that all eight levels take at most four dict look-ups."""

    __slots__ = ("any_user", "default_user", "users")

    def __init__(self) -> None:
        self.users: dict[str, _Row] = {}
        self.default_user = _Row()
        self.any_user = _Row()

    def find(self, user: str, client_id: str) -> _Found | None:
        row = self.users.get(user)
        found = row.find(client_id) if row is not None else None
        return found or self.default_user.find(client_id) or self.any_user.find(client_id)

    def put(self, entity: QuotaEntity, found: _Found) -> None:
        level = found[0]
        if isinstance(entity.user, str):
            row = self.users.setdefault(entity.user, _Row())
        else:
            row = self.default_user if level.has_user else self.any_user
        if isinstance(entity.client_id, str):
            row.clients[entity.client_id] = found
        elif level.has_client:
            row.default_client = found
        else:
            row.own = found


class QuotaLimits:
    """An immutable snapshot of all configured limits."""

    __slots__ = ("_entries", "_shadow", "_tables", "exempt")

    def __init__(
        self,
        entries: Iterable[tuple[QuotaEntity, Mapping[str, object]]] = (),
        *,
        shadow: Mapping[QuotaEntity, Collection[str]] = MappingProxyType({}),
        exempt: Iterable[ExemptRule] = (),
    ) -> None:
        """Check and index (entity, {config_key: number}) pairs.

        `shadow`: of which entities which keys are in shadow mode. `exempt`: whom no limit delays. An entity
        without keys is allowed, as in Kafka. Raises QuotaError for an empty or duplicate entity, an empty
        name, an unknown key, a value that its kind refuses, and for a key in `shadow` that the entity does
        not have.
        """
        checked: dict[QuotaEntity, Mapping[str, float]] = {}
        tables: dict[QuotaKind, _Table] = {}
        for given, values in entries:
            level = None if given.ip is not None else _checked_level(given)
            entity = given if level is not None else _checked_ip(given)
            if entity in checked:
                raise QuotaError(f"{entity} is configured twice", entity)
            limits: dict[str, float] = {}
            for key, value in values.items():
                kind = KIND_BY_KEY.get(key)
                if kind is None:
                    known = ", ".join(KIND_BY_KEY)
                    raise QuotaError(
                        f"Invalid configuration key {key} for {entity}; known: {known}", entity, key
                    )
                reason = why_not_for(KINDS[kind], entity)
                if reason is not None:
                    raise QuotaError(f"{key} {reason} ({entity})", entity, key)
                try:
                    limits[key] = KINDS[kind].validated(key, value)
                except ValueError as error:
                    raise QuotaError(f"{error} ({entity})", entity, key) from None
                if level is not None:
                    found = (level, limits[key], key in shadow.get(entity, ()))
                    tables.setdefault(kind, _Table()).put(entity, found)
            checked[entity] = MappingProxyType(limits)
        for entity, keys in shadow.items():
            for key in keys:
                if key not in checked.get(entity, {}):
                    raise QuotaError(f"{entity} has no {key} that could be in shadow mode", entity, key)
        self._shadow: Final = MappingProxyType({entity: frozenset(keys) for entity, keys in shadow.items()})
        self.exempt: Final = ExemptRules(exempt)
        """whom no limit delays; `resolve` and `explain` do not look at it"""
        self._entries: Final = MappingProxyType(checked)
        self._tables: Final = tables

    @property
    def entries(self) -> Mapping[QuotaEntity, Mapping[str, float]]:
        """What is configured: {entity: {config_key: limit}}, in the order given; read-only."""
        return self._entries

    @property
    def shadow(self) -> Mapping[QuotaEntity, frozenset[str]]:
        """Which limits are in shadow mode: {entity: config keys}; read-only."""
        return self._shadow

    def resolve(self, kind: QuotaKind, user: str, client_id: str) -> Match | None:
        """The limit for a connection, or None: unlimited. A null client id is ""."""
        table = self._tables.get(kind)
        if table is None:
            return None
        found = table.find(user, client_id)
        if found is None:
            return None
        level, limit, shadow = found
        return Match(level, limit, level.bucket(user, client_id), shadow)

    def ip_limit(self, address: str) -> tuple[float, str, bool] | None:
        """New connections a second from this address: (limit, rule: ip or default_ip, shadow mode)."""
        key = KINDS[QuotaKind.CONNECTION_CREATION].config_key
        for entity, rule in ((QuotaEntity(ip=address), "ip"), (_DEFAULT_IP, "default_ip")):
            limit = self._entries.get(entity, _NO_LIMITS).get(key)
            if limit is not None:
                return limit, rule, key in self._shadow.get(entity, ())
        return None

    def explain(self, kind: QuotaKind, user: str, client_id: str) -> tuple[LevelExplanation, ...]:
        """All eight levels in order of precedence: what each says of this connection, which one applies."""
        key = KINDS[kind].config_key
        match = self.resolve(kind, user, client_id)
        chosen = match.level if match is not None else None
        lines = []
        for level in QuotaLevel:
            entity = level.configured_entity(user, client_id)
            configured = self._entries.get(entity)
            limit = configured.get(key) if configured is not None else None
            shadow = key in self._shadow.get(entity, ())
            if level is chosen and shadow:
                why = f"Applies in shadow mode, the first level in Kafka's order with a {key}: delays nobody."
            elif level is chosen:
                why = f"Applies: the first level in Kafka's order that has a {key} for this client."
            elif limit is not None and chosen is not None:
                why = f"Has a {key}, but {chosen.value} comes first in Kafka's order."
            elif configured is not None:
                why = f"Is configured, but without {key}, so it is passed over."
            elif "" in {entity.user, entity.client_id}:
                why = "An empty name matches no exact entity, only the defaults."
            else:
                why = f"Nothing is configured for {entity}."
            lines.append(LevelExplanation(level, entity, limit, level is chosen, shadow, why))
        return tuple(lines)


def why_not_for(spec: KindSpec, entity: QuotaEntity) -> str | None:
    """What speaks against a limit of this kind for this entity, as the end of a sentence."""
    if spec.scope is Scope.IPS:
        return None if entity.ip is not None else "is for addresses; write ip"
    if entity.ip is not None:
        return "is not for addresses, which have connection_creation_rate alone"
    if spec.scope is Scope.USERS and entity.client_id is not None:
        return "is for users; leave client-id out"
    return None


def _checked_ip(entity: QuotaEntity) -> QuotaEntity:
    """The address in its canonical form."""
    if entity.user is not None or entity.client_id is not None:
        raise QuotaError("An ip stands alone: leave user and client-id out", entity)
    if isinstance(entity.ip, str):
        try:
            return QuotaEntity(ip=str(ip_address(entity.ip)))
        except ValueError:
            raise QuotaError(f"{entity.ip!r} is no IP address", entity) from None
    return entity


def _checked_level(entity: QuotaEntity) -> QuotaLevel:
    if entity.user is None and entity.client_id is None:
        raise QuotaError("Invalid empty client quota entity: name a user, a client id, or both", entity)
    for part, name in (("user", entity.user), ("client-id", entity.client_id)):
        if name == "":
            raise QuotaError(
                f"An empty {part} cannot be configured; it gets the default {part}'s limit", entity
            )
    try:
        return QuotaLevel.of(entity)
    except KeyError:
        raise QuotaError(f"{entity}: <overflow> is Sluice's own and cannot be configured", entity) from None
