"""A user whose limit is enforced here and not there, or now and not before: his two states know the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluice.quotas.producer_ids.buckets import MS_PER_HOUR
from sluice.quotas.producer_ids.principal import PrincipalIds, ProducerIdSettings
from sluice.quotas.producer_ids.quota import OTHERS, ProducerIdQuota
from sluice.quotas.producer_ids.snapshot import encode_snapshot, restore_snapshot
from sluice.quotas.producer_ids.store import StoreKind
from sluice.quotas.producer_ids.ticket import Ticket

RATE = 10.0
BOTH_WAYS = pytest.mark.parametrize("enforced", [True, False], ids=["enforced after shadow", "shadow after"])


def quota_of(**settings: object) -> ProducerIdQuota:
    return ProducerIdQuota(replace(ProducerIdSettings(), **settings))  # type: ignore[arg-type]


def brings(principal: PrincipalIds, quota: ProducerIdQuota, *ids: int, now_ms: float = 0.0) -> None:
    """New ids of a partition each, whatever the buckets hold."""
    for producer_id in ids:
        principal.learn(producer_id, now_ms)
        principal.see_pair(quota.pair_keys.key(producer_id, b"t", 0), now_ms)


@BOTH_WAYS
@pytest.mark.parametrize("store", list(StoreKind))
def test_an_id_that_is_alive_stays_known_when_shadow_mode_ends_or_begins(
    enforced: bool, store: StoreKind
) -> None:
    quota = quota_of(store=store)
    brings(quota.principal("alice", RATE, 0.0, enforced=not enforced), quota, *range(40))
    now = quota.principal("alice", RATE, 0.0, enforced=enforced)
    assert all(now.knows(producer_id, 0.0) for producer_id in range(40))
    assert not now.learn(7, 0.0)
    assert now.main.tokens(0.0) == RATE
    assert not quota.principal("bob", RATE, 0.0, enforced=enforced).knows(7, 0.0)


@BOTH_WAYS
def test_an_id_that_writes_on_stays_known_for_good_after_the_switch(enforced: bool) -> None:
    quota = quota_of()
    brings(quota.principal("alice", RATE, 0.0, enforced=not enforced), quota, 1, 2)
    for hour in range(0, 60, 5):
        now_ms = hour * MS_PER_HOUR
        quota.expire(now_ms)
        principal = quota.principal("alice", RATE, now_ms, enforced=enforced)
        assert principal.knows(1, now_ms)
    assert not principal.knows(2, 60 * MS_PER_HOUR)


@BOTH_WAYS
def test_the_same_pairs_count_once_when_shadow_mode_ends_or_begins(enforced: bool) -> None:
    quota = quota_of()
    brings(quota.principal("alice", RATE, 0.0, enforced=not enforced), quota, *range(100))
    principal = quota.principal("alice", RATE, 0.0, enforced=enforced)
    brings(principal, quota, *range(100))
    principal.see_known_pairs((quota.pair_keys.key(number, b"t", 0) for number in range(100)), 0.0)
    assert quota.ceiling.total == 100
    principal.see_known_pairs([quota.pair_keys.key(1, b"t", 1)], 0.0)
    assert quota.ceiling.total == 101
    quota.expire(0.0)
    assert quota.ceiling.total == 101


def test_pairs_that_are_known_already_leave_the_room_to_those_that_are_not() -> None:
    quota = quota_of(broker_heap_bytes=270 * 4 * 20)  # room for 20, 10 of them of one user
    brings(quota.principal("alice", RATE, 0.0, enforced=False), quota, *range(5))
    principal = quota.principal("alice", RATE, 0.0)
    keys = [quota.pair_keys.key(number, b"t", 0) for number in range(20)]
    principal.see_known_pairs(keys, 0.0)
    assert quota.ceiling.total == 10


def test_a_user_has_half_of_the_ceiling_in_both_his_states_together() -> None:
    """What he brought in shadow mode is in the broker's heap; a second half would be his with its end."""
    quota = quota_of(broker_heap_bytes=270 * 4 * 2_000)
    in_shadow = quota.principal("alice", RATE, 0.0, enforced=False)
    brings(in_shadow, quota, *range(900))
    principal = quota.principal("alice", RATE, 0.0)
    assert quota.ceiling.room(principal) == quota.ceiling.room(in_shadow) == 100
    ticket = Ticket(principal, (5_000,), (), tuple(range(60)))
    assert quota.ask(ticket, 0.0)
    assert quota.ceiling.room(principal) == 40


def test_who_brings_ids_without_end_at_an_exempt_address_fills_no_other_state() -> None:
    quota = quota_of(max_observed_ids=100)
    exempt, limited = (quota.principal("alice", RATE, 0.0, enforced=enforced) for enforced in (False, True))
    for producer_id in range(5_000):
        ticket = Ticket(exempt, (producer_id,), (), (producer_id,))
        assert quota.ask(ticket, 0.0)
        quota.commit(ticket, 0.0)
        assert limited.knows(producer_id, 0.0)
        limited.see_pair(producer_id, 0.0)
    assert (len(limited.store), len(limited.pairs)) == (0, 0)
    assert len(exempt.store) <= 100
    assert quota.ceiling.total <= 100


def test_what_waits_goes_without_a_token_once_its_id_came_where_nobody_waits() -> None:
    quota = quota_of(forced_after_ms=MS_PER_HOUR)
    limited = quota.principal("alice", 1.0, 0.0)
    brought = Ticket(limited, (1,), (), ())
    assert quota.ask(brought, 0.0)
    quota.commit(brought, 0.0)
    waiting = Ticket(limited, (2,), (), ())
    assert not quota.ask(waiting, 0.0)
    elsewhere = Ticket(quota.principal("alice", 1.0, 0.0, enforced=False), (2,), (), ())
    assert quota.ask(elsewhere, 0.0)
    quota.commit(elsewhere, 0.0)
    assert quota.due_ms <= 0.0
    assert quota.serve(0.0) == [waiting]
    quota.commit(waiting, 0.0)
    assert limited.admitted == 1


@BOTH_WAYS
def test_a_transactional_id_that_was_known_is_not_new_after_the_switch(enforced: bool) -> None:
    quota = quota_of(transactional_ids_per_hour=1.0)
    before = quota.principal("alice", RATE, 0.0, enforced=not enforced).transactional_ids
    for name in range(5):
        before.brought(name, 0.0, 0.0)
    names = quota.principal("alice", RATE, 0.0, enforced=enforced).transactional_ids
    for name in range(5):
        assert names.ask(name, 0.0) == (0.0, 0.0)
        names.brought(name, 0.0, 0.0)
    assert (before.new, names.new) == (5, 0)


@BOTH_WAYS
def test_a_state_that_is_forgotten_takes_along_nothing_of_the_other(enforced: bool) -> None:
    quota = quota_of()
    brings(quota.principal("alice", RATE, 0.0, enforced=not enforced), quota, 1)
    principal = quota.principal("alice", RATE, 0.0, enforced=enforced)
    for hour in range(0, 60, 5):
        brings(principal, quota, 2, now_ms=hour * MS_PER_HOUR)
        quota.expire(hour * MS_PER_HOUR)
    assert list(quota.principals()) == [principal]
    assert principal.other is None
    assert principal.transactional_ids.other is None
    again = quota.principal("alice", RATE, 60 * MS_PER_HOUR, enforced=not enforced)
    assert again.knows(2, 60 * MS_PER_HOUR)


def test_who_has_a_state_of_his_own_in_shadow_mode_has_one_of_his_own_after_it() -> None:
    """All users' limits leave shadow mode at once; half of them would have come to share one bucket."""
    quota = quota_of(max_principals=3)
    users = ("a", "b", "c")
    for enforced in (False, True):
        assert [quota.principal(user, RATE, 0.0, enforced=enforced).user for user in users] == list(users)
        assert quota.principal("d", RATE, 0.0, enforced=enforced).user == OTHERS
    others = quota.principal("d", RATE, 0.0)
    assert others.other is quota.principal("e", RATE, 0.0, enforced=False)


def test_a_user_with_two_states_takes_the_place_of_one() -> None:
    quota = quota_of(max_principals=2)
    for enforced in (False, True):
        quota.principal("a", RATE, 0.0, enforced=enforced)
    assert quota.principal("b", RATE, 0.0).user == "b"
    assert quota.principal("c", RATE, 0.0).user == OTHERS


def test_a_user_whose_second_state_is_forgotten_still_takes_the_place_of_one() -> None:
    quota = quota_of(max_principals=2)
    quota.principal("a", RATE, 0.0, enforced=False)
    brings(quota.principal("a", RATE, 0.0), quota, 1)
    assert quota.expire(0.0) == 1
    assert quota.principal("b", RATE, 0.0).user == "b"
    assert quota.principal("c", RATE, 0.0).user == OTHERS


@BOTH_WAYS
def test_both_states_know_the_same_after_a_restart(enforced: bool) -> None:
    quota = quota_of()
    for each in (False, True):
        brings(quota.principal("alice", RATE, 0.0, enforced=each), quota, 1 + each)
    other = quota_of()
    assert restore_snapshot(other, encode_snapshot(quota, "b", 0.0, 0.0), "b", 0.0, 0.0) == []
    principal = other.principal("alice", RATE, 0.0, enforced=enforced)
    assert [producer_id for producer_id in range(9) if principal.knows(producer_id, 0.0)] == [1, 2]
    assert other.ceiling.total == 2


def test_what_was_found_in_the_other_state_is_asked_for_again_before_it_may_be_forgotten_there() -> None:
    quota = quota_of(window_num=2)
    in_shadow = quota.principal("alice", RATE, 0.0, enforced=False)
    brings(in_shadow, quota, 1)
    principal = quota.principal("alice", RATE, 0.0)
    now_ms = 0.75 * MS_PER_HOUR
    assert principal.knows(1, now_ms)
    principal.see_pair(quota.pair_keys.key(1, b"t", 0), now_ms)
    assert principal.fresh_until_ms(now_ms) == in_shadow.store.eligible_at_ms == MS_PER_HOUR
    assert principal.store.eligible_at_ms == 1.75 * MS_PER_HOUR


def test_a_state_that_is_not_asked_any_more_makes_nothing_stale() -> None:
    """Else each request would be looked up, for as long as the other state is there."""
    quota = quota_of()
    quota.principal("alice", RATE, 0.0, enforced=False)
    principal = quota.principal("alice", RATE, 0.0)
    brings(principal, quota, 1)
    assert principal.fresh_until_ms(0.0) == MS_PER_HOUR
    now_ms = 5 * MS_PER_HOUR
    brings(principal, quota, 1, now_ms=now_ms)
    assert principal.fresh_until_ms(now_ms) == 6 * MS_PER_HOUR
