"""Held requests that the quota cannot pay in time: their pace, what small ones take, who is counted on."""

from __future__ import annotations

import pytest

from sluice.quotas.sensors.hold_ticket import HoldTicket
from sluice.quotas.sensors.place import Place
from tests.quotas.sensors.test_hold_queue_times import DUE_MS, Queue


def test_a_limit_that_is_lowered_is_met_at_once_by_the_pace_of_those_who_wait() -> None:
    """A tenth of the rate: 4,500 B until 8,000 ms, where the quota pays 800."""
    queue = Queue(500.0)
    first = queue.comes(500.0)
    for _ in range(4):
        queue.comes(1_000.0)
    queue.update(10.0, 0.0)
    assert queue.ask(first, 0.0) == 500.0 / (4_500.0 / DUE_MS)


def overloaded() -> Queue:
    """Ten of 2,000 B until 8,000 ms: 2.5 B a ms, one in 800 ms."""
    queue = Queue(1_000.0)
    for number in range(10):
        queue.comes(2_000.0, due_ms=DUE_MS + number / 1_000.0, place=Place())
    return queue


@pytest.mark.parametrize(
    ("now_ms", "small_bytes"),
    [(799.0, 0.0), (801.0, 100.0), (1_601.0, 124.9), (2_401.0, 124.9)],
)
def test_beside_late_ones_a_twentieth_more_is_for_small_requests_and_50_ms_of_the_pace_at_most(
    now_ms: float, small_bytes: float
) -> None:
    for more, goes in ((0.0, True), (0.1, False)) if small_bytes else ((1.0, False),):
        queue = overloaded()
        queue.changed(now_ms)
        small = queue.comes(small_bytes + more, now_ms, due_ms=DUE_MS * 2)
        assert (not small.is_in) is goes, (now_ms, more)


def test_what_small_requests_have_taken_is_not_there_for_the_next() -> None:
    queue = overloaded()
    queue.changed(801.0)
    assert not queue.comes(60.0, 801.0, due_ms=DUE_MS * 2).is_in
    assert queue.comes(41.0, 801.0, due_ms=DUE_MS * 2).is_in
    assert not queue.comes(39.0, 801.0, due_ms=DUE_MS * 2).is_in


def test_small_requests_put_off_no_late_one() -> None:
    plain, with_small = overloaded(), overloaded()
    for queue in (plain, with_small):
        for now_ms in range(0, 8_031, 10):
            queue.changed(float(now_ms))
            if queue is with_small and not now_ms % 1_000:
                queue.comes(1.0, float(now_ms), due_ms=20_000.0)
    large = [
        [each for each in queue._tickets if each.request_bytes == 2_000.0] for queue in (plain, with_small)
    ]
    assert all(not each.is_in for each in large[1])
    assert len(plain) == 0


def test_what_small_requests_may_take_begins_anew_with_each_overload() -> None:
    queue = overloaded()
    queue.changed(801.0)
    for ticket in queue._tickets:
        queue.leave(ticket, 801.0)
    queue.tat_ms = 3_000.0
    for number in range(10):
        queue.comes(2_000.0, 900.0, due_ms=8_900.0 + number / 1_000.0, place=Place())
    assert queue.comes(50.0, 900.0, due_ms=16_000.0).is_in


def leaver(queue: Queue, here_bytes: float = 10.0) -> HoldTicket:
    """It has announced 2,000 B; `here_bytes` have come."""
    ticket = queue.comes(2_000.0, due_ms=DUE_MS + 1.0)
    ticket.here_bytes = here_bytes
    return ticket


@pytest.mark.parametrize(
    ("here_bytes", "for_good", "ahead", "trusts"),
    [
        (10.0, True, True, False),
        (10.0, True, False, True),
        (10.0, False, True, True),
        (2_000.0, True, True, True),
    ],
)
def test_who_leaves_what_it_announced_while_others_went_ahead_for_it_is_not_counted_on_for_a_minute(
    here_bytes: float, *, for_good: bool, ahead: bool, trusts: bool
) -> None:
    queue = overloaded()
    ticket = leaver(queue, here_bytes)
    queue.changed(801.0 if ahead else 1.0)
    queue.leave(ticket, 900.0 if ahead else 2.0, for_good=for_good)
    assert queue._deadlines.trusts is trusts
    if not trusts:
        queue.changed(60_899.0)
        assert not queue._deadlines.trusts
        queue.changed(60_900.0)
        assert queue._deadlines.trusts


def test_another_that_does_so_within_that_minute_prolongs_it() -> None:
    queue = overloaded()
    first = leaver(queue)
    queue.changed(801.0)
    second = leaver(queue)
    queue.leave(first, 802.0)
    queue.leave(second, 803.0)
    queue.changed(60_802.5)
    assert not queue._deadlines.trusts
    queue.changed(60_803.0)
    assert queue._deadlines.trusts


def test_who_went_in_its_time_or_at_its_deadline_went_not_ahead_for_anyone() -> None:
    queue = Queue(500.0)
    queue.comes(100.0)
    urgent = queue.comes(100.0, due_ms=300.0)
    ticket = leaver(queue)
    queue.changed(700.0)
    assert not urgent.is_in
    queue.leave(ticket, 701.0)
    assert queue._deadlines.trusts


def test_whoever_is_next_is_woken_when_others_come_for_whom_it_has_to_go_earlier() -> None:
    """Eight of 2,000 B until 8,000 ms: 2 B a ms, though 1,500 ms are owed before."""
    queue = Queue(1_500.0)
    first = queue.comes(2_000.0)
    assert first.told_ms == 1_500.0
    for _ in range(7):
        queue.tat_ms += 2_000.0
        queue.enter(2_000.0, queue.tat_ms - 2_000.0, DUE_MS, 0.0)
    assert first.told_ms == 1_000.0
    assert first in queue.take_woken()


def test_the_first_at_a_pace_has_its_turn_from_the_last_that_went_on() -> None:
    """1,000 B went at 500 ms, and are paid at 1,500; at 550 others come: 15,000 B in 7,450 ms."""
    queue = Queue(500.0)
    first, second = queue.comes(1_000.0), queue.comes(1_000.0)
    assert queue.ask(first, 500.0) == 500.0
    for _ in range(7):
        queue.tat_ms += 2_000.0
        queue.enter(2_000.0, queue.tat_ms - 2_000.0, DUE_MS, 550.0)
    assert queue.ask(second, 550.0) == pytest.approx(500.0 + 1_000.0 * (DUE_MS - 550.0) / 15_000.0)
