"""The door: who is admitted, from which bucket, in which order, and that the stated bound holds."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.quotas.producer_ids.buckets import MS_PER_HOUR
from sluice.quotas.producer_ids.principal import PrincipalIds, ProducerIdSettings
from sluice.quotas.producer_ids.quota import ProducerIdQuota, Ticket, TicketState

SETTINGS = ProducerIdSettings()
MINUTE = 60_000.0


class Door:
    """A quota and one principal, asked in one line."""

    def __init__(self, ids_per_hour: float, settings: ProducerIdSettings = SETTINGS) -> None:
        self.quota = ProducerIdQuota(settings)
        self.ids_per_hour = ids_per_hour

    def principal(self, user: str = "alice", now_ms: float = 0.0) -> PrincipalIds:
        return self.quota.principal(user, self.ids_per_hour, now_ms)

    def ticket(
        self,
        new: tuple[int, ...] = (),
        resumed: tuple[int, ...] = (),
        user: str = "alice",
        partitions: int = 1,
    ) -> Ticket:
        keys = tuple(
            self.quota.pair_keys.key(producer_id, b"t", partition)
            for producer_id in new + resumed
            for partition in range(partitions)
        )
        return Ticket(self.principal(user), new, resumed, keys)

    def ask(self, *new: int, now_ms: float = 0.0, user: str = "alice") -> Ticket:
        ticket = self.ticket(new, user=user)
        self.quota.ask(ticket, now_ms)
        return ticket

    def admit(self, *new: int, now_ms: float = 0.0) -> None:
        ticket = self.ask(*new, now_ms=now_ms)
        assert ticket.granted
        self.quota.commit(ticket, now_ms)

    def drain(self, now_ms: float = 0.0, user: str = "alice") -> None:
        """Take all tokens of the main bucket."""
        bucket = self.principal(user).main
        while bucket.reserve(1, now_ms):
            bucket.settle(1, 1, now_ms)


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
    assert served == tickets[:10]
    assert {ticket.state for ticket in served} == {TicketState.FORCED}
    for ticket in served:
        door.quota.commit(ticket, 30_000.0)
    assert door.principal().forced_admitted == 10
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


# The stated bound -----------------------------------------------------------------------------------------


@settings(max_examples=150)
@given(
    ids_per_hour=st.sampled_from([0.5, 3.0, 50.0, 2_000.0]),
    steps=st.lists(
        st.tuples(
            st.floats(0, 900_000),
            st.sampled_from(["new", "resumed", "mixed", "repeat", "withdraw", "commit", "expire"]),
            st.integers(1, 40),
        ),
        max_size=80,
    ),
)
def test_in_any_span_no_more_ids_are_admitted_than_the_stated_bound(
    ids_per_hour: float, steps: list[tuple[float, str, int]]
) -> None:
    door = Door(ids_per_hour)
    quota = door.quota
    now_ms = 0.0
    number = 0
    open_tickets: list[Ticket] = []
    admissions: list[tuple[float, int]] = []
    for elapsed_ms, action, count in steps:
        now_ms += elapsed_ms
        if action in {"new", "resumed", "mixed"}:
            ids = tuple(range(number, number + count))
            number += count
            half = {"new": count, "resumed": 0, "mixed": count // 2}[action]
            ticket = Ticket(door.principal(now_ms=now_ms), ids[:half], ids[half:], ids)
            quota.ask(ticket, now_ms)
            open_tickets.append(ticket)
        elif action == "repeat" and open_tickets:
            same = open_tickets[count % len(open_tickets)]
            ticket = Ticket(door.principal(now_ms=now_ms), same.new_ids, same.resumed_ids, same.pairs)
            quota.ask(ticket, now_ms)
            open_tickets.append(ticket)
        elif action == "withdraw" and open_tickets:
            quota.withdraw(open_tickets.pop(count % len(open_tickets)), now_ms)
        elif action == "expire":
            quota.expire(now_ms)
        else:
            quota.serve(now_ms)
            before = door.principal(now_ms=now_ms).admitted
            for ticket in [ticket for ticket in open_tickets if ticket.granted]:
                quota.commit(ticket, now_ms)
                open_tickets.remove(ticket)
            admissions.append((now_ms, door.principal(now_ms=now_ms).admitted - before))
        principal = door.principal(now_ms=now_ms)
        assert quota.ceiling.reserved == principal.reserved_pairs
        assert principal.waiting_tickets == sum(t.state is TicketState.WAITING for t in open_tickets)
    bound = SETTINGS.buckets.bound
    for first, (from_ms, _) in enumerate(admissions):
        total = 0
        for until_ms, count in admissions[first:]:
            total += count
            assert total <= bound(ids_per_hour, (until_ms - from_ms) / MS_PER_HOUR) + 1e-6


@pytest.mark.parametrize("ids_a_request", [1, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("resumed", [False, True])
def test_5000_connections_that_reconnect_for_each_request_stay_in_bound_for_ten_minutes(
    ids_a_request: int, resumed: bool
) -> None:
    """Each asks, holds for 10 s, is refused, and comes back at once with other ids, or with the same."""
    door = Door(1_000)
    quota = door.quota
    number = 0
    waiting: list[Ticket] = []
    neighbour_ids = 0
    for second in range(0, 600, 10):
        now_ms = second * 1_000.0
        before, waiting = waiting, []
        for index in range(5_000):
            old = before[index] if before else None
            if old is not None and old.state is TicketState.WAITING:
                quota.withdraw(old, now_ms)
            if old is not None and index % 2:
                ids = old.pairs
            else:
                ids = tuple(range(number, number + ids_a_request))
                number += ids_a_request
            new_ids, resumed_ids = ((), ids) if resumed else (ids, ())
            ticket = Ticket(door.principal(), new_ids, resumed_ids, ids)
            if quota.ask(ticket, now_ms):
                quota.commit(ticket, now_ms)
            waiting.append(ticket)
        for ticket in quota.serve(now_ms + 9_000.0):
            quota.commit(ticket, now_ms + 9_000.0)
        if second % 60 == 0:  # ten in ten minutes is within its rate: it must not notice
            neighbour = quota.principal("neighbour", 60, now_ms)
            ticket = Ticket(neighbour, (neighbour_ids,), (), (neighbour_ids,))
            assert quota.ask(ticket, now_ms)
            quota.commit(ticket, now_ms)
            neighbour_ids += 1
    admitted = door.principal().admitted
    assert admitted <= SETTINGS.buckets.bound(1_000, 600 / 3_600)
    assert admitted >= 1_000 * (25 if resumed else 1)  # and the rate is given out, not withheld
    queues = quota._queues[door.principal()]
    assert sum(len(queue.heap) for queue in queues) <= 2 * 5_000 + 3 * 64
    assert len(quota._dues) <= 100


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
