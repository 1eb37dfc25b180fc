"""From days and a limit to the limit proposed, and why."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.recalibration.policy.demand import Demand
from sluice.recalibration.policy.policy import Day, Proposal, Reason, propose
from sluice.recalibration.policy.settings import PolicySettings

SETTINGS = PolicySettings()
FULL_DAY = 86_400.0


def day(age: int, rate: float) -> Day:
    return Day(age, Demand(rate, True, rate), FULL_DAY)


def censored(age: int, top: float, ceiling: float) -> Day:
    return Day(age, Demand(min(ceiling, 2 * top), False, ceiling), FULL_DAY)


def steady(rate: float, days: int, since: int = 0) -> list[Day]:
    return [day(since + age, rate) for age in range(days)]


def test_the_worked_example_comes_out() -> None:
    first = propose([*steady(800, 10, since=1), censored(0, 1_000, 3_500)], 1_000, SETTINGS)
    assert [first.limit, first.wanted] == pytest.approx([1_656, 2_300])
    assert (first.reason, first.needs_review) == (Reason.GUARD, True)
    mild = [censored(age, 1_000, 3_000) for age in range(3)]
    second = propose([*steady(800, 10, since=3), *mild], 1_000, SETTINGS)
    assert (second.limit, second.reason, second.needs_review) == (2_000, Reason.STEP_UP, False)


def test_a_steady_service_gets_its_demand_with_headroom_and_a_cut_leaves_more() -> None:
    risen = propose(steady(1_000, 14), 900, SETTINGS)
    assert risen.limit == pytest.approx(1_150)
    proposal = propose(steady(1_000, 14), 2_400, SETTINGS)
    assert proposal.limit == pytest.approx(1_680)  # × 0.7 a night at most
    assert proposal.reason is Reason.STEP_DOWN
    proposal = propose(steady(1_000, 14), proposal.limit, SETTINGS)
    assert [proposal.limit, proposal.wanted] == pytest.approx([1_500, 1_150])
    assert (proposal.reason, proposal.needs_review) == (Reason.DEMAND, False)
    for limit in (1_150.0, 1_500.0, 1_600.0):
        assert propose(steady(1_000, 14), limit, SETTINGS).reason is Reason.UNCHANGED
    generous = replace(SETTINGS, headroom=1.6)
    assert propose(steady(1_000, 14), 2_000, generous).limit == 1_600, "a cut is never followed by a rise"


def test_a_peak_once_a_week_is_kept_from_week_to_week() -> None:
    for last_peak in range(7):
        days = [day(age, 3_000 if age % 7 == last_peak else 1_000) for age in range(14)]
        assert propose(days, 3_450, SETTINGS).reason is Reason.UNCHANGED, last_peak


def test_one_odd_day_is_forgotten_after_a_week() -> None:
    days = [day(age, 3_000 if age == 9 else 1_000) for age in range(21)]
    assert propose(days, 3_450, SETTINGS).reason is Reason.STEP_DOWN


def test_who_asks_for_tens_of_times_as_much_waits_for_review_however_long_it_asks() -> None:
    limit = 1_150.0
    history = steady(1_000, 7)
    for _ in range(21):
        history = [replace(each, age_days=each.age_days + 1) for each in history]
        history.append(censored(0, limit, 30 * limit))
        proposal = propose(history, limit, SETTINGS)
        assert proposal.needs_review
        limit = proposal.limit
    assert limit <= 1.15 * 1.8 * 1_000 + 1e-6


def test_a_limit_that_somebody_set_above_the_guard_is_not_taken_away_by_it() -> None:
    days = [*steady(1_000, 10, since=1), censored(0, 50_000, 400_000)]
    proposal = propose(days, 50_000, SETTINGS)
    assert (proposal.limit, proposal.needs_review) == (50_000, True)


def test_a_climb_is_no_launch() -> None:
    """Half as much again each day: never more than the guard allows, though every day is near the last."""
    limit = 1_150.0
    history = steady(1_000, 7)
    for factor in (1.5, 2.25, 3.4):
        history = [replace(each, age_days=each.age_days + 1) for each in history]
        history.append(
            day(0, 1_000 * factor) if 1_000 * factor < limit else censored(0, limit, 1_000 * factor)
        )
        limit = propose(history, limit, SETTINGS).limit
    assert limit <= 2.5 * 1_150


@pytest.mark.parametrize(("climb", "most"), [(1.1, 3.0), (1.2, 2.5), (1.3, 2.5)])
def test_whoever_climbs_day_by_day_is_held_by_the_guard(climb: float, most: float) -> None:
    """A fifth more each day was level enough, and opened the guard each night: × 12 in 30 days."""
    limit = 1_150.0
    history = steady(1_000, 20)
    for night in range(1, 22):
        asked = min(1_000 * climb**night, 20_000)
        history = [replace(each, age_days=each.age_days + 1) for each in history]
        history.append(day(0, asked) if asked <= limit else censored(0, limit, asked))
        limit = propose(history, limit, SETTINGS).limit
    assert limit <= most * 1_150


def test_little_traffic_and_few_days_change_little() -> None:
    assert propose([], 1_000, SETTINGS) == Proposal(1_000, 0.0, Reason.TOO_LITTLE, False)
    little = [replace(day(age, 10), traffic_s=600.0) for age in range(5)]
    unchanged = propose(little, 1_000, SETTINGS)
    assert (unchanged.limit, unchanged.reason) == (1_000, Reason.TOO_LITTLE)
    throttled = [
        replace(each, traffic_s=50.0) for each in (censored(0, 1_000, 1_500), censored(1, 1_000, 1_500))
    ]
    assert propose(throttled, 1_000, SETTINGS).limit == pytest.approx(1_725)
    new = propose(steady(10, 2), 1_000, SETTINGS)
    assert (new.limit, new.reason) == (1_000, Reason.TOO_NEW_TO_CUT)
    grown = propose(steady(5_000, 1), 1_000, SETTINGS)
    assert (grown.limit, grown.reason) == (2_000, Reason.STEP_UP)


def test_who_does_a_little_each_day_is_cut_to_a_quarter_above_its_highest_day() -> None:
    """Two minutes a day are never an hour in 28 days: such a limit stayed as somebody had guessed it."""
    days = [
        Day(age, Demand(rate, True, rate), 120.0) for age, rate in enumerate([700.0] * 12 + [900.0] + [700.0])
    ]
    limit = 6_000.0
    assert propose(days[:13], limit, SETTINGS).reason is Reason.TOO_LITTLE
    for _ in range(8):
        limit = propose(days, limit, SETTINGS).limit
    assert limit == pytest.approx(1.15 * 1.25 * 900)


def test_floor_and_ceiling_have_the_last_word() -> None:
    bounded = replace(SETTINGS, floor=900.0, ceiling=1_500.0)
    assert propose(steady(100, 9), 1_000, bounded).limit == 900
    high = propose(steady(5_000, 5), 1_000, bounded)
    assert (high.limit, high.reason, high.needs_review) == (1_500, Reason.CEILING, False)


days_strategy = st.lists(
    st.builds(
        lambda age, rate, factor, identified, traffic_s: Day(
            age, Demand(rate, identified, rate * factor), traffic_s
        ),
        st.integers(0, 40),
        st.floats(1.0, 1e12),
        st.floats(1.0, 100.0),
        st.booleans(),
        st.floats(1.0, FULL_DAY),
    ),
    max_size=30,
    unique_by=lambda day: day.age_days,
)


@given(days_strategy, st.floats(1.0, 1e12))
def test_a_step_is_never_wider_than_allowed_and_a_night_twice_is_a_night_once(
    days: list[Day], limit: float
) -> None:
    proposal = propose(days, limit, SETTINGS)
    assert limit * 0.7 * (1 - 1e-9) <= proposal.limit <= limit * 2.0 * (1 + 1e-9)
    assert proposal == propose(days, limit, SETTINGS)
    assert proposal == propose(days[::-1], limit, SETTINGS)


def test_calm_days_do_not_open_the_guard_for_an_older_flood() -> None:
    flooded = [day(0, 800), day(1, 800), censored(2, 1_500, 40_000), *steady(800, 9, since=3)]
    proposal = propose(flooded, 1_500, SETTINGS)
    # 1.8 x the median is what growth explains, headroom on top; the flood asks for 3,450
    assert proposal.limit <= 1.15 * 1.8 * 800 * (1 + 1e-9)
    assert (proposal.reason, proposal.needs_review) == (Reason.GUARD, True)


def test_from_birth_a_flood_raises_a_limit_to_twice_its_anchor_and_a_grant_lifts_that() -> None:
    limit = 1_000.0
    for night in range(8):
        flood = [censored(age, limit, 10 * limit) for age in range(night + 1)]
        proposal = propose(flood, limit, SETTINGS, anchor=1_000.0)
        limit = proposal.limit
    assert (limit, proposal.needs_review) == (2_000.0, True)
    reached = []
    for _ in range(4):
        throttled = [censored(0, limit, 10 * limit)]
        limit = propose(throttled, limit, SETTINGS, anchor=1_000.0, grant=5_000.0).limit
        reached.append(limit)
    assert reached == [4_000, 5_000, 5_000, 5_000]


def test_nothing_is_cut_by_a_week_with_holes_nor_before_a_week_is_over() -> None:
    whole = steady(100, 9)
    assert propose(whole, 1_000, SETTINGS).limit == 700
    holed = propose(whole, 1_000, SETTINGS, is_week_whole=False)
    assert (holed.limit, holed.reason) == (1_000, Reason.LOG_INCOMPLETE)
    assert propose(steady(100, 7), 1_000, SETTINGS).reason is Reason.TOO_NEW_TO_CUT


def test_a_change_of_just_a_tenth_is_made_and_a_smaller_one_is_not() -> None:
    settings = replace(SETTINGS, headroom=1.0)
    assert propose(steady(1_100, 14), 1_000, settings).limit == 1_100
    small = propose(steady(1_099, 14), 1_000, settings)
    assert (small.limit, small.reason) == (1_000, Reason.UNCHANGED)


def test_a_granted_limit_is_doubled_while_throttling_hides_what_is_asked_for() -> None:
    """The shape of a few free windows told 1,300 of one that asks for 5,000: five nights instead of three."""
    hidden = replace(censored(0, 1_000, 1_300), throttled_share=0.6)
    days = [*steady(800, 10, since=1), hidden]
    asked = propose(days, 1_000, SETTINGS, anchor=600)
    assert asked.first_step == min(asked.up_to, 2_000)
    for grant, limit in ((5_000.0, 2_000.0), (1_700.0, 1_700.0), (0.0, 1_200.0)):
        proposal = propose(days, 1_000, SETTINGS, anchor=600, grant=grant)
        assert proposal.limit == pytest.approx(limit), grant
    seldom = [*days[:-1], replace(hidden, throttled_share=0.05)]
    assert propose(seldom, 1_000, SETTINGS, anchor=600, grant=5_000).limit == pytest.approx(1.5 * 1_300)
    told = [*days[:-1], replace(day(0, 1_000), throttled_share=0.6)]
    assert propose(told, 1_000, SETTINGS, anchor=600, grant=5_000).limit == pytest.approx(1.5 * 1_000)


def test_a_granted_limit_rises_to_what_a_cut_would_leave_and_no_further_than_the_grant() -> None:
    """It came to 1.15 × what days of 10-second windows told, 0.97 of its need, and asked again."""
    days = steady(1_000, 14)
    assert propose(days, 1_100, SETTINGS).limit == 1_100
    assert propose(days, 900, SETTINGS).limit == pytest.approx(1_150)
    granted = propose(days, 1_100, SETTINGS, grant=5_000)
    assert [granted.limit, granted.wanted] == pytest.approx([1_500, 1_150])
    assert granted.up_to == 1_500, "a person grants as much"
    assert propose(days, 1_100, SETTINGS, grant=1_300).limit == 1_300
    assert propose(days, 1_450, SETTINGS, grant=5_000).reason is Reason.UNCHANGED
    assert propose(days, 2_000, SETTINGS, grant=5_000).limit == pytest.approx(1_500), "the grant holds no cut"
