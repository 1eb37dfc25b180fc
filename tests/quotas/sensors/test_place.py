"""Requests that are to come from clients who were told to wait: each connection's counts once."""

from __future__ import annotations

from math import inf

from sluice.quotas.sensors.place import Expected, Place


def place_at(tag: float) -> Place:
    place = Place()
    place.keep(tag, inf)
    return place


def test_a_new_connection_has_had_nothing_and_keeps_no_place() -> None:
    place = Place()
    assert (place.tag, place.kept_tag, place.kept_until_ms) == (0.0, 0.0, -inf)


def test_a_connection_that_is_told_again_is_expected_once_with_what_it_sent_last() -> None:
    expected, place = Expected(), Place()
    expected.add(place, 100.0, 50.0)
    expected.add(place, 300.0, 90.0)
    assert expected.total_bytes == 300.0
    expected.forget(50.0)
    assert expected.total_bytes == 300.0, "until 90 now"
    expected.came(place)
    assert expected.total_bytes == 0.0
    expected.came(place)
    assert expected.total_bytes == 0.0


def test_who_comes_or_is_late_is_not_waited_for_any_more() -> None:
    expected, places = Expected(), [Place() for _ in range(3)]
    for number, place in enumerate(places):
        expected.add(place, 100.0 + number, 10.0 * (number + 1))
    expected.forget(9.0)
    assert expected.total_bytes == 303.0
    expected.forget(10.0)
    assert expected.total_bytes == 203.0
    expected.came(places[2])
    assert expected.total_bytes == 101.0
    expected.forget(20.0)
    assert expected.total_bytes == 0.0


def test_before_a_tag_stand_those_that_end_no_later() -> None:
    expected = Expected()
    for tag, request_bytes in ((0.0, 100.0), (50.0, 50.0), (0.0, 101.0)):
        expected.add(place_at(tag), request_bytes, inf)
    assert [expected.bytes_to(tag) for tag in (99.0, 100.0, 101.0)] == [0.0, 150.0, 251.0]
