"""A whole night, step by step, with what is told about each: log → state → plan → files → tidying up."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Final

from pyspark.sql import SparkSession

from sluice.quotas.limits.limits import QuotaLimits
from sluice.recalibration.job import Plan, make_plan, take_day
from sluice.recalibration.log.compaction import compact
from sluice.recalibration.log.reader import LogError, LogFolder
from sluice.recalibration.policy.settings import JobSettings
from sluice.recalibration.report.publish import write_plan
from sluice.recalibration.state.leaps import LEAP_DAYS
from sluice.recalibration.state.memory import ahead_of
from sluice.recalibration.state.one_night import one_night
from sluice.recalibration.state.places import check_places
from sluice.recalibration.state.retention import forget
from sluice.recalibration.state.store import StateStore

Progress = Callable[[str], None]
_COMPACTION_WAIT_S: Final = 900.0
"""longer than a date's compaction takes; whoever waits finds it done, and has nothing left to do"""


@dataclass(frozen=True, slots=True)
class Night:
    """What a night is about. `logs` and `out` are paths or URIs."""

    logs: str
    out: str
    day: date
    is_dry_run: bool = False
    """nothing is written but in a temporary folder, and nothing is compacted"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A plan, and where it is; None: a dry run."""

    plan: Plan
    folder: str | None
    not_tidied: str = ""
    """what could not be written behind it, and why: the log's files, the states that are too old"""


def run_night(
    spark: SparkSession, night: Night, limits: QuotaLimits, job: JobSettings, tell: Progress
) -> Outcome:
    """Raises LogError, NothingToPlanError; OSError where nothing can be written, or another night runs."""
    check_places(night.out)
    if night.is_dry_run:
        return _run(spark, night, limits, job, tell)
    with one_night(spark, night.out, tell):
        return _run(spark, night, limits, job, tell)


def _run(spark: SparkSession, night: Night, limits: QuotaLimits, job: JobSettings, tell: Progress) -> Outcome:
    begun = time.monotonic()

    def say(what: str) -> None:
        tell(f"{time.monotonic() - begun:6.1f} s  {what}")

    with tempfile.TemporaryDirectory(prefix="sluice-dry-run-") as scratch:
        store = StateStore(night.out, scratch if night.is_dry_run else None)
        say(f"reading the log of {night.day} in {night.logs}")
        files = take_day(spark, night.logs, store, night.day, limits, job)
        for path, reason in files.damaged.items():
            say(f"skipped, damaged: {path}: {reason}")
        if files.copies:
            say(f"counted once: {len(files.copies)} file(s) that are copies, the first {files.copies[0]}")
        say(f"state of {night.day}: from {len(files.good)} file(s) of the {files.table}")
        today = datetime.now(UTC).date()
        for path in ahead_of(night.out, today):
            say(f"of a date to come, by a clock that was ahead: {path}; this night goes on from the newest")
        plan = make_plan(spark, store, night.day, limits, job, files, today)
        say(
            f"plan: {len(plan.entries)} limits, {sum(entry.is_change for entry in plan.entries)} to change,"
            f" {sum(entry.needs_review for entry in plan.entries)} to review;"
            f" replayed against {plan.replayed_days} day(s)"
        )
        if night.is_dry_run:
            return Outcome(plan, None)
    folder = write_plan(plan, night.out)
    say(f"written: {folder}")
    try:
        _tidy_up(spark, night, job, files.damaged, say)
    except (LogError, OSError) as error:  # the plan is there all the same, and may be put in force
        return Outcome(plan, folder, f"the plan is written; behind it: {error}")
    return Outcome(plan, folder)


def _tidy_up(
    spark: SparkSession, night: Night, job: JobSettings, damaged: Collection[str], say: Progress
) -> None:
    if job.compact and night.day < datetime.now(UTC).date():  # else a proxy may still write there
        logs = LogFolder.of(night.logs)
        place = f"{night.logs.rstrip('/') if logs.scheme else logs.root}/.compacting"
        with one_night(spark, place, say, wait_s=_COMPACTION_WAIT_S) as is_alone:
            done = compact(logs, night.day, is_alone, damaged)
        say(f"compacted: {done.files_before} file(s) of {night.day} are {done.files_after} now")
        if done.left:
            say(
                f"not compacted: {len(done.left)} file(s) unlike the others, or that cannot be read or"
                f" removed, the first {done.left[0]}"
            )
    forgotten = forget(night.out, night.logs, night.day, job)
    if forgotten.dates:
        say(f"removed: {forgotten.dates} date(s) of the log, older than {job.keep_log_days} days")
    if forgotten.kept_for is not None:
        say(
            f"nothing removed: before {night.day} the last date known is {forgotten.kept_for}; if the clock"
            f" is right, old dates go again when nights have gone on for {LEAP_DAYS} days"
        )
