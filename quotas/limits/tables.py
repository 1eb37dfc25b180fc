"""Where a limit is looked up: a table for each kind, a few dict look-ups. limits.py fills them.

Precedence is the order in which `find` looks: a row is the client ids of one user, of one tenant, of the
default user, or of no user, in this order; in each the exact client id comes first, then the longest prefix
that fits, the default client id, and the row's own limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from sluice.quotas.entity import Prefix, QuotaEntity, QuotaLevel, Tenant


class Match(NamedTuple):
    """The limit that applies to a connection."""

    level: QuotaLevel
    limit: float
    """as configured, in the kind's limit_unit"""
    bucket: QuotaEntity
    """whose connections share one sensor; as it stands in a table: the configured entity"""
    shadow: bool = False
    """measured and logged, but nobody is delayed by it"""
    refuses: bool = False
    """what has no turn in time is refused, and does not go ahead of the limit"""


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


class Row:
    """The limits of one kind for the client ids of one tenant, the default user or no user; or of one user,
    without those for exact client ids and for the user alone."""

    __slots__ = ("_clients", "_default_client", "_lengths", "_own", "_prefixes")

    def __init__(self) -> None:
        self._clients: dict[str, Match] = {}
        self._prefixes: dict[str, Match] = {}
        self._lengths: tuple[int, ...] = ()
        self._default_client: Match | None = None
        self._own: Match | None = None

    def find(self, client_id: str) -> Match | None:
        """In order of precedence. The empty client id has no exact limit and no prefix."""
        found = self._clients.get(client_id)
        if found is None:
            for length in self._lengths:  # of the prefixes here, the longest first
                found = self._prefixes.get(client_id[:length])
                if found is not None:
                    return found
            return self._default_client or self._own
        return found

    def put(self, match: Match) -> None:
        client_id = match.bucket.client_id
        if isinstance(client_id, str):
            self._clients[client_id] = match
        elif isinstance(client_id, Prefix):
            self._prefixes[client_id.text] = match
            if len(client_id.text) not in self._lengths:
                self._lengths = tuple(sorted((*self._lengths, len(client_id.text)), reverse=True))
        elif client_id is None:
            self._own = match
        else:
            self._default_client = match


class LimitTable:
    """The limits of one kind.

    What is there thousands of times, limits of users and of their client ids, is in one dict each, and not in
    a row for each user.
    """

    __slots__ = (
        "_any_user",
        "_default_user",
        "_tenant_of",
        "_tenants",
        "_user_clients",
        "_user_rows",
        "_users",
    )

    def __init__(self, tenant_of: Mapping[str, Tenant]) -> None:
        """`tenant_of`: of each user that is member of one."""
        self._user_clients: dict[tuple[str, str], Match] = {}
        self._user_rows: dict[str, Row] = {}  # their prefixes and default client ids
        self._users: dict[str, Match] = {}
        self._tenants: dict[str, Row] = {}
        self._default_user = Row()
        self._any_user = Row()
        self._tenant_of = tenant_of

    def find(self, user: str, client_id: str) -> Match | None:
        """In order of precedence."""
        return (
            self._find_of_user(user, client_id)
            or (self._find_of_tenant(user, client_id) if self._tenants else None)
            or self._default_user.find(client_id)
            or self._any_user.find(client_id)
        )

    def put(self, match: Match) -> None:
        """Add a limit; `match.bucket` is the entity that it is configured for."""
        user, client_id = match.bucket.user, match.bucket.client_id
        if isinstance(user, Tenant):
            self._tenants.setdefault(user.name, Row()).put(match)
        elif not isinstance(user, str):
            (self._default_user if match.level.has_user else self._any_user).put(match)
        elif isinstance(client_id, str):
            self._user_clients[user, client_id] = match
        elif client_id is None:
            self._users[user] = match
        else:
            self._user_rows.setdefault(user, Row()).put(match)

    def falls_to_tenant(self, user: str, client_id: str) -> bool:
        """Whether a member has no limit of its own for this client id."""
        return self._find_of_user(user, client_id) is None

    def _find_of_user(self, user: str, client_id: str) -> Match | None:
        found = self._user_clients.get((user, client_id))
        if found is None and user in self._user_rows:
            found = self._user_rows[user].find(client_id)
        return found or self._users.get(user)

    def _find_of_tenant(self, user: str, client_id: str) -> Match | None:
        tenant = self._tenant_of.get(user)
        row = self._tenants.get(tenant.name) if tenant is not None else None
        return row.find(client_id) if row is not None else None


class LimitsOfEntity(Mapping[str, float]):
    """{config key: limit} of one entity, in less than half the space of a dict; read-only."""

    __slots__ = ("_keys", "_limits")

    def __init__(self, keys: tuple[str, ...], limits: Iterable[float]) -> None:
        """`keys`: the same tuple for all entities with these keys."""
        self._keys = keys
        self._limits = tuple(limits)

    def __getitem__(self, key: str) -> float:
        if key in self._keys:
            return self._limits[self._keys.index(key)]
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        return repr(dict(self))
