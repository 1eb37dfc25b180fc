"""How long a connection may be delayed, by what it has carried. Pure: numbers in, numbers out.

Source: wire-semantics 1.5, by experiment with nine clients. A delay is a hold and the mute behind it taken
together.

    carried a group request   group_max_ms (2 s: 3 s breaks clients with the broker's least session, 6 s)
    Produce                   answer_budget_ms
    Fetch                     min(answer_budget_ms, half the smallest session timeout seen from this user,
                              client id and address; fetch_default_ms if none was seen)
    ShareFetch                share_fetch_max_ms (acquisition locks last 30 s)

For a client that waits less than others, answer_budget_ms is lower: 0.8 of what it waits (WaitBudget).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from types import MappingProxyType
from typing import Final

from sluice.quotas.capped import CappedByUser

_MAX_MEMBERS: Final = 10_000
_MAX_MEMBERS_PER_USER: Final = 5_000

OTHERS: Final = "*"
"""every client that the table does not name; no client is called so (KIP-511)"""
LEAST_PATIENCE_S: Final = 5.0
"""Any client may call itself anything: what it can be given more than its quota ends here."""
PATIENCE_S: Final[Mapping[str, float]] = MappingProxyType({
    "apache-kafka-java": 30.0,
    "confluent-kafka-dotnet": 60.0,
    "confluent-kafka-go": 60.0,
    "confluent-kafka-python": 60.0,
    "kafka-python": 30.0,
    "kgo": 20.0,
    "librdkafka": 60.0,
    "platformatic-kafka": 5.0,  # of a transaction: one Produce may be all of it
    "sarama": 30.0,
})  # fmt: skip
"""By the name that a client tells in ApiVersions: how long it waits for the answer to a Produce by default,
in seconds (docs/sizing.md)."""
UNNAMED_PATIENCE_S: Final = 10.0
"""of kafka-go, the least patient of those that tell no name"""
PIPELINING_PATIENCE_S: Final = 20.0
"""of a client without a name that sends requests behind one another, which kafka-go does not: the shortest
that was measured, franz-go's"""
_USABLE_SHARE: Final = 0.8
"""of a client's patience; the rest is for the broker and the network"""


@dataclass(frozen=True, slots=True)
class WaitBudget:
    """How long the requests of one client may wait, in ms."""

    answer_ms: float
    """from when a request is judged: the answer budget"""
    alone_ms: float
    """from when it came, if the client waits for one answer at a time"""
    pipelined_ms: float
    """the same, of a client that sends requests behind one another"""


@dataclass(frozen=True, slots=True)
class DelayLimits:
    """The settings; all in ms."""

    answer_budget_ms: float = 8_000.0
    group_max_ms: float = 2_000.0
    fetch_default_ms: float = 3_000.0
    share_fetch_max_ms: float = 10_000.0
    request_max_ms: float = 1_000.0
    """of a request_percentage: one quota window (KIP-124)"""
    written_fetch_throttle_max_ms: float = 2_000.0
    """franz-go and sarama sleep on the written figure and would miss heartbeats"""
    patience_s: Mapping[str, float] = field(default_factory=dict)
    """pacing.client_patience: beside and above PATIENCE_S"""
    _budgets: dict[str, WaitBudget] = field(default_factory=dict, init=False, repr=False, compare=False)
    """by software, as connections have asked; of names that have no patience of their own that of OTHERS"""

    def budget(self, software: str = OTHERS) -> WaitBudget:
        """How long requests of a client that calls itself so may wait."""
        budgets = self._budgets
        if software not in budgets:
            if software not in self.patience_s and software not in PATIENCE_S:
                software = OTHERS
            if software not in budgets:
                budgets[software] = self._budget(software)
        return budgets[software]

    def _budget(self, software: str) -> WaitBudget:
        patience_s = self.patience_s.get(software) or PATIENCE_S.get(software) or self.patience_s.get(OTHERS)
        pipelining_s = patience_s or PIPELINING_PATIENCE_S
        alone_ms = max(patience_s or UNNAMED_PATIENCE_S, LEAST_PATIENCE_S) * 1000.0 * _USABLE_SHARE
        pipelined_ms = max(pipelining_s, LEAST_PATIENCE_S) * 1000.0 * _USABLE_SHARE
        return WaitBudget(min(self.answer_budget_ms, alone_ms), alone_ms, pipelined_ms)


def no_delay(_api_key: int) -> float:
    """The longest wait of a request in a connection that is closed."""
    return 0.0


class SessionTimeouts:
    """The smallest session.timeout.ms that each (user, client id, address) was granted in a JoinGroup.

    A client's heartbeats travel on another connection than its fetches, so the fetch connection learns here.
    What clients can mint is capped for each user and in all (wire-semantics 4.3, 4.4): the oldest entry of
    the user at fault goes, and its client is back at the default.
    """

    __slots__ = ("_entries",)

    def __init__(
        self, max_members: int = _MAX_MEMBERS, max_members_per_user: int = _MAX_MEMBERS_PER_USER
    ) -> None:
        self._entries: CappedByUser[tuple[str, str], int] = CappedByUser(max_members, max_members_per_user)

    def saw(self, user: str, client_id: str, address: str, session_timeout_ms: int) -> None:
        """Note a JoinGroup that the broker accepted."""
        if session_timeout_ms <= 0:
            return
        member = (client_id, address)
        known_ms = self._entries.get(user, member)
        if known_ms is None or session_timeout_ms < known_ms:
            self._entries.set(user, member, session_timeout_ms)

    def half_ms(self, user: str, client_id: str, address: str) -> float:
        """Half the session timeout of this client: so long at most from one of its Fetches to the next, if it
        heartbeats between two of them only. inf: none was seen."""
        seen_ms = self._entries.get(user, (client_id, address))
        return inf if seen_ms is None else seen_ms / 2

    def fetch_limit_ms(self, user: str, client_id: str, address: str, limits: DelayLimits) -> float:
        """Longest delay of a connection of this client that only fetches."""
        half_ms = self.half_ms(user, client_id, address)
        return min(limits.answer_budget_ms, limits.fetch_default_ms if half_ms == inf else half_ms)

    def __len__(self) -> int:
        return len(self._entries)


class LeftBehind:
    """Bytes of acks=0 requests that clients of each user left behind while muted and that are still
    forwarded.

    Every client reports such records as sent (wire-semantics 1.2), so they are worth forwarding; but nobody
    waits for them, so they are capped per user.
    """

    __slots__ = ("_bytes", "cap_bytes")

    def __init__(self, cap_bytes: int = 16 * 1024 * 1024) -> None:
        self.cap_bytes = cap_bytes
        self._bytes: dict[str, int] = {}

    def take(self, user: str, size_bytes: int) -> bool:
        """Add one request of a client that left; False when the user's cap would be passed."""
        total = self._bytes.get(user, 0) + size_bytes
        if total > self.cap_bytes:
            return False
        self._bytes[user] = total
        return True

    def take_up_to(self, user: str, size_bytes: int) -> int:
        """Add as much of it as there is room for, which is returned."""
        total = self._bytes.get(user, 0)
        taken = min(size_bytes, self.cap_bytes - total)
        if taken <= 0:
            return 0
        self._bytes[user] = total + taken
        return taken

    def give_back(self, user: str, size_bytes: int) -> None:
        """A connection that took `size_bytes` in all has ended."""
        left = self._bytes.get(user, 0) - size_bytes
        if left > 0:
            self._bytes[user] = left
        else:
            self._bytes.pop(user, None)
