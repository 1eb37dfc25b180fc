"""What the sessions of a process share of the producer-id quota: the door, and the gates of batches. Pure.

A request that waits at the door is woken through its ticket, for its turn may come by what others do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from sluice.proxy.session.producer_ids.gate_table import DEFAULT_EXPIRY_MS, DEFAULT_MAX_GATES, GateTables
from sluice.quotas.producer_ids.principal import ProducerIdSettings
from sluice.quotas.producer_ids.quota import ProducerIdQuota
from sluice.quotas.producer_ids.store import DEFAULT_SAMPLE_MS

Wake: TypeAlias = Callable[[], object]
"""of a connection, by its shell: its turn may have come"""


class ProducerIds:
    """The producer-id quota of one process, as its sessions share it."""

    __slots__ = ("quota", "tables")

    def __init__(
        self,
        settings: ProducerIdSettings | None = None,
        *,
        max_gates: int = DEFAULT_MAX_GATES,
        gate_ms: float = DEFAULT_EXPIRY_MS,
    ) -> None:
        """`max_gates`: of each principal; `gate_ms`: how long one outlives the last refusal of its batch."""
        self.quota = ProducerIdQuota(settings or ProducerIdSettings())
        # No shorter than a sample: so long a connection may go without asking for its table.
        idle_ms = max(DEFAULT_SAMPLE_MS, self.quota.settings.sample_ms)
        self.tables = GateTables(max_gates, gate_ms, idle_ms)

    def serve(self, now_ms: float) -> None:
        """Wake the connections whose turn has come; to be called when `quota.due_ms` has come."""
        for ticket in self.quota.serve(now_ms):
            wake = ticket.owner
            if callable(wake):
                wake()

    def expire(self, now_ms: float) -> None:
        """Drop what is over."""
        self.quota.expire(now_ms)
        self.tables.expire(now_ms)
