"""Deadlines of held requests: slack, pace and room in numbers, at 1 byte a ms (HoldDeadlines' formulas)."""

from __future__ import annotations

from math import inf

import pytest

from sluice.quotas.sensors.hold_deadlines import HoldDeadlines
from sluice.quotas.sensors.hold_ticket import HoldTicket

MANY = 65
"""requests held, so many that an arrival waits for the next plan"""


class Held(HoldDeadlines):
    """Deadlines of one queue; `arrives` makes a plan where one is to be made."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def arrives(
        self, request_bytes: float, deadline_ms: float, *, tag: float = 0.0, now_ms: float = 0.0
    ) -> HoldTicket:
        ticket = self.ticket(request_bytes, deadline_ms, tag)
        if self.add(ticket, now_ms, 1.0, 1, now_ms):
            self.plan_at(now_ms)
        return ticket

    def ticket(self, request_bytes: float, deadline_ms: float, tag: float = 0.0) -> HoldTicket:
        self.number += 1
        return HoldTicket(request_bytes, tag - request_bytes, self.number, deadline_ms, None, None)

    def plan_at(self, now_ms: float) -> None:
        self.plan(now_ms, now_ms, 1.0, now_ms)

    def went(self, ticket: HoldTicket) -> None:
        self.goes(ticket, 1.0)
        ticket.is_in = False
        self.out(ticket)

    def may_go_before(self, request_bytes: float) -> bool:
        """One that has no room of its own: the slack of all decides."""
        ticket = self.ticket(request_bytes, inf)
        ticket.room_bytes = -inf
        return self.may_overtake(ticket, 1.0)


def test_where_nobody_was_held_yet_nothing_is_due_and_the_first_is_due_by_its_own_bytes() -> None:
    held = Held()
    assert (held.held_bytes, held.pace(), held.is_late()) == (0.0, 0.0, False)
    assert (held.first(), held.lowest()) == (None, None)
    ticket = held.arrives(100.0, 1_000.0)
    assert (ticket.due_bytes, held.held_bytes) == (100.0, 100.0)
    assert (held.pace(), held.first()) == (0.0, ticket)


def test_the_least_slack_of_all_is_how_much_may_overtake() -> None:
    """Deadline − (when all up to it are paid); in the order of deadlines, however they came."""
    held = Held()
    assert held.may_go_before(1e12), "nobody is there"
    held.arrives(100.0, 1_000.0)
    assert held.may_go_before(1_000.0)
    assert not held.may_go_before(1_000.1)
    held.arrives(500.0, 2_000.0)
    assert held.may_go_before(1_000.0)
    held.arrives(300.0, 2_000.0)
    assert held.may_go_before(1_000.0)
    held.arrives(900.0, 1_500.0)
    assert held.may_go_before(500.0), "the last of 2,000 ms is paid from 1,500 on"
    assert not held.may_go_before(500.1)
    held.arrives(400.0, 2_200.0)
    assert held.may_go_before(400.0), "the last one: 2,200 − 1,800"
    assert not held.may_go_before(400.1)


def test_what_is_owed_already_comes_before_all() -> None:
    held = Held()
    ticket = held.ticket(100.0, 1_000.0)
    assert not held.add(ticket, 300.0, 1.0, 1, 0.0)
    assert held.may_go_before(700.0)
    assert not held.may_go_before(700.1)
    held.plan(400.0, 0.0, 1.0, 0.0)
    assert held.may_go_before(600.0)
    assert not held.may_go_before(600.1)


def test_at_another_rate_bytes_take_other_times() -> None:
    """2 ms a byte."""
    held = Held()
    held.add(held.ticket(100.0, 1_000.0), 0.0, 2.0, 1, 0.0)
    second = held.ticket(100.0, 1_000.0)
    held.add(second, 0.0, 2.0, 2, 0.0)
    probe = held.ticket(400.0, inf)
    probe.room_bytes = -inf
    assert held.may_overtake(probe, 2.0)
    held.plan(0.0, 0.0, 2.0, 0.0)
    assert held.may_overtake(probe, 2.0)
    assert second.room_bytes == 1_000.0 / 2.0 - 100.0
    held.goes(second, 2.0)
    assert not held.may_overtake(probe, 2.0)
    probe.request_bytes = 300.0
    assert held.may_overtake(probe, 2.0)


def test_room_is_what_all_with_earlier_deadlines_leave() -> None:
    held = Held()
    third = held.arrives(400.0, 2_000.0)
    second = held.arrives(500.0, 900.0)
    first = held.arrives(100.0, 800.0)
    held.plan_at(0.0)
    assert [each.room_bytes for each in (first, second, third)] == [inf, 700.0, 300.0]
    assert [each.due_bytes for each in (first, second, third)] == [100.0, 600.0, 1_000.0]
    held.plan_at(100.0)
    assert [each.room_bytes for each in (first, second, third)] == [inf, 600.0, 200.0]


def test_who_overtakes_takes_of_the_slack_and_room_of_those_before_and_who_is_first_takes_nothing() -> None:
    held = Held()
    first, second, third = (
        held.arrives(size, due) for size, due in ((100.0, 800.0), (200.0, 900.0), (50.0, 950.0))
    )
    held.plan_at(0.0)
    assert held.may_go_before(600.0)
    held.went(second)
    assert held.may_go_before(400.0), "950 − 300 = 650 is not the least: 800 − 0 is, less what overtook"
    assert not held.may_go_before(600.1)
    assert third.room_bytes == 600.0
    third.request_bytes = 400.0
    assert held._has_room(third)
    third.request_bytes = 400.1
    assert not held._has_room(third)
    held.went(first)
    third.request_bytes = 400.0
    assert held._has_room(third)
    assert held.held_bytes == 50.0


def test_a_request_without_slack_is_late_and_sets_the_pace() -> None:
    """Bytes with no later deadline ÷ what is left of the time. With a slack of 0 none is late."""
    held = Held()
    for _ in range(3):
        held.arrives(1_000.0, 2_000.0)
    assert (held.pace(), held.is_late()) == (0.0, False)
    late = held.arrives(1_000.0, 2_000.0)
    assert (held.pace(), held.is_late(), late.pace) == (2.0, True, 2.0)
    held.plan_at(0.0)
    assert held.pace() == 2.0
    held.plan_at(400.0)
    assert held.pace() == 4_000.0 / 1_600.0
    held.plan(400.0, 0.0, 1.0, 400.0)
    assert held.pace() == 2.0, "the turn of the first began when the last one went"


def test_less_than_a_ms_before_its_deadline_it_is_due_in_one() -> None:
    held = Held()
    held.arrives(500.0, 100.0)
    held.arrives(500.0, 100.0)
    assert held.pace() == 10.0
    held.plan_at(99.5)
    assert held.pace() == 1_000.0
    held.plan_at(98.0)
    assert held.pace() == 500.0


def test_the_highest_pace_counts_until_that_request_is_out() -> None:
    held = Held()
    for _ in range(3):
        held.arrives(1_000.0, 2_000.0)
    highest = held.arrives(1_000.0, 2_000.0)
    held.arrives(1_000.0, 4_000.0)
    lower = held.arrives(1_000.0, 4_000.0)
    assert (held.pace(), lower.pace) == (2.0, 1.5)
    highest.is_in = False
    assert held.pace() == 1.5
    above = held.arrives(5_000.0, 4_200.0)
    assert held.pace() == above.pace > 2.0
    above.is_in = False
    assert (held.pace(), held.is_late()) == (0.0, False), "whom it covered went with it"


def test_whose_pace_it_was_leaves_it_to_those_who_are_due_before() -> None:
    """It went by its tag; they still need the pace that it had."""
    held = Held()
    first = held.arrives(2_500.0, 1_000.0)
    last = held.arrives(500.0, 2_000.0)
    assert held.pace() == 1.5
    held.went(last)
    assert (held.pace(), held.is_late()) == (1.5, True)
    held.went(first)
    assert held.pace() == 1.5, "until the next plan"
    held.plan_at(1.0)
    assert (held.pace(), held.is_late()) == (0.0, False)


def test_whose_pace_it_was_and_who_was_due_first_leaves_none() -> None:
    held = Held()
    late = held.ticket(2_000.0, 1_000.0)
    held.add(late, 1_500.0, 1.0, 1, 0.0)
    assert held.pace() == 2.0, "what is owed already is paid at 1,500 only"
    held.went(late)
    assert (held.pace(), held.is_late()) == (0.0, False)


def test_at_the_pace_the_lowest_tag_with_room_goes_first() -> None:
    """Pace 2.5: the first of 1,000 ms leaves 2.5 · 1,000 − 800 = 1,700."""
    held = Held()
    early = held.arrives(800.0, 1_000.0, tag=900.0)
    small = held.arrives(700.0, 2_000.0, tag=700.0)
    large = held.arrives(2_500.0, 2_000.0, tag=600.0)
    last = held.arrives(1_000.0, 2_000.0, tag=5_000.0)
    assert held.lowest() is None, "no plan yet: who is due first is to go"
    held.plan_at(0.0)
    assert held.pace() == 2.5
    assert [each.room_bytes for each in (early, small, large, last)] == [inf, 1_700.0, 1_700.0, 1_000.0]
    assert held.lowest() is small, "for the large one there is no room"
    held.went(small)
    assert held.lowest() is early
    held.went(early)
    assert held.lowest() is None, "of the last one's room 700 are taken"


def test_of_equal_tags_the_first_that_came_goes_first() -> None:
    held = Held()
    held.arrives(100.0, 1_000.0, tag=900.0)
    later = held.arrives(100.0, 3_000.0, tag=500.0)
    earlier = held.ticket(100.0, 3_000.0, tag=500.0)
    earlier.number = 0
    held.add(earlier, 0.0, 1.0, 1, 0.0)
    held.arrives(5_000.0, 3_000.0, tag=5_000.0)
    held.arrives(1.0, 3_000.0, tag=5_000.0)
    held.plan_at(0.0)
    assert held.lowest() is earlier
    held.went(earlier)
    assert held.lowest() is later


def test_where_the_quota_pays_all_in_time_there_is_no_order_by_room() -> None:
    held = Held()
    held.arrives(100.0, 1_000.0)
    held.arrives(100.0, 2_000.0)
    held.plan_at(0.0)
    assert held.lowest() is None


@pytest.mark.parametrize(("count", "old_after_ms"), [(1, 20.0), (1_000, 20.0), (2_000, 40.0)])
def test_a_plan_is_old_after_20_ms_and_later_where_many_wait(count: int, old_after_ms: float) -> None:
    held = Held()
    held.plan_at(100.0)
    assert not held.is_old(count, 100.0 + old_after_ms)
    assert held.is_old(count, 100.0 + old_after_ms + 0.001)


def test_the_slack_is_unknown_when_whose_it_was_is_gone_or_the_plan_is_old() -> None:
    held = Held()
    least = held.arrives(100.0, 1_000.0)
    held.arrives(100.0, 5_000.0)
    held.plan_at(0.0)
    assert not held.is_unknown(2, 20.0)
    assert held.is_unknown(2, 20.1)
    least.is_in = False
    assert held.is_unknown(64, 0.0)
    assert not held.is_unknown(65, 0.0), "where many wait, only when the plan is old"
    assert held.is_unknown(65, 20.1)
    assert Held().is_unknown(1, -inf), "nobody's yet"


def test_who_is_due_first_is_whose_deadline_is_the_nearest_of_those_held() -> None:
    held = Held()
    assert held.first() is None
    second, first = held.arrives(1.0, 500.0), held.arrives(1.0, 400.0)
    same = held.arrives(1.0, 400.0)
    assert held.first() is first
    held.went(first)
    assert held.first() is same, "of equal deadlines who came first"
    held.went(same)
    assert held.first() is second


def test_a_deadline_that_moves_is_taken_out_and_that_of_no_other() -> None:
    held = Held()
    tickets = [held.arrives(10.0 * number, 400.0) for number in (1, 2, 3)]
    held.arrives(100.0, 300.0)
    held.remove(tickets[1])
    assert held.held_bytes == 140.0
    assert tickets[1] not in held._by_deadline
    assert held._by_deadline[1:] == [tickets[0], tickets[2]]


def test_those_who_are_out_do_not_stay_in_the_order_for_good() -> None:
    held = Held()
    held.arrives(1.0, 1_000.0)
    lengths = []
    for number in range(1_000):
        held.went(held.arrives(1.0, 2_000.0 + number))
        lengths.append(len(held._by_deadline))
    assert max(lengths) == 64 + 2 + 1, "64 and twice as many as wait, and the one that comes"


def test_a_limit_that_is_raised_ends_the_pace() -> None:
    held = Held()
    for _ in range(4):
        held.arrives(1_000.0, 2_000.0)
    assert held.pace() == 2.0
    held.plan(0.0, 0.0, 0.1, 0.0)
    assert (held.pace(), held.is_late()) == (0.0, False)


def test_who_has_no_deadline_was_never_counted() -> None:
    held = Held()
    held.arrives(100.0, 1_000.0)
    held.out(held.ticket(900.0, inf))
    assert held.held_bytes == 100.0


def test_who_leaves_asks_for_a_plan_if_its_pace_was_needed() -> None:
    held = Held()
    held.arrives(1_500.0, 1_000.0)
    late = held.arrives(500.0, 1_000.0)
    held.plan_at(0.0)
    assert not held.left(held.ticket(1.0, 5.0), 1, 0.0), "it was not late"
    late.is_in = False
    assert held.left(late, 64, 0.0)
    assert held.left(late, 65, 20.1)
    assert held.pace() == 0.0
    assert not held.left(late, 65, 0.0)
    assert (held.pace(), held.is_late()) == (2.0, True), "others may need it, which the next plan finds"


def test_when_none_is_held_all_is_forgotten() -> None:
    held = Held()
    held.arrives(5_000.0, 1_000.0)
    held.arrives(5_000.0, 2_000.0)
    held.plan_at(0.0)
    held.add(held.ticket(900.0, 800.0), 0.0, 1.0, MANY, 10.0)
    assert held.is_late()
    held.clear()
    assert (held.first(), held.pace(), held.is_late(), held.lowest()) == (None, 0.0, False, None)
    assert (held.held_bytes, held._by_deadline, held._by_tag) == (0.0, [], [])
    assert held.may_go_before(1e12)
    held.arrives(100.0, 1_000.0, now_ms=11.0)
    assert held.may_go_before(989.0)
    assert not held.may_go_before(989.1)


def test_of_a_client_that_is_not_trusted_only_what_has_come_counts_in_pace_and_room() -> None:
    held = Held()
    held.trusts = False
    tickets = [held.ticket(1_000.0, due) for due in (1_000.0, 1_000.0, 1_500.0)]
    for ticket in tickets:
        ticket.here_bytes = 600.0
        held.add(ticket, 0.0, 1.0, 3, 0.0)
    assert (held.pace(), held.is_late()) == (0.0, True), "it may be late: the next plan tells"
    held.plan_at(0.0)
    assert held.pace() == 1.2, "600 + 600 of what is due at 1,000; 1,800 ÷ 1,500 is as much"
    assert [each.due_bytes for each in tickets] == [600.0, 1_200.0, 1_800.0]
    assert [each.room_bytes for each in tickets] == [inf, 600.0, 0.0]
