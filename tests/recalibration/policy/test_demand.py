"""A day's windows → its demand, also where the quota hides it."""

from __future__ import annotations

import random
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.recalibration.policy.demand import DayState, Demand, estimate
from sluice.recalibration.state.buckets import GROWTH, bucket_of, middle, upper_edge


def day(*windows: tuple[float, int], throttled: tuple[tuple[float, float, int], ...] = ()) -> DayState:
    """(rate, count) of free windows; (rate, inflated rate, count) of throttled ones."""
    return DayState(
        free={bucket_of(rate): count for rate, count in windows},
        throttled={bucket_of(rate): count for rate, _, count in throttled},
        inflated={bucket_of(rate): count for _, rate, count in throttled},
    )


def day_demand(state: DayState) -> Demand:
    return estimate([state])[0]


def about(rate: float) -> object:
    """Half a bucket either way."""
    return pytest.approx(rate, rel=GROWTH**0.5 - 1 + 1e-9)


def test_the_worked_examples_come_out() -> None:
    assert bucket_of(1_000) == 425
    assert middle(425) == pytest.approx(988, abs=1)
    free = day_demand(day((100, 98), (200, 1), (400, 1)))
    assert (free.rate, free.identified) == (about(200), True)
    censored = day_demand(day((100, 98), (400, 1), throttled=((200, 300, 1),)))
    assert (censored.rate, censored.identified) == (about(400), True)


def test_throttled_windows_are_at_risk_no_more_above_their_rate() -> None:
    """50 throttled at 100, then 49 free at 200 and one at 400: S(200) = 1 − 49 / 50 = 0.02, S(400) = 0."""
    demand = day_demand(day((200, 49), (400, 1), throttled=((100, 500, 50),)))
    assert (demand.rate, demand.identified) == (about(400), True)


@given(st.floats(min_value=0.0, max_value=1e15))
def test_a_bucket_holds_its_rates_and_its_middle_is_near_them(rate: float) -> None:
    bucket = bucket_of(rate)
    assert rate <= upper_edge(bucket) * (1 + 1e-12)
    if rate > 1e-6:
        assert rate > upper_edge(bucket - 1) * (1 - 1e-12)
        assert middle(bucket) == about(rate)


def test_throttled_windows_at_the_top_leave_a_guess_above_them() -> None:
    """A tenth of the day at the quota of 1,000: at least that, likely what the mutes suggest."""
    mild = day_demand(day((500, 900), throttled=((1_000, 1_400, 100),)))
    assert (mild.rate, mild.identified) == (about(1_400), False)
    wild = day_demand(day((500, 900), throttled=((1_000, 50_000, 100),)))
    assert (wild.rate, wild.identified) == (about(2_000), False)
    assert wild.ceiling == about(50_000)


def test_a_day_throttled_throughout_is_a_guess_too() -> None:
    demand = day_demand(day(throttled=((1_000, 3_000, 8_640),)))
    assert (demand.rate, demand.identified, demand.ceiling) == (about(2_000), False, about(3_000))


def test_the_shape_of_usual_days_tells_how_far_a_throttled_one_went_on() -> None:
    """Usual: half at 100, a p99 of 200. Today half at 300, the rest throttled at 500: three times as much."""
    usual = day((100, 500), (200, 500))
    throttled = ((500, 5_000, 500),)
    tripled = day((300, 500), throttled=throttled)
    demand = estimate([usual, usual, tripled])[-1]
    assert (demand.rate, demand.identified, demand.shaped) == (about_twice(600), False, about_twice(600))
    seldom_free = day((300, 390), throttled=((500, 5_000, 610),))
    assert estimate([usual, usual, seldom_free])[-1].shaped == 0.0
    hidden = day((300, 50), throttled=((500, 5_000, 950),))
    assert estimate([usual, usual, hidden])[-1] == estimate([hidden])[-1]


def test_of_a_day_that_is_mostly_throttled_what_bursts_let_through_is_not_the_demand() -> None:
    """A window passes more than the limit when its burst is unspent: three free ones stood for 987 others."""
    flooded = day((100, 10), (2_200, 3), throttled=((2_000, 20_000, 987),))
    demand = day_demand(flooded)
    assert (demand.identified, demand.ceiling) == (False, about(20_000))


def about_twice(rate: float) -> object:
    """Of a product of two bucketed rates."""
    return pytest.approx(rate, rel=2 * (GROWTH - 1))


def test_a_day_without_traffic_has_no_demand() -> None:
    with pytest.raises(ValueError, match="no demand"):
        day_demand(DayState({}))


@pytest.mark.parametrize("quota_quantile", [0.995, inf])
def test_a_quota_above_the_p99_hides_nothing(quota_quantile: float) -> None:
    """Lognormal demand, throttled at its own 99.5th percentile, or not: the same p99 within a bucket."""
    drawn = random.Random(1)
    demands = sorted(drawn.lognormvariate(10.0, 0.8) for _ in range(8_640))
    quota = demands[int(quota_quantile * len(demands))] if quota_quantile < 1 else inf
    free: dict[int, int] = {}
    throttled: dict[int, int] = {}
    for rate in demands:
        counts = free if rate <= quota else throttled
        bucket = bucket_of(min(rate, quota))
        counts[bucket] = counts.get(bucket, 0) + 1
    demand = day_demand(DayState(free, throttled, dict(throttled)))
    assert demand.identified
    assert demand.rate == pytest.approx(demands[int(0.99 * len(demands))], rel=0.05)


counts = st.dictionaries(st.integers(0, 400), st.integers(1, 1_000), max_size=20)


@given(counts, counts)
def test_a_demand_is_never_below_what_taking_rates_at_face_value_gives(
    free: dict[int, int], throttled: dict[int, int]
) -> None:
    state = DayState(free, throttled, dict(throttled))
    if not state.windows:
        return
    seen = sorted(bucket for part in (free, throttled) for bucket, n in part.items() for _ in range(n))
    naive = seen[max(0, -(-99 * len(seen) // 100) - 1)]
    assert day_demand(state).rate >= middle(naive) * (1 - 1e-9)


def test_of_inflated_rates_the_quantile_is_the_least_above_which_no_more_are_than_it_leaves() -> None:
    """All throttled, half of them inflated to 3,000 and half to 1,500: half may be above the median."""
    state = day(throttled=((1_000, 3_000, 2), (900, 1_500, 2)))
    (demand,) = estimate([state], 0.5)
    assert (demand.identified, demand.ceiling) == (False, about(1_500))
