"""How many requests of a user may go ahead of its quota though nobody can see whether their clients are still
there. Pure.

A held Produce whose deadline has come goes, paid or not, for its client waits no longer. If that client has
left behind so much that its end does not come through (read_ahead.py), it goes for nobody; and clients that
come and go, each with one request, would pass any limit in that way. So a connection that has not had an
answer to as large a request yet needs one of these; where there is none, its request waits for the quota.
Honest clients need them once each, at their first held request, and only where their user keeps megabytes.
Source: wire-semantics 1.6.
"""

from __future__ import annotations

from math import inf
from typing import Final

UNSEEN_AT_ONCE: Final = 64
UNSEEN_PER_S: Final = 8.0
"""64 in an answer budget of 8 s: as if 64 clients more were there"""


class UnseenAllowance:
    """How many more requests of one user may go."""

    __slots__ = ("_left", "_most", "_seen_ms")

    def __init__(self, most: int = UNSEEN_AT_ONCE) -> None:
        self._most = most
        self._left = float(most)
        self._seen_ms = inf

    def take(self, now_ms: float) -> bool:
        """One may go; it counts as gone."""
        came = max(now_ms - self._seen_ms, 0.0) * UNSEEN_PER_S / 1000.0
        self._seen_ms = now_ms
        self._left = min(self._left + came, self._most)
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True
