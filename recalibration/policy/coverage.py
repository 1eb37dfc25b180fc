"""Which hours of a week's log are missing: a limit is cut only by a week that is whole. Pure.

A proxy that writes heartbeats tells its holes itself (holes.py). The log of an older one has no rows where
nothing happened, so an hour without rows is known to be missing by its like alone: at a proxy, an hour of the
day that had rows on at least half of the dates of the week. A date without rows is missing as a whole; but
what lies before the first log is not (no limit is cut within the first days of its traffic anyway).
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from datetime import date, timedelta
from types import MappingProxyType
from typing import Final, TypeAlias

from sluice.recalibration.policy.holes import Beating, holes

WEEK_DAYS: Final = 7
SEEN_DAYS: Final = 2 * WEEK_DAYS
"""looked at by the hour; whether there was a log before is known of older dates, too"""
Seen: TypeAlias = Mapping[date, Mapping[str, Set[int]]]
"""date → proxy → hours (UTC) with rows; empty: it has a log, and nothing was used, or nobody has looked"""
_NONE: Final[Beating] = MappingProxyType({})


def missing_hours(seen: Seen, latest: date, beating: Beating = _NONE) -> dict[date, list[str]]:
    """Date of the seven up to `latest` → what is missing of it, in words; empty: the week is whole.

    From a proxy's first heartbeat in `beating` on these have the word, and its hours without rows are idle.
    """
    first = min(seen, default=latest)
    dates = [day for age in range(WEEK_DAYS) if (day := latest - timedelta(days=age)) >= first]
    logged = [day for day in dates if day in seen and (seen[day] or beating.get(day))]
    found: dict[date, list[str]] = {day: ["all of it"] for day in dates if day not in logged}
    for proxy in sorted({proxy for day in logged for proxy in seen[day]}):
        often = {
            hour
            for hour in range(24)
            if 2 * sum(hour in seen[day].get(proxy, ()) for day in logged) >= len(logged)
        }
        beats_from = min((day for day, its in beating.items() if proxy in its), default=date.max)
        for day in (day for day in logged if day < beats_from):
            lost = sorted(often - set(seen[day].get(proxy, ())))
            if lost:
                found.setdefault(day, []).append(f"{proxy}: {', '.join(f'{hour:02}:00' for hour in lost)}")
    for day, lost_of_day in holes(beating, dates, short=False).items():
        if day in logged:
            found[day] = found.get(day, []) + lost_of_day
    return dict(sorted(found.items()))


def short_holes(beating: Beating, latest: date) -> dict[date, list[str]]:
    """Those of the same week that hold no cut back, as a proxy that was killed leaves them."""
    return holes(beating, [latest - timedelta(days=age) for age in range(WEEK_DAYS)], short=True)
