"""Whom a limit is for, and the levels at which one is looked for: Kafka's eight, and between them our own.

An entity names a user, a client id, or both; either may be the default, or a group: a tenant (several users)
in the user's place, a prefix (all client ids that begin so) in the client id's. A level turns the (user,
client id) of a connection into the *bucket*: the entity whose connections share one sensor. A default gives
every client that matches it a bucket of its own, a group gives all its members one.
Knows no numbers: limits/limits.py does. Source: Kafka design 4.10, "Quota Configuration";
ClientQuotaManager.DefaultQuotaCallback.quotaMetricTags. Groups are Sluice's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, TypeAlias, TypeVar


class Default(Enum):
    """Kafka's default entity. A member, not a string: a user may really be called ``<default>``."""

    DEFAULT = "<default>"

    def __str__(self) -> str:
        return self.value


class Overflow(Enum):
    """Stands for every name beyond a cap (wire-semantics 4.4); cannot be configured."""

    OVERFLOW = "<overflow>"

    def __str__(self) -> str:
        return self.value


DEFAULT: Final = Default.DEFAULT
OVERFLOW: Final = Overflow.OVERFLOW
ANONYMOUS: Final = "ANONYMOUS"
"""Kafka's User:ANONYMOUS: who has not authenticated"""
DELEGATION_TOKEN_USER: Final = "<delegation-token>"  # noqa: S105 (a user's name)
"""Stands for everybody who came with a delegation token whose owner is not known here."""
UNKNOWN_USER: Final = "<unknown>"
"""Stands for everybody whose name only the broker can read: GSSAPI, opaque or ambiguous bearer tokens, …"""
UNNAMED_USERS: Final = frozenset({DELEGATION_TOKEN_USER, UNKNOWN_USER})
"""Each is many users in one bucket. Ordinary names in the quota file; but never unlimited where any user has
a limit, or who has one would log in so that nobody can tell who it is (wire-semantics 4.6). Whatever names a
principal (SASL, a certificate) must refuse them: a real user so called would sit in a bucket of others."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """Several users that share one bucket, in a user's place. No string: a user may have the same name."""

    name: str

    def __str__(self) -> str:
        """As in metric labels and logs."""
        return f"tenant:{self.name}"


@dataclass(frozen=True, slots=True)
class Prefix:
    """All client ids that begin so, which share one bucket, in a client id's place."""

    text: str

    def __str__(self) -> str:
        """As in metric labels and logs."""
        return f"{self.text}*"

    @property
    def some_client_id(self) -> str:
        """A client id that begins so and that has no other limit: UTF-8 cannot carry it, so nobody configured
        it, nor a longer prefix that fits it. The prefix by itself may be the name of another limit."""
        return f"{self.text}\udfff"


UserPart: TypeAlias = str | Default | Overflow | Tenant | None
ClientPart: TypeAlias = str | Default | Overflow | Prefix | None
_Group = TypeVar("_Group", Tenant, Prefix)


class QuotaEntity(NamedTuple):
    """(user, client id) for which a limit is set or a sensor runs; None: this part is not looked at.

    Or an address, which stands alone, as in Kafka. A tuple, for its hash is taken in every look-up.
    """

    user: UserPart = None
    client_id: ClientPart = None
    ip: str | Default | None = None

    @property
    def parts(self) -> dict[str, str | Default | Overflow]:
        """The parts that it has, by their keys in the quota file: ``{"tenant": "a", "client-id": …}``."""
        parts: dict[str, str | Default | Overflow] = {}
        if isinstance(self.user, Tenant):
            parts["tenant"] = self.user.name
        elif self.user is not None:
            parts["user"] = self.user
        if isinstance(self.client_id, Prefix):
            parts["client-id-prefix"] = self.client_id.text
        elif self.client_id is not None:
            parts["client-id"] = self.client_id
        if self.ip is not None:
            parts["ip"] = self.ip
        return parts

    def __str__(self) -> str:
        """As in messages: ``user 'alice', client-id <default>``; names are escaped: one line stays one."""
        return ", ".join(f"{key} {_shown(name)}" for key, name in self.parts.items()) or "nobody"


def _shown(name: str | Default | Overflow) -> str:
    return repr(name) if isinstance(name, str) else str(name)


class Part(Enum):
    """How a level treats one half of (user, client id)."""

    EXACT = "exact"
    GROUP = "group"
    """a user's tenant; the longest prefix that fits a client id"""
    DEFAULT = "default"
    IGNORED = "ignored"


class QuotaLevel(Enum):
    """All levels, most specific first: the order of definition is the precedence.

    The value is the metric label `rule`. Without the groups' levels these are Kafka's eight, in its order.
    """

    USER_CLIENT = ("user_client", Part.EXACT, Part.EXACT)
    USER_CLIENT_PREFIX = ("user_client_prefix", Part.EXACT, Part.GROUP)
    USER_DEFAULT_CLIENT = ("user_default_client", Part.EXACT, Part.DEFAULT)
    USER = ("user", Part.EXACT, Part.IGNORED)
    TENANT_CLIENT = ("tenant_client", Part.GROUP, Part.EXACT)
    TENANT_CLIENT_PREFIX = ("tenant_client_prefix", Part.GROUP, Part.GROUP)
    TENANT_DEFAULT_CLIENT = ("tenant_default_client", Part.GROUP, Part.DEFAULT)
    TENANT = ("tenant", Part.GROUP, Part.IGNORED)
    DEFAULT_USER_CLIENT = ("default_user_client", Part.DEFAULT, Part.EXACT)
    DEFAULT_USER_CLIENT_PREFIX = ("default_user_client_prefix", Part.DEFAULT, Part.GROUP)
    DEFAULT_USER_DEFAULT_CLIENT = ("default_user_default_client", Part.DEFAULT, Part.DEFAULT)
    DEFAULT_USER = ("default_user", Part.DEFAULT, Part.IGNORED)
    CLIENT = ("client", Part.IGNORED, Part.EXACT)
    CLIENT_PREFIX = ("client_prefix", Part.IGNORED, Part.GROUP)
    DEFAULT_CLIENT = ("default_client", Part.IGNORED, Part.DEFAULT)

    _value_: str
    user_part: Part
    client_part: Part
    has_user: bool
    """the bucket has a user or a tenant"""
    has_client: bool
    """the bucket has a client id or a prefix"""
    is_kafkas: bool
    """one of Kafka's eight"""
    mints_buckets: bool
    """some part is a default, so buckets come into being for names that nobody configured"""
    mints_client_ids: bool
    """the client id is the default's, so one user can make as many buckets as it can think of names"""

    def __new__(cls, rule: str, user_part: Part, client_part: Part) -> QuotaLevel:
        level = object.__new__(cls)
        level._value_ = rule
        level.user_part = user_part
        level.client_part = client_part
        level.has_user = user_part is not Part.IGNORED
        level.has_client = client_part is not Part.IGNORED
        level.is_kafkas = Part.GROUP not in {user_part, client_part}
        level.mints_buckets = Part.DEFAULT in {user_part, client_part}
        level.mints_client_ids = client_part is Part.DEFAULT
        return level

    def configured_entity(
        self, user: str, client_id: str, tenant: Tenant | None = None, prefix: Prefix | None = None
    ) -> QuotaEntity | None:
        """The entity whose limit this level would apply to this connection, given its groups.

        None: the level is for a group that the connection is not of.
        """
        looked_up_user: UserPart = _looked_up(self.user_part, user, tenant)
        looked_up_client: ClientPart = _looked_up(self.client_part, client_id, prefix)
        if (looked_up_user is None and self.has_user) or (looked_up_client is None and self.has_client):
            return None
        return QuotaEntity(looked_up_user, looked_up_client)

    def bucket(self, user: str, client_id: str, configured: QuotaEntity) -> QuotaEntity:
        """The entity whose connections share one sensor, where the limit of `configured` applies: its groups,
        and real names in the place of defaults."""
        if not self.mints_buckets:
            return configured
        return QuotaEntity(
            user if self.user_part is Part.DEFAULT else configured.user,
            client_id if self.client_part is Part.DEFAULT else configured.client_id,
        )

    @classmethod
    def of(cls, entity: QuotaEntity) -> QuotaLevel:
        """The level at which a limit set for this entity is found.

        Raises KeyError for the empty entity and for an overflow one, which no limit can be set for, and for
        an address, for which none is looked up.
        """
        return _LEVEL_OF[_part_of(entity.user), _part_of(entity.client_id)]


def _looked_up(part: Part, name: str, group: _Group | None) -> str | Default | _Group | None:
    if part is Part.EXACT:
        return name
    if part is Part.GROUP:
        return group
    return DEFAULT if part is Part.DEFAULT else None


def _part_of(name: UserPart | ClientPart) -> Part:
    if name is None:
        return Part.IGNORED
    if isinstance(name, Overflow):
        raise KeyError(name)
    if isinstance(name, Default):
        return Part.DEFAULT
    return Part.EXACT if isinstance(name, str) else Part.GROUP


_LEVEL_OF: Final = {(level.user_part, level.client_part): level for level in QuotaLevel}
