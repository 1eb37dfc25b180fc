"""What was reserved for ids that did not go, or were known meanwhile, comes back; who waits is foretold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluice.quotas.producer_ids.ticket import Ticket
from sluice.quotas.producer_ids.transactional_ids import TransactionalIds
from testkit.quotas.producer_id_door import SETTINGS, Door


def test_tokens_for_new_ids_come_back_whole_where_those_for_resumed_ones_are_not_to_be_had() -> None:
    door = Door(100)
    principal = door.principal()
    while principal.resumed.reserve(1, 0.0):
        principal.resumed.settle(1, 1, 0.0)
    before = principal.main.tokens(0.0)
    assert before > 1
    ticket = door.ticket(new=(1,), resumed=(2,))
    assert not door.quota.ask(ticket, 0.0)
    assert principal.main.tokens(0.0) == before


def test_of_two_that_ask_for_one_id_the_second_to_go_pays_nothing() -> None:
    door = Door(100)
    principal = door.principal()
    before = principal.main.tokens(0.0)
    first, second = door.ask(7), door.ask(7)
    assert first.granted
    assert second.granted
    door.quota.commit(first, 0.0)
    door.quota.commit(second, 0.0)
    assert principal.main.tokens(0.0) == pytest.approx(before - 1)
    assert principal.admitted == 1


@pytest.mark.parametrize("is_resumed", [False, True])
def test_in_shadow_mode_what_is_beyond_a_bucket_is_counted(is_resumed: bool) -> None:
    """Each goes; those for which there would have been no token are told."""
    door = Door(100)
    principal = door.quota.principal("alice", 100, 0.0, enforced=False)
    bucket = principal.resumed if is_resumed else principal.main
    room = int(bucket.tokens(0.0))
    for producer_id in range(room + 5):
        ids: tuple[tuple[int, ...], tuple[int, ...]] = (
            ((), (producer_id,)) if is_resumed else ((producer_id,), ())
        )
        ticket = Ticket(principal, *ids, ())
        assert door.quota.ask(ticket, 0.0)
        door.quota.commit(ticket, 0.0)
    assert principal.over == 5


def test_who_listens_is_told_when_something_is_due_earlier_than_it_was() -> None:
    door = Door(100)
    door.drain()
    told: list[float] = []
    door.quota.when_due = lambda: told.append(door.quota.due_ms)
    waiting = door.ask(1)
    assert waiting.waits
    assert told == [door.quota.due_ms]
    door.ask(2)
    assert len(told) == 1, "it comes later"


def test_a_transactional_id_that_went_a_millisecond_early_is_not_beyond_its_rate() -> None:
    """A wake may be early by so much; what goes before that was let go without a token."""
    names = TransactionalIds(1.0, burst_h=1.0, window_num=2, sample_ms=1e6, max_ids=100, now_ms=0.0)
    names.brought(1, 1.0, 0.0)
    assert (names.new, names.over) == (1, 0)
    names.brought(2, 1.5, 0.0)
    assert (names.new, names.over) == (2, 1)
    names.brought(2, 99.0, 0.0)
    assert (names.new, names.over) == (2, 1)


@pytest.mark.parametrize("goes", [False, True])
def test_who_shares_a_bucket_with_a_low_limit_gets_back_what_was_taken_and_no_more(goes: bool) -> None:
    """Beyond max_principals: each look-up puts its user's limit in force. Of 100 tokens one is left."""
    door = Door(100, replace(SETTINGS, max_principals=0))
    quota, others = door.quota, door.principal()
    for _ in range(99):
        others.main.reserve(1, 0.0)
        others.main.settle(1, 1, 0.0)
    ticket = door.ask(7)
    assert ticket.granted
    assert quota.principal("bob", 1, 0.0) is others
    if goes:
        quota.commit(ticket, 0.0)
    else:
        quota.withdraw(ticket, 0.0)
    assert door.principal("carol").main.tokens(0.0) == pytest.approx(0.0 if goes else 1.0)


def test_a_limit_that_is_lowered_for_a_moment_leaves_no_debt_of_what_was_granted() -> None:
    door = Door(3_600)
    tickets = [door.ask(producer_id) for producer_id in range(50)]
    assert all(ticket.granted for ticket in tickets)
    door.quota.principal("alice", 1, 0.0)
    principal = door.principal()
    for ticket in tickets:
        door.quota.commit(ticket, 0.0)
    assert principal.main.tokens(0.0) == pytest.approx(3_550)
    assert door.ask(99).granted
