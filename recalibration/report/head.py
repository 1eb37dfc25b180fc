"""The begin of the report: what the plan was made from, and what of the log is not in it.

Of each list the first are shown, and how many more there are: a reader must not take them for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from html import escape
from typing import TYPE_CHECKING

from sluice.recalibration.report.order import BIGGEST, MAX_ROWS
from sluice.recalibration.report.words import damaged_words, entity_words

if TYPE_CHECKING:
    from sluice.recalibration.job import Plan


def head(plan: Plan) -> str:
    """Title, files, holes and declared windows, as HTML."""
    files = f"{len(plan.files.good):,} files of the access log"
    damaged = plan.files.damaged
    notes = ""
    if damaged:
        first = list(damaged.items())[:BIGGEST]
        items = [f"<code>{escape(path)}</code>: {escape(why)}" for path, why in first]
        notes = (
            f'<p class="warn">{damaged_words(len(damaged))} left out; what was in there is not in this plan.'
            f"</p>{_list(items, len(damaged) - BIGGEST)}"
        )
    if copies := len(plan.files.copies):
        were = "1 file is a copy and was" if copies == 1 else f"{copies:,} files are copies and were"
        notes += f"<p>{were} counted once.</p>"
    notes += _missing(plan) + _calendars(plan)
    return (
        f"<h1>Quota plan of {plan.day}</h1>"
        f"<p>Made from {files} and up to {plan.policy.history_days} days of history. Limits hold at each "
        "proxy by itself. Nothing is changed until the plan is applied: "
        "<code>sluice quotas apply PLAN --dry-run</code>.</p>" + notes
    )


def _missing(plan: Plan) -> str:
    """Dates and hours of the last week that the log lacks."""
    told = ""
    if plan.missing:
        told += '<p class="warn">The log lacks rows of the last week, so nothing is cut:</p>'
        told += _dated(plan.missing)
    if plan.short_holes:
        told += f"<p>Holes of two minutes at most, which hold no cut back:</p>{_dated(plan.short_holes)}"
    return told


def _dated(lost: Mapping[date, list[str]]) -> str:
    """The first of each date, and how many more it has, as a list."""
    return _list(f"{day}: {escape('; '.join(_first(each)))}" for day, each in lost.items())


def _first(told: list[str]) -> list[str]:
    more = len(told) - BIGGEST
    return [*told[:BIGGEST], f"and {more:,} more, in plan.json"] if more > 0 else told


def _calendars(plan: Plan) -> str:
    """Whose declared windows were left out."""
    if not plan.calendars:
        return ""
    items = (
        f"{escape(entity_words(entity))}: {escape('; '.join(windows))}"
        for entity, windows in list(plan.calendars.items())[:MAX_ROWS]
    )
    return (
        f"<details><summary>{len(plan.calendars):,} with a declared schedule: what was used within its "
        f"windows does not count here</summary>{_list(items, len(plan.calendars) - MAX_ROWS)}</details>"
    )


def _list(items: Iterable[str], more: int = 0) -> str:
    """HTML → a list of it; `more`: so many there are beside, if any."""
    told = [*items, f"and {more:,} more, in plan.json"] if more > 0 else items
    return f"<ul>{''.join(f'<li>{item}</li>' for item in told)}</ul>"
