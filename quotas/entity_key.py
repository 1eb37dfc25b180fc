"""Whose limit a client's usage counts against, as text: the bucket that the proxy would charge, as JSON."""

from __future__ import annotations

import json
from enum import Enum

from sluice.quotas.entity import Prefix, QuotaEntity, Tenant
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.limits.tables import Match


class LimitOrigin(Enum):
    """Whose limit a bucket has."""

    OWN = "own"
    """one that a person, or a plan, has written for it"""
    DEFAULT = "default"
    """one that each user gets by a default"""
    ANYBODY = "anybody"
    """one that each client id or address gets by a default: there are as many such buckets as somebody makes
    up names"""


def key_of(entity: QuotaEntity) -> str:
    """Its parts by their keys in the quota file: ``{"user": "alice", "client-id": "app"}``."""
    parts = {key: name if isinstance(name, str) else str(name) for key, name in entity.parts.items()}
    return json.dumps(parts, ensure_ascii=False, sort_keys=True)


def key_of_client(limits: QuotaLimits, kind: QuotaKind, user: str, client_id: str) -> str | None:
    """None: no limit applies, so there is none to recalibrate."""
    match = limits.resolve(kind, user, client_id)
    return None if match is None else key_of(match.bucket)


def key_of_address(limits: QuotaLimits, address: str) -> str | None:
    """The same of an address: each has a bucket of its own, by a limit of its own or the default."""
    return None if limits.ip_limit(address) is None else key_of(QuotaEntity(ip=address))


def limit_of(limits: QuotaLimits, kind: QuotaKind, key: str) -> float | None:
    """The limit in force of a bucket that an earlier night has named; None: it has none any more."""
    found = in_force(limits, kind, key)
    return None if found is None else found[0]


def in_force(limits: QuotaLimits, kind: QuotaKind, key: str) -> tuple[float, bool] | None:
    """The same limit, and whether it is in shadow mode."""
    parts: dict[str, str] = json.loads(key)
    if "ip" in parts:
        found = limits.ip_limit(parts["ip"])
        return None if found is None else (found[0], found[2])
    match = match_of(limits, kind, key)
    return None if match is None or key_of(match.bucket) != key else (match.limit, match.shadow)


def origin_of(limits: QuotaLimits, kind: QuotaKind, key: str) -> LimitOrigin:
    """From where the limit in force of this bucket comes."""
    parts = json.loads(key)
    if "ip" in parts:
        found = limits.ip_limit(parts["ip"])
        return LimitOrigin.OWN if found is None or found[1] == "ip" else LimitOrigin.ANYBODY
    match = match_of(limits, kind, key)
    if match is None or not match.level.mints_buckets:
        return LimitOrigin.OWN
    return LimitOrigin.ANYBODY if match.level.mints_client_ids else LimitOrigin.DEFAULT


def is_exempt(limits: QuotaLimits, key: str) -> bool:
    """Whether exempt rules fit all clients of this bucket. From which addresses its users come is not known,
    so that rules of users with an address are passed over."""
    parts: dict[str, str] = json.loads(key)
    if "ip" in parts:
        return limits.exempt.find("", "", parts["ip"]) is not None
    client_id = parts.get("client-id", "")  # that of a prefix is any, and no rule names all of these
    if "tenant" in parts:
        users = limits.tenants.get(parts["tenant"], ())
    else:
        users = (parts["user"],) if "user" in parts else ()
    return bool(users) and all(limits.exempt.find(user, client_id, "") is not None for user in users)


def match_of(limits: QuotaLimits, kind: QuotaKind, key: str) -> Match | None:
    """The limit that applies to a client of this bucket, be it the bucket's own or another's; no address."""
    parts: dict[str, str] = json.loads(key)
    client_id = parts.get("client-id", "")
    if "client-id-prefix" in parts:
        client_id = Prefix(parts["client-id-prefix"]).some_client_id
    if "tenant" in parts:
        return limits.resolve_for_members(kind, Tenant(parts["tenant"]), client_id)
    return limits.resolve(kind, parts.get("user", ""), client_id)
