"""What a configuration leaves open, and what follows from that: warnings, of the log and of `sluice check`.

Nothing here is wrong; a proxy starts with all of it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from sluice.proxy.config.config import Config
from sluice.proxy.config.inter_broker import INTER_BROKER_REMEDY
from sluice.quotas.limits.limits import QuotaLimits

_UNNAMED_REMEDY: Final = (
    "logins whose user is not known here (delegation tokens, GSSAPI, opaque bearer tokens) share the lowest "
    "limit of any user: configure one for the users `<delegation-token>` and `<unknown>`, or for `<default>`"
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
    unnamed = [kind.value for kind in limits.kinds_of_unnamed()]
    if unnamed and any(listener.has_sasl for listener in config.listeners):
        yield Gap("unnamed_users_have_the_lowest_limit", _UNNAMED_REMEDY, {"quotas": unnamed})
