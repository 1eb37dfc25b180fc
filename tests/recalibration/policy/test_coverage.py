"""Which hours of a week the log lacks."""

from __future__ import annotations

from datetime import date, timedelta

from sluice.recalibration.policy.coverage import missing_hours

LATEST = date(2026, 11, 20)
WEEK = [LATEST - timedelta(days=age) for age in range(7)]


def whole() -> dict[date, dict[str, set[int]]]:
    return {day: {"p1": set(range(24)), "p2": set(range(8, 18))} for day in WEEK}


def test_hours_without_rows_are_missing_where_their_like_had_some() -> None:
    assert missing_hours(whole(), LATEST) == {}
    seen = whole()
    seen[WEEK[2]]["p1"] -= {3, 4}
    del seen[WEEK[0]]["p2"]
    hours = ", ".join(f"{hour:02}:00" for hour in range(8, 18))
    assert missing_hours(seen, LATEST) == {WEEK[2]: ["p1: 03:00, 04:00"], WEEK[0]: [f"p2: {hours}"]}


def test_a_date_without_rows_is_missing_as_a_whole_but_not_one_before_the_first_log() -> None:
    seen = whole()
    del seen[WEEK[3]]
    assert missing_hours(seen, LATEST) == {WEEK[3]: ["all of it"]}
    del seen[WEEK[6]]
    assert missing_hours(seen, LATEST) == {WEEK[3]: ["all of it"]}
    assert missing_hours({}, LATEST) == {LATEST: ["all of it"]}
