"""What fetches under way have reserved, and who goes meanwhile: 1,000 B/s, a burst of 1 s, 100-B batches."""

from __future__ import annotations

from math import inf

import pytest

from sluice.quotas.sensors.fetch_queue import FetchPlace, FetchQueue
from tests.quotas.sensors.test_fetch_queue import bucket


def queue_of_100(*, owed: float = 0.0, rate: float = 1_000) -> FetchQueue:
    sensor = bucket(rate)
    queue = sensor.fetch_queue()
    queue.batches.saw([100], 0.0)
    queue.connections = 1
    if owed:
        sensor.charge_whole(rate + owed, 0.0)
    return queue


def test_what_is_reserved_is_there_until_its_answer_has_come() -> None:
    queue, place, other = queue_of_100(), FetchPlace(), FetchPlace()
    queue.reserve(place, 300.0, 5_000.0)
    queue.reserve(place, 200.0, 5_000.0)
    queue.reserve(other, 100.0, 5_000.0)
    assert (place.reserved_bytes, queue.reserved_bytes) == (500.0, 600.0)
    queue.settle(place, 300.0, 50.0, 0.0)
    assert (place.reserved_bytes, queue.reserved_bytes) == (200.0, 300.0)
    queue.take_back(place, 199.5)
    assert (place.reserved_bytes, queue.reserved_bytes) == (0.5, 100.5), "half a byte is something"
    queue.take_back(place, 9_000.0)
    assert (place.reserved_bytes, queue.reserved_bytes) == (0.0, 100.0), "no more than its own"
    queue.take_back(other, 100.0)
    assert queue.reserved_bytes == 0.0


def test_the_last_answer_leaves_nothing_that_rounding_left() -> None:
    queue, places = queue_of_100(), [FetchPlace() for _ in range(3)]
    for place, size in zip(places, (0.1, 0.2, 0.3), strict=True):
        queue.reserve(place, size, 5_000.0)
    for place in places:
        queue.take_back(place, place.reserved_bytes)
    assert queue.reserved_bytes == 0.0


def test_a_fetch_may_go_while_not_all_is_reserved() -> None:
    queue = queue_of_100()
    assert queue.is_free(0.0)
    queue.reserve(FetchPlace(), 999.0, 5_000.0)
    assert queue.is_free(0.0)
    queue.reserve(FetchPlace(), 1.0, 5_000.0)
    assert not queue.is_free(0.0)
    assert not queue.is_free(4_999.0)
    assert queue.is_free(5_000.0), "its answers are overdue"
    assert queue.reserved_bytes == 0.0


def test_an_answer_that_is_overdue_is_given_up_and_the_others_are_waited_for() -> None:
    queue = queue_of_100()
    places = [FetchPlace() for _ in range(3)]
    for place, overdue_ms in zip(places, (3_000.0, 2_000.0, 4_000.0), strict=True):
        queue.reserve(place, 600.0, overdue_ms)
    for now_ms, reserved in ((1_999.0, 1_800.0), (2_000.0, 1_200.0), (2_999.0, 1_200.0), (3_000.0, 600.0)):
        queue.is_free(now_ms)
        assert queue.reserved_bytes == reserved, now_ms
    assert queue.is_free(3_000.0)
    assert places[1].reserved_bytes == 0.0


def test_one_that_comes_while_others_wait_waits_too() -> None:
    queue = queue_of_100(owed=10.0)
    ticket = queue.enter(100, 0.0, inf, 0.0, None, FetchPlace())
    assert not queue.is_free(5.0)
    assert queue.ask(ticket, 11.0) == 11.0
    assert not ticket.is_in


def test_whose_turn_has_come_has_a_second_to_ask() -> None:
    queue = queue_of_100(owed=10.0)
    place = FetchPlace()
    ticket = queue.enter(100, 0.0, inf, 0.0, None, place)
    queue.changed(10.0)
    assert (ticket.is_in, place.reserved_bytes) == (False, 100.0)
    assert (ticket.eligible_at_ms, ticket.clears_at_ms) == (10.0, 10.0)
    queue.is_free(1_009.0)
    assert place.reserved_bytes == 100.0
    queue.is_free(1_010.0)
    assert place.reserved_bytes == 0.0


def test_whose_turn_has_come_and_who_leaves_gives_it_back() -> None:
    queue = queue_of_100(owed=10.0)
    place = FetchPlace()
    ticket = queue.enter(100, 0.0, inf, 0.0, None, place)
    queue.changed(10.0)
    queue.leave(ticket, 20.0)
    assert (place.reserved_bytes, queue.reserved_bytes) == (0.0, 0.0)


def test_a_fetch_is_granted_by_what_its_own_connection_brought_and_a_new_one_by_what_all_did() -> None:
    queue, large, new = queue_of_100(), FetchPlace(), FetchPlace()
    queue.saw(large, [700], 0.0)
    for _ in range(60):
        queue.saw(FetchPlace(), [100], 0.0)
    assert queue.grant(50, 0.0, large) == (50, 700)
    assert queue.grant(50, 0.0, new) == (50, 100)
    assert queue.grant(50, 0.0) == (50, 100)
    assert queue.grant(300, 0.0, new) == (300, 300)
    assert queue.grant(0, 0.0)[0] == 1
    queue.connections = 0
    assert queue.grant(10_000, 0.0)[0] == 1_000
    queue.connections = 2
    assert queue.grant(10_000, 0.0)[0] == 500
    assert queue.grant(2, 0.0) == (2, 100)


def test_who_brought_bytes_stands_behind_those_who_wait_by_as_many_and_by_one_turn_at_most() -> None:
    queue, place = queue_of_100(), FetchPlace()
    queue.reserve(place, 100.0, 5_000.0)
    queue.settle(place, 100.0, 80.0, 0.0)
    assert (place.tag, queue.virtual_time) == (0.0, 0.0), "nobody waits"
    queue.reserve(place, 1_000.0, 5_000.0)
    queue.enter(100, 0.0, inf, 0.0, None, FetchPlace())
    queue.settle(place, 0.0, 80.0, 0.0)
    assert (place.tag, queue.virtual_time) == (80.0, 40.0), "each of two has been given 40"
    queue.settle(place, 0.0, 900.0, 0.0)
    assert place.tag == 180.0


def test_of_those_of_whom_no_batch_is_known_nobody_is_put_behind_a_turn() -> None:
    queue, place = bucket(1_000).fetch_queue(), FetchPlace()
    queue.reserve(place, 1_000.0, 5_000.0)
    queue.enter(100, 0.0, inf, 0.0, None, FetchPlace())
    queue.settle(place, 0.0, 80.0, 0.0)
    assert place.tag == 0.0


def test_an_answer_lets_who_waits_go() -> None:
    queue, place = queue_of_100(), FetchPlace()
    queue.reserve(place, 1_000.0, 5_000.0)
    woken: list[int] = []
    ticket = queue.enter(100, 0.0, inf, 0.0, lambda: woken.append(1), FetchPlace())
    assert queue.ask(ticket, 0.0) == 5_000.0
    woken.clear()
    queue.settle(place, 1_000.0, 0.0, 1.0)
    assert (woken, ticket.is_in) == ([1], False)


def test_turns_go_on_from_where_the_last_one_began() -> None:
    queue = queue_of_100(owed=10.0)
    place = FetchPlace()
    place.tag = 70.0
    ticket = queue.enter(100, 0.0, inf, 0.0, None, place)
    assert (ticket.begin_tag, ticket.tag) == (70.0, 70.0)
    queue.changed(10.0)
    assert queue.virtual_time == 70.0
    place = FetchPlace()
    place.keep(20.0, 9_000.0)
    queue.enter(100, 0.0, inf, 11.0, None, place)
    queue.changed(5_000.0)
    assert queue.virtual_time == 70.0, "it does not go back for one that kept its place"


@pytest.mark.parametrize(("largest", "is_free"), [(4_500, True), (4_501, False)])
def test_what_all_may_bring_by_the_largest_batch_is_nine_seconds_of_the_rate(
    largest: int, *, is_free: bool
) -> None:
    queue = queue_of_100()
    queue.batches.saw([largest], 0.0)
    queue.batches.saw([100] * 60, 0.0)
    queue.reserve(FetchPlace(), 100.0, 5_000.0)
    assert queue.is_free(0.0) is is_free
    assert queue.is_free(5_000.0)


def test_a_client_that_was_told_to_come_again_has_a_second_more() -> None:
    queue, place = queue_of_100(), FetchPlace()
    queue.keep_place(place, 33.0, 500.0)
    assert (place.kept_tag, place.kept_until_ms) == (33.0, 1_500.0)
