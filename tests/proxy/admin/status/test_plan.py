"""The last recalibration plan: where it is looked for, what of it is shown, and what is not one."""

from __future__ import annotations

import json
import os
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from sluice.proxy.admin.status.model import Plan
from sluice.proxy.admin.status.plan import (
    ENTRIES_PER_STEP,
    MAX_BYTES,
    MAX_CHANGES,
    PlanError,
    PlanReader,
    find_plan,
)
from sluice.recalibration.policy.plan import PlanEntry
from sluice.recalibration.policy.policy import Reason


def entry(user: str, current: float, proposed: float, *, review: bool = False) -> dict[str, Any]:
    """As the job writes it."""
    return PlanEntry(
        key="producer_byte_rate",
        entity=json.dumps({"user": user}, ensure_ascii=False),
        current=current,
        proposed=proposed,
        wanted=proposed,
        reason=Reason.STEP_UP,
        needs_review=review,
        confidence=0.91234,
        proxies=1,
        pooled_demand=1.0,
        throttled_share=0.5,
    ).as_json()


def text_of(entries: list[dict[str, Any]], **others: Any) -> str:
    whole = {"version": 1, "date": "2026-11-20", "log_files": 3, "damaged_files": ["x"], **others}
    return json.dumps(
        {**whole, "entries": entries, "later": {"a": [1, {"b": 2}]}}, indent=1, ensure_ascii=False
    )


def read(text: str) -> tuple[Plan, int]:
    reader = PlanReader("2026-11-20-1")
    steps = sum(1 for _ in reader.steps(text))
    return reader.plan, steps


def test_a_plan_is_told_by_its_counts_and_its_changes_what_needs_review_first() -> None:
    entries = [
        entry("same", 100.0, 100.0),
        entry("twice", 100.0, 200.0),
        entry("tenth", 100.0, 10.0),
        entry("doubtful", 100.0, 110.0, review=True),
    ]
    plan, _ = read(text_of(entries))
    assert (plan.state, plan.name, plan.date) == ("shown", "2026-11-20-1", "2026-11-20")
    assert (plan.entities, plan.changes, plan.reviews) == (4, 3, 1)
    assert (plan.log_files, plan.damaged_files) == (3, 1)
    assert [row.who for row in plan.rows] == ["user doubtful", "user tenth", "user twice"]
    first = plan.rows[0]
    assert (first.current, first.proposed, first.reason, first.confidence) == (100.0, 110.0, "step_up", 0.912)
    assert first.unit == "bytes per second"


@pytest.mark.parametrize(
    ("unlisted", "entities"), [({"entries": 3_000, "room_taken": {}}, 3_001), ({}, 1), ([7], 1), (None, 1)]
)
def test_limits_that_a_plan_only_counts_are_among_its_entities(unlisted: object, entities: int) -> None:
    plan, _ = read(text_of([entry("alice", 100.0, 200.0)], unlisted=unlisted))
    assert (plan.state, plan.entities, plan.changes) == ("shown", entities, 1)


def test_a_plan_of_many_limits_is_read_in_steps_and_the_largest_changes_are_kept() -> None:
    count = 20 * ENTRIES_PER_STEP
    plan, steps = read(text_of([entry(f"u{n}", 1_000.0, 1_000.0 + n) for n in range(count)]))
    assert (plan.entities, plan.changes, len(plan.rows)) == (count, count - 1, MAX_CHANGES)
    assert [row.who for row in plan.rows[:2]] == [f"user u{count - 1}", f"user u{count - 2}"]
    assert steps >= 20


def test_names_in_a_plan_are_made_printable_and_cut() -> None:
    plan, _ = read(text_of([entry("a\u202eb\nc", 1.0, 2.0), entry("x" * 999, 1.0, 3.0)]))
    assert [row.who for row in plan.rows] == ["user " + "x" * 256, "user a\\u202eb\\nc"]


def test_an_entity_that_is_no_object_is_told_as_it_stands() -> None:
    found = [{**entry("a", 1.0, 2.0), "entity": odd} for odd in ("[1]", "not JSON", '"text"')]
    plan, _ = read(text_of(found))
    assert {row.who for row in plan.rows} == {"entity [1]", "entity not JSON", 'entity "text"'}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"entries": [}',
        '{"entries": [{} {}]}',
        '{"entries": [1]}',
        '{"entries": [{"current": 1}]}',
        '{"entries": [{"key": "k", "entity": "e", "current": NaN, "proposed": 1}]}',
        '{"entries": [{"key": "k", "entity": "e", "current": 1' + "0" * 400 + ', "proposed": 1}]}',
        '{"entries": 5',
        '{"a" 1}',
        "[" * 100_000,
        '{"a": ' + "[" * 100_000,
    ],
)
def test_what_is_no_plan_is_said_to_be_none(text: str) -> None:
    with pytest.raises(PlanError, match="is no plan"):
        read(text)


def written(folder: Path, name: str, text: str = "{}") -> Path:
    """As the job does it."""
    plan = folder / "plans" / name / "plan.json"
    plan.parent.mkdir(parents=True)
    plan.write_text(text)
    (folder / "LATEST").write_text(name + "\n")
    return plan


def test_the_newest_run_of_a_folder_is_found_by_its_name(tmp_path: Path) -> None:
    assert find_plan(tmp_path) is None
    written(tmp_path, f"{date(2026, 11, 19)}-1")
    plan = written(tmp_path, f"{date(2026, 11, 20)}-1")
    found = find_plan(tmp_path)
    assert found is not None
    assert (found.path, found.name) == (plan, "2026-11-20-1")
    assert find_plan(tmp_path) == found
    os.utime(plan, (1, 1))
    assert find_plan(tmp_path) != found
    plan.unlink()
    assert find_plan(tmp_path) is None


def test_a_plans_file_can_be_named_itself(tmp_path: Path) -> None:
    file = tmp_path / "last-plan.json"
    assert find_plan(file) is None
    file.write_text("{}")
    found = find_plan(file)
    assert found is not None
    assert found.name == "last-plan.json"


@pytest.mark.parametrize("name", ["../../etc", "/etc", ".hidden", ""])
def test_a_folder_outside_cannot_be_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "LATEST").write_text(name)
    with pytest.raises(PlanError, match="names no folder"):
        find_plan(tmp_path)


def test_a_plan_too_large_to_be_shown_is_not_read(tmp_path: Path) -> None:
    plan = written(tmp_path, "2026-11-20-1")
    with plan.open("r+b") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(PlanError, match="are not shown"):
        find_plan(tmp_path)


def test_names_that_anybody_may_make_up_hide_nobody() -> None:
    """A hundred that waited were all that was shown."""
    minted = [
        entry("", 100.0, 100.0, review=True)
        | {"entity": {"client-id": f"m{number}"}, "asked": 5.0, "up_to": 900.0}
        for number in range(MAX_CHANGES + 50)
    ]
    waits = entry("waits", 100.0, 100.0, review=True) | {"up_to": 300.0}
    by_default = entry("by-default", 100.0, 100.0, review=True) | {"asked": 5.0, "up_to": 200.0}
    plan, _ = read(text_of([*minted, entry("raised", 100.0, 150.0), by_default, waits]))
    assert [row.who for row in plan.rows[:3]] == ["user waits", "user raised", "user by-default"]
    assert len(plan.rows) == MAX_CHANGES
    assert plan.reviews == MAX_CHANGES + 52
