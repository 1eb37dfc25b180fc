"""The job's settings file → JobSettings, or every problem with its key and line.

    damaged_files: skip              # or refuse
    capacity:                        # what one broker bears, in the unit of the key
      producer_byte_rate: 100000000
    oversubscription: 1.5            # limits may come to that much of it
    floor:                           # no limit below (capacity or not), none above is proposed or granted
      producer_byte_rate: 10240
    ceiling:
      producer_byte_rate: 50000000
    policy:                          # every number of settings.PolicySettings but floor and ceiling
      headroom: 1.2
    replay_days: 7
    burst_s: 1.0                     # as the proxies have it: pacing.burst_s,
    producer_ids_burst_s: 3600       # producer_ids.burst_s
    compact: true                    # the log's small files of the date, when the plan is there
    timezone: Europe/Berlin          # in whose local times seasons are looked for
    keep_log_days: 90                # remove older dates of the log that nights have read; not given: none
    keep_state_days: 400             # of the job's own

What is left out has the default of settings.JobSettings.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from sluice.quotas.files.config_error import (
    ConfigError,
    Problem,
    measure_of,
    number_meant,
    shown,
    unknown_key_message,
)
from sluice.quotas.files.load import read_text
from sluice.quotas.files.yaml_lines import YamlDocument, YamlPath, YamlValue, dotted, parse_yaml
from sluice.quotas.kinds import KIND_BY_KEY
from sluice.recalibration.policy.settings import JobSettings, PolicySettings

OVERSUBSCRIPTION: Final = 1.5
"""not all use their limits at once; 1.0: never promise more than there is"""
_DAMAGED: Final = {"skip": True, "refuse": False}
_SECONDS_OF_AN_HOUR: Final = 3_600.0
_OWN_KEYS: Final = ("floor", "ceiling")
_POLICY_KEYS: Final = tuple(each.name for each in fields(PolicySettings) if each.name not in _OWN_KEYS)
_SHARES: Final = ("quantile", "day_quantile", "probe_share", "max_step_down", "hysteresis")
_FACTORS: Final = (
    "headroom", "cut_headroom", "anchor_headroom", "max_step_up", "growth_of_median", "growth_of_past",
    "near_factor", "near_growth", "max_unreviewed_rise", "max_unreviewed_growth",
)  # fmt: skip
"""below 1 a limit would fall where it is to rise: `headroom: 0.15` for 15 %"""
_COUNTS: Final = ("history_days", "recent_days", "min_days_to_cut", "min_days_of_little", "near_days")
_MOST_DAYS: Final = 3_660
"""ten years; a date that is too far off is none"""
_LEAST_LOG_DAYS: Final = 8
"""a week of dates can be run again"""


def load_settings(file: Path) -> JobSettings:
    """Raises ConfigError when the file cannot be read or used."""
    return parse_settings(read_text(file, "settings"), str(file))


def parse_settings(text: str, source: str) -> JobSettings:
    """Raises ConfigError with every problem, naming `source`, key and line. Empty: all defaults."""
    document = parse_yaml(text, source)
    reader = _Reader(document, source)
    settings = reader.settings()
    if reader.problems:
        raise ConfigError(sorted(reader.problems, key=lambda problem: problem.line or 0))
    return settings


class _Reader:
    """Takes a document apart and collects what is wrong with it."""

    def __init__(self, document: YamlDocument, source: str) -> None:
        self.problems: list[Problem] = []
        self._document = document
        self._source = source

    def settings(self) -> JobSettings:
        top = {} if self._document.value is None else self._document.value
        if not isinstance(top, dict):
            self._problem((), "must be a mapping of keys (policy:, capacity:, …)")
            return JobSettings()
        found: dict[str, Any] = {}
        readers: dict[str, Callable[[YamlPath, YamlValue], None]] = {
            "damaged_files": lambda at, value: self._damaged(at, value, found),
            "replay_days": lambda at, value: self._put(found, "replay_days", self._count(at, value)),
            "burst_s": lambda at, value: self._put(found, "burst_s", self._number(at, value)),
            "producer_ids_burst_s": lambda at, value: self._put_hours(found, self._number(at, value)),
            "compact": lambda at, value: self._put(found, "compact", self._flag(at, value)),
            "timezone": lambda at, value: self._put(found, "timezone", self._zone(at, value)),
            "keep_log_days": lambda at, value: self._put(found, "keep_log_days", self._kept(at, value)),
            "keep_state_days": lambda at, value: self._put(found, "keep_state_days", self._count(at, value)),
            "floor": lambda at, value: self._put(found, "floors", self._by_key(at, value)),
            "ceiling": lambda at, value: self._put(found, "ceilings", self._by_key(at, value)),
            "policy": lambda at, value: self._put(found, "policy", self._policy(at, value)),
        }
        for key, value in top.items():
            if key in readers:
                readers[key]((key,), value)
            elif key not in {"capacity", "oversubscription"}:
                known = [*readers, "capacity", "oversubscription"]
                self._problem((key,), unknown_key_message(key, known))
        factor = self._number(("oversubscription",), top.get("oversubscription", OVERSUBSCRIPTION))
        capacity = self._by_key(("capacity",), top.get("capacity", {}))
        self._check_order(found)
        room = {key: number * (factor or OVERSUBSCRIPTION) for key, number in capacity.items()}
        for key in (key for key, number in room.items() if math.isinf(number)):
            self._problem(
                ("capacity", key), f"is too large, oversubscribed by {factor or OVERSUBSCRIPTION:g}"
            )
        return JobSettings(**found, room=room)

    def _check_order(self, found: dict[str, Any]) -> None:
        floors, ceilings = found.get("floors", {}), found.get("ceilings", {})
        for key, floor in floors.items():
            if floor > ceilings.get(key, math.inf):
                self._problem(("floor", key), f"is above its ceiling, {ceilings[key]:g}")

    def _damaged(self, at: YamlPath, value: YamlValue, found: dict[str, Any]) -> None:
        if isinstance(value, str) and value in _DAMAGED:
            found["skip_damaged"] = _DAMAGED[value]
        else:
            self._problem(at, f"must be {' or '.join(_DAMAGED)}, is {shown(value)}")

    def _put(self, found: dict[str, Any], name: str, value: object) -> None:
        if value is not None:
            found[name] = value

    def _put_hours(self, found: dict[str, Any], seconds: float | None) -> None:
        if seconds is not None:
            found["burst_h"] = seconds / _SECONDS_OF_AN_HOUR

    def _policy(self, at: YamlPath, value: YamlValue) -> PolicySettings | None:
        if not isinstance(value, dict):
            self._problem(at, f"must be a mapping such as `headroom: 1.2`, is {shown(value)}")
            return None
        found: dict[str, Any] = {}
        for key, number in value.items():
            place = (*at, key)
            if key in _OWN_KEYS:
                self._problem(place, f"stands beside policy, by quota: `{key}: {{producer_byte_rate: …}}`")
            elif key not in _POLICY_KEYS:
                self._problem(place, unknown_key_message(key, _POLICY_KEYS))
            elif key == "past_days":
                self._put(found, key, self._past_days(place, number))
            elif key in _COUNTS:
                self._put(found, key, self._count(place, number))
            elif key in _SHARES:
                self._put(found, key, self._share(place, number))
            elif key in _FACTORS:
                self._put(found, key, self._factor(place, number))
            else:
                self._put(found, key, self._number(place, number))
        return PolicySettings(**found)

    def _past_days(self, at: YamlPath, value: YamlValue) -> tuple[int, int] | None:
        if isinstance(value, list) and len(value) == 2:
            begin, end = (self._count((*at, index), each) for index, each in enumerate(value))
            if begin is not None and end is not None and begin <= end:
                return begin, end
        self._problem(at, f"must be two ages in days such as [8, 21], is {shown(value)}")
        return None

    def _by_key(self, at: YamlPath, value: YamlValue) -> dict[str, float]:
        if not isinstance(value, dict):
            self._problem(at, f"must be a mapping such as `producer_byte_rate: 1000000`, is {shown(value)}")
            return {}
        found = {}
        for key, number in value.items():
            if key not in KIND_BY_KEY:
                self._problem((*at, key), unknown_key_message(key, KIND_BY_KEY))
                continue
            amount = self._number((*at, key), number)
            if amount is not None:
                found[key] = amount
        return found

    def _number(self, at: YamlPath, value: YamlValue) -> float | None:
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
            or value <= 0
        ):
            meant = number_meant(value, measure_of(str(at[-1])))
            self._problem(at, f"must be a number above 0, is {shown(value)}{meant}")
            return None
        return float(value)

    def _share(self, at: YamlPath, value: YamlValue) -> float | None:
        number = self._number(at, value)
        if number is not None and number >= 1.0:
            self._problem(at, f"must be below 1, is {shown(value)}")
            return None
        return number

    def _factor(self, at: YamlPath, value: YamlValue) -> float | None:
        number = self._number(at, value)
        if number is not None and number < 1.0:
            self._problem(at, f"must be 1 or more, a factor such as 1.15, is {shown(value)}")
            return None
        return number

    def _count(self, at: YamlPath, value: YamlValue) -> int | None:
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST_DAYS:
            self._problem(at, f"must be a whole number of days, 1 to {_MOST_DAYS:,}, is {shown(value)}")
            return None
        return value

    def _zone(self, at: YamlPath, value: YamlValue) -> str | None:
        try:
            return ZoneInfo(str(value)).key
        except (ZoneInfoNotFoundError, ValueError, OSError):
            self._problem(at, f"must be a time zone such as Europe/Berlin, is {shown(value)}")
            return None

    def _kept(self, at: YamlPath, value: YamlValue) -> int | None:
        days = self._count(at, value)
        if days is not None and days < _LEAST_LOG_DAYS:
            self._problem(at, f"must be {_LEAST_LOG_DAYS} days or more, for late files; is {shown(value)}")
            return None
        return days

    def _flag(self, at: YamlPath, value: YamlValue) -> bool | None:
        if not isinstance(value, bool):
            self._problem(at, f"must be true or false, is {shown(value)}")
            return None
        return value

    def _problem(self, path: YamlPath, message: str) -> None:
        line = self._document.line_of(path)
        self.problems.append(Problem(message, path=dotted(path), source=self._source, line=line))
