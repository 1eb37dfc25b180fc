"""Requests that are to come from clients who were told to wait: each connection's counts once."""

from __future__ import annotations

from math import inf
from random import Random

import pytest

from sluice.quotas.sensors.bytes_by_tag import BytesByTag
from sluice.quotas.sensors.place import Expected, ExpectedFetches, LeftPlaces, Place


def test_a_new_connection_has_had_nothing_and_keeps_no_place() -> None:
    place = Place()
    assert (place.tag, place.kept_tag, place.kept_until_ms) == (0.0, 0.0, -inf)


def test_a_connection_that_is_told_again_is_expected_once_with_what_it_sent_last() -> None:
    expected, place = Expected(), Place()
    expected.told(place, 0.0, 100.0, 0.0, 0.0)
    expected.told(place, 0.0, 300.0, 32.0, 0.0)
    assert expected.bytes_to(inf, 0.0) == 300.0
    assert expected.bytes_to(inf, 50.0) == 300.0, "until 32 · 1.25 + 50 ms now"
    expected.came(place)
    assert expected.bytes_to(inf, 50.0) == 0.0
    expected.came(place)
    assert expected.bytes_to(inf, 50.0) == 0.0


def test_who_comes_or_is_late_is_not_waited_for_any_more() -> None:
    expected, places = Expected(), [Place() for _ in range(3)]
    for number, place in enumerate(places):
        expected.told(place, 0.0, 100.0 + number, 8.0 * number, 0.0)
    assert [place.kept_until_ms for place in places] == [50.0, 60.0, 70.0]
    assert expected.bytes_to(inf, 49.0) == 303.0
    assert expected.bytes_to(inf, 50.0) == 203.0
    expected.came(places[2])
    assert expected.bytes_to(inf, 50.0) == 101.0
    assert expected.bytes_to(inf, 60.0) == 0.0


def test_before_a_tag_stand_those_that_end_no_later() -> None:
    expected = Expected()
    for tag, request_bytes in ((0.0, 100.0), (50.0, 50.0), (0.0, 101.0)):
        expected.refused(Place(), tag, request_bytes, 0.0, 0.0)
    assert [expected.bytes_to(tag, 0.0) for tag in (99.0, 100.0, 101.0)] == [0.0, 150.0, 251.0]


def test_many_are_counted_by_their_tags() -> None:
    expected = Expected()
    for number in range(500):
        expected.told(Place(), number * 10.0, 300.0, 20.0, 0.0)
    assert [expected.bytes_to(tag, 0.0) for tag in (299.0, 310.0, 4_000.0, inf)] == [
        0.0, 600.0, 371 * 300.0, 500 * 300.0,
    ]  # fmt: skip


def test_a_turn_is_left_to_who_comes_soon_with_a_lower_tag() -> None:
    expected, told, gone = Expected(), Place(), Place()
    assert expected.wait_ms(1_000.0, 0.0, -inf) == -inf
    expected.told(told, 0.0, 300.0, 20.0, 0.0)
    assert expected.wait_ms(300.0, 30.0, -inf) == -inf, "its tag is no lower"
    assert expected.wait_ms(301.0, 30.0, -inf) == 20.0 + 50.0
    assert expected.wait_ms(301.0, 10.0, -inf) == 10.0 + 50.0, "from when the turn is on"
    assert expected.wait_ms(301.0, -30.0, -inf) == 20.0, "so long at most"
    assert expected.wait_ms(301.0, -31.0, -inf) == -inf, "it does not come by then"
    expected.went(gone, 200.0, 25.0)
    assert expected.wait_ms(250.0, 30.0, -inf) == 25.0 + 50.0
    expected.came(gone)
    assert expected.wait_ms(301.0, 30.0, -inf) == 20.0 + 50.0
    expected.came(told)
    assert expected.wait_ms(301.0, 30.0, -inf) == -inf


def test_so_many_are_awaited_and_no_more() -> None:
    expected, places = Expected(), [Place() for _ in range(66)]
    for place in places[:65]:
        expected.went(place, 1.0, 0.0)
    expected.came(places[0])
    for place in places[1:64]:
        expected.came(place)
    assert expected.wait_ms(2.0, 0.0, -inf) == -inf, "the 65th is not"
    for place in places[:64]:
        expected.went(place, 1.0, 0.0)
    expected.went(places[65], 1.0, 50.0)
    assert expected.wait_ms(2.0, 100.0, -inf) == 100.0, "once the others are late"


def test_fetches_go_by_where_they_begin_and_are_awaited_once_they_were_told() -> None:
    expected, place = ExpectedFetches(), Place()
    expected.went(place, 100.0, 0.0)
    assert expected.wait_ms(1_000.0, 30.0, -inf) == -inf, "its answer may take as long as it likes"
    expected.told(place, 100.0, 300.0, 20.0, 0.0)
    assert expected.wait_ms(100.0, 30.0, -inf) == -inf
    assert expected.wait_ms(101.0, 30.0, -inf) == 70.0
    assert [expected.bytes_to(tag, 0.0) for tag in (99.0, 100.0)] == [0.0, 300.0]
    assert (len(expected), expected.bytes_to(inf, 0.0)) == (1, 300.0)


def place_of(tag: float) -> Place:
    place = Place()
    place.tag = tag
    return place


def test_a_new_connection_goes_on_where_one_was_that_has_left() -> None:
    left = LeftPlaces()
    for tag in (300.0, 100.0, 200.0):
        left.leave(place_of(tag), 100.0, 0.0)
    assert left.take(100.0, 9_999.0) == 200.0, "of 100 the others have had as much"
    assert left.take(100.0, 10_000.0) == 0.0, "300 is too long ago"
    left.leave(place_of(400.0), 100.0, 0.0)
    assert left.take(400.0, 1.0) == 0.0


def test_so_many_that_have_left_are_kept_and_no_more() -> None:
    left = LeftPlaces()
    for number in range(65):
        left.leave(place_of(1.0 + number), 0.0, 0.0)
    assert [left.take(0.0, 1.0) for _ in range(65)] == [1.0 + number for number in range(64)] + [0.0]


@pytest.mark.parametrize("seed", range(20))
def test_sums_are_those_of_a_list_that_is_looked_through(seed: int) -> None:
    random, sums = Random(seed), BytesByTag()
    plain: list[tuple[float, float]] = []
    for _ in range(500):
        if plain and random.random() < 0.4:
            sums.remove(*plain.pop(random.randrange(len(plain))))
        else:
            plain.append((random.randrange(20) * 0.1, random.choice([1.0, 2.5, 100.0])))
            sums.add(*plain[-1])
        tag = random.randrange(-1, 21) * 0.1
        assert len(sums) == len(plain)
        assert sums.up_to(tag) == sum(its for at, its in plain if at <= tag)
        assert sums.below(tag) == sum(its for at, its in plain if at < tag)
    sums.clear()
    assert (len(sums), sums.up_to(2.0), sums.below(2.0)) == (0, 0.0, 0.0)
    with pytest.raises(ValueError, match="not in list"):
        sums.remove(1.0, 1.0)
