"""Where a proxy's log has a hole, by its heartbeats."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta

from sluice.recalibration.policy.coverage import missing_hours, short_holes
from sluice.recalibration.policy.holes import WINDOWS_OF_A_DAY, Beats

LATEST = date(2026, 11, 20)
WEEK = [LATEST - timedelta(days=age) for age in range(7)]
SEEN = {day: {"p1": set(range(8, 18))} for day in WEEK}
"""no traffic at night"""


def begin(day: date) -> int:
    return (day - date(1970, 1, 1)).days * WINDOWS_OF_A_DAY


def whole(day: date, *holes: tuple[int, int]) -> dict[str, Beats]:
    first = begin(day)
    told = tuple((first + one, first + other) for one, other in holes)
    return {"p1": Beats(first, first + WINDOWS_OF_A_DAY - 1, False, told)}


def test_the_worked_example_comes_out_and_a_minute_is_told_but_holds_no_cut_back() -> None:
    beating = {day: whole(day) for day in WEEK}
    beating[WEEK[2]] = whole(WEEK[2], (100, 199), (4_000, 4_006))
    assert missing_hours(SEEN, LATEST, beating) == {WEEK[2]: ["p1: 00:16:40 to 00:33:20"]}
    assert short_holes(beating, LATEST) == {WEEK[2]: ["p1: 11:06:40 to 11:07:50"]}


def test_an_hour_without_traffic_is_no_hole_where_there_are_heartbeats() -> None:
    seen = SEEN | {WEEK[0]: {"p1": {9}}}
    assert list(missing_hours(seen, LATEST)) == [WEEK[0]]
    beating = {day: whole(day) for day in WEEK[:3]}
    assert missing_hours(seen, LATEST, beating) == {}
    seen[WEEK[5]] = {"p1": {9}}
    assert list(missing_hours(seen, LATEST, beating)) == [WEEK[5]], "before its first heartbeat"


def test_a_proxy_that_comes_back_without_having_ended_lacks_what_lies_between() -> None:
    killed, back = begin(WEEK[2]) + 8_000, begin(WEEK[0]) + 360
    for is_ended in (False, True):
        beating = {day: {"p2": next(iter(whole(day).values()))} for day in WEEK}
        beating[WEEK[2]] |= {"p1": Beats(begin(WEEK[2]), killed, is_ended)}
        beating[WEEK[0]] |= {"p1": Beats(back, begin(WEEK[0]) + WINDOWS_OF_A_DAY - 1, False)}
        lost = {
            WEEK[2]: ["p1: 22:13:30 to 24:00:00"],
            WEEK[1]: ["p1: 00:00:00 to 24:00:00"],
            WEEK[0]: ["p1: 00:00:00 to 01:00:00"],
        }
        assert missing_hours(SEEN, LATEST, beating) == ({} if is_ended else lost)


def test_a_date_in_which_nothing_was_used_is_no_hole_where_there_are_heartbeats() -> None:
    seen = SEEN | {WEEK[1]: {}, WEEK[2]: {}}
    beating = {day: whole(day) for day in WEEK if day != WEEK[2]}
    assert missing_hours(seen, LATEST, beating) == {WEEK[2]: ["all of it"]}
    beating[WEEK[1]] = whole(WEEK[1], (100, 199))
    assert missing_hours(seen, LATEST, beating)[WEEK[1]] == ["p1: 00:16:40 to 00:33:20"]
    del seen[WEEK[1]]
    assert missing_hours(seen, LATEST, beating)[WEEK[1]] == ["all of it"], "its state is lost"


def test_a_proxy_that_falls_silent_without_a_word_is_a_hole_until_the_next_date_is_over() -> None:
    """A killed one leaves no traffic behind; one whose files are lost passes on as much as ever."""
    silent = begin(WEEK[3]) + 8_000
    for is_ended in (False, True):
        beating = {day: dict(whole(day)) for day in WEEK}
        beating[WEEK[3]]["p2"] = Beats(begin(WEEK[3]), silent, is_ended)
        lost = {WEEK[3]: ["p2: 22:13:30 to 24:00:00"], WEEK[2]: ["p2: 00:00:00 to 24:00:00"]}
        assert missing_hours(SEEN, LATEST, beating) == ({} if is_ended else lost)
    beating = {day: dict(whole(day)) for day in WEEK}
    beating[LATEST]["p2"] = Beats(begin(LATEST), begin(LATEST) + WINDOWS_OF_A_DAY - 61, False)
    assert missing_hours(SEEN, LATEST, beating) == {LATEST: ["p2: 23:50:00 to 24:00:00"]}
    beating[LATEST]["p2"] = Beats(begin(LATEST), begin(LATEST) + WINDOWS_OF_A_DAY - 10, False)
    assert missing_hours(SEEN, LATEST, beating) == {}, "its last file is on its way"
    assert short_holes(beating, LATEST) == {LATEST: ["p2: 23:58:30 to 24:00:00"]}


def test_a_stretch_in_which_clients_had_no_rows_of_their_own_is_a_hole_with_its_reason() -> None:
    beating = {day: whole(day) for day in WEEK}
    first = begin(WEEK[2])
    crowded = ((first + 100, first + 199), (first + 4_000, first + 4_006), (first + 5_000, first + 5_001))
    beating[WEEK[2]] = {"p1": replace(beating[WEEK[2]]["p1"], crowded=crowded)}
    why = "clients had no rows of their own (access_log.max_keys)"
    assert missing_hours(SEEN, LATEST, beating) == {WEEK[2]: [f"p1: 00:16:40 to 00:33:20, {why}"]}
    assert short_holes(beating, LATEST) == {WEEK[2]: [f"p1: 11:06:40 to 11:07:50, {why}"]}


def test_windows_that_were_there_twice_are_a_hole() -> None:
    """What twice the time has brought is no window's, so nothing is cut by it."""
    beating = {day: whole(day) for day in WEEK}
    first = begin(WEEK[1])
    twice = ((first + 60, first + 125, 2), (first + 300, first + 305, 3), (first + 400, first + 401, 2))
    beating[WEEK[1]] = {"p1": replace(whole(WEEK[1])["p1"], repeated=twice)}
    why = ", more than once (a clock that was set back, or processes of one access_log.instance)"
    assert missing_hours(SEEN, LATEST, beating) == {WEEK[1]: [f"p1: 00:10:00 to 00:21:00{why}"]}
    assert short_holes(beating, LATEST) == {WEEK[1]: [f"p1: 00:50:00 to 00:51:00{why}"]}
