"""`sluice quotas apply PLAN`: the options that go with a plan of the nightly job, and what is printed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from sluice.proxy.cli.options import CommandFailed
from sluice.proxy.cli.output import change_made
from sluice.quotas.numbers import number

if TYPE_CHECKING:
    from sluice.proxy.cli.plan.apply import Applied
    from sluice.proxy.cli.plan.file import PlannedLimit
    from sluice.proxy.cli.quotas.places import Place

_PLANS = "For a plan"
_SHOWN: Final = 20
"""lines of what is left out"""

RollbackOption = Annotated[
    bool,
    typer.Option("--rollback", help="Put back what the plan replaced here.", rich_help_panel=_PLANS),
]
MaxChangesOption = Annotated[
    int | None,
    typer.Option(
        "--max-changes", metavar="N", min=0, help="Refuse more changes than that.", rich_help_panel=_PLANS
    ),
]
IncludeReviewsOption = Annotated[
    bool,
    typer.Option(
        "--include-reviews", help="As --include, of all that waits for review.", rich_help_panel=_PLANS
    ),
]
IncludeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--include",
        metavar="WHOM",
        help="Let this one rise beyond what is written without review: `user=alice,client-id=app`.",
        rich_help_panel=_PLANS,
    ),
]
UnattendedOption = Annotated[
    bool,
    typer.Option(
        "--unattended",
        help="As far as the guards allow; the rest in later nights. No plan of a damaged log.",
        rich_help_panel=_PLANS,
    ),
]
SkipChangedOption = Annotated[
    bool,
    typer.Option("--skip-changed", help="Leave out what has changed since the plan.", rich_help_panel=_PLANS),
]
MaxAgeOption = Annotated[
    int | None,
    typer.Option(
        "--max-age-days",
        metavar="N",
        min=0,
        help="Refuse a plan whose date is older; 3 if not given.",
        rich_help_panel=_PLANS,
    ),
]
MaxCutOption = Annotated[
    float | None,
    typer.Option(
        "--max-cut-share",
        metavar="0…1",
        min=0.0,
        max=1.0,
        help="Refuse a plan that cuts a larger share; 0.5 if not given.",
        rich_help_panel=_PLANS,
    ),
]
MaxFallOption = Annotated[
    float | None,
    typer.Option(
        "--max-total-fall",
        metavar="0…1",
        min=0.0,
        max=1.0,
        help="Refuse a plan by which all limits of a key fall further; 0.25 if not given.",
        rich_help_panel=_PLANS,
    ),
]
RecordOption = Annotated[
    Path | None,
    typer.Option(
        "--record",
        metavar="FILE",
        help="What is replaced is kept here, not beside the plan.",
        rich_help_panel=_PLANS,
    ),
]


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """As they were given."""

    rollback: bool = False
    max_changes: int | None = None
    include_reviews: bool = False
    include: tuple[str, ...] = ()
    unattended: bool = False
    skip_changed: bool = False
    max_age_days: int | None = None
    max_cut_share: float | None = None
    max_total_fall: float | None = None
    record: Path | None = None

    def given(self) -> list[str]:
        """The options that a quota file has no use for."""
        ordinary = PlanOptions()
        return [
            f"--{name.replace('_', '-')}"
            for name in self.__slots__
            if getattr(self, name) != getattr(ordinary, name)
        ]


def run_plan(file: Path, place: Place, options: PlanOptions, *, dry_run: bool) -> None:
    """Apply the plan, or roll it back, and print each change. Raises ConfigError, CommandFailed."""
    from sluice.proxy.cli.plan.choice import PlanRefused

    try:
        _run(file, place, options, dry_run)
    except PlanRefused as error:
        raise CommandFailed(str(error)) from None


def _run(file: Path, place: Place, options: PlanOptions, dry_run: bool) -> None:
    from sluice.proxy.cli.plan.apply import apply_plan, apply_unattended, named, read_plan, roll_back
    from sluice.proxy.cli.plan.choice import Bounds, Reviews

    if options.rollback:
        undone = roll_back(file, place, record=options.record, dry_run=dry_run)
        last = last_line(place.name, len(undone.found), dry_run=dry_run)
        with change_made(last if undone.found and not dry_run else ""):
            for line in (*map(str, undone.found), *undone.others, last):
                print(line)
        return
    given: dict[str, Any] = {
        "max_age_days": options.max_age_days,
        "max_cut_share": options.max_cut_share,
        "max_total_fall": options.max_total_fall,
    }
    bounds = replace(
        Bounds(max_changes=options.max_changes, skip_changed=options.skip_changed),
        **{name: value for name, value in given.items() if value is not None},
    )
    plan = read_plan(file)
    reviews = Reviews(options.include_reviews, frozenset(named(list(options.include))))
    if options.unattended:
        applied = apply_unattended(
            plan, place, record=options.record, bounds=bounds, reviews=reviews, dry_run=dry_run
        )
    else:
        applied = apply_plan(
            plan, place, record=options.record, bounds=bounds, reviews=reviews, dry_run=dry_run
        )
    last = last_line(place.name, len(applied.found), dry_run=dry_run)
    with change_made(last if applied.found and not dry_run else ""):
        for line in (*map(str, applied.found), *left_out_lines(applied), last):
            print(line)


def left_out_lines(applied: Applied) -> list[str]:
    """What of a plan is not written, and why, as lines; 20 of each, those first that matter most.

    Limits that the place has by name come first, then users by a default; each the largest changes first.
    Clients make up names by the hundred, each with a default's limit: these come last, or would hide others.
    """
    from sluice.proxy.cli.plan.choice import NEEDS_REVIEW
    from sluice.proxy.cli.quotas.listing import described

    choice, new = applied.choice, {(one.whom, one.key) for one in applied.found if one.left is None}

    def is_named(limit: PlannedLimit) -> bool:
        is_there = limit.key in choice.wanted.limits.get(limit.whom, {})
        return is_there and (limit.whom, limit.key) not in new

    left_out = _by_weight(((*each, each[0].proposed) for each in choice.left_out), is_named)
    waiting = _by_weight(((limit, "", limit.up_to) for limit in choice.waiting), is_named)
    lines = [f"left out: {described(limit.whom)}: {limit.key}: {why}" for limit, why in left_out[:_SHOWN]]
    more = len(choice.left_out) - len(lines)
    if more:
        lines.append(f"left out: {more} more")
    lines += [
        f"waits for review above {number(choice.stays_at(limit))}: {described(limit.whom)}: {limit.key}: "
        f"up to {number(limit.up_to)}"
        for limit, _ in waiting[:_SHOWN]
    ]
    if len(choice.waiting) > _SHOWN:
        lines.append(f"waits for review: {len(choice.waiting) - _SHOWN} more")
    lines += [
        f"granted for 14 days: {described(limit.whom)}: {limit.key}: up to {number(limit.up_to)}"
        for limit in choice.granted
    ]
    if choice.waiting or any(why == NEEDS_REVIEW for _, why in choice.left_out):
        lines.append("What waits for review is granted with --include WHOM, or --include-reviews.")
    return lines


def _by_weight(
    items: Iterable[tuple[PlannedLimit, str, float]], is_named: Callable[[PlannedLimit], bool]
) -> list[tuple[PlannedLimit, str]]:
    """Orders (limit, what is said of it, what it was to become): those that are named first, made-up
    names last, then by the change, as a share of the key's largest, since two keys have different units. Else
    as they came."""
    changes = [(limit, said, abs(wanted - limit.current)) for limit, said, wanted in items]
    largest: dict[str, float] = {}
    for limit, _, change in changes:
        largest[limit.key] = max(change, largest.get(limit.key, 0.0))
    changes.sort(
        key=lambda each: (
            not is_named(each[0]),
            each[0].is_of_anybody,
            -each[2] / (largest[each[0].key] or 1.0),
        )
    )
    return [(limit, said) for limit, said, _ in changes]


def last_line(place: str, changes: int, *, dry_run: bool) -> str:
    """How many changes were made."""
    count = f"{changes} {'change' if changes == 1 else 'changes'}"
    return f"{place}: {f'{count} not made (--dry-run)' if dry_run else count}."
