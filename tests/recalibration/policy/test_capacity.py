"""Water-filling: never above the room, nobody cut who has less than another keeps."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.recalibration.policy.capacity import fitted, water_level


def test_the_worked_example_comes_out() -> None:
    limits = {"a": 800.0, "b": 100.0, "c": 300.0, "d": 800.0}
    assert fitted(limits, 1_500) == {"a": 550, "b": 100, "c": 300, "d": 550}


def test_what_nobody_needs_is_taken_first() -> None:
    limits, needs = dict.fromkeys("abc", 800.0), {"a": 700.0, "b": 100.0, "c": 100.0}
    assert fitted(limits, 1_500, needs) == {"a": 800, "b": 350, "c": 350}
    assert fitted(limits, 1_000, needs) == pytest.approx({"a": 733.3, "b": 133.3, "c": 133.3}, abs=0.1)
    assert fitted(limits, 600, needs) == {"a": 400, "b": 100, "c": 100}, "not all needs fit"
    assert fitted(limits, 2_400, needs) == limits
    assert fitted(limits, 1_500, dict.fromkeys("abc", 9_000.0)) == dict.fromkeys("abc", 500.0)


def test_what_fits_stays() -> None:
    assert water_level([1.0, 2.0], 3.0) == inf
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
def test_the_sum_fits_whatever_is_needed_and_who_is_cut_below_his_need_has_as_much_as_anybody(
    pairs: list[tuple[float, float]], room: float
) -> None:
    limits, needs = (
        {at: one for at, (one, _) in enumerate(pairs)},
        {at: one for at, (_, one) in enumerate(pairs)},
    )
    after = fitted(limits, room, needs)
    assert sum(after.values()) <= room * (1 + 1e-9)
    assert all(after[at] <= limits[at] * (1 + 1e-12) for at in limits)
    needed = {at: min(limits[at], needs[at]) for at in limits}
    if sum(needed.values()) <= room:
        assert all(after[at] >= needed[at] * (1 - 1e-9) for at in limits)
    else:
        highest = max(after.values())
        assert all(after[at] in (needed[at], pytest.approx(highest)) for at in limits)
