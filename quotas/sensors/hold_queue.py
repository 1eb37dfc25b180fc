"""Held requests of one bucket: in which order they go, and when. Pure.

**Order: by bytes.** Each request gets a tag when it is held: the queue's virtual time, or where the last
request of its connection ended if that is later, and its own bytes. The lowest tag goes first. The virtual
time is how many bytes each connection has been given that always waited: what goes, divided by how many wait.
So connections get the same number of bytes each, whatever the size of their requests, and a small request
goes before large ones that came a little earlier: 100 bytes beside nine connections of 50 kB wait for one of
these, not for nine. (Weighted fair queueing, Demers et al. 1989; the virtual time as in WF²Q+.)

**Time: by the quota.** The first goes when all that went before it is paid.

**Deadlines.** A held request has a deadline, when its answer budget ends, and goes then at the latest. Where
the quota cannot pay all in time, they go ahead of it, evenly, at the pace that keeps all deadlines; by tags
as long as nobody is too late for it (hold_deadlines.py). A twentieth more is for small requests with lower
tags than the next one that have to wait all the same: even then they do not wait for a round of large ones.

Worked example, 1 MB/s, budget 8 s, an empty bucket, 17 requests of 1 MB at once. The first goes at once; 16
wait, with turns at 1 … 16 s and deadlines at 8 s. Pace 16 MB ÷ 8 s: they go at 0.5, 1.0 … 8.0 s.

Requests go by this plan whether their connections act at once or late. A turn is left, for 50 ms at most, to
the next request of a connection that has just had one or was told to come now, if its tag is lower: a small
one would be overtaken each time while it is on its way. What was waited for in vain is no loss of the rate.
Source: wire-semantics 1.6.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from math import inf
from typing import ClassVar, Final

from sluice.quotas.sensors.bytes_by_tag import BytesByTag
from sluice.quotas.sensors.hold_deadlines import HoldDeadlines
from sluice.quotas.sensors.hold_ticket import HoldTicket
from sluice.quotas.sensors.place import Expected, LeftPlaces, Place

_GAIN_MS: Final = 1.0  # minimum gain before a wake-up is rescheduled
_SMALL_SHARE: Final = 0.05  # of the pace of late requests, for those with lower tags
_SMALL_MS: Final = 50.0
"""of the pace: no more of it is saved up, or a long overload would let many small requests pass in one go"""
_DISTRUST_MS: Final = 60_000.0
"""So long after a client has left what it had announced, only what has come counts, or others would pass"""
_DEAD_KEPT: Final = 64  # of those who are out, and beside twice as many as wait: so many stay in the heap


class HoldQueue:
    """The held requests of one bucket of bytes."""

    __slots__ = (
        "_ahead", "_by_tag", "_bytes_by_tag", "_clears_at_ms", "_count", "_deadlines", "_distrusts_until_ms",
        "_expected", "_max_debt_ms", "_ms_per_byte", "_number", "_seen_ms", "_served_ms", "_small_bytes",
        "held_bytes", "left", "virtual_time", "went_ms",
    )  # fmt: skip

    _ticket_type: ClassVar[type[HoldTicket]] = HoldTicket
    _expected_type: ClassVar[type[Expected]] = Expected

    def __init__(self, ms_per_byte: float, max_debt_ms: float = inf) -> None:
        self._ms_per_byte = ms_per_byte
        self._max_debt_ms = max_debt_ms
        self._by_tag: list[HoldTicket] = []  # a heap; who is out stays until it is first
        self._bytes_by_tag = BytesByTag()  # of those that are in
        self._deadlines = HoldDeadlines()
        self._count = 0
        self._number = 0
        self.held_bytes = 0.0
        self.virtual_time = 0.0
        """in bytes: what a connection has been given that always waited"""
        self._clears_at_ms = 0.0  # when all that went is paid
        self._seen_ms = 0.0
        self._served_ms = 0.0  # the time of the last one, by the plan
        self._small_bytes = 0.0  # that may go beside the late ones
        self._ahead = 0  # so many went at a pace, before the quota could pay and before their deadlines
        self._distrusts_until_ms = -inf
        self._expected = self._expected_type()
        self.left = LeftPlaces()
        self.went_ms = -inf  # when the last one went

    def __len__(self) -> int:
        return self._count

    def enter(
        self, request_bytes: float, eligible_at_ms: float, deadline_ms: float, now_ms: float,
        wake: Callable[[], object] | None = None, place: Place | None = None,
    ) -> HoldTicket:  # fmt: skip
        """A request is held. `eligible_at_ms`: when all that was charged before it is paid. `wake` is called
        when it is to ask again earlier than it was told (`ask`). `place`: its connection's."""
        self._advance(now_ms)
        self._meet(eligible_at_ms, now_ms)
        begin_tag = self._begin_tag(place, now_ms)
        if place is not None:
            self._expected.came(place)
        self._number += 1
        ticket = self._ticket_type(request_bytes, begin_tag, self._number, deadline_ms, wake, place)
        ticket.ahead = self._ahead
        self._push(ticket, self._by_tag)
        self._bytes_by_tag.add(ticket.tag, request_bytes)
        self._count += 1
        self.held_bytes += request_bytes
        if deadline_ms < inf:
            self._set_deadline(ticket, now_ms)
        ticket.guess_ms = min(eligible_at_ms, deadline_ms)
        if pace := self._deadlines.pace():
            ticket.guess_ms = min(ticket.guess_ms, self._served_ms + self._deadlines.held_bytes / pace)
        self._tell_next()
        return ticket

    def ask(self, ticket: HoldTicket, now_ms: float) -> float:
        """When the request goes: ≤ now_ms: it is out of the queue; else its connection asks again then."""
        self._advance(now_ms)
        if not ticket.is_in:
            return now_ms
        if ticket.deadline_ms <= now_ms:  # nobody waits longer, whoever is ahead
            self._go(ticket, now_ms)
            ticket.wake = None
            self._tell_next()
            return now_ms
        following, at_ms = self._next()
        if following is not ticket:  # it was, when it was told; now another is, and has to know it
            self._tell(following, at_ms)
            at_ms = ticket.guess_ms if ticket.guess_ms > now_ms + _GAIN_MS else ticket.deadline_ms
        ticket.told_ms = max(at_ms, now_ms)
        return ticket.told_ms

    def go_now(self, ticket: HoldTicket, now_ms: float) -> None:
        """The request goes, whether its time has come or not."""
        self._advance(now_ms)
        if ticket.is_in:
            self._go(ticket, now_ms)
            ticket.wake = None
            self._tell_next()

    def leave(self, ticket: HoldTicket, now_ms: float, *, for_good: bool = True) -> None:
        """The request will not go, for its client has left; not `for_good`: it will be held anew."""
        self._advance(now_ms)
        if ticket.is_in:
            self._take_out(ticket)
            if for_good and ticket.here_bytes < ticket.request_bytes:
                self._was_announced(ticket, now_ms)
            if self._count and self._deadlines.left(ticket, self._count, now_ms):
                self._plan(now_ms)
        else:
            self._give_back(ticket, now_ms)
        ticket.wake = None
        self._tell_next()

    def refuse(self, ticket: HoldTicket, limit_ms: float, now_ms: float) -> float:
        """The request is given up, and its client told to send it again. Returns how long it will wait if it
        is sent now, as `tell` does. It keeps its place, so it gets on however often that happens."""
        self._advance(now_ms)
        if ticket.is_in:
            self._take_out(ticket)
        ahead = self._bytes_by_tag.below(ticket.tag) + self._expected.bytes_to(ticket.tag, now_ms)
        told_ms = min(max(self._clears_at_ms - now_ms, 0.0) + ahead * self._ms_per_byte, limit_ms)
        ticket.wake = None
        if ticket.place is not None:
            self._expected.refused(ticket.place, ticket.begin_tag, ticket.request_bytes, told_ms, now_ms)
        self._tell_next()
        return told_ms

    def hasten(self, ticket: HoldTicket, deadline_ms: float, now_ms: float) -> None:
        """The request has an earlier deadline, for its client has sent more behind it."""
        self._advance(now_ms)
        if not ticket.is_in or ticket.deadline_ms == inf:
            return
        self._deadlines.remove(ticket)
        ticket.deadline_ms = deadline_ms
        self._set_deadline(ticket, now_ms)
        ticket.guess_ms = min(ticket.guess_ms, deadline_ms)
        self._tell_next()

    def end_refusal(self, now_ms: float) -> None:
        """The limit refuses no more: what it would have refused goes by then, evenly."""
        self._advance(now_ms)
        for ticket in self._by_tag:
            if ticket.is_in and ticket.refuse_ms < inf:
                ticket.deadline_ms, ticket.refuse_ms = ticket.refuse_ms, inf
                self._set_deadline(ticket, now_ms)
                ticket.guess_ms = min(ticket.guess_ms, ticket.deadline_ms)
        self._tell_next()

    def update(self, ms_per_byte: float, now_ms: float) -> None:
        """The bucket has another limit: what is owed stays the same in bytes."""
        self._advance(now_ms)
        if self._clears_at_ms > now_ms:
            owed_ms = (self._clears_at_ms - now_ms) * ms_per_byte / self._ms_per_byte
            self._clears_at_ms = now_ms + min(owed_ms, self._max_debt_ms)
        self._ms_per_byte = ms_per_byte
        self._plan(now_ms)
        self._tell_next()

    def tell(
        self, place: Place, request_bytes: float, owed_ms: float, limit_ms: float, now_ms: float,
        *, is_next_held: bool = False,
    ) -> float:  # fmt: skip
        """How long the next request of a connection will wait if it is as large as the last: until what went
        is paid (of `owed_ms`, those held included), and all that go before it by their tags; at most
        `limit_ms`. It keeps its place meanwhile, unless its next one waits here already."""
        begin_tag = max(place.tag, self.virtual_time)
        self._expected.came(place)
        tag = self._expected.tag_of(begin_tag, request_bytes)
        ahead = self._bytes_by_tag.up_to(tag) + self._expected.bytes_to(tag, now_ms)
        told_ms = min(owed_ms + (ahead - self.held_bytes) * self._ms_per_byte, limit_ms)
        if pace := self._deadlines.pace():  # they go ahead of what is owed, and it with them
            told_ms = min(told_ms, (ahead + request_bytes) / pace)
        if told_ms > 0.0 and not is_next_held:
            self._expected.told(place, begin_tag, request_bytes, told_ms, now_ms)
        elif not is_next_held:
            self._expected.went(place, tag, now_ms)
        return told_ms

    def awaits(self, place: Place, request_bytes: float, eligible_at_ms: float, now_ms: float) -> bool:
        """Somebody is about to come whose turn is before that of a request that could go now."""
        self._expected.came(place)
        tag = self._expected.tag_of(self._begin_tag(place, now_ms), request_bytes)
        return self._expected.wait_ms(tag, eligible_at_ms, self.went_ms) > now_ms + _GAIN_MS

    def passed(self, place: Place, request_bytes: float, now_ms: float) -> None:
        """Its next request is here, and goes at once, for nobody is before it."""
        begin_tag = self._begin_tag(place, now_ms)
        self.came(place)
        if others := len(self._expected):  # who were told to come: it has had this before them
            place.tag, place.kept_until_ms = begin_tag + request_bytes, -inf
            self.virtual_time = max(self.virtual_time, begin_tag) + request_bytes / (others + 1)
            self.went_ms = now_ms
            self._expected.went(place, place.tag + request_bytes, now_ms)

    def came(self, place: Place) -> None:
        """Its next request is here, or will not come."""
        if self._expected.came(place) and self._count:
            self._tell_next()

    def changed(self, now_ms: float) -> None:
        """What the queue waits for may have come."""
        self._advance(now_ms)
        self._tell_next()

    def _push(self, ticket: HoldTicket, by_tag: list[HoldTicket]) -> None:
        if len(by_tag) > _DEAD_KEPT + 2 * self._count:
            by_tag[:] = [held for held in by_tag if held.is_in]
            heapify(by_tag)
        heappush(by_tag, ticket)

    def _begin_tag(self, place: Place | None, now_ms: float) -> float:
        if place is None:
            return self.virtual_time
        return place.kept_tag if now_ms <= place.kept_until_ms else max(self.virtual_time, place.tag)

    def _meet(self, eligible_at_ms: float, now_ms: float) -> None:
        """A request comes whose turn would be at `eligible_at_ms` if none overtook another."""
        if not self._count:
            self._clears_at_ms = eligible_at_ms
            self._served_ms = now_ms
            self._small_bytes = 0.0
        else:  # something may have been charged that was never held
            self._clears_at_ms = max(self._clears_at_ms, eligible_at_ms - self.held_bytes * self._ms_per_byte)

    def _free_ms(self) -> float:  # when the next may go
        return self._clears_at_ms

    def _pay(self, ticket: HoldTicket, at_ms: float) -> None:
        """It goes: what comes next has to wait until it is paid."""
        ticket.eligible_at_ms = self._clears_at_ms
        clears_at_ms = max(self._clears_at_ms, at_ms) + ticket.request_bytes * self._ms_per_byte
        self._clears_at_ms = ticket.clears_at_ms = min(clears_at_ms, at_ms + self._max_debt_ms)

    def _give_back(self, ticket: HoldTicket, now_ms: float) -> None:
        """It was to go, and did not."""
        self._clears_at_ms -= ticket.request_bytes * self._ms_per_byte

    def _next(self) -> tuple[HoldTicket | None, float]:
        """Who goes next, and when."""
        by_tag, deadlines = self._by_tag, self._deadlines
        while by_tag and not by_tag[0].is_in:
            heappop(by_tag)
        if not by_tag:
            return None, inf
        first, free_ms = by_tag[0], self._free_ms()
        free_ms = max(free_ms, self._expected.wait_ms(first.tag, free_ms, self.went_ms))
        urgent = deadlines.first()
        if urgent is None:
            return first, free_ms
        if pace := deadlines.pace():
            return self._next_at_pace(first, urgent, pace, free_ms)
        if first is not urgent and not self._may_overtake(first):
            if deadlines.pace():  # found now: a limit has become lower
                return self._next()
            first = urgent
        if urgent.deadline_ms < free_ms:
            return urgent, urgent.deadline_ms
        return first, free_ms

    def _next_at_pace(
        self, first: HoldTicket, urgent: HoldTicket, pace: float, free_ms: float
    ) -> tuple[HoldTicket, float]:
        following = self._deadlines.lowest() or urgent
        if first is not following and first.request_bytes <= self._small_bytes:
            return first, self._seen_ms
        at_ms = min(free_ms, self._served_ms + following.request_bytes / pace)
        if urgent.deadline_ms < at_ms:
            return urgent, urgent.deadline_ms
        return following, at_ms

    def _may_overtake(self, ticket: HoldTicket) -> bool:
        deadlines = self._deadlines
        if deadlines.may_overtake(ticket, self._ms_per_byte):
            return True
        if not deadlines.is_unknown(self._count, self._seen_ms):
            return False
        self._plan(self._seen_ms)
        return deadlines.may_overtake(ticket, self._ms_per_byte) and not deadlines.pace()

    def _plan(self, now_ms: float) -> None:
        free_ms, begin_ms = max(self._clears_at_ms, now_ms), min(self._served_ms, now_ms)
        self._deadlines.plan(free_ms, begin_ms, self._ms_per_byte, now_ms)

    def _was_announced(self, ticket: HoldTicket, now_ms: float) -> None:
        """Its client has left, and not all of it had come. What is outstanding others may go ahead for; for
        what is announced alone none shall for some time, if any did. Nobody waits beyond its deadline."""
        if self._ahead > ticket.ahead or not self._deadlines.trusts:
            self._distrusts_until_ms = now_ms + _DISTRUST_MS
            self._deadlines.trusts = False

    def _set_deadline(self, ticket: HoldTicket, now_ms: float) -> None:
        free_ms = max(self._clears_at_ms, now_ms)
        if self._deadlines.add(ticket, free_ms, self._ms_per_byte, self._count, now_ms):
            self._plan(now_ms)

    def _advance(self, now_ms: float) -> None:
        """All whose time has come are out; their connections are woken: each may know a later one."""
        gone = []
        self._seen_ms = max(self._seen_ms, now_ms)
        if not self._deadlines.trusts and now_ms >= self._distrusts_until_ms:
            self._deadlines.trusts = True
        if self._deadlines.is_late() and self._deadlines.is_old(self._count, now_ms):
            self._plan(now_ms)
        while self._count:
            ticket, at_ms = self._next()
            if ticket is None or at_ms > now_ms:
                break
            # Who was waited for and did not come costs nothing of the rate.
            self._go(ticket, max(min(at_ms, self._free_ms()), self._served_ms))
            gone.append(ticket)
        for ticket in gone:
            if ticket.told_ms > now_ms and ticket.wake is not None:
                ticket.wake()
            ticket.wake = None  # who is out may stay in the heap, and shall not keep its connection
        if gone:
            self._tell_next()

    def _go(self, ticket: HoldTicket, at_ms: float) -> None:
        deadlines = self._deadlines
        if at_ms < self._clears_at_ms and at_ms < ticket.deadline_ms < inf:
            self._ahead += 1
        if not deadlines.pace():
            self._served_ms = at_ms
        elif ticket is (deadlines.lowest() or deadlines.first()):
            small_bytes = self._small_bytes + ticket.request_bytes * _SMALL_SHARE
            self._small_bytes = min(small_bytes, deadlines.pace() * _SMALL_MS)
            self._served_ms = at_ms
        else:
            self._small_bytes = max(0.0, self._small_bytes - ticket.request_bytes)
        self.went_ms = self._seen_ms
        deadlines.goes(ticket, self._ms_per_byte)
        if self._by_tag[0] is ticket:
            self._give(ticket)
        if ticket.place is not None:
            ticket.place.tag = ticket.tag
            ticket.place.kept_until_ms = -inf
            next_tag = ticket.tag + ticket.request_bytes
            self._expected.went(ticket.place, next_tag, self._seen_ms)
        self._pay(ticket, at_ms)
        self._take_out(ticket)

    def _give(self, ticket: HoldTicket) -> None:
        """Each of those who wait would have been given as much."""
        virtual_time = min(self.virtual_time + ticket.request_bytes / self._count, ticket.tag)
        self.virtual_time = max(self.virtual_time, virtual_time, ticket.begin_tag)  # a kept tag is of before

    def _take_out(self, ticket: HoldTicket) -> None:
        ticket.is_in = False
        self._bytes_by_tag.remove(ticket.tag, ticket.request_bytes)
        self._count -= 1
        self.held_bytes -= ticket.request_bytes
        self._deadlines.out(ticket)
        if not self._count:
            self.held_bytes = 0.0
            self._by_tag.clear()
            self._bytes_by_tag.clear()
            self._deadlines.clear()

    def _tell_next(self) -> None:
        """Who goes next is to ask again if its time is earlier than what it was told."""
        self._tell(*self._next())

    def _tell(self, ticket: HoldTicket | None, at_ms: float) -> None:
        if ticket is not None and ticket.wake is not None and at_ms < ticket.told_ms - _GAIN_MS:
            ticket.told_ms = at_ms
            ticket.wake()
