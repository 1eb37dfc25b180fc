"""Where a proxy's log has a hole: windows without a heartbeat between two that have one. Pure.

A proxy writes a heartbeat for each 10-second window whose rows it has handed over, traffic or none
(usage/access_record.py). So an hour without traffic is known to be one; and what lies between two heartbeats
is unknown: the proxy was killed, or a file is lost. After the last heartbeat of a proxy that ended in order
nothing is a hole, nor before a proxy's first: proxies come and go. One that falls silent without a word may
have lost its way to the log, and pass on as much as ever: until the end of the next date that is a hole, and
then it is taken for gone.

Windows in which clients had no row of their own are unknown as well: what they did is added up in a row
without user (docs/access-log.md, "Bounds"), and to take that for silence would cut whoever was crowded out.
So are those with more than one heartbeat: by a clock that was set back a number stands for several times, of
which a row does not say which. For rates it is their mean (state/windows.py).

Worked example: heartbeats of windows 0 to 99 and 200 to 8,639 of a date: 100 windows, 00:16:40 to 00:33:20,
are a hole. A kill loses a minute (`rotate_s`), and a proxy is back within a minute: up to two minutes are
told, and hold no cut back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final, TypeAlias

WINDOWS_OF_A_DAY: Final = 8_640
_WINDOW_S: Final = 10
_EPOCH: Final = date(1970, 1, 1)
SHORT_WINDOWS: Final = 12
"""a hole up to this long is short"""
_MISSED_WINDOWS: Final = 2
"""by a clock that was set"""
_REPEATED: Final = ", more than once (a clock that was set back, or processes of one access_log.instance)"
_CROWDED: Final = ", clients had no rows of their own (access_log.max_keys)"


@dataclass(frozen=True, slots=True)
class Beats:
    """One proxy's heartbeats on one date. Windows are counted from 1970 on."""

    first: int
    last: int
    is_ended: bool
    """the last says that the proxy ended in order"""
    holes: tuple[tuple[int, int], ...] = ()
    """(first, last) window of each"""
    crowded: tuple[tuple[int, int], ...] = ()
    """likewise of each stretch in which clients had no row of their own; up to SHORT_WINDOWS in which all had
    one are part of it"""
    repeated: tuple[tuple[int, int, int], ...] = ()
    """(first, last, how many times) of each stretch of windows with more than one heartbeat"""


Beating: TypeAlias = Mapping[date, Mapping[str, Beats]]
"""date → proxy"""


def holes(beating: Beating, dates: Iterable[date], *, short: bool) -> dict[date, list[str]]:
    """Date of `dates` → its holes, in words: the short ones, or the others."""
    found: dict[date, list[str]] = {}
    wanted = set(dates)
    known_until = max(map(first_window, wanted), default=0) + WINDOWS_OF_A_DAY - 1
    for proxy in sorted({proxy for of_date in beating.values() for proxy in of_date}):
        its = [beating[day][proxy] for day in sorted(beating) if proxy in beating[day]]
        for first, last, why in (
            *((*hole, "") for hole in _holes_of(beating, proxy, known_until)),
            *((*hole, _CROWDED) for beats in its for hole in beats.crowded),
            *((begin, end, _REPEATED) for beats in its for begin, end, _ in beats.repeated),
        ):
            if last - first + 1 > _MISSED_WINDOWS and (last - first + 1 <= SHORT_WINDOWS) is short:
                for day, begin, end in _by_date(first, last):
                    if day in wanted:
                        found.setdefault(day, []).append(f"{proxy}: {begin} to {end}{why}")
    return dict(sorted(found.items()))


def _holes_of(beating: Beating, proxy: str, known_until: int) -> Iterator[tuple[int, int]]:
    """`known_until`: the last window of the log."""
    before: Beats | None = None
    for day in sorted(beating):
        beats = beating[day].get(proxy)
        if beats is None:
            continue
        if before is not None and not before.is_ended and beats.first > before.last + 1:
            yield before.last + 1, beats.first - 1
        yield from beats.holes
        before = beats
    if before is not None and not before.is_ended and before.last < known_until:
        end_of_next_date = (before.last // WINDOWS_OF_A_DAY + 2) * WINDOWS_OF_A_DAY - 1
        yield before.last + 1, min(known_until, end_of_next_date)


def first_window(day: date) -> int:
    """The number of a date's first window, as `Beats` counts them."""
    return (day - _EPOCH).days * WINDOWS_OF_A_DAY


def _by_date(first: int, last: int) -> Iterator[tuple[date, str, str]]:
    """(date, begin, end) of each date's part of a hole; in UTC."""
    while first <= last:
        day = first // WINDOWS_OF_A_DAY
        begin = day * WINDOWS_OF_A_DAY
        after = min(last + 1, begin + WINDOWS_OF_A_DAY)
        yield _EPOCH + timedelta(days=day), _clock(first - begin), _clock(after - begin)
        first = after


def _clock(window: int) -> str:
    """Time of day at which a window begins; the end of the last is 24:00:00."""
    minutes, seconds = divmod(window * _WINDOW_S, 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}"
