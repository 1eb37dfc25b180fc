"""Strangers whose limits come by a default take no room from those who have their own, whatever they call
themselves: room for 300 MB/s, 102 of which are asked for by twelve tenants and one that is throttled."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.quotas.entity_key import LimitOrigin
from sluice.quotas.kinds import KINDS, QuotaKind
from sluice.recalibration.policy.demand import DayState
from sluice.recalibration.policy.plan import EntityDay, Known, PlanEntry, fitted_plan, planned
from sluice.recalibration.policy.policy import Reason
from sluice.recalibration.policy.settings import PolicySettings
from sluice.recalibration.state.buckets import bucket_of

MB = 1_000_000
SETTINGS = PolicySettings(quantile=0.999)
ROOM = {"producer_byte_rate": 300 * MB}
A_DAY = 8_640
"""windows"""


def days(rate: float, windows: int = A_DAY, ages: int = 12, throttled: int = 0) -> list[EntityDay]:
    """Of each date so many windows at `rate`, throttled ones among them, in which a tenth more passed."""
    free = {bucket_of(rate): windows - throttled}
    held = {bucket_of(rate * 1.1): throttled} if throttled else {}
    return [EntityDay("p", age, DayState(free, held, held)) for age in range(ages)]


def limit_of(
    name: str, limit: float, its: list[EntityDay], origin: LimitOrigin = LimitOrigin.OWN,
    kind: QuotaKind = QuotaKind.PRODUCE,
) -> PlanEntry:  # fmt: skip
    return replace(planned(kind, name, limit, its, SETTINGS, Known(origin=origin)), entity=name)


def honest(late_has: float = 20 * MB) -> list[PlanEntry]:
    """Twelve at 5.5 of 8 MB/s; and one that is throttled, and asks for a quarter more than it has."""
    late = limit_of("late", late_has, days(late_has * 0.9, throttled=1_000))
    late = replace(late, proposed=late_has * 1.25, wanted=late_has * 1.25, reason=Reason.DEMAND)
    return [*(limit_of(f"t{number}", 8 * MB, days(5.5 * MB)) for number in range(12)), late]


def wants_twice(entry: PlanEntry) -> PlanEntry:
    """Throttled nearly all day, and to have twice what it has."""
    return replace(entry, throttled_share=0.9, wanted=entry.current * 2.0, proposed=entry.current * 2.0)


def strangers(
    origin: LimitOrigin, number: int, its: list[EntityDay], limit: float = 10 * MB
) -> list[PlanEntry]:
    one = limit_of("stranger", limit, its, origin)
    return [replace(one, entity=f"s{each:05}") for each in range(number)]


@pytest.mark.parametrize("origin", [LimitOrigin.ANYBODY, LimitOrigin.DEFAULT])
@pytest.mark.parametrize(("windows", "ages"), [(2, 1), (360, 1), (360, 8), (360, 12), (A_DAY, 12)])
@pytest.mark.parametrize("number", [200, 5_000])
def test_a_stranger_with_a_hundred_bytes_a_window_takes_nothing_from_anybody(
    origin: LimitOrigin, windows: int, ages: int, number: int
) -> None:
    """Once he had sent for an hour a day for a week, each name of his was to be cut from 10 MB/s to 7, and
    counted 7 MB/s: the throttled one was to become 1.4."""
    entries = [*honest(), *strangers(origin, number, days(100.0, windows, ages))]
    after = fitted_plan(entries, ROOM)
    assert after[:13] == entries[:13]
    assert after[12].proposed == 25 * MB
    assert not any(each.is_change for each in after[13:]), "no entry of his own, and no cut"
    assert sum(each.room_taken for each in after) <= ROOM["producer_byte_rate"]


@pytest.mark.parametrize("number", [10, 200, 5_000])
def test_nor_do_limits_of_their_own_that_nobody_uses(number: int) -> None:
    """Users who had 10 MB/s each by a default, and since then 7 of their own: slack gives way first."""
    entries = [*honest(), *strangers(LimitOrigin.OWN, number, days(100.0), limit=7 * MB)]
    after = fitted_plan(entries, ROOM)
    assert after[12].proposed == 25 * MB
    assert all(each.proposed >= int(each.wanted) for each in after[:12])
    assert sum(each.room_taken for each in after) <= ROOM["producer_byte_rate"]


def test_those_who_ask_for_much_under_many_names_cut_nobody_below_what_he_asks_for_or_has() -> None:
    """1 GB/s, all day for a week, is traffic to reckon with; they have what is left."""
    entries = [*honest(), *strangers(LimitOrigin.ANYBODY, 1_000, days(MB))]
    after = fitted_plan(entries, ROOM)
    assert after[12].proposed == 25 * MB
    assert all(each.proposed >= int(each.wanted) for each in after[:12])
    assert sum(each.room_taken for each in after) <= ROOM["producer_byte_rate"]


def test_addresses_that_came_once_take_nothing_and_get_no_limits_of_their_own() -> None:
    """Two thousand with a connection each had the one that was throttled cut from 100 a second to 1."""
    kind = QuotaKind.CONNECTION_CREATION
    office = limit_of("office", 100, days(90.0, throttled=1_000, ages=1), kind=kind)
    office = replace(office, proposed=115.0, wanted=115.0)
    come = limit_of("come", 10, days(0.1, 1, 1), LimitOrigin.ANYBODY, kind)
    entries = [office, *(replace(come, entity=f"a{each}") for each in range(2_000))]
    after = fitted_plan(entries, {KINDS[kind].config_key: 1_500})
    assert after[0] == office
    assert not any(each.is_change for each in after[1:])


def test_users_by_a_default_are_cut_where_not_even_what_they_ask_for_fits() -> None:
    entries = strangers(LimitOrigin.DEFAULT, 100, days(7 * MB))
    after = fitted_plan(entries, ROOM)
    assert {each.proposed for each in after} == {3 * MB}
    assert sum(each.room_taken for each in after) <= ROOM["producer_byte_rate"]


def test_users_by_a_default_share_with_those_who_have_limits_of_their_own_where_not_all_fits() -> None:
    """Ten tenants ask for 30.01 MB/s of 40 each, and three users for 11 kB/s of 10 MB/s: these had 1 B/s."""
    tenants = [limit_of(f"t{number}", 40 * MB, days(26.1 * MB)) for number in range(10)]
    users = strangers(LimitOrigin.DEFAULT, 3, days(10_000.0))
    after = fitted_plan([*tenants, *users], ROOM)
    assert [each.proposed for each in after[10:]] == [10 * MB] * 3
    assert sum(each.room_taken for each in after) <= ROOM["producer_byte_rate"]
    assert min(each.proposed for each in after[:10]) > 29.9 * MB


def test_eight_that_are_throttled_leave_users_by_a_default_what_they_ask_for() -> None:
    flood = limit_of("flood", 40 * MB, days(40 * MB))
    flood = replace(flood, throttled_share=0.9, wanted=80.0 * MB, proposed=80.0 * MB)
    users = strangers(LimitOrigin.DEFAULT, 3, days(MB))
    after = fitted_plan([*(replace(flood, entity=f"f{each}") for each in range(8)), *users], ROOM)
    assert [each.proposed for each in after[8:]] == [10 * MB] * 3
    assert {each.proposed for each in after[:8]} == {
        int((ROOM["producer_byte_rate"] - 3 * after[8].room_taken) / 8)
    }


def test_ids_that_ask_for_much_in_one_window_of_an_hour_hold_nobody_down() -> None:
    """A kilobyte a second each, and weight 1: twenty of them would take what was left."""
    peak = [EntityDay("p", age, DayState({bucket_of(100.0): 359, bucket_of(9 * MB): 1})) for age in range(12)]
    entries = [*honest(), *strangers(LimitOrigin.ANYBODY, 1_000, peak)]
    after = fitted_plan(entries, ROOM)
    assert after[12].proposed == 25 * MB
    assert all(each.proposed >= int(each.wanted) for each in after[:12])
    assert sum(each.room_taken for each in after) <= ROOM["producer_byte_rate"]


@pytest.mark.parametrize(("number", "after_mb"), [(10, 20), (20, 15), (50, 6)])
def test_users_by_a_default_who_send_much_have_what_others_have(number: int, after_mb: int) -> None:
    one = wants_twice(limit_of("u", 10 * MB, days(9 * MB), LimitOrigin.DEFAULT))
    after = fitted_plan([replace(one, entity=f"u{each}") for each in range(number)], ROOM)
    assert {each.proposed for each in after} == {after_mb * MB}
    assert sum(each.room_taken for each in after) <= ROOM["producer_byte_rate"]


@pytest.mark.parametrize("origin", [LimitOrigin.DEFAULT, LimitOrigin.ANYBODY])
@pytest.mark.parametrize("windows", [0, 4, 323])
@pytest.mark.parametrize("number", [20, 200, 1_000])
def test_those_by_a_default_who_send_little_rise_by_a_persons_word_and_take_no_room(
    origin: LimitOrigin, windows: int, number: int
) -> None:
    """Twenty users with two throttled windows each held the one with a limit of its own down."""
    ages = 1 if windows == 4 else 12
    one = wants_twice(limit_of("u", 10 * MB, days(9 * MB, max(windows, 1), ages), origin))
    if not windows:  # gone for nine days
        one = replace(one, days=tuple(replace(day, age_days=day.age_days + 9) for day in one.days))
    entries = [*honest(), *(replace(one, entity=f"u{each}") for each in range(number))]
    after = fitted_plan(entries, ROOM)
    assert after[12].proposed == 25 * MB
    assert all(each.proposed >= int(each.wanted) for each in after[:12])
    assert not any(each.is_change for each in after[13:])
    assert all(each.needs_review for each in after[13:])
    assert sum(each.room_taken for each in after) <= ROOM["producer_byte_rate"] * (1 + 1e-9)


def test_ids_that_send_much_never_get_limits_of_their_own() -> None:
    """They would stand with the others from then on: 17 of them held the throttled one down for ever."""
    one = wants_twice(limit_of("i", 10 * MB, days(9 * MB), LimitOrigin.ANYBODY))
    entries = [*honest(), *(replace(one, entity=f"i{each}") for each in range(200))]
    after = fitted_plan(entries, ROOM)
    assert after[12].proposed == 25 * MB
    assert not any(each.is_change for each in after[13:])
    assert sum(each.room_taken for each in after) <= ROOM["producer_byte_rate"] * (1 + 1e-9)


def test_a_newcomer_keeps_his_limit_before_a_flood_has_more() -> None:
    new = limit_of("new", 20 * MB, days(100.0, 60, 1))
    flood = replace(
        wants_twice(limit_of("flood", 150 * MB, days(150 * MB))), proposed=300.0 * MB, wanted=300.0 * MB
    )
    after = fitted_plan([new, flood], ROOM)
    assert [each.proposed for each in after] == [20 * MB, 280 * MB]


def drawn(
    number: int, limit: int, rate: int, windows: int, ages: int, origin: LimitOrigin, held: float, more: bool
) -> PlanEntry:
    entry = limit_of(str(number), float(limit), days(float(rate), windows, ages), origin)
    return wants_twice(entry) if more and held else replace(entry, throttled_share=held)


ENTRIES = st.builds(
    drawn,
    st.integers(0, 10**9),
    st.integers(1, 10**8),
    st.integers(1, 10**8),
    st.integers(1, A_DAY),
    st.integers(1, 12),
    st.sampled_from(LimitOrigin),
    st.sampled_from([0.0, 0.05, 0.9]),
    st.booleans(),
)


@settings(deadline=None)
@given(st.lists(ENTRIES, min_size=1, max_size=12), st.integers(100, 10**9))
def test_no_plan_passes_the_room_and_whose_names_anybody_makes_up_cut_nobody(
    entries: list[PlanEntry], room: int
) -> None:
    after = fitted_plan(entries, {"producer_byte_rate": float(room)})
    taken = sum(each.room_taken for each in after)
    assert taken <= max(room, len(entries)) * (1 + 1e-9), "one byte a second is the least"
    for before, each in zip(entries, after, strict=True):
        if each.origin is LimitOrigin.ANYBODY:
            assert each.proposed == before.current
        if each.origin is LimitOrigin.DEFAULT and each.weight < 1.0:
            assert each.proposed == before.current
    own = [number for number, entry in enumerate(entries) if entry.origin is LimitOrigin.OWN]
    is_calm = not any(entry.throttled_share for entry in entries)
    named = [entry for entry in entries if entry.origin is not LimitOrigin.ANYBODY]
    if is_calm and sum(min(entry.wanted, entry.room_taken) for entry in named) <= room:
        for number in own:
            assert after[number].proposed >= int(min(entries[number].wanted, entries[number].proposed))
