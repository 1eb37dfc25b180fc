"""The configured limits, as one immutable snapshot: entities and numbers in, the limit of a connection out.

The most specific level that has a limit *of this kind* wins; one with limits of other kinds is passed over.
The empty (or null) client id matches no exact entity and gets the defaults by the same precedence; the broker
looks it up as a name and falls to `user`, `default user` or unlimited (wire-semantics 2, measured).
A limit in shadow mode takes its place in the precedence as any other, and delays nobody: who is to be covered
by it is then not covered by a less specific limit either, as it will be when it is put in force.
Knows no usage: manager.py does. Source: Kafka design 4.10, "Quota Configuration"; ClientQuotaManager.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from sluice.quotas.addresses import usual_address
from sluice.quotas.entity import DEFAULT, UNNAMED_USERS, Part, Prefix, QuotaEntity, QuotaLevel, Tenant
from sluice.quotas.exempt import ExemptRule, ExemptRules
from sluice.quotas.kinds import KIND_BY_KEY, KINDS, KindSpec, QuotaKind, Scope
from sluice.quotas.limits.client_ids import ClientIds
from sluice.quotas.limits.schedule import Schedule, Scheduled
from sluice.quotas.limits.tables import LevelExplanation, LimitsOfEntity, LimitTable, Match

_DEFAULT_IP: Final = QuotaEntity(ip=DEFAULT)
_IP_KEY: Final = KINDS[QuotaKind.CONNECTION_CREATION].config_key
_NO_LIMITS: Final[Mapping[str, float]] = MappingProxyType({})
_NO_SHADOW: Final[Mapping[QuotaEntity, Collection[str]]] = MappingProxyType({})
_NOBODY: Final[frozenset[QuotaEntity]] = frozenset()
_REFUSABLE: Final = KINDS[QuotaKind.PRODUCE].config_key
_NO_TENANTS: Final[Mapping[str, Iterable[str]]] = MappingProxyType({})
_NO_SCHEDULES: Final[Mapping[QuotaEntity, Schedule]] = MappingProxyType({})
_NOT_SCHEDULED: Final[Mapping[QuotaEntity, Mapping[str, Scheduled]]] = MappingProxyType({})
_EMPTY_PREFIX: Final = Prefix("")
_ENTRIES_PER_STEP: Final = 100


class QuotaError(Exception):
    """A limit that cannot be. `key` is None where the entity itself is at fault."""

    def __init__(self, message: str, entity: QuotaEntity, key: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.entity = entity
        self.key = key


class QuotaLimits:
    """An immutable snapshot of all configured limits."""

    __slots__ = (
        "_entries",
        "_limits_addresses",
        "_lowest",
        "_shadow",
        "_tables",
        "_tenant_of",
        "_tenants",
        "client_ids",
        "exempt",
        "kinds",
        "refusing",
        "scheduled",
        "schedules",
    )

    def __init__(
        self,
        entries: Iterable[tuple[QuotaEntity, Mapping[str, object]]] = (),
        *,
        shadow: Mapping[QuotaEntity, Collection[str]] = _NO_SHADOW,
        exempt: Iterable[ExemptRule] = (),
        tenants: Mapping[str, Iterable[str]] = _NO_TENANTS,
        schedules: Mapping[QuotaEntity, Schedule] = _NO_SCHEDULES,
        refusing: Collection[QuotaEntity] = _NOBODY,
    ) -> None:
        """Check and index (entity, {config_key: number}) pairs.

        `shadow`: of which entities which keys are in shadow mode. `exempt`: whom no limit delays. `tenants`:
        the users that are members of each. `schedules`: calendars of entities, which change nothing here:
        scheduled.py makes limits of them. `refusing`: whose producer_byte_rate refuses what has no turn in
        time. An entity without keys is allowed, as in Kafka. Raises QuotaError for an empty or duplicate
        entity, an empty name, an unknown key, a value that its kind refuses, for a key in `shadow` that the
        entity does not have, the same of `refusing`, for a tenant that is not in `tenants`, and for a user in
        two of them.
        """
        for _ in self._fill(entries, shadow, exempt, tenants, schedules, _NOT_SCHEDULED, refusing):
            pass

    @classmethod
    def in_steps(
        cls,
        entries: Iterable[tuple[QuotaEntity, Mapping[str, object]]],
        *,
        shadow: Mapping[QuotaEntity, Collection[str]] = _NO_SHADOW,
        exempt: Iterable[ExemptRule] = (),
        tenants: Mapping[str, Iterable[str]] = _NO_TENANTS,
        schedules: Mapping[QuotaEntity, Schedule] = _NO_SCHEDULES,
        scheduled: Mapping[QuotaEntity, Mapping[str, Scheduled]] = _NOT_SCHEDULED,
        refusing: Collection[QuotaEntity] = _NOBODY,
    ) -> Generator[None, None, QuotaLimits]:
        """The same, pausing every millisecond or so; the limits are the generator's return value.

        `scheduled`: which of the limits stand for others, by a calendar.
        """
        limits = cls.__new__(cls)
        yield from limits._fill(entries, shadow, exempt, tenants, schedules, scheduled, refusing)
        return limits

    def _fill(
        self,
        entries: Iterable[tuple[QuotaEntity, Mapping[str, object]]],
        shadow: Mapping[QuotaEntity, Collection[str]],
        exempt: Iterable[ExemptRule],
        tenants: Mapping[str, Iterable[str]],
        schedules: Mapping[QuotaEntity, Schedule],
        scheduled: Mapping[QuotaEntity, Mapping[str, Scheduled]],
        refusing: Collection[QuotaEntity],
    ) -> Generator[None, None, None]:
        checked: dict[QuotaEntity, Mapping[str, float]] = {}
        tables: dict[QuotaKind, LimitTable] = {}
        all_keys: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._entries: Mapping[QuotaEntity, Mapping[str, float]] = MappingProxyType(checked)
        self._tables = tables
        self.exempt = ExemptRules(exempt)
        """whom no limit delays; `resolve` and `explain` do not look at it"""
        self.kinds = tables.keys()  # of which somebody's connections have a limit
        self._tenants = MappingProxyType({name: tuple(members) for name, members in tenants.items()})
        self._tenant_of = tenants_by_member(self._tenants)
        self._limits_addresses = False
        self.client_ids = ClientIds(rule.client_id for rule in self.exempt.rules)  # read-only
        self._lowest: dict[QuotaKind, tuple[bool, float]] = {}  # of any user: (in shadow mode, limit)
        for index, (given, values) in enumerate(entries):
            if index % _ENTRIES_PER_STEP == _ENTRIES_PER_STEP - 1:
                yield
            level = None if given.ip is not None else self._checked_level(given)
            entity = given if level is not None else _checked_ip(given)
            if entity in checked:
                raise QuotaError(f"{entity} is configured twice", entity)
            limits = _checked_limits(entity, values)
            keys = tuple(limits)
            checked[entity] = LimitsOfEntity(all_keys.setdefault(keys, keys), limits.values())
            if level is not None:
                in_shadow = shadow.get(entity, ())
                for key, limit in limits.items():
                    kind = KIND_BY_KEY[key]
                    if kind not in tables:
                        tables[kind] = LimitTable(self._tenant_of)
                    refuses = key == _REFUSABLE and entity in refusing
                    tables[kind].put(Match(level, limit, entity, key in in_shadow, refuses))
                    if entity.user is not None:
                        found = (key in in_shadow, limit)
                        self._lowest[kind] = min(self._lowest.get(kind, found), found)
            self._limits_addresses |= level is None
            self.client_ids.add(entity.client_id)
        self._shadow = MappingProxyType((yield from _checked_shadow(shadow, checked)))
        for index, entity in enumerate(refusing):
            if index % _ENTRIES_PER_STEP == _ENTRIES_PER_STEP - 1:
                yield
            if _REFUSABLE not in checked.get(entity, ()):
                raise QuotaError(f"{entity} has no {_REFUSABLE} that could refuse", entity, _REFUSABLE)
        self.refusing = frozenset(refusing)
        """entities whose producer_byte_rate refuses what has no turn in time"""
        self.schedules = MappingProxyType(dict(schedules))
        """the calendars of entities; read-only"""
        self.scheduled = MappingProxyType(dict(scheduled))
        """which limits stand here for the normal ones, by a calendar, by config key; read-only"""

    @property
    def entries(self) -> Mapping[QuotaEntity, Mapping[str, float]]:
        """What is configured: {entity: {config_key: limit}}, in the order given; read-only."""
        return self._entries

    @property
    def shadow(self) -> Mapping[QuotaEntity, frozenset[str]]:
        """Which limits are in shadow mode: {entity: config keys}; read-only."""
        return self._shadow

    @property
    def tenants(self) -> Mapping[str, tuple[str, ...]]:
        """The members of each tenant, in the order given; read-only."""
        return self._tenants

    def tenant_of(self, user: str) -> Tenant | None:
        """The tenant that a user is member of."""
        return self._tenant_of.get(user)

    def resolve(self, kind: QuotaKind, user: str, client_id: str) -> Match | None:
        """The limit for a connection, or None: unlimited. A null client id is ""."""
        table = self._tables.get(kind)
        found = table.find(user, client_id) if table is not None else None
        if found is None:
            return self._of_unnamed(kind, user) if user in UNNAMED_USERS else None
        if not found.level.mints_buckets:
            return found
        level, limit, bucket, shadow, refuses = found
        return Match(level, limit, level.bucket(user, client_id, bucket), shadow, refuses)

    def _of_unnamed(self, kind: QuotaKind, user: str) -> Match | None:
        """For users whose name is not known and for whom nothing is configured: the lowest limit of any user.

        One in force before one in shadow mode. None: no user has a limit of this kind.
        """
        lowest = self._lowest.get(kind)
        return None if lowest is None else Match(QuotaLevel.USER, lowest[1], QuotaEntity(user), lowest[0])

    def kinds_of_unnamed(self) -> tuple[QuotaKind, ...]:
        """Kinds of which UNNAMED_USERS have the lowest limit of any user, for none is configured for them."""
        return tuple(
            kind
            for kind in KINDS
            if any(
                self.configured_for(kind, user, "") is None and self._of_unnamed(kind, user) is not None
                for user in UNNAMED_USERS
            )
        )

    def configured_for(self, kind: QuotaKind, user: str, client_id: str) -> QuotaEntity | None:
        """The entity whose limit `resolve` finds, as it is configured: a default is the default."""
        table = self._tables.get(kind)
        found = table.find(user, client_id) if table is not None else None
        return None if found is None else found.bucket

    def resolve_for_members(self, kind: QuotaKind, tenant: Tenant, client_id: str) -> Match | None:
        """The limit that members of a tenant share with this client id; None: it has none, or each of them
        has one of his own."""
        table = self._tables.get(kind)
        members = self._tenants.get(tenant.name, ())
        if table is not None:
            for user in members:
                if table.falls_to_tenant(user, client_id):
                    match = self.resolve(kind, user, client_id)
                    return match if match is not None and match.bucket.user == tenant else None
        return None

    def ip_limit(self, address: str) -> tuple[float, str, bool] | None:
        """New connections a second from this address: (limit, rule: ip or default_ip, shadow mode)."""
        entity = self.configured_for_address(address)
        if entity is None:
            return None
        rule = "default_ip" if entity == _DEFAULT_IP else "ip"
        return self._entries[entity][_IP_KEY], rule, _IP_KEY in self._shadow.get(entity, ())

    def configured_for_address(self, address: str) -> QuotaEntity | None:
        """The entity whose limit `ip_limit` finds, as it is configured."""
        for entity in (QuotaEntity(ip=address), _DEFAULT_IP) if self._limits_addresses else ():
            if _IP_KEY in self._entries.get(entity, _NO_LIMITS):
                return entity
        return None

    def explain(self, kind: QuotaKind, user: str, client_id: str) -> tuple[LevelExplanation, ...]:
        """The levels in order of precedence: what each says of this connection, which one applies.

        Kafka's eight always; those of tenants and prefixes where the user has a tenant and a prefix that is
        configured beside the user of that level fits the client id.
        """
        key = KINDS[kind].config_key
        match = self.resolve(kind, user, client_id)
        chosen = match.level if match is not None else None
        lines = []
        for level in QuotaLevel:
            entity = self._looked_up(level, key, user, client_id)
            if entity is None:
                continue
            configured = self._entries.get(entity)
            limit = configured.get(key) if configured is not None else None
            shadow = key in self._shadow.get(entity, ())
            if level is chosen and limit is None and match is not None:
                limit, shadow = match.limit, match.shadow
                why = f"Applies: it is not known who this is, so that the lowest {key} of any user holds."
            elif level is chosen and shadow:
                why = f"Applies in shadow mode, the first level in the order with a {key}: delays nobody."
            elif level is chosen:
                why = f"Applies: the first level in the order that has a {key} for this client."
            elif limit is not None and chosen is not None:
                why = f"Has a {key}, but {chosen.value} comes first in the order."
            elif configured is not None:
                why = f"Is configured, but without {key}, so it is passed over."
            elif "" in {entity.user, entity.client_id}:
                why = "An empty name matches no exact entity, only the defaults."
            else:
                why = nothing_configured(entity)
            lines.append(LevelExplanation(level, entity, limit, level is chosen, shadow, why))
        return tuple(lines)

    def _looked_up(self, level: QuotaLevel, key: str, user: str, client_id: str) -> QuotaEntity | None:
        """The entity of a level for this client: of several prefixes that fit, the longest that has `key`,
        else the longest."""
        tenant = self._tenant_of.get(user)
        if level.client_part is not Part.GROUP:
            return level.configured_entity(user, client_id, tenant)
        longest = None
        for length in range(min(len(client_id), self.client_ids.longest_prefix), 0, -1):
            entity = level.configured_entity(user, client_id, tenant, Prefix(client_id[:length]))
            configured = self._entries.get(entity) if entity is not None else None
            if configured is not None and key in configured:
                return entity
            if configured is not None and longest is None:
                longest = entity
        return longest

    def _checked_level(self, entity: QuotaEntity) -> QuotaLevel:
        if entity.user is None and entity.client_id is None:
            raise QuotaError("Invalid empty client quota entity: name a user, a client id, or both", entity)
        if isinstance(entity.user, Tenant) and entity.user.name not in self._tenants:
            raise QuotaError(f"{entity}: there is no such tenant", entity)
        if entity.client_id == _EMPTY_PREFIX:
            raise QuotaError("An empty client-id-prefix is every client id: write <default>", entity)
        for part, name in (("user", entity.user), ("client-id", entity.client_id)):
            if name == "":
                raise QuotaError(
                    f"An empty {part} cannot be configured; it gets the default {part}'s limit", entity
                )
        try:
            return QuotaLevel.of(entity)
        except KeyError:
            message = f"{entity}: <overflow> is Sluice's own and cannot be configured"
            raise QuotaError(message, entity) from None


def tenants_by_member(tenants: Mapping[str, Iterable[str]]) -> Mapping[str, Tenant]:
    """The tenant of each member. Raises QuotaError for an empty name, and for a user in two tenants."""
    tenant_of: dict[str, Tenant] = {}
    for name, members in tenants.items():
        tenant = Tenant(name)
        entity = QuotaEntity(tenant)
        for member in members:
            if not (name and member):
                raise QuotaError(f"An empty {'member' if name else 'name'} of a tenant", entity)
            other = tenant_of.setdefault(member, tenant)
            if other is not tenant:
                raise QuotaError(f"User {member!r} is a member of {other.name!r} already", entity)
    return MappingProxyType(tenant_of)


def _checked_shadow(
    shadow: Mapping[QuotaEntity, Collection[str]], limits: Mapping[QuotaEntity, Mapping[str, float]]
) -> Generator[None, None, dict[QuotaEntity, frozenset[str]]]:
    """Which keys are in shadow mode, of those who have any. Raises QuotaError for one without a limit."""
    found: dict[QuotaEntity, frozenset[str]] = {}
    for index, (entity, keys) in enumerate(shadow.items()):
        if index % _ENTRIES_PER_STEP == _ENTRIES_PER_STEP - 1:
            yield
        for key in keys:
            if key not in limits.get(entity, ()):
                raise QuotaError(f"{entity} has no {key} that could be in shadow mode", entity, key)
        if keys:
            found[entity] = frozenset(keys)
    return found


def _checked_limits(entity: QuotaEntity, values: Mapping[str, object]) -> dict[str, float]:
    limits: dict[str, float] = {}
    for key, value in values.items():
        kind = KIND_BY_KEY.get(key)
        if kind is None:
            known = ", ".join(KIND_BY_KEY)
            raise QuotaError(f"Invalid configuration key {key} for {entity}; known: {known}", entity, key)
        reason = why_not_for(KINDS[kind], entity)
        if reason is not None:
            raise QuotaError(f"{key} {reason} ({entity})", entity, key)
        try:
            limits[KINDS[kind].config_key] = KINDS[kind].validated(key, value)
        except ValueError as error:
            raise QuotaError(f"{error} ({entity})", entity, key) from None
    return limits


def why_not_for(spec: KindSpec, entity: QuotaEntity) -> str | None:
    """What speaks against a limit of this kind for this entity, as the end of a sentence."""
    if spec.scope is Scope.IPS:
        return None if entity.ip is not None else "is for addresses; write ip"
    if entity.ip is not None:
        return "is not for addresses, which have connection_creation_rate alone"
    if spec.scope is Scope.USERS and isinstance(entity.user, Tenant):
        return "is for users, whose ids are known apart; give it to the tenant's members or to <default>"
    if spec.scope is Scope.USERS and entity.client_id is not None:
        return f"is for users; leave {list(entity.parts)[-1]} out"
    return None


def _checked_ip(entity: QuotaEntity) -> QuotaEntity:
    """The address in its canonical form."""
    if entity.user is not None or entity.client_id is not None:
        raise QuotaError("An ip stands alone: leave user and client-id out", entity)
    if isinstance(entity.ip, str):
        try:
            return QuotaEntity(ip=usual_address(entity.ip))
        except ValueError:
            raise QuotaError(f"{entity.ip!r} is no IP address", entity) from None
    return entity


def nothing_configured(entity: QuotaEntity) -> str:
    """Why a level without an entry is passed over."""
    return f"Nothing is configured for {entity}."
