"""What a person grants: only for limits that are still what the plan was made from, and of a plan in time."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from sluice.proxy.cli.plan.apply import apply_plan, read_plan
from sluice.proxy.cli.plan.choice import Bounds, PlanRefused, Reviews
from sluice.proxy.cli.plan.command import left_out_lines
from tests.proxy.cli.plan.test_nightly import DAY, KEY, limits_of, of, plan, quotas

TODAY = DAY + timedelta(days=1)
ALL = Reviews(all=True)
SKIP = Bounds(skip_changed=True)


def review(user: str, proposed: float, **values: Any) -> dict[str, Any]:
    """Of a limit of 1,000 that asks for 9,000."""
    return of(user, proposed, 1_000, needs_review=True, up_to=9_000, first_step=2_000) | values


def granted_in(folder: Path) -> list[str]:
    """Entities in grants.json."""
    file = folder / "out" / "grants.json"
    return [grant["entity"] for grant in json.loads(file.read_text())["grants"]] if file.exists() else []


@pytest.mark.parametrize("proposed", [1_656, 1_000])
def test_nothing_is_granted_of_a_limit_that_somebody_has_changed_since(
    proposed: float, tmp_path: Path
) -> None:
    """With the grant nights doubled what a person had cut in the morning until it was at 9,000."""
    place = quotas(tmp_path, {"alice": 200, "bob": 1_000})
    found = read_plan(plan(tmp_path, DAY, [review("alice", proposed), review("bob", 1_656)]))
    with pytest.raises(PlanRefused, match=r"is stale: 1 limit changed since it was made .*'alice'"):
        apply_plan(found, place, today=TODAY, reviews=ALL)
    assert granted_in(tmp_path) == []
    applied = apply_plan(found, place, today=TODAY, bounds=SKIP, reviews=ALL)
    assert limits_of(place) == {"alice": 200, "bob": 2_000}
    assert granted_in(tmp_path) == ['{"user": "bob"}']
    assert left_out_lines(applied) == [
        f"left out: user-principal 'alice': {KEY}: was 1000 when the plan was made, is 200 now",
        f"granted for 14 days: user-principal 'bob': {KEY}: up to 9,000",
    ]


@pytest.mark.parametrize("proposed", [1_656, 1_000])
def test_a_limit_that_somebody_has_changed_since_does_not_wait_for_review(
    proposed: float, tmp_path: Path
) -> None:
    """No option would grant it. Where the plan leaves the limit alone it stops none of the others."""
    place = quotas(tmp_path, {"alice": 200, "bob": 1_000})
    found = read_plan(plan(tmp_path, DAY, [review("alice", proposed), of("bob", 1_500, 1_000)]))
    bounds = SKIP if proposed != 1_000 else Bounds()
    assert left_out_lines(apply_plan(found, place, today=TODAY, bounds=bounds)) == [
        f"left out: user-principal 'alice': {KEY}: was 1000 when the plan was made, is 200 now"
    ]
    assert limits_of(place) == {"alice": 200, "bob": 1_500}


def test_a_limit_that_somebody_has_changed_takes_no_room_of_what_is_granted_to_others(tmp_path: Path) -> None:
    place = quotas(tmp_path, {"alice": 200, "bob": 1_000})
    entries = [review("alice", 1_000), review("bob", 1_000)]
    found = read_plan(plan(tmp_path, DAY, entries, room={KEY: 3_000}))
    apply_plan(found, place, today=TODAY, bounds=SKIP, reviews=ALL)
    assert limits_of(place) == {"alice": 200, "bob": 2_000}


def test_what_has_been_granted_and_written_can_be_granted_again(tmp_path: Path) -> None:
    place = quotas(tmp_path, {"alice": 1_000})
    found = read_plan(plan(tmp_path, DAY, [review("alice", 1_656)]))
    for today in (TODAY, TODAY + timedelta(days=1)):
        applied = apply_plan(found, place, today=today, reviews=ALL)
        assert [limit.up_to for limit in applied.choice.granted] == [9_000]
    assert limits_of(place) == {"alice": 2_000}


def test_nothing_is_granted_by_a_plan_that_is_long_past_though_it_changes_nothing(tmp_path: Path) -> None:
    """For want of room nothing rises tonight; a year later 9,000 was granted for the next 14 days."""
    place = quotas(tmp_path, {"alice": 1_000})
    entry = review("alice", 1_000, reason="capacity")
    found = read_plan(plan(tmp_path, DAY, [entry], room={KEY: 1_000}))
    with pytest.raises(PlanRefused, match="is stale: of 2026-11-20, 365 days ago"):
        apply_plan(found, place, today=DAY + timedelta(days=365), reviews=ALL)
    assert granted_in(tmp_path) == []
    apply_plan(found, place, today=TODAY, reviews=ALL)
    assert granted_in(tmp_path) == ['{"user": "alice"}']


@pytest.mark.parametrize("is_own", [False, True])
@pytest.mark.parametrize("entity", [{"client-id": "etl"}, {"user": "alice"}])
def test_who_was_granted_more_and_has_a_defaults_limit_has_lost_none_of_his_own(
    entity: dict[str, str], is_own: bool, tmp_path: Path
) -> None:
    """For want of room, or of disk, the grant's first step was not written: each plan counts him whole, as
    one with a limit of his own, and for 14 nights no limit of anybody changed."""
    place = quotas(tmp_path, {"bob": 1_000})
    file, (part,) = place.file, entity
    file.write_text(file.read_text() + f"  - {part}: <default>\n    {KEY}: 1000\n")
    entries = [of("", 2_000, 1_000, entity=entity, asked=None, is_own=is_own), of("bob", 1_500, 1_000)]
    found = read_plan(plan(tmp_path, DAY, entries))
    if is_own:
        with pytest.raises(PlanRefused, match="is stale: 1 limit changed since it was made"):
            apply_plan(found, place, today=TODAY)
        return
    apply_plan(found, place, today=TODAY)
    written = {whom: its[KEY] for whom, its in place.listing().limits.items()}
    assert (written[tuple(entity.items())], written[("user", "bob"),]) == (2_000, 1_500)
