"""The last ten minutes of the busiest buckets, and the last hour of producer ids, in bounded memory. Pure.

Of each of MAX_ENTITIES buckets POINTS points are kept, 8 bytes each: 200 × 120 × 8 = 192 kB. A bucket that is
among the first again goes on where it was; where it was not, there are no points. The one that was not among
the first for longest makes room.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from math import isnan, nan
from typing import Final

from sluice.proxy.admin.status.model import History
from sluice.quotas.producer_ids.principal import PrincipalIds

POINTS: Final = 120
MAX_ENTITIES: Final = 200
_NOTHING: Final = array("f", [nan]) * POINTS

MAX_COUNTED: Final = 1_000
"""principals whose new producer ids are counted"""
COUNT_INTERVAL_MS: Final = 60_000.0
_COUNTS: Final = 61
"""an hour has both ends"""
_PRINCIPALS_PER_STEP: Final = 500


class _Curve:
    """Two rings; the point of tick t lies at t % POINTS."""

    __slots__ = ("delay_ms", "tick", "utilisation")

    def __init__(self, tick: int) -> None:
        self.tick = tick
        self.utilisation = _NOTHING[:]
        self.delay_ms = _NOTHING[:]

    def go_to(self, tick: int) -> None:
        """What was not noted since is unknown."""
        for missed in range(max(self.tick + 1, tick - POINTS + 1), tick + 1):
            self.utilisation[missed % POINTS] = self.delay_ms[missed % POINTS] = nan
        self.tick = tick


class Histories:
    """Curves by bucket. A point is a tick of `interval_s`, counted from whenever time begins."""

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self._curves: dict[str, _Curve] = {}  # the one noted longest ago first
        self._tick = 0

    def note(self, points: Iterable[tuple[str, float, float]], now_ms: float) -> None:
        """(id, utilisation, delay_ms) of buckets that are there now; of more than MAX_ENTITIES the first."""
        self._tick = tick = int(now_ms / 1000.0 / self.interval_s)
        for key, utilisation, delay_ms in islice(points, MAX_ENTITIES):
            curve = self._curves.pop(key, None)
            if curve is None:
                curve = _Curve(tick)
            elif curve.tick != tick:
                curve.go_to(tick)
            curve.utilisation[tick % POINTS] = utilisation
            curve.delay_ms[tick % POINTS] = delay_ms
            self._curves[key] = curve
        while len(self._curves) > MAX_ENTITIES:
            del self._curves[next(iter(self._curves))]

    def of(self, key: str) -> History | None:
        """None: it has not been among the first."""
        curve = self._curves.get(key)
        if curve is None:
            return None
        if curve.tick != self._tick:
            curve.go_to(self._tick)
        return History(
            interval_s=self.interval_s,
            utilisation=list(self._told(curve.utilisation, 3)),
            delay_ms=list(self._told(curve.delay_ms, 0)),
        )

    def _told(self, ring: array[float], digits: int) -> Iterator[float | None]:
        """From the oldest to the tick of the last note."""
        newest = self._tick % POINTS
        for value in (*ring[newest + 1 :], *ring[: newest + 1]):
            yield None if isnan(value) else round(value, digits)

    def __len__(self) -> int:
        return len(self._curves)


class NewIds:
    """How many producer ids each principal has had admitted within an hour, from counts once a minute."""

    def __init__(self, begun_ms: float) -> None:
        """`begun_ms`: since when there are principals; each begins to count at 0."""
        self._counts: dict[PrincipalIds, deque[tuple[float, int]]] = {}
        self._begun_ms = begun_ms
        self._last_ms = float("-inf")

    def note_in_steps(self, principals: Iterable[PrincipalIds], now_ms: float) -> Iterator[None]:
        """To be called more often than once a minute; `principals`: a list, of all that are there now."""
        if now_ms - self._last_ms < COUNT_INTERVAL_MS:
            return
        self._last_ms = now_ms
        since_ms, self._begun_ms = self._begun_ms, now_ms
        was_full = len(self._counts) >= MAX_COUNTED
        here: dict[PrincipalIds, deque[tuple[float, int]]] = {}
        for number, principal in enumerate(principals, start=1):
            counts = self._counts.get(principal)
            if counts is None and len(here) < MAX_COUNTED:
                # It was not there the last time, so it has counted since; unless there was no room for it.
                first = (now_ms, principal.admitted) if was_full else (since_ms, 0)
                counts = deque([first], maxlen=_COUNTS)
            if counts is not None:
                counts.append((now_ms, principal.admitted))
                here[principal] = counts
            if number % _PRINCIPALS_PER_STEP == 0:
                yield
        self._counts = here  # who is forgotten as a principal is forgotten here

    def of(self, principal: PrincipalIds, now_ms: float) -> tuple[int | None, float]:
        """New ids of a principal that is there now: (ids, within how many seconds), at most an hour and a
        minute.

        (None, 0): it is not followed.
        """
        counts = self._counts.get(principal)
        if counts is None and len(self._counts) >= MAX_COUNTED:
            return None, 0.0
        since_ms, before = (self._begun_ms, 0) if counts is None else counts[0]
        return principal.admitted - before, (now_ms - since_ms) / 1000.0
