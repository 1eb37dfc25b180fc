"""The Fetches of one connection: go, wait for their turn, or end unanswered by records. Pure.

    comes ── free ──────────────────────────────► goes: max_bytes and max_wait lowered, its grant reserved
      │                                             ▲
      ├─ its last poll was cut short ──► sleeps ──┐ │
      └─ the entity is in debt, or others wait ──► waits ── its bound is over ──► a Fetch for nothing goes
                                                                                  in its place

What goes in the place of a Fetch that found no turn ends its session: the broker answers at once, and the
client is told that its session is not known, so that its next Fetch is a full one. Nothing that it asked for
is lost. ShareFetch, which carries acknowledgements, is never replaced: at its bound it goes. Source:
wire-semantics 1.3 to 1.5.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from math import inf
from typing import Final

from sluice.protocol.apis import FETCH
from sluice.protocol.fetch import read_waits, write_max_bytes, write_max_wait
from sluice.proxy.session.delays import no_delay
from sluice.proxy.session.producer_ids.shared import Wake
from sluice.proxy.session.read_gate import EARLY_MS, JUST_ENDED_MS, Pace
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.sensors.fetch_queue import FetchPlace, FetchQueue
from sluice.quotas.sensors.hold_ticket import HoldTicket
from sluice.quotas.sensors.sensor import Sensor

_SHARED_POLL_MS: Final = 100
"""max_wait of a poll that leaves nothing to the entity's other connections"""
_LONE_POLL_MS: Final = 1_000
"""and where there are none yet, for one may come, which waits for 2 s at least before it is replaced"""
_LONGEST_POLL_MS: Final = 5_000
"""of any poll: what it has reserved, the others cannot have, and they may need it later. The longest default
of a client (kafkajs, franz-go) is as long"""
_POLL_EVERY_MS: Final = 500.0
"""a poll that is cut short for others comes again after its own max_wait, but in this time; with many that
bring nothing, later"""
_PAUSE_SHARE: Final = 2.0 / 3.0
"""of the longest that its next Fetch may wait: the rest is for its turn"""
_SHARE_FETCH_MS: Final = 2_000.0
_OVERDUE_MS: Final = 5_000.0
"""an answer that comes so much later than max_wait is not waited for by others"""


class Turn(IntEnum):
    """What becomes of a Fetch."""

    GO = 0
    WAIT = 1
    REPLACE = 2


_GO: Final = Turn.GO


class FetchTurns:
    """One connection's, for the bucket that it fetches from."""

    __slots__ = (
        "_begun_ms", "_former", "_limit_ms", "_pace", "_place", "_poll_ms", "_polls", "_queue", "_sensor",
        "_ticket", "_told_latest_ms", "_told_until_ms", "_until_ms", "held_ms", "is_held", "paid_at_ms",
        "reserved_bytes", "wake",
    )  # fmt: skip

    def __init__(self, pace: Pace, limit_ms: Callable[[int], float]) -> None:
        """`limit_ms`: the longest that a request of an API may wait."""
        self._pace = pace
        self._limit_ms = limit_ms
        self._sensor: Sensor | None = None
        self._queue: FetchQueue | None = None
        self._place = FetchPlace()
        # Buckets that it fetched from before, of which answers are due: what was reserved there stays.
        self._former: dict[Sensor, tuple[FetchQueue, FetchPlace]] = {}
        self._polls: dict[Sensor, float] = {}
        """of those buckets: when a poll that was cut short may come again"""
        self._ticket: HoldTicket | None = None
        self._begun_ms = self._until_ms = 0.0
        self._poll_ms = -inf
        # The end of the wait that the last answer told of: a client that heeds it comes only then. And when
        # it must have its next answer.
        self._told_until_ms = self._told_latest_ms = -inf
        self.is_held = False
        """a Fetch waits, in state HOLDING"""
        self.held_ms = 0.0
        """of the Fetch that goes, or is replaced, now"""
        self.paid_at_ms = -inf
        """when the last answer is paid: its delay, which was told, ends then, and only then does that of the
        next Fetch begin"""
        self.reserved_bytes = 0.0
        """for the Fetch that goes now"""
        self.wake: Wake | None = None

    def use(self, sensor: Sensor | None, now_ms: float) -> None:
        """Fetches are charged to `sensor` from now on."""
        if sensor is self._sensor:
            return
        self._leave_queue(now_ms)  # a Fetch that is held waits on, for the new bucket
        before, queue, place = self._sensor, self._queue, self._place
        if before is not None and queue is not None:
            if place.reserved_bytes:
                self._former[before] = queue, place
            else:
                self._part(queue, place, now_ms)
        if before is not None and self._poll_ms > now_ms:
            self._polls = {former: at_ms for former, at_ms in self._polls.items() if at_ms > now_ms}
            self._polls[before] = self._poll_ms
        if before is not None:  # else the place is one that nobody has had
            self._place = FetchPlace()
        self._sensor, self._queue, self._poll_ms = sensor, None, -inf
        if sensor is not None:
            self._poll_ms = self._polls.pop(sensor, -inf)
            if sensor in self._former:
                self._queue, self._place = self._former.pop(sensor)

    def _join(self, sensor: Sensor, now_ms: float) -> FetchQueue:
        """The first Fetch of the connection from this bucket."""
        self._queue = queue = sensor.fetch_queue()
        queue.connections += 1
        self._place.tag = queue.left.take(queue.virtual_time, now_ms)
        return queue

    def turn(self, sensor: Sensor, buf: bytearray, offset: int, api_key: int, now_ms: float) -> Turn:
        """A Fetch is at hand, whose max_bytes stands at `offset`. GO: it is patched, and `reserved_bytes` are
        reserved. WAIT: the pace is HOLDING."""
        queue = self._queue
        if queue is None:
            queue = self._join(sensor, now_ms)
        if self.is_held:
            return self._held_again(queue, buf, offset, api_key, now_ms)
        if queue.is_free(now_ms) and not queue.awaits_others(self._place, now_ms):
            self.held_ms = 0.0
            queue.came(self._place)
            self._go(queue, buf, offset, now_ms)
            return _GO
        self._until_ms = self._latest_ms(api_key, now_ms)
        self._begun_ms = max(now_ms, self.paid_at_ms)
        if self._poll_ms > now_ms:
            self._hold(min(self._poll_ms, self._until_ms))
        else:
            self._enter(queue, buf, offset, api_key, now_ms)
        return Turn.WAIT

    def _latest_ms(self, api_key: int, now_ms: float) -> float:
        """When the Fetch that is held from now on goes at the latest, or is replaced. The mute that it stood
        behind is one delay with its hold: the client's heartbeats may stand behind both. Or they come between
        two Fetches only, and what it slept as it was told counts too."""
        limit_ms = self._limit_ms(api_key)
        if api_key != FETCH and limit_ms > _SHARE_FETCH_MS:
            return now_ms + _SHARE_FETCH_MS
        latest_ms = self._pace.begun_ms(now_ms) + limit_ms
        if now_ms <= self._told_until_ms + JUST_ENDED_MS:
            latest_ms = min(latest_ms, self._told_latest_ms)
        self._told_until_ms = -inf  # what comes next was told of by another answer
        return max(now_ms, latest_ms)

    def _held_again(
        self, queue: FetchQueue, buf: bytearray, offset: int, api_key: int, now_ms: float
    ) -> Turn:
        """The shell gives a Fetch again that was held."""
        ticket = self._ticket
        # It has slept, or was held for another bucket.
        must_wait = ticket is None and not queue.is_free(now_ms)
        if must_wait and now_ms < self._until_ms - EARLY_MS:
            self._enter(queue, buf, offset, api_key, now_ms)
            return Turn.WAIT
        self.is_held = False
        self.held_ms = self._waited_ms(now_ms)
        self._ticket = None
        if ticket is not None and ticket.is_in:  # its bound is over
            queue.leave(ticket, now_ms)
            if api_key == FETCH:
                queue.keep_place(self._place, ticket.begin_tag, now_ms + self._limit_ms(FETCH))
                return Turn.REPLACE
        elif must_wait and api_key == FETCH:
            return Turn.REPLACE
        elif ticket is not None:
            queue.take_back(self._place, ticket.request_bytes)  # its grant is reckoned now
        self._go(queue, buf, offset, now_ms)
        return _GO

    def _hold(self, until_ms: float) -> None:
        self.is_held = True
        self._pace.hold(until_ms, self._begun_ms, QuotaKind.FETCH)

    def _enter(self, queue: FetchQueue, buf: bytearray, offset: int, api_key: int, now_ms: float) -> None:
        """Wait with the others."""
        _, asked_bytes = read_waits(buf, offset)
        _, need = queue.grant(asked_bytes, now_ms, self._place)
        deadline_ms = inf if api_key == FETCH else self._until_ms
        self._ticket = ticket = queue.enter(need, now_ms, deadline_ms, now_ms, self.wake, self._place)
        at_ms = min(queue.ask(ticket, now_ms), self._until_ms)
        self._hold(max(at_ms, now_ms + EARLY_MS))

    def _go(self, queue: FetchQueue, buf: bytearray, offset: int, now_ms: float) -> None:
        max_wait_ms, asked_bytes = read_waits(buf, offset)
        max_bytes, need = queue.grant(asked_bytes, now_ms, self._place)
        if max_bytes < asked_bytes:
            write_max_bytes(buf, offset, max_bytes)
        wait_ms = min(max(max_wait_ms - int(self.held_ms), 0), _LONGEST_POLL_MS)
        self._poll_ms = -inf
        queue.reserve(self._place, need, now_ms + wait_ms + _OVERDUE_MS)
        if len(queue):
            wait_ms = 0
            self._poll_ms = now_ms + self._pause_ms(queue, max_wait_ms)
        elif wait_ms > _SHARED_POLL_MS and not queue.is_free(now_ms):
            wait_ms = _SHARED_POLL_MS if queue.connections > 1 else min(wait_ms, _LONE_POLL_MS)
        if wait_ms < max_wait_ms:
            write_max_wait(buf, offset, wait_ms)
        self.reserved_bytes = need

    def _pause_ms(self, queue: FetchQueue, max_wait_ms: int) -> float:
        """From a poll that is cut short for others to the next, if it brings nothing."""
        pause_ms = min(max_wait_ms, _POLL_EVERY_MS)
        if self._place.is_quiet:
            pause_ms = max(pause_ms, queue.pause_ms)
        return min(pause_ms, self._limit_ms(FETCH) * _PAUSE_SHARE)

    def is_turn(self, now_ms: float) -> bool:
        """May the held Fetch be given again? If not, `pace.wake_at_ms` says when to ask."""
        ticket, queue = self._ticket, self._queue
        if ticket is not None and queue is not None:
            if now_ms < self._until_ms - EARLY_MS:
                at_ms = queue.ask(ticket, now_ms + EARLY_MS)
                self._pace.wake_at_ms = min(at_ms, self._until_ms)
            elif ticket.is_in and ticket.deadline_ms < inf:
                queue.go_now(ticket, now_ms)
        return now_ms >= self._pace.wake_at_ms - EARLY_MS

    def brought(self, sensor: Sensor, sizes: list[int] | None, now_ms: float) -> None:
        """What an answer brought that was charged to `sensor`; one with records is followed by the next Fetch
        without a pause."""
        if sensor is not self._sensor:
            if sizes and sensor in self._former:
                former, place = self._former[sensor]
                former.saw(place, sizes, now_ms)
                self._polls.pop(sensor, None)
            return
        queue = self._queue
        if sizes != []:
            self._poll_ms = -inf
        if queue is not None:
            if sizes:
                queue.saw(self._place, sizes, now_ms)
            if self._poll_ms > -inf:  # cut short, and nothing came
                queue.was_empty(self._place)
            else:
                queue.was_not_empty(self._place)

    @property
    def wants_sizes(self) -> bool:
        """Nobody has seen a batch yet, or the poll was cut short: did it bring anything?"""
        queue = self._queue
        return (
            self._poll_ms > -inf
            or self._place.is_quiet
            or (queue is not None and not queue.batches.typical_bytes)
        )

    def settle(self, sensor: Sensor, reserved: float, charged: float, now_ms: float) -> None:
        """The answer to a Fetch came, and was charged to `sensor`."""
        queue = self._queue
        if sensor is self._sensor:
            if queue is not None:
                queue.settle(self._place, reserved, charged, now_ms)
        elif sensor in self._former:
            queue, place = self._former[sensor]
            queue.settle(place, reserved, charged, now_ms)

    def part_from(self, sensor: Sensor, now_ms: float) -> None:
        """All is known of an answer charged to `sensor`: with its last one a former bucket is left."""
        former = self._former.get(sensor) if self._former else None
        if former is not None and not former[1].reserved_bytes:
            del self._former[sensor]
            self._part(*former, now_ms)

    def told(self, throttle_ms: float, half_session_ms: float, now_ms: float) -> None:
        """An answer tells its client, of this session timeout, to wait for so long."""
        self._told_until_ms, self._told_latest_ms = now_ms + throttle_ms, now_ms + half_session_ms

    def tell(self, charged: float, mute_ms: float, limit_ms: float, now_ms: float) -> float:
        """What an answer tells, in ms: what the connection's next Fetch will wait for, the mute and the queue
        of its bucket, `limit_ms` at most."""
        queue = self._queue
        if queue is None:
            return mute_ms
        return max(mute_ms, queue.tell(self._place, charged, self.wait_ms(now_ms), limit_ms, now_ms))

    def wait_ms(self, now_ms: float) -> float:
        """How long a Fetch that came now would wait, by what the bucket knows."""
        sensor, queue = self._sensor, self._queue
        if sensor is None or queue is None:
            return 0.0
        return max(sensor.free_ms(0.0, now_ms) - now_ms, 0.0) + queue.held_bytes * 1000.0 / sensor.rate_per_s

    def drop(self, now_ms: float) -> None:
        """A held Fetch, if there is one, will never go."""
        self.is_held = False
        self._leave_queue(now_ms)

    def let_go(self, now_ms: float) -> float:
        """The held Fetch waits no longer: its limit is none now, or in shadow mode. Its place and what was
        reserved for it are given back. Returns how long it was held, in ms."""
        self.drop(now_ms)
        return self._waited_ms(now_ms)

    def _waited_ms(self, now_ms: float) -> float:
        """How long the Fetch has been held; none of the delay of the answer before it, which was told."""
        return max(now_ms - self._begun_ms, 0.0)

    def _leave_queue(self, now_ms: float) -> None:
        ticket, self._ticket = self._ticket, None
        if ticket is not None and self._queue is not None:
            self._queue.leave(ticket, now_ms)

    def closed(self, now_ms: float) -> None:
        """The connection is closed: what it had reserved is given back."""
        self.drop(now_ms)
        queue, self._queue = self._queue, None
        if queue is not None:
            self._part(queue, self._place, now_ms)
        for former_queue, place in self._former.values():
            self._part(former_queue, place, now_ms)
        self._former.clear()
        self._limit_ms = no_delay  # as in ProduceTurns

    @staticmethod
    def _part(queue: FetchQueue, place: FetchPlace, now_ms: float) -> None:
        """It does not fetch from this bucket any more."""
        queue.connections -= 1
        queue.left.leave(place, queue.virtual_time, now_ms)
        queue.was_not_empty(place)
        queue.came(place)
        queue.take_back(place, place.reserved_bytes)
        queue.changed(now_ms)
