"""What of a plan stands first in the report, and how much of it is shown. Pure.

Limits that a person has set come first, then users by a default; names that anybody may make up come last,
and only the largest are shown: a stranger makes up thousands that wait, and would hide all others. Among
their like the largest come first, by their part of all limits of their kind. `sluice quotas apply` tells
what it leaves out in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from sluice.quotas.entity_key import LimitOrigin
from sluice.quotas.kinds import KIND_BY_KEY
from sluice.recalibration.policy.plan import PlanEntry

MAX_CARDS: Final = 300
MAX_ROWS: Final = 300
BIGGEST: Final = 15
_RANKS: Final = {LimitOrigin.OWN: 0, LimitOrigin.DEFAULT: 1, LimitOrigin.ANYBODY: 2}


def rank(entry: PlanEntry) -> int:
    """By whose limit it is; the lower the earlier."""
    return _RANKS[entry.counts_as]


def is_made_up(entry: PlanEntry) -> bool:
    """Anybody may make up more of its kind."""
    return entry.counts_as is LimitOrigin.ANYBODY


def weights(entries: Iterable[PlanEntry]) -> dict[str, float]:
    """Sum of the limits of each key, without names that anybody may make up: by these the changes of one key
    would come behind those of the others."""
    sums = dict.fromkeys(KIND_BY_KEY, 0.0)
    for entry in entries:
        if not is_made_up(entry):
            sums[entry.key] += max(entry.current, entry.proposed)
    return sums


def by_change(entries: Iterable[PlanEntry], sums: Mapping[str, float]) -> list[PlanEntry]:
    """What changes and waits for nobody, the largest first."""
    changes = [entry for entry in entries if entry.is_change and not entry.needs_review]
    return sorted(
        changes, key=lambda one: (is_made_up(one), -_part(one, one.proposed, sums), one.entity, one.key)
    )


def by_review(
    entries: Iterable[PlanEntry], sums: Mapping[str, float]
) -> tuple[list[PlanEntry], list[PlanEntry]]:
    """What waits for review, in order: (limits of those whom somebody knows, of names that anybody may make
    up), by what a person may grant beyond what is proposed."""
    waiting = sorted(
        (entry for entry in entries if entry.needs_review),
        key=lambda one: (rank(one), -_size(one, sums), one.entity, one.key),
    )
    return [one for one in waiting if not is_made_up(one)], [one for one in waiting if is_made_up(one)]


def cards(entries: Iterable[PlanEntry], sums: Mapping[str, float]) -> tuple[dict[str, list[PlanEntry]], int]:
    """(Entities that are shown in detail, of how many of which something changes or is to be reviewed):
    reviews first, made-up names last and only the largest of them."""
    by_entity: dict[str, list[PlanEntry]] = {}
    for entry in entries:
        by_entity.setdefault(entry.entity, []).append(entry)
    found = [each for each in by_entity.items() if any(one.is_change or one.needs_review for one in each[1])]
    found.sort(key=lambda each: _place(each[0], each[1], sums))
    known = [each for each in found if not all(map(is_made_up, each[1]))]
    made_up = [each for each in found if all(map(is_made_up, each[1]))]
    return dict([*known, *made_up[:BIGGEST]][:MAX_CARDS]), len(found)


def _place(
    entity: str, entries: Sequence[PlanEntry], sums: Mapping[str, float]
) -> tuple[bool, bool, int, float, str]:
    return (
        all(map(is_made_up, entries)),
        not any(entry.needs_review for entry in entries),
        min(map(rank, entries)),
        -max(_size(entry, sums) for entry in entries),
        entity,
    )


def _size(entry: PlanEntry, sums: Mapping[str, float]) -> float:
    """How much it changes, or what a person may make of it where it waits for review, as a part of all."""
    return _part(entry, max(entry.proposed, entry.up_to) if entry.needs_review else entry.proposed, sums)


def _part(entry: PlanEntry, becomes: float, sums: Mapping[str, float]) -> float:
    return abs(becomes - entry.current) / (sums[entry.key] or 1.0)
