"""Limits with calendars → the limits of an instant. Pure: a function of the time, evaluated when one of
them changes (proxy/quota_store/file_watch.py), never for a request.

What a window sets takes the place of the entity's normal limit, and nothing else: level, bucket and shadow
mode stay, so that whoever charges the bucket goes on, with what he owes, at another rate.
"""

from __future__ import annotations

from collections.abc import Generator
from datetime import datetime
from math import inf
from typing import Final, NamedTuple

from sluice.quotas.entity import QuotaEntity
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.limits.schedule import Scheduled, in_force, next_begin, next_change
from sluice.quotas.steps import at_once

_WINDOWS_PER_STEP: Final = 20
"""about a millisecond"""


class LimitsAt(NamedTuple):
    """What holds at an instant."""

    limits: QuotaLimits
    until_unix_s: float
    """when something else may hold; infinite: never by a calendar"""


def limits_at_in_steps(base: QuotaLimits, now_unix_s: float) -> Generator[None, None, LimitsAt]:
    """What holds at this instant, pausing every millisecond or so; it is the generator's return value.

    `base`: the limits as the quota file has them; they themselves are returned while no window is open.
    """
    scheduled: dict[QuotaEntity, dict[str, Scheduled]] = {}
    until = inf
    windows = ((entity, window) for entity, schedule in base.schedules.items() for window in schedule)
    for number, (entity, window) in enumerate(windows):
        if number % _WINDOWS_PER_STEP == _WINDOWS_PER_STEP - 1:
            yield
        for key, its in in_force((window,), base.entries[entity], now_unix_s).items():
            scheduled.setdefault(entity, {}).setdefault(key, its)  # the first has the word
        until = min(until, next_change(((window,),), now_unix_s) or inf)
    if not scheduled:
        return LimitsAt(base, until)
    entries = (
        (entity, {**limits, **{key: its.limit for key, its in scheduled.get(entity, {}).items()}})
        for entity, limits in base.entries.items()
    )
    limits = yield from QuotaLimits.in_steps(
        entries,
        shadow=base.shadow,
        exempt=base.exempt.rules,
        tenants=base.tenants,
        schedules=base.schedules,
        scheduled=scheduled,
        refusing=base.refusing,
    )
    return LimitsAt(limits, until)


def limits_at(base: QuotaLimits, now_unix_s: float) -> LimitsAt:
    """The same at once."""
    return at_once(limits_at_in_steps(base, now_unix_s))


def told_now(limits: QuotaLimits, entity: QuotaEntity, key: str) -> str:
    """In a sentence, that the calendar of an entity sets this limit now; empty: it does not."""
    its = limits.scheduled.get(entity, {}).get(key)
    if its is None:
        return ""
    until = datetime.fromtimestamp(its.until_unix_s, its.window.zone).isoformat(timespec="minutes")
    return f"By its schedule ({its.window}) until {until}; normally {its.normal:,.15g}."


def told(limits: QuotaLimits, entity: QuotaEntity, key: str, now_unix_s: float) -> str:
    """What the calendar of an entity says of one of its limits, in sentences; empty: it has none."""
    now = told_now(limits, entity, key)
    if now:
        return now
    windows = [window for window in limits.schedules.get(entity, ()) if key in window.limits]
    coming = [(next_begin(window, now_unix_s), window) for window in windows]
    begins = [(begin, window) for begin, window in coming if begin is not None]
    if not begins:
        return "Its schedule is over." if windows else ""
    begin, window = min(begins, key=lambda each: each[0])
    when = datetime.fromtimestamp(begin, window.zone).isoformat(timespec="minutes")
    return f"By its schedule {window.limits[key]:,.15g} ({window}), next at {when}."
