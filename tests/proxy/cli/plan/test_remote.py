"""A plan applied at a running process: what it cannot have is left out, a refusal midway can be undone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest

from sluice.proxy.cli.options import CommandFailed
from sluice.proxy.cli.plan.apply import apply_plan, apply_unattended, roll_back
from sluice.proxy.cli.plan.choice import Bounds, PlanRefused, Reviews
from sluice.proxy.cli.plan.file import PlanFile, parse_plan
from sluice.proxy.cli.plan.ledger import cuts_of_week
from sluice.proxy.cli.quotas.edit import Changes, Whom, whom_of
from sluice.proxy.cli.quotas.listing import Listing, described
from sluice.proxy.cli.quotas.remote import RemotePlace, refusal

DAY = date(2026, 11, 20)
KEY = "producer_byte_rate"


class Server(RemotePlace):
    """Keeps limits in memory; refuses whom it is told to."""

    name = "kafka:9092"

    def __init__(self, limits: Mapping[Whom, float], refused: str = "") -> None:
        self.limits = {whom: {KEY: limit} for whom, limit in limits.items()}
        self.refused = refused
        self.shadow: dict[Whom, frozenset[str]] = {}
        """as an admin socket tells it"""
        self.is_lost_at_a_change = False
        self.is_lost = False

    @property
    def written(self) -> str:
        return ""

    def _found(self) -> Listing:
        if self.is_lost:
            raise CommandFailed("connection lost")
        return Listing(self.limits, self.shadow, takes_own=False)

    def _change(self, changes: Mapping[Whom, Changes], *, validate_only: bool) -> list[str]:
        assert not validate_only, "a plan is applied as far as it goes"
        if self.is_lost_at_a_change:
            self.is_lost = True
            raise CommandFailed("connection lost")
        refused = []
        for whom, keys in changes.items():
            if dict(whom).get("user") == self.refused:
                refused.append(f"{described(whom)}: {refusal(44, 'not now')}")
                continue
            now = {**self.limits.get(whom, {}), **keys}
            self.limits[whom] = {key: limit for key, limit in now.items() if limit is not None}
        return refused

    def rates(self) -> dict[str, float]:
        return {described(whom): keys[KEY] for whom, keys in self.limits.items() if keys}


def user(name: str) -> Whom:
    return whom_of({"user": name})


def plan_of(folder: Path, *limits: tuple[dict[str, str], float, float]) -> PlanFile:
    entries = [
        {
            "key": KEY,
            "entity": json.dumps(whom),
            "current": now,
            "proposed": then,
            "reason": "demand",
            "needs_review": False,
        }
        for whom, now, then in limits
    ]
    policy = {"max_step_up": 2.0, "max_step_down": 0.7}
    document = {"version": 1, "date": str(DAY), "policy": policy, "entries": entries}
    return parse_plan(json.dumps(document), str(folder / "plan.json"))


def test_limits_are_set_at_a_server_also_for_who_had_a_defaults_and_taken_back(tmp_path: Path) -> None:
    server = Server({user("alice"): 1_000.0, user("<default>"): 500.0})
    plan = plan_of(tmp_path, ({"user": "alice"}, 1_000, 1_500), ({"user": "bob"}, 500, 600))
    assert len(apply_plan(plan, server, today=DAY).found) == 2
    after = {"user-principal 'alice'": 1_500.0, "the default user-principal": 500.0}
    assert server.rates() == after | {"user-principal 'bob'": 600.0}
    assert apply_plan(plan, server, today=DAY).found == []
    roll_back(tmp_path / "plan.json", server)
    assert server.rates() == {"user-principal 'alice'": 1_000.0, "the default user-principal": 500.0}


def test_what_only_a_file_can_have_is_left_out_and_said_so(tmp_path: Path) -> None:
    server = Server({user("alice"): 1_000.0})
    plan = plan_of(tmp_path, ({"user": "alice"}, 1_000, 1_500), ({"tenant": "team"}, 10, 20))
    choice = apply_plan(plan, server, today=DAY).choice
    assert [(limit.entity, why) for limit, why in choice.left_out] == [
        ('{"tenant": "team"}', "only a quota file can have it; apply the plan there, too")
    ]
    assert server.rates() == {"user-principal 'alice'": 1_500.0}


def test_after_a_refusal_midway_the_rest_can_be_applied_or_all_be_undone(tmp_path: Path) -> None:
    server = Server({user("alice"): 1_000.0, user("bob"): 1_000.0}, refused="bob")
    plan = plan_of(tmp_path, ({"user": "alice"}, 1_000, 1_500), ({"user": "bob"}, 1_000, 1_600))
    with pytest.raises(CommandFailed, match="'bob': error 44"):
        apply_plan(plan, server, today=DAY)
    assert server.rates()["user-principal 'alice'"] == 1_500
    assert len(roll_back(tmp_path / "plan.json", server).found) == 1, "bob's was never changed"
    assert set(server.rates().values()) == {1_000.0}
    with pytest.raises(CommandFailed):
        apply_plan(plan, server, today=DAY)
    server.refused = ""
    assert len(apply_plan(plan, server, today=DAY).found) == 1
    assert server.rates()["user-principal 'bob'"] == 1_600
    roll_back(tmp_path / "plan.json", server)
    assert set(server.rates().values()) == {1_000.0}, "the values before the first attempt"


def test_what_was_applied_at_one_place_is_not_rolled_back_at_another(tmp_path: Path) -> None:
    server, other = Server({user("alice"): 1_000.0}), Server({user("alice"): 1_500.0})
    other.name = "another:9092"
    plan = plan_of(tmp_path, ({"user": "alice"}, 1_000, 1_500))
    apply_plan(plan, server, today=DAY)
    with pytest.raises(PlanRefused, match="nothing of this plan is on record at another:9092"):
        roll_back(tmp_path / "plan.json", other)
    assert set(other.rates().values()) == {1_500.0}


def test_names_and_keys_of_a_server_that_sluice_does_not_know_are_passed_over(tmp_path: Path) -> None:
    server = Server({user("alice"): 1_000.0, whom_of({"user": "x", "client-id": "y"}): 5.0})
    server.limits[("ip", "a-host"),] = {"connection_creation_rate": 3.0}
    server.limits[user("alice")]["what_comes_in_kafka_5"] = 1.0
    plan = plan_of(tmp_path, ({"user": "alice"}, 1_000, 1_500))
    assert len(apply_plan(plan, server, today=DAY).found) == 1
    assert server.limits[user("alice")]["what_comes_in_kafka_5"] == 1.0


IN_SHADOW = "is in shadow mode, which only a quota file can have; written here it would be in force"


@pytest.mark.parametrize("who", ["u00", "<default>"])
def test_a_limit_in_shadow_mode_is_left_out_and_the_others_are_written(who: str, tmp_path: Path) -> None:
    """One of them, or a default of which a plan makes somebody's own, made every plan fail as a whole."""
    server = Server({user(f"u{number:02}"): 1_000.0 for number in range(20)} | {user("<default>"): 1_000.0})
    server.shadow = {user(who): frozenset({KEY})}
    cuts = [({"user": f"u{number:02}"}, 1_000.0, 700.0) for number in range(1, 20)]
    left_out = {"user": "zoe" if who == "<default>" else who}
    plan = plan_of(tmp_path, (left_out, 1_000, 2_000), *cuts)
    applied = apply_unattended(plan, server, today=DAY)
    assert len(applied.found) == 3
    assert ((left_out["user"], IN_SHADOW)) in [
        (dict(limit.whom)["user"], why) for limit, why in applied.choice.left_out
    ]
    rates = [limits[KEY] for limits in server.limits.values()]
    assert cuts_of_week(tmp_path, server.name, DAY) == {KEY: 21_000 - sum(rates)}
    assert max(rates) == 1_000


def test_what_is_in_shadow_mode_at_a_server_is_not_granted_there(tmp_path: Path) -> None:
    server = Server({user("alice"): 1_000.0})
    server.shadow = {user("alice"): frozenset({KEY})}
    plan = plan_of(tmp_path, ({"user": "alice"}, 1_000, 1_500))
    (limit,) = plan.limits
    reviewed = replace(limit, needs_review=True, up_to=9_000.0, first_step=2_000.0)
    choice = apply_plan(
        replace(plan, version=2, limits=(reviewed,)), server, today=DAY, reviews=Reviews(all=True)
    ).choice
    assert (choice.granted, choice.waiting) == ([], [])
    assert [why for _, why in choice.left_out] == [IN_SHADOW]


def test_a_rollback_leaves_what_has_come_to_be_in_shadow_mode_and_puts_back_the_others(
    tmp_path: Path,
) -> None:
    server = Server({user("alice"): 1_000.0, user("bob"): 1_000.0})
    plan = plan_of(tmp_path, ({"user": "alice"}, 1_000, 1_500), ({"user": "bob"}, 1_000, 1_600))
    apply_plan(plan, server, today=DAY)
    server.shadow = {user("alice"): frozenset({KEY})}
    undone = roll_back(tmp_path / "plan.json", server, today=DAY)
    assert server.rates() == {"user-principal 'alice'": 1_500.0, "user-principal 'bob'": 1_000.0}
    assert undone.others == [
        f"user-principal 'alice': {KEY} {IN_SHADOW.partition(';')[0]}; left as it is",
        f"left alone by unattended nights until {DAY + timedelta(days=14)}, or --include: 1 limit",
    ]


def many_cuts(folder: Path) -> PlanFile:
    """Of which a night may make 714: two by 300 and one by 114."""
    return plan_of(folder, *(({"user": f"u{number:02}"}, 1_000.0, 700.0) for number in range(20)))


def test_cuts_that_a_server_has_refused_are_not_booked(tmp_path: Path) -> None:
    """Two of three were made: the next night has what is left of this one's share."""
    server = Server({user(f"u{number:02}"): 1_000.0 for number in range(20)}, refused="u00")
    with pytest.raises(CommandFailed, match="not now"):
        apply_unattended(many_cuts(tmp_path), server, today=DAY)
    assert 20_000 - sum(server.rates().values()) == 414
    assert cuts_of_week(tmp_path, server.name, DAY) == {KEY: 414}
    server.refused = ""
    apply_unattended(many_cuts(tmp_path), server, today=DAY)
    assert 20_000 - sum(server.rates().values()) == cuts_of_week(tmp_path, server.name, DAY)[KEY] == 714


@pytest.mark.parametrize("is_lost", [False, True])
@pytest.mark.parametrize("is_run_again", [True, False])
def test_a_limit_that_a_night_wrote_a_part_of_the_way_outlives_a_second_go_that_fails(
    is_run_again: bool, is_lost: bool, tmp_path: Path
) -> None:
    """It could neither be run again ("is stale") nor rolled back ("is 886 now")."""
    before = {user(f"u{number:02}"): 1_000.0 for number in range(20)}
    server, cuts = Server(before), many_cuts(tmp_path)
    apply_unattended(cuts, server, today=DAY)
    (part,) = (whom for whom, limits in server.limits.items() if limits[KEY] == 886)
    wide = Bounds(max_cut_share=1.0, max_total_fall=1.0)
    server.refused, server.is_lost_at_a_change = dict(part)["user"], is_lost
    with pytest.raises(CommandFailed):
        apply_plan(cuts, server, today=DAY, bounds=wide)
    server.refused, server.is_lost_at_a_change, server.is_lost = "", False, False
    if is_run_again:
        apply_plan(cuts, server, today=DAY, bounds=wide)
        assert set(server.rates().values()) == {700.0}
    roll_back(tmp_path / "plan.json", server, today=DAY)
    assert set(server.rates().values()) == {1_000.0}


def test_what_a_person_has_put_back_to_what_the_night_had_made_of_it_is_his(tmp_path: Path) -> None:
    """Once the second go has gone through."""
    server, cuts = Server({user(f"u{number:02}"): 1_000.0 for number in range(20)}), many_cuts(tmp_path)
    apply_unattended(cuts, server, today=DAY)
    (part,) = (whom for whom, limits in server.limits.items() if limits[KEY] == 886)
    apply_plan(cuts, server, today=DAY, bounds=Bounds(max_cut_share=1.0, max_total_fall=1.0))
    server.limits[part] = {KEY: 886.0}
    assert f"{KEY} is 886 now, not 700; left as it is" in roll_back(tmp_path / "plan.json", server).others[0]


def test_cuts_at_a_server_that_tells_nothing_any_more_stay_booked(tmp_path: Path) -> None:
    """They may have been made."""
    server = Server({user(f"u{number:02}"): 1_000.0 for number in range(20)})
    server.is_lost_at_a_change = True
    with pytest.raises(CommandFailed, match="connection lost"):
        apply_unattended(many_cuts(tmp_path), server, today=DAY)
    assert cuts_of_week(tmp_path, server.name, DAY) == {KEY: 714}
