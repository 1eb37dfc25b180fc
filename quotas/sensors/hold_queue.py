"""Held requests of one bucket, in the order in which they came: when each of them goes. Pure.

A held request has a *turn*, when the quota has paid all that was charged before it, and a *deadline*, when
its answer budget ends. Where turns come before deadlines, turns decide. A request whose turn comes behind its
deadline is *late*: it goes ahead of the quota, and all before it must, too. They go evenly, not in one lump
at the deadline. At its arrival so many bytes are due by its deadline:

    pace = bytes held, its own included ÷ (deadline − now)

The pace of the queue is the highest of the late requests that are not behind yet. A request goes when its own
bytes have passed at that pace since the one before it went; at its turn or deadline if that is earlier.

Worked example, 1 MB/s, budget 8 s, an empty bucket, 17 requests of 1 MB at once. The first goes at once; 16
are held, with turns at 1, 2 … 16 s and deadlines at 8 s. Pace 16 MB ÷ 8 s: they go at 0.5, 1.0 … 8.0 s. (By
turn or deadline alone 9 of them would go at 8 s.)

A pace that is kept from the arrival of a request on suffices for it: S bytes at pace p ≥ S ÷ (d − t) are done
at t + S ÷ p ≤ d. So only arrivals raise the pace, and an operation costs the same however many wait. Requests
go by this plan whether their connections act at once or late. Source: wire-semantics 1.6.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

_GAIN_MS: Final = 1.0
"""minimum gain before a wake-up is rescheduled"""


class HoldTicket:
    """One held request."""

    __slots__ = ("deadline_ms", "is_in", "pace", "request_bytes", "told_ms", "total_bytes", "turn_ms", "wake")

    def __init__(
        self, request_bytes: int, turn_ms: float, deadline_ms: float, wake: Callable[[], object] | None
    ) -> None:
        self.request_bytes = request_bytes
        self.turn_ms = turn_ms
        self.deadline_ms = deadline_ms
        self.wake = wake
        self.pace = 0.0  # bytes per ms that it needs; 0: it is not late
        self.total_bytes = 0  # of all that came so far, its own included
        self.told_ms = deadline_ms  # when its connection looks again
        self.is_in = True

    @property
    def is_late(self) -> bool:
        """It goes ahead of its turn."""
        return self.turn_ms > self.deadline_ms


class HoldQueue:
    """The held requests of one bucket."""

    __slots__ = ("_gone_bytes", "_late", "_served_ms", "_tickets", "_total_bytes")

    def __init__(self) -> None:
        self._tickets: deque[HoldTicket] = deque()
        self._late: deque[HoldTicket] = deque()  # by falling pace: the first is the highest of those held
        self._served_ms = 0.0
        self._total_bytes = 0
        self._gone_bytes = 0  # of these, bytes that went or left

    def __len__(self) -> int:
        return sum(ticket.is_in for ticket in self._tickets)

    def enter(
        self,
        request_bytes: int,
        turn_ms: float,
        deadline_ms: float,
        now_ms: float,
        wake: Callable[[], object] | None = None,
    ) -> HoldTicket:
        """A request is held. `wake` is called when it is to ask again earlier than it was told (`ask`)."""
        self._advance(now_ms)
        if not self._tickets:
            self._served_ms = now_ms
        ticket = HoldTicket(request_bytes, turn_ms, deadline_ms, wake)
        self._tickets.append(ticket)
        self._total_bytes += request_bytes
        ticket.total_bytes = self._total_bytes
        if ticket.is_late:
            left_ms = max(deadline_ms - now_ms, _GAIN_MS)
            ticket.pace = (self._total_bytes - self._gone_bytes) / left_ms
            while self._late and self._late[-1].pace <= ticket.pace:
                self._late.pop()
            self._late.append(ticket)
            self._tell_head()
        return ticket

    def ask(self, ticket: HoldTicket, now_ms: float) -> float:
        """When the request goes: ≤ now_ms: it is out of the queue; else its connection asks again then."""
        self._advance(now_ms)
        if not ticket.is_in:
            return now_ms
        # Nobody waits longer than for turn or deadline, whoever is ahead: other budgets, or a limit that has
        # changed since, may have given that one a later time.
        last_ms = min(ticket.turn_ms, ticket.deadline_ms)
        if last_ms <= now_ms:
            self._take_out(ticket)
            self._tell_head()
            return now_ms
        ticket.told_ms = min(last_ms, max(self._time_of(ticket), self._time_of(self._tickets[0])))
        return ticket.told_ms

    def leave(self, ticket: HoldTicket, now_ms: float) -> None:
        """The request will not go, or goes out of turn."""
        self._advance(now_ms)
        if ticket.is_in:
            self._take_out(ticket)
            self._tell_head()

    def _advance(self, now_ms: float) -> None:
        """All whose time has come are out; their connections are woken, for each may have been told a later
        one."""
        gone = []
        while self._tickets:
            head = self._tickets[0]
            at_ms = self._time_of(head)
            if at_ms > now_ms:
                break
            self._served_ms = at_ms
            self._take_out(head)
            gone.append(head)
        if gone:
            for ticket in gone:
                if ticket.told_ms > now_ms and ticket.wake is not None:
                    ticket.wake()
            self._tell_head()

    def _time_of(self, ticket: HoldTicket) -> float:
        """Exact for the head. Of others an estimate, which is too early where one behind them has left."""
        at_ms = min(ticket.turn_ms, ticket.deadline_ms)
        if self._late:
            is_head = ticket is self._tickets[0]
            before = ticket.request_bytes if is_head else ticket.total_bytes - self._gone_bytes
            at_ms = min(at_ms, self._served_ms + before / self._late[0].pace)
        return at_ms

    def _take_out(self, ticket: HoldTicket) -> None:
        ticket.is_in = False
        self._gone_bytes += ticket.request_bytes
        while self._tickets and not self._tickets[0].is_in:
            first = self._tickets.popleft()
            if self._late and self._late[0] is first:
                self._late.popleft()

    def _tell_head(self) -> None:
        """The first in the queue is to ask again if its time is earlier than what it was told."""
        if self._tickets:
            head = self._tickets[0]
            if head.wake is not None and self._time_of(head) < head.told_ms - _GAIN_MS:
                head.told_ms = self._time_of(head)
                head.wake()
