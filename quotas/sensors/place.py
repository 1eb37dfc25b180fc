"""One connection's place in the turns of one bucket."""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf
from typing import Final

from sluice.quotas.sensors.bytes_by_tag import BytesByTag

_PATIENCE: Final = 1.25
_PATIENCE_MS: Final = 50.0
"""So much later than it was told a client may come and still have its place: told · 1.25 + 50 ms"""
_RETRY_MS: Final = 3_000.0
"""and so much later where it was refused, for before it sends again it also waits by its own rules"""
_LATE_MS: Final = 50.0
"""So long a connection is waited for whose turn it would be"""
_LATE_IN_ALL_MS: Final = 250.0
"""and so long, before another's turn, those that send many small requests one after the other"""
_LEFT_MS: Final = 10_000.0
"""So long the place of a connection that has left is there for a new one"""
_MOST_LEFT: Final = 64
_MOST_AWAITED: Final = 64
"""of more than these enough are here; to look through all each time would cost more than it gives"""


class Place:
    """One connection's in the turns of one bucket."""

    __slots__ = ("kept_tag", "kept_until_ms", "tag")

    def __init__(self) -> None:
        self.tag = 0.0
        """of its last request that went"""
        self.kept_tag = 0.0
        self.kept_until_ms = -inf
        """until then it has its place, though it does not wait here: it was told to come again"""

    def keep(self, tag: float, until_ms: float) -> None:
        """Its client was told to come again: it loses nothing to those who do not wait as they are told."""
        self.kept_tag, self.kept_until_ms = tag, until_ms


class LeftPlaces:
    """Places that connections have left before the others had as much. A new one goes on in one of them: who
    reconnects for each request would be served before those who stay, each time."""

    __slots__ = ("_tags",)

    def __init__(self) -> None:
        self._tags: list[tuple[float, float]] = []  # a heap: tag, until when it counts

    def leave(self, place: Place, virtual_time: float, now_ms: float) -> None:
        """Its connection has left, and it had more than others so far, perhaps."""
        if place.tag > virtual_time and len(self._tags) < _MOST_LEFT:
            heappush(self._tags, (place.tag, now_ms + _LEFT_MS))

    def take(self, virtual_time: float, now_ms: float) -> float:
        """A tag for a connection that is new; 0: it begins like any other."""
        while self._tags:
            tag, until_ms = heappop(self._tags)
            if tag > virtual_time and until_ms > now_ms:
                return tag
        return 0.0


class Expected:
    """Requests that are to come: of clients who were told when, and of those whose last one has just gone."""

    __slots__ = ("_awaited", "_told", "_told_bytes")

    def __init__(self) -> None:
        # Tag, bytes, until when they count; mostly in the order of these times.
        self._told: dict[Place, tuple[float, float, float]] = {}
        self._told_bytes = BytesByTag()
        self._awaited: dict[Place, tuple[float, float]] = {}  # tag, until when its turn is left to it

    def __len__(self) -> int:
        """Who was told, and has not come."""
        return len(self._told)

    def told(
        self, place: Place, begin_tag: float, request_bytes: float, told_ms: float, now_ms: float
    ) -> None:
        """Its client was told to come again, and will send as many bytes as last."""
        self._keep(place, begin_tag, request_bytes, now_ms + told_ms * _PATIENCE + _PATIENCE_MS)
        self._await(place, self.tag_of(begin_tag, request_bytes), now_ms + told_ms, now_ms)

    def refused(
        self, place: Place, begin_tag: float, request_bytes: float, told_ms: float, now_ms: float
    ) -> None:
        """The same, where it was refused."""
        self._keep(place, begin_tag, request_bytes, now_ms + told_ms * _PATIENCE + _RETRY_MS)

    def _keep(self, place: Place, begin_tag: float, request_bytes: float, until_ms: float) -> None:
        """After `until_ms` it does not count any more."""
        place.keep(begin_tag, until_ms)
        self.came(place)
        tag = self.tag_of(begin_tag, request_bytes)
        self._told[place] = tag, request_bytes, until_ms
        self._told_bytes.add(tag, request_bytes)

    def went(self, place: Place, tag: float, now_ms: float) -> None:
        """Its last request has gone, or is answered and paid: the next is about to come."""
        self._await(place, tag, now_ms, now_ms)

    def _await(self, place: Place, tag: float, due_ms: float, now_ms: float) -> None:
        awaited = self._awaited
        if len(awaited) >= _MOST_AWAITED:
            for late in [other for other, (_, until_ms) in awaited.items() if until_ms <= now_ms]:
                del awaited[late]
        if len(awaited) < _MOST_AWAITED:
            awaited[place] = tag, due_ms + _LATE_MS

    def came(self, place: Place) -> bool:
        """Its request is here, or will not come. True: a turn was left to it until now."""
        if self._told and (known := self._told.pop(place, None)) is not None:
            tag, request_bytes, _ = known
            self._told_bytes.remove(tag, request_bytes)
        return bool(self._awaited) and self._awaited.pop(place, None) is not None

    def bytes_to(self, tag: float, now_ms: float) -> float:
        """What those are to send whose tag will be no higher than this one."""
        told = self._told
        while told:  # who has not come by now does not count
            place, (_, _, until_ms) = next(iter(told.items()))
            if until_ms > now_ms:
                break
            self.came(place)
        return self._told_bytes.up_to(tag)

    @staticmethod
    def tag_of(begin_tag: float, request_bytes: float) -> float:
        """By what the turns of requests go: where one ends."""
        return begin_tag + request_bytes

    def wait_ms(self, tag: float, free_ms: float, went_ms: float) -> float:
        """Until when a request with this tag leaves its turn, at `free_ms`, to those with a lower one who are
        about to come; -inf: nobody is. `went_ms`: when the last one went."""
        begin_ms = max(free_ms, min(went_ms, free_ms + _LATE_IN_ALL_MS - _LATE_MS))
        until_ms, last_ms = -inf, begin_ms + _LATE_MS
        for its, its_until_ms in self._awaited.values():
            # Who is not due by then would be waited for in vain.
            if its < tag and until_ms < its_until_ms <= last_ms + _LATE_MS:
                until_ms = its_until_ms
        return min(until_ms, last_ms)


class ExpectedFetches(Expected):
    """Fetches that are to come: what one brings is known only from its answer, and when that comes nobody
    knows."""

    __slots__ = ()

    def went(self, place: Place, tag: float, now_ms: float) -> None:
        """It is awaited: not until its answer is here."""

    @staticmethod
    def tag_of(begin_tag: float, request_bytes: float) -> float:
        """By what the turns of fetches go: where one begins."""
        return begin_tag
