"""A plan as one self-contained HTML page: no script, no other file, light and dark. Pure.

Its size is bounded, however many entities there are: MAX_CARDS entities in detail (reviews first, then the
biggest changes), MAX_ROWS groups of the others, in which who has the same quota, change and reason stands
once. What does not fit is counted, and is in plan.parquet whole. Each entity stands in one place alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from html import escape
from typing import TYPE_CHECKING, Final

from sluice.quotas.kinds import KIND_BY_KEY, KINDS, QuotaKind
from sluice.recalibration.policy.confidence import LOW, word
from sluice.recalibration.policy.plan import PlanEntry
from sluice.recalibration.policy.seasons import Season
from sluice.recalibration.report.style import STYLE
from sluice.recalibration.report.svg import bar_pair, usage_plot
from sluice.recalibration.report.words import amount, change_words, entity_words, percentile, sentences

if TYPE_CHECKING:
    from sluice.recalibration.job import Plan

MAX_CARDS: Final = 300
MAX_ROWS: Final = 300
_BIGGEST: Final = 15
_NAMES: Final = 3
_WIDE: Final = '<div class="wide" tabindex="0"><table>'
"""scrolls by itself on a narrow screen, by keys too"""
_IDS: Final = KINDS[QuotaKind.PRODUCER_IDS].config_key
"""refused, not throttled"""
_THROTTLED: Final = 0.01
"""of the time: what is more is told on a tile"""


@dataclass(frozen=True, slots=True)
class _Group:
    """Limits of one key that have the same fate."""

    key: str
    current: float
    proposed: float
    reason: str
    entities: list[str]


def page(plan: Plan) -> str:
    """The report as one HTML document."""
    entries = plan.entries
    weights = _weights(entries)
    cards = _cards(entries, weights)
    shown = dict(cards[:MAX_CARDS])
    rest = [entry for entry in entries if entry.entity not in shown]
    parts = [
        _head(plan),
        _tiles(entries),
        _kinds(plan),
        _biggest(entries, weights, shown),
        "<h2 id='reviews'>For review</h2>",
        _reviews(plan, entries, shown),
        _seasons(plan),
        "<h2>Entity by entity</h2>",
        f"<p>{_cards_told(len(shown), len(cards), plan.policy.quantile)}</p>",
        *(_card(plan, number, entity, its) for number, (entity, its) in enumerate(shown.items())),
        "<h2>All others</h2>",
        *_groups(rest),
    ]
    title = f"Quota plan of {plan.day}"
    return (
        "<!DOCTYPE html>\n"
        '<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'\">"
        f"<title>{title}</title><style>{STYLE}</style></head><body><main>{''.join(parts)}</main></body></html>\n"
    )


def _head(plan: Plan) -> str:
    files = f"{len(plan.files.good):,} files of the access log"
    damaged = len(plan.files.damaged)
    notes = ""
    if damaged:
        items = "".join(
            f"<li><code>{escape(path)}</code>: {escape(why)}</li>"
            for path, why in list(plan.files.damaged.items())[:_BIGGEST]
        )
        notes = (
            f'<p class="warn">{_files_were(damaged)} left out; what was in there is not in this plan.</p>'
            f"<ul>{items}</ul>"
        )
    copies = len(plan.files.copies)
    if copies:
        were = "1 file is a copy and was" if copies == 1 else f"{copies:,} files are copies and were"
        notes += f"<p>{were} counted once.</p>"
    notes += _missing(plan) + _calendars(plan)
    return (
        f"<h1>Quota plan of {plan.day}</h1>"
        f"<p>Made from {files} and up to {plan.policy.history_days} days of history. Limits hold at each "
        "proxy by itself. Nothing is changed until the plan is applied: "
        "<code>sluice quotas apply PLAN --dry-run</code>.</p>" + notes
    )


def _files_were(count: int) -> str:
    return "1 damaged file of the log was" if count == 1 else f"{count:,} damaged files of the log were"


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
    """The first of each date, as a list."""
    items = (f"<li>{day}: {escape('; '.join(each[:_BIGGEST]))}</li>" for day, each in lost.items())
    return f"<ul>{''.join(items)}</ul>"


def _calendars(plan: Plan) -> str:
    """Whose declared windows were left out."""
    if not plan.calendars:
        return ""
    items = "".join(
        f"<li>{escape(entity_words(entity))}: {escape('; '.join(windows))}</li>"
        for entity, windows in list(plan.calendars.items())[:MAX_ROWS]
    )
    more = len(plan.calendars) - MAX_ROWS
    items += f"<li>and {more:,} more, in plan.json</li>" if more > 0 else ""
    return (
        f"<details><summary>{len(plan.calendars):,} with a declared schedule: what was used within its "
        f"windows does not count here</summary><ul>{items}</ul></details>"
    )


def _seasons(plan: Plan) -> str:
    """What a person may declare."""
    if not plan.seasons:
        return ""
    rows = "".join(
        f"<tr><td>{escape(entity_words(entity))}</td><td><code>{key}</code></td>"
        f"<td>{', '.join(map(str, season.seen))}</td>"
        f"<td><code>- {escape(_entry_of(plan, key, season))}</code></td></tr>"
        for (key, entity), season in list(plan.seasons.items())[:MAX_ROWS]
    )
    more = len(plan.seasons) - MAX_ROWS
    told = f"<p>And {more:,} more, in plan.json.</p>" if more > 0 else ""
    return (
        "<h2>Peaks that come by the calendar</h2><p>Seen three times, at the same local time. Nothing is "
        "changed by it: who wants to, writes the entry into the <code>schedule:</code> of the quota file; "
        "then these hours count for nothing of the normal limit. Where it was throttled, more may be "
        "needed.</p>"
        f"{_WIDE}<tr><th>who</th><th>quota</th><th>seen on</th><th>entry</th></tr>{rows}</table></div>{told}"
    )


def _entry_of(plan: Plan, key: str, season: Season) -> str:
    """JSON, which YAML is too."""
    return json.dumps(season.as_schedule(key, plan.season_limit(season)))


def _tiles(entries: list[PlanEntry]) -> str:
    changes = [entry for entry in entries if entry.is_change]
    up = [entry for entry in changes if entry.proposed > entry.current]
    in_part = sum(entry.needs_review for entry in up)
    reviews = sum(entry.needs_review for entry in entries)
    throttled = sum(entry.throttled_share > _THROTTLED for entry in entries)
    low = sum(entry.confidence < LOW for entry in changes)
    seconds = [
        sum(getattr(entry.expected, name) for entry in entries if entry.key != _IDS)
        for name in ("day_now", "day_proposed")
    ]
    tiles = (
        (f"{len(entries):,}", "limits looked at", ""),
        (f"{len(up) - in_part:,}", "raised", ""),
        (f"{in_part:,}", "raised in part: the rest waits for review", "warn" if in_part else ""),
        (f"{reviews - in_part:,}", "not raised: wait for review", "warn" if reviews > in_part else ""),
        (f"{len(changes) - len(up):,}", "cut", ""),
        (f"{throttled:,}", "throttled more than 1 % of the latest day", "warn" if throttled else ""),
        (f"{low:,}", "changes of low confidence", ""),
        *_replayed(seconds),
    )
    shown = "".join(
        f'<div class="tile {kind}"><b>{value}</b><span>{what}</span></div>' for value, what, kind in tiles
    )
    return f'<div class="tiles">{shown}</div>'


def _replayed(seconds: list[float]) -> Iterator[tuple[str, str, str]]:
    """Tile of the latest day: seconds throttled by the limits now, and by those proposed."""
    if any(seconds):
        now, proposed = (f"{value:,.0f}" for value in seconds)
        yield f"{now} → {proposed} s", "throttled on the latest day, replayed: now → as proposed", ""


def _kinds(plan: Plan) -> str:
    rows = []
    for spec in KINDS.values():
        its = [entry for entry in plan.entries if entry.key == spec.config_key]
        if not its:
            continue
        room = plan.room.get(spec.config_key)
        if room is None:
            now, proposed = sum(entry.current for entry in its), sum(entry.proposed for entry in its)
        else:
            now, proposed = sum(entry.room_now for entry in its), sum(entry.room_taken for entry in its)
        rows.append(
            f"<tr><td><code>{spec.config_key}</code></td><td class=num>{len(its):,}</td>"
            f"<td class=num>{amount(spec.config_key, now)}</td>"
            f"<td class=num>{amount(spec.config_key, proposed)}</td>"
            f"<td class=num>{'no bound' if room is None else amount(spec.config_key, room)}</td>"
            f"<td>{bar_pair(spec.config_key, now, proposed, room)}</td></tr>"
        )
    return (
        "<h2>Capacity</h2><p>What all limits of a kind come to at one proxy, where there is a room to be "
        "shared a default's by what is asked for: "
        '<span class="key n">now</span> <span class="key u">proposed</span> '
        '<span class="key r">room</span></p>'
        f"{_WIDE}<tr><th>quota</th><th class=num>limits</th><th class=num>sum now</th>"
        f"<th class=num>sum proposed</th><th class=num>room</th><th>bars</th></tr>"
        f"{''.join(rows)}</table></div>"
    )


def _biggest(
    entries: Iterable[PlanEntry], weights: Mapping[str, float], shown: Mapping[str, list[PlanEntry]]
) -> str:
    """Biggest changes of those that need no review, by their share of all limits of their kind."""
    changes = [entry for entry in entries if entry.is_change and not entry.needs_review]
    changes.sort(key=lambda entry: (-_weight(entry, weights), entry.entity, entry.key))
    numbers = {entity: number for number, entity in enumerate(shown)}
    rows = "".join(_row(entry, numbers.get(entry.entity)) for entry in changes[:_BIGGEST])
    if not rows:
        return "<h2>Biggest changes</h2><p>Nothing changes but what stands above.</p>"
    return (
        f"<h2>Biggest changes</h2><p>{min(_BIGGEST, len(changes)):,} of {len(changes):,}, by their part of "
        f"all limits of their kind.</p>{_table(rows)}"
    )


def _reviews(plan: Plan, entries: Iterable[PlanEntry], shown: Mapping[str, list[PlanEntry]]) -> str:
    reviews = [entry for entry in entries if entry.needs_review]
    if not reviews:
        return "<p>Nothing waits for review.</p>"
    numbers = {entity: number for number, entity in enumerate(shown)}
    rows = "".join(_row(entry, numbers.get(entry.entity), is_review=True) for entry in reviews[:MAX_ROWS])
    more = len(reviews) - MAX_ROWS
    told = f"<p>And {more:,} more, in plan.parquet.</p>" if more > 0 else ""
    return (
        f"<p>{len(reviews):,} ask for more than a limit rises to without a person's word. "
        "What is proposed here is within the guard, and applied without a word; who is named may rise "
        "further, up to what may be granted, for 14 days: "
        f"<code>sluice quotas apply PLAN --include user=…</code>.</p>{_table(rows, is_review=True)}{told}"
    )


def _table(rows: str, *, is_review: bool = False) -> str:
    granted = "<th class=num>may be granted</th>" if is_review else ""
    return (
        f"{_WIDE}<tr><th>who</th><th>quota</th><th class=num>now</th><th class=num>proposed</th>"
        f"<th class=num>change</th><th class=num>demand asks for</th>{granted}<th>confidence</th></tr>"
        f"{rows}</table></div>"
    )


def _row(entry: PlanEntry, card: int | None, *, is_review: bool = False) -> str:
    granted = f"<td class=num>{amount(entry.key, entry.up_to)}</td>" if is_review else ""
    who = escape(entity_words(entry.entity))
    linked = f'<a href="#e{card}">{who}</a>' if card is not None else who
    return (
        f"<tr><td>{linked}</td><td><code>{entry.key}</code></td>"
        f"<td class=num>{amount(entry.key, entry.current)}</td>"
        f"<td class=num>{amount(entry.key, entry.proposed)}</td>"
        f"<td class=num>{change_words(entry)}</td><td class=num>{_wanted(entry)}</td>{granted}"
        f"<td>{word(entry.confidence)}</td></tr>"
    )


def _wanted(entry: PlanEntry) -> str:
    return amount(entry.key, entry.wanted) if entry.wanted else "unknown"


def _cards(entries: Iterable[PlanEntry], weights: Mapping[str, float]) -> list[tuple[str, list[PlanEntry]]]:
    """Entities of which something changes or is to be reviewed: reviews first, then by weight."""
    by_entity: dict[str, list[PlanEntry]] = {}
    for entry in entries:
        by_entity.setdefault(entry.entity, []).append(entry)
    found = [
        (entity, its)
        for entity, its in by_entity.items()
        if any(entry.is_change or entry.needs_review for entry in its)
    ]
    return sorted(
        found,
        key=lambda each: (
            not any(entry.needs_review for entry in each[1]),
            -max(_weight(entry, weights) for entry in each[1]),
            each[0],
        ),
    )


def _cards_told(shown: int, count: int, quantile: float) -> str:
    if not count:
        return "Nothing changes, and nothing waits for review."
    left = f"; the other {count - shown:,} are below" if count > shown else ""
    return (
        f"{shown:,} of {count:,} entities whose limits change or wait for review{left}. Bars are the "
        f"{percentile(quantile)} of a day's demand: "
        '<span class="key u">known</span> <span class="key g">a guess</span>; below them '
        'the share of time <span class="key t">throttled</span>.'
    )


def _card(plan: Plan, number: int, entity: str, entries: list[PlanEntry]) -> str:
    head = "; ".join(
        f"{entry.key} {amount(entry.key, entry.current)} → {amount(entry.key, entry.proposed)}"
        for entry in entries
        if entry.is_change or entry.needs_review
    )
    review = ' <span class="badge">review</span>' if any(entry.needs_review for entry in entries) else ""
    return (
        f'<details id="e{number}"><summary><b>{escape(entity_words(entity))}</b>{review} '
        f"<span>{escape(head)}</span></summary>{''.join(_quota(plan, entry) for entry in entries)}</details>"
    )


def _quota(plan: Plan, entry: PlanEntry) -> str:
    proxies = f"{entry.proxies} prox{'y' if entry.proxies == 1 else 'ies'}"
    words = " ".join(sentences(entry, plan.policy))
    return (
        f"<h3><code>{entry.key}</code> {amount(entry.key, entry.current)} → "
        f"{amount(entry.key, entry.proposed)} <small>{change_words(entry)}</small></h3>"
        f"<p>{escape(words)} Seen at {proxies}; all of them together asked for "
        f"{amount(entry.key, entry.pooled_demand)} on the worst day.</p>"
        f"{usage_plot(entry, plan.day, plan.policy.history_days, plan.policy.quantile)}"
    )


def _groups(entries: Iterable[PlanEntry]) -> Iterator[str]:
    """Who has the same quota, change and reason, once; the largest groups first."""
    found: dict[tuple[str, float, float, str], _Group] = {}
    count = 0
    for entry in entries:
        fate = (entry.key, entry.current, entry.proposed, entry.reason.value)
        found.setdefault(fate, _Group(*fate, [])).entities.append(entry.entity)
        count += 1
    groups = sorted(found.values(), key=lambda group: (-len(group.entities), group.key, group.entities[0]))
    if not groups:
        yield "<p>There are none.</p>"
        return
    rows = "".join(map(_group_row, groups[:MAX_ROWS]))
    yield (
        f"<p>{count:,} limits; those of the same quota, change and reason stand once.</p>"
        f"{_WIDE}<tr><th class=num>limits</th><th>quota</th><th class=num>now</th>"
        f"<th class=num>proposed</th><th>reason</th><th>such as</th></tr>{rows}</table></div>"
    )
    more = groups[MAX_ROWS:]
    if more:
        yield (
            f"<p>And {sum(len(group.entities) for group in more):,} limits in {len(more):,} smaller groups, "
            "in plan.parquet.</p>"
        )


def _group_row(group: _Group) -> str:
    names = ", ".join(escape(entity_words(entity)) for entity in group.entities[:_NAMES])
    return (
        f"<tr><td class=num>{len(group.entities):,}</td><td><code>{group.key}</code></td>"
        f"<td class=num>{amount(group.key, group.current)}</td>"
        f"<td class=num>{amount(group.key, group.proposed)}</td>"
        f"<td>{escape(group.reason.replace('_', ' '))}</td><td>{names}</td></tr>"
    )


def _weights(entries: Iterable[PlanEntry]) -> dict[str, float]:
    """Sum of the limits of each key."""
    sums = dict.fromkeys(KIND_BY_KEY, 0.0)
    for entry in entries:
        sums[entry.key] += max(entry.current, entry.proposed)
    return sums


def _weight(entry: PlanEntry, sums: Mapping[str, float]) -> float:
    return abs(entry.proposed - entry.current) / sums[entry.key]
