"""The limits of a place once some of a plan's are written, and whom these would take from others. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sluice.proxy.cli.plan.file import PlannedLimit
from sluice.proxy.cli.quotas.edit import Whom
from sluice.proxy.cli.quotas.listing import Listing, described, merged
from sluice.proxy.cli.quotas.lookup import entity_of, limits_of
from sluice.quotas.entity import DEFAULT, Prefix, QuotaEntity, UserPart
from sluice.quotas.entity_key import in_force
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits

_Names = dict[UserPart, list[str | Prefix]]
"""a tenant, the default user or None → the client ids and prefixes of which these have limits"""


def takers_of(
    before: QuotaLimits, now: Listing, chosen: Sequence[PlannedLimit]
) -> dict[tuple[str, str], str]:
    """(key, entity) of limits that would take clients which count against another one so far → one who would
    be taken: alice's own comes before those of the default user's client ids, and of her tenant's.

    All names that have a limit are looked at, and not the plan's: who was silent for weeks is not in it.
    """
    after = limits_of(listing_after(now, before, chosen))
    names = {key: _names_by_user(before, key) for key in {limit.key for limit in chosen}}
    takers: dict[tuple[str, str], str] = {}
    for limit in chosen:
        own = entity_of(limit.whom)
        if own is None or limit.key in before.entries.get(own, ()):
            continue
        taken = _taken(limit.kind, own, before, after, names[limit.key])
        if taken is not None:
            takers[limit.key, limit.entity] = described(
                tuple((part, str(name)) for part, name in taken.parts.items())
            )
    return takers


def _taken(
    kind: QuotaKind, own: QuotaEntity, before: QuotaLimits, after: QuotaLimits, names: _Names
) -> QuotaEntity | None:
    """Whose clients this new limit takes from another's bucket; None: nobody's. Only a user's does, or one of
    a prefix of his: all of a single client id was in its bucket before."""
    user, group = own.user, own.client_id
    if not isinstance(user, str) or isinstance(group, str):
        return None
    begin = group.text if isinstance(group, Prefix) else ""
    for whose in dict.fromkeys((before.tenant_of(user), DEFAULT, None)):
        for name in names.get(whose, ()):
            text, client_id = (name.text, name.some_client_id) if isinstance(name, Prefix) else (name, name)
            if not text.startswith(begin):
                continue
            is_then = after.resolve(kind, user, client_id)
            if is_then is None or is_then.bucket != own:
                continue
            was = before.resolve(kind, user, client_id)
            if was is None or was.bucket != own:
                return QuotaEntity(user, name)
    return None


def _names_by_user(limits: QuotaLimits, key: str) -> _Names:
    names: _Names = {}
    for entity, its in limits.entries.items():
        user, client_id = entity.user, entity.client_id
        if key in its and not isinstance(user, str) and isinstance(client_id, str | Prefix):
            names.setdefault(user, []).append(client_id)
    return names


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
