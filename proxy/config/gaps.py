"""What a configuration leaves open, and what follows from that: warnings, of the log and of `sluice check`.

Nothing here is wrong; a proxy starts with all of it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from sluice.proxy.config.config import Config
from sluice.proxy.config.inter_broker import INTER_BROKER_REMEDY
from sluice.proxy.config.limits import LimitsOptions
from sluice.quotas.entity import ANONYMOUS, UNNAMED_USERS
from sluice.quotas.limits.limits import QuotaLimits

_UNNAMED_REMEDY: Final = (
    "logins whose user is not known here (delegation tokens, GSSAPI, opaque bearer tokens) share the lowest "
    "limit of any user: configure one for the users `<delegation-token>` and `<unknown>`, or for `<default>`"
)


_LITERAL_REMEDY: Final = (
    "limits apply to exactly these names and nobody else; for everybody without an entry write <default>, "
    "for who does not log in the user ANONYMOUS, for names that begin alike client-id-prefix"
)
_LIKE_DEFAULT: Final = frozenset({"default", "any", "all", "everybody", "everyone", "anyone", "others"})

_BOUND_REMEDY: Final = (
    "some of its connections are to stay free for others; lower these, or leave them out for the defaults"
)


@dataclass(frozen=True, slots=True)
class Gap:
    """One thing that nobody has declared."""

    event: str
    """its name in the log"""
    remedy: str
    """what follows, and what to write"""
    fields: dict[str, list[str]] = field(default_factory=dict)

    @property
    def told(self) -> str:
        """The event in words: `inter broker not declared`."""
        named = "".join(f" ({', '.join(values)})" for values in self.fields.values())
        return self.event.replace("_", " ") + named

    def __str__(self) -> str:
        return f"{self.told}: {self.remedy}"


def gaps(config: Config, limits: QuotaLimits) -> Iterator[Gap]:
    """Those of a configuration with these limits."""
    if config.mode == "broker" and config.inter_broker is None and config.replication is None:
        yield Gap("inter_broker_not_declared", INTER_BROKER_REMEDY)
    yield from _bounds_above_all(config.limits)
    yield from name_gaps(limits)
    unnamed = [kind.value for kind in limits.kinds_of_unnamed()]
    if unnamed and any(listener.has_sasl for listener in config.listeners):
        yield Gap("unnamed_users_have_the_lowest_limit", _UNNAMED_REMEDY, {"quotas": unnamed})


def _bounds_above_all(limits: LimitsOptions) -> Iterator[Gap]:
    """A bound of a part that lies above the bound of the whole; a default yields to it."""
    if limits.max_connections is None:
        return
    parts = {
        "max_unauthenticated_connections": limits.max_unauthenticated_connections,
        "max_connections_per_user": limits.max_connections_per_user,
        "max_connections_per_ip": limits.max_connections_per_ip,
    }
    found = [
        f"limits.{name} {value}"
        for name, value in parts.items()
        if value is not None
        and value > limits.max_connections
        and (name not in limits.yielding or limits.is_set(name))
    ]
    if found:
        why = f"limits.max_connections is {limits.max_connections}, so that these are never reached"
        yield Gap("bounds_without_effect", f"{why}: {_BOUND_REMEDY}", {"bounds": found})


def name_gaps(limits: QuotaLimits) -> Iterator[Gap]:
    """Names of entries that somebody who writes them most likely does not mean to the letter."""
    users = {entity.user for entity in limits.entries if isinstance(entity.user, str)}
    client_ids = {entity.client_id for entity in limits.entries if isinstance(entity.client_id, str)}
    found = sorted({*filter(_is_doubtful_user, users), *filter(_is_doubtful, client_ids)})
    if found:
        yield Gap("names_taken_to_the_letter", _LITERAL_REMEDY, {"names": [repr(name) for name in found]})


def _is_doubtful_user(name: str) -> bool:
    if name in UNNAMED_USERS or name == ANONYMOUS:
        return False
    return _is_doubtful(name) or name.casefold() == ANONYMOUS.casefold()


def _is_doubtful(name: str) -> bool:
    if name != name.strip() or "*" in name or (name.startswith("<") and name.endswith(">")):
        return True
    return name.strip("<>").casefold() in _LIKE_DEFAULT
