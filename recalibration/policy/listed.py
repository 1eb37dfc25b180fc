"""Which of a night's entries plan.json has: clients make up names by the hundred thousand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sluice.quotas.entity_key import LimitOrigin
from sluice.recalibration.policy.plan import PlanEntry

MOST_WAITING: Final = 1_000
"""limits by a default that anybody makes up names for, that wait for a review: so many are in plan.json"""


def parted(entries: Sequence[PlanEntry]) -> tuple[list[PlanEntry], list[PlanEntry]]:
    """(Those that plan.json has, those that it only counts), each in order.

    Counted are limits by a default that anybody makes up names for, of which nothing is to be done, and all
    but the largest of those that wait for a review: they would make the file larger than `sluice quotas
    apply` reads, some million limits. All others are listed, as many as there are.
    """
    made_up = [one for one in entries if one.origin is LimitOrigin.ANYBODY and not one.is_change]
    waiting = sorted((one for one in made_up if one.needs_review), key=lambda one: -one.up_to)
    counted = set(map(id, made_up)).difference(map(id, waiting[:MOST_WAITING]))
    return (
        [one for one in entries if id(one) not in counted],
        [one for one in entries if id(one) in counted],
    )
