"""Calendars of limits: pure functions of the time, right where clocks are put forward and back."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sluice.quotas.limits.schedule import (
    DAY_S,
    Window,
    clock,
    in_force,
    next_begin,
    next_change,
    occurrences,
)

BERLIN = ZoneInfo("Europe/Berlin")
KEY = "producer_byte_rate"
NIGHT = Window({KEY: 50.0}, 3_600, 5 * 3_600, BERLIN, frozenset({6}))
SUNDAYS = [date(2026, 3, 29), date(2026, 10, 25), date(2026, 11, 22)]


def unix(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def on(window: Window, day: date) -> list[tuple[int, int]]:
    """Those that begin within the UTC day before `day`, or in it."""
    begin = datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp() - DAY_S
    return [found for found in occurrences(window, begin, begin + 2 * DAY_S) if found[0] >= begin]


@pytest.mark.parametrize(
    ("day", "begin", "end"),
    [
        (SUNDAYS[0], "2026-03-29T00:00+00:00", "2026-03-29T03:00+00:00"),
        (SUNDAYS[1], "2026-10-24T23:00+00:00", "2026-10-25T04:00+00:00"),
        (SUNDAYS[2], "2026-11-22T00:00+00:00", "2026-11-22T04:00+00:00"),
    ],
)
def test_the_worked_example(day: date, begin: str, end: str) -> None:
    assert on(NIGHT, day) == [(unix(begin), unix(end))]


def test_a_time_that_the_clock_leaves_out_is_the_instant_of_the_change() -> None:
    change = unix("2026-03-29T01:00+00:00")
    within = Window({KEY: 1}, 2 * 3_600 + 900, 2 * 3_600 + 1_800, BERLIN, frozenset({6}))
    assert on(within, SUNDAYS[0]) == [], "02:15 to 02:30 did not happen"
    into = Window({KEY: 1}, 2 * 3_600 + 900, 4 * 3_600, BERLIN, frozenset({6}))
    assert on(into, SUNDAYS[0]) == [(change, change + 3_600)]
    out = Window({KEY: 1}, 3_600, 2 * 3_600 + 1_800, BERLIN, frozenset({6}))
    assert on(out, SUNDAYS[0]) == [(change - 3_600, change)]


def test_a_time_that_comes_twice_begins_at_the_first_and_ends_at_the_second() -> None:
    twice = Window({KEY: 1}, 2 * 3_600, 2 * 3_600 + 1_800, BERLIN, frozenset({6}))
    assert on(twice, SUNDAYS[1]) == [(unix("2026-10-25T00:00+00:00"), unix("2026-10-25T01:30+00:00"))]


def test_an_end_before_its_begin_is_on_the_next_day_and_so_is_an_equal_one() -> None:
    late = Window({KEY: 1}, 22 * 3_600, 4 * 3_600, ZoneInfo("UTC"), frozenset({5}))
    assert on(late, SUNDAYS[2]) == [(unix("2026-11-21T22:00+00:00"), unix("2026-11-22T04:00+00:00"))]
    whole = Window({KEY: 1}, 3_600, 3_600, ZoneInfo("UTC"), frozenset({5}))
    assert on(whole, SUNDAYS[2]) == [(unix("2026-11-21T01:00+00:00"), unix("2026-11-22T01:00+00:00"))]


def test_a_launch_of_three_days_is_one_stretch_and_then_never_again() -> None:
    launch = Window({KEY: 9.0}, zone=BERLIN, first=date(2026, 12, 1), last=date(2026, 12, 3))
    found = list(occurrences(launch, unix("2026-11-01T00:00+00:00"), unix("2027-02-01T00:00+00:00")))
    assert (found[0][0], found[-1][1]) == (unix("2026-12-01T00:00+01:00"), unix("2026-12-04T00:00+01:00"))
    assert all(before[1] == after[0] for before, after in pairwise(found))
    assert next_begin(launch, unix("2020-01-01T00:00+00:00")) == found[0][0]
    assert next_change([(launch,)], found[-1][1]) is None
    assert next_change([(launch,)], found[-1][1] - 1) == found[-1][1]


@pytest.mark.parametrize(("first", "begin_s", "end_s"), [(30, 0, DAY_S), (31, 0, DAY_S), (31, 3_600, 7_200)])
def test_a_date_of_the_calendars_last_days_is_reckoned_with(first: int, begin_s: int, end_s: int) -> None:
    """9999-12-31 is how people write never: no time behind it can be told."""
    window = Window({KEY: 9.0}, begin_s, end_s, first=date(9999, 12, first), last=date.max)
    begin = unix("9999-12-30T00:00+00:00")
    expected = begin if first == 30 else None
    for now in (unix("2026-11-22T00:00+00:00"), begin - 1):
        assert in_force((window,), {KEY: 1.0}, now) == {}
        assert (next_begin(window, now), next_change([(window,)], now)) == (expected, expected)
    assert bool(in_force((window,), {KEY: 1.0}, begin)) == (first == 30)


def test_a_last_date_for_ever_holds_from_the_first_on() -> None:
    launch = Window({KEY: 9.0}, first=date(2026, 12, 1), last=date.max)
    now = unix("2031-05-01T12:00+00:00")
    assert in_force((launch,), {KEY: 1.0}, now)[KEY].until_unix_s == unix("2031-05-02T00:00+00:00")


def test_what_holds_when_windows_overlap_is_the_first_that_has_the_key() -> None:
    hour = Window({KEY: 7.0}, 0, 3_600, weekdays=frozenset(range(7)))
    day = Window({KEY: 8.0, "request_percentage": 20.0}, weekdays=frozenset(range(7)))
    normal = {KEY: 1.0, "request_percentage": 10.0}
    now = unix("2026-11-22T00:30+00:00")
    found = in_force((hour, day), normal, now)
    assert {key: (its.limit, its.normal) for key, its in found.items()} == {
        KEY: (7.0, 1.0),
        "request_percentage": (20.0, 10.0),
    }
    assert found[KEY].until_unix_s == unix("2026-11-22T01:00+00:00")
    assert in_force((hour,), normal, now + 3_600) == {}
    assert in_force((day,), {}, now) == {}, "no window gives a limit to who has none"


def test_in_words() -> None:
    assert str(NIGHT) == "sun 01:00–05:00 Europe/Berlin"
    launch = Window({KEY: 9.0}, first=date(2026, 12, 1), last=date(2026, 12, 1))
    assert str(launch) == "2026-12-01 00:00–24:00 UTC"
    assert clock(3_661) == "01:01:01"


ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Cairo",
         "America/St_Johns", "Pacific/Apia", "Asia/Beirut")  # fmt: skip
zones = st.sampled_from([ZoneInfo(name) for name in ZONES])
weekly = st.builds(
    Window,
    st.just({KEY: 5.0}),
    st.integers(0, DAY_S // 60 - 1).map(lambda minute: minute * 60),
    st.integers(1, DAY_S // 60).map(lambda minute: minute * 60),
    zones,
    st.frozensets(st.integers(0, 6), min_size=1),
)
dated = st.builds(
    lambda window, first, days: Window(
        window.limits, window.begin_s, window.end_s, window.zone, first=first, last=first + timedelta(days)
    ),
    weekly,
    st.dates(date(2026, 1, 1), date(2027, 12, 31)),
    st.integers(0, 5),
)
windows = weekly | dated
instants = st.integers(unix("2026-01-01T00:00+00:00"), unix("2027-12-31T00:00+00:00"))


def covers(window: Window, local: datetime) -> bool:
    """Whether a local time lies within, by the wall's clock alone."""
    second = local.hour * 3_600 + local.minute * 60 + local.second
    after = window.end_s <= window.begin_s

    def begins_on(day: date) -> bool:
        if window.first is None:
            return day.weekday() in window.weekdays
        return window.first <= day <= (window.last or window.first)

    today = begins_on(local.date()) and window.begin_s <= second and (after or second < window.end_s)
    return today or (after and begins_on(local.date() - timedelta(days=1)) and second < window.end_s)


@given(windows, instants)
def test_a_window_is_what_the_clock_on_the_wall_says(window: Window, now: int) -> None:
    """But for the hour that comes twice, of which a window may cover more."""
    local = datetime.fromtimestamp(now, window.zone)
    holds = KEY in in_force((window,), {KEY: 1.0}, now)
    if covers(window, local.replace(tzinfo=None)):
        assert holds
    elif holds:
        around = [datetime.fromtimestamp(now + hours * 3_600, window.zone) for hours in (-1, 0, 1)]
        assert len({each.utcoffset() for each in around}) > 1 or local.fold


@given(st.lists(windows, min_size=1, max_size=3), instants)
def test_between_two_changes_nothing_changes_and_at_a_change_something_may(
    schedule: list[Window], now: int
) -> None:
    normal = {KEY: 1.0}

    def limits(at: float) -> list[bool]:
        return [bool(in_force((window,), normal, at)) for window in schedule]

    change = next_change([tuple(schedule)], now)
    assume(change is not None)
    assert change is not None
    assert change > now
    for share in (0.0, 0.1, 0.5, 0.9):
        assert limits(now + share * (change - now)) == limits(now)
    assert limits(change - 1) == limits(now)


@given(windows, instants, st.integers(1, 40))
def test_occurrences_are_in_order_apart_and_each_is_in_force_throughout(
    window: Window, begin: int, days: int
) -> None:
    found = list(occurrences(window, begin, begin + days * DAY_S))
    assert all(its_begin < its_end for its_begin, its_end in found)
    assert [its_begin for its_begin, _ in found] == sorted(its_begin for its_begin, _ in found)
    for its_begin, its_end in found:
        for at in (its_begin, (its_begin + its_end) // 2, its_end - 1):
            assert in_force((window,), {KEY: 1.0}, at)


@given(windows, instants)
def test_the_next_begin_is_a_begin_and_none_is_before_it(window: Window, now: int) -> None:
    begin = next_begin(window, now)
    found = [its for its in occurrences(window, now, now + 16 * DAY_S) if its[0] > now]
    if begin is not None and found:
        assert found[0][0] == begin
    if begin is None:
        assert not found


@pytest.mark.parametrize(("minute", "second"), [(0, 0), (0, 1), (15, 0), (29, 59), (31, 7), (59, 59)])
def test_every_time_that_is_left_out_is_the_same_instant(minute: int, second: int) -> None:
    """Forward by an hour in Berlin, by half an hour on Lord Howe."""
    for zone, change in (
        (BERLIN, "2026-03-29T01:00+00:00"),
        (ZoneInfo("Australia/Lord_Howe"), "2026-10-03T15:30+00:00"),
    ):
        at_s = 2 * 3_600 + (minute * 60 + second) % (3_600 if zone is BERLIN else 1_800)
        window = Window({KEY: 1}, at_s, 6 * 3_600, zone, frozenset({6}))
        found = list(occurrences(window, unix(change) - DAY_S, unix(change) + DAY_S))
        assert unix(change) in [begin for begin, _ in found]
