"""The door: who is admitted, from which bucket, in which order."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from sluice.quotas.producer_ids.buckets import MS_PER_HOUR
from sluice.quotas.producer_ids.principal import ProducerIdSettings
from sluice.quotas.producer_ids.quota import ProducerIdQuota
from sluice.quotas.producer_ids.ticket import Ticket, TicketState
from testkit.quotas.producer_id_door import SETTINGS, Door


def test_a_new_id_passes_while_there_are_tokens_and_is_known_only_when_its_request_went() -> None:
    door = Door(10)
    ticket = door.ask(1)
    assert ticket.state is TicketState.GRANTED
    assert not door.principal().store.seen(1, 0.0)
    door.quota.commit(ticket, 0.0)
    assert door.principal().store.seen(1, 0.0)
    assert door.principal().main.tokens(0.0) == 9.0


def test_above_the_rate_an_id_waits_until_its_token_comes() -> None:
    door = Door(60)
    door.drain()
    ticket = door.ask(1)
    assert ticket.state is TicketState.WAITING
    assert door.quota.due_ms == pytest.approx(30_000.0)  # forced, for a token takes a minute
    assert door.quota.serve(29_999.0) == []


def test_the_token_of_a_request_that_never_went_goes_to_the_next() -> None:
    door = Door(1)
    first, second = door.ask(1), door.ask(2)
    assert first.granted
    assert not second.granted
    door.quota.withdraw(first, 5.0)
    assert door.quota.due_ms <= 5.0
    assert door.quota.serve(5.0) == [second]
    door.quota.commit(second, 5.0)
    assert not door.principal().store.seen(1, 5.0)


def test_the_oldest_waiting_id_comes_first_and_refusals_do_not_make_it_younger() -> None:
    door = Door(3_600, replace(SETTINGS, forced_after_ms=math.inf))
    door.drain()
    old = door.ask(1, now_ms=10.0)
    door.quota.withdraw(old, 20.0)
    young = door.ask(2, now_ms=30.0)
    again = door.ask(1, now_ms=40.0)
    assert door.quota.serve(1_000.0) == [again]
    assert door.quota.serve(2_000.0) == [young]


def test_a_request_does_not_lend_the_age_of_one_id_to_another() -> None:
    door = Door(100)
    door.drain()
    door.quota.withdraw(door.ask(1, now_ms=0.0), 1.0)
    both = door.ask(1, 2, now_ms=60_000.0)
    assert both.since_ms == 60_000.0


def test_an_id_that_stays_away_loses_its_age() -> None:
    door = Door(100)
    door.drain()
    door.quota.withdraw(door.ask(1, now_ms=0.0), 1_000.0)
    assert door.ask(1, now_ms=121_001.0).since_ms == 121_001.0


def test_after_thirty_seconds_an_id_is_forced_in_from_a_bucket_of_a_tenth() -> None:
    door = Door(100)
    door.drain()
    tickets = [door.ask(producer_id, now_ms=0.0) for producer_id in range(20)]
    assert door.quota.due_ms == 30_000.0
    served = door.quota.serve(30_000.0)
    assert served == tickets[:5]  # the other half is for members of groups
    assert {ticket.state for ticket in served} == {TicketState.FORCED}
    for ticket in served:
        door.quota.commit(ticket, 30_000.0)
    assert door.principal().forced_admitted == 5
    assert door.principal().main.tokens(30_000.0) == pytest.approx(100 * 30 / 3_600)


def test_a_request_with_several_ids_waits_for_all_its_tokens_and_stops_nobody_with_one() -> None:
    door = Door(10)
    door.admit(*range(100, 105))
    big = door.ask(*range(6), now_ms=0.0)
    small = door.ask(50, now_ms=1.0)
    assert not big.granted
    assert small.granted


def test_a_request_with_more_ids_than_the_bucket_holds_never_passes_and_stops_nobody() -> None:
    door = Door(10)
    ticket = door.ask(*range(11))
    assert not ticket.granted
    assert door.quota.due_ms == math.inf
    door.quota.serve(100 * MS_PER_HOUR)
    assert not ticket.granted
    assert door.ask(*range(20, 30), now_ms=100 * MS_PER_HOUR).granted


def test_two_connections_that_bring_the_same_id_spend_one_token() -> None:
    door = Door(10)
    first, second = door.ask(1), door.ask(1)
    door.quota.commit(first, 0.0)
    door.quota.commit(second, 0.0)
    assert door.principal().main.tokens(0.0) == 9.0
    assert door.principal().admitted == 1


def test_an_id_admitted_meanwhile_costs_a_waiting_request_nothing() -> None:
    door = Door(1)
    first, second = door.ask(7), door.ask(7)
    assert not second.granted
    door.quota.commit(first, 0.0)
    assert door.quota.serve(0.0) == [second]
    assert second.reserved == (0, 0, 0)


def test_resumed_ids_go_to_a_bucket_of_their_own() -> None:
    door = Door(10)
    door.drain()
    tickets = []
    for producer_id in range(251):
        ticket = door.ticket(resumed=(producer_id,))
        door.quota.ask(ticket, 0.0)
        tickets.append(ticket)
    assert [ticket.granted for ticket in tickets] == [True] * 250 + [False]  # 10 · (1 h + 24 h)
    door.quota.commit(tickets[0], 0.0)
    assert door.principal().resumed_admitted == 1


def test_500_live_ids_at_a_rate_of_100_all_go_on_when_their_broker_died() -> None:
    door = Door(100)
    for producer_id in range(500):
        ticket = door.ticket(resumed=(producer_id,))
        assert door.quota.ask(ticket, 0.0)
        door.quota.commit(ticket, 0.0)


def test_no_principal_spends_anothers_tokens() -> None:
    door = Door(10)
    for producer_id in range(1_000):
        door.ask(producer_id, user="rogue")
    assert all(door.ask(producer_id, user="good").granted for producer_id in range(10))


# The ceiling ----------------------------------------------------------------------------------------------

SMALL_HEAP = replace(SETTINGS, broker_heap_bytes=270 * 400, heap_share=0.25)  # 100 pairs, 50 of one principal


def test_beyond_its_share_of_the_ceiling_a_principal_waits_whatever_tokens_it_has() -> None:
    door = Door(1_000, SMALL_HEAP)
    assert SMALL_HEAP.max_pairs == 100
    for producer_id in range(50):
        door.admit(producer_id)
    assert not door.ask(50).granted
    assert door.ask(50, user="other").granted


def test_the_ceiling_is_over_all_principals_and_nothing_passes_it_not_even_by_force() -> None:
    door = Door(1_000, SMALL_HEAP)
    for user in ("a", "b"):
        for producer_id in range(50):
            ticket = door.ask(producer_id, user=user)
            door.quota.commit(ticket, 0.0)
    assert door.quota.ceiling.total == 100
    ticket = door.ask(1_000, user="c")
    assert not ticket.granted
    assert door.quota.serve(60_000.0) == []
    resumed = door.ticket(resumed=(1_001,), user="c")
    assert not door.quota.ask(resumed, 60_000.0)


def test_a_request_takes_as_many_pairs_as_it_has_partitions() -> None:
    door = Door(1_000, SMALL_HEAP)
    assert not door.quota.ask(door.ticket((1,), partitions=51), 0.0)
    assert door.quota.ask(door.ticket((2,), partitions=50), 0.0)


def test_pairs_expire_with_the_brokers_expiration_and_then_who_waits_is_served() -> None:
    door = Door(1_000, SMALL_HEAP)
    for producer_id in range(50):
        door.admit(producer_id)
    ticket = door.ask(50, now_ms=26 * MS_PER_HOUR)
    assert not ticket.granted
    door.quota.expire(24 * MS_PER_HOUR - 1.0)
    assert door.quota.ceiling.total == 50
    door.quota.expire(27 * MS_PER_HOUR)
    assert door.quota.ceiling.total == 0
    assert door.quota.serve(27 * MS_PER_HOUR) == [ticket]


def test_a_pair_that_is_still_written_to_goes_on_counting() -> None:
    door = Door(1_000)
    door.admit(1)
    key = door.quota.pair_keys.key(1, b"t", 0)
    for hour in range(1, 60):
        door.principal(now_ms=hour * MS_PER_HOUR).see_pair(key, hour * MS_PER_HOUR)
        door.quota.expire(hour * MS_PER_HOUR)
    assert door.quota.ceiling.total == 1
    assert door.quota.ceiling.heap_bytes == 270


def test_a_known_ids_further_partitions_count_but_are_never_refused() -> None:
    door = Door(1_000, SMALL_HEAP)
    door.admit(1)
    for partition in range(200):
        door.principal().see_pair(door.quota.pair_keys.key(1, b"t", partition), 0.0)
    assert door.quota.ceiling.total == 200
    assert not door.ask(2, user="other").granted


# Principals -----------------------------------------------------------------------------------------------


def test_a_principal_is_forgotten_only_when_beginning_anew_would_give_it_nothing() -> None:
    """Its resumed bucket takes 25 hours to fill; reconnecting before must not make it full."""
    door = Door(10)
    for producer_id in range(250):
        ticket = door.ticket(resumed=(producer_id,))
        door.quota.ask(ticket, 0.0)
        door.quota.commit(ticket, 0.0)
    for hour in range(1, 27):
        assert door.quota.expire(hour * MS_PER_HOUR) == 0
    assert door.quota.expire(27 * MS_PER_HOUR) == 1
    assert list(door.quota.principals()) == []


def test_another_limit_comes_into_force_for_those_who_wait() -> None:
    door = Door(1, replace(SETTINGS, forced_after_ms=math.inf))
    door.drain()
    ticket = door.ask(1, now_ms=0.0)
    assert door.quota.serve(60_000.0) == []
    door.quota.principal("alice", 3_600, 60_000.0)
    assert door.quota.serve(60_000.0) == [ticket]  # a sixtieth of the bucket was there, and still is


def test_principals_beyond_the_most_share_one() -> None:
    door = Door(10, replace(SETTINGS, max_principals=3))
    made = [door.principal(f"user{index}") for index in range(10)]
    assert len(set(made[:3])) == 3
    assert len(set(made[3:])) == 1
    assert len(list(door.quota.principals())) == 4


def test_without_enforcement_everything_passes_is_counted_and_takes_memory_of_fixed_size() -> None:
    quota = ProducerIdQuota(replace(SETTINGS, max_observed_ids=100))
    principal = quota.principal("alice", 10, 0.0, enforced=False)
    for producer_id in range(1_000):
        ticket = Ticket(principal, (producer_id,), (), (producer_id,))
        assert quota.ask(ticket, 0.0)
        quota.commit(ticket, 0.0)
    assert principal.admitted == 1_000
    assert principal.over == 990
    assert len(principal.store) <= 100
    assert len(principal.pairs) <= 100
    assert principal.tokens(0.0) == -10.0


def test_tokens_fall_below_zero_by_the_requests_that_wait() -> None:
    """KIP-936: "< 0 indicates that throttling is applied"."""
    door = Door(10)
    door.drain()
    for producer_id in range(3):
        door.ask(producer_id)
    assert door.principal().tokens(0.0) == -3.0


def test_ages_are_kept_for_a_bounded_number_of_ids() -> None:
    door = Door(1, replace(SETTINGS, max_waiting_ids=100))
    door.drain()
    for producer_id in range(1_000):
        door.quota.withdraw(door.ask(producer_id), 0.0)
    assert door.principal().waiting_ids == 100
    assert door.principal().waiting_tickets == 0


def test_no_two_ids_or_partitions_can_be_computed_that_count_as_one_pair() -> None:
    keys = ProducerIdQuota(SETTINGS).pair_keys
    made = {keys.key(producer_id + step, b"t", partition) for producer_id in range(10)
            for step in (0, 2**60 - 93, 2**61 - 1, 2**62) for partition in (0, 1, 2**31 - 1)}  # fmt: skip
    assert len(made) == 10 * 4 * 3
    assert all(0 <= key < 2**60 for key in made)
    assert keys.key(1, b"a", 0) != keys.key(1, b"b", 0)


def test_a_user_of_whom_one_address_is_exempt_keeps_his_limit_at_the_others() -> None:
    quota = ProducerIdQuota(ProducerIdSettings(forced_after_ms=MS_PER_HOUR))
    admitted = 0
    for number in range(20):
        for enforced in (True, False):
            principal = quota.principal("alice", 5.0, 0.0, enforced=enforced)
            ticket = Ticket(principal, (2 * number + enforced,), (), ())
            if quota.ask(ticket, 0.0):
                quota.commit(ticket, 0.0)
                admitted += enforced
    assert admitted == 5


def test_who_left_while_it_waited_is_not_kept_for_good() -> None:
    door = Door(60)
    door.drain()
    door.ask(0)
    for number in range(1, 500):
        door.quota.withdraw(door.ask(number, client=(f"10.0.0.{number % 7}", str(number))), 0.0)
    principal = door.principal()
    assert principal.waiting_tickets == 1
    assert len(door.quota._queues[principal]) <= 1 + 64 + 1
    assert len(door.quota._forced[principal]) <= 1 + 64 + 1


def test_who_was_granted_by_the_rate_or_by_force_is_not_kept_in_the_other_queue() -> None:
    """Two tokens a minute come; the forced bucket is open from 30 s on."""
    door = Door(120)
    door.drain()
    door.ask(0, client=("b", "patient"))
    for number in range(1, 400):
        now_ms = number * 60_000.0
        for ticket in (door.ask(number, now_ms=now_ms), door.ask(1_000 + number, now_ms=now_ms)):
            if ticket.granted:
                door.quota.commit(ticket, now_ms)
        for ticket in door.quota.serve(now_ms + 59_000.0):
            door.quota.commit(ticket, now_ms + 59_000.0)
    principal = door.principal()
    assert principal.admitted > 400
    assert len(door.quota._queues.get(principal, ())) <= 2 * principal.waiting_tickets + 66
    assert len(door.quota._forced.get(principal, ())) <= 2 * principal.waiting_tickets + 66


def test_who_is_granted_by_the_rate_before_its_time_is_not_kept_among_those_to_be_forced_in() -> None:
    """One comes each minute, as its token does; the door is never without one that waits."""
    door = Door(60)
    door.drain()
    door.ask(0, 1, client=("b", "patient"))
    for number in range(2, 300):
        now_ms = number * 60_000.0
        ticket = door.ask(number, now_ms=now_ms)
        for granted in [ticket] if ticket.granted else door.quota.serve(now_ms + 29_000.0):
            door.quota.commit(granted, now_ms)
    principal = door.principal()
    assert principal.admitted > 250
    assert len(door.quota._forced.get(principal, ())) <= 2 * principal.waiting_tickets + 66


def test_what_is_asked_for_has_a_queue_by_its_kind_and_the_older_goes_first() -> None:
    """One new id, one resumed, several at once: each kind has its own turn."""
    door = Door(60, replace(SETTINGS, forced_after_ms=1e9))
    door.drain()
    door.principal().resumed.restore(0.0, 0.0)
    several, new, resumed = door.ticket((1, 2)), door.ticket((3,)), door.ticket((), (4,))
    for number, ticket in enumerate((several, new, resumed)):
        assert not door.quota.ask(ticket, float(number))
    assert [len(queue) for queue in door.quota._queues[door.principal()].queues] == [1, 1, 1, 0]
    assert set(door.quota.serve(61_000.0)) == {new, resumed}
    assert door.quota.serve(180_000.0) == [several]
