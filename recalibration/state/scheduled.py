"""Declared calendars and the job: what happens within a window is no evidence for the normal limit.

A batch that is allowed ten times the limit on Saturdays would raise the limit of every day; and a window in
which less is allowed would be taken for throttling. So what lies in a declared window, in whole or in part,
counts for nothing of the quota that the window sets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta

from sluice.quotas.entity import QuotaEntity
from sluice.quotas.entity_key import key_of
from sluice.quotas.kinds import KINDS, QuotaKind, Scope
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.limits.schedule import occurrences
from sluice.recalibration.state.measures import MEASURES


def left_out(
    limits: QuotaLimits, kind: QuotaKind, client: tuple[str, str, str], day: date
) -> Iterator[tuple[int, int]]:
    """(first, last) number of the windows (measures.py) of a date that do not count for the quota of this
    (user, client id, address), by the calendar of whose limit it has."""
    entity = _configured(limits, kind, client)
    schedule = limits.schedules.get(entity, ()) if entity is not None else ()
    begin = datetime(day.year, day.month, day.day, tzinfo=UTC)
    for window in schedule:
        if KINDS[kind].config_key not in window.limits:
            continue
        span_ms = MEASURES[kind].window_ms
        for begin_s, end_s in occurrences(window, begin.timestamp(), (begin + timedelta(days=1)).timestamp()):
            yield begin_s * 1_000 // span_ms, -(-end_s * 1_000 // span_ms) - 1


def calendars(limits: QuotaLimits) -> Mapping[str, list[str]]:
    """Entity (quotas/entity_key.py; a default is called so) → its windows, in words."""
    return {
        key_of(entity): [f"{window}: {', '.join(window.limits)}" for window in schedule]
        for entity, schedule in limits.schedules.items()
    }


def _configured(limits: QuotaLimits, kind: QuotaKind, client: tuple[str, str, str]) -> QuotaEntity | None:
    user, client_id, address = client
    if KINDS[kind].scope is not Scope.IPS:
        return limits.configured_for(kind, user, client_id)
    return limits.configured_for_address(address)
