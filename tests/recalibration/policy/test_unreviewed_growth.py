"""How far a limit rises in all nights together without a person's word: 4 × what a person last said.

A log cannot tell growth from somebody who stays just under his limit, each night's anew. Unattended that rose
× 10 in 30 nights and × 1,000 in 100; with a few oversized requests on a day in six × 51 and × 1,300.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sluice.quotas.kinds import QuotaKind
from sluice.recalibration.policy.demand import Demand
from sluice.recalibration.policy.plan import DayTotals, EntityDay, Known, PlanEntry, planned
from sluice.recalibration.policy.settings import PolicySettings
from sluice.recalibration.policy.standing import Grant, Standing, has_ended, word_of
from sluice.recalibration.state.memory import standing_of

SETTINGS = PolicySettings()
FIRST = 1_000.0
NIGHTS = 100
WINDOWS = 8_640
Use = Callable[[float], DayTotals]
"""a day under a limit"""


def under(share: float) -> Use:
    """It stays at that share of its limit, and nothing is throttled."""
    return lambda limit: DayTotals(WINDOWS, 0, Demand(share * limit, True, share * limit))


def flood(limit: float) -> DayTotals:
    """All of it throttled, of twenty times the limit."""
    return DayTotals(WINDOWS, WINDOWS, Demand(2 * limit, False, 20 * limit))


def few_oversized(limit: float) -> DayTotals:
    """A fiftieth of its windows throttled, the largest among them; the rest just under its limit."""
    return DayTotals(WINDOWS, WINDOWS // 50, Demand(10 * limit, False, 10 * limit))


class Nights:
    """The limit of one entity, each night's plan written as far as it goes without a word."""

    def __init__(self) -> None:
        self.limit = FIRST
        self.standing: Standing | None = None
        self._days: list[EntityDay] = []

    def night(self, day: DayTotals, grant: float = 0.0, until: int = 20) -> PlanEntry:
        older = [replace(each, age_days=each.age_days + 1) for each in self._days]
        self._days = [EntityDay("p1", 0, day), *older]
        known = Known(self.standing, grant, grant_until=until)
        entry = planned(QuotaKind.PRODUCE, '{"user": "alice"}', self.limit, self._days, SETTINGS, known)
        self.standing = standing_of(entry)
        self.limit = entry.proposed
        return entry


@pytest.mark.parametrize(
    "pattern",
    [
        [under(0.97)],
        [flood, *[under(0.97)] * 8],
        [few_oversized, *[under(0.97)] * 5],
        [few_oversized, *[under(0.97)] * 9],
        [few_oversized, under(0.97)],
    ],
)
def test_no_pattern_of_days_rises_above_four_times_what_a_person_set(pattern: list[Use]) -> None:
    nights, is_told = Nights(), False
    for number in range(NIGHTS):
        entry = nights.night(pattern[number % len(pattern)](nights.limit))
        assert nights.limit <= 4 * FIRST, number
        is_told |= entry.needs_review and entry.proposed > 3.6 * FIRST  # less is no change
    assert is_told


def test_who_has_grown_fourfold_asks_a_person_once_and_grows_on() -> None:
    """2 % a day, never throttled: it needs a review while its limit is still enough, and once it was granted
    more it grows to four times that, long after the grant has ended."""
    nights, need, grant = Nights(), 800.0, 0.0

    def night() -> PlanEntry:
        nonlocal need
        entry = nights.night(DayTotals(WINDOWS, 0, Demand(need, True, need)), grant)
        assert nights.limit >= need
        need *= 1.02
        return entry

    while not (held := night()).needs_review:
        pass
    assert 3.6 * FIRST < nights.limit <= 4 * FIRST
    grant = held.up_to
    for _ in range(14):
        night()
    grant = 0.0
    while not night().needs_review:
        pass
    assert 3.6 * held.up_to < nights.limit <= 4 * held.up_to


def test_what_a_person_sets_is_the_word_and_what_nights_have_set_is_none() -> None:
    before = Standing(2_000, 2_000, 2_300, word=1_000)
    assert word_of(None, 700) == 700
    assert word_of(before, 2_000) == word_of(before, 2_300) == word_of(before, 2_150) == 1_000
    assert word_of(before, 3_000) == 3_000, "raised by a person"
    assert word_of(before, 500) == 500, "lowered by one"
    assert word_of(before, 2_300, grant=1_800) == 1_800
    assert word_of(before, 2_300, grant=900) == 1_000, "a grant takes nothing"
    assert word_of(before, 3_000, grant=4_000) == 4_000, "the grant's step is no person's limit"
    assert word_of(before, 4_600, again=Standing(2_300, 2_300, 4_600)) == 1_000, "by this date's first run"


def test_of_a_night_that_kept_no_word_its_anchor_is_one() -> None:
    """A Sluice of before."""
    assert word_of(Standing(1_500, 2_000, 2_300), 2_300) == 1_500


def granted() -> Nights:
    """Flooded, and granted 20 times its limit, of which two steps were made."""
    nights = Nights()
    for number in range(11):
        nights.night(flood(nights.limit) if number else under(0.7)(nights.limit))
    for _ in range(2):
        nights.night(flood(nights.limit), grant=20 * FIRST)
    assert nights.limit > 7 * FIRST
    return nights


def test_a_limit_that_a_person_lowers_below_a_grant_stays_below_until_another_is_given() -> None:
    """Each night doubled it again, up to what was granted."""
    nights = granted()
    nights.limit = 0.5 * FIRST
    for _ in range(12):
        entry = nights.night(flood(nights.limit), grant=20 * FIRST)
        assert nights.limit <= FIRST, "twice what the person said, as for everybody"
    assert (entry.word, entry.needs_review) == (0.5 * FIRST, True)
    assert nights.night(flood(nights.limit), grant=20 * FIRST, until=21).proposed == 2 * FIRST


def test_what_nights_have_cut_themselves_ends_no_grant() -> None:
    nights = granted()
    nights.night(flood(nights.limit), grant=20 * FIRST)
    assert nights.standing is not None
    nights.standing = replace(nights.standing, current=16_000.0, proposed=11_200.0)  # with little room
    nights.limit = 11_200.0
    assert nights.night(flood(nights.limit), grant=20 * FIRST).proposed == 20 * FIRST


LIMIT = 3_000.0


@pytest.mark.parametrize(
    ("before", "again", "limit", "is_ended"),
    [
        # Lowered before the first run of the date, granted behind it: that has judged the cut.
        (Standing(2_000, 2_000, 4_000), Standing(1_000, 1_000, 2_000), 2_000.0, False),
        # Lowered behind it: to what the night before would have made, but not this one.
        (Standing(2_000, 2_000, 4_000), Standing(2_000, 4_000, 8_000), LIMIT, True),
        (Standing(2_000, 2_000, 4_000), Standing(2_000, 4_000, 8_000), 8_000.0, False),
        (Standing(2_000, 4_000, 8_000), None, LIMIT, True),
        (Standing(2_000, 2_000, 4_000), None, LIMIT, False),
        (None, None, LIMIT, False),
    ],
)
def test_a_date_that_is_run_again_judges_what_came_behind_its_first_run(
    before: Standing | None, again: Standing | None, limit: float, *, is_ended: bool
) -> None:
    """A retry made the limit climb to a grant that a person had ended, and ended one given that morning."""
    grant = Grant(30_000.0, 20)
    assert has_ended(grant, before, limit, again) is is_ended
