"""What a broker's own quotas say of a client, for `sluice quotas explain`: they apply beside the proxy's.

Both count the same requests, each for itself, so the lower limit rules. Knows no protocol (quotas/server.py).
Source: ClientQuotaManager.DefaultQuotaCallback.quotaLimit (4.3.1), of the empty client id.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from sluice.proxy.cli.options import CommandFailed
from sluice.proxy.cli.quotas.lookup import limits_of
from sluice.proxy.cli.quotas.places import Place
from sluice.quotas.entity import QuotaEntity
from sluice.quotas.kinds import KindSpec
from sluice.quotas.limits.limits import QuotaError, QuotaLimits
from sluice.quotas.limits.tables import Match


@dataclass(frozen=True, slots=True)
class BrokerQuotas:
    """What a broker's own quotas say of the client in question."""

    name: str
    """of the broker, as it was given"""
    user: str
    """whom the broker takes the client for"""
    limits: QuotaLimits

    @classmethod
    def asked(cls, place: Place, user: str, client_id: str) -> Self:
        """Ask the broker. An empty client id has no default there: only users' limits are looked up for it.

        Raises CommandFailed: it does not answer, or not with quotas.
        """
        try:
            limits = limits_of(place.listing())
            if not client_id:
                limits = QuotaLimits(
                    (entity, values) for entity, values in limits.entries.items() if entity.client_id is None
                )
        except QuotaError as error:
            raise CommandFailed(f"{place.name}: {error}") from None
        return cls(place.name, user, limits)

    def match(self, spec: KindSpec, client_id: str) -> Match | None:
        """The limit that applies there; None: unlimited."""
        return self.limits.resolve(spec.kind, self.user, client_id)

    def told(self, spec: KindSpec, client_id: str, ours: float | None) -> str:
        """A line. `ours`: the limit that the proxy enforces; None: it delays nobody."""
        match = self.match(spec, client_id)
        if match is None:
            return f"At the broker {self.name}: unlimited."
        unit = spec.limit_unit
        theirs = f"{match.limit:,.15g} {unit}"
        applies = (
            f"A limit at the broker {self.name} applies, too: {theirs}, shared by {match.bucket} "
            f"({match.level.value})."
        )
        if ours is None:
            return f"{applies} The proxy delays nobody here: the broker's rules."
        whose = _ruling(ours, match.limit)
        if whose == "both":
            return f"{applies} Both apply, and they are the same."
        return f"{applies} Both apply; the lower rules: the {whose}'s, {min(ours, match.limit):,.15g} {unit}."

    def as_json(self, spec: KindSpec, client_id: str, ours: float | None) -> dict[str, Any]:
        """The same for programs. `rules`: whose limit is the lower, proxy, broker or both; null: no limit."""
        match = self.match(spec, client_id)
        theirs = None if match is None else match.limit
        return {
            "name": self.name,
            "user": self.user,
            "limit": theirs,
            "rule": None if match is None else match.level.value,
            "shared_by": None if match is None else named(match.bucket),
            "rules": _ruling(ours, theirs),
        }


def _ruling(ours: float | None, theirs: float | None) -> str | None:
    """Whose limit is the lower: proxy, broker or both; None: neither has one."""
    if ours == theirs:
        return None if ours is None else "both"
    if ours is None or theirs is None:
        return "broker" if ours is None else "proxy"
    return "proxy" if ours < theirs else "broker"


def named(entity: QuotaEntity) -> dict[str, str]:
    """The entity's parts by their keys in the quota file."""
    return {key: str(part) for key, part in entity.parts.items()}
