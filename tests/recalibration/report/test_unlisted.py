"""Limits by a default for any client id of which nothing is to be done: plan.json counts them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from sluice.proxy.cli.plan.apply import Applied, apply_plan, apply_unattended, read_plan
from sluice.proxy.cli.plan.choice import Bounds, PlanRefused, Reviews
from sluice.proxy.cli.plan.file import parse_plan
from sluice.proxy.cli.quotas.places import QuotaFilePlace
from sluice.quotas.entity_key import LimitOrigin
from sluice.quotas.files.config_error import ConfigError
from sluice.recalibration.job import Plan
from sluice.recalibration.log.reader import LogFiles
from sluice.recalibration.policy.confidence import DayUse
from sluice.recalibration.policy.listed import MOST_WAITING
from sluice.recalibration.policy.plan import PlanEntry
from sluice.recalibration.policy.policy import Reason
from sluice.recalibration.report.files import write_outputs
from sluice.recalibration.report.page import page

DAY = date(2026, 11, 20)
TODAY = DAY + timedelta(days=1)
KEY = "producer_byte_rate"
USERS = [f"u{number:02}" for number in range(20)]
ALL_DAY = tuple(DayUse(age, 5.0, True, 0.0, 86_400.0) for age in range(8))


def limit(proposed: float, origin: LimitOrigin = LimitOrigin.OWN, **entity: str) -> PlanEntry:
    """Of a limit of 1,000; who has it by a default asks for 5."""
    name = json.dumps({part.replace("_", "-"): of for part, of in entity.items()})
    wanted = proposed if origin is LimitOrigin.OWN else 5.0
    return PlanEntry(
        KEY,
        name,
        1_000.0,
        proposed,
        wanted,
        Reason.DEMAND,
        False,
        0.9,
        1,
        5.0,
        0.0,
        days=ALL_DAY,
        origin=origin,
    )


def plan_of(*entries: PlanEntry, ids: int = 1_000, room: float | None = None) -> Plan:
    minted = [limit(1_000.0, LimitOrigin.ANYBODY, client_id=f"m{number}") for number in range(ids)]
    return Plan(
        DAY, [*entries, *minted], LogFiles(["a.parquet"], {}), room={} if room is None else {KEY: room}
    )


def all_listed(plan: Plan) -> dict[str, Any]:
    """As plan.json was before."""
    head = plan.head_as_json()
    del head["unlisted"]
    return head | {"entries": [entry.as_json() for entry in plan.entries]}


def outcome(
    folder: Path, content: dict[str, Any], *, is_unattended: bool, bounds: Bounds, reviews: Reviews
) -> tuple[str, list[tuple[str, str]], list[str]]:
    """(the quota file afterwards, what is left out and why, what is granted), or why it was refused."""
    folder.mkdir(parents=True)
    file = folder / "quotas.yaml"
    own = "".join(f"  - user: {user}\n    {KEY}: 1000\n" for user in ("alice", *USERS))
    file.write_text(f"quotas:\n{own}  - client-id: <default>\n    {KEY}: 1000\n")
    path = folder / "plans" / f"{DAY}-1" / "plan.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(content))
    apply = apply_unattended if is_unattended else apply_plan
    try:
        done: Applied = apply(
            read_plan(path), QuotaFilePlace(file), bounds=bounds, reviews=reviews, today=TODAY
        )
    except PlanRefused as error:
        return str(error).partition(": ")[2], [], []
    left_out = [(left.entity, why) for left, why in done.choice.left_out]
    return file.read_text(), left_out, [left.entity for left in done.choice.granted]


RISE = [limit(1_500.0, user="alice"), *(limit(1_000.0, user=user) for user in USERS)]
REVIEW = [
    replace(limit(1_000.0, user="alice"), needs_review=True, up_to=4_000.0, first_step=2_000.0),
    *RISE[1:],
    replace(
        limit(1_000.0, LimitOrigin.ANYBODY, client_id="big"),
        needs_review=True,
        up_to=4_000.0,
        first_step=2_000.0,
    ),
]
CUTS = [limit(1_000.0, user="alice"), *(limit(100.0, user=user) for user in USERS)]
CUTS = [CUTS[0], *(replace(cut, reason=Reason.CAPACITY) for cut in CUTS[1:])]


@pytest.mark.parametrize("is_unattended", [True, False])
@pytest.mark.parametrize(
    ("entries", "room", "bounds", "matters"),
    [
        (RISE, 26_499.0, Bounds(), (True, True)),
        (RISE, 26_500.0, Bounds(), (False, False)),
        (RISE, None, Bounds(), (False, False)),
        (REVIEW, 27_004.0, Bounds(), (True, True)),
        (REVIEW, 27_005.0, Bounds(), (False, False)),
        # Of cuts they widen nothing, whatever they ask for.
        (CUTS, 10_000.0, Bounds(), (False, False)),
        (CUTS, None, Bounds(), (False, False)),
        (CUTS, None, Bounds(max_cut_share=1.0, max_total_fall=0.7), (False, False)),
    ],
)
def test_a_plan_is_applied_the_same_whether_they_are_listed_or_counted(
    entries: list[PlanEntry],
    room: float | None,
    bounds: Bounds,
    matters: tuple[bool, bool],
    is_unattended: bool,
    tmp_path: Path,
) -> None:
    """`matters`: whether not to count them would make a difference, unattended and by a person."""
    plan = plan_of(*entries, room=room)
    reviews = Reviews(named=frozenset({(("user", "alice"),)})) if entries is REVIEW else Reviews()
    uncounted = plan.as_json()
    del uncounted["unlisted"]
    listed, counted, without = (
        outcome(tmp_path / name, content, is_unattended=is_unattended, bounds=bounds, reviews=reviews)
        for name, content in (("listed", all_listed(plan)), ("counted", plan.as_json()), ("not", uncounted))
    )
    assert counted == listed
    assert (without != listed) is matters[not is_unattended]


def test_a_plan_has_those_that_change_or_wait_and_of_the_others_their_number_and_their_room(
    tmp_path: Path,
) -> None:
    """133,000 made-up client ids were more than `sluice quotas apply` reads: no plan could be applied."""
    others = [
        limit(1_000.0, user="alice"),
        limit(1_000.0, LimitOrigin.DEFAULT, user="bob"),
        limit(700.0, LimitOrigin.ANYBODY, client_id="cut"),
        REVIEW[-1],
    ]
    plan = plan_of(*others, ids=3_000)
    write_outputs(plan, tmp_path)
    document = json.loads((tmp_path / "plan.json").read_text())
    assert document == plan.as_json()
    names = [entry["entity"] for entry in document["entries"]]
    assert names == [{"user": "alice"}, {"user": "bob"}, {"client-id": "cut"}, {"client-id": "big"}]
    assert document["unlisted"] == {"entries": 3_000, "room_taken": {KEY: 15_000.0}}
    assert document["entities"] == 3_004, "all that were looked at"
    assert parquet.read_metadata(tmp_path / "plan.parquet").num_rows == 3_004
    assert "3,000 of these are in plan.parquet and not in plan.json" in page(plan)
    assert "not in plan.json" not in page(plan_of(*others, ids=0))


def test_a_plan_of_which_nothing_is_listed_is_not_empty(tmp_path: Path) -> None:
    found = outcome(
        tmp_path / "out", plan_of().as_json(), is_unattended=True, bounds=Bounds(), reviews=Reviews()
    )
    assert found[0].startswith("quotas:")
    found = outcome(
        tmp_path / "empty", plan_of(ids=0).as_json(), is_unattended=True, bounds=Bounds(), reviews=Reviews()
    )
    assert found[0].startswith("is empty")


@pytest.mark.parametrize(
    "unlisted",
    [
        7,
        {"entries": -1, "room_taken": {}},
        {"entries": True, "room_taken": {}},
        {"entries": 1.5, "room_taken": {}},
        {"entries": 1, "room_taken": [5]},
        {"entries": 1, "room_taken": {KEY: -5}},
        {"entries": 1, "room_taken": {KEY: "5"}},
        {"entries": 1, "room_taken": {KEY: True}},
    ],
)
def test_counts_that_are_none_are_told_with_their_place(unlisted: object) -> None:
    with pytest.raises(ConfigError, match="unlisted"):
        parse_plan(json.dumps(plan_of().as_json() | {"unlisted": unlisted}), "plan.json")


def test_of_many_made_up_names_that_wait_for_a_review_the_largest_are_listed() -> None:
    """A flood that meets its default: each of its client ids waits for a person, and 133,000 of them were a
    plan that nobody's `quotas apply` could read."""
    waiting = [
        replace(limit(1_000.0, LimitOrigin.ANYBODY, client_id=f"w{n}"), needs_review=True, up_to=2_000.0 + n)
        for n in range(MOST_WAITING + 50)
    ]
    plan = plan_of(limit(700.0, user="alice"), *waiting, ids=0)
    told = plan.as_json()
    assert told["unlisted"]["entries"] == plan.unlisted == 50
    assert len(told["entries"]) == MOST_WAITING + 1
    assert min(entry["up_to"] for entry in told["entries"][1:]) == 2_050.0
