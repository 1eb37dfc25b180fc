"""Strangers whose limits come by a default take no room from those who have their own, whatever they call
themselves: room for 300 MB/s, 102 of which are asked for by twelve tenants and one that is throttled."""

from __future__ import annotations

from dataclasses import replace

import pytest

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


@pytest.mark.parametrize(("number", "after_mb"), [(10, 20), (20, 15), (50, 10)])
def test_users_by_a_default_rise_as_far_as_there_is_room(number: int, after_mb: int) -> None:
    """With ten minutes a day they count a sixth as they are."""
    one = limit_of("u", 10 * MB, days(9 * MB, 60), LimitOrigin.DEFAULT)
    one = replace(one, throttled_share=0.9, wanted=20.0 * MB, proposed=20.0 * MB)
    after = fitted_plan([replace(one, entity=f"u{each}") for each in range(number)], ROOM)
    assert {each.proposed for each in after} == {after_mb * MB}
    assert sum(each.room_taken for each in after) <= ROOM["producer_byte_rate"]
