"""Many held requests: what comes between two plans is taken from slack and room as the worst it may be."""

from __future__ import annotations

import pytest

from sluice.quotas.sensors.hold_ticket import HoldTicket
from tests.quotas.sensors.test_hold_deadlines import MANY, Held


class Planned(Held):
    """A plan is made at 0 for 100 B due at 1,000 and `size` B due at 3,000; what comes waits for the next."""

    def __init__(self, size: float = 400.0) -> None:
        super().__init__()
        self.first_ticket = self.arrives(100.0, 1_000.0)
        self.last_ticket = self.arrives(size, 3_000.0)
        self.plan_at(0.0)
        assert self.last_ticket.room_bytes == 900.0

    def comes(self, request_bytes: float, deadline_ms: float, tag: float = 0.0) -> HoldTicket:
        ticket = self.ticket(request_bytes, deadline_ms, tag)
        assert not self.add(ticket, 0.0, 1.0, MANY, 10.0)
        return ticket

    @property
    def is_last_let_through(self) -> bool:
        return self.may_overtake(self.last_ticket, 1.0)


def test_an_earlier_deadline_asks_for_a_plan_unless_many_wait_and_one_was_made_just_now() -> None:
    assert Planned().add(Planned().ticket(1.0, 2_000.0), 0.0, 1.0, 64, 10.0)
    assert Planned().add(Planned().ticket(1.0, 2_000.0), 0.0, 1.0, MANY, 20.1)
    assert not Planned().add(Planned().ticket(1.0, 2_000.0), 0.0, 1.0, MANY, 20.0)
    assert not Planned().add(Planned().ticket(1.0, 3_000.0), 0.0, 1.0, 1, 20.1), "of the last it is none"


@pytest.mark.parametrize(("size", "is_let_through"), [(700.0, True), (700.1, False)])
def test_between_two_plans_what_comes_earlier_takes_of_the_room_of_all(
    size: float, is_let_through: bool
) -> None:
    held = Planned(size)
    new = held.comes(200.0, 2_000.0)
    assert held.is_last_let_through is is_let_through
    assert held.is_late(), "or may be"
    assert not held.may_go_before(0.1), "slack is not known"
    assert (new.room_bytes, new.due_bytes) == (900.0 + 200.0, 100.0)
    assert held.may_overtake(new, 1.0)
    assert held.held_bytes == 100.0 + size + 200.0


def test_what_came_last_since_the_plan_counts_before_what_is_due_behind_it() -> None:
    """100 B have gone meanwhile."""
    held = Planned()
    held.went(held.first_ticket)
    held.first()
    held.add(held.ticket(1_000.0, 4_000.0), 0.0, 1.0, MANY, 10.0)
    held.add(held.ticket(1.0, 6_000.0), 0.0, 1.0, MANY, 10.0)
    assert held.comes(200.0, 5_000.0).due_bytes == 100.0 + 400.0 + 1_000.0


@pytest.mark.parametrize(("size", "is_let_through"), [(600.0, True), (600.1, False)])
def test_between_two_plans_the_room_of_all_is_at_most_what_the_new_one_leaves(
    size: float, is_let_through: bool
) -> None:
    """Due at 1,100: with the 100 B before it 800 B are left, of which it takes 200."""
    held = Planned(size)
    held.comes(200.0, 1_100.0)
    assert held.is_last_let_through is is_let_through
    held.comes(0.0, 2_900.0)
    assert held.is_last_let_through is is_let_through, "the least counts"


@pytest.mark.parametrize(("size", "is_let_through"), [(500.0, True), (500.1, False)])
def test_all_that_came_since_the_plan_counts_before_a_new_one_whatever_their_order(
    size: float, is_let_through: bool
) -> None:
    """The second new one is due at 1,200: 100 + 300 are before it, and 300 went ahead of what is later."""
    held = Planned(size)
    held.comes(200.0, 2_000.0)
    held.comes(100.0, 1_200.0)
    assert held.is_last_let_through is is_let_through


@pytest.mark.parametrize(("due_ms", "is_let_through"), [(850.0, True), (849.9, False)])
def test_before_the_first_of_all_counts_what_has_gone_since_the_plan(
    due_ms: float, is_let_through: bool
) -> None:
    """100 B went, 200 come: room = due − 300, of which 200 are taken, and 350 are asked for."""
    held = Planned(350.0)
    held.went(held.first_ticket)
    assert held.first() is held.last_ticket
    held.comes(200.0, due_ms)
    assert held.is_last_let_through is is_let_through


def test_a_new_one_that_is_too_late_between_two_plans_sets_the_pace_of_all() -> None:
    held = Planned()
    held.comes(300.0, 300.0)
    assert held.pace() == 0.0, "300 B until 300 ms are in time"
    held.comes(60.0, 250.0)
    assert held.pace() == 360.0 / 240.0
    held.comes(1.0, 250.0)
    assert held.pace() == 361.0 / 240.0
    held.comes(10.0, 10.5)
    assert held.pace() == 371.0, "due at once is due in one ms"
    held.comes(1.0, 900.0)
    assert held.pace() == 371.0, "the highest counts"
    held.plan_at(11.0)
    assert held.pace() < 371.0


def test_one_that_is_too_late_between_two_plans_sets_no_pace_while_clients_are_not_trusted() -> None:
    held = Planned()
    held.trusts = False
    held.comes(300.0, 250.0)
    assert (held.pace(), held.is_late()) == (0.0, True)


def test_between_two_plans_too_the_lowest_tag_with_room_goes_first() -> None:
    held = Held()
    held.arrives(800.0, 1_000.0, tag=900.0)
    old = held.arrives(700.0, 2_000.0, tag=700.0)
    for tag in (6_000.0, 6_001.0):
        held.arrives(1_750.0, 2_000.0, tag=tag)
    held.plan_at(0.0)
    assert (held.pace(), old.room_bytes) == (2.5, 1_700.0)
    new = held.ticket(100.0, 1_900.0, tag=650.0)
    assert not held.add(new, 0.0, 1.0, MANY, 10.0)
    assert held.lowest() is new
    held.went(new)
    assert held.lowest() is old
