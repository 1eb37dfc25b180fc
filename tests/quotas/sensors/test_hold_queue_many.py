"""Many held requests whose deadlines come in any order: an operation does not look at all of them."""

from __future__ import annotations

from random import Random

import pytest

from sluice.quotas.sensors.hold_queue import HoldQueue
from sluice.quotas.sensors.hold_ticket import HoldTicket
from sluice.quotas.sensors.place import Place

HELD = 500


class Counted(HoldQueue):
    """Counts how often a plan was made."""

    def __init__(self) -> None:
        super().__init__(1.0)  # 1,000 B/s
        self.measured = 0

    def _plan(self, now_ms: float) -> None:
        self.measured += 1
        super()._plan(now_ms)


def filled(queue: HoldQueue) -> list[HoldTicket]:
    """500 requests of 1 byte within 10 ms, due between 2 and 8 s."""
    random = Random(1)
    return [
        queue.enter(1.0, number, random.uniform(2_000.0, 8_000.0), number / 50, None, Place())
        for number in range(HELD)
    ]


def test_all_are_measured_once_in_20_ms_however_many_come_or_are_hastened() -> None:
    queue = Counted()
    tickets = filled(queue)
    few = queue.measured
    assert few < 100  # while there were few, each time
    for ticket in tickets:
        queue.hasten(ticket, ticket.deadline_ms - 10.0, 10.0)
    assert queue.measured == few
    queue.changed(100.0)
    assert queue.measured == few + 1
    queue.changed(110.0)
    assert queue.measured == few + 1


def test_each_goes_by_its_deadline_and_the_rate_is_kept() -> None:
    """500 bytes at 1,000 B/s: all have gone after half a second, one a millisecond."""
    queue = Counted()
    tickets = filled(queue)
    gone = 0
    for now_ms in range(20, 600, 5):
        gone = sum(queue.ask(ticket, now_ms) <= now_ms for ticket in tickets)
        assert gone <= now_ms + 1
    assert gone == HELD


@pytest.mark.parametrize("extra", [5_000.0, 50_000.0])
def test_a_large_one_that_is_due_early_goes_in_time(extra: float) -> None:
    """It comes when all were measured just now, and what it needs is above the rate."""
    queue = Counted()
    filled(queue)
    large = queue.enter(extra, 500.0, 1_500.0, 10.5, None, Place())
    at_ms = next(now_ms for now_ms in range(11, 2_000) if queue.ask(large, now_ms) <= now_ms)
    assert at_ms <= 1_501
