"""A request that brings unseen producer ids, on its way through the door (quota.py). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import inf

from sluice.quotas.producer_ids.principal import PrincipalIds


class TicketState(Enum):
    """Where a request is on its way through the door."""

    WAITING = "waiting"
    GRANTED = "granted"
    FORCED = "forced"
    """granted from the forced bucket"""
    DONE = "done"


@dataclass(slots=True, eq=False)
class Ticket:
    """A request that brings unseen ids."""

    principal: PrincipalIds
    new_ids: tuple[int, ...]
    resumed_ids: tuple[int, ...]
    """unseen ids that were alive before this instance saw them, or are forged (ProducerGate)"""
    pairs: tuple[int, ...]
    """keys of all (id, topic, partition) of the request, each once"""
    owner: object = None
    """whom `serve` is about"""
    client: tuple[str, str] = ("", "")
    """its address and client id, which take turns"""
    since_ms: float = 0.0
    state: TicketState = TicketState.WAITING
    queued: bool = False
    """False while it waits: nothing can ever grant it"""
    is_member: bool = False
    """its client is a member of a group, or has a transaction"""
    forced_at_ms: float = inf
    """from when on the forced bucket is open to it; inf: never"""
    place: int = 0
    """in which of the queues for the rate it stands (rate_queues.py)"""
    is_due: bool = False
    """it stands among those to whom the forced bucket is open"""
    due_place: int = 0
    """in which of their queues (forced_queue.py)"""
    reserved: tuple[int, int, int] = (0, 0, 0)
    """tokens of the main, resumed and forced bucket"""
    capacities: tuple[float, float, float] = (1.0, 1.0, 1.0)
    """of these buckets, when it was granted"""
    unseen: tuple[int, int] = (0, 0)
    """new and resumed ids that were unseen when they were looked up last"""
    looked_up_at: float = -inf
    """its principal's `learned` then"""

    @property
    def waits(self) -> bool:
        """Its turn has not come, and it has not been withdrawn."""
        return self.state is TicketState.WAITING

    @property
    def granted(self) -> bool:
        """Its turn has come: commit it or withdraw it."""
        return self.state is TicketState.GRANTED or self.state is TicketState.FORCED

    @property
    def least_unseen(self) -> tuple[int, int]:
        """(new, resumed) ids that are unseen at the least: of those that were, no more can be known now than
        its principal has learned meanwhile. So a bucket that does not hold these need not be asked."""
        learned = self.principal.learned - self.looked_up_at
        new, resumed = self.unseen
        return int(max(new - learned, 0)), int(max(resumed - learned, 0))

    @property
    def count(self) -> int:
        """Unseen ids, when it asked."""
        return len(self.new_ids) + len(self.resumed_ids)
