"""Who a connection is, as far as it is known."""

from __future__ import annotations

from math import inf

from sluice.quotas.entity import ANONYMOUS
from sluice.usage.records import Flow


class Identity:
    """Mutable: the two sides of a session share it."""

    __slots__ = ("authenticated", "client_id", "flow", "session_ends_at_ms", "software", "user")

    def __init__(self, *, authentication_required: bool, user: str | None = None) -> None:
        """`user`: known before the first request, by a certificate."""
        self.user = ANONYMOUS if user is None else user
        """the principal's name, of which only the broker's yes makes another"""
        self.client_id = ""
        """of the last request, as ClientIds keeps it"""
        self.flow = Flow()
        """likewise"""
        self.software = ""
        """name and version that the client gives itself in ApiVersions (KIP-511)"""
        self.authenticated = not authentication_required
        """requests other than those of authentication may pass"""
        self.session_ends_at_ms = inf
        """from when on the broker takes nothing but a new login (KIP-368)"""

    def logged_in(self, user: str, session_lifetime_ms: int, now_ms: float) -> None:
        """The broker said yes. A lifetime of 0 leaves the end where it was: an opaque mechanism has a yes to
        each round, of which the last alone tells it."""
        self.user = user
        self.authenticated = True
        if session_lifetime_ms > 0:
            self.session_ends_at_ms = now_ms + session_lifetime_ms
