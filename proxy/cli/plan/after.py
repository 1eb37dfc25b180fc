"""The limits of a place once some of a plan's are written, and whom these would take from others. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sluice.proxy.cli.plan.file import PlannedLimit
from sluice.proxy.cli.quotas.edit import Whom
from sluice.proxy.cli.quotas.listing import Listing, described, merged
from sluice.proxy.cli.quotas.lookup import entity_of, limits_of
from sluice.quotas.entity import DEFAULT, UNKNOWN_USER, ClientPart, Prefix, QuotaEntity, Tenant, UserPart
from sluice.quotas.entity_key import in_force
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits

_Name = tuple[str | Prefix, str]
"""a client id or prefix that has a limit, and a client id that is meant"""
_Names = dict[UserPart, list[_Name]]
"""a tenant, the default user or None → those of which these have limits"""


def takers_of(
    before: QuotaLimits, now: Listing, chosen: Sequence[PlannedLimit]
) -> dict[tuple[str, str], str]:
    """(key, entity) of limits that would take clients which count against another one so far → one who would
    be taken: alice's own comes before those of the default user's client ids, and of her tenant's.

    All names that have a limit are looked at, and not the plan's: who was silent for weeks is not in it.
    """
    after = limits_of(listing_after(now, before, chosen))
    others = {key: _Others(before, key) for key in {limit.key for limit in chosen}}
    takers: dict[tuple[str, str], str] = {}
    for limit in chosen:
        own = entity_of(limit.whom)
        if own is None or limit.key in before.entries.get(own, ()):
            continue
        taken = others[limit.key].taken(limit.kind, own, after)
        if taken is not None:
            takers[limit.key, limit.entity] = described(
                tuple((part, str(name)) for part, name in taken.parts.items())
            )
    return takers


class _Others:
    """The names that have a limit of one key which is no single user's."""

    def __init__(self, before: QuotaLimits, key: str) -> None:
        self._before = before
        self._names: _Names = {}
        self._has_rows = {UNKNOWN_USER}  # the lowest of all users' limits is his
        self._of_others: dict[tuple[QuotaKind, Tenant | None, ClientPart], list[_Name]] = {}
        for entity, its in before.entries.items():
            if key not in its:
                continue
            if isinstance(entity.user, str):
                self._has_rows.add(entity.user)
            elif isinstance(name := entity.client_id, str | Prefix):
                client_id = name.some_client_id if isinstance(name, Prefix) else name
                self._names.setdefault(entity.user, []).append((name, client_id))

    def taken(self, kind: QuotaKind, own: QuotaEntity, after: QuotaLimits) -> QuotaEntity | None:
        """Whose clients this new limit takes from another's bucket; None: nobody's. Only a user's does, or
        one of a prefix of his: all of a single client id was in its bucket before."""
        user, group = own.user, own.client_id
        if not isinstance(user, str) or isinstance(group, str):
            return None
        for name, client_id in self._in_others_buckets(kind, own, user):
            is_then = after.resolve(kind, user, client_id)
            if is_then is not None and is_then.bucket == own:
                return QuotaEntity(user, name)
        return None

    def _in_others_buckets(self, kind: QuotaKind, own: QuotaEntity, user: str) -> list[_Name]:
        """The names of which `user` counts elsewhere so far. It is the same for all of his tenant who have no
        limits of their own, so it is found once: a night may have thousands of users, and as many names."""
        tenant, group = self._before.tenant_of(user), own.client_id
        place = kind, tenant, group
        found = self._of_others.get(place) if user not in self._has_rows else None
        if found is None:
            begin = group.text if isinstance(group, Prefix) else ""
            found = [
                (name, client_id)
                for whose in dict.fromkeys((tenant, DEFAULT, None))
                for name, client_id in self._names.get(whose, ())
                if (name.text if isinstance(name, Prefix) else name).startswith(begin)
                and ((was := self._before.resolve(kind, user, client_id)) is None or was.bucket != own)
            ]
            if user not in self._has_rows:
                self._of_others[place] = found
        return found


def listing_after(now: Listing, before: QuotaLimits, chosen: Iterable[PlannedLimit]) -> Listing:
    """`now` and these, in shadow mode where the limit was that is in force for them so far."""
    limits: dict[Whom, dict[str, float]] = {}
    shadow: dict[Whom, frozenset[str]] = {}
    for limit in chosen:
        limits.setdefault(limit.whom, {})[limit.key] = limit.proposed
        found = in_force(before, limit.kind, limit.entity)
        if found is not None and found[1]:
            shadow[limit.whom] = shadow.get(limit.whom, frozenset()) | {limit.key}
    return merged(now, Listing(limits, shadow))
