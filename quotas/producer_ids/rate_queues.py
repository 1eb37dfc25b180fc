"""Waiting tickets of one principal by what they need, each kind with turns of its own. Pure.

One new id, one resumed id, several: a request that needs many tokens, which no client is known to send, stops
none that needs one. And those for whose pairs the ceiling had no room when their turn came: else one request
with 300 partitions at the head would keep out all that need one, for which there is room. Of these it is
again the head that is looked at, so one that fits waits behind it at most until it is refused and asks anew.
Source: wire-semantics 3.9, 3.12.
"""

from __future__ import annotations

from typing import Final

from sluice.quotas.producer_ids.fair_queue import FairQueue
from sluice.quotas.producer_ids.ticket import Ticket

_SEVERAL: Final = 2
_WITHOUT_ROOM: Final = 3


class RateQueues:
    """Those that wait for tokens of main and resumed bucket, or for room."""

    __slots__ = ("queues",)

    def __init__(self) -> None:
        self.queues: tuple[FairQueue[Ticket], ...] = tuple(FairQueue() for _ in range(_WITHOUT_ROOM + 1))

    def push(self, ticket: Ticket) -> None:
        """It begins to wait."""
        ticket.place = _SEVERAL if ticket.count > 1 else 0 if ticket.new_ids else 1
        self.queues[ticket.place].push(ticket)

    def heads(self) -> list[Ticket]:
        """Whose turn it is, the oldest first; at most one of each kind."""
        heads = [head for queue in self.queues if (head := queue.head()) is not None]
        return sorted(heads, key=lambda head: head.since_ms)

    def is_head(self, ticket: Ticket) -> bool:
        """It is its turn."""
        return self.queues[ticket.place].head() is ticket

    def waits_for_room(self, ticket: Ticket) -> bool:
        """Others go ahead of it (`lacks_room`)."""
        return ticket.place == _WITHOUT_ROOM

    def lacks_room(self, head: Ticket) -> bool:
        """Others go ahead of one of the heads, for whose pairs the ceiling has no room. False: they do
        already."""
        if head.place == _WITHOUT_ROOM:
            return False
        self.queues[head.place].take_head()
        head.place = _WITHOUT_ROOM
        self.queues[_WITHOUT_ROOM].push(head)
        return True

    def granted(self, ticket: Ticket) -> None:
        """What was one of the heads has had its turn."""
        self.queues[ticket.place].granted(ticket)

    def bury(self, ticket: Ticket) -> None:
        """One of them waits no more."""
        self.queues[ticket.place].bury()

    def __len__(self) -> int:
        """Tickets kept; at most half of them wait no more, but for a few."""
        return sum(len(queue) for queue in self.queues)
