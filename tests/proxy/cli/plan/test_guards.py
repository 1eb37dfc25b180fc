"""What the guards against mass cuts are a share of: no single limit makes them larger than the others do."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from sluice.proxy.cli.plan.apply import apply_plan, apply_unattended, read_plan
from sluice.proxy.cli.plan.choice import Bounds, PlanRefused
from sluice.proxy.cli.plan.ledger import add_cuts, cuts_of_week
from tests.proxy.cli.plan.test_nightly import DAY, KEY, limits_of, of, plan, quotas

TODAY = DAY + timedelta(days=1)
UNLIMITED = 2**63 - 1
OTHERS = [f"u{number:02}" for number in range(1, 20)]


@pytest.mark.parametrize(
    ("largest", "counted"),
    [(1_000, 20_000), (10_000, 29_000), (10_000_000_000, 38_000), (2**53, 19_000), (UNLIMITED, 19_000)],
)
def test_one_limit_however_large_makes_no_night_larger_than_the_others_do(
    largest: int, counted: int, tmp_path: Path
) -> None:
    """19 others of 1,000. One of 2⁶³ − 1, which is Kafka's unlimited, let half of all be cut in a night."""
    before = {"u00": largest} | dict.fromkeys(OTHERS, 1_000)
    place = quotas(tmp_path, before)
    cuts = [of(user, 700, 1_000) for user in OTHERS]
    found = read_plan(plan(tmp_path, DAY, [of("u00", largest, largest), *cuts]))
    apply_unattended(found, place, today=TODAY)
    cut_by = sum(before.values()) - sum(limits_of(place).values())
    assert cut_by == pytest.approx(0.25 * counted / 7, abs=1)
    assert cuts_of_week(tmp_path / "out", str(place.file), TODAY) == {KEY: cut_by}


@pytest.mark.parametrize("largest", [10_000_000_000, 2**53, UNLIMITED])
def test_one_limit_however_large_hides_no_fall_of_the_others(largest: int, tmp_path: Path) -> None:
    place = quotas(tmp_path, {"u00": largest} | dict.fromkeys(OTHERS, 1_000))
    entries = [of(user, 700, 1_000) for user in OTHERS[:10]]
    entries += [of(user, 1_000, 1_000) for user in OTHERS[10:]]
    found = read_plan(plan(tmp_path, DAY, [of("u00", largest, largest), *entries]))
    fall = 3_000 / (38_000 if largest < 2**53 else 19_000)
    with pytest.raises(PlanRefused, match=f"together fall by {fall:.0%}, more than 7%"):
        apply_plan(found, place, today=TODAY, bounds=Bounds(max_total_fall=0.07, max_cut_share=1.0))
    apply_plan(found, place, today=TODAY, bounds=Bounds(max_total_fall=0.16, max_cut_share=1.0))


def test_the_fall_of_the_largest_limit_counts_as_far_as_it_does(tmp_path: Path) -> None:
    """1,000,000 beside 19 of 1,000 counts 19,000: tonight's 1,357 are 71,428 of it."""
    place = quotas(tmp_path, {"u00": 1_000_000} | dict.fromkeys(OTHERS, 1_000))
    entries = [of("u00", 700_000, 1_000_000), *(of(user, 1_000, 1_000) for user in OTHERS)]
    found = read_plan(plan(tmp_path, DAY, entries))
    with pytest.raises(PlanRefused, match="together fall by 15%, more than 14%"):
        apply_plan(found, place, today=TODAY, bounds=Bounds(max_total_fall=0.14))
    apply_unattended(found, place, today=TODAY)
    assert limits_of(place)["u00"] == 928_572
    booked = cuts_of_week(tmp_path / "out", str(place.file), TODAY)[KEY]
    assert booked == pytest.approx(0.25 * 38_000 / 7, abs=1)


def test_an_unlimited_one_is_cut_whatever_was_cut_before_and_uses_nothing_up(tmp_path: Path) -> None:
    place = quotas(tmp_path, {"u00": UNLIMITED} | dict.fromkeys(OTHERS, 1_000))
    entries = [of("u00", 5_000, UNLIMITED, reason="capacity"), *(of(user, 1_000, 1_000) for user in OTHERS)]
    found = read_plan(plan(tmp_path, DAY, entries))
    booked = {str(place.file): {KEY: [[TODAY.isoformat(), 1_000_000.0]]}}
    ledger = tmp_path / "out" / "unattended.json"
    ledger.write_text(json.dumps(booked))
    apply_unattended(found, place, today=TODAY)
    assert limits_of(place)["u00"] == 5_000
    assert json.loads(ledger.read_text()) == booked


def test_beside_unlimited_ones_fewer_than_ten_limits_have_no_total(tmp_path: Path) -> None:
    """As where there are no others. Of all of them no more than half are cut in a night."""
    unlimited = {f"x{number:02}": UNLIMITED for number in range(9)}
    place = quotas(tmp_path, unlimited | {"alice": 1_000})
    entries = [of(user, limit, limit) for user, limit in unlimited.items()]
    found = read_plan(plan(tmp_path, DAY, [*entries, of("alice", 700, 1_000)]))
    for apply in (apply_plan, apply_unattended):
        place.alter({(("user", "alice"),): {KEY: 1_000.0}})
        apply(found, place, today=TODAY)
        assert limits_of(place) == unlimited | {"alice": 700}
    place = quotas(tmp_path, unlimited | {"alice": 1_000})
    entries = [of(user, 5_000, UNLIMITED, reason="capacity") for user in unlimited]
    found = read_plan(plan(tmp_path, DAY + timedelta(days=1), [*entries, of("alice", 1_000, 1_000)]))
    with pytest.raises(PlanRefused, match="cuts 9 of 10 limits"):
        apply_plan(found, place, today=TODAY)
    apply_unattended(found, place, today=TODAY)
    assert sum(limit == 5_000 for limit in limits_of(place).values()) == 5


def test_a_date_to_come_freezes_no_cuts_and_is_not_lost(tmp_path: Path) -> None:
    """A night by a clock that was ten years ahead left no cuts until then."""
    place = quotas(tmp_path, dict.fromkeys(["u00", *OTHERS], 1_000))
    found = read_plan(plan(tmp_path, DAY, [of(user, 700, 1_000) for user in ("u00", *OTHERS)]))
    ledger = tmp_path / "out" / "unattended.json"
    ledger.write_text(json.dumps({str(place.file): {KEY: [["2036-11-20", 5_000.0]]}}))
    apply_unattended(found, place, today=TODAY)
    assert 20_000 - sum(limits_of(place).values()) == 714
    booked = json.loads(ledger.read_text())[str(place.file)][KEY]
    assert booked == [["2036-11-20", 5_000.0], [TODAY.isoformat(), 714.0]]
    assert cuts_of_week(tmp_path / "out", str(place.file), TODAY) == {KEY: 714}


def test_cuts_that_were_booked_by_another_measure_freeze_no_night(tmp_path: Path) -> None:
    """An older version counted an unlimited limit's fall in full: more than all limits together have."""
    place = quotas(tmp_path, dict.fromkeys(["u00", *OTHERS], 1_000))
    found = read_plan(plan(tmp_path, DAY, [of(user, 700, 1_000) for user in ("u00", *OTHERS)]))
    ledger = tmp_path / "out" / "unattended.json"
    ledger.write_text(json.dumps({str(place.file): {KEY: [[DAY.isoformat(), 0.07 * 2**63]]}}))
    apply_unattended(found, place, today=TODAY)
    assert 20_000 - sum(limits_of(place).values()) == 714


def test_a_clock_that_is_ahead_for_a_night_leaves_the_weeks_cuts_on_record(tmp_path: Path) -> None:
    """They were forgotten, and the week began anew when the clock was right again."""
    for age in (9, 3, 1):
        add_cuts(tmp_path, "here", TODAY - timedelta(days=age), {KEY: 100.0})
    add_cuts(tmp_path, "here", TODAY + timedelta(days=40), {KEY: 5.0})
    add_cuts(tmp_path, "here", TODAY, {KEY: 10.0})
    assert cuts_of_week(tmp_path, "here", TODAY) == {KEY: 210.0}
    assert len(json.loads((tmp_path / "unattended.json").read_text())["here"][KEY]) == 4


@pytest.mark.parametrize(("large", "small"), [(0.9, 0.1), (1.8, 0.2), (90.5, 10.0)])
def test_a_limit_that_takes_fractions_is_cut_a_part_of_the_way_however_small_it_is(
    large: float, small: float, tmp_path: Path
) -> None:
    """Rounded up to a whole number it was as large as before, each night. Beside 19 others of a ninth of it
    the night's share is as much as one of these."""
    key = "request_percentage"
    place = quotas(tmp_path, {"nobody": 1})
    limits = dict.fromkeys(OTHERS, small) | {"alice": large}
    place.alter({(("user", user),): {key: limit} for user, limit in limits.items()})
    entries = [of(user, small, small, key=key) for user in OTHERS]
    found = read_plan(plan(tmp_path, DAY, [*entries, of("alice", 0.7 * large, large, key=key)]))
    apply_unattended(found, place, today=TODAY)
    is_now = place.listing().limits[("user", "alice"),][key]
    assert large - small <= is_now < large - 0.95 * small
