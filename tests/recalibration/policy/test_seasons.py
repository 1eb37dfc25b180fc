"""Peaks that come every week or every month, and those that do not."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from sluice.recalibration.policy.seasons import Peak, Season, peaks_of, season_of

LATEST = date(2026, 11, 22)
"""a Sunday"""


def peak(day: date, begin_h: int = 1, hours: int = 2, zone: str = "UTC", rate: float = 12_000.0) -> Peak:
    begin = int(datetime(day.year, day.month, day.day, begin_h, tzinfo=ZoneInfo(zone)).timestamp())
    return Peak(begin, begin + hours * 3_600, rate)


def weekly(last: date, count: int, **values: object) -> list[Peak]:
    return [peak(last - timedelta(days=7 * number), **values) for number in range(count)]  # type: ignore[arg-type]


def test_the_worked_example_comes_out() -> None:
    saturdays = weekly(date(2026, 11, 21), 3)
    found = season_of(saturdays, LATEST)
    assert found == Season(
        (5,), date(2026, 11, 28), 3_600, 3 * 3_600, "UTC", 12_000.0,
        (date(2026, 11, 7), date(2026, 11, 14), date(2026, 11, 21)),
    )  # fmt: skip
    assert found.as_schedule("producer_byte_rate", 13_800.0) == {
        "days": ["sat"], "from": "01:00", "to": "03:00", "timezone": "UTC", "producer_byte_rate": 13_800.0,
    }  # fmt: skip
    one_more = [*saturdays, peak(date(2026, 11, 10))]
    assert season_of(one_more, LATEST) == found
    assert season_of([*one_more, peak(date(2026, 11, 12))], LATEST) is None


def test_two_are_no_season_nor_are_three_that_left_one_out_or_have_ended() -> None:
    assert season_of(weekly(date(2026, 11, 21), 2), LATEST) is None
    saturdays = weekly(date(2026, 11, 21), 4)
    assert season_of([saturdays[0], *saturdays[2:]], LATEST) is None
    assert season_of(weekly(date(2026, 11, 14), 4), LATEST) is None


def test_a_local_time_stays_through_a_change_of_the_clock() -> None:
    """Berlin's went back on 25 October: 01:00 was 23:00 UTC of Friday, and is midnight since."""
    saturdays = weekly(date(2026, 11, 7), 3, zone="Europe/Berlin")
    found = season_of(saturdays, date(2026, 11, 8), "Europe/Berlin")
    assert found is not None
    assert (found.weekdays, found.begin_s, found.end_s, found.zone) == ((5,), 3_600, 10_800, "Europe/Berlin")
    assert season_of(saturdays, date(2026, 11, 8)) is None, "in UTC on two weekdays"
    utc = season_of(weekly(date(2026, 11, 7), 3), date(2026, 11, 8), "America/Sao_Paulo")
    assert utc is not None


def test_two_weekdays_of_a_week_are_one_season_and_a_peak_over_midnight_is_one() -> None:
    both = [*weekly(date(2026, 11, 21), 3), *weekly(date(2026, 11, 22), 3)]
    found = season_of(both, LATEST)
    assert found is not None
    assert (found.weekdays, found.next_date) == ((5, 6), date(2026, 11, 28))
    late = [half for day in weekly(date(2026, 11, 20), 3, begin_h=22, hours=2) for half in (
        day, Peak(day.end_s, day.end_s + 3_600, 15_000.0)
    )]  # fmt: skip
    over = season_of(late, LATEST)
    assert over is not None
    assert (over.weekdays, over.begin_s, over.end_s, over.rate) == ((4,), 22 * 3_600, 3_600, 15_000.0)


@pytest.mark.parametrize(
    ("dates", "next_date"),
    [
        ([date(2026, 9, 15), date(2026, 10, 15), date(2026, 11, 15)], date(2026, 12, 15)),
        ([date(2026, 8, 31), date(2026, 9, 30), date(2026, 10, 31)], date(2026, 11, 30)),
    ],
)
def test_a_day_of_the_month_is_counted_from_its_begin_or_from_its_end(
    dates: list[date], next_date: date
) -> None:
    peaks = [peak(day) for day in dates]
    found = season_of(peaks, LATEST)
    assert found is not None
    assert (found.weekdays, found.next_date, found.seen) == ((), next_date, tuple(dates))
    assert found.as_schedule("producer_byte_rate", 1.0)["date"] == next_date.isoformat()
    assert season_of(peaks[1:], LATEST) is None


def test_peaks_at_other_times_of_the_day_are_no_season() -> None:
    saturdays = weekly(date(2026, 11, 21), 3)
    moved = [peak(date(2026, 11, 14), begin_h=9), saturdays[0], saturdays[2]]
    assert season_of(moved, LATEST) is None


@pytest.mark.parametrize("share", [0.02, 0.05, 0.15])
def test_of_those_whose_peaks_come_by_chance_at_most_one_in_a_hundred_has_a_season(share: float) -> None:
    drawn = random.Random(1)
    found = 0
    for _ in range(1_000):
        days = (LATEST - timedelta(days=age) for age in range(400))
        peaks = [peak(day, drawn.randrange(22)) for day in days if drawn.random() < share]
        found += season_of(peaks, LATEST) is not None
    assert found <= 10


def test_hours_above_twice_the_median_day_are_a_peak() -> None:
    day = date(2026, 11, 21)
    begin = int(datetime(2026, 11, 21, tzinfo=UTC).timestamp())
    hours = [(0, 900.0), (1, 2_100.0), (2, 1_500.0), (3, 5_000.0), (9, 2_001.0), (10, 2_000.0)]
    assert peaks_of(day, hours, 1_000.0) == [
        Peak(begin + 3_600, begin + 4 * 3_600, 5_000.0),
        Peak(begin + 9 * 3_600, begin + 10 * 3_600, 2_001.0),
    ]


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Asia/Tokyo", "America/New_York", "Pacific/Kiritimati"])
@pytest.mark.parametrize("begin_h", [0, 10, 16, 23])
def test_a_peak_in_the_evening_of_the_last_day_may_be_the_next_days_where_the_zone_is(
    zone: str, begin_h: int
) -> None:
    """East of Greenwich its local date is behind the log's last: nothing is known of that day yet."""
    one = [peak(LATEST, begin_h)]
    assert season_of(one, LATEST, zone) is None
    daily = [peak(LATEST - timedelta(days=number), begin_h) for number in range(60)]
    for nights in range(60):
        season_of(daily[nights:], LATEST - timedelta(days=nights), zone)


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Asia/Tokyo"])
def test_a_weekly_peak_at_midnight_where_the_zone_is_is_a_season(zone: str) -> None:
    mondays = weekly(date(2026, 11, 16), 3, begin_h=0, zone=zone)
    found = [season_of(mondays, date(2026, 11, day), zone) for day in (15, 16, 17, 22)]
    assert [season is not None and season.weekdays == (0,) for season in found] == [False, True, True, True]


def known_at(peaks: list[Peak], latest: date) -> list[Peak]:
    """What the log says of them at the end of a date: a UTC date at a time, as nights find them."""
    found = []
    for each in peaks:
        begin_s = each.begin_s
        while begin_s < each.end_s:
            midnight_s = begin_s - begin_s % 86_400 + 86_400
            found.append(Peak(begin_s, min(each.end_s, midnight_s), each.rate))
            begin_s = midnight_s
    end_s = int(datetime(latest.year, latest.month, latest.day, tzinfo=UTC).timestamp()) + 86_400
    return [each for each in found if each.end_s <= end_s]


ZONES = [
    "UTC",
    "America/Los_Angeles",
    "America/Sao_Paulo",
    "Pacific/Honolulu",
    "Asia/Tokyo",
    "Pacific/Kiritimati",
]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("begin_h", [0, 9, 14, 18, 22, 23])
def test_a_season_once_found_stays_found_each_night(zone: str, begin_h: int) -> None:
    """West of Greenwich the log's last date is a local one of which the evening is yet to come: a peak then
    made it one of UTC on one night a week."""
    fridays = weekly(date(2026, 11, 27), 8, begin_h=begin_h, zone=zone)
    month_ends = [date(2026, month + 1, 1) - timedelta(days=1) for month in range(2, 12)]
    monthly = [peak(day, begin_h, zone=zone) for day in month_ends]
    for peaks, first, nights in ((fridays, date(2026, 10, 9), 45), (monthly, date(2026, 4, 28), 200)):
        found = [
            season_of(known_at(peaks, latest), latest, zone)
            for latest in (first + timedelta(days=night) for night in range(nights))
        ]
        told = [
            None if season is None else (season.weekdays, season.begin_s, season.zone) for season in found
        ]
        assert told[0] is None
        weekdays = (4,) if peaks is fridays else ()
        assert set(filter(None, told)) == {(weekdays, begin_h * 3_600, zone)}
        assert None not in told[told.index((weekdays, begin_h * 3_600, zone)) :]


@pytest.mark.parametrize(("zone", "begin_h", "next_day"), [
    ("Asia/Tokyo", 3, date(2027, 1, 1)), ("Asia/Tokyo", 20, date(2026, 12, 1)), ("UTC", 3, date(2026, 12, 1)),
    ("America/Los_Angeles", 3, date(2026, 12, 1)),
])  # fmt: skip
def test_a_monthly_season_is_told_for_a_date_that_is_still_to_come(
    zone: str, begin_h: int, next_day: date
) -> None:
    """At the end of 30 November by UTC it is nine in the morning of the 1st in Tokyo."""
    latest = date(2026, 11, 30)
    firsts = [peak(date(2026, month, 1), begin_h, zone=zone) for month in (9, 10, 11)]
    found = season_of(known_at(firsts, latest), latest, zone)
    assert found is not None
    assert (found.zone, found.next_date) == (zone, next_day)
