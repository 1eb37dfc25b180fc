"""What of a plan the report shows first, and that it tells how much it does not show."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from sluice.quotas.entity_key import LimitOrigin
from sluice.recalibration.job import Plan
from sluice.recalibration.log.reader import LogFiles
from sluice.recalibration.policy.plan import PlanEntry
from sluice.recalibration.policy.policy import Reason
from sluice.recalibration.policy.seasons import Season
from sluice.recalibration.report.order import BIGGEST
from sluice.recalibration.report.page import page
from tests.recalibration.report.test_report import ALICE, DAY, Page, plan_of


def waits(origin: LimitOrigin, up_to: float, **entity: str) -> PlanEntry:
    name = json.dumps({part.replace("_", "-"): of for part, of in entity.items()}, sort_keys=True)
    return replace(
        ALICE,
        entity=name,
        proposed=ALICE.current,
        reason=Reason.GUARD,
        needs_review=True,
        up_to=up_to,
        origin=origin,
    )


def made_up(number: int, up_to: float = 1e9) -> list[PlanEntry]:
    return [waits(LimitOrigin.ANYBODY, up_to + each, client_id=f"made-{each:03}") for each in range(number)]


def parts_of(plan: Plan) -> tuple[str, str]:
    """(The table of reviews, the cards), as text."""
    _, _, after = page(plan).partition("<h2 id='reviews'>For review</h2>")
    reviews, _, after = after.partition("<h2>Entity by entity</h2>")
    return reviews, after.partition("<h2>All others</h2>")[0]


def places(text: str, *names: str) -> list[int]:
    found = [text.find(name) for name in names]
    assert min(found) >= 0, names
    return found


@pytest.mark.parametrize("number", [400, 16, 15])
def test_made_up_names_hide_nobodys_review(number: int) -> None:
    """`{"client-id"` comes before `{"user"`: with 300 that wait the honest one was told in a count alone."""
    plan = plan_of(*made_up(number), waits(LimitOrigin.OWN, 2_000.0, user="honest"))
    reviews, cards = parts_of(plan)
    assert reviews.count("<tr>") == 1 + 1 + BIGGEST
    assert places(reviews, "user honest", "client-id made-") == sorted(
        places(reviews, "user honest", "client-id made-")
    )
    assert "user honest" in cards
    assert "client-id made-" in cards
    assert cards.count("<details") == 1 + BIGGEST
    assert f"{number + 1:,} ask for more" in reviews
    told = f"And {number - BIGGEST:,} more, smaller ones, by a default for any client id or address"
    assert (told in reviews) == (number > BIGGEST)
    assert f"made-{number - 1:03}" in reviews, "the largest of them"


def test_limits_of_their_own_come_first_then_users_then_the_largest() -> None:
    entries = [
        *made_up(1),
        waits(LimitOrigin.DEFAULT, 9_000.0, user="by-default"),
        waits(LimitOrigin.OWN, 2_000.0, user="small"),
        waits(LimitOrigin.OWN, 3_000.0, client_id="large"),
    ]
    names = ("client-id large", "user small", "user by-default", "client-id made-000")
    for part in parts_of(plan_of(*entries)):
        assert places(part, *names) == sorted(places(part, *names))


def test_made_up_names_take_no_card_from_a_change() -> None:
    change = replace(ALICE, entity='{"user": "zoe"}')
    _, cards = parts_of(plan_of(*made_up(400), change))
    assert "user zoe" in cards


def test_seasons_of_made_up_names_come_last() -> None:
    seen = tuple(DAY - timedelta(days=age) for age in (14, 7, 0))
    season = Season((5,), DAY + timedelta(days=7), 3_600, 10_800, "UTC", 20_000.0, seen)
    entries = [*made_up(400), ALICE]
    plan = replace(plan_of(*entries), seasons={(each.key, each.entity): season for each in entries})
    told = page(plan).partition("Peaks that come by the calendar")[2].partition("Entity by entity")[0]
    assert "user alice" in told
    assert "And 101 more" in told


def test_made_up_names_count_nothing_in_the_sum_of_a_key_without_a_room() -> None:
    plan = replace(plan_of(*made_up(100), ALICE), room={})
    told = Page(page(plan)).text.partition("Capacity")[2].partition("Biggest changes")[0]
    assert "1 kB/s" in told
    assert "1.5 kB/s" in told
    assert "101 kB/s" not in told


@pytest.mark.parametrize("number", [15, 16, 5_000])
def test_of_holes_and_damaged_files_that_are_not_shown_the_number_is(number: int) -> None:
    holes = {DAY - timedelta(days=age): [f"pod-{each}: 03:00" for each in range(number)] for age in range(2)}
    files = LogFiles([], {f"part-{each}": "cut off" for each in range(number)})
    told = Page(page(replace(plan_of(ALICE), files=files, missing=holes, short_holes=holes))).text
    more = number - 15
    assert told.count(f"pod-14: 03:00; and {more:,} more, in plan.json") == (4 if more else 0)
    assert told.count("pod-14: 03:00") == 4
    assert "pod-15" not in told
    assert (f"part-14: cut offand {more:,} more, in plan.json" in told) == (more > 0)
