"""Near the ceiling: a request for whose pairs there is no room stops none for which there is."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from sluice.quotas.producer_ids.principal import ProducerIdSettings
from sluice.quotas.producer_ids.ticket import Ticket, TicketState
from testkit.quotas.producer_id_door import Door

CLEAN_UP_MS = 60_000.0
SETTINGS = replace(ProducerIdSettings(), broker_heap_bytes=270 * 4 * 10_000)  # a ceiling of 10,000 pairs


class NearCeiling(Door):
    """Neighbours hold nine tenths of the ceiling, so that who is small has room for 256 pairs."""

    def __init__(self, ids_per_hour: float = 1_000.0, *, forced_after_ms: float = inf) -> None:
        super().__init__(ids_per_hour, replace(SETTINGS, forced_after_ms=forced_after_ms))
        for number in (1, 2):
            first = number * 10**6
            self.principal(f"neighbour-{number}").see_known_pairs(range(first, first + 4_500), 0.0)
        assert self.quota.ceiling.room(self.principal()) == 256

    def asks(self, producer_id: int, pairs: int, *, address: str = "app", now_ms: float = 0.0) -> Ticket:
        """A new id, and so many partitions."""
        first = producer_id * 10**7
        ticket = Ticket(
            self.principal(now_ms=now_ms),
            (producer_id,),
            (),
            tuple(range(first, first + pairs)),
            None,
            (address, "app"),
        )
        if self.quota.ask(ticket, now_ms):
            self.quota.commit(ticket, now_ms)
        return ticket


def test_one_request_that_finds_no_room_keeps_no_other_new_id_of_its_user_out() -> None:
    """It stood at the head, again and again, and of 60 ids of a partition each none went."""
    door = NearCeiling()
    wide = door.asks(1, 300, address="reporter")
    for number in range(60):
        now_ms = number * 1_000.0
        if number % 8 == 7:
            door.quota.withdraw(wide, now_ms)
            wide = door.asks(1, 300, address="reporter", now_ms=now_ms)
        assert door.asks(100 + number, 1, now_ms=now_ms).state is TicketState.DONE
    assert wide.waits
    assert door.principal().admitted == 60


def test_those_behind_it_go_as_their_tokens_come() -> None:
    """It asked first, when there was no token, and its turn comes first."""
    door = NearCeiling(3_600)
    door.drain()
    wide = door.asks(1, 300, address="reporter")
    small = [door.asks(100 + number, 1, now_ms=1.0) for number in range(3)]
    assert door.quota.due_ms == pytest.approx(1_000.0)
    for number, ticket in enumerate(small, start=1):
        assert door.quota.serve(number * 1_000.0 + 1.0) == [ticket]
        door.quota.commit(ticket, number * 1_000.0 + 1.0)
    assert wide.waits
    assert door.quota.serve(3_001.0) == []
    assert door.quota.due_ms == inf


def test_those_behind_it_are_forced_in_as_their_time_comes() -> None:
    door = NearCeiling(100, forced_after_ms=30_000.0)
    door.drain()
    wide = door.asks(1, 300, address="reporter")
    small = [door.asks(100 + number, 1, now_ms=1.0) for number in range(3)]
    door.principal().main.restore(-100.0, 30_000.0)
    served = door.quota.serve(30_001.0)
    assert served == small
    assert {ticket.state for ticket in served} == {TicketState.FORCED}
    assert wide.waits


def test_it_goes_when_the_clean_up_has_made_room() -> None:
    door = NearCeiling()
    wide = door.asks(1, 300, address="reporter")
    assert wide.waits
    door.quota.expire(CLEAN_UP_MS)
    assert door.quota.serve(CLEAN_UP_MS) == []
    for number in (1, 2):
        door.principal(f"neighbour-{number}").pairs.expire(10**9)
    door.quota.expire(CLEAN_UP_MS)
    assert door.quota.serve(CLEAN_UP_MS) == [wide]
    assert wide.granted


def test_it_goes_without_room_once_another_connection_has_brought_its_id() -> None:
    """Known ids always pass."""
    door = NearCeiling()
    wide = door.asks(1, 300, address="reporter")
    assert door.asks(1, 10).state is TicketState.DONE
    assert door.quota.serve(0.0) == [wide]
    door.quota.commit(wide, 0.0)
    assert door.principal().admitted == 1


def test_who_stands_behind_what_leaves_is_looked_at_at_once() -> None:
    """Of two without room the first leaves, and the second has room by then."""
    door = NearCeiling()
    first, second = door.asks(1, 300, address="a"), door.asks(2, 280, address="b", now_ms=1.0)
    neighbour = door.principal("neighbour-1")
    neighbour.pairs.expire(10**9)
    door.quota.ceiling.total = 9_000 - 290  # for 290
    door.quota.withdraw(first, 2.0)
    assert door.quota.due_ms <= 2.0
    assert door.quota.serve(2.0) == [second]


def test_those_without_room_that_come_and_go_leave_nothing_behind() -> None:
    door = NearCeiling(forced_after_ms=1_000.0)
    stays = door.asks(1, 300, address="stays")
    for number in range(2, 2_000):
        now_ms = number * 10.0
        ticket = door.asks(number, 300, address=f"a{number % 7}", now_ms=now_ms)
        door.quota.serve(now_ms)
        door.quota.withdraw(ticket, now_ms + 5.0)
        door.quota.serve(now_ms + 5.0)
    principal = door.principal()
    assert stays.waits
    assert principal.waiting_tickets == 1
    assert len(door.quota._queues[principal]) <= 4 * 66
    assert len(door.quota._forced[principal]) <= 7 * 66
    door.quota.withdraw(stays, 30_000.0)
    door.quota.serve(30_000.0)
    assert principal not in door.quota._queues
