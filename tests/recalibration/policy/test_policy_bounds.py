"""Where each rule of the policy begins and ends: the days that count, and what is exactly at a bound."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluice.recalibration.policy.capacity import fitted, water_level
from sluice.recalibration.policy.demand import DayState, Demand, estimate
from sluice.recalibration.policy.policy import Day, Proposal, Reason, propose
from sluice.recalibration.policy.settings import PolicySettings
from sluice.recalibration.state.buckets import middle
from tests.recalibration.policy.test_policy import FULL_DAY, SETTINGS, censored, day, steady

PLAIN = replace(SETTINGS, headroom=1.0, cut_headroom=1.0, hysteresis=0.0, max_step_up=1e9, max_step_down=0.0)
"""The limit becomes the demand, within the guard"""


def allowed(days: list[Day], settings: PolicySettings = PLAIN) -> float:
    """What the guard grants a limit of 1 that asks for all there is."""
    flood = [*days, censored(0, 1e8, 1e9)] if all(each.age_days for each in days) else days
    return propose(flood, 1.0, settings).limit


@pytest.mark.parametrize(("age", "counts"), [(7, False), (8, True), (21, True), (22, False)])
def test_growth_of_the_past_is_by_days_8_to_21(age: int, *, counts: bool) -> None:
    days = [day(each, 5_000 if each == age else 1_000) for each in range(1, 28)]
    assert allowed(days) == (6_250 if counts else 1_800)


@pytest.mark.parametrize(("days", "is_usual"), [(2, False), (3, True)])
def test_before_the_third_day_nothing_is_usual(days: int, *, is_usual: bool) -> None:
    """The flood's day is one of them, and the oldest tells how long the entity is known."""
    seen = [day(days - 1, 1_000), censored(0, 1_000, 1e9)]
    assert propose(seen, 1.0, PLAIN).needs_review is is_usual


@pytest.mark.parametrize(("age", "counts"), [(2, True), (3, False)])
def test_level_are_the_last_three_days(age: int, *, counts: bool) -> None:
    """One of 1,200 and others of 3,000: what climbs is looked at."""
    days = [censored(each, 3_000, 1_200 if each == age else 3_000) for each in range(5)]
    days += steady(1_000, 15, since=5)
    assert propose(days, 1.0, PLAIN).needs_review is counts


@pytest.mark.parametrize(("ceiling", "is_level"), [(4_000.0, True), (4_001.0, False)])
def test_told_by_its_shape_is_what_is_within_four_times_the_median(ceiling: float, *, is_level: bool) -> None:
    days = [*steady(1_000, 15, since=3), *(censored(age, 5_000, ceiling) for age in range(3))]
    assert propose(days, 1.0, PLAIN).needs_review is not is_level


@pytest.mark.parametrize(("least", "is_level"), [(2_000.0, True), (1_999.0, False)])
def test_level_is_what_lies_within_15_percent(least: float, *, is_level: bool) -> None:
    days = [censored(age, 5_000, 2_300.0 if age else least) for age in range(3)]
    days += steady(1_000, 15, since=3)
    assert propose(days, 1.0, PLAIN).needs_review is not is_level


def test_a_guard_that_opened_grants_what_the_last_three_days_show_or_what_growth_explains() -> None:
    days = [*steady(1_000, 15, since=3), *(censored(age, 5_000, 3_000.0) for age in range(3))]
    assert propose(days, 1.0, PLAIN).limit == 3_000
    low = [*steady(1_000, 15, since=3), *(censored(age, 5_000, 1_500.0) for age in range(3))]
    old = [*low, day(10, 4_000)]
    assert propose(old, 1.0, PLAIN).wanted == 1_500
    assert not propose(low, 1.0, PLAIN).needs_review


@pytest.mark.parametrize(("age", "counts"), [(7, True), (8, False)])
def test_the_highest_of_the_last_eight_days_counts_whatever_its_weight(age: int, *, counts: bool) -> None:
    days = [day(each, 2_000 if each == age else 1_000) for each in range(20)]
    assert propose(days, 1_000, PLAIN).wanted == (2_000 if counts else 1_000)


@pytest.mark.parametrize(("age", "counts"), [(27, True), (28, False)])
def test_four_weeks_count(age: int, *, counts: bool) -> None:
    proposal = propose([day(age, 700)], 1_000, PLAIN)
    assert (proposal.wanted, proposal.reason is not Reason.TOO_LITTLE) == (
        (700, True) if counts else (0.0, False)
    )


def test_a_days_weight_is_halved_in_a_week() -> None:
    """One of 2,000 of age 0 weighs as much as two of age 7: the p50 of three."""
    half = replace(PLAIN, day_quantile=0.5, recent_days=0)
    assert propose([day(8, 2_000), day(15, 1_000), day(15, 1_000)], 500, half).wanted == 1_000
    assert propose([day(8, 2_000), day(15, 1_000), day(16, 1_000)], 500, half).wanted == 2_000
    whole = replace(half, day_quantile=1.0)
    assert propose([day(8, 2_000), day(20, 3_000)], 500, whole).wanted == 3_000


@pytest.mark.parametrize(("traffic_s", "is_cut"), [(3_600.0, True), (3_599.0, False)])
def test_an_hour_of_traffic_is_enough_to_cut(traffic_s: float, *, is_cut: bool) -> None:
    days = [replace(each, traffic_s=traffic_s / 13) for each in steady(1_000, 13)]
    proposal = propose(days, 2_000, SETTINGS)
    assert (proposal.limit < 2_000) is is_cut
    assert is_cut or proposal.reason is Reason.TOO_LITTLE


@pytest.mark.parametrize(("count", "limit"), [(13, 2_000.0), (14, 1_600.0)])
def test_on_little_traffic_two_weeks_of_days_tell_what_is_kept(count: int, limit: float) -> None:
    days = [replace(each, traffic_s=60.0) for each in steady(1_000, count)]
    proposal = propose(days, 2_000, replace(SETTINGS, growth_of_past=1.6 / 1.15))
    assert proposal.limit == pytest.approx(limit)
    assert proposal.reason is Reason.TOO_LITTLE


@pytest.mark.parametrize(("days", "reason"), [(7, Reason.TOO_NEW_TO_CUT), (8, Reason.DEMAND)])
def test_nothing_is_cut_before_the_eighth_day(days: int, reason: Reason) -> None:
    assert propose([day(days - 1, 1_000), day(0, 1_000)], 2_000, SETTINGS).reason is reason


def test_what_a_rule_keeps_a_cut_from_has_its_own_reason() -> None:
    days = steady(1_000, 10)
    assert propose(days, 2_000, SETTINGS, is_week_whole=False).reason is Reason.LOG_INCOMPLETE
    assert propose(days, 1_150, SETTINGS, is_week_whole=False).reason is Reason.UNCHANGED


def unchanged_at(limit: float, demand: float) -> Proposal:
    return propose(steady(demand, 10), limit, replace(SETTINGS, headroom=1.0, cut_headroom=1.0))


def test_a_tenth_is_a_change() -> None:
    assert unchanged_at(1_000, 1_099).limit == 1_000
    assert (unchanged_at(1_000, 1_100).limit, unchanged_at(1_000, 1_100).reason) == (1_100, Reason.DEMAND)
    assert unchanged_at(1_000, 901).limit == 1_000
    assert unchanged_at(1_000, 900).limit == 900


def test_a_step_is_twice_at_most_and_seven_tenths_at_least() -> None:
    assert (unchanged_at(1_000, 2_000).limit, unchanged_at(1_000, 2_000).reason) == (2_000, Reason.DEMAND)
    assert (unchanged_at(1_000, 2_001).limit, unchanged_at(1_000, 2_001).reason) == (2_000, Reason.STEP_UP)
    assert (unchanged_at(1_000, 700).limit, unchanged_at(1_000, 700).reason) == (700, Reason.DEMAND)
    assert (unchanged_at(1_000, 699).limit, unchanged_at(1_000, 699).reason) == (700, Reason.STEP_DOWN)


def test_floor_and_ceiling_have_the_last_word() -> None:
    bounded = replace(PLAIN, floor=500.0, ceiling=900.0)
    for demand, limit, reason in (
        (499, 500, Reason.FLOOR), (500, 500, Reason.DEMAND), (900, 900, Reason.DEMAND),
        (901, 900, Reason.CEILING),
    ):  # fmt: skip
        proposal = propose(steady(demand, 10), 700, bounded)
        assert (proposal.limit, proposal.reason) == (limit, reason), demand
    assert propose(steady(1_000, 10), 1_000, replace(SETTINGS, ceiling=500.0)).limit == 500


def test_an_anchor_bounds_what_is_granted_without_review_and_a_limit_above_it_stays() -> None:
    days = steady(1_000, 10)
    assert propose(days, 100, PLAIN, anchor=300.0).limit == 600
    assert propose(days, 100, PLAIN, anchor=500.0).reason is Reason.DEMAND
    proposal = propose(days, 800, PLAIN, anchor=300.0)
    assert (proposal.limit, proposal.needs_review, proposal.reason) == (800, True, Reason.GUARD)
    assert propose(days, 100, PLAIN, anchor=300.0, grant=900.0).limit == 900
    assert propose(days, 100, PLAIN, anchor=300.0, grant=1_000.0).reason is Reason.DEMAND


def hidden(share: float, age: int = 0, *, identified: bool = False) -> list[Day]:
    latest = Day(age, Demand(1_000.0, identified, 3_000.0), FULL_DAY, share)
    return [*steady(1_000, 10, since=age + 1), latest]


def test_a_limit_that_was_granted_more_is_doubled_while_its_latest_day_hides_what_is_wanted() -> None:
    doubling = replace(PLAIN, max_step_up=2.0)
    for days, wanted in (
        (hidden(0.11), 2_400.0), (hidden(0.1), 1_000.0), (hidden(0.11, 1), 1_000.0),
        (hidden(0.11, identified=True), 1_000.0),
    ):  # fmt: skip
        assert propose(days, 1_200, doubling, grant=10_000.0).wanted == wanted
    assert propose(hidden(0.11), 1_200, doubling, grant=2_000.0).wanted == 2_000
    assert propose(hidden(0.11), 1_200, doubling, grant=1_200.0).wanted == 1_000, "no more was granted"


def test_a_person_is_told_what_the_last_days_may_have_asked_for_and_what_tonight_would_be() -> None:
    days = [
        *steady(1_000, 10, since=4),
        censored(3, 1_000, 90_000),
        *(censored(a, 1_000, 9_000) for a in range(3)),
    ]
    proposal = propose(days, 1_000, replace(PLAIN, max_step_up=2.0, near_days=3))
    assert (proposal.wanted, proposal.up_to, proposal.first_step) == (2_000, 9_000, 2_000)
    assert propose(days, 1_000, replace(PLAIN, max_step_up=2.0, near_days=4)).up_to == 90_000
    calm = propose(steady(1_000, 10), 800, replace(PLAIN, max_step_up=2.0))
    assert (calm.up_to, calm.first_step) == (1_000, 1_000)
    hiding = propose(hidden(0.5), 1_200, replace(PLAIN, max_step_up=2.0))
    assert (hiding.up_to, hiding.first_step) == (3_000, 2_400)


def test_a_person_grants_nothing_above_the_ceiling_and_at_it_nothing_waits_for_one() -> None:
    days = [*steady(1_000, 10, since=1), censored(0, 5_000, 90_000)]
    bounded = replace(SETTINGS, ceiling=2_500.0)
    proposal = propose(days, 1_500, bounded)
    assert proposal.limit == pytest.approx(2_070)
    assert proposal.needs_review
    assert (proposal.up_to, proposal.first_step) == (2_500, 2_500)
    for limit in (2_500, 4_000):
        proposal = propose(days, limit, bounded)
        assert (proposal.limit, proposal.up_to, proposal.needs_review) == (2_500, 2_500, False)
        assert proposal.reason is Reason.CEILING


def test_without_a_day_nothing_is_known() -> None:
    assert propose([], 1_000, SETTINGS) == Proposal(1_000, 0.0, Reason.TOO_LITTLE, needs_review=False)


# Demand -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("throttled", "identified"), [(60, True), (61, False)])
def test_a_day_throttled_in_more_than_six_tenths_of_its_windows_is_not_seen(
    throttled: int, *, identified: bool
) -> None:
    (demand,) = estimate([DayState({10: 100 - throttled}, {5: throttled})])
    assert demand.identified is identified


def test_a_guess_is_no_more_than_twice_the_top_and_no_less_than_it() -> None:
    (demand,) = estimate([DayState({10: 1}, {12: 99}, {40: 99})])
    assert (demand.rate, demand.ceiling, demand.shaped) == (2 * middle(12), middle(40), 0.0)
    (demand,) = estimate([DayState({10: 1}, {12: 99}, {3: 99})])
    assert (demand.rate, demand.ceiling) == (middle(12), middle(12))


def test_a_shape_needs_a_tenth_of_the_day_and_a_usual_day() -> None:
    """The lowest of the usual days are at bucket 10, where these are at 15."""
    usual = DayState({10: 50, 20: 50})
    inflated = middle(200)
    by_shape = middle(20) * middle(15) / middle(10)
    for free, ceiling in ((11, by_shape), (9, inflated)):
        day = DayState({15: free}, {15: 100 - free}, {200: 100 - free})
        assert estimate([usual, day])[1].ceiling == pytest.approx(ceiling)
        assert estimate([day])[0].ceiling == inflated, "no day is usual"
        assert estimate([usual, day])[1].shaped == 0.0, "what is throttled all day has none"
    half = DayState({15: 50}, {16: 50}, {200: 50})
    assert estimate([usual, half])[1].shaped > 0.0


def test_a_level_is_where_all_fit() -> None:
    assert water_level([100.0, 300.0, 800.0, 800.0], [0.0] * 4, 1_500.0) == 550.0
    assert water_level([100.0, 400.0], [0.0] * 2, 500.0) == float("inf")
    assert fitted({"a": 800.0, "b": 100.0}, 500.0) == {"a": 400.0, "b": 100.0}
