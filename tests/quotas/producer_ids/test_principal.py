"""One principal by itself: its pairs against the ceiling, ages of waiting ids, when it may be forgotten."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from sluice.quotas.producer_ids.buckets import MS_PER_HOUR, BucketShape
from sluice.quotas.producer_ids.principal import PairCeiling, PairKeys, PrincipalIds, ProducerIdSettings
from sluice.quotas.producer_ids.store import BloomStore, ExactStore, StoreKind

SETTINGS = ProducerIdSettings()
SMALL = replace(SETTINGS, broker_heap_bytes=270 * 40, heap_share=0.25)
"""ten pairs, five of one principal"""


def principal(
    settings: ProducerIdSettings = SETTINGS, *, per_hour: float = 60.0, enforced: bool = True
) -> PrincipalIds:
    ceiling = PairCeiling(settings)
    return PrincipalIds("alice", per_hour, settings, ceiling, 0.0, enforced=enforced)


def test_topics_that_clients_name_are_remembered_up_to_a_bound_and_keys_stay_the_same() -> None:
    keys = PairKeys(b"s" * 16)
    first = keys.key(7, b"t0", 3)
    for number in range(10_000):
        keys.key(1, b"t%d" % number, 0)
    assert len(keys._topics) == 10_000
    keys.key(1, b"one more", 0)
    assert len(keys._topics) == 1
    assert keys.key(7, b"t0", 3) == first
    for length, is_kept in ((249, True), (250, False)):
        assert 0 <= keys.key(7, b"x" * length, 3) < 2**60
        assert (b"x" * length in keys._topics) is is_kept


def test_keys_differ_by_id_topic_and_partition_and_by_their_salt() -> None:
    keys = PairKeys(b"s" * 16)
    named = [keys.key(*pair) for pair in ((1, b"t", 0), (2, b"t", 0), (1, b"u", 0), (1, b"t", 1))]
    assert len({*named, PairKeys(b"z" * 16).key(1, b"t", 0), PairKeys().key(1, b"t", 0)}) == 6
    assert named[0] == PairKeys(b"s" * 16).key(1, b"t", 0)
    assert 0 <= keys.name_key(b"name") < 2**60
    assert keys.name_key(b"name") != keys.name_key(b"eman")


def test_the_ceiling_is_a_share_of_the_brokers_heap_and_half_of_it_one_principals() -> None:
    ceiling = PairCeiling(SMALL)
    assert (ceiling.max_pairs, ceiling.max_of_one, ceiling.heap_bytes) == (10, 5, 0)
    ceiling.total = 4
    assert ceiling.heap_bytes == 4 * 270
    of_others = principal(SMALL)
    assert ceiling.has_room(of_others, 5)
    assert not ceiling.has_room(of_others, 6)
    ceiling.reserved = 2
    assert ceiling.has_room(of_others, 4)
    assert not ceiling.has_room(of_others, 5)
    ceiling.total = ceiling.reserved = 0
    of_others.reserved_pairs = 2
    of_others.see_pair(1, 0.0)
    assert ceiling.has_room(of_others, 2)
    assert not ceiling.has_room(of_others, 3)


def test_the_ceilings_last_tenth_is_for_principals_that_hold_little() -> None:
    """Up to 256 pairs each."""
    settings = ProducerIdSettings(broker_heap_bytes=10_000 * 270, heap_share=1.0, principal_share=0.95)
    small, large = principal(settings), principal(settings)
    small.reserved_pairs, large.reserved_pairs = 56, 257
    for one, taken, room in (
        (small, 0, 9_000), (small, 8_700, 300), (small, 8_801, 200), (small, 9_800, 200), (small, 9_900, 100),
        (large, 0, 9_000), (large, 8_700, 300), (large, 8_999, 1), (large, 9_000, 0),
    ):  # fmt: skip
        one._ceiling.total = taken
        assert one._ceiling.has_room(one, room), (taken, room)
        assert not one._ceiling.has_room(one, room + 1), (taken, room)
        one.see_known_pairs(range(one._ceiling.max_pairs), 0.0)
        assert one._ceiling.total == taken + room
        one.pairs = principal(settings).pairs
    assert small.can_ever_admit(1, 0, 9_000, is_member=False)
    assert not small.can_ever_admit(1, 0, 9_001, is_member=False), "not of an empty ceiling either"


def test_known_pairs_are_remembered_up_to_the_principals_share() -> None:
    one = principal(SMALL)
    one.see_known_pairs([1, 2, 1], 0.0)
    assert (len(one.pairs), one._ceiling.total) == (2, 2)
    one.see_known_pairs(range(1, 100), 0.0)
    assert (len(one.pairs), one._ceiling.total) == (5, 5)
    one.see_known_pairs([200], 0.0)
    assert len(one.pairs) == 5
    one.see_pair(201, 0.0)
    assert (len(one.pairs), one._ceiling.total) == (6, 6), "an admitted one always counts"


def test_a_known_pair_stays_known_as_long_as_it_is_written_to() -> None:
    one = principal(SMALL)
    one.see_known_pairs([1], 0.0)
    for hour in range(1, 60):
        one.see_known_pairs([1], hour * MS_PER_HOUR)
    assert len(one.pairs) == 1


def test_a_pair_is_remembered_as_long_as_the_broker_does_and_an_eighth_longer_at_most() -> None:
    one = principal()
    one.see_pair(1, 0.0)
    one.pairs.expire(24 * MS_PER_HOUR)
    assert len(one.pairs) == 1
    one.pairs.expire(27 * MS_PER_HOUR)
    assert len(one.pairs) == 0


def test_the_youngest_of_some_ids_says_since_when_they_wait() -> None:
    one = principal()
    assert one.waiting_since_ms([1], 10.0) == 10.0
    assert one.waiting_since_ms([1], 20.0) == 10.0
    assert one.waiting_since_ms([2], 30.0) == 30.0
    assert one.waiting_since_ms([1, 2], 40.0) == 30.0
    assert one.waiting_since_ms([2, 1], 40.0) == 30.0
    assert one.waiting_since_ms([], 40.0) == -inf
    one.end_wait(1)
    assert one.waiting_since_ms([1], 50.0) == 50.0
    assert one.waiting_ids == 2


def test_an_id_that_did_not_ask_for_two_minutes_waits_no_more() -> None:
    one = principal()
    one.waiting_since_ms([1], 0.0)
    assert one.waiting_since_ms([1], 120_000.0) == 0.0
    assert one.waiting_since_ms([1], 240_000.1) == 240_000.1
    one.waiting_since_ms([2], 300_000.0)
    one.waiting_since_ms([3], 360_000.2)
    assert one.waiting_ids == 2


def test_so_many_ages_are_kept_and_those_beyond_begin_to_wait_anew() -> None:
    one = principal(replace(SETTINGS, max_waiting_ids=2))
    one.waiting_since_ms([1, 2, 3], 0.0)
    assert one.waiting_ids == 2
    assert one.waiting_since_ms([3], 10.0) == 10.0
    assert one.waiting_since_ms([1], 10.0) == 0.0


def test_what_no_bucket_ever_holds_is_never_admitted() -> None:
    """60 an hour with a burst of one: 60 new ones, 1,500 resumed ones; by force as its bucket has it."""
    one = principal()
    assert (one.main.capacity, one.resumed.capacity) == (60.0, 1_500.0)
    floor = one.forced_floor(is_member=False)
    forced = int(one.forced.capacity)
    assert floor > 0.0
    assert one.forced_floor(is_member=True) == 0.0
    cases = [
        ((60, 0, 1), True), ((61, 0, 1), forced - floor >= 61), ((0, 1_500, 1), True),
        ((0, 1_501, 1), forced - floor >= 1_501), ((60, 1_500, 1), True),
        ((1, 1, one._ceiling.max_of_one), True), ((1, 1, one._ceiling.max_of_one + 1), False),
    ]  # fmt: skip
    for (new, resumed, pairs), can in cases:
        assert one.can_ever_admit(new, resumed, pairs, is_member=False) is can, (new, resumed, pairs)
    small = principal(per_hour=1.0)
    ids = int(small.forced.capacity)
    assert small.can_ever_admit(ids, 0, 1, is_member=True)
    assert not small.can_ever_admit(ids + 1, 0, 1, is_member=True)


def test_tokens_are_what_the_bucket_holds_less_those_that_wait() -> None:
    one = principal()
    one.waiting_tickets = 3
    assert one.tokens(0.0) == 57.0


def test_another_limit_gives_all_its_buckets_other_sizes() -> None:
    one, other = principal(), principal(per_hour=120.0)
    one.update(120.0, 0.0)
    assert one.ids_per_hour == 120.0
    for changed, anew in ((one.main, other.main), (one.forced, other.forced), (one.resumed, other.resumed)):
        assert changed.capacity == anew.capacity


def test_a_principal_may_be_forgotten_when_nothing_is_left_of_it() -> None:
    assert principal().expire(0.0)
    one = principal()
    one.waiting_tickets = 1
    assert not one.expire(0.0)
    one = principal()
    one.waiting_since_ms([1], 0.0)
    assert not one.expire(60_000.0)
    assert one.expire(121_000.0), "its id waits no more"
    one = principal()
    one.see_pair(1, 0.0)
    assert not one.expire(0.0)
    one = principal()
    one.store.admit(1, 0.0)
    assert not one.expire(0.0)
    one = principal(replace(SETTINGS, transactional_ids_per_hour=1.0))
    one.transactional_ids.brought(1, 0.0, 0.0)
    assert not one.expire(0.0)
    for bucket in ("main", "forced", "resumed"):
        one = principal()
        assert getattr(one, bucket).reserve(1, 0.0)
        getattr(one, bucket).settle(1, 1, 0.0)
        assert not one.expire(0.0), bucket
        assert one.expire(100 * MS_PER_HOUR)


def test_who_is_not_limited_is_remembered_in_exact_stores_of_a_fixed_size() -> None:
    settings = replace(SETTINGS, store=StoreKind.BLOOM, max_observed_ids=10)
    one = principal(settings, enforced=False)
    assert isinstance(one.store, ExactStore)
    for number in range(100):
        one.store.admit(number, 0.0)
        one.see_pair(number, 0.0)
    assert len(one.store) <= 10
    assert len(one.pairs) <= 10
    assert one._ceiling.total == len(one.pairs)
    limited = principal(settings)
    for number in range(100):
        limited.see_pair(number, 0.0)
    assert len(limited.pairs) == 100
    assert isinstance(limited.store, BloomStore)
    assert isinstance(principal().store, ExactStore)


@pytest.mark.parametrize(("per_hour", "layer_ids"), [(1.0, 1_000), (5_000.0, 10_000), (1e9, 10_000_000)])
def test_a_bloom_store_has_room_for_what_a_layer_may_see_within_bounds(
    per_hour: float, layer_ids: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An hour's burst and an hour's rate."""
    made: list[int] = []

    def noted(self: BloomStore, *_: object, layer_ids: int, **__: object) -> None:
        made.append(layer_ids)

    monkeypatch.setattr(BloomStore, "__init__", noted)
    principal(replace(SETTINGS, store=StoreKind.BLOOM), per_hour=per_hour)
    assert made == [layer_ids]


def test_transactional_ids_are_limited_only_where_ids_are() -> None:
    settings = replace(SETTINGS, transactional_ids_per_hour=1.0, buckets=BucketShape(burst_h=1.0))
    for enforced in (True, False):
        names = principal(settings, enforced=enforced).transactional_ids
        names.ask(1, 0.0)
        assert (names.ask(2, 0.0)[0] > 0.0) is enforced
