"""What old nights leave, and how long it is kept. Whole dates alone are removed, and none that a night reads.

    OUT/windows/date=…/                        the policy's history, 28 days
    OUT/state/date=…/                          keep_state_days, 400: what was needed a year ago
    OUT/standing/DATE.json, OUT/beats/…        likewise
    LOGS/TABLE/date=…/                         keep_log_days; without it for ever: it may be others' log, too

What Spark was writing when a night was killed (OUT/windows/.spark-staging-…) goes, too, where no other night
can be at work: in an object store one may be.

Of the log only dates go of which there is a state: what no night has read is kept. Plans are kept: they are
small, and tell who was given what. And what is only called like a date is not ours. While the night's date
lies weeks behind all others (leaps.py), nothing goes.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

from pyarrow import fs

from sluice.recalibration.log.reader import LogFolder
from sluice.recalibration.policy.settings import JobSettings
from sluice.recalibration.state.leaps import leap_before
from sluice.recalibration.state.store import STATE, WINDOWS, dates_in, json_dates_in, partitions
from sluice.usage.access_record import TABLES

_JSON: Final = ("standing", "beats")
_STAGING: Final = ".spark-staging-"


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What a night has removed, or why it has removed nothing."""

    dates: int = 0
    """of the log"""
    kept_for: date | None = None
    """nothing was: this is the last date known, weeks before the night's"""


def forget(out: str, logs: str, latest: date, job: JobSettings) -> Forgotten:
    """Remove what is too old. `latest`: the night's date. Raises OSError.

    A date run again for late files finds what it read: nothing is removed that it would read.
    """
    place = LogFolder.of(out)
    if not place.scheme:
        _forget_staging(place)
    known = leap_before(partitions(place, STATE), latest)
    if known is not None:
        return Forgotten(kept_for=known)
    kept = max(job.keep_state_days, job.policy.history_days)
    _forget_dates(place, WINDOWS, latest - timedelta(days=job.policy.history_days))
    removed = 0 if job.keep_log_days is None else _forget_log(place, logs, latest, job.keep_log_days)
    _forget_dates(place, STATE, latest - timedelta(days=kept))
    for folder in _JSON:
        for path, day in json_dates_in(place, folder):
            if day <= latest - timedelta(days=kept):
                (info,) = place.filesystem.get_file_info([path])
                if info.is_file:
                    place.filesystem.delete_file(path)
    return Forgotten(removed)


def _forget_log(place: LogFolder, logs: str, latest: date, days: int) -> int:
    read = partitions(place, STATE).keys()
    of_logs = LogFolder.of(logs)
    removed = set()
    for table in TABLES:
        for path, day in dates_in(of_logs, table):
            if day <= latest - timedelta(days=days) and day in read:
                # Another night, with an output of its own, removes it as well.
                with suppress(FileNotFoundError):
                    of_logs.filesystem.delete_dir(path)
                removed.add(day)
    return len(removed)


def _forget_staging(place: LogFolder) -> None:
    for table in (WINDOWS, STATE):
        selector = fs.FileSelector(f"{place.root.rstrip('/')}/{table}", allow_not_found=True)
        for info in place.filesystem.get_file_info(selector):
            if info.base_name.startswith(_STAGING):
                place.filesystem.delete_dir(info.path)


def _forget_dates(place: LogFolder, table: str, last: date) -> None:
    for path, day in dates_in(place, table):
        if day <= last:
            place.filesystem.delete_dir(path)
