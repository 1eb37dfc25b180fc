"""Water-filling: never above the room, nobody cut who has less than another keeps."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.recalibration.policy.capacity import Claim, fitted, shares, water_level


def test_the_worked_example_comes_out() -> None:
    limits = {"a": 800.0, "b": 100.0, "c": 300.0, "d": 800.0}
    assert fitted(limits, 1_500) == {"a": 550, "b": 100, "c": 300, "d": 550}


def test_what_is_kept_is_kept_as_long_as_it_fits() -> None:
    limits, needs = dict.fromkeys("abc", 800.0), {"a": 700.0, "b": 100.0, "c": 100.0}
    assert fitted(limits, 1_500, needs) == {"a": 700, "b": 400, "c": 400}
    assert fitted(limits, 900, needs) == {"a": 700, "b": 100, "c": 100}
    assert fitted(limits, 800, needs) == {"a": 600, "b": 100, "c": 100}, "not all of it fits"
    assert fitted(limits, 240, needs) == dict.fromkeys("abc", 80)
    assert fitted(limits, 2_400, needs) == limits
    assert fitted(limits, 1_500, needs | {"a": 0.0}) == dict.fromkeys("abc", 500.0)
    assert fitted(limits, 1_500, needs | {"a": 9_000.0}) == {"a": 800, "b": 350, "c": 350}, (
        "his limit, no more"
    )


def test_what_fits_stays() -> None:
    assert water_level([1.0, 2.0], [0.0] * 2, 3.0) == inf
    assert fitted({}, 1.0) == {}


@given(st.lists(st.floats(0.001, 1e12), min_size=1), st.floats(0.001, 1e13))
def test_the_sum_fits_and_who_is_cut_keeps_as_much_as_anybody(limits: list[float], room: float) -> None:
    after = fitted(dict(enumerate(limits)), room)
    assert sum(after.values()) <= room * (1 + 1e-9)
    highest = max(after.values())
    for index, limit in enumerate(limits):
        assert after[index] == limit or after[index] == pytest.approx(highest)
    if sum(limits) > room:
        assert sum(after.values()) == pytest.approx(room)


@given(st.lists(st.tuples(st.floats(0.001, 1e12), st.floats(0.0, 1e12)), min_size=1), st.floats(0.001, 1e13))
def test_the_sum_fits_and_what_is_kept_stays_where_all_of_it_fits(
    pairs: list[tuple[float, float]], room: float
) -> None:
    limits, kept = [limit for limit, _ in pairs], [min(pair) for pair in pairs]
    after = shares([Claim(limit, keeps) for limit, keeps in pairs], room)
    assert sum(after) <= room * (1 + 1e-9)
    assert all(share <= limit for share, limit in zip(after, limits, strict=True))
    if sum(limits) > room:
        assert sum(after) == pytest.approx(room)
    if sum(kept) <= room:
        assert all(share >= keeps for share, keeps in zip(after, kept, strict=True))


def test_who_is_throttled_keeps_what_he_has_and_gets_more_before_others_have_more_than_they_ask_for() -> None:
    big = Claim(80.0, kept=70.0, has=80.0)
    flood = Claim(40.0, kept=40.0, has=20.0, is_held_back=True)
    assert shares([big, flood], 100.0) == [70.0, 30.0]
    assert shares([Claim(95.0, 95.0, 95.0), Claim(40.0, 40.0, 40.0, True)], 100.0) == [60.0, 40.0], (
        "not all that is asked for fits: it is shared, and he is not starved"
    )
    calm = Claim(1_000.0, kept=100.0, has=1_000.0)
    assert shares([Claim(1_000.0, 1_000.0, 1_000.0, True), calm], 1_500.0) == [1_000.0, 500.0]
    rising = Claim(25.0, kept=25.0, has=20.0, is_held_back=True)
    assert shares([rising, *[Claim(10.0, 1.0, 10.0)] * 10], 60.0) == [25.0, *[3.5] * 10]


def test_what_anybody_may_make_up_comes_behind() -> None:
    named = [Claim(5.0, kept=4.5, has=5.0)] * 10
    minted = [Claim(1.0, kept=1.0, has=1.0, is_of_anybody=True)] * 200
    after = shares([*named, *minted], 100.0)
    assert after[:10] == [4.5] * 10
    assert after[10:] == pytest.approx([55.0 / 200] * 200)


def test_what_is_firm_comes_first() -> None:
    assert shares([Claim(50.0, 50.0, firm=40.0)] * 5, 100.0) == [40.0] * 5, "no room for all floors"
    assert shares([Claim(90.0, 90.0, firm=60.0), Claim(90.0, 20.0)], 100.0) == [80.0, 20.0]
    assert shares([Claim(50.0, 10.0, firm=50.0), Claim(90.0, 80.0)], 100.0) == [50.0, 50.0]
