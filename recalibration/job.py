"""One night: the log of a date → its state; the states of 28 days and the limits in force → a plan.

    OUT/state/date=…/          what later nights read
    OUT/plans/DATE-RUN/        the plan's files (report.py), renamed into place when it is whole
    OUT/LATEST                 the name of the newest run's folder, replaced last

The same date again gives the same plan: nothing in it depends on the clock, on earlier plans or on the order
of files.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from sluice.quotas.entity_key import limit_of
from sluice.quotas.kinds import KINDS, QuotaKind
from sluice.quotas.limits import QuotaLimits
from sluice.recalibration.daily_state import daily_state
from sluice.recalibration.log_reader import LogFiles, find_files, read_rollup
from sluice.recalibration.plan import PlanEntry, fitted_plan, planned
from sluice.recalibration.report import write_outputs
from sluice.recalibration.settings import PolicySettings
from sluice.recalibration.state_store import read_states, write_state

PLAN_VERSION: Final = 1
LATEST: Final = "LATEST"


@dataclass(frozen=True, slots=True)
class JobSettings:
    """What a night is told."""

    skip_damaged: bool = True
    """leave damaged files out and name them in the plan; else refuse the night"""
    policy: PolicySettings = field(default_factory=PolicySettings)
    room: Mapping[str, float] = field(default_factory=dict)
    """key → what its limits may come to at one proxy; a key without an entry has no bound"""


@dataclass(frozen=True, slots=True)
class Plan:
    """The outcome of a night."""

    day: date
    entries: list[PlanEntry]
    files: LogFiles
    policy: PolicySettings = field(default_factory=PolicySettings)
    room: Mapping[str, float] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        changes = [entry for entry in self.entries if entry.is_change]
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
            "entries": [entry.as_json() for entry in self.entries],
        }


def take_day(
    spark: SparkSession, logs: str, out: str, day: date, limits: QuotaLimits, job: JobSettings
) -> LogFiles:
    """The log of `day` → its state. Raises LogError when there is none that can be used."""
    files = find_files(logs, day)
    rollup = read_rollup(spark, files, skip_damaged=job.skip_damaged)
    write_state(daily_state(rollup, limits), _states(out), day)
    return files


def make_plan(
    spark: SparkSession, out: str, day: date, limits: QuotaLimits, job: JobSettings, files: LogFiles
) -> Plan:
    """All entities that did something within the history and have a limit now."""
    states = read_states(spark, _states(out), day, job.policy.history_days)
    entries = []
    for name, entity, days in states:
        kind = QuotaKind(name)
        limit = limit_of(limits, kind, entity)
        if limit is not None:
            entries.append(planned(kind, entity, limit, days, job.policy))
    return Plan(day, fitted_plan(_ordered(entries), job.room), files, job.policy, job.room)


def write_plan(plan: Plan, out: str) -> Path:
    """Its folder. What is half-written is never seen: the folder gets its name when it is whole."""
    plans = Path(out, "plans")
    plans.mkdir(parents=True, exist_ok=True)
    run = sum(1 for _ in plans.glob(f"{plan.day.isoformat()}-*"))
    folder = plans / f"{plan.day.isoformat()}-{run + 1}"
    beside = plans / f".{folder.name}.new"
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir()
    write_outputs(plan, beside)
    beside.rename(folder)
    latest = Path(out, f".{LATEST}.new")
    latest.write_text(folder.name + "\n", encoding="utf-8")
    os.replace(latest, Path(out, LATEST))
    return folder


def _states(out: str) -> str:
    return f"{out.rstrip('/')}/state"


def _ordered(entries: Iterable[PlanEntry]) -> list[PlanEntry]:
    keys = [KINDS[kind].config_key for kind in QuotaKind]
    return sorted(entries, key=lambda entry: (keys.index(entry.key), entry.entity))
