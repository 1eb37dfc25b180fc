"""The heartbeats of a date's log → OUT/beats/DATE.json: proxy → first and last, the holes between them, when
clients had no row of their own, and what windows there are more than once.

A date that is run again is written again; the dates of a fortnight are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, timedelta
from functools import partial
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from sluice.quotas.files.config_error import shown
from sluice.quotas.files.json_text import number_from
from sluice.recalibration.log.reader import LogFolder
from sluice.recalibration.policy.holes import SHORT_WINDOWS, WINDOWS_OF_A_DAY, Beats, first_window
from sluice.recalibration.state.json_files import read_json, write_json
from sluice.usage.access_record import (
    FILE_PART,
    FILE_PARTS,
    HEARTBEAT_CLASS,
    HEARTBEAT_END_CLASS,
    NAMELESS,
    WINDOW_MS,
)
from sluice.usage.index import OTHER_CLASS

_FOLDER: Final = "beats"
_WHOLE_BEFORE: Final = "LAG(window) OVER (PARTITION BY proxy, crowded, is_whole ORDER BY window)"
_ENDED_BEFORE: Final = "LAG(ended) OVER (PARTITION BY proxy, crowded ORDER BY window)"
"""whether the one before ended in order, whole or not: what is not whole behind such an end is a hole, too"""
_PART: Final = f"IF({FILE_PARTS} > 1, STRUCT({FILE_PARTS} AS of, {FILE_PART} AS part), NULL)"
_IS_WHOLE: Final = (
    "SIZE(parts) = AGGREGATE(ARRAY_DISTINCT(TRANSFORM(parts, p -> p.of)), 0L, (sum, of) -> sum + of)"
)
"""each part of its file is there: where a proxy was started anew, of both its files"""
_COUNTS: Final = f"CAST(api_class = '{HEARTBEAT_CLASS}' AND COALESCE({FILE_PART}, 0) <= 1 AS INT)"
"""one for each time that a window lasted to its end: a process that ended in order and the next one share it,
and a file that was cut has it in each part"""
_TOLD_TWICE: Final = "IF(times > 1, STRUCT(window, times), NULL)"
_CROWDED: Final = f"(api_class = '{OTHER_CLASS}' AND user = '')"
"""the row of what had no row of its own"""


def beats_of(rows: DataFrame) -> dict[str, Beats]:
    """`rows`: the roll-up of a date. Empty: no proxy of its log writes heartbeats.

    A window of whose rows some are lost (a part of a file that was cut, proxy/access_log/cut_files.py) is as
    one without heartbeat. Those of a file without proxies' names tell of no proxy: its log is judged by its
    hours (coverage.py).
    """
    beats = (
        rows.where(
            f"(api_class IN ('{HEARTBEAT_CLASS}', '{HEARTBEAT_END_CLASS}') OR {_CROWDED})"
            f" AND proxy NOT IN ('', '{NAMELESS}')"
        )
        .selectExpr(
            "proxy",
            f"window_start_ms DIV {WINDOW_MS} AS window",
            f"CAST(api_class = '{HEARTBEAT_END_CLASS}' AS INT) AS ended",
            f"{_CROWDED} AS crowded",
            f"{_PART} AS part",
            f"{_COUNTS} AS counts",
        )
        .groupBy("proxy", "crowded", "window")
        .agg(
            f.max("ended").alias("ended"),
            f.collect_set("part").alias("parts"),
            f.sum("counts").alias("times"),
        )
        .selectExpr("*", f"{_IS_WHOLE} AS is_whole")
        .selectExpr("*", f"{_WHOLE_BEFORE} AS before", f"{_ENDED_BEFORE} AS was_ended")
    )
    is_hole = f"IF(crowded, window > before + 1 + {SHORT_WINDOWS}, window > before + 1 AND was_ended = 0)"
    hole = f"IF(is_whole AND {is_hole}, STRUCT(before + 1 AS first, window - 1 AS last), NULL)"
    found = (
        beats.groupBy("proxy", "crowded")
        .agg(
            f.min("window").alias("first"),
            f.max("window").alias("last"),
            f.max_by("ended", "window").alias("ended"),
            f.expr("MIN(IF(is_whole, window, NULL))").alias("first_whole"),
            f.expr("MAX(IF(is_whole, window, NULL))").alias("last_whole"),
            f.sort_array(f.collect_list(f.expr(hole))).alias("holes"),
            f.sort_array(f.collect_list(f.expr(_TOLD_TWICE))).alias("repeated"),
        )
        .collect()
    )
    crowded = {
        proxy: _between(first, last, holes) for proxy, is_it, first, last, *_, holes, _ in found if is_it
    }
    return {
        proxy: Beats(
            first,
            last,
            bool(ended),
            _with_ends(first, last, first_whole, last_whole, holes),
            crowded.get(proxy, ()),
            _stretches(repeated),
        )
        for proxy, is_crowded, first, last, ended, first_whole, last_whole, holes, repeated in found
        if not is_crowded
    }


def _with_ends(
    first: int, last: int, first_whole: int | None, last_whole: int | None, holes: Iterable[tuple[int, int]]
) -> tuple[tuple[int, int], ...]:
    """The holes, those before the first window and behind the last one that is whole among them."""
    if first_whole is None or last_whole is None:
        return ((first, last),)
    inner = [(begin, end) for begin, end in holes]
    found = [(first, first_whole - 1), *inner, (last_whole + 1, last)]
    return tuple((begin, end) for begin, end in found if begin <= end)


def _between(first: int, last: int, holes: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """What lies from `first` to `last` but for the holes, in order."""
    found = []
    for begin, end in holes:
        found.append((first, begin - 1))
        first = end + 1
    return (*found, (first, last))


def _stretches(windows: Iterable[tuple[int, int]]) -> tuple[tuple[int, int, int], ...]:
    """(window, how many times), in order → (first, last, how many times) of those in a row."""
    found: list[tuple[int, int, int]] = []
    for window, times in windows:
        first, last, before = found[-1] if found else (window, -1, 0)
        if (window, times) == (last + 1, before):
            found[-1] = first, window, times
        else:
            found.append((window, window, times))
    return tuple(found)


def write_beats(out: str, day: date, beats: Mapping[str, Beats]) -> None:
    """Write down a date's heartbeats. Raises OSError."""
    place = LogFolder.of(out)
    content = {
        proxy: [
            one.first,
            one.last,
            one.is_ended,
            [list(hole) for hole in one.holes],
            # Older nights read four, or five.
            *([[list(hole) for hole in one.crowded]] if one.crowded or one.repeated else []),
            *([[list(stretch) for stretch in one.repeated]] if one.repeated else []),
        ]
        for proxy, one in sorted(beats.items())
    }
    write_json(place, f"{place.root.rstrip('/')}/{_FOLDER}/{day}.json", content)


def read_beats(out: str, latest: date, days: int) -> dict[date, dict[str, Beats]]:
    """The heartbeats of the last `days` dates up to `latest`, as far as there are any. Raises OSError."""
    place = LogFolder.of(out)
    folder = f"{place.root.rstrip('/')}/{_FOLDER}"
    found = {
        day: read_json(place, f"{folder}/{day}.json", partial(_beats, day), None)
        for day in (latest - timedelta(days=age) for age in range(days))
    }
    return {day: its for day, its in found.items() if its is not None}


def _beats(day: date, content: dict[str, Any]) -> dict[str, Beats] | None:
    """Raises what a file that no night wrote brings about."""
    begin = first_window(day)

    def window(value: Any) -> int:
        # One far off is a date that there is not, or a hole of a million dates.
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value - begin < WINDOWS_OF_A_DAY:
            raise ValueError(f"{shown(value)} is no window of {day}")
        return value

    def windows(value: Any) -> tuple[tuple[int, int], ...]:
        return tuple((window(a), window(b)) for a, b in value)

    def repeated(value: Any) -> tuple[tuple[int, int, int], ...]:
        return tuple((window(a), window(b), int(number_from(times))) for a, b, times in value)

    def one(first: Any, last: Any, ended: Any, holes: Any, crowded: Any = (), twice: Any = ()) -> Beats:
        its = windows(holes), windows(crowded), repeated(twice)
        return Beats(window(first), window(last), ended is True, *its)

    return {proxy: one(*told) for proxy, told in content.items()}
