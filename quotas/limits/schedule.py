"""A calendar of limits: when which limits hold in place of the normal ones. Pure functions of the time.

A *window* begins at a time of the local day and ends at another, on certain weekdays or on dates; it takes
whole days of the local calendar, so that a batch at 01:00 is at 01:00 in summer and winter. Where a clock is
put forward, a local time that does not exist is the instant of the change. Where it is put back, a time comes
twice: a window begins at the first and ends at the second. So each local time from begin to end is within it.

Worked example, Europe/Berlin, 01:00 to 05:00 on Sundays: on 29 March 2026 the clock goes from 02:00 to 03:00:
00:00 to 03:00 UTC, three hours. On 25 October it goes from 03:00 back to 02:00: 23:00 (of Saturday) to 04:00
UTC, five hours. All others have four.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Final, TypeAlias
from zoneinfo import ZoneInfo

DAY_NAMES: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY_S: Final = 86_400
_AROUND: Final = timedelta(days=2)
"""local dates are at most one off UTC's, and a window reaches into the next day"""
_SEARCHED_DAYS: Final = 16
"""two weeks: each weekday comes, even where one of them was left out of a calendar"""


@dataclass(frozen=True, slots=True)
class Window:
    """Limits that hold for some hours of some days."""

    limits: Mapping[str, float]
    """config key → limit"""
    begin_s: int = 0
    """seconds of the local day, below DAY_S"""
    end_s: int = DAY_S
    """the same; on the next day if it is not behind `begin_s`"""
    zone: ZoneInfo = field(default_factory=lambda: ZoneInfo("UTC"))
    weekdays: frozenset[int] = frozenset()
    """0: Monday; days on which it begins"""
    first: date | None = None
    """in place of weekdays: each day from this one…"""
    last: date | None = None
    """…to this one"""

    def __str__(self) -> str:
        """As people write it, for example `sat 01:00–05:00 Europe/Berlin`."""
        if self.first is None:
            days = ", ".join(name for day, name in enumerate(DAY_NAMES) if day in self.weekdays)
        else:
            days = str(self.first) if self.first == self.last else f"{self.first} to {self.last}"
        return f"{days} {clock(self.begin_s)}–{clock(self.end_s)} {self.zone.key}"


Schedule: TypeAlias = tuple[Window, ...]
"""of one entity; of two windows at the same time the first has the word"""


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A limit that a window has put in the place of the normal one."""

    limit: float
    normal: float
    until_unix_s: int
    """the end of the window; another may follow"""
    window: Window


def occurrences(window: Window, begin_unix_s: float, end_unix_s: float) -> Iterator[tuple[int, int]]:
    """(begin, end) in Unix seconds of each time that lies within [begin, end) in part, in order."""
    day = datetime.fromtimestamp(begin_unix_s, UTC).date() - _AROUND
    last = datetime.fromtimestamp(end_unix_s, UTC).date() + _AROUND
    while day <= last:
        found = _on(window, day)
        if found is not None and found[1] > begin_unix_s and found[0] < end_unix_s:
            yield found
        day += timedelta(days=1)


def in_force(schedule: Schedule, normal: Mapping[str, float], now_unix_s: float) -> dict[str, Scheduled]:
    """What holds now in place of `normal`, by key; empty: all is normal."""
    found: dict[str, Scheduled] = {}
    for window in schedule:
        begin, end = next(_from(window, now_unix_s), (None, 0))
        if begin is None or begin > now_unix_s:
            continue
        for key, limit in window.limits.items():
            if key in normal:
                found.setdefault(key, Scheduled(limit, normal[key], end, window))
    return found


def next_change(schedules: Iterable[Schedule], now_unix_s: float) -> int | None:
    """The next instant after `now_unix_s` at which a window begins or ends; None: there is none any more."""
    changes = (_next(window, now_unix_s) for schedule in schedules for window in schedule)
    return min((change for change in changes if change is not None), default=None)


def next_begin(window: Window, now_unix_s: float) -> int | None:
    """When it begins the next time after `now_unix_s`; None: never again."""
    return next((begin for begin, _ in _from(window, now_unix_s) if begin > now_unix_s), None)


def clock(second: int) -> str:
    """`01:00`, or `01:00:30`; the end of a day is `24:00`."""
    hours, rest = divmod(second, 3_600)
    minutes, seconds = divmod(rest, 60)
    return f"{hours:02}:{minutes:02}" + (f":{seconds:02}" if seconds else "")


def _next(window: Window, now_unix_s: float) -> int | None:
    for begin, end in _from(window, now_unix_s):
        if begin > now_unix_s:
            return begin
        if end > now_unix_s:
            return end
    return None


def _from(window: Window, now_unix_s: float) -> Iterator[tuple[int, int]]:
    """Those that are not over, in order; as far as one has to look for the next."""
    today = datetime.fromtimestamp(now_unix_s, UTC).date() - _AROUND
    day = today if window.first is None else max(today, window.first)
    # No window begins on 9999-12-31, which people write for never: there is no day behind it to end on.
    for number in range(min(_SEARCHED_DAYS + _AROUND.days, (date.max - day).days)):
        found = _on(window, day + timedelta(days=number))
        if found is not None and found[1] > now_unix_s:
            yield found


def _on(window: Window, day: date) -> tuple[int, int] | None:
    """(begin, end) of the window that begins on a local date; None: none does."""
    if window.first is None:
        if day.weekday() not in window.weekdays:
            return None
    elif not window.first <= day <= (window.last or window.first):
        return None
    begin = _instant(day, window.begin_s, window.zone, last=False)
    after = DAY_S if window.end_s <= window.begin_s else 0
    end = _instant(day, window.end_s + after, window.zone, last=True)
    return (begin, end) if begin < end else None


@lru_cache(maxsize=4_096)
def _instant(day: date, second: int, zone: ZoneInfo, *, last: bool) -> int:
    """The Unix time of a local time; `last`: the second one, where the time comes twice."""
    local = datetime.combine(day, time()) + timedelta(seconds=second)
    before, after = (int(local.replace(tzinfo=zone, fold=fold).timestamp()) for fold in (0, 1))
    if before <= after:
        return after if last else before
    # The time is left out. Of the offsets before and after the change, the earlier one puts it behind the
    # change, and the later one in front of it: the change lies between.
    offset = datetime.fromtimestamp(after, zone).utcoffset()
    low, high = after, before
    while high - low > 1:
        middle = (low + high) // 2
        if datetime.fromtimestamp(middle, zone).utcoffset() == offset:
            low = middle
        else:
            high = middle
    return high
