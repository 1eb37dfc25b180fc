"""The `schedule:` of an entry of a quota file → its windows, or what is wrong with it, with its line.

schedule:
  - days: [sat, sun]             # on which it begins: mon, tue, wed, thu, fri, sat, sun
    from: "01:00"                # of the local day; the whole day if not given
    to: "05:00"                  # on the next day if it is not behind `from`; 24:00 is the day's end
    timezone: Europe/Berlin      # UTC if not given
    producer_byte_rate: 50000000
  - date: 2026-12-01             # in place of days; up to last_date if there is one
    last_date: 2026-12-03
    producer_byte_rate: 80000000
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import date
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from sluice.quotas.files.config_error import shown, unknown_key_message, wrong_limit
from sluice.quotas.files.yaml_lines import YamlPath, YamlValue
from sluice.quotas.kinds import KIND_BY_KEY, KINDS
from sluice.quotas.limits.schedule import DAY_NAMES, DAY_S, Schedule, Window, clock

SCHEDULE_KEY: Final = "schedule"
WINDOW_KEYS: Final = ("days", "date", "last_date", "from", "to", "timezone")
TIME_PATTERN: Final = "([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?|24:00"
DATE_PATTERN: Final = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
MAX_WINDOWS: Final = 100
"""of one entry; more are a calendar that nobody reads"""
_TIME: Final = re.compile(TIME_PATTERN)
_DATE: Final = re.compile(DATE_PATTERN)
_EXAMPLE: Final = "{days: [sat], from: '01:00', to: '05:00', producer_byte_rate: 50000000}"

Tell = Callable[[YamlPath, str], None]


def window_item(window: Window) -> dict[str, object]:
    """A window as an item of `schedule:`, with all its keys: ScheduleReader reads the same from it."""
    item: dict[str, object] = {}
    if window.first is None:
        item["days"] = [name for day, name in enumerate(DAY_NAMES) if day in window.weekdays]
    else:
        item["date"] = str(window.first)
        item["last_date"] = str(window.last or window.first)
    item |= {"from": clock(window.begin_s), "to": clock(window.end_s), "timezone": window.zone.key}
    return item | dict(window.limits)


def windows_of(items: Sequence[Mapping[str, Any]]) -> Schedule:
    """The windows of a good `schedule:`, whatever way it is written."""
    limits = {key for item in items for key in item}
    return ScheduleReader(lambda *_: None).read((), [dict(item) for item in items], limits)


class ScheduleReader:
    """Reads the schedules of entries; told problems stand where the entries' own do."""

    def __init__(self, tell: Tell) -> None:
        self._problems = 0
        self._tell = tell

    def read(self, at: YamlPath, value: YamlValue, limits: Collection[str]) -> Schedule:
        """`at`: where the schedule stands. `limits`: the keys of its entry. Empty if anything is wrong."""
        before = self._problems
        if not isinstance(value, list) or not value:
            self._problem(at, f"must be a list of windows such as {_EXAMPLE}, is {shown(value)}")
            return ()
        if len(value) > MAX_WINDOWS:
            self._problem(at, f"has {len(value)} windows; at most {MAX_WINDOWS}")
            return ()
        windows = [self._window((*at, index), item, limits) for index, item in enumerate(value)]
        return tuple(filter(None, windows)) if self._problems == before else ()

    def _problem(self, at: YamlPath, message: str) -> None:
        self._problems += 1
        self._tell(at, message)

    def _window(self, at: YamlPath, item: YamlValue, known: Collection[str]) -> Window | None:
        before = self._problems
        if not isinstance(item, dict):
            self._problem(at, f"must be a mapping such as {_EXAMPLE}, is {shown(item)}")
            return None
        weekdays = self._weekdays((*at, "days"), item)
        first, last = self._dates(at, item)
        if "days" not in item and "date" not in item:
            self._problem(at, "names no day; give days such as [sat, sun], or a date such as 2026-12-01")
        begin_s = self._second((*at, "from"), item.get("from", "00:00"), is_end=False)
        end_s = self._second((*at, "to"), item.get("to", "24:00"), is_end=True)
        zone = self._zone((*at, "timezone"), item.get("timezone", "UTC"))
        limits = self._limits(at, item, known)
        if self._problems != before:
            return None
        return Window(limits, begin_s, end_s, zone, weekdays, first, last)

    def _weekdays(self, at: YamlPath, item: Mapping[str, YamlValue]) -> frozenset[int]:
        if "days" not in item:
            return frozenset()
        days = item["days"]
        if not isinstance(days, list) or not days:
            self._problem(at, f"must be a list such as [sat, sun], is {shown(days)}")
            return frozenset()
        for index, name in enumerate(days):
            if name not in DAY_NAMES:
                self._problem((*at, index), f"must be one of {', '.join(DAY_NAMES)}, is {shown(name)}")
        return frozenset(
            DAY_NAMES.index(name) for name in days if isinstance(name, str) and name in DAY_NAMES
        )

    def _dates(self, at: YamlPath, item: Mapping[str, YamlValue]) -> tuple[date | None, date | None]:
        first = self._date((*at, "date"), item)
        last = self._date((*at, "last_date"), item)
        if "date" in item and "days" in item:
            self._problem((*at, "date"), "stands in the place of days; leave one of them out")
        if "last_date" in item and "date" not in item:
            self._problem((*at, "last_date"), "goes with a date, the first one")
        elif first is not None and last is not None and last < first:
            self._problem((*at, "last_date"), f"must not be before the first one, {first}; is {last}")
        return first, last or first

    def _date(self, at: YamlPath, item: Mapping[str, YamlValue]) -> date | None:
        key = at[-1]
        if key not in item:
            return None
        text = item[str(key)]
        try:
            if isinstance(text, str) and _DATE.fullmatch(text):
                return date.fromisoformat(text)
            reason = f"is {shown(text)}"
        except ValueError as error:
            reason = str(error)
        self._problem(at, f"must be a date such as 2026-12-01: {reason}")
        return None

    def _second(self, at: YamlPath, text: YamlValue, *, is_end: bool) -> int:
        if not isinstance(text, str) or not _TIME.fullmatch(text):
            self._problem(at, f"must be a time such as '01:00', in quotes; is {shown(text)}")
            return 0
        hours, minutes, seconds = map(int, f"{text}:00".split(":")[:3])
        second = hours * 3_600 + minutes * 60 + seconds
        if second == DAY_S and not is_end:
            self._problem(at, "must be before 24:00; the next day begins at 00:00")
        if second == 0 and is_end:
            return DAY_S
        return second

    def _zone(self, at: YamlPath, name: YamlValue) -> ZoneInfo:
        try:
            if isinstance(name, str):
                return ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            pass
        self._problem(at, f"must be a time zone such as Europe/Berlin, is {shown(name)}")
        return ZoneInfo("UTC")

    def _limits(
        self, at: YamlPath, item: Mapping[str, YamlValue], known: Collection[str]
    ) -> dict[str, float]:
        limits: dict[str, float] = {}
        for key, value in item.items():
            if key in WINDOW_KEYS:
                continue
            kind = KIND_BY_KEY.get(key)
            if kind is None:
                self._problem((*at, key), unknown_key_message(key, [*WINDOW_KEYS, *KIND_BY_KEY]))
            elif key not in known:
                # A limit that comes and goes would take its clients from one bucket to another, and what
                # they owe would be forgotten.
                self._problem((*at, key), "is no limit of this entry; give it one for the normal time, too")
            else:
                try:
                    limits[key] = KINDS[kind].validated(key, value)
                except ValueError as error:
                    told = wrong_limit(KINDS[kind], value, str(error))
                    self._problem((*at, key), told)
        if not limits and not any(key in KIND_BY_KEY for key in item):
            self._problem(at, f"sets no limit; give {' or '.join(known) or 'its entry one first'}")
        return limits
