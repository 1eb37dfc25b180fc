"""How much of a plan a night may write by itself, and what it remembers of that."""

from __future__ import annotations

import errno
import json
import os
from datetime import date, timedelta
from pathlib import Path
from typing import Any, NoReturn

import pytest

from sluice.proxy.cli.plan.apply import Applied, apply_plan, apply_unattended, read_plan, roll_back
from sluice.proxy.cli.plan.choice import Bounds, PlanRefused, Reviews
from sluice.proxy.cli.plan.ledger import cuts_of_week
from sluice.proxy.cli.quotas.places import QuotaFilePlace
from sluice.quotas.files.config_error import ConfigError

DAY = date(2026, 11, 20)
KEY = "producer_byte_rate"


def quotas(folder: Path, limits: dict[str, int]) -> QuotaFilePlace:
    file = folder / "quotas.yaml"
    file.write_text("quotas:\n" + "".join(f"  - user: {u}\n    {KEY}: {n}\n" for u, n in limits.items()))
    return QuotaFilePlace(file)


def of(user: str, proposed: float, current: float, **values: Any) -> dict[str, Any]:
    return {
        "key": KEY, "entity": {"user": user}, "current": current, "proposed": proposed,
        "reason": "demand", "needs_review": False, "confidence": 0.5, "up_to": 0.0,
    } | values  # fmt: skip


def plan(folder: Path, day: date, entries: list[dict[str, Any]], **values: Any) -> Path:
    path = folder / "out" / "plans" / f"{day}-1" / "plan.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    head = {"version": 2, "date": str(day), "policy": {"max_step_up": 2.0, "max_step_down": 0.7}}
    path.write_text(json.dumps(head | {"entries": entries} | values))
    return path


def limits_of(place: QuotaFilePlace) -> dict[str, float]:
    return {dict(whom)["user"]: its[KEY] for whom, its in place.listing().limits.items()}


def night(folder: Path, place: QuotaFilePlace, number: int, **values: Any) -> Applied:
    """All that are above 500 are to become 0.7 times what they are."""
    day = DAY + timedelta(days=number)
    entries = [of(u, max(500, int(0.7 * n)), n, confidence=0.9 if u < "u05" else 0.2)
               for u, n in limits_of(place).items()]  # fmt: skip
    path = plan(folder, day, entries, **values)
    return apply_unattended(read_plan(path), place, today=day + timedelta(days=1))


def test_a_plan_too_large_goes_as_far_as_the_guards_allow_the_most_certain_first(tmp_path: Path) -> None:
    place = quotas(tmp_path, {f"u{number:02}": 1_000 for number in range(20)})
    too_large = plan(tmp_path, DAY, [of(f"u{number:02}", 700, 1_000) for number in range(20)])
    with pytest.raises(PlanRefused, match="cuts 20 of 20 limits"):
        apply_plan(read_plan(too_large), place, today=DAY + timedelta(days=1))
    applied = night(tmp_path, place, 0)
    assert sorted(limits_of(place).values())[:4] == [700, 700, 886, 1_000]  # 714 of a week's 5,000
    assert {user for user, limit in limits_of(place).items() if limit < 1_000} <= {f"u0{n}" for n in range(5)}
    assert any("later night" in why for _, why in applied.choice.left_out)
    totals = [sum(limits_of(place).values())]
    for number in range(1, 30):
        night(tmp_path, place, number)
        totals.append(sum(limits_of(place).values()))
        week_ago = totals[number - 7] if number >= 7 else 20_000
        assert totals[-1] >= 0.75 * week_ago - 20
        assert totals[-1] < totals[-2] or totals[-1] == 10_000, f"night {number} stood still"
    assert totals[-1] < 10_500


def test_a_plan_applied_a_part_of_the_way_can_be_applied_again_granted_from_finished_and_rolled_back(
    tmp_path: Path,
) -> None:
    """What it has written itself is no change by others; what others have is."""
    before = {f"u{number:02}": 1_000 for number in range(20)}
    place = quotas(tmp_path, before)
    granted = of("u19", 1_100, 1_000, needs_review=True, up_to=4_000.0, first_step=2_000.0)
    found = read_plan(
        plan(tmp_path, DAY, [*(of(user, 700, 1_000) for user in before if user != "u19"), granted])
    )
    today = DAY + timedelta(days=1)
    apply_unattended(found, place, today=today)
    after = limits_of(place)
    assert sorted(after.values())[:4] == [700, 700, 886, 1_000]
    assert after["u19"] == 1_100
    apply_unattended(found, place, today=today)
    assert 0 <= sum(after.values()) - sum(limits_of(place).values()) <= 4, "but for a share of the rise"
    (u19,) = [limit.whom for limit in found.limits if dict(limit.whom)["user"] == "u19"]
    apply_unattended(found, place, today=today, reviews=Reviews(named=frozenset({u19})))
    assert limits_of(place)["u19"] == 2_000
    apply_unattended(found, place, today=today)
    assert limits_of(place)["u19"] == 2_000, "what was granted stays"
    (part,) = [user for user, limit in limits_of(place).items() if limit not in {700, 1_000, 2_000}]
    apply_plan(found, place, today=today, bounds=Bounds(max_cut_share=1.0, max_total_fall=1.0))
    assert limits_of(place) == dict.fromkeys(before, 700) | {"u19": 2_000}
    place.alter({(("user", part),): {KEY: 850.0}})
    with pytest.raises(PlanRefused, match="is stale: 1 limit changed since it was made"):
        apply_unattended(found, place, today=today)
    place.alter({(("user", part),): {KEY: 700.0}})
    roll_back(Path(found.source), place)
    assert limits_of(place) == before


def test_cuts_that_could_not_be_written_are_not_booked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk each night spent its seventh for nothing."""
    before = {f"u{number:02}": 1_000 for number in range(20)}
    place = quotas(tmp_path, before)
    found = read_plan(plan(tmp_path, DAY, [of(user, 700, 1_000) for user in before]))
    today = DAY + timedelta(days=1)

    def is_full(*_: object) -> NoReturn:
        monkeypatch.undo()  # for the quota file alone: what is booked finds room
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "chmod", is_full)  # the step between writing it and putting it in its place
    with pytest.raises(ConfigError, match="no space left"):
        apply_unattended(found, place, today=today)
    assert limits_of(place) == before
    assert cuts_of_week(tmp_path / "out", str(place.file.resolve()), today) == {KEY: 0}
    assert [file.name for file in tmp_path.iterdir() if file.is_file() and file.name.endswith(".new")] == []
    apply_unattended(found, place, today=today)
    assert sum(before.values()) - sum(limits_of(place).values()) == 714


def test_a_log_with_holes_cuts_nothing_and_still_raises(tmp_path: Path) -> None:
    place = quotas(tmp_path, {"alice": 1_000, "bob": 1_000})
    path = plan(
        tmp_path, DAY, [of("alice", 800, 1_000), of("bob", 1_500, 1_000)],
        incomplete_log={"2026-11-19": ["all of it"]},
    )  # fmt: skip
    applied = apply_unattended(read_plan(path), place, today=DAY)
    assert limits_of(place) == {"alice": 1_000, "bob": 1_500}
    assert "2026-11-19" in applied.choice.left_out[0][1]


def test_every_part_of_a_plan_fits_what_there_is_room_for(tmp_path: Path) -> None:
    users = {f"u{number:02}": 1_000 for number in range(12)}
    place = quotas(tmp_path, users)
    entries = [of(u, 2_000 if u < "u06" else 700, n) for u, n in users.items()]
    path = plan(tmp_path, DAY, entries, room={KEY: 14_000})
    apply_unattended(read_plan(path), place, today=DAY)
    assert sum(limits_of(place).values()) <= 14_000
    assert sum(limit == 2_000 for limit in limits_of(place).values()) == 2


def test_a_person_who_applies_begins_the_week_anew(tmp_path: Path) -> None:
    place = quotas(tmp_path, {f"u{number:02}": 1_000 for number in range(20)})
    night(tmp_path, place, 0)
    out = tmp_path / "out"
    assert cuts_of_week(out, str(place.file), DAY + timedelta(days=1))[KEY] == 714
    assert cuts_of_week(out, str(place.file), DAY + timedelta(days=8))[KEY] == 0
    path = plan(tmp_path, DAY, [of("u19", 1_200, 1_000)])
    apply_plan(read_plan(path), place, today=DAY)
    assert cuts_of_week(out, str(place.file), DAY + timedelta(days=1)) == {}


def test_a_review_grants_up_to_the_estimate_for_a_fortnight(tmp_path: Path) -> None:
    place = quotas(tmp_path, {"alice": 1_000, "bob": 1_000})
    entries = [of(user, 1_200, 1_000, needs_review=True, up_to=5_000) for user in ("alice", "bob")]
    path = plan(tmp_path, DAY, entries)
    reviews = Reviews(named=frozenset([(("user", "alice"),)]))
    applied = apply_unattended(read_plan(path), place, reviews=reviews, today=DAY)
    assert limits_of(place) == {"alice": 1_200, "bob": 1_200}, "what needs no word is written for both"
    assert [dict(limit.whom)["user"] for limit in applied.choice.waiting] == ["bob"]
    item = {"entity": '{"user": "alice"}', "key": KEY, "up_to": 5_000.0, "until": "2026-12-04"}
    granted = json.loads((tmp_path / "out" / "grants.json").read_text())
    assert granted == {"grants": [item | {"plan": f"{DAY}-1"}]}


@pytest.mark.parametrize(
    ("first_step", "reason", "room", "is_then"),
    [
        (5_000, "growth_guard", 9_000, 2_000),
        (1_700, "growth_guard", 9_000, 1_700),
        (5_000, "growth_guard", 2_800, 1_200),
        (5_000, "capacity", 9_000, 1_200),
        (0.0, "growth_guard", 9_000, 1_200),
    ],
)
def test_a_grant_is_a_step_tonight_as_far_as_the_plan_says_and_there_is_room(
    tmp_path: Path, first_step: float, reason: str, room: float, is_then: float
) -> None:
    """The next night's plan alone would use it: two days on which a client that was granted still waits."""
    place = quotas(tmp_path, {"alice": 1_000, "bob": 1_000})
    granted = of("alice", 1_200, 1_000, needs_review=True, up_to=6_000, first_step=first_step, reason=reason)
    path = plan(tmp_path, DAY, [granted, of("bob", 1_000, 1_000)], room={KEY: room})
    reviews = Reviews(named=frozenset([(("user", "alice"),)]))
    apply_plan(read_plan(path), place, reviews=reviews, today=DAY)
    assert limits_of(place) == {"alice": is_then, "bob": 1_000}


def test_a_record_that_cannot_be_read_stops_the_night(tmp_path: Path) -> None:
    place = quotas(tmp_path, {f"u{number:02}": 1_000 for number in range(20)})
    (tmp_path / "out").mkdir()
    for text in ("{", "[]"):
        (tmp_path / "out" / "unattended.json").write_text(text)
        with pytest.raises(ConfigError, match=r"unattended\.json"):
            night(tmp_path, place, 0)
    assert set(limits_of(place).values()) == {1_000}
    assert Bounds().is_unattended is False


def test_client_ids_that_somebody_made_up_do_not_take_the_room_of_a_rise(tmp_path: Path) -> None:
    """Each has a default's limit of 1,000, and asked for 5."""
    place = quotas(tmp_path, {"alice": 1_000})
    file = tmp_path / "quotas.yaml"
    file.write_text(file.read_text() + f"  - client-id: <default>\n    {KEY}: 1000\n")
    minted = [
        of("", 1_000, 1_000, entity={"client-id": f"m{number}"}, room_taken=5.0) for number in range(100)
    ]
    rise = [of("alice", 1_500, 1_000, confidence=1.0), *minted]
    for number, (room, after) in enumerate(((1_900, 1_000), (2_000, 1_500))):
        path = plan(tmp_path, DAY + timedelta(days=number), rise, room={KEY: room})
        apply_unattended(read_plan(path), place, today=DAY + timedelta(days=number + 1))
        assert f"user: alice\n    {KEY}: {after}" in file.read_text()


def test_a_limit_that_counts_whole_does_so_when_it_is_cut_a_part_of_the_way(tmp_path: Path) -> None:
    """Its room as the job writes it: what the whole cut would leave. Rises wait for what is cut in truth."""
    outcomes = []
    for name, told in (("with", True), ("without", False)):
        folder = tmp_path / name
        folder.mkdir()
        place = quotas(folder, {f"u{number:02}": 1_000 for number in range(20)})
        entries = [of(f"u{number:02}", 700, 1_000, confidence=0.9) for number in range(19)]
        entries.append(of("u19", 1_700, 1_000))
        if told:
            entries = [entry | {"room_taken": entry["proposed"]} for entry in entries]
        path = plan(folder, DAY, entries, room={KEY: 19_999})
        apply_unattended(read_plan(path), place, today=DAY + timedelta(days=1))
        outcomes.append(limits_of(place))
    assert outcomes[0] == outcomes[1]
    assert 19_000 <= sum(outcomes[0].values()) <= 20_000
    assert sum(limit not in (700, 1_000) for limit in outcomes[0].values()) >= 1, "one a part of the way"


def test_what_a_person_grants_to_any_client_id_counts_whole(tmp_path: Path) -> None:
    place = quotas(tmp_path, {f"u{number}": 15 for number in range(10)})
    file = tmp_path / "quotas.yaml"
    file.write_text(file.read_text() + f"  - client-id: <default>\n    {KEY}: 50\n")
    entries = [of(f"u{number}", 11, 15) for number in range(10)]
    entries.append(
        of(
            "",
            50,
            50,
            entity={"client-id": "x"},
            room_taken=5.0,
            needs_review=True,
            up_to=100,
            first_step=100,
        )
    )
    for room, after in ((230, False), (260, True)):
        path = plan(tmp_path, DAY, entries, room={KEY: room})
        reviews = Reviews(named=frozenset({(("client-id", "x"),)}))
        apply_unattended(read_plan(path), place, today=DAY + timedelta(days=1), reviews=reviews)
        assert ("producer_byte_rate: 100\n" in file.read_text()) == after


def test_client_ids_that_somebody_made_up_make_no_night_larger(tmp_path: Path) -> None:
    """20 users are to be cut to a tenth for want of room; a thousand ids have 1,000 each by a default."""
    users = {f"u{number:02}": 1_000 for number in range(20)}
    place = quotas(tmp_path, users)
    file = tmp_path / "quotas.yaml"
    file.write_text(file.read_text() + f"  - client-id: <default>\n    {KEY}: 1000\n")
    minted = [
        of("", 1_000, 1_000, entity={"client-id": f"m{number}"}, room_taken=0.5) for number in range(1_000)
    ]
    entries = [*(of(user, 100, 1_000, reason="capacity", confidence=1.0) for user in users), *minted]
    path = plan(tmp_path, DAY, entries)
    today = DAY + timedelta(days=1)
    with pytest.raises(PlanRefused, match="cuts 20 of 20 limits"):
        apply_plan(read_plan(path), place, today=today)
    with pytest.raises(PlanRefused, match="together fall by 90%"):
        apply_plan(read_plan(path), place, today=today, bounds=Bounds(max_cut_share=1.0))
    apply_unattended(read_plan(path), place, today=today)
    lost = [1_000 - int(line.split(":")[1]) for line in file.read_text().splitlines() if KEY in line]
    assert 0 < sum(lost) <= 20_000 * 0.25 / 7 + 1


@pytest.mark.parametrize("is_unattended", [True, False])
def test_a_cut_that_is_left_out_makes_no_room_for_a_rise(is_unattended: bool, tmp_path: Path) -> None:
    """alice's own limit would take her client ids `etl-`, so she is not cut; and bob cannot have hers."""
    file = tmp_path / "quotas.yaml"
    text = f"""quotas:
  - {{user: <default>, {KEY}: 66}}
  - {{user: <default>, client-id-prefix: etl-, {KEY}: 1}}
  - {{user: bob, {KEY}: 30}}
"""
    file.write_text(text)
    entries = [
        of("alice", 49, 66, reason="capacity"),
        of("", 1, 1, entity={"user": "alice", "client-id-prefix": "etl-"}),
        of("bob", 49, 30),
    ]
    found = read_plan(plan(tmp_path, DAY, entries, room={KEY: 100}))
    apply = apply_unattended if is_unattended else apply_plan
    applied = apply(found, QuotaFilePlace(file), today=DAY + timedelta(days=1))
    assert file.read_text() == text
    reasons = {limit.entity: why for limit, why in applied.choice.left_out}
    assert "would take" in reasons['{"user": "alice"}']
    assert reasons['{"user": "bob"}'] == "a later night: there is no room until others are cut"


def test_what_somebody_has_set_since_counts_as_it_is(tmp_path: Path) -> None:
    """a was to fall from 80 to 60 so that b may have 40; by now a has 81."""
    place = quotas(tmp_path, {"a": 81, "b": 20})
    entries = [of("a", 60, 80, reason="capacity"), of("b", 40, 20)]
    found = read_plan(plan(tmp_path, DAY, entries, room={KEY: 100}))
    apply_plan(found, place, today=DAY, bounds=Bounds(skip_changed=True))
    assert limits_of(place) == {"a": 81, "b": 20}


def test_client_ids_that_have_gone_count_nothing(tmp_path: Path) -> None:
    """Of the last eight days there is nothing of them; it is no plan of before, which does not tell."""
    place = quotas(tmp_path, {"alice": 1_000})
    file = tmp_path / "quotas.yaml"
    file.write_text(file.read_text() + f"  - client-id: <default>\n    {KEY}: 1000\n")
    for number, (told, after) in enumerate((({}, 1_000), ({"room_taken": 0.0}, 1_500))):
        gone = [of("", 1_000, 1_000, entity={"client-id": f"m{each}"}, **told) for each in range(100)]
        entries = [of("alice", 1_500, 1_000), *gone]
        found = read_plan(plan(tmp_path, DAY + timedelta(days=number), entries, room={KEY: 2_000}))
        apply_unattended(found, place, today=DAY + timedelta(days=number + 1))
        assert f"user: alice\n    {KEY}: {after}" in file.read_text()


def test_a_defaults_limit_that_becomes_one_of_its_own_takes_room_though_it_is_cut(tmp_path: Path) -> None:
    """As long as it is a default's it counts the 5 that it asks for; with 700 of its own it counts 700."""
    place = quotas(tmp_path, {"alice": 1_000})
    file = tmp_path / "quotas.yaml"
    file.write_text(file.read_text() + f"  - user: <default>\n    {KEY}: 1000\n")
    entries = [of("alice", 1_500, 1_000, confidence=1.0), of("bob", 700, 1_000, asked=5.0, room_taken=700.0)]
    for number, (room, has_own) in enumerate(((1_900, False), (2_300, True))):
        today = DAY + timedelta(days=number)
        path = plan(tmp_path, today, entries, room={KEY: room})
        applied = apply_unattended(read_plan(path), place, today=today + timedelta(days=1))
        own = {"bob": 700} if has_own else {}
        assert limits_of(place) == {"alice": 1_500, "<default>": 1_000, **own}
        told = [why for _, why in applied.choice.left_out]
        assert told == ([] if has_own else ["a later night: there is no room until others are cut"])


def test_a_default_that_somebody_has_changed_since_counts_as_one(tmp_path: Path) -> None:
    """Three hundred users with 1,200 by it now, who ask for 5 each, are no 360,000 of the room."""
    place = quotas(tmp_path, {"alice": 1_000})
    file = tmp_path / "quotas.yaml"
    file.write_text(file.read_text() + f"  - user: <default>\n    {KEY}: 1200\n")
    others = [of(f"x{number}", 1_000, 1_000, asked=5.0, room_taken=5.0) for number in range(300)]
    entries = [of("alice", 1_500, 1_000, confidence=1.0), *others]
    found = read_plan(plan(tmp_path, DAY, entries, room={KEY: 4_000}))
    apply_unattended(found, place, today=DAY + timedelta(days=1))
    assert limits_of(place) == {"alice": 1_500, "<default>": 1_200}


@pytest.mark.parametrize("number", [10, 12, 20])
def test_users_by_a_default_are_cut_for_the_room_from_what_they_ask_for(number: int, tmp_path: Path) -> None:
    """Counted from the default's limit a part of the way was above what they ask for, took more room, and was
    left out each night for ever, with the night's share used up."""
    file = tmp_path / "quotas.yaml"
    file.write_text(f"quotas:\n  - user: <default>\n    {KEY}: 10000\n")
    place = QuotaFilePlace(file)
    entries = [
        of(f"u{each:02}", 3_000, 10_000, asked=6_400.0, room_taken=3_000.0, reason="capacity")
        for each in range(number)
    ]
    apply_unattended(read_plan(plan(tmp_path, DAY, entries, room={KEY: 3_000.0 * number})), place, today=DAY)
    after = [limit for user, limit in limits_of(place).items() if user != "<default>"]
    assert sum(6_400 - limit for limit in after) == pytest.approx(6_400 * number * 0.25 / 7, abs=1)


def test_users_who_all_have_a_defaults_limit_are_cut_as_others_are(tmp_path: Path) -> None:
    """Each asks for little of it, which is why it is to be cut."""
    file = tmp_path / "quotas.yaml"
    file.write_text(f"quotas:\n  - user: <default>\n    {KEY}: 10000\n")
    entries = [of(f"u{number:02}", 7_000, 10_000, asked=1.0, room_taken=7_000.0) for number in range(50)]
    place = QuotaFilePlace(file)
    apply_unattended(read_plan(plan(tmp_path, DAY, entries)), place, today=DAY + timedelta(days=1))
    after = limits_of(place)
    cut = sum(10_000 - limit for user, limit in after.items() if user != "<default>")
    assert cut == pytest.approx(500_000 * 0.25 / 7, abs=1)


def test_a_rise_that_fits_but_for_a_rounding_fits(tmp_path: Path) -> None:
    limits = {"a": 0.1, "b": 0.2, "c": 0.3}
    place = quotas(tmp_path, limits)  # type: ignore[arg-type]
    file = tmp_path / "quotas.yaml"
    file.write_text(file.read_text().replace(KEY, "request_percentage"))
    entries = [of(user, limit + 0.1, limit, key="request_percentage") for user, limit in limits.items()]
    room = {"request_percentage": 0.2 + 0.3 + 0.4}
    apply_unattended(read_plan(plan(tmp_path, DAY, entries, room=room)), place, today=DAY)
    assert file.read_text().count("request_percentage: 0.1\n") == 0
