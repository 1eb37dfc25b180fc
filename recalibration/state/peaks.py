"""Days far above an entity's usual ones, kept beyond the history for policy/seasons.py: OUT/peaks.json.

    {date: {key: {entity: [[begin_s, end_s, rate], …]}}}

Only limits whose day asked for more than twice their median day have an entry, so that 400 dates are a small
file. A date that is run again has its entries anew; a night takes those up to its own date.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple
from datetime import date, timedelta
from itertools import chain
from statistics import median
from typing import Any, Final, TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from sluice.quotas.files.config_error import shown
from sluice.quotas.files.json_text import number_from
from sluice.quotas.kinds import KIND_BY_KEY
from sluice.recalibration.log.reader import LogFolder
from sluice.recalibration.policy.plan import PlanEntry
from sluice.recalibration.policy.seasons import PEAK_FACTOR, Peak, peaks_of
from sluice.recalibration.state.json_files import read_json, write_json
from sluice.recalibration.state.leaps import leap_before
from sluice.recalibration.state.measures import MEASURES
from sluice.recalibration.state.windows import entity_id
from sluice.usage.access_record import WINDOW_MS

_FILE: Final = "peaks.json"
_EPOCH: Final = date(1970, 1, 1)
_DAY_S: Final = 86_400
_LEAST_DAYS: Final = 5
"""of which the usual one is the median"""
_MOST: Final = 5_000
"""limits of a date, those far above first: on a day on which more are, everybody is"""
_Limit: TypeAlias = tuple[str, str]
"""key, entity"""
Peaks: TypeAlias = dict[date, dict[_Limit, list[Peak]]]


def unusual(entries: Iterable[PlanEntry]) -> dict[_Limit, float]:
    """Whose latest day is far above their median day → that one, in units per second."""
    found: dict[_Limit, tuple[float, float]] = {}
    for entry in entries:
        days = entry.days
        if len(days) <= _LEAST_DAYS or days[0].age_days or _is_hourly(entry.key):
            continue
        base = median(day.demand for day in days[1:])
        if days[0].demand > PEAK_FACTOR * base > 0.0:
            found[entry.key, entry.entity] = (base / days[0].demand, base)
    return {place: base for place, (_, base) in sorted(found.items(), key=lambda item: item[1])[:_MOST]}


def peaks_in(windows: DataFrame, day: date, bases: Mapping[_Limit, float]) -> dict[_Limit, list[Peak]]:
    """`windows`: of the date (windows.py). `bases`: as `unusual` tells them."""
    ids = {entity_id(KIND_BY_KEY[key], entity): (key, entity) for key, entity in bases}
    if not ids:
        return {}
    rows = (
        windows.where(f.col("entity_id").isin(list(ids)))
        .selectExpr(
            "entity_id",
            f"window * {WINDOW_MS // 1000} DIV 3600 % 24 AS hour",
            "GREATEST(rate, COALESCE(busiest, 0D)) AS rate",
        )
        .groupBy("entity_id", "hour")
        .agg(f.max("rate").alias("rate"))
    )
    hours: dict[_Limit, list[tuple[int, float]]] = {}
    for number, hour, rate in rows.collect():
        hours.setdefault(ids[number], []).append((int(hour), float(rate)))
    found = {place: peaks_of(day, its, bases[place]) for place, its in hours.items()}
    return {place: peaks for place, peaks in sorted(found.items()) if peaks}


def read_peaks(out: str, latest: date, days: int) -> Peaks:
    """The peaks of the last `days` dates before `latest`."""
    first = latest - timedelta(days=days)
    return {
        day: {
            (key, entity): [Peak(*peak) for peak in peaks]
            for key, entities in its.items()
            for entity, peaks in entities.items()
        }
        for text, its in _content(LogFolder.of(out)).items()
        if first < (day := date.fromisoformat(text)) < latest
    }


def write_peaks(out: str, day: date, peaks: Mapping[_Limit, list[Peak]], days: int) -> None:
    """Those of one date; what is older than `days` is forgotten, but not while the date lies weeks behind all
    others (leaps.py). Raises OSError."""
    place = LogFolder.of(out)
    own: dict[str, dict[str, list[Any]]] = {}
    for (key, entity), its in peaks.items():
        own.setdefault(key, {})[entity] = [astuple(peak) for peak in its]
    kept = _content(place) | {day.isoformat(): own}
    if leap_before(map(date.fromisoformat, kept), day) is None:
        first = day - timedelta(days=days)
        kept = {text: its for text, its in kept.items() if date.fromisoformat(text) > first}
    write_json(place, _path(place), dict(sorted(kept.items())))


def _content(place: LogFolder) -> dict[str, Any]:
    return read_json(place, _path(place), _checked, {})


def _checked(content: dict[str, Any]) -> dict[str, Any]:
    """Raises what a file that no night wrote brings about."""
    for text, its in content.items():
        day = date.fromisoformat(text)
        begin_s = (day - _EPOCH).days * _DAY_S
        for entities in its.values():
            for peak in chain.from_iterable(entities.values()):
                first_s, last_s, rate = peak
                whole = isinstance(first_s, int) and isinstance(last_s, int)
                if not whole or not begin_s <= first_s < last_s <= begin_s + _DAY_S:
                    raise ValueError(f"{shown(peak)} is no peak of {day}")
                number_from(rate)
    return content


def _path(place: LogFolder) -> str:
    return f"{place.root.rstrip('/')}/{_FILE}"


def _is_hourly(key: str) -> bool:
    return MEASURES[KIND_BY_KEY[key]].window_ms != WINDOW_MS
