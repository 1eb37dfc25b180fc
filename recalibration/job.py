"""One night: the log of a date → its state; the states of 28 days and the limits in force → a plan.

    OUT/state/date=…/, OUT/windows/date=…/      what later nights read (state/store.py)
    OUT/standing/DATE.json, OUT/grants.json     anchors and grants (state/memory.py)
    OUT/beats/DATE.json                         heartbeats of proxies (state/beats.py)
    OUT/peaks.json                              days far above the usual (state/peaks.py)
    OUT/plans/DATE-RUN/, OUT/LATEST             the plan (report/publish.py)

The same date again gives the same plan: nothing in it depends on the order of files, nor on the clock but
what is of a date to come; of earlier plans it takes anchors alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from math import ceil
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from sluice.quotas.entity_key import is_exempt, limit_of, origin_of
from sluice.quotas.kinds import KIND_BY_KEY, KINDS, QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.recalibration.log.culprits import culprits
from sluice.recalibration.log.reader import LogFiles, read_log
from sluice.recalibration.policy.coverage import SEEN_DAYS, missing_hours, short_holes
from sluice.recalibration.policy.listed import parted
from sluice.recalibration.policy.plan import Known, PlanEntry, fitted_plan, planned
from sluice.recalibration.policy.replay import Replayed, replay
from sluice.recalibration.policy.seasons import Peak, Season, season_of
from sluice.recalibration.policy.settings import JobSettings, PolicySettings
from sluice.recalibration.policy.standing import NO_GRANT
from sluice.recalibration.state.beats import beats_of, read_beats, write_beats
from sluice.recalibration.state.buckets import upper_edge
from sluice.recalibration.state.daily_state import daily_state
from sluice.recalibration.state.measures import CONNECTION_CLASS
from sluice.recalibration.state.memory import grants_on, is_remembered, remembered, write_standings
from sluice.recalibration.state.peaks import peaks_in, read_peaks, unusual, write_peaks
from sluice.recalibration.state.scheduled import calendars
from sluice.recalibration.state.store import STATE, WINDOWS, EntityHistory, StateStore
from sluice.recalibration.state.windows import windows_of
from sluice.usage.access_record import HEARTBEAT_CLASS, HEARTBEAT_END_CLASS, REQUESTS

PLAN_VERSION: Final = 2


class NothingToPlanError(Exception):
    """No client in the log has a limit, so there is none to recalibrate."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The outcome of a night."""

    day: date
    entries: list[PlanEntry]
    files: LogFiles
    policy: PolicySettings = field(default_factory=PolicySettings)
    room: Mapping[str, float] = field(default_factory=dict)
    replayed_days: int = 0
    """how many dates were replayed: fewer than asked for where the log is younger"""
    missing: Mapping[date, list[str]] = field(default_factory=dict)
    """date of the last week → the hours of which the log lacks rows (policy/coverage.py)"""
    short_holes: Mapping[date, list[str]] = field(default_factory=dict)
    """likewise, too short to hold a cut back"""
    seasons: Mapping[tuple[str, str], Season] = field(default_factory=dict)
    """(key, entity) → what a person may declare (policy/seasons.py)"""
    calendars: Mapping[str, list[str]] = field(default_factory=dict)
    """whose declared windows do not count (state/scheduled.py)"""

    @property
    def listed(self) -> list[PlanEntry]:
        """The entries that plan.json has."""
        return parted(self.entries)[0]

    @property
    def unlisted(self) -> int:
        """How many entries plan.json has not."""
        return len(parted(self.entries)[1])

    def as_json(self) -> dict[str, Any]:
        """The content of plan.json."""
        return self.head_as_json() | {"entries": [entry.as_json() for entry in self.listed]}

    def head_as_json(self) -> dict[str, Any]:
        """All but the entries, which may be many. Of those that are not listed their number, and by key what
        they take of its room: who applies the plan reckons with that."""
        changes = [entry for entry in self.entries if entry.is_change]
        counted = parted(self.entries)[1]
        taken: dict[str, float] = {}
        for entry in counted:
            taken[entry.key] = taken.get(entry.key, 0.0) + entry.room_taken
        return {
            "version": PLAN_VERSION,
            "date": self.day.isoformat(),
            "policy": {
                "max_step_up": self.policy.max_step_up,
                "max_step_down": self.policy.max_step_down,
            },
            "entities": len(self.entries),
            "changes": len(changes),
            "reviews": sum(entry.needs_review for entry in self.entries),
            "log_files": len(self.files.good),
            "damaged_files": self.files.damaged,
            "copied_files": len(self.files.copies),
            "incomplete_log": {day.isoformat(): lost for day, lost in self.missing.items()},
            "short_holes": {day.isoformat(): lost for day, lost in self.short_holes.items()},
            "room": dict(self.room),
            "unlisted": {"entries": len(counted), "room_taken": taken},
            "replayed_days": self.replayed_days,
            "calendars": dict(self.calendars),
            "seasons": [
                {
                    "key": key,
                    "entity": json.loads(entity),
                    "seen": [day.isoformat() for day in season.seen],
                    "schedule": season.as_schedule(key, self.season_limit(season)),
                }
                for (key, entity), season in self.seasons.items()
            ],
        }

    def season_limit(self, season: Season) -> float:
        """With the headroom of all limits."""
        return float(ceil(self.policy.headroom * season.rate))


def take_day(
    spark: SparkSession, logs: str, store: StateStore, day: date, limits: QuotaLimits, job: JobSettings
) -> LogFiles:
    """The log of `day` → its windows and their state.

    Raises LogError when there is no log that can be used, NothingToPlanError when no row of it counts against
    a limit, and no heartbeat tells that this is all there was.
    """
    rows, files = read_log(spark, logs, day, skip_damaged=job.skip_damaged)
    while True:
        try:
            # A pass over all rows: those of requests have none.
            beats = {} if files.table == REQUESTS else beats_of(rows)
            found = windows_of(rows, limits, day, job.burst_s, beats)
            is_used = store.write(WINDOWS, found.rows, day)
            write_beats(store.tonight or store.root, day, beats)
            break
        except Exception as error:  # Spark's own and its bridge's have no base in common
            unreadable = culprits(spark, logs, files, error)
            if not unreadable:
                raise
            rows, files = read_log(
                spark, logs, day, skip_damaged=job.skip_damaged, unreadable=files.damaged | unreadable
            )
    windows = store.read(spark, WINDOWS, day, 1) if is_used else None
    if windows is None:
        if not beats or (store.has_rows(day) and _has_clients(rows)):
            raise NothingToPlanError(
                f"no client in the log of {day} has a limit: there is nothing to recalibrate"
            )
        store.write_idle(day)
        return files
    store.write(STATE, daily_state(windows, found.names), day)
    return files


def _has_clients(rows: DataFrame) -> bool:
    """Whether the log of a date tells of more than that proxies were there. Where a quota file has nobody of
    them it may be another cluster's, and what an earlier run has found stays."""
    idle = ", ".join(f"'{name}'" for name in (HEARTBEAT_CLASS, HEARTBEAT_END_CLASS, CONNECTION_CLASS))
    return not rows.where(f"api_class NOT IN ({idle})").isEmpty()


def make_plan(
    spark: SparkSession,
    store: StateStore,
    day: date,
    limits: QuotaLimits,
    job: JobSettings,
    files: LogFiles,
    today: date = date.max,
) -> Plan:
    """All entities that did something within the history and have a limit now.

    `today`: what a night of a later date left is of a clock that was ahead.
    """
    # As far back as an entity may be old enough to be cut: a gap of weeks is no log that is new.
    far = max(SEEN_DAYS, job.policy.history_days)
    seen: dict[date, Mapping[str, Set[int]]] = {each: {} for each in store.dates(day, far)}
    seen |= {each: its for each, its in store.seen(spark, day, SEEN_DAYS).items() if each in seen}
    beating = read_beats(store.root, day, far)
    if store.tonight is not None:
        beating |= read_beats(store.tonight, day, 1)
    missing = missing_hours(seen, day, beating)
    earlier, grants = remembered(store.root, day, today), grants_on(store.root, day)
    policies = {kind: job.policy_of(kind) for kind in QuotaKind}
    entries = []
    tops: dict[tuple[str, str], float] = {}
    for history in store.histories(spark, day, job.policy.history_days, job.policy.quantile):
        kind = QuotaKind(history.kind)
        limit = limit_of(limits, kind, history.entity)
        if limit is not None and not is_exempt(limits, history.entity):  # a rule may be younger than its days
            place = (KINDS[kind].config_key, history.entity)
            grant = grants.get(place, NO_GRANT)
            known = Known(
                earlier.before.get(place),
                grant.up_to,
                len(missing),
                earlier.again.get(place),
                origin_of(limits, kind, history.entity),
                grant.until,
            )
            entries.append(planned(kind, history.entity, limit, history.days, policies[kind], known))
            tops[place] = _top_rate(history, job.replay_days)
    if not entries:  # nothing was used tonight, and of nights before nobody is known who has a limit now
        store.drop_idle(day)
        raise NothingToPlanError(f"no client with a limit did anything in the log up to {day}")
    fitted = fitted_plan(_ordered(entries), job.room, job.floors, is_week_whole=not missing)
    if store.tonight is None:
        write_standings(store.root, day, fitted, earlier, partial(is_remembered, limits, grants))
    plan = Plan(
        day,
        fitted,
        files,
        job.policy,
        job.room,
        missing=missing,
        short_holes=short_holes(beating, day),
        seasons=_seasons(spark, store, day, fitted, job),
        calendars=calendars(limits),
    )
    return _with_expectations(spark, store, plan, tops, job)


def _seasons(
    spark: SparkSession, store: StateStore, day: date, entries: Sequence[PlanEntry], job: JobSettings
) -> dict[tuple[str, str], Season]:
    """Seasons in tonight's peaks and those of the nights before; tonight's are kept."""
    windows = store.read(spark, WINDOWS, day, 1)
    tonight = {} if windows is None else peaks_in(windows, day, unusual(entries))
    by_limit: dict[tuple[str, str], list[Peak]] = {}
    for peaks in (*read_peaks(store.root, day, job.keep_state_days).values(), tonight):
        for place, its in peaks.items():
            by_limit.setdefault(place, []).extend(its)
    if store.tonight is None:
        write_peaks(store.root, day, tonight, job.keep_state_days)
    known = {(entry.key, entry.entity) for entry in entries}
    found = ((place, season_of(its, day, job.timezone)) for place, its in sorted(by_limit.items()))
    return {place: season for place, season in found if season is not None and place in known}


def _with_expectations(
    spark: SparkSession,
    store: StateStore,
    plan: Plan,
    tops: Mapping[tuple[str, str], float],
    job: JobSettings,
) -> Plan:
    """Only who was ever faster than one of its two limits can be throttled by it."""
    windows = store.read(spark, WINDOWS, plan.day, job.replay_days)
    if windows is None:
        return plan
    asked = []
    for entry in plan.entries:
        kind = KIND_BY_KEY[entry.key]
        lower = KINDS[kind].rate_per_s(min(entry.current, entry.proposed))
        if tops[entry.key, entry.entity] > lower:
            asked.append(Replayed(kind, entry.entity, entry.current, entry.proposed))
    found = replay(windows, asked, plan.day, burst_s=job.burst_s, burst_h=job.burst_h)
    entries = [
        replace(entry, expected=found.get((KIND_BY_KEY[entry.key], entry.entity), entry.expected))
        for entry in plan.entries
    ]
    days = store.dates(plan.day, job.replay_days)
    return replace(plan, entries=entries, replayed_days=len(days))


def _top_rate(history: EntityHistory, days: int) -> float:
    """No window of the last `days` dates, throttle-inflated or not, had a higher rate."""
    return max((upper_edge(top) for age, top in history.top_buckets.items() if age < days), default=0.0)


def _ordered(entries: Iterable[PlanEntry]) -> list[PlanEntry]:
    keys = [KINDS[kind].config_key for kind in QuotaKind]
    return sorted(entries, key=lambda entry: (keys.index(entry.key), entry.entity))
