"""What a person has rolled back stays so for a while, whatever the nights propose: left alone, and told."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from sluice.proxy.cli.plan.apply import apply_plan, apply_unattended, read_plan, roll_back
from sluice.proxy.cli.plan.choice import PlanRefused, Reviews
from sluice.proxy.cli.plan.command import left_out_lines
from sluice.proxy.cli.plan.file import PlanFile
from sluice.proxy.cli.plan.ledger import add_grants, add_rolled_back
from sluice.proxy.cli.quotas.places import QuotaFilePlace
from sluice.quotas.files.config_error import ConfigError
from tests.proxy.cli.plan.test_grants import granted_in, review
from tests.proxy.cli.plan.test_nightly import DAY, KEY, limits_of, of, plan, quotas

TODAY = DAY + timedelta(days=1)
ALICE = Reviews(named=frozenset({(("user", "alice"),)}))
ALICE_ENTITY = '{"user": "alice"}'
MARKED = {"entity": ALICE_ENTITY, "key": KEY, "until": "2026-12-05"}
LEFT = (
    f"left out: user-principal 'alice': {KEY}: was rolled back; left as it is until 2026-12-05, or --include"
)
BEFORE = {"alice": 1_000, "bob": 1_000}


def night(folder: Path, days: int, *entries: dict[str, Any]) -> PlanFile:
    """The plan of a night so many days later; alice is to be cut unless it says other."""
    return read_plan(plan(folder, DAY + timedelta(days=days), list(entries) or [of("alice", 700, 1_000)]))


def marks(folder: Path) -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads((folder / "out" / "rolled_back.json").read_text())["rolled_back"]
    return found


def rolled_back(folder: Path) -> QuotaFilePlace:
    """A night cut alice, and a person put it back on TODAY."""
    place = quotas(folder, BEFORE)
    cut = night(folder, 0)
    apply_unattended(cut, place, today=TODAY)
    assert limits_of(place)["alice"] == 700
    roll_back(Path(cut.source), place, today=TODAY)
    assert limits_of(place) == BEFORE
    return place


def test_no_night_of_the_next_14_days_does_again_what_a_person_has_rolled_back(tmp_path: Path) -> None:
    place = rolled_back(tmp_path)
    assert marks(tmp_path) == [MARKED]
    for day in range(1, 15):
        entries = [of("alice", 1_500 if day % 2 else 700, 1_000), of("bob", 1_000 + day, 999 + day)]
        applied = apply_unattended(night(tmp_path, day, *entries), place, today=DAY + timedelta(days=day))
        assert limits_of(place) == {"alice": 1_000, "bob": 1_000 + day}, "others go on"
        assert left_out_lines(applied) == [LEFT]
    apply_unattended(night(tmp_path, 15), place, today=DAY + timedelta(days=16))
    assert limits_of(place)["alice"] == 700


def test_the_plan_that_was_rolled_back_is_not_applied_again_unattended_either(tmp_path: Path) -> None:
    place = rolled_back(tmp_path)
    apply_unattended(night(tmp_path, 0), place, today=TODAY)
    assert limits_of(place) == BEFORE


@pytest.mark.parametrize("is_unattended", [True, False])
def test_who_names_it_lets_nights_change_it_again(is_unattended: bool, tmp_path: Path) -> None:
    place = rolled_back(tmp_path)
    apply = apply_unattended if is_unattended else apply_plan
    apply(night(tmp_path, 1), place, today=TODAY, reviews=ALICE, dry_run=True)
    assert marks(tmp_path) == [MARKED]
    apply(night(tmp_path, 1), place, today=TODAY, reviews=ALICE)
    assert limits_of(place)["alice"] == 700
    assert marks(tmp_path) == []


def test_a_review_lets_nights_change_it_again_but_not_one_by_a_timer(tmp_path: Path) -> None:
    place = rolled_back(tmp_path)
    entry = of("alice", 1_500, 1_000, needs_review=True, up_to=4_000)
    every = Reviews(all=True)
    applied = apply_unattended(night(tmp_path, 1, entry), place, today=TODAY, reviews=every)
    assert (applied.choice.granted, limits_of(place), marks(tmp_path)) == ([], BEFORE, [MARKED])
    apply_plan(night(tmp_path, 1, entry), place, today=TODAY, reviews=every)
    assert (limits_of(place)["alice"], marks(tmp_path)) == (1_500, [])


def test_a_person_who_applies_a_plan_writes_it_and_the_nights_go_on_leaving_it(tmp_path: Path) -> None:
    place = rolled_back(tmp_path)
    apply_plan(night(tmp_path, 1), place, today=TODAY)
    assert limits_of(place)["alice"] == 700
    apply_unattended(night(tmp_path, 2, of("alice", 490, 700)), place, today=TODAY + timedelta(days=2))
    assert (limits_of(place)["alice"], marks(tmp_path)) == (700, [MARKED])


def test_what_somebody_has_changed_since_is_not_put_back_and_not_left_alone(tmp_path: Path) -> None:
    place = quotas(tmp_path, BEFORE)
    made = night(tmp_path, 0, of("alice", 700, 1_000), of("bob", 700, 1_000))
    apply_plan(made, place, today=TODAY)
    place.alter({(("user", "bob"),): {KEY: 800.0}})
    told = [
        f"user-principal 'bob': {KEY} is 800 now, not 700; left as it is",
        "left alone by unattended nights until 2026-12-05, or --include: 1 limit",
    ]
    assert roll_back(Path(made.source), place, today=TODAY, dry_run=True).others == told
    assert not (tmp_path / "out" / "rolled_back.json").exists()
    assert roll_back(Path(made.source), place, today=TODAY).others == told
    assert marks(tmp_path) == [MARKED]


@pytest.mark.parametrize("content", ['{"rolled_back": 3}', '{"rolled_back": [{}]}', "[", "x"])
def test_damaged_marks_are_named_and_nothing_changes(content: str, tmp_path: Path) -> None:
    place = rolled_back(tmp_path)
    (tmp_path / "out" / "rolled_back.json").write_text(content)
    with pytest.raises(ConfigError, match=r"rolled_back.json: is damaged, .*; put it back from a backup, or"):
        apply_unattended(night(tmp_path, 1), place, today=TODAY)
    assert limits_of(place) == BEFORE
    apply_plan(night(tmp_path, 1), place, today=TODAY)
    assert limits_of(place)["alice"] == 700, "a person's plan without a name does not ask"


def test_a_clock_that_was_ahead_for_once_forgets_nothing(tmp_path: Path) -> None:
    """Bob was rolled back on a machine whose clock was a year ahead; alice was changed again that night."""
    place = rolled_back(tmp_path)
    bob = marks(tmp_path)[0]["entity"].replace("alice", "bob")
    for name in (bob, bob.replace("bob", "carol")):
        add_rolled_back(tmp_path / "out", [(name, KEY)], TODAY.replace(year=2027))
    assert marks(tmp_path)[0] == MARKED
    applied = apply_unattended(night(tmp_path, 2), place, today=TODAY + timedelta(days=1))
    assert (limits_of(place), left_out_lines(applied)) == (BEFORE, [LEFT])


def test_of_very_many_those_are_forgotten_that_are_over(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    add_rolled_back(out, [(f"first{number}", KEY) for number in range(600)], TODAY)
    add_rolled_back(out, [(f"second{number}", KEY) for number in range(600)], TODAY + timedelta(days=14))
    assert len(marks(tmp_path)) == 1_200, "none is over"
    add_rolled_back(out, [("third", KEY)], TODAY + timedelta(days=15))
    entities = [mark["entity"] for mark in marks(tmp_path)]
    assert len(entities) == 1_000
    assert {f"second{number}" for number in range(600)} | {"third"} <= set(entities)


def test_a_grant_outlasts_a_clock_that_was_ahead_for_once(tmp_path: Path) -> None:
    alice, bob = night(tmp_path, 0, of("alice", 700, 1_000), of("bob", 700, 1_000)).limits
    add_grants(tmp_path / "out", [alice], TODAY, tmp_path)
    add_grants(tmp_path / "out", [bob], TODAY.replace(year=2027), tmp_path)
    add_grants(tmp_path / "out", [bob], TODAY.replace(year=2027), tmp_path)
    found = json.loads((tmp_path / "out" / "grants.json").read_text())["grants"]
    assert [grant["entity"] for grant in found] == [alice.entity, bob.entity]


def test_plans_are_rolled_back_in_any_order_and_what_could_not_be_yet_stays_on_record(tmp_path: Path) -> None:
    """Two nights cut alice. The oldest first: what she had before it was forgotten, and she stayed at 700."""
    place = quotas(tmp_path, BEFORE)
    first = night(tmp_path, 0, of("alice", 700, 1_000), of("bob", 900, 1_000))
    apply_unattended(first, place, today=TODAY)
    second = night(tmp_path, 1, of("alice", 490, 700))
    apply_unattended(second, place, today=TODAY + timedelta(days=1))
    found = []
    for made in (first, second, first):
        roll_back(Path(made.source), place, today=TODAY)
        found.append(limits_of(place))
    assert found == [{"alice": 490, "bob": 1_000}, {"alice": 700, "bob": 1_000}, BEFORE]
    with pytest.raises(PlanRefused, match="nothing of this plan is on record"):
        roll_back(Path(first.source), place, today=TODAY)


def test_a_rollback_ends_no_grant_of_a_newer_plan_whose_limit_it_leaves(tmp_path: Path) -> None:
    place = quotas(tmp_path, BEFORE)
    older = night(tmp_path, 0, of("alice", 1_100, 1_000), of("bob", 700, 1_000))
    apply_unattended(older, place, today=TODAY)
    newer = night(tmp_path, 1, review("alice", 1_210, current=1_100, first_step=2_200))
    apply_plan(newer, place, today=TODAY, reviews=ALICE)
    assert roll_back(Path(older.source), place, today=TODAY).others == [
        f"user-principal 'alice': {KEY} is 2200 now, not 1100; left as it is",
        "left alone by unattended nights until 2026-12-05, or --include: 1 limit",
    ]
    assert (limits_of(place)["alice"], granted_in(tmp_path)) == (2_200, [ALICE_ENTITY])
    roll_back(Path(newer.source), place, today=TODAY)
    assert (limits_of(place)["alice"], granted_in(tmp_path)) == (1_100, [])


def test_a_rollback_ends_what_its_own_plan_has_granted_also_where_nights_have_gone_on(tmp_path: Path) -> None:
    place = quotas(tmp_path, BEFORE)
    granting = night(tmp_path, 0, review("alice", 1_656))
    apply_plan(granting, place, today=TODAY, reviews=ALICE)
    apply_unattended(night(tmp_path, 1, of("alice", 4_000, 2_000)), place, today=TODAY + timedelta(days=1))
    roll_back(Path(granting.source), place, today=TODAY)
    assert (limits_of(place)["alice"], granted_in(tmp_path)) == (4_000, [])


def test_plans_that_cancel_out_are_rolled_back_in_any_order(tmp_path: Path) -> None:
    """The older one found all as it was, by chance, and was forgotten: behind the newer's rollback nothing
    led back."""
    place = quotas(tmp_path, BEFORE)
    first = night(tmp_path, 0, of("alice", 1_400, 1_000))
    apply_unattended(first, place, today=TODAY)
    second = night(tmp_path, 1, of("alice", 1_000, 1_400))
    apply_unattended(second, place, today=TODAY + timedelta(days=1))
    found = []
    for made in (first, second, first):
        roll_back(Path(made.source), place, today=TODAY)
        found.append(limits_of(place)["alice"])
    assert found == [1_000, 1_400, 1_000]
