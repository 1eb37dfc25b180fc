"""Waiting tickets of one principal by when the forced bucket is open to them, and then by turns. Pure.

Apart from the queues for the rate: there whoever has the next turn stands first, be he young, and one whose
time has come would wait behind him. Members' ids have a time of their own (members.py), and a part of the
bucket (PrincipalIds.forced_floor), so they stand apart from others; so do requests with several ids, which
need many tokens, from those with one, and those for whose pairs the ceiling has no room from others.
Source: wire-semantics 3.9.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import inf
from typing import Final

from sluice.quotas.producer_ids.fair_queue import FairQueue
from sluice.quotas.producer_ids.ticket import Ticket

_DEAD_MAX: Final = 64
_WITHOUT_ROOM: Final = 4
"""their queues stand behind the others: members', then others'"""


class ForcedQueue:
    """Those that may be forced in, now or later."""

    __slots__ = ("_dead", "_due", "_later", "_number")

    def __init__(self) -> None:
        self._later: list[tuple[float, int, Ticket]] = []
        self._due: tuple[FairQueue[Ticket], ...] = tuple(FairQueue() for _ in range(6))
        self._number = 0
        self._dead = 0

    def push(self, ticket: Ticket) -> None:
        """It begins to wait; its time is finite."""
        self._number += 1
        heappush(self._later, (ticket.forced_at_ms, self._number, ticket))

    def heads(self, now_ms: float) -> list[Ticket]:
        """Whose turn it is: members first, of one new id first; at most one of each kind."""
        later = self._later
        while later and later[0][0] <= now_ms:
            ticket = heappop(later)[2]
            if ticket.waits:
                ticket.is_due = True
                ticket.due_place = (0 if ticket.is_member else 2) + (ticket.count > 1)
                self._due[ticket.due_place].push(ticket)
            else:
                self._dead -= 1
        return [head for queue in self._due if (head := queue.head()) is not None]

    @property
    def next_ms(self) -> float:
        """When the bucket opens to another of them."""
        later = self._later
        while later and not later[0][2].waits:
            heappop(later)
            self._dead -= 1
        return later[0][0] if later else inf

    def granted(self, ticket: Ticket) -> None:
        """What was one of the heads has had its turn."""
        self._due[ticket.due_place].granted(ticket)

    def waits_for_room(self, ticket: Ticket) -> bool:
        """Others go ahead of it (`lacks_room`)."""
        return ticket.due_place >= _WITHOUT_ROOM

    def lacks_room(self, head: Ticket) -> bool:
        """Others go ahead of one of the heads, for whose pairs the ceiling has no room. False: they do
        already."""
        if head.due_place >= _WITHOUT_ROOM:
            return False
        self._due[head.due_place].take_head()
        head.due_place = _WITHOUT_ROOM + (not head.is_member)
        self._due[head.due_place].push(head)
        return True

    def bury(self, ticket: Ticket) -> None:
        """One of them waits no more."""
        if ticket.is_due:
            self._due[ticket.due_place].bury()
            return
        self._dead += 1
        if self._dead > _DEAD_MAX and self._dead * 2 > len(self._later):
            self._later = [entry for entry in self._later if entry[2].waits]
            heapify(self._later)
            self._dead = 0

    def __len__(self) -> int:
        """Tickets kept; at most half of them wait no more, but for a few."""
        return len(self._later) + sum(len(queue) for queue in self._due)
