"""The value above which a limit rises no further than a factor without a person's word."""

from __future__ import annotations

from dataclasses import replace

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
    days = [seen(0, 1_500), seen(3, 1_600), throttled(8, 9_000), seen(9, 7_000)]
    assert anchor_of(before, 2_000, days, SETTINGS) == 1.15 * 1_600
    assert anchor_of(before, 2_000, [throttled(0, 9_000), *days[1:]], SETTINGS) == 1_000
    assert anchor_of(before, 2_000, [seen(20, 10)], SETTINGS) == 1_000
    assert anchor_of(before, 2_000, [], SETTINGS) == 1_000


def test_floods_between_days_that_fill_what_they_brought_raise_no_anchor() -> None:
    """It rose × 33 in 30 nights and × 790 in 100, unattended and without a review."""
    for pattern in ("FU", "FFU", "FUUU", "FUUUUUUU", "FP"):
        limit, before = 1_000.0, None
        days: list[DayUse] = []
        for night in range(60):
            use = {"F": throttled(0, 20 * limit), "U": seen(0, 0.97 * limit), "P": seen(0, 0.6 * limit)}
            days = [
                use[pattern[night % len(pattern)]],
                *(replace(day, age_days=day.age_days + 1) for day in days),
            ]
            anchor = anchor_of(before, limit, days, SETTINGS)
            proposed = min(2 * anchor, 1.15 * max(day.demand for day in days[:8]))
            before, limit = Standing(anchor, limit, proposed), proposed
            assert limit <= 2_000, (pattern, night)


def test_who_grows_is_anchored_again_once_the_flood_is_eight_days_old() -> None:
    before = Standing(1_000, 2_000, 2_000)
    days = [*(seen(age, 1_500) for age in range(7)), throttled(7, 2_000)]
    assert anchor_of(before, 2_000, days, SETTINGS) == 1_000
    assert (
        anchor_of(before, 2_000, [*days[:7], seen(7, 1_500), throttled(8, 2_000)], SETTINGS) == 1.15 * 1_500
    )


def test_a_batch_that_is_throttled_once_a_week_is_no_flood() -> None:
    """Where each of the last eight days had to be seen in full, honest growth of 1 % a day, with a batch of
    20 minutes a week, stood still at half its need until a person looked."""
    before = Standing(1_000, 2_000, 2_000)
    batch = DayUse(3, 2_400, False, 0.05, 86_400.0)
    days = [seen(0, 1_500), seen(1, 1_500), batch, seen(8, 1_500)]
    assert anchor_of(before, 2_000, days, SETTINGS) == 1.15 * 1_500
    flood = replace(batch, throttled_share=0.06)
    assert anchor_of(before, 2_000, [*days[:2], flood, days[3]], SETTINGS) == 1_000


def test_a_limit_that_days_were_seen_under_stays_the_anchor_and_a_cut_lowers_it() -> None:
    before = Standing(1_300, 1_300, 1_300)
    assert anchor_of(before, 1_300, [seen(0, 1_000)], SETTINGS) == 1_300
    assert anchor_of(Standing(2_000, 2_000, 1_400), 1_400, [seen(0, 1_000)], SETTINGS) == 1_400
    assert anchor_of(Standing(1_000, 2_000, 2_000), 2_000, [seen(0, 800)], SETTINGS) == 1_000, (
        "not the flood's"
    )


def test_room_that_a_cut_left_beyond_what_days_ask_for_is_no_anchor() -> None:
    """Twice the 1.5 × that a cut leaves would be 3 × the need, for a flood that nobody has looked at."""
    before = Standing(1_500, 1_500, 1_500)
    assert anchor_of(before, 1_500, [seen(0, 1_000)], SETTINGS) == 1_400
    assert anchor_of(before, 1_500, [seen(0, 1_000), seen(2, 1_050)], SETTINGS) == 1.4 * 1_050
    assert anchor_of(before, 1_500, [throttled(0, 3_000)], SETTINGS) == 1_500, "only by a day seen in full"
    assert anchor_of(None, 6_000, [seen(0, 1_000)], SETTINGS) == 1_400, "a first limit's neither"


def test_what_bursts_let_through_above_the_limit_anchors_nothing() -> None:
    """From birth at 2.15 × its first limit: at twice that the days were seen in full, and it had 2.5 ×."""
    before = Standing(1_000, 2_000, 2_000)
    assert anchor_of(before, 2_000, [seen(0, 2_150)], SETTINGS) == 1_000
    assert anchor_of(before, 2_000, [seen(0, 1_950)], SETTINGS) == 1.15 * 1_950


def shaped(age: int, demand: float) -> DayUse:
    return DayUse(age, 2 * 2_000, False, 0.5, 86_400.0, demand)


def test_level_days_that_tell_by_their_shape_anchor_the_limit_in_force() -> None:
    """A service that trebled was held at twice its anchor for ever, though it was seen in all its troughs."""
    before = Standing(1_000, 2_000, 2_000)
    told = [shaped(0, 4_500), shaped(1, 4_400), shaped(2, 4_600)]
    assert anchor_of(before, 2_000, told, SETTINGS) == 2_000
    for age, other in enumerate((throttled(0, 4_000), shaped(1, 5_800), seen(2, 1_000))):
        assert anchor_of(before, 2_000, [*told[:age], other, *told[age + 1 :]], SETTINGS) == 1_000, other
    assert anchor_of(before, 2_000, told[:2], SETTINGS) == 1_000
    calm_by_night = [shaped(age, 900) for age in range(3)]
    assert anchor_of(before, 2_000, calm_by_night, SETTINGS) == 1_000, "a flood by day leaves its nights"
