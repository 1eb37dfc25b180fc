"""How far a proposal can be relied on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.recalibration.policy.confidence import DayUse, confidence, word
from sluice.recalibration.policy.settings import PolicySettings

SETTINGS = PolicySettings()


def known(age: int, throttled_share: float = 0.0) -> DayUse:
    return DayUse(age, 1_000.0, True, throttled_share, 86_400.0)


def guess(age: int) -> DayUse:
    return DayUse(age, 1_000.0, False, 0.9, 86_400.0)


def test_the_worked_example() -> None:
    assert confidence([known(0, 0.1), guess(7)], SETTINGS) == pytest.approx(2 / 7 * 0.9 / 1.5)


def test_a_whole_week_that_is_known_is_all_that_can_be_had() -> None:
    assert confidence([known(age) for age in range(7)], SETTINGS) == 1.0
    assert confidence([known(age) for age in range(6)], SETTINGS) == pytest.approx(6 / 7)


def test_guesses_days_before_the_history_and_no_days_are_worth_nothing() -> None:
    assert confidence([guess(age) for age in range(28)], SETTINGS) == 0.0
    assert confidence([known(SETTINGS.history_days)], SETTINGS) == 0.0
    assert confidence([], SETTINGS) == 0.0


def test_words() -> None:
    assert [word(value) for value in (0.75, 0.74, 0.4, 0.39)] == ["high", "medium", "medium", "low"]


uses = st.builds(
    DayUse, st.integers(0, 40), st.floats(1.0, 1e12), st.booleans(), st.floats(0.0, 1.0), st.floats(1.0, 1e5)
)


@given(st.lists(uses, max_size=30, unique_by=lambda day: day.age_days), uses)
def test_it_lies_within_its_bounds_and_less_throttled_is_never_less_sure(
    days: list[DayUse], day: DayUse
) -> None:
    others = [each for each in days if each.age_days != day.age_days]
    free = DayUse(day.age_days, day.demand, day.identified, 0.0, day.traffic_s)
    before, after = confidence([*others, day], SETTINGS), confidence([*others, free], SETTINGS)
    assert 0.0 <= before <= after + 1e-12 <= 1.0 + 1e-9
