"""Which clients are members of a group or have a transaction, and how soon each must get on. Pure.

A client id at an address, for its group speaks on other connections than its producer. What clients can mint
is capped for each user and in all (capped.py; wire-semantics 4.4): who was seen longest ago goes, and is then
admitted as one of whom nothing is known. A mark is a client's word; what it wins is
bounded where it is used (quota.py), so nothing is asked of the broker. Source: wire-semantics 3.9.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from sluice.quotas.capped import CappedByUser

DEFAULT_TIMEOUT_MS: Final = 45_000.0
"""session.timeout.ms of most clients, and group.consumer.session.timeout.ms of brokers"""
_SHARE: Final = 1.0 / 3.0
_MIN_WAIT_MS: Final = 2_000.0
"""a third of 6 s, the least session timeout that brokers take: a smaller one is no member's"""
_EXPIRY_MS: Final = 600_000.0
_MAX_MEMBERS: Final = 10_000
_MAX_MEMBERS_PER_USER: Final = 5_000
_MAX_CLIENT_CHARS: Final = 512
"""a longer client id is not remembered"""

Client: TypeAlias = tuple[str, str]
"""address, client id"""


class Members:
    """The smallest timeout (session, rebalance or transaction) that each client of a user has named."""

    __slots__ = ("_entries",)

    def __init__(
        self, max_members: int = _MAX_MEMBERS, max_members_per_user: int = _MAX_MEMBERS_PER_USER
    ) -> None:
        # client → (timeout, last seen), by the latter
        self._entries: CappedByUser[Client, tuple[float, float]] = CappedByUser(
            max_members, max_members_per_user
        )

    def saw(self, user: str, client: Client, timeout_ms: float, now_ms: float) -> None:
        """A client spoke as a member; `timeout_ms` ≤ 0: it named no timeout."""
        if len(client[0]) + len(client[1]) > _MAX_CLIENT_CHARS:
            return
        known = self._entries.get(user, client)
        told_ms = timeout_ms if timeout_ms > 0 else DEFAULT_TIMEOUT_MS
        if known is not None:
            told_ms = known[0] if timeout_ms <= 0 else min(known[0], timeout_ms)
        self._entries.set_as_newest(user, client, (told_ms, now_ms))

    def wait_ms(self, user: str, client: Client, now_ms: float) -> float | None:
        """For how long an id of this client may wait before it is forced in; None: it is no member."""
        known = self._entries.get(user, client)
        if known is None or known[1] < now_ms - _EXPIRY_MS:
            return None
        return max(known[0] * _SHARE, _MIN_WAIT_MS)

    def expire(self, now_ms: float) -> None:
        """Forget who has not been seen for ten minutes."""
        entries = self._entries
        for user in entries.users():
            while (oldest := entries.oldest(user)) is not None and oldest[1] < now_ms - _EXPIRY_MS:
                entries.forget_oldest(user)

    def __len__(self) -> int:
        return len(self._entries)
