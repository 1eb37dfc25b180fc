"""The value above which a limit rises no further than a factor without a person's word."""

from __future__ import annotations

from sluice.recalibration.policy.confidence import DayUse
from sluice.recalibration.policy.settings import PolicySettings
from sluice.recalibration.policy.standing import Standing, anchor_of

SETTINGS = PolicySettings()


def throttled(age: int, demand: float) -> DayUse:
    return DayUse(age, demand, False, 1.0, 86_400.0)


def seen(age: int, demand: float) -> DayUse:
    return DayUse(age, demand, True, 0.0, 86_400.0)


def test_the_first_limit_and_one_that_a_person_set_are_anchors_and_a_flood_is_none() -> None:
    assert anchor_of(None, 1_000, [throttled(0, 2_000)], SETTINGS) == 1_000
    before = Standing(1_000, 1_000, 2_000)
    for limit in (1_000, 1_400, 2_000):  # as it was, a part of the way, as proposed
        assert anchor_of(before, limit, [throttled(0, 9_000)], SETTINGS) == 1_000
    assert anchor_of(before, 5_000, [throttled(0, 9_000)], SETTINGS) == 5_000
    assert anchor_of(before, 5_000, [throttled(0, 9_000)], SETTINGS, grant=6_000) == 1_000, "a grant's step"


def test_a_day_seen_in_full_anchors_what_the_days_seen_so_ask_for() -> None:
    before = Standing(1_000, 2_000, 2_000)
    days = [seen(0, 1_500), throttled(1, 9_000), seen(3, 1_600), seen(9, 7_000)]
    assert anchor_of(before, 2_000, days, SETTINGS) == 1.15 * 1_600
    assert anchor_of(before, 2_000, days[1:], SETTINGS) == 1_000
    assert anchor_of(before, 2_000, [seen(20, 10)], SETTINGS) == 1_000
    assert anchor_of(before, 2_000, [], SETTINGS) == 1_000
