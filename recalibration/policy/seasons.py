"""Peaks that come by the calendar, every week or every month: from three on, for a person to declare. Pure.

A batch on Saturdays needs its limit on Saturdays alone; a `schedule:` gives it, and the normal limit may fit
the other days. Nothing of it changes a limit: a plan proposes the entry, a person takes it.

A *peak* is a stretch of hours that asked for more than `PEAK_FACTOR` × the median day. A weekday is in season
if each of its last three had a peak, at local times at most an hour apart; a day of the month (counted from
its begin, or from its end) if the last three months had. Peaks on other days speak against it: with more than
one of these in the same weeks there is no season. Local times are those of `zone`, so that a change of the
clock moves nothing; where they are more than an hour apart there, those of UTC are tried. A local date counts
once the log has all of it.

Worked example: peaks on Saturdays 7, 14 and 21 November 2026, from 01:00 to 03:00 UTC: a season on `sat`,
from 01:00 to 03:00. With one on Tuesday the 10th as well it is still one, with another on the 12th none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from sluice.quotas.limits.schedule import DAY_NAMES, clock

PEAK_FACTOR: Final = 2.0
OCCURRENCES: Final = 3
_APART_S: Final = 3_600
_STRAY: Final = 1
"""peaks on other days that are borne"""
_WEEK: Final = 7
_MONTH_DAYS: Final = 31
_FROM_END: Final = 7
"""days of the month that are counted from its end"""
_HOUR_S: Final = 3_600
_DAY_S: Final = 86_400


@dataclass(frozen=True, slots=True)
class Peak:
    """One stretch; Unix seconds."""

    begin_s: int
    end_s: int
    rate: float
    """highest, in a limit's unit"""


@dataclass(frozen=True, slots=True)
class Season:
    """What a person may declare."""

    weekdays: tuple[int, ...]
    """0: Monday; empty: it is monthly"""
    next_date: date
    """when it comes the next time; local"""
    begin_s: int
    """seconds of the local day"""
    end_s: int
    """likewise; of the next day if it is not behind `begin_s`"""
    zone: str
    rate: float
    seen: tuple[date, ...]
    """local dates of its peaks, the latest last"""

    def as_schedule(self, key: str, limit: float) -> dict[str, Any]:
        """An entry of `schedule:`; of a monthly one its next date."""
        days = {"days": [DAY_NAMES[day] for day in self.weekdays]} if self.weekdays else {}
        return {
            **(days or {"date": self.next_date.isoformat()}),
            "from": clock(self.begin_s),
            "to": clock(self.end_s),
            "timezone": self.zone,
            key: limit,
        }


def peaks_of(day: date, hours: Iterable[tuple[int, float]], base: float) -> list[Peak]:
    """`hours`: (hour of the UTC date, highest rate); `base`: the median day. One hour below parts no peak."""
    begin = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())
    found: list[Peak] = []
    for hour, rate in sorted(hours):
        if rate <= PEAK_FACTOR * base:
            continue
        at = begin + hour * _HOUR_S
        if found and at - found[-1].end_s <= _HOUR_S:
            found[-1] = Peak(found[-1].begin_s, at + _HOUR_S, max(found[-1].rate, rate))
        else:
            found.append(Peak(at, at + _HOUR_S, rate))
    return found


def season_of(peaks: Sequence[Peak], latest: date, zone: str = "UTC") -> Season | None:
    """The season of one limit. `latest`: the log's last date."""
    after = latest + timedelta(days=1)
    log_end = datetime(after.year, after.month, after.day, tzinfo=UTC)
    for name in dict.fromkeys((zone, "UTC")):
        # UTC a day later than the zone: else it would tell first of what is one of the zone's.
        there = ZoneInfo(name)
        latest_whole = (log_end - timedelta(days=name != zone)).astimezone(there).date() - timedelta(days=1)
        by_date, now = _by_local_date(peaks, there), log_end.astimezone(there)
        found = _weekly(by_date, latest_whole, name, now) or _monthly(by_date, latest_whole, name, now)
        if found is not None:
            return found
    return None


_ByDate = dict[date, Peak]


def _by_local_date(peaks: Iterable[Peak], zone: ZoneInfo) -> _ByDate:
    """Times are then seconds of the local day on which a peak begins; a peak over midnight is one."""
    found: _ByDate = {}
    joined: list[Peak] = []
    for peak in sorted(peaks, key=lambda each: each.begin_s):
        if joined and peak.begin_s <= joined[-1].end_s:
            last = joined[-1]
            joined[-1] = Peak(last.begin_s, max(last.end_s, peak.end_s), max(last.rate, peak.rate))
        else:
            joined.append(peak)
    for peak in joined:
        begin = datetime.fromtimestamp(peak.begin_s, zone)
        in_day = _second_of_day(begin)
        own = Peak(in_day, in_day + peak.end_s - peak.begin_s, peak.rate)
        other = found.get(begin.date(), own)
        found[begin.date()] = Peak(
            min(own.begin_s, other.begin_s), max(own.end_s, other.end_s), max(own.rate, other.rate)
        )
    return found


def _weekly(by_date: _ByDate, latest: date, zone: str, now: datetime) -> Season | None:
    """`latest`: the last local date of which the log has all; `now`: where it ends, in local time."""
    since = latest - timedelta(days=OCCURRENCES * _WEEK - 1)
    recent = {day for day in by_date if since <= day <= latest}
    weekdays = tuple(
        weekday for weekday in range(_WEEK) if sum(day.weekday() == weekday for day in recent) == OCCURRENCES
    )
    if not weekdays or sum(day.weekday() not in weekdays for day in recent) > _STRAY:
        return None
    days = sorted(day for day in by_date if day.weekday() in weekdays and day in recent)
    after = _first_to_come(by_date[days[-1]], now)
    next_date = min(after + timedelta(days=(weekday - after.weekday()) % _WEEK) for weekday in weekdays)
    return _season(by_date, days, weekdays, next_date, zone)


def _monthly(by_date: _ByDate, latest: date, zone: str, now: datetime) -> Season | None:
    for place in (_from_begin, _from_end):
        # Dates behind `latest` are there, too: days that the log has only begun.
        for of_day in {place(day) for day in by_date if 0 <= (latest - day).days < _MONTH_DAYS} - {None}:
            assert of_day is not None
            found = _on(by_date, latest, zone, place, of_day, now)
            if found is not None:
                return found
    return None


def _on(
    by_date: _ByDate, latest: date, zone: str, place: Callable[[date], int | None], of_day: int, now: datetime
) -> Season | None:
    on_it = sorted((day for day in by_date if day <= latest and place(day) == of_day), reverse=True)
    days = on_it[:OCCURRENCES]
    months = [day.year * 12 + day.month for day in days]
    if months != [months[0] - number for number in range(OCCURRENCES)]:
        return None
    stray = sum(days[-1] <= day <= latest and day not in days for day in by_date)
    if stray > _STRAY or (latest - days[0]).days >= _MONTH_DAYS:
        return None
    next_date = max(days[0] + timedelta(days=1), _first_to_come(by_date[days[0]], now))
    while place(next_date) != of_day:
        next_date += timedelta(days=1)
    return _season(by_date, days[::-1], (), next_date, zone)


def _first_to_come(peak: Peak, now: datetime) -> date:
    """The first date on which its time is not over."""
    return now.date() + timedelta(days=_second_of_day(now) > peak.begin_s)


def _second_of_day(at: datetime) -> int:
    """By the clock, of a full minute."""
    return (at.hour * 60 + at.minute) * 60


def _season(
    by_date: _ByDate, days: Sequence[date], weekdays: tuple[int, ...], next_date: date, zone: str
) -> Season | None:
    its = [by_date[day] for day in days]
    begins, ends = [peak.begin_s for peak in its], [peak.end_s for peak in its]
    if max(begins) - min(begins) > _APART_S or max(ends) - min(begins) > _DAY_S:
        return None
    end = max(ends)
    return Season(
        weekdays,
        next_date,
        min(begins),
        end if end <= _DAY_S else end - _DAY_S,
        zone,
        max(peak.rate for peak in its),
        tuple(days),
    )


def _from_begin(day: date) -> int | None:
    return day.day


def _from_end(day: date) -> int | None:
    """0: the last of its month; None: it is far from it."""
    left = ((day.replace(day=28) + timedelta(days=4)).replace(day=1) - day).days - 1
    return left if left < _FROM_END else None
