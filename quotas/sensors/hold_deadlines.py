"""The deadlines of the held requests of one bucket: at which pace they are kept, and who may overtake. Pure.

**Slack.** As long as the quota pays for all in the order of their deadlines, each in time, requests of lower
tags may overtake; a request is overtaken only by as many bytes as its slack allows:

    slack = deadline − (when all up to it in the order of deadlines will be paid)

**Pace.** Where the quota cannot pay all in time, they go ahead of it, evenly, not in one lump at the
deadline. A request without slack is *late*, and so many bytes are due:

    pace = bytes held with no later deadline, its own included ÷ (deadline − now)

The pace of the queue is the highest of the late requests that are not behind yet. A request goes when its own
bytes have passed at that pace since the one before it went. A pace that is kept from the arrival of a request
on suffices for it: S bytes at pace p ≥ S ÷ (d − t) are done at t + S ÷ p ≤ d. So only arrivals raise it.

**Room.** At the pace of the queue, too, whoever has the lowest tag goes first, as long as all with earlier
deadlines are in time even so:

    room = least of (deadline − now) · pace − bytes held with no later deadline,
           over all with earlier deadlines

So a connection whose deadlines are always nearer than those of others is served in its turn by bytes like any
other, and ahead of it only where its own deadline is at stake: what it has outstanding ÷ its answer budget.

**Trust.** What is announced counts as if it were here, for large requests come in the end. Once a client has
left that had announced more than it sent, and others went ahead for it, only what is here counts in pace and
room, until none has done so for a minute (hold_queue.py).

All three are found anew (a *plan*) for each arrival that is not the last to be due, and while any request is
late every 20 ms; where many wait, less often, so that an operation costs the same however many wait. Between
two plans what overtakes, and what comes with an earlier deadline, is subtracted from the room of all; and the
room of all is at most what the new one leaves. Source: wire-semantics 1.6.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from heapq import heapify, heappop, heappush
from math import inf
from operator import attrgetter
from typing import Final

from sluice.quotas.sensors.hold_ticket import HoldTicket

_LEAST_MS: Final = 1.0
"""a request that is due within it is due in as much"""
_ROUNDING_MS: Final = 1e-6
_PLAN_MS: Final = 20.0
_PLAN_MS_PER_REQUEST: Final = 0.02
"""A plan is made anew so long after the last for each request held, if that is later"""
_MANY: Final = 64
"""requests held; if there are more, an arrival waits for the next plan"""
_BY_DEADLINE: Final = attrgetter("deadline_ms")


class HoldDeadlines:
    """The deadlines of one queue. A request without a deadline (inf) is never given to it."""

    __slots__ = (
        "_by_deadline", "_by_tag", "_critical", "_from_ms", "_gone_bytes", "_is_stale", "_kept_pace", "_late",
        "_new_bytes", "_overtaken_bytes", "_plan_pace", "_planned_ms", "_room_bytes", "_slack_ms",
        "held_bytes", "trusts",
    )  # fmt: skip

    def __init__(self) -> None:
        self._by_deadline: list[HoldTicket] = []  # sorted; who is out stays until it is first
        self._late: deque[HoldTicket] = deque()  # by falling pace: the first is the highest of those held
        self.held_bytes = 0.0
        self.trusts = True
        """what is announced counts; else only what of it is here"""
        # Of those held, the least slack, or less; and whose it was when it was measured.
        self._slack_ms = inf
        self._critical: HoldTicket | None = None
        # The last plan: when, from when on and at which pace it reckons.
        self._planned_ms = self._from_ms = -inf
        self._plan_pace = 0.0
        self._by_tag: list[tuple[float, int, HoldTicket]] = []  # a heap of those with room
        # Since the last plan:
        self._is_stale = False  # earlier deadlines have come
        self._room_bytes = inf  # the least that these leave
        self._new_bytes = 0.0  # of these
        self._overtaken_bytes = 0.0  # that went before others that were due earlier; these included
        self._gone_bytes = 0.0  # all that went
        self._kept_pace = 0.0  # of a late request that has gone before its turn, or has come

    def first(self) -> HoldTicket | None:
        """Whose deadline is the nearest."""
        by_deadline = self._by_deadline
        while by_deadline and not by_deadline[0].is_in:
            del by_deadline[0]
        return by_deadline[0] if by_deadline else None

    def pace(self) -> float:
        """In bytes per ms; 0: the quota pays all in time."""
        late, kept = self._late, self._kept_pace
        while late and not late[0].is_in:
            late.popleft()
        return late[0].pace if late and late[0].pace > kept else kept

    def lowest(self) -> HoldTicket | None:
        """At the pace: who has the lowest tag of those with room. None: who is due first is to go."""
        by_tag = self._by_tag
        while by_tag:
            ticket = by_tag[0][2]
            if ticket.is_in and self._has_room(ticket):
                return ticket
            heappop(by_tag)
        return None

    def may_overtake(self, ticket: HoldTicket, ms_per_byte: float) -> bool:
        """As long as the quota pays all in time."""
        return self._slack_ms >= ticket.request_bytes * ms_per_byte or self._has_room(ticket)

    def is_old(self, count: int, now_ms: float) -> bool:
        """While requests are late, or may be, and `count` are held: a new plan is to be made."""
        age_ms = now_ms - self._planned_ms
        return age_ms > _PLAN_MS and age_ms > count * _PLAN_MS_PER_REQUEST

    def is_unknown(self, count: int, now_ms: float) -> bool:
        """Whose slack was the least is gone, or `is_old`."""
        is_gone = self._critical is None or not self._critical.is_in
        return (is_gone and count <= _MANY) or self.is_old(count, now_ms)

    def is_late(self) -> bool:
        """Some requests are late, or may be."""
        return bool(self._late) or self._is_stale or self._kept_pace > 0.0

    def add(self, ticket: HoldTicket, free_ms: float, ms_per_byte: float, count: int, now_ms: float) -> bool:
        """`free_ms`: when all that went is paid; `count` are held. True: a plan is to be made now."""
        self.held_bytes += ticket.request_bytes
        by_deadline = self._by_deadline
        if len(by_deadline) > _MANY + 2 * count:
            by_deadline[:] = [held for held in by_deadline if held.is_in]
        if by_deadline and ticket.deadline_ms < by_deadline[-1].deadline_ms:
            at = bisect_right(by_deadline, ticket.deadline_ms, key=_BY_DEADLINE)
            by_deadline.insert(at, ticket)
            if count <= _MANY or self.is_old(count, now_ms):
                return True
            self._add_between_plans(ticket, at, now_ms)
            return False
        by_deadline.append(ticket)
        ticket.due_bytes = self.held_bytes + self._gone_bytes
        before = self.held_bytes - ticket.request_bytes
        slack_ms = ticket.deadline_ms - free_ms - before * ms_per_byte
        if slack_ms < self._slack_ms:
            self._slack_ms, self._critical = slack_ms, ticket
        if slack_ms < -_ROUNDING_MS:
            if self.trusts:
                self._add_late(ticket, self.held_bytes, now_ms)
            else:
                self._is_stale = True
        return False

    def remove(self, ticket: HoldTicket) -> None:
        """It is held on, and its deadline will be another: it is to be added again."""
        at = bisect_left(self._by_deadline, ticket.deadline_ms, key=_BY_DEADLINE)
        del self._by_deadline[self._by_deadline.index(ticket, at)]
        self.held_bytes -= ticket.request_bytes

    def goes(self, ticket: HoldTicket, ms_per_byte: float) -> None:
        """It goes, and `out` follows. Before all that are due earlier, it takes of their slack and room."""
        if self._by_deadline and ticket is not self._by_deadline[0]:
            self._slack_ms -= ticket.request_bytes * ms_per_byte
            self._overtaken_bytes += ticket.request_bytes
            if self._late and self._late[0] is ticket:  # those that are due before it still need its pace
                self._kept_pace = max(self._kept_pace, ticket.pace)

    def out(self, ticket: HoldTicket) -> None:
        """It is not held any more."""
        if ticket.deadline_ms < inf:
            self.held_bytes -= ticket.request_bytes
            self._gone_bytes += ticket.request_bytes

    def left(self, ticket: HoldTicket, count: int, now_ms: float) -> bool:
        """Its client has left, `count` are held on. True: a plan is to be made now."""
        if not ticket.pace:
            return False
        if count <= _MANY or self.is_old(count, now_ms):
            return True
        self._kept_pace = max(self._kept_pace, ticket.pace)  # others may need it, which is known only then
        return False

    def clear(self) -> None:
        """Forget all deadlines: no request is held."""
        self._by_deadline.clear()
        self._by_tag.clear()
        self._late.clear()
        self.held_bytes = 0.0
        self._slack_ms, self._critical = inf, None
        self._begin_plan(-inf)

    def plan(self, free_ms: float, begin_ms: float, ms_per_byte: float, now_ms: float) -> None:
        """Find slack, pace and room of all. `free_ms`: when all that went is paid, at least now; `begin_ms`:
        when the last one went, at most now, for then the turn of the first of the late ones began."""
        self._late.clear()
        self._slack_ms, self._critical = inf, None
        self._begin_plan(now_ms)
        before = counted = 0.0
        for ticket in self._by_deadline:
            if ticket.is_in:
                slack_ms = ticket.deadline_ms - free_ms - before * ms_per_byte
                before += ticket.request_bytes
                counted += ticket.request_bytes if self.trusts else ticket.here_bytes
                if slack_ms < self._slack_ms:
                    self._slack_ms, self._critical = slack_ms, ticket
                if slack_ms < -_ROUNDING_MS:
                    self._add_late(ticket, counted, begin_ms)
        if self._late:
            self._find_room(begin_ms, self._late[0].pace)
        else:
            self._find_room(free_ms, 1.0 / ms_per_byte)

    def _begin_plan(self, now_ms: float) -> None:
        self._planned_ms, self._is_stale, self._room_bytes = now_ms, False, inf
        self._new_bytes = self._overtaken_bytes = self._gone_bytes = self._kept_pace = 0.0

    def _find_room(self, from_ms: float, pace: float) -> None:
        self._from_ms, self._plan_pace = from_ms, pace
        before, room = 0.0, inf
        self._by_tag = by_tag = []
        for ticket in self._by_deadline:
            if ticket.is_in:
                ticket.room_bytes = room
                if self._late and room > 0.0:
                    by_tag.append((ticket.tag, ticket.number, ticket))
                before += ticket.request_bytes if self.trusts else ticket.here_bytes
                ticket.due_bytes = before
                room = min(room, (ticket.deadline_ms - from_ms) * pace - before)
        heapify(by_tag)

    def _add_between_plans(self, ticket: HoldTicket, at: int, now_ms: float) -> None:
        """`at`: its place in the order of deadlines. What is not known for certain is taken as the worst."""
        by_deadline = self._by_deadline
        self._slack_ms, self._critical, self._is_stale = 0.0, ticket, True
        ticket.due_bytes = by_deadline[at - 1].due_bytes if at else self._gone_bytes
        ticket.room_bytes = by_deadline[at + 1].room_bytes + ticket.request_bytes
        self._new_bytes += ticket.request_bytes
        self._overtaken_bytes += ticket.request_bytes
        due_bytes = ticket.due_bytes + self._new_bytes
        room_bytes = (ticket.deadline_ms - self._from_ms) * self._plan_pace - due_bytes
        self._room_bytes = min(self._room_bytes, room_bytes)
        if room_bytes < 0.0 and self.trusts:
            pace = due_bytes / max(ticket.deadline_ms - now_ms, _LEAST_MS)
            self._kept_pace = max(self._kept_pace, pace)
        heappush(self._by_tag, (ticket.tag, ticket.number, ticket))

    def _has_room(self, ticket: HoldTicket) -> bool:
        room_bytes = min(ticket.room_bytes, self._room_bytes)
        return room_bytes - self._overtaken_bytes >= ticket.request_bytes

    def _add_late(self, ticket: HoldTicket, due_bytes: float, begin_ms: float) -> None:
        ticket.pace = due_bytes / max(ticket.deadline_ms - begin_ms, _LEAST_MS)
        late = self._late
        while late and late[-1].pace <= ticket.pace:
            late.pop()
        late.append(ticket)
