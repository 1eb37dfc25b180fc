"""The turns of a connection's Produce requests: which go at once, which is held, and what their answers tell.

As fetch/turns.py for Fetch. Judged and charged they are in requests.py. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Final

from sluice.protocol.apis import PRODUCE
from sluice.proxy.session.arrivals import Arrivals
from sluice.proxy.session.delays import no_delay
from sluice.proxy.session.identity import Identity
from sluice.proxy.session.in_flight import Held
from sluice.proxy.session.policy import SharedState
from sluice.proxy.session.producer_ids.byte_refusal import ByteReason, ByteRefusal
from sluice.proxy.session.producer_ids.shared import Wake
from sluice.proxy.session.read_gate import EARLY_MS, Pace
from sluice.proxy.session.throttle_log import ThrottleLog
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.sensors.hold_queue import HoldQueue
from sluice.quotas.sensors.hold_ticket import HoldTicket
from sluice.quotas.sensors.place import Place
from sluice.quotas.sensors.sensor import Sensor
from sluice.usage.records import EventKind

_LOOK_AGAIN_MS: Final = 60_000.0
_MOST_PLACES: Final = 16
"""In so many buckets a connection has a place that it may come back to"""
_SHARED_MS: Final = 10_000.0
"""So long after a request that had waited others may be expected to come again"""


class ProduceTurns:
    """Turns of one connection's Produces: which one waits, for how long, and what is left of it."""

    __slots__ = (
        "_arrivals", "_came_ms", "_delay_limit_ms", "_identity", "_is_group", "_is_told", "_last_ms",
        "_left_ahead_bytes", "_left_behind", "_left_behind_bytes", "_log", "_pace", "_place", "_places",
        "_queue", "_refuse_ms", "_sensor", "_ticket", "held", "is_for_nobody", "paid_at_ms", "refuses",
        "wake",
    )  # fmt: skip

    def __init__(
        self,
        shared: SharedState,
        pace: Pace,
        identity: Identity,
        log: ThrottleLog,
        delay_limit_ms: Callable[[int], float],
        arrivals: Arrivals,
    ) -> None:
        """`delay_limit_ms`: the longest wait of a request, by its API key. `arrivals`: of the connection."""
        self._arrivals = arrivals
        self._came_ms = 0.0  # when the request was held
        self._is_group = False
        self._is_told = False  # the hold is in the log
        self._left_behind = shared.left_behind
        self._left_behind_bytes = 0
        self._left_ahead_bytes = 0  # of these, those of requests that have had no turn yet
        self._pace = pace
        self._identity = identity
        self._log = log
        self._delay_limit_ms = delay_limit_ms
        self._sensor: Sensor | None = None  # that is charged now
        self._queue: HoldQueue | None = None  # its queue, once something has been owed
        self._place = Place()  # among the connections there
        self._places: dict[Sensor, Place] = {}  # in other buckets
        self._ticket: HoldTicket | None = None  # of the request that is held
        self._last_ms = inf  # when its budget is over
        self._refuse_ms = inf  # when it is refused, if its turn has not come
        self.held: Held | None = None
        """the request that waits for its turn, in state HOLDING"""
        self.refuses = False
        """the limit is not in shadow mode, and refuses what has no turn in time"""
        self.is_for_nobody = False
        """its client has left: what it left behind waits for the quota, however long"""
        self.paid_at_ms = -inf
        """when the last request is paid behind which nothing was muted: it was told so, and what the next
        waits until then is no delay of its own"""
        self.wake: Wake | None = None
        """the shell's: a held request's turn has come earlier than it was told"""

    def use(self, sensor: Sensor | None, now_ms: float) -> None:
        """The limit that Produce is charged against is another now. Who comes back to a bucket has the place
        that it left there: with a new one it would be served before those who stayed."""
        self._leave()
        if (before := self._sensor) is not None and self._place.tag:
            self._places[before] = self._place
            if len(self._places) > _MOST_PLACES:
                oldest = next(iter(self._places))
                _leave_place(oldest, self._places.pop(oldest), now_ms)
        self._sensor, self._queue = sensor, None
        place = None if sensor is None else self._places.pop(sensor, None)
        self._place = place or Place()

    def owe(
        self,
        sensor: Sensor,
        clears_at_ms: float,
        request_bytes: int,
        acks: int,
        now_ms: float,
        spent_ms: float,
        begin: int,
        *,
        is_group: bool,
    ) -> tuple[float, float]:
        """A request was charged and leaves a debt, or others wait. Returns (eligible_at_ms, clears_at_ms),
        bounded by the answer budget, of which `spent_ms` is spent already, and by its client's patience if it
        was read ahead. `begin`: its position.

        eligible_at_ms ≤ now_ms: it goes at once, and the connection is now muted until clears_at_ms, or its
        next request waits among others. Else the entity was in debt before, and the pace is now HOLDING until
        eligible_at_ms; the caller sets `held`. A limit in shadow mode: both are now_ms, and nothing is done.
        One that refuses: nothing goes ahead of it. What is held has no deadline in its queue, and is refused
        when its budget is over; with acks = 0 it waits on, save on a connection of a group.
        """
        limit_ms = self._delay_limit_ms(PRODUCE)
        self._is_group = is_group
        if sensor.shadow:
            self._log.note_shadow(sensor, PRODUCE, clears_at_ms, limit_ms, request_bytes, now_ms)
            return now_ms, now_ms
        last_ms = inf if self.is_for_nobody else now_ms + max(0.0, limit_ms - spent_ms)
        if self._arrivals and not self.is_for_nobody and not self.refuses:
            last_ms = min(last_ms, self._latest_ms(sensor, begin, request_bytes, now_ms))
        deadline_ms = self._last_ms = last_ms
        self._refuse_ms = inf
        if self.refuses and acks:
            deadline_ms, self._refuse_ms = inf, last_ms
        elif self.refuses and not is_group:
            deadline_ms = inf
        eligible_at_ms = min(sensor.eligible_at_ms, deadline_ms)
        self._queue = queue = sensor.hold_queue()
        if queue is not None and not self._place.tag:
            self._place.tag = queue.left.take(queue.virtual_time, now_ms)
        # Who waits may leave its turn to another, and the quota has some saved up then: that is for both.
        if queue is not None and (
            eligible_at_ms > now_ms
            or len(queue)
            or queue.awaits(self._place, request_bytes, eligible_at_ms, now_ms)
        ):
            eligible_at_ms = self._enter(queue, sensor, request_bytes, deadline_ms, now_ms)
            return eligible_at_ms, min(clears_at_ms, last_ms)
        clears_at_ms = min(clears_at_ms, last_ms)
        if queue is not None:
            queue.passed(self._place, request_bytes, now_ms)
        if clears_at_ms > now_ms:
            sensor.count_over(request_bytes, clears_at_ms)
            mutes = queue is None or self._mutes(is_shared=now_ms - queue.went_ms < _SHARED_MS)
            self._delay(sensor, clears_at_ms, request_bytes, now_ms, mutes=mutes)
        return eligible_at_ms, clears_at_ms

    def _enter(
        self, queue: HoldQueue, sensor: Sensor, request_bytes: int, deadline_ms: float, now_ms: float
    ) -> float:
        """The request waits with the others. Returns when it is to ask."""
        self._came_ms = now_ms
        sensor.hold(request_bytes)
        self._ticket = ticket = queue.enter(
            request_bytes, sensor.eligible_at_ms, deadline_ms, now_ms, self.wake, self._place
        )
        ticket.refuse_ms = self._last_ms if deadline_ms == inf else inf
        ticket.here_bytes = 0.0  # until `read_ahead` is told
        at_ms = min(self._ask(queue, ticket, now_ms, now_ms), self._refuse_ms)
        eligible_at_ms = max(at_ms, now_ms + EARLY_MS)
        self._pace.hold(eligible_at_ms, now_ms, QuotaKind.PRODUCE)
        hold_ms = eligible_at_ms - max(now_ms, self.paid_at_ms)
        self._is_told = hold_ms > 0.0
        if self._is_told:
            self._log.add(EventKind.HOLD, sensor, PRODUCE, hold_ms, request_bytes, now_ms)
        return eligible_at_ms

    def read_ahead(self, begin: int, here_bytes: int, now_ms: float) -> None:
        """More has come of the held request, if there is one, which begins at `begin`, or behind it; from
        there on `here_bytes` are here. Behind it: it goes sooner, or all the others would go in one lump at
        the end of their client's patience."""
        if self.held is None:
            return
        held, ticket, queue = self._waiting()
        ticket.here_bytes = min(here_bytes, held.request_bytes)
        if self.is_for_nobody or self.refuses:
            return
        latest_ms = self._latest_ms(held.sensor, begin, held.request_bytes, now_ms)
        if latest_ms < ticket.deadline_ms - EARLY_MS:
            queue.hasten(ticket, latest_ms, now_ms)
            self._pace.wake_at_ms = self._ask(queue, ticket, now_ms, now_ms)

    def _latest_ms(self, sensor: Sensor, begin: int, request_bytes: int, now_ms: float) -> float:
        """When the request goes at the latest that begins at `begin`, for it was read ahead, or others were
        behind it."""
        queue = sensor.hold_queue()
        waiting = 1 if queue is None else max(len(queue), 1)
        shared_ms_per_byte = waiting * 1000.0 / sensor.rate_per_s
        return self._arrivals.latest_ms(begin, request_bytes, now_ms, shared_ms_per_byte)

    def tell_ms(self, sensor: Sensor, clears_at_ms: float, request_bytes: int, now_ms: float) -> float:
        """What an answer tells: what the connection's next request will wait for, its mute and the queue of
        its bucket (wire-semantics 1.6)."""
        remaining_ms = max(clears_at_ms - now_ms, 0.0)
        queue = self._queue
        if queue is None or sensor is not self._sensor:
            return remaining_ms
        limit_ms = self._delay_limit_ms(PRODUCE)
        told_ms = queue.tell(
            self._place, request_bytes, sensor.owed_ms(now_ms), limit_ms, now_ms,
            is_next_held=self._ticket is not None,
        )  # fmt: skip
        return max(remaining_ms, told_ms)

    def is_turn(self, now_ms: float) -> bool:
        """May the held request go? If not, `pace.wake_at_ms` says when to ask again."""
        _, ticket, queue = self._waiting()
        at_ms = self._ask(queue, ticket, now_ms + EARLY_MS, now_ms)
        self._pace.wake_at_ms = min(at_ms, self._refuse_ms)
        return now_ms >= self._pace.wake_at_ms - EARLY_MS

    def is_over_budget(self, now_ms: float) -> bool:
        """Is the held request to be refused? To be asked when `is_turn` has said yes."""
        ticket = self._ticket
        return ticket is not None and ticket.is_in and now_ms >= self._refuse_ms - EARLY_MS

    def refuse(self, now_ms: float) -> ByteRefusal:
        """It is: its bytes are given back, and its connection keeps its place."""
        held, ticket, queue = self._waiting()
        self.held = self._ticket = None
        told_ms = queue.refuse(ticket, self._delay_limit_ms(PRODUCE), now_ms)
        held.sensor.drop(held.request_bytes, now_ms)
        # What was told of the one before may end later than this one's budget, if that has become shorter.
        held_ms = max(now_ms - held.begun_ms, 0.0)
        return ByteRefusal(held.sensor, ByteReason.OVER_BUDGET, held_ms, told_ms)

    def outlast(self, now_ms: float) -> bool:
        """The client of the held request, which has acks = 0, has left. Nobody waits for it any more, so it
        has no deadline: it goes when the quota can pay it. False: no, its user has left too much behind."""
        held, ticket, queue = self._waiting()
        if not self.outlives_its_client(0, held.request_bytes):
            return False
        self.is_for_nobody = True
        self._last_ms = self._refuse_ms = inf
        queue.leave(ticket, now_ms, for_good=False)
        own_ms = held.request_bytes * 1000.0 / held.sensor.rate_per_s
        eligible_at_ms = now_ms + max(held.sensor.owed_ms(now_ms) - own_ms, 0.0)
        self._ticket = queue.enter(held.request_bytes, eligible_at_ms, inf, now_ms, self.wake)
        self._pace.wake_at_ms = self._ask(queue, self._ticket, now_ms, now_ms)
        return True

    def take(self, now_ms: float, client_left: bool) -> Held | None:
        """The turn of the held request has come. None: it is not to be forwarded, for its client is gone.

        `client_left`: since it was held.
        """
        held, ticket, queue = self._waiting()
        if client_left and not self.outlives_its_client(held.acks, held.request_bytes):
            self.drop(now_ms)
            return None
        self.held = self._ticket = None
        queue.go_now(ticket, now_ms)
        # If it goes ahead of the quota, nothing behind it is kept waiting for that: the client's next
        # request waits in the queue, for the budget at most, and not behind a mute besides.
        is_ahead = ticket.eligible_at_ms > now_ms + EARLY_MS
        held = replace(
            held,
            # Where it goes before the last one's delay has ended, all of its wait is its own.
            begun_ms=held.begun_ms if held.begun_ms <= now_ms + EARLY_MS else self._came_ms,
            clears_at_ms=now_ms
            if is_ahead
            else min(ticket.clears_at_ms, ticket.deadline_ms, max(self._last_ms, now_ms)),
        )
        mutes, clears_at_ms = self._mutes(is_shared=True), held.clears_at_ms
        self._pace.release(clears_at_ms if mutes else now_ms)
        held.sensor.go(held.request_bytes, max(clears_at_ms, now_ms))
        if clears_at_ms > now_ms:
            told = self._is_told
            self._delay(held.sensor, clears_at_ms, held.request_bytes, now_ms, mutes=mutes, continues=told)
        return held

    def drop(self, now_ms: float) -> None:
        """A held request, if there is one, will never go: its bytes are given back."""
        if self.held is None:
            return
        held, ticket, queue = self._waiting()
        self.held = self._ticket = None
        queue.leave(ticket, now_ms)
        held.sensor.drop(held.request_bytes, now_ms)
        self._log.add(EventKind.DROP, held.sensor, PRODUCE, 0.0, held.request_bytes, now_ms)

    def _waiting(self) -> tuple[Held, HoldTicket, HoldQueue]:
        """The held request and its place: only a bucket that has a queue lets requests wait."""
        held, ticket = self.held, self._ticket
        assert held is not None
        assert ticket is not None
        queue = held.sensor.hold_queue()
        assert queue is not None
        return held, ticket, queue

    def outlives_its_client(self, acks: int, request_bytes: int) -> bool:
        """May a request go on whose client is gone? With acks ≠ 0 it would double the client's retry.

        One with acks = 0 was reported as sent; it goes on, up to a cap per user (wire-semantics 1.2, 4.1).
        """
        if acks:
            return False
        more_bytes = max(request_bytes - self._left_ahead_bytes, 0)
        if more_bytes and not self._left_behind.take(self._identity.user, more_bytes):
            # The connection ends with it, and what stands behind it never goes.
            self._left_behind.give_back(self._identity.user, self._left_ahead_bytes)
            self._left_behind_bytes -= self._left_ahead_bytes
            self._left_ahead_bytes = 0
            return False
        self._left_behind_bytes += more_bytes
        self._left_ahead_bytes -= request_bytes - more_bytes
        return True

    def leaves(self, size_bytes: int) -> None:
        """The client leaves so much behind that has acks = 0. It counts now, as far as its user's cap goes:
        if each request counted at its turn, those who left would keep all that their user may keep."""
        taken_bytes = self._left_behind.take_up_to(self._identity.user, size_bytes)
        self._left_ahead_bytes = taken_bytes
        self._left_behind_bytes += taken_bytes

    def closed(self, now_ms: float) -> None:
        """The connection is closed: return its part of the shared budgets, and what a held request was
        charged."""
        self.drop(now_ms)
        self._leave()
        if self._sensor is not None:
            self._places[self._sensor] = self._place
        for sensor, place in self._places.items():
            _leave_place(sensor, place, now_ms)
        self._places.clear()
        self._left_behind.give_back(self._identity.user, self._left_behind_bytes)
        self._left_behind_bytes = self._left_ahead_bytes = 0
        self.wake = None
        # Whose method it was holds this: in a circle it would wait for the collector, which seldom runs.
        self._delay_limit_ms = no_delay

    def _ask(self, queue: HoldQueue, ticket: HoldTicket, ask_ms: float, now_ms: float) -> float:
        return min(queue.ask(ticket, ask_ms), now_ms + _LOOK_AGAIN_MS)

    def _leave(self) -> None:
        """Nothing more is to come from this connection for its bucket."""
        if self._queue is not None:
            self._queue.came(self._place)

    def _delay(
        self,
        sensor: Sensor,
        clears_at_ms: float,
        request_bytes: int,
        now_ms: float,
        *,
        mutes: bool,
        continues: bool = False,
    ) -> None:
        """The connection's next request does not go before `clears_at_ms`.

        Not `mutes`: it is read, and has its place among those who wait. `continues`: the log has told already
        that this request is delayed.
        """
        if mutes:
            self._pace.mute(clears_at_ms, now_ms, QuotaKind.PRODUCE)
        else:
            self.paid_at_ms = clears_at_ms
        mute_ms = clears_at_ms - now_ms
        self._log.add(EventKind.MUTE, sensor, PRODUCE, mute_ms, request_bytes, now_ms, continues=continues)

    def _mutes(self, *, is_shared: bool) -> bool:
        """Does a delay shut the gate, or does the next request wait among the others?

        `is_shared`: requests wait here. Behind a mute the next one would come when the turn falls, and be too
        late for it each time. Where it may be refused it is read, so that its bound counts from when it came.
        On a connection of a group a mute ends before the bound of what else it carries; a request that is
        held would not.
        """
        return not self.refuses and (self._is_group or not is_shared)


def _leave_place(sensor: Sensor, place: Place, now_ms: float) -> None:
    """A place that its connection does not come back to: a new connection goes on in it."""
    if place.tag and (queue := sensor.hold_queue()) is not None:
        queue.left.leave(place, queue.virtual_time, now_ms)
