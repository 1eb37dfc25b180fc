"""Whom a limit is for, and the eight levels at which one is looked for.

An entity names a user, a client id, or both; either may be the default. A level turns the (user, client id)
of a connection into the entity to look up and into the *bucket*: the entity whose connections share one
sensor. A default gives every client that matches it a bucket of its own. Knows no numbers: limits.py does.
Source: Kafka design 4.10, "Quota Configuration"; ClientQuotaManager.DefaultQuotaCallback.quotaMetricTags.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


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


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """(user, client id) for which a limit is set or a sensor runs; None: this part is not looked at.

    Or an address, which stands alone, as in Kafka.
    """

    user: str | Default | Overflow | None = None
    client_id: str | Default | Overflow | None = None
    ip: str | Default | None = None

    def __str__(self) -> str:
        """As in messages: ``user 'alice', client-id <default>``; names are escaped: one line stays one."""
        parts = []
        if self.user is not None:
            parts.append(f"user {_shown(self.user)}")
        if self.client_id is not None:
            parts.append(f"client-id {_shown(self.client_id)}")
        if self.ip is not None:
            parts.append(f"ip {_shown(self.ip)}")
        return ", ".join(parts) or "nobody"


def _shown(name: str | Default | Overflow) -> str:
    return repr(name) if isinstance(name, str) else str(name)


class Part(Enum):
    """How a level treats one half of (user, client id)."""

    EXACT = "exact"
    DEFAULT = "default"
    IGNORED = "ignored"


class QuotaLevel(Enum):
    """The eight levels, most specific first: the order of definition is Kafka's precedence.

    The value is the metric label `rule`.
    """

    USER_CLIENT = ("user_client", Part.EXACT, Part.EXACT)
    USER_DEFAULT_CLIENT = ("user_default_client", Part.EXACT, Part.DEFAULT)
    USER = ("user", Part.EXACT, Part.IGNORED)
    DEFAULT_USER_CLIENT = ("default_user_client", Part.DEFAULT, Part.EXACT)
    DEFAULT_USER_DEFAULT_CLIENT = ("default_user_default_client", Part.DEFAULT, Part.DEFAULT)
    DEFAULT_USER = ("default_user", Part.DEFAULT, Part.IGNORED)
    CLIENT = ("client", Part.IGNORED, Part.EXACT)
    DEFAULT_CLIENT = ("default_client", Part.IGNORED, Part.DEFAULT)

    _value_: str
    user_part: Part
    client_part: Part
    has_user: bool
    """the bucket has a user"""
    has_client: bool
    """the bucket has a client id"""
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
        level.mints_buckets = Part.DEFAULT in {user_part, client_part}
        level.mints_client_ids = client_part is Part.DEFAULT
        return level

    def configured_entity(self, user: str, client_id: str) -> QuotaEntity:
        """The entity whose limit this level would apply to this connection."""
        return QuotaEntity(_looked_up(self.user_part, user), _looked_up(self.client_part, client_id))

    def bucket(self, user: str, client_id: str) -> QuotaEntity:
        """The entity whose connections share one sensor at this level, always of real names."""
        return QuotaEntity(user if self.has_user else None, client_id if self.has_client else None)

    @classmethod
    def of(cls, entity: QuotaEntity) -> QuotaLevel:
        """The level at which a limit set for this entity is found.

        Raises KeyError for the empty entity and for an overflow one, which no limit can be set for, and for
        an address, for which none is looked up.
        """
        return _LEVEL_OF[_part_of(entity.user), _part_of(entity.client_id)]


def _looked_up(part: Part, name: str) -> str | Default | None:
    if part is Part.EXACT:
        return name
    return DEFAULT if part is Part.DEFAULT else None


def _part_of(name: str | Default | Overflow | None) -> Part:
    if name is None:
        return Part.IGNORED
    if isinstance(name, Overflow):
        raise KeyError(name)
    return Part.DEFAULT if isinstance(name, Default) else Part.EXACT


_LEVEL_OF: Final = {(level.user_part, level.client_part): level for level in QuotaLevel}
