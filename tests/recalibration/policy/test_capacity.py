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
