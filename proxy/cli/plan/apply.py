"""A plan of the nightly job → the limits of a place, and back: what `sluice quotas apply PLAN` does.

Of each changed limit what it was is on disk before the first is changed (record.py). Applying again what
was applied changes nothing; so does rolling back twice. A place is a quota file, a proxy's admin socket, or a
server (quota_commands.Place), and who changed what is on record there as for every change.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

from sluice.proxy.cli.options import CommandFailed, in_words
from sluice.proxy.cli.plan.choice import IN_SHADOW, Bounds, Choice, PlanRefused, Reviews, choose
from sluice.proxy.cli.plan.file import PlanFile, PlannedLimit, is_plan, parse_plan, whom_of_key
from sluice.proxy.cli.plan.ledger import (
    add_cuts,
    add_grants,
    add_rolled_back,
    cuts_of_night,
    cuts_of_week,
    folder_of,
    forget_cuts,
    forget_grants,
    forget_rolled_back,
    granted_by,
    newer_plan,
    rolled_back,
    take_back_cuts,
)
from sluice.proxy.cli.plan.nightly import cuts_in
from sluice.proxy.cli.plan.record import RECORD, PlanRecord, Replaced
from sluice.proxy.cli.quotas.edit import Whom, number
from sluice.proxy.cli.quotas.listing import Difference, Listing, described, differences
from sluice.proxy.cli.quotas.places import Place, QuotaFilePlace
from sluice.quotas.files.config_error import ConfigError, Problem
from sluice.quotas.files.load import MAX_PLAN_BYTES, read_bytes, read_given, read_text

PLAN_NAME: Final = "plan.json"
_LATEST: Final = "LATEST"
_PLANS: Final = "plans"
_MOST_NAME_BYTES: Final = 256
"""a folder's name with the line's end"""


@dataclass(frozen=True, slots=True)
class Applied:
    """What was done, or with a dry run would be."""

    found: list[Difference]
    """in what the place differs from what it was"""
    choice: Choice


@dataclass(frozen=True, slots=True)
class RolledBack:
    """What was done, or with a dry run would be."""

    found: list[Difference]
    others: list[str] = field(default_factory=list)
    """limits that somebody has changed since, given a schedule, or put in shadow mode, and that stay; grants
    that end: a sentence for each; and how many are put back, and left alone for a while"""


def plan_file_of(path: Path) -> Path | None:
    """The plan.json that is meant: this one, that of a plan's folder, or the newest of a job's output folder.

    None: `path` is something else, such as a quota file. Raises ConfigError for a folder without a plan.
    """
    if path.is_dir():
        name = _newest_run(path / _LATEST)
        folder = path if name is None else path / _PLANS / name
        file = folder / PLAN_NAME
        if not file.is_file():
            message = f"has no {PLAN_NAME}; name a plan's folder, or the job's --out"
            raise ConfigError([Problem(message, source=str(folder))])
        return file
    if path.name == PLAN_NAME or (path.is_file() and is_plan(read_text(path, "given", MAX_PLAN_BYTES))):
        return path
    return None


def _newest_run(latest: Path) -> str | None:
    """The folder that LATEST names; None: there is no such file. Raises ConfigError."""
    try:
        name = read_bytes(latest, _MOST_NAME_BYTES).decode("utf-8").strip()
        if name and name.isprintable() and "/" not in name and not name.startswith("."):
            return name
        problem = "names no folder in plans/"
    except FileNotFoundError:
        return None
    except OSError as error:
        problem = f"cannot be read: {in_words(error)}"
    except UnicodeDecodeError:
        problem = "is not UTF-8"
    remedy = "move it away and run the night again, or name a plan's folder"
    raise ConfigError([Problem(f"{problem}; {remedy}", source=str(latest))])


def read_plan(file: Path) -> PlanFile:
    """Read a plan from its file. Raises ConfigError."""
    return parse_plan(read_given(file, "plan", MAX_PLAN_BYTES), str(file))


def apply_plan(
    plan: PlanFile,
    place: Place,
    *,
    record: Path | None = None,
    bounds: Bounds | None = None,
    reviews: Reviews | None = None,
    dry_run: bool = False,
    today: date | None = None,
) -> Applied:
    """Write the plan's limits. `record`: where what they replace is kept, else beside the plan.

    Raises PlanRefused, nothing changed; ConfigError and CommandFailed as the place does.
    """
    with _alone(place, Path(plan.source), record, dry_run):
        return _applied(plan, place, record, bounds or Bounds(), reviews or Reviews(), dry_run, today)


def _alone(place: Place, plan: Path, record: Path | None, dry_run: bool) -> AbstractContextManager[None]:
    """From the first look at a place to its last change: meanwhile no other command changes a quota file,
    nor, be the place a server, the record and what outlives the plan."""
    if dry_run:
        return nullcontext()
    kept = Path(os.path.realpath(record or plan.with_name(RECORD)))
    return place.alone(folder_of(plan), kept.parent)


def _applied(
    plan: PlanFile,
    place: Place,
    record: Path | None,
    bounds: Bounds,
    reviews: Reviews,
    dry_run: bool,
    day: date | None,
) -> Applied:
    today = day or datetime.now(UTC).date()
    now = place.listing()
    kept, where = PlanRecord(record_of(plan, record)), _id_of(place)
    written = {
        (one.whom, one.key): its
        for one in kept.of(where)
        if (its := now.limits.get(one.whom, {}).get(one.key)) is not None and one.is_made(its)
    }
    choice = choose(plan, now, today, bounds, reviews, written)
    found = list(differences(now, choice.wanted))
    if not dry_run:
        _note(plan, place, choice, today, bounds, reviews)
    if found and not dry_run:
        replaced = [
            Replaced(limit.whom, limit.key, now.limits.get(limit.whom, {}).get(limit.key), limit.proposed)
            for limit in choice.chosen
        ]
        kept.add(where, replaced)
        try:
            # One limit that a server refuses would stop every night.
            place.become(choice.wanted, found, in_part=True)
        except (ConfigError, CommandFailed):
            if bounds.is_unattended:
                with suppress(ConfigError):
                    _take_back(plan, place, choice, today)
            raise
        with suppress(ConfigError):  # it has been done
            kept.settle(where, replaced)
    return Applied(found, choice)


def _take_back(plan: PlanFile, place: Place, choice: Choice, today: date) -> None:
    """Cuts that were booked and not made. A server may have made some; where it does not tell, all count."""
    made: list[PlannedLimit] = []
    if not isinstance(place, QuotaFilePlace):  # a file is written whole, or not
        try:
            now = place.listing().limits
        except CommandFailed:
            return
        made = [limit for limit in choice.chosen if now.get(limit.whom, {}).get(limit.key) == limit.proposed]
    counted = choice.as_it_is or plan
    booked = cuts_in(counted, choice.chosen)
    take_back_cuts(folder_of(Path(plan.source)), _id_of(place), today, booked, cuts_in(counted, made))


def apply_unattended(
    plan: PlanFile,
    place: Place,
    *,
    record: Path | None = None,
    bounds: Bounds | None = None,
    reviews: Reviews | None = None,
    dry_run: bool = False,
    today: date | None = None,
) -> Applied:
    """What a night may apply by itself: what needs no review, as far as the guards allow (nightly.py).

    Arguments and errors as of `apply_plan`.
    """
    if plan.damaged_files:
        raise PlanRefused(
            f"{plan.source}: not applied: {plan.damaged_files} damaged files of the log were left out of it; "
            "look at its report, then apply it by `sluice quotas apply`"
        )
    now = today or datetime.now(UTC).date()
    newer = newer_plan(Path(plan.source), plan.day, now)
    if newer is not None:
        # By the next night's memory its limits would be a person's, and anchor what was a flood.
        raise PlanRefused(
            f"{plan.source}: not applied: {newer}, of a later date, was made already; apply that, or "
            "this one by `sluice quotas apply` without --unattended"
        )
    folder, where = folder_of(Path(plan.source)), _id_of(place)
    with _alone(place, Path(plan.source), record, dry_run):
        bounds = replace(
            bounds or Bounds(),
            is_unattended=True,
            cuts_of_week=cuts_of_week(folder, where, now),
            cuts_of_night=cuts_of_night(folder, where, now),
            rolled_back=rolled_back(folder, now),
        )
        return _applied(plan, place, record, bounds, reviews or Reviews(), dry_run, now)


def _note(
    plan: PlanFile, place: Place, choice: Choice, today: date, bounds: Bounds, reviews: Reviews
) -> None:
    """What later nights must know, on disk before anything is changed."""
    folder = folder_of(Path(plan.source))
    included = [limit for limit in plan.limits if limit.whom in reviews.named]
    included += [] if bounds.is_unattended else choice.granted
    if included:
        forget_rolled_back(folder, [(limit.entity, limit.key) for limit in included])
    if choice.granted:
        add_grants(folder, choice.granted, today, Path(plan.source))
    if not bounds.is_unattended:
        forget_cuts(folder, _id_of(place))
        return
    cuts = cuts_in(choice.as_it_is or plan, choice.chosen)
    if cuts:
        add_cuts(folder, _id_of(place), today, cuts)


def roll_back(
    plan: Path,
    place: Place,
    *,
    record: Path | None = None,
    dry_run: bool = False,
    today: date | None = None,
) -> RolledBack:
    """Put back what a plan has replaced at this place, where no unattended night changes it for 14 days.

    Raises PlanRefused if nothing is on record.
    """
    with _alone(place, plan, record, dry_run):
        return _rolled_back(plan, place, record, dry_run, today or datetime.now(UTC).date())


def _rolled_back(plan: Path, place: Place, record: Path | None, dry_run: bool, today: date) -> RolledBack:
    kept = PlanRecord(record or plan.with_name(RECORD))
    replaced = kept.of(_id_of(place))
    if not replaced:
        raise PlanRefused(
            f"{kept.file}: nothing of this plan is on record at {place.name}; name the place where it was "
            "applied, and its --record if it had one"
        )
    now = place.listing()
    limits = {whom: dict(its) for whom, its in now.limits.items()}
    others = []
    for one in replaced:
        is_now = limits.get(one.whom, {}).get(one.key)
        is_in_shadow = not now.takes_own and one.key in now.shadow.get(one.whom, ())
        if is_in_shadow and is_now != one.before is not None:
            others.append(f"{described(one.whom)}: {one.key} {IN_SHADOW}; left as it is")
        elif one.is_made(is_now):
            if one.before is None and any(one.key in window for window in now.schedules.get(one.whom, ())):
                others.append(f"{described(one.whom)}: {one.key} has a schedule now; left as it is")
            elif one.before is None:
                del limits[one.whom][one.key]
            else:
                limits[one.whom][one.key] = one.before
        elif is_now != one.before:
            shown = "gone" if is_now is None else number(is_now)
            others.append(
                f"{described(one.whom)}: {one.key} is {shown} now, not {number(one.after)}; left as it is"
            )
    wanted = Listing(
        {whom: its for whom, its in limits.items() if its},
        {whom: left for whom, keys in now.shadow.items() if (left := keys & limits[whom].keys())},
        now.sections,
        now.schedules,
        now.refusing & {whom for whom, its in limits.items() if its},
    )
    found = list(differences(now, wanted))
    folder = folder_of(plan)
    undone = [one for one in replaced if wanted.limits.get(one.whom, {}).get(one.key) == one.before]
    put_back = [one for one in undone if now.limits.get(one.whom, {}).get(one.key) != one.before]
    # A newer plan's grant stays where that plan's limit does.
    granted = {*map(_limit_of, put_back), *granted_by(folder, plan)}
    ended = forget_grants(folder, [of for of in map(_limit_of, replaced) if of in granted], dry_run=dry_run)
    others += [f"no longer granted: {described(whom_of_key(entity))}: {key}" for entity, key in ended]
    if undone:  # the next night would go there again, and each night
        until = add_rolled_back(folder, map(_limit_of, undone), today, dry_run=dry_run)
        count = f"{len(undone)} limit{'' if len(undone) == 1 else 's'}"
        others.append(f"left alone by unattended nights until {until}, or --include: {count}")
    if not dry_run:
        if found:
            place.become(wanted, found, in_part=True)
        # What is by chance as it was may be led away again by the rollback of another plan.
        kept.forget(_id_of(place), put_back)
    return RolledBack(found, others)


def _limit_of(one: Replaced) -> tuple[str, str]:
    return json.dumps(dict(one.whom), ensure_ascii=False, sort_keys=True), one.key


def record_of(plan: PlanFile, record: Path | None) -> Path:
    """Where what the plan replaces is kept."""
    return record or Path(plan.source).with_name(RECORD)


def named(texts: list[str]) -> Iterator[Whom]:
    """Entities as `--include` has them: `user=alice,client-id=app`, or as JSON where a name has a comma.

    Raises ConfigError.
    """
    for text in texts:
        pairs = [part.partition("=") for part in text.split(",")]
        key = text if text.lstrip().startswith("{") else json.dumps({name: to for name, _, to in pairs})
        try:
            yield whom_of_key(key)
        except ValueError:
            message = (
                f'must be an entity such as user=alice,client-id=app, or {{"user": "alice"}}, is {text!r}'
            )
            raise ConfigError([Problem(message, path="--include")]) from None


def _id_of(place: Place) -> str:
    """The same for the same place, from wherever the command is called."""
    return str(place.file.resolve()) if isinstance(place, QuotaFilePlace) else place.name
