"""Connections whose polls bring nothing, beside those that read: 1,000 B/s, a burst of 1 s, 100-B batches."""

from __future__ import annotations

from math import inf

import pytest

from sluice.quotas.entity import QuotaEntity, QuotaLevel
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.sensors.fetch_queue import FetchPlace, FetchQueue
from sluice.quotas.sensors.hold_ticket import HoldTicket
from sluice.quotas.sensors.kafka import KafkaSensor
from sluice.quotas.sensors.smooth import SmoothSensor
from tests.quotas.sensors.test_fetch_queue import bucket


def beside(*, tokens: float) -> tuple[SmoothSensor, FetchQueue, FetchPlace]:
    """A bucket that holds `tokens`, of which a connection has reserved one more; its batches are known."""
    sensor = bucket(1_000)
    sensor.charge_whole(1_000 - tokens, 0.0)
    queue = sensor.fetch_queue()
    queue.batches.saw([100], 0.0)
    reserving = FetchPlace()
    queue.reserve(reserving, tokens + 1.0, 60_000.0)
    return sensor, queue, reserving


def quiet_place(queue: FetchQueue) -> FetchPlace:
    place = FetchPlace()
    queue.connections += 1
    queue.was_empty(place)
    return place


def waits(queue: FetchQueue, place: FetchPlace, now_ms: float = 0.0) -> HoldTicket:
    return queue.enter(100, now_ms, inf, now_ms, None, place)


def test_the_more_connections_are_quiet_the_longer_each_pauses() -> None:
    queue = bucket().fetch_queue()
    places = [quiet_place(queue) for _ in range(300)]
    queue.was_empty(places[0])
    assert (queue.quiet, queue.pause_ms) == (300, 1_500.0), "200 polls a second"
    queue.was_not_empty(places[0])
    queue.was_not_empty(places[0])
    assert (queue.quiet, queue.pause_ms) == (299, 1_495.0)
    small = bucket(10_000).fetch_queue()
    quiet_place(small)
    assert small.pause_ms == 80.0, "their answers are a tenth of the rate at most"


def test_those_that_are_quiet_have_no_part_in_what_the_bucket_holds() -> None:
    queue = bucket(1_000).fetch_queue()
    queue.batches.saw([10], 0.0)
    queue.connections = 4
    quiet_place(queue)
    assert queue.grant(10_000, 0.0)[0] == 250
    for _ in range(2):
        queue.was_empty(FetchPlace())
    assert queue.grant(10_000, 0.0)[0] == 500
    queue.was_empty(FetchPlace())
    assert queue.grant(10_000, 0.0)[0] == 1_000
    queue.was_empty(FetchPlace())
    assert queue.grant(10_000, 0.0)[0] == 200, "nobody reads: all share, or each would wait for the others"


def gone(*tickets: HoldTicket) -> list[bool]:
    return [not ticket.is_in for ticket in tickets]


@pytest.mark.parametrize(("tokens", "reader_goes"), [(499.0, False), (500.0, True), (1_000.0, True)])
def test_who_reads_goes_before_who_is_quiet_once_half_of_the_burst_is_unused(
    tokens: float, *, reader_goes: bool
) -> None:
    _, queue, reserving = beside(tokens=tokens)
    place = FetchPlace()
    place.tag = 300.0
    quiet = waits(queue, quiet_place(queue))
    reader = waits(queue, place)
    queue.take_back(reserving, 2.0)
    queue.changed(0.0)
    assert gone(quiet, reader) == [not reader_goes, reader_goes]


def test_of_those_who_read_the_lowest_tag_goes_first_and_who_has_left_is_passed_over() -> None:
    _, queue, reserving = beside(tokens=600.0)
    places = [FetchPlace() for _ in range(3)]
    for place, tag in zip(places, (300.0, 100.0, 200.0), strict=True):
        place.tag = tag
    quiet = waits(queue, quiet_place(queue))
    third, first, second = (waits(queue, place) for place in places)
    queue.leave(first, 0.0)
    queue.take_back(reserving, 2.0)
    queue.changed(0.0)
    assert gone(quiet, third, second) == [False, False, True]
    queue.take_back(reserving, 100.0)
    queue.changed(0.0)
    assert gone(quiet, third) == [True, False], "by turns"
    queue.take_back(reserving, 100.0)
    queue.changed(0.0)
    assert gone(third) == [True]


def test_a_quiet_connection_stands_before_who_reads_by_a_turn_unless_it_has_brought_as_much() -> None:
    _, queue, _ = beside(tokens=100.0)
    queue.virtual_time = 5_000.0
    light, heavy = quiet_place(queue), quiet_place(queue)
    light.tag, heavy.tag = 4_000.0, 4_950.0
    assert [waits(queue, place).begin_tag for place in (light, heavy)] == [4_900.0, 4_950.0]
    assert waits(queue, FetchPlace()).begin_tag == 5_000.0


def test_a_quiet_connection_that_was_told_to_come_again_has_the_place_that_it_kept() -> None:
    _, queue, _ = beside(tokens=100.0)
    queue.virtual_time = 5_000.0
    place = quiet_place(queue)
    queue.keep_place(place, 4_970.0, 500.0)
    assert waits(queue, place, 1_500.0).begin_tag == 4_970.0
    place = quiet_place(queue)
    queue.keep_place(place, 4_970.0, 500.0)
    assert waits(queue, place, 1_501.0).begin_tag == 4_900.0


def test_what_is_brought_is_divided_among_those_who_read() -> None:
    """Else one that reads alone among hundreds who wait stands ever further behind who comes new."""
    _, queue, reserving = beside(tokens=100.0)
    for _ in range(9):
        waits(queue, quiet_place(queue))
    queue.settle(reserving, 0.0, 80.0, 0.0)
    assert (reserving.tag, queue.virtual_time) == (80.0, 80.0)
    waits(queue, FetchPlace())
    queue.settle(reserving, 0.0, 80.0, 0.0)
    assert queue.virtual_time == 120.0


def test_a_share_fetch_that_is_due_is_not_put_behind_who_reads() -> None:
    """A quiet connection's, with a deadline."""
    _, queue, reserving = beside(tokens=600.0)
    due = queue.enter(100, 0.0, 2_000.0, 0.0, None, quiet_place(queue))
    place = FetchPlace()
    place.tag = 300.0
    reader = waits(queue, place)
    queue.take_back(reserving, 2.0)
    queue.changed(0.0)
    assert gone(due, reader) == [True, False]


def test_half_full_is_half_of_the_burst() -> None:
    sensor = bucket(1_000, burst_s=3.0)
    sensor.charge_whole(1_500, 0.0)
    assert sensor.is_half_full(0.0)
    sensor.charge_whole(1, 0.0)
    assert not sensor.is_half_full(0.0)
    assert sensor.is_half_full(1.0)


def test_half_full_is_half_a_second_where_kafkas_windows_count() -> None:
    sensor = KafkaSensor(QuotaKind.FETCH, QuotaLevel.USER, QuotaEntity("alice"), 1_000, 0.0)
    tokens = sensor.tokens(0.0)
    sensor.charge(tokens - 500, 0.0)
    assert sensor.is_half_full(0.0)
    sensor.charge(1, 0.0)
    assert not sensor.is_half_full(0.0)
