"""A plan as one self-contained HTML page: no script, no other file, light and dark. Pure.

Its size is bounded, however many entities there are: MAX_CARDS entities in detail (in which order, order.py
tells), MAX_ROWS groups of the others, in which who has the same quota, change and reason stands once. What
does not fit is counted, and is in plan.parquet whole. Each entity stands in one place alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final

from sluice.quotas.kinds import KINDS, QuotaKind
from sluice.recalibration.policy.confidence import LOW, word
from sluice.recalibration.policy.plan import PlanEntry
from sluice.recalibration.policy.seasons import Season
from sluice.recalibration.report.head import head
from sluice.recalibration.report.order import (
    BIGGEST,
    MAX_ROWS,
    by_change,
    by_review,
    cards,
    is_made_up,
    rank,
    weights,
)
from sluice.recalibration.report.style import STYLE
from sluice.recalibration.report.svg import bar_pair, usage_plot
from sluice.recalibration.report.words import (
    amount,
    change_words,
    entity_words,
    percentile,
    sentences,
    unlisted_words,
)

if TYPE_CHECKING:
    from sluice.recalibration.job import Plan

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
    sums = weights(entries)
    shown, count = cards(entries, sums)
    rest = [entry for entry in entries if entry.entity not in shown]
    parts = [
        head(plan),
        _tiles(entries),
        _kinds(plan),
        _biggest(by_change(entries, sums), shown),
        "<h2 id='reviews'>For review</h2>",
        _reviews(*by_review(entries, sums), shown),
        _seasons(plan),
        "<h2>Entity by entity</h2>",
        f"<p>{_cards_told(len(shown), count, plan.policy.quantile)}</p>",
        *(_card(plan, number, entity, its) for number, (entity, its) in enumerate(shown.items())),
        "<h2>All others</h2>",
        f"<p>{unlisted_words(plan.unlisted)}</p>" if plan.unlisted else "",
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


def _seasons(plan: Plan) -> str:
    """What a person may declare."""
    if not plan.seasons:
        return ""
    ranks = {(entry.key, entry.entity): rank(entry) for entry in plan.entries}
    rows = "".join(
        f"<tr><td>{escape(entity_words(entity))}</td><td><code>{key}</code></td>"
        f"<td>{', '.join(map(str, season.seen))}</td>"
        f"<td><code>- {escape(_entry_of(plan, key, season))}</code></td></tr>"
        for (key, entity), season in sorted(plan.seasons.items(), key=lambda each: ranks.get(each[0], 0))[
            :MAX_ROWS
        ]
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
            known = [entry for entry in its if not is_made_up(entry)]
            now, proposed = sum(entry.current for entry in known), sum(entry.proposed for entry in known)
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
        "<h2>Capacity</h2><p>What all limits of a kind come to at one proxy. Where there is a room to be "
        "shared, a default's counts by what is asked for; where there is none, those by a default for any "
        "client id or address, which anybody may make up, do not count: "
        '<span class="key n">now</span> <span class="key u">proposed</span> '
        '<span class="key r">room</span></p>'
        f"{_WIDE}<tr><th>quota</th><th class=num>limits</th><th class=num>sum now</th>"
        f"<th class=num>sum proposed</th><th class=num>room</th><th>bars</th></tr>"
        f"{''.join(rows)}</table></div>"
    )


def _biggest(changes: list[PlanEntry], shown: Mapping[str, list[PlanEntry]]) -> str:
    """Biggest changes of those that need no review, by their share of all limits of their kind."""
    rows = _rows(changes[:BIGGEST], shown)
    if not rows:
        return "<h2>Biggest changes</h2><p>Nothing changes but what stands above.</p>"
    return (
        f"<h2>Biggest changes</h2><p>{min(BIGGEST, len(changes)):,} of {len(changes):,}, by their part of "
        f"all limits of their kind.</p>{_table(rows)}"
    )


def _reviews(known: list[PlanEntry], made_up: list[PlanEntry], shown: Mapping[str, list[PlanEntry]]) -> str:
    """`made_up`: of names that anybody may make up; of them the largest, and the others in a sentence."""
    if not known and not made_up:
        return "<p>Nothing waits for review.</p>"
    first = known[:MAX_ROWS]
    largest = made_up[: min(BIGGEST, MAX_ROWS - len(first))]
    told = [f"And {more:,} more, in plan.parquet."] if (more := len(known) - len(first)) > 0 else []
    if others := made_up[len(largest) :]:
        told.append(
            f"And {len(others):,} more, smaller ones, by a default for any client id or address, names that "
            "anybody may make up: in plan.parquet."
        )
    return (
        f"<p>{len(known) + len(made_up):,} ask for more than a limit rises to without a person's word. "
        "What is proposed here is within the guard, and applied without a word; who is named may rise "
        "further, up to what may be granted, for 14 days: "
        "<code>sluice quotas apply PLAN --include user=…</code>.</p>"
        f"{_table(_rows([*first, *largest], shown, is_review=True), is_review=True)}"
        f"{''.join(f'<p>{each}</p>' for each in told)}"
    )


def _rows(
    entries: Iterable[PlanEntry], shown: Mapping[str, list[PlanEntry]], *, is_review: bool = False
) -> str:
    """`shown`: entities with a card, in order."""
    numbers = {entity: number for number, entity in enumerate(shown)}
    return "".join(_row(entry, numbers.get(entry.entity), is_review=is_review) for entry in entries)


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
