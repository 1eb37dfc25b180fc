"""Where a limit is looked up: a table for each kind, of rows of client ids: a few dict look-ups.

A row is the client ids of one user, of one tenant, of the default user, or of no user; in each the exact
client id comes first, then the longest prefix that fits, the default client id, and the row's own limit. The
rows come in that order, too: precedence is the order in which `find` looks. limits.py fills the tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from sluice.quotas.entity import Prefix, QuotaEntity, QuotaLevel, Tenant

_NOTHING: Final[dict[str, Match]] = {}
"""Never filled. Most rows, of which there may be thousands, are of users without client ids."""


class Match(NamedTuple):
    """The limit that applies to a connection."""

    level: QuotaLevel
    limit: float
    """as configured, in the kind's limit_unit"""
    bucket: QuotaEntity
    """whose connections share one sensor; as it stands in a table: the configured entity"""
    shadow: bool = False
    """measured and logged, but nobody is delayed by it"""


class Row:
    """The limits of one kind for the client ids of one user, one tenant, the default user or no user."""

    __slots__ = ("_clients", "_default_client", "_lengths", "_own", "_prefixes")

    def __init__(self) -> None:
        self._clients = _NOTHING
        self._prefixes = _NOTHING
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
            if self._clients is _NOTHING:
                self._clients = {}
            self._clients[client_id] = match
        elif isinstance(client_id, Prefix):
            if self._prefixes is _NOTHING:
                self._prefixes = {}
            self._prefixes[client_id.text] = match
            if len(client_id.text) not in self._lengths:
                self._lengths = tuple(sorted((*self._lengths, len(client_id.text)), reverse=True))
        elif client_id is None:
            self._own = match
        else:
            self._default_client = match


class LimitTable:
    """The limits of one kind."""

    __slots__ = ("_any_user", "_default_user", "_tenant_of", "_tenants", "_users")

    def __init__(self, tenant_of: Mapping[str, Tenant]) -> None:
        """`tenant_of`: of each user that is member of one."""
        self._users: dict[str, Row] = {}
        self._tenants: dict[str, Row] = {}
        self._default_user = Row()
        self._any_user = Row()
        self._tenant_of = tenant_of

    def find(self, user: str, client_id: str) -> Match | None:
        """In order of precedence."""
        row = self._users.get(user)
        found = row.find(client_id) if row is not None else None
        if found is None and self._tenants:
            found = self._find_of_tenant(user, client_id)
        return found or self._default_user.find(client_id) or self._any_user.find(client_id)

    def put(self, match: Match) -> None:
        """Add a limit; `match.bucket` is the entity that it is configured for."""
        user = match.bucket.user
        if isinstance(user, str):
            row = self._users.setdefault(user, Row())
        elif isinstance(user, Tenant):
            row = self._tenants.setdefault(user.name, Row())
        else:
            row = self._default_user if match.level.has_user else self._any_user
        row.put(match)

    def falls_to_tenant(self, user: str, client_id: str) -> bool:
        """Whether a member has no limit of its own for this client id."""
        row = self._users.get(user)
        return row is None or row.find(client_id) is None

    def _find_of_tenant(self, user: str, client_id: str) -> Match | None:
        tenant = self._tenant_of.get(user)
        row = self._tenants.get(tenant.name) if tenant is not None else None
        return row.find(client_id) if row is not None else None
