"""A whole night, step by step, with what is told about each: log → state → plan → files → tidying up."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import partial

from pyspark.sql import SparkSession

from sluice.quotas.limits.limits import QuotaLimits
from sluice.recalibration.job import Plan, make_plan, take_day
from sluice.recalibration.log.compaction import compact
from sluice.recalibration.log.reader import LogFolder
from sluice.recalibration.policy.settings import JobSettings
from sluice.recalibration.report.publish import write_plan
from sluice.recalibration.spark.objects import CannotCreateOnceError, create_once
from sluice.recalibration.state.object_lock import object_lock
from sluice.recalibration.state.places import check_places
from sluice.recalibration.state.retention import forget
from sluice.recalibration.state.run_lock import run_lock
from sluice.recalibration.state.store import StateStore

Progress = Callable[[str], None]


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
    with ExitStack() as held:
        if not night.is_dry_run:
            _lock(held, spark, night.out, tell)
        return _run(spark, night, limits, job, tell)


def _lock(held: ExitStack, spark: SparkSession, out: str, tell: Progress) -> None:
    if "://" not in out:
        held.enter_context(run_lock(out))
        return
    try:
        held.enter_context(object_lock(out, partial(create_once, spark)))
    except CannotCreateOnceError as error:
        tell(f"not locked: {out} has no objects that are made once; run no second night there ({error})")


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
        plan = make_plan(spark, store, night.day, limits, job, files)
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
        _tidy_up(night, job, say)
    except OSError as error:  # the plan is there all the same, and may be put in force
        return Outcome(plan, folder, f"the plan is written; behind it: {error}")
    return Outcome(plan, folder)


def _tidy_up(night: Night, job: JobSettings, say: Progress) -> None:
    if job.compact and night.day < datetime.now(UTC).date():  # else a proxy may still write there
        done = compact(LogFolder.of(night.logs), night.day)
        say(f"compacted: {done.files_before} file(s) of {night.day} are {done.files_after} now")
        if done.left:
            say(
                f"not compacted: {len(done.left)} file(s) unlike the others, or that cannot be read or"
                f" removed, the first {done.left[0]}"
            )
    forgotten = forget(night.out, night.logs, night.day, job)
    if forgotten:
        say(f"removed: {forgotten} date(s) of the log, older than {job.keep_log_days} days")
