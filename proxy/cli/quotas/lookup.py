"""The limits of a place, as the proxy looks them up: a listing → QuotaLimits. Pure."""

from __future__ import annotations

from sluice.proxy.cli.quotas.edit import Whom
from sluice.proxy.cli.quotas.listing import Listing
from sluice.quotas.addresses import usual_address
from sluice.quotas.entity import DEFAULT, Default, Prefix, QuotaEntity, Tenant
from sluice.quotas.files.quota_file import DEFAULT_NAME
from sluice.quotas.kinds import KIND_BY_KEY
from sluice.quotas.limits.limits import QuotaLimits


def limits_of(listing: Listing) -> QuotaLimits:
    """What a place has, as the proxy looks it up; a server's keys and names that Sluice does not know are
    passed over."""
    entries = []
    shadow = {}
    for whom, limits in listing.limits.items():
        entity = entity_of(whom)
        if entity is not None:
            entries.append((entity, {key: limit for key, limit in limits.items() if key in KIND_BY_KEY}))
            if whom in listing.shadow:
                shadow[entity] = listing.shadow[whom]
    tenants = {item["name"]: item["members"] for item in listing.sections.get("tenants", ())}
    return QuotaLimits(entries, shadow=shadow, tenants=tenants)


def entity_of(whom: Whom) -> QuotaEntity | None:
    """Counterpart of edit.whom_of; None: a broker's name for an address, which Sluice does not have."""
    parts: dict[str, str | Default] = {key: DEFAULT if name == DEFAULT_NAME else name for key, name in whom}
    ip = parts.get("ip")
    if isinstance(ip, str):
        try:
            usual_address(ip)
        except ValueError:
            return None
    tenant, prefix = parts.get("tenant"), parts.get("client-id-prefix")
    return QuotaEntity(
        Tenant(tenant) if isinstance(tenant, str) else parts.get("user"),
        Prefix(prefix) if isinstance(prefix, str) else parts.get("client-id"),
        ip,
    )
