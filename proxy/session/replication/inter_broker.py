"""Who may be a follower: what the configuration declares, and no client can forge. Pure.

A replica id counts only on an inter-broker listener or of a broker's own principal (wire-semantics 4.6). What
is covered is charged to nobody, for a follower that is slowed down leaves the in-sync set.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InterBroker:
    """What one listener takes for a broker's."""

    is_listener: bool = False
    """only brokers come here"""
    users: frozenset[str] = frozenset()
    """principals of brokers"""

    def covers(self, user: str) -> bool:
        """A replica id of this authenticated principal is believed."""
        return self.is_listener or user in self.users
