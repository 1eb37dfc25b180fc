"""Which buckets a search finds, in `sluice top` and on the status page: one rule for both. Pure.

A bucket is found by its own names (a user's, a client id's, a tenant's, an address), by `tenant:team-a`
and `etl-*` as metrics, alerts and logs have a tenant and a prefix, and by the names of its members: the users
of a tenant, and those whose connections charge it. How a name is compared is the asker's: a part of it on the
status page, a pattern in `sluice top`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from sluice.quotas.entity import Prefix, Tenant
from sluice.quotas.files.config_error import USER_TYPE
from sluice.quotas.producer_ids.principal import PrincipalIds
from sluice.quotas.sensors.sensor import Sensor

if TYPE_CHECKING:
    from sluice.proxy.session.session import Session
    from sluice.quotas.limits.limits import QuotaLimits

Bucket: TypeAlias = Sensor | PrincipalIds
"""what a row is found of"""
Fits = Callable[[str], bool]
"""whether a name is one that is searched for"""
_LABELS: Final[Mapping[str, Callable[[str], object]]] = {"tenant": Tenant, "client-id-prefix": Prefix}
"""by the quota file's keys: names that are written otherwise in metrics and logs"""
_LOOKED_AT_PER_STEP: Final = 60
"""members or connections: below 1 ms of work, where each has an IPv6 address whose bucket is to be found"""


class Connected(Protocol):
    """What is looked at of a connection."""

    peer: str
    session: Session


def fits_pattern(pattern: str) -> Fits:
    """A name, with or without `User:`; * and ? in it stand for any characters, and nothing else does."""
    wanted = pattern.removeprefix(USER_TYPE).replace("[", "[[]")
    return lambda name: fnmatchcase(name, wanted)


def own_names(parts: Mapping[str, object]) -> Iterator[str]:
    """A bucket's own names, from its parts by the keys of the quota file."""
    for key, name in parts.items():
        yield str(name)
        if key in _LABELS:
            yield str(_LABELS[key](str(name)))


def is_found(row: Mapping[str, Any], fits: Fits) -> bool:
    """Whether a snapshot's row is found: it tells a tenant's members, and some of the connections."""
    users = (connection["user"] for connection in row["shown"])
    return any(
        fits(name) for names in (own_names(row["bucket"]), row.get("members", ()), users) for name in names
    )


class Search:
    """One search through what runs; `steps` are to be run to their end before `finds` is asked."""

    def __init__(self, fits: Fits) -> None:
        self._fits = fits
        self._tenants: set[str] = set()
        self._sensors: set[Sensor] = set()
        self._addresses: set[str] = set()

    def steps(
        self,
        connections: Iterable[Connected],
        limits: QuotaLimits,
        address_bucket: Callable[[str], str] = str,
    ) -> Iterator[None]:
        """Find the members. `connections`: a list, for they come and go between the steps. `address_bucket`:
        the name of the bucket that an address is counted in (AddressBuckets)."""
        number = 0
        for tenant, members in limits.tenants.items():
            for member in members:
                if self._fits(member):
                    self._tenants.add(tenant)
                number += 1
                if number % _LOOKED_AT_PER_STEP == 0:
                    yield
        for number, connection in enumerate(connections, start=1):
            if self._fits(connection.session.user):
                self._sensors.update(connection.session.sensors)
                self._addresses.add(address_bucket(connection.peer.rpartition(":")[0]))
            if number % _LOOKED_AT_PER_STEP == 0:
                yield

    def finds(self, bucket: Bucket) -> bool:
        """A sensor, or a principal whose producer ids are judged."""
        if not isinstance(bucket, Sensor):
            return self._fits(bucket.user)
        if bucket in self._sensors or str(bucket.entity.ip) in self._addresses:
            return True
        tenant = bucket.entity.user
        if isinstance(tenant, Tenant) and tenant.name in self._tenants:
            return True
        return any(map(self._fits, own_names(bucket.entity.parts)))
