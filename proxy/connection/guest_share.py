"""The share of one core for those who have not authenticated: a token bucket of processor time. Pure."""

from __future__ import annotations

from typing import Final

DEFAULT_SHARE: Final = 0.25
_BURST_S: Final = 0.25
"""some hundred logins with TLS at once; for as long the loop is theirs in the worst case"""


class GuestShare:
    """In any span of T seconds it lets them take share × T + burst, and the end of what was begun."""

    __slots__ = ("_at_s", "_level_s", "share")

    def __init__(self, share: float = DEFAULT_SHARE) -> None:
        """`share`: 0 < share ≤ 1; may be set at any time."""
        self.share = share
        self._level_s = 0.0
        self._at_s = 0.0

    def wait_s(self, now_s: float) -> float:
        """0: there is something left. Else until there is."""
        if self._level_s <= _BURST_S:  # as time goes it becomes less
            return 0.0
        self._pay(now_s)
        return max(0.0, self._level_s - _BURST_S) / self.share

    def charge(self, took_s: float, now_s: float) -> None:
        """So much was taken."""
        self._pay(now_s)
        self._level_s += took_s

    def refund(self, took_s: float) -> None:
        """So much of it was not theirs."""
        self._level_s = max(0.0, self._level_s - took_s)

    def _pay(self, now_s: float) -> None:
        self._level_s = max(0.0, self._level_s - (now_s - self._at_s) * self.share)
        self._at_s = now_s
