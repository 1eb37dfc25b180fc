"""The fetches of one bucket: whose turn it is, how much each may bring, what those under way may still bring.

What a Fetch costs is known from its answer. Until then what it may bring is *reserved*, so that fifty
consumers who come at once do not all pass before anything is charged. A Fetch goes when the bucket has more
than what is reserved:

    tokens(now) − reserved > 0

Its own reservation may make that negative: one grant, or one batch if that is larger, is what a bucket is
overdrawn by. Reserved is the grant, or the largest of the batches that were seen last, if that is more. The
next may be larger still; so the number of fetches under way is bounded by the largest one of the last minutes
(`_MOST_AT_RISK_MS`). To reserve that one for each would make consumers far below their quota wait for each
other, once a single large batch has come.

The answer settles it: its bytes are charged, whole, and the rest of the reservation is given back; so does an
empty answer, a connection that ends, or an answer that is overdue (its broker hangs: that shall not stop who
fetches from others).

Worked example, 10,000 B/s, batches of 16 KiB, fifty consumers: the first is granted one batch; 10,000 −
16,384 < 0, so the others wait. Its answer of 16,500 B leaves a debt of 6,500 B: 650 ms later the next goes.

**Quiet connections** are those whose last poll that was cut short for others brought nothing. Hundreds of
them shall not keep a bucket from one that reads, nor a reader keep them from their first record:

    a pause     from one poll to the next, the longer the more of them there are: 200 polls a second in all,
                or as many as have a tenth of the rate for their empty answers
    a credit    of one turn: a poll stands before those who read all the time, for it costs nothing
    half full   once the bucket has half of its burst unused, every second turn is of one who reads: turns
                that cost nothing, each with its reservation, are then what keeps the rate from being used
    grants      are shares among those that are not quiet

Who alternates between the two brings no more by it than any other: its place counts its bytes.

A turn is left to a connection that was told to come now, as in hold_queue.py. Turns go by bytes, too, but by
where a request begins, not by where it would end (start-time fair queueing, Goyal et al. 1996), for that is
known only from its answer. Knows no clock, no frames. Source: wire-semantics 1.3.
"""

from __future__ import annotations

from abc import abstractmethod
from heapq import heappop
from math import inf
from typing import Any, ClassVar, Final, Protocol

from sluice.quotas.sensors.batch_sizes import BatchSizes
from sluice.quotas.sensors.hold_queue import HoldQueue
from sluice.quotas.sensors.hold_ticket import HoldTicket
from sluice.quotas.sensors.place import Expected, ExpectedFetches, Place

_MOST_AT_RISK_MS: Final = 9_000.0
"""What fetches under way may bring at most, in time at the rate, if each brings the largest batch of the last
minutes: a burst and the answer budget, by which Produce may pass ahead of its rate, too"""
_GRACE_MS: Final = 1_000.0
"""so much later than it was told a client may come and still have its place"""

_POLL_MS: Final = 5.0
"""so far from each other are the polls of all quiet connections at least: 200 a second"""
_EMPTY_BYTES: Final = 80
"""of an answer without records, of one topic or of a fetch session"""
_POLLS_SHARE: Final = 0.1
"""of the rate: more of it these answers shall not take"""


class FetchBucket(Protocol):
    """What is fetched is charged to it."""

    @abstractmethod
    def free_ms(self, reserved: float, now_ms: float) -> float:
        """When it has more than `reserved` units; inf: not by time alone."""

    @abstractmethod
    def is_half_full(self, now_ms: float) -> bool:
        """At least half of what it can save up is there."""

    @abstractmethod
    def fetch_share(self, reserved: float, connections: int, now_ms: float) -> tuple[float, float]:
        """In bytes: what one Fetch may ask for now, and the most that may be granted beyond it to one whose
        batches are small."""


class FetchPlace(Place):
    """One connection's among those that fetch from one bucket."""

    __slots__ = ("batches", "is_quiet", "reserved_bytes")

    def __init__(self) -> None:
        super().__init__()
        self.reserved_bytes = 0.0
        self.is_quiet = False
        """its last poll that was cut short for others brought nothing"""
        self.batches = BatchSizes()
        """that it has brought"""


class FetchTicket(HoldTicket):
    """Its place is where it begins, for what it will bring is a guess, and may be a bad one: of the first
    that wait nothing is known. What it has brought counts for the next one of its connection (`settle`)."""

    __slots__ = ("is_quiet",)

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.tag = self.begin_tag
        place = self.place
        self.is_quiet = isinstance(place, FetchPlace) and place.is_quiet


class FetchQueue(HoldQueue):
    """The fetches of one bucket that wait for their turn."""

    __slots__ = (
        "_bucket", "_overdue_ms", "_parked", "_readers", "_readers_in", "_reserved", "_was_reader", "batches",
        "connections", "quiet",
    )  # fmt: skip

    _ticket_type: ClassVar[type[HoldTicket]] = FetchTicket
    _expected_type: ClassVar[type[Expected]] = ExpectedFetches

    def __init__(self, bucket: FetchBucket, ms_per_byte: float) -> None:
        super().__init__(ms_per_byte)
        self._bucket = bucket
        self._reserved = 0.0
        self._parked: dict[FetchPlace, float] = {}  # who has reserved, and when its answer is overdue
        self._overdue_ms = inf  # of these, the earliest, or earlier
        # Of those who wait, a heap of those that are not quiet, with some that are out; and how many are in.
        self._readers: list[HoldTicket] = []
        self._readers_in = 0
        self._was_reader = False  # the last that had a turn
        self.connections = 0
        """that have fetched and are open"""
        self.quiet = 0
        """of these, that are quiet"""
        self.batches = BatchSizes()

    @property
    def reserved_bytes(self) -> float:
        """What fetches under way may bring."""
        return self._reserved

    def is_free(self, now_ms: float) -> bool:
        """A Fetch that comes now goes at once."""
        if self._count:
            return False
        if now_ms > self._seen_ms:  # noqa: PLR1730  as in SmoothSensor.charge
            self._seen_ms = now_ms
        if not self._parked:
            return self._bucket.free_ms(0.0, now_ms) <= now_ms
        return self._free_ms() <= now_ms

    def awaits_others(self, place: FetchPlace, now_ms: float) -> bool:
        """It is free, but its turn is that of a connection that was told to come now."""
        return bool(self._expected) and self.awaits(place, 0.0, self._free_ms(), now_ms)

    def saw(self, place: FetchPlace, sizes: list[int], now_ms: float) -> None:
        """An answer brought batches of these bytes."""
        self.batches.saw(sizes, now_ms)
        place.batches.saw(sizes, now_ms)

    def was_empty(self, place: FetchPlace) -> None:
        """A poll that was cut short for others brought nothing: its connection is quiet."""
        if not place.is_quiet:
            place.is_quiet = True
            self.quiet += 1

    def was_not_empty(self, place: FetchPlace) -> None:
        """A connection's poll brought records, as far as is known, or was not cut short; or it parts."""
        if place.is_quiet:
            place.is_quiet = False
            self.quiet -= 1

    @property
    def pause_ms(self) -> float:
        """From one poll of a quiet connection to its next, so that all of them are not too many a second."""
        return self.quiet * max(_POLL_MS, _EMPTY_BYTES * self._ms_per_byte / _POLLS_SHARE)

    def grant(self, asked_bytes: int, now_ms: float, place: FetchPlace | None = None) -> tuple[int, float]:
        """For a Fetch that goes now: its max_bytes, 1 … `asked_bytes`, and what is to be reserved for it. By
        the batches that its connection has seen; a new one's by those of all."""
        batches = self.batches if place is None or not place.batches.typical_bytes else place.batches
        readers = self.connections - self.quiet
        sharing = readers if readers > 0 else self.connections or 1
        share, most = self._bucket.fetch_share(self._reserved, sharing, now_ms)
        whole = batches.whole(share, most)
        max_bytes = asked_bytes
        if whole < asked_bytes:
            max_bytes = int(whole)
        if max_bytes < 1:  # noqa: PLR1730
            max_bytes = 1
        recent_bytes = batches.recent_bytes
        return max_bytes, (recent_bytes if recent_bytes > max_bytes else max_bytes)

    def reserve(self, place: FetchPlace, need: float, overdue_ms: float) -> None:
        """A Fetch goes whose answer is to come before `overdue_ms`."""
        self._reserved += need
        place.reserved_bytes += need
        self._parked[place] = overdue_ms
        if overdue_ms < self._overdue_ms:  # noqa: PLR1730  as in SmoothSensor.charge
            self._overdue_ms = overdue_ms

    def settle(self, place: FetchPlace, reserved: float, charged: float, now_ms: float) -> None:
        """The answer of a Fetch has come, and its bytes were charged."""
        self.take_back(place, reserved)
        if self._count or self._expected:
            # A turn at most: who took a whole burst before others came is not put behind many rounds.
            # Its own batches count: of the bucket's last ones they are none once others have brought as many.
            turn_bytes = max(self.batches.turn_bytes, place.batches.turn_bytes)
            most = max(place.tag, self.virtual_time) + turn_bytes
            place.tag = min(place.tag + charged, most)
            self.virtual_time += charged / (self._readers_in + len(self._expected) + 1)
            self.changed(now_ms)

    def keep_place(self, place: FetchPlace, begin_tag: float, told_ms: float) -> None:
        """A client was told to come again at `told_ms`: it loses nothing to those who wait here."""
        place.keep(begin_tag, told_ms + _GRACE_MS)

    def take_back(self, place: FetchPlace, reserved: float) -> None:
        """So much is not to come any more. `changed` follows."""
        left = place.reserved_bytes - reserved
        if left <= 0.0:
            reserved, left = place.reserved_bytes, 0.0
        place.reserved_bytes = left
        self._reserved -= reserved
        if not left:
            self._parked.pop(place, None)
            if not self._parked:
                self._reserved, self._overdue_ms = 0.0, inf

    # Who waits --------------------------------------------------------------------------------------------

    def _push(self, ticket: HoldTicket, by_tag: list[HoldTicket]) -> None:
        super()._push(ticket, by_tag)
        assert isinstance(ticket, FetchTicket)
        if not ticket.is_quiet:
            super()._push(ticket, self._readers)
            self._readers_in += 1

    def _begin_tag(self, place: Place | None, now_ms: float) -> float:
        """A quiet connection has a turn to its credit, so it stands before those who read all the time;
        unless it has just brought as much as they."""
        if isinstance(place, FetchPlace) and place.is_quiet and now_ms > place.kept_until_ms:
            return max(self.virtual_time - self.batches.turn_bytes, place.tag)
        return super()._begin_tag(place, now_ms)

    def _take_out(self, ticket: HoldTicket) -> None:
        super()._take_out(ticket)
        assert isinstance(ticket, FetchTicket)
        if not ticket.is_quiet:
            self._readers_in -= 1
            if not self._readers_in:
                self._readers.clear()

    def _next(self) -> tuple[HoldTicket | None, float]:
        """Once half of the burst is unused, who reads goes before who is quiet, whatever their tags, by
        turns."""
        first, at_ms = super()._next()
        if not 0 < self._readers_in < self._count or first is None or first.deadline_ms < inf:
            return first, at_ms
        assert isinstance(first, FetchTicket)
        if first.is_quiet and not self._was_reader and self._bucket.is_half_full(self._seen_ms):
            readers = self._readers
            while not readers[0].is_in:
                heappop(readers)
            return readers[0], at_ms
        return first, at_ms

    # The plan, as HoldQueue has it ------------------------------------------------------------------------

    def _meet(self, eligible_at_ms: float, now_ms: float) -> None:
        if not self._count:
            self._served_ms = max(self._served_ms, now_ms)

    def _free_ms(self) -> float:
        now_ms = self._seen_ms
        if self._overdue_ms <= now_ms:
            self._take_back_overdue(now_ms)
        parked = self._parked
        if not parked:
            return self._bucket.free_ms(0.0, now_ms)
        at_risk_ms = (len(parked) + 1) * self.batches.largest_bytes * self._ms_per_byte
        if at_risk_ms > _MOST_AT_RISK_MS:
            return self._overdue_ms
        free_ms = self._bucket.free_ms(self._reserved, now_ms)
        return free_ms if free_ms < self._overdue_ms else self._overdue_ms

    def _take_back_overdue(self, now_ms: float) -> None:
        for place in [place for place, overdue_ms in self._parked.items() if overdue_ms <= now_ms]:
            self.take_back(place, place.reserved_bytes)
        self._overdue_ms = min(self._parked.values(), default=inf)

    def _give(self, ticket: HoldTicket) -> None:
        self.virtual_time = max(self.virtual_time, ticket.begin_tag)

    def _pay(self, ticket: HoldTicket, at_ms: float) -> None:
        ticket.eligible_at_ms = ticket.clears_at_ms = at_ms
        assert isinstance(ticket, FetchTicket)
        assert isinstance(ticket.place, FetchPlace)
        self._was_reader = not ticket.is_quiet
        self.reserve(ticket.place, ticket.request_bytes, self._seen_ms + _GRACE_MS)

    def _give_back(self, ticket: HoldTicket, now_ms: float) -> None:
        assert isinstance(ticket.place, FetchPlace)
        self.take_back(ticket.place, ticket.request_bytes)
