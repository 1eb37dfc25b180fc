"""The door of the producer-id quota step by step: when it is to be asked again, and what each end gives back.

60 ids an hour: a token a minute; the forced bucket opens to a request after 30 s.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from sluice.quotas.producer_ids.principal import ProducerIdSettings
from sluice.quotas.producer_ids.store import ExactStore
from sluice.quotas.producer_ids.ticket import Ticket, TicketState
from testkit.quotas.producer_id_door import SETTINGS, Door

MINUTE_MS = 60_000.0
PATIENT = replace(SETTINGS, forced_after_ms=1e9)


class Watched(Door):
    """Counts how often whoever serves it was told to look."""

    def __init__(self, settings: ProducerIdSettings = SETTINGS) -> None:
        super().__init__(60.0, settings)
        self.told = 0
        self.quota.when_due = self.tell
        self.drain()

    def tell(self) -> None:
        self.told += 1


def empty_forced(door: Door, now_ms: float = 0.0) -> None:
    door.principal().forced.restore(0.0, now_ms)


def test_nothing_is_due_while_nobody_waits() -> None:
    door = Watched()
    assert door.quota.due_ms == inf
    assert door.quota.serve(1e9) == []
    assert door.told == 0


def test_it_is_due_when_the_next_token_comes_or_the_forced_bucket_opens_whichever_is_first() -> None:
    door = Watched(PATIENT)
    door.ask(1)
    assert door.quota.due_ms == pytest.approx(MINUTE_MS)
    assert door.told == 1
    door.ask(2)
    assert door.quota.due_ms == pytest.approx(MINUTE_MS)
    assert door.told == 1, "nothing is earlier"
    impatient = Watched()
    impatient.ask(1)
    assert impatient.quota.due_ms == 30_000.0
    assert impatient.quota.serve(29_999.0) == []
    (ticket,) = impatient.quota.serve(30_000.0)
    assert ticket.state is TicketState.FORCED
    assert impatient.quota.due_ms == inf


def test_what_was_granted_at_once_is_not_served_again_and_what_was_granted_to_others_is_due_now() -> None:
    door = Watched(PATIENT)
    first, second = door.ask(1), door.ticket((2, 3))
    assert not door.quota.ask(second, MINUTE_MS + 1.0)
    assert (first.granted, second.granted) == (True, False)
    assert door.quota.due_ms == -inf
    assert door.quota.serve(MINUTE_MS + 1.0) == [first]
    door.quota.commit(first, MINUTE_MS + 1.0)
    third = Watched(PATIENT)
    third.principal().main.restore(1.0, 0.0)
    assert third.ask(1).granted
    assert third.quota.due_ms == inf
    assert third.quota.serve(0.0) == []


def test_who_withdraws_before_it_hears_of_its_grant_is_not_woken() -> None:
    door = Watched(PATIENT)
    first, second = door.ask(1), door.ask(2)
    door.quota.ask(door.ticket((3, 4)), 2 * MINUTE_MS + 1.0)
    assert (first.granted, second.granted) == (True, True)
    door.quota.withdraw(first, 2 * MINUTE_MS + 1.0)
    assert first.state is TicketState.DONE
    assert door.quota.serve(2 * MINUTE_MS + 1.0)[:1] == [second]


def test_a_token_that_comes_back_serves_whoever_waits() -> None:
    door = Watched(PATIENT)
    first, second = door.ask(1), door.ask(2)
    assert door.quota.serve(MINUTE_MS + 1.0) == [first]
    told = door.told
    door.quota.withdraw(first, MINUTE_MS + 2.0)
    assert (door.told, door.quota.due_ms) == (told + 1, MINUTE_MS + 2.0)
    assert door.quota.serve(MINUTE_MS + 2.0) == [second]
    assert second.reserved == (1, 0, 0)
    assert door.principal().main.reserved == 1


def test_of_a_request_with_ids_that_another_brought_meanwhile_only_the_new_ones_cost() -> None:
    door = Door(60.0, PATIENT)
    both, one = door.ask(1, 2), door.ask(2)
    door.quota.commit(one, 0.0)
    before = door.principal().main.tokens(0.0)
    door.quota.commit(both, 0.0)
    assert door.principal().main.tokens(0.0) == before + 1
    assert (door.principal().admitted, door.principal().main.reserved) == (2, 0)


def test_each_bucket_gives_back_what_was_reserved_and_not_spent() -> None:
    door = Door(60.0, PATIENT)
    resumed = door.ticket((), (5, 6))
    assert door.quota.ask(resumed, 0.0)
    door.principal().store.admit(5, 0.0)
    full = door.principal().resumed.capacity
    door.quota.commit(resumed, 0.0)
    principal = door.principal()
    assert principal.resumed.tokens(0.0) == full - 1
    assert (principal.admitted, principal.resumed_admitted, principal.forced_admitted) == (1, 1, 0)
    assert (principal.main.reserved, principal.resumed.reserved) == (0, 0)
    assert (door.quota.ceiling.reserved, principal.reserved_pairs) == (0, 0)
    assert resumed.state is TicketState.DONE


def test_what_was_forced_in_takes_of_the_forced_bucket_alone() -> None:
    door = Watched()
    ticket = door.ask(1)
    full = door.principal().forced.tokens(30_000.0)
    assert door.quota.serve(30_000.0) == [ticket]
    assert ticket.reserved == (0, 0, 1)
    assert door.principal().forced.reserved == 1
    door.quota.commit(ticket, 30_000.0)
    principal = door.principal()
    assert (principal.forced.reserved, principal.forced.tokens(30_000.0)) == (0, full - 1)
    assert (principal.admitted, principal.forced_admitted, principal.main.reserved) == (1, 1, 0)


def test_a_forced_one_that_goes_not_gives_its_token_back() -> None:
    door = Watched()
    ticket = door.ask(1)
    full = door.principal().forced.tokens(30_000.0)
    door.quota.serve(30_000.0)
    door.quota.withdraw(ticket, 30_000.0)
    assert (door.principal().forced.tokens(30_000.0), door.principal().forced.reserved) == (full, 0)


def test_an_id_that_was_admitted_waits_no_more_and_one_that_was_refused_keeps_its_age() -> None:
    door = Watched()
    refused = door.ask(1)
    door.quota.withdraw(refused, 8_000.0)
    assert door.principal().waiting_ids == 1
    again = door.ask(1, now_ms=125_000.0)
    assert (again.since_ms, again.forced_at_ms) == (0.0, 30_000.0), "2 min from when it was refused"
    assert again.granted
    door.quota.commit(again, 125_000.0)
    assert door.principal().waiting_ids == 0


def test_a_member_is_forced_in_after_its_own_time_and_never_later_than_others() -> None:
    for timeout_ms, forced_at_ms in ((9_000, True), (900_000, False)):
        door = Watched()
        door.quota.members.saw("alice", ("a", "app"), timeout_ms, 0.0)
        ticket = door.ask(1, client=("a", "app"))
        other = door.ask(2, client=("b", "app"))
        assert (ticket.is_member, other.is_member) == (True, False)
        assert (ticket.forced_at_ms < 30_000.0) is forced_at_ms
        assert ticket.forced_at_ms <= other.forced_at_ms == 30_000.0


def test_a_request_that_the_forced_bucket_never_holds_is_never_forced_in() -> None:
    door = Watched(replace(SETTINGS))
    capacity = int(door.principal().forced.capacity - door.principal().forced_floor(is_member=False))
    for count, may in ((capacity, True), (capacity + 1, False)):
        ticket = Ticket(door.principal(), tuple(range(count)), (), ())
        door.quota.ask(ticket, 0.0)
        assert (ticket.forced_at_ms < inf) is may
        door.quota.withdraw(ticket, 0.0)


def test_what_waits_for_the_ceiling_is_not_due_before_the_clean_up() -> None:
    settings = replace(SETTINGS, broker_heap_bytes=270 * 8, heap_share=0.5)  # 4 pairs, 2 of one principal
    door = Door(1_000.0, settings)
    door.admit(1)
    door.admit(2)
    waits = door.ask(3)
    assert not waits.granted
    assert door.quota.serve(30_000.0) == []
    assert door.quota.due_ms == inf
    door.quota.expire(30_001.0)
    assert door.quota.due_ms == 30_001.0, "it may have room now"
    assert door.quota.serve(30_001.0) == []
    assert door.quota.due_ms == inf


def test_the_clean_up_forgets_members_too() -> None:
    door = Watched()
    door.quota.members.saw("alice", ("a", "app"), 9_000, 0.0)
    assert len(door.quota.members) == 1
    door.quota.expire(1e9)
    assert len(door.quota.members) == 0


def test_another_limit_lets_those_who_wait_be_looked_at() -> None:
    door = Watched(PATIENT)
    ticket = door.ask(1)
    told = door.told
    door.quota.principal("alice", 6_000.0, 30.0)
    assert (door.told, door.quota.due_ms) == (told + 1, 30.0)
    assert door.quota.serve(30.0) == []
    assert door.quota.due_ms == pytest.approx(600.0, abs=30.0)
    assert door.quota.serve(700.0) == [ticket]


def test_the_queue_of_a_principal_is_gone_when_nobody_waits() -> None:
    door = Watched(PATIENT)
    ticket = door.ask(1)
    assert len(door.quota._queues) == len(door.quota._forced) == 1
    door.quota.withdraw(ticket, 0.0)
    door.ask(2, now_ms=0.0)
    door.quota.serve(3 * MINUTE_MS)
    assert len(door.quota._queues) == len(door.quota._forced) == 0


@pytest.fixture
def look_ups(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ids that are looked up in a store, in their order."""
    asked: list[int] = []
    seen = ExactStore.seen

    def counted(store: ExactStore, producer_id: int, now_ms: float) -> bool:
        asked.append(producer_id)
        return seen(store, producer_id, now_ms)

    monkeypatch.setattr(ExactStore, "seen", counted)
    return asked


@pytest.mark.parametrize("goes", [False, True], ids=["leave", "go"])
def test_the_ids_of_a_request_that_waits_are_not_looked_up_again_for_each_that_asks(
    goes: bool, look_ups: list[int]
) -> None:
    """Of 20,000 ids that took 3 ms of the loop, each time."""
    door = Door(1_000.0, PATIENT)
    door.drain()
    principal = door.principal()
    principal.resumed.restore(5_050.0, 0.0)
    many = Ticket(principal, (), tuple(range(5_100)), ())
    assert not door.quota.ask(many, 0.0)
    look_ups.clear()
    for producer_id in range(10_000, 10_020):
        ticket = (
            Ticket(principal, (), (producer_id,), ()) if goes else Ticket(principal, (producer_id,), (), ())
        )
        assert door.quota.ask(ticket, 0.0) is goes
        if goes:
            door.quota.commit(ticket, 0.0)
        else:
            door.quota.withdraw(ticket, 0.0)
        door.quota.serve(0.0)
    assert many.waits
    assert set(look_ups) <= set(range(10_000, 10_020))


@pytest.mark.parametrize("how", ["admitted", "successor"])
def test_a_request_goes_when_there_are_tokens_for_those_of_its_ids_that_nobody_has_brought_meanwhile(
    how: str,
) -> None:
    door = Door(60.0, PATIENT)
    principal = door.principal()
    one = door.ask(1)
    assert one.granted
    door.drain()
    both = door.ask(1, 2)
    assert (both.waits, door.quota.serve(60_000.0)) == (True, [])  # a token has come, for one of two
    if how == "admitted":
        door.quota.commit(one, 60_000.0)
    else:
        principal.learn(1, 60_000.0)
        assert door.ask(3, now_ms=60_000.0).waits  # who asks has them looked at
    assert door.quota.serve(60_000.0) == [both]
    assert both.reserved == (1, 0, 0)
