"""One connection's place in the turns of one bucket."""

from __future__ import annotations

from math import inf
from typing import Final

_PATIENCE: Final = 1.25
_PATIENCE_MS: Final = 50.0
"""So much later than it was told a client may come and still have its place: told · 1.25 + 50 ms"""
_RETRY_MS: Final = 3_000.0
"""and so much later where it was refused, for before it sends again it also waits by its own rules"""
_LATE_MS: Final = 50.0
"""So long a connection is waited for whose turn it would be"""
MOST_COUNTED: Final = 64
"""So many are looked at by their tags; of more each counts for as much as who asks, as by turns"""
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


class Expected:
    """Requests that are to come: of clients who were told when, and of those whose last one has just gone."""

    __slots__ = ("_awaited", "_told", "_told_bytes")

    def __init__(self) -> None:
        self._told: dict[Place, tuple[float, float]] = {}  # bytes, until when they count; mostly in order
        self._told_bytes = 0.0
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
        self._told[place] = request_bytes, until_ms
        self._told_bytes += request_bytes

    def went(self, place: Place, tag: float, now_ms: float) -> None:
        """Its last request has gone: the next is about to come."""
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
            self._told_bytes = self._told_bytes - known[0] if self._told else 0.0
        return bool(self._awaited) and self._awaited.pop(place, None) is not None

    def bytes_to(self, tag: float, request_bytes: float, now_ms: float) -> float:
        """What those are to send whose tag will be no higher than this one, of a request of so much."""
        told = self._told
        while told:  # who has not come by now does not count
            place, (_, until_ms) = next(iter(told.items()))
            if until_ms > now_ms:
                break
            self.came(place)
        if len(told) > MOST_COUNTED:
            return min(self._told_bytes, len(told) * request_bytes)
        return sum(its for place, (its, _) in told.items() if self.tag_of(place.kept_tag, its) <= tag)

    @staticmethod
    def tag_of(begin_tag: float, request_bytes: float) -> float:
        """By what the turns of requests go: where one ends."""
        return begin_tag + request_bytes

    def wait_ms(self, tag: float, free_ms: float) -> float:
        """Until when a request with this tag leaves its turn, at `free_ms`, to those with a lower one who are
        about to come; -inf: nobody is."""
        until_ms, last_ms = -inf, free_ms + _LATE_MS
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
