"""The limits of a place once some of a plan's are written, and whom these would take from others. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sluice.proxy.cli.plan.file import PlanFile, PlannedLimit
from sluice.proxy.cli.quotas.edit import Whom
from sluice.proxy.cli.quotas.listing import Listing, described, merged
from sluice.proxy.cli.quotas.lookup import limits_of
from sluice.quotas.entity_key import in_force, key_of, match_of
from sluice.quotas.kinds import KINDS, Scope
from sluice.quotas.limits.limits import QuotaLimits


def takers_of(
    plan: PlanFile, before: QuotaLimits, now: Listing, chosen: Sequence[PlannedLimit]
) -> dict[tuple[str, str], str]:
    """(key, entity) of limits that would take clients which had one by a default → who would be taken:
    alice's own comes before that of the default user's client ids."""
    proposed = {(limit.kind, limit.entity): limit.proposed for limit in chosen}
    after = limits_of(listing_after(now, before, chosen))
    takers: dict[tuple[str, str], str] = {}
    for limit in plan.limits:
        if KINDS[limit.kind].scope is Scope.IPS:
            continue
        was = in_force(before, limit.kind, limit.entity)
        is_then = in_force(after, limit.kind, limit.entity)
        wanted = proposed.get((limit.kind, limit.entity), None if was is None else was[0])
        match = match_of(after, limit.kind, limit.entity)
        if match is not None and wanted is not None and (is_then is None or is_then[0] != wanted):
            takers[limit.key, key_of(match.bucket)] = described(limit.whom)
    return takers


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
