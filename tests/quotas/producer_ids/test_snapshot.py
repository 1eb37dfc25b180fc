"""What a restart keeps, and which bytes are refused."""

from __future__ import annotations

from base64 import b85decode
from dataclasses import replace
from zlib import decompress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.quotas.producer_ids.buckets import MS_PER_HOUR
from sluice.quotas.producer_ids.principal import ProducerIdSettings
from sluice.quotas.producer_ids.quota import ProducerIdQuota
from sluice.quotas.producer_ids.snapshot import SnapshotError, encode_snapshot, restore_snapshot
from sluice.quotas.producer_ids.store import StoreKind
from sluice.quotas.producer_ids.ticket import Ticket

SETTINGS = ProducerIdSettings()
BLOOM = replace(SETTINGS, store=StoreKind.BLOOM)
SCOPE = "broker-1.example:9092"
WALL = 1_700_000_000_000.0
RATE = 100.0


def admit(quota: ProducerIdQuota, *ids: int, now_ms: float, user: str = "alice") -> None:
    for producer_id in ids:
        key = quota.pair_keys.key(producer_id, b"t", 0)
        ticket = Ticket(quota.principal(user, RATE, now_ms), (producer_id,), (), (key,))
        assert quota.ask(ticket, now_ms)
        quota.commit(ticket, now_ms)


def restarted(
    data: bytes, settings: ProducerIdSettings = SETTINGS, *, after_ms: float = 0.0
) -> ProducerIdQuota:
    """In another process, whose monotonic clock says 500."""
    quota = ProducerIdQuota(settings)
    assert restore_snapshot(quota, data, SCOPE, 500.0, WALL + after_ms) == []
    return quota


@pytest.mark.parametrize("settings", [SETTINGS, BLOOM])
def test_after_a_restart_live_ids_are_known_and_their_tokens_stay_spent(settings: ProducerIdSettings) -> None:
    quota = ProducerIdQuota(settings)
    admit(quota, *range(40), now_ms=9e9)
    admit(quota, 2**62, now_ms=9e9, user="bob")
    other = restarted(encode_snapshot(quota, SCOPE, 9e9, WALL), settings)
    principal = other.principal("alice", RATE, 500.0)
    assert all(principal.store.seen(producer_id, 500.0) for producer_id in range(40))
    assert not principal.store.seen(2**62, 500.0)
    assert other.principal("bob", RATE, 500.0).store.seen(2**62, 500.0)
    assert principal.main.tokens(500.0) == pytest.approx(60.0)
    assert other.ceiling.total == 41


def test_the_time_that_passed_while_nobody_ran_counts() -> None:
    quota = ProducerIdQuota(SETTINGS)
    admit(quota, *range(50), now_ms=0.0)
    admit(quota, 77, now_ms=5 * MS_PER_HOUR)
    data = encode_snapshot(quota, SCOPE, 5 * MS_PER_HOUR, WALL)
    half = restarted(data, after_ms=0.25 * MS_PER_HOUR).principal("alice", RATE, 500.0)
    assert half.main.tokens(500.0) == 100.0
    assert half.resumed.tokens(500.0) == 2_500.0
    later = restarted(data, after_ms=6.5 * MS_PER_HOUR).principal("alice", RATE, 500.0)
    assert not later.store.seen(3, 500.0)
    assert later.store.seen(77, 500.0)
    assert len(later.pairs) == 51


def test_a_pair_that_is_seen_again_after_a_restart_does_not_count_twice() -> None:
    quota = ProducerIdQuota(SETTINGS)
    admit(quota, 1, now_ms=0.0)
    other = restarted(encode_snapshot(quota, SCOPE, 0.0, WALL))
    other.principal("alice", RATE, 500.0).see_pair(other.pair_keys.key(1, b"t", 0), 500.0)
    assert other.ceiling.total == 1


def test_what_was_reserved_when_the_snapshot_was_taken_is_not_spent() -> None:
    quota = ProducerIdQuota(SETTINGS)
    assert quota.ask(Ticket(quota.principal("alice", RATE, 0.0), (1,), (), (1,)), 0.0)
    other = restarted(encode_snapshot(quota, SCOPE, 0.0, WALL))
    assert other.principal("alice", RATE, 500.0).main.tokens(500.0) == 100.0


def test_filters_of_another_shape_are_left_out_and_named() -> None:
    quota = ProducerIdQuota(BLOOM)
    admit(quota, 1, now_ms=0.0)
    other = ProducerIdQuota(SETTINGS)
    left_out = restore_snapshot(other, encode_snapshot(quota, SCOPE, 0.0, WALL), SCOPE, 0.0, WALL)
    assert left_out == ["ids of alice: a Bloom filter's bytes are no set of ids"]
    principal = other.principal("alice", RATE, 0.0)
    assert not principal.store.seen(1, 0.0)
    assert principal.main.tokens(0.0) == 99.0
    assert other.ceiling.total == 1


def test_a_snapshot_of_nothing_is_one() -> None:
    assert list(restarted(encode_snapshot(ProducerIdQuota(SETTINGS), SCOPE, 0.0, WALL)).principals()) == []


def saved() -> bytes:
    quota = ProducerIdQuota(SETTINGS)
    admit(quota, 1, 2, 3, now_ms=0.0)
    return encode_snapshot(quota, SCOPE, 0.0, WALL)


SAVED = saved()


@pytest.mark.parametrize(
    ("data", "scope", "wall_ms", "reason"),
    [
        (b"", SCOPE, WALL, "no snapshot"),
        (b'{"a": 1}' * 20, SCOPE, WALL, "no snapshot"),
        (SAVED[:8] + b"\0\x02" + SAVED[10:], SCOPE, WALL, "version 2"),
        (SAVED, "broker-2.example:9092", WALL, "broker-1.example:9092"),
        (SAVED, SCOPE, WALL - 3_600_000.0, "from the future: 3600 s"),
    ],
)
def test_what_is_none_or_foreign_is_refused_and_the_reason_named(
    data: bytes, scope: str, wall_ms: float, reason: str
) -> None:
    quota = ProducerIdQuota(SETTINGS)
    with pytest.raises(SnapshotError, match=reason):
        restore_snapshot(quota, data, scope, 0.0, wall_ms)
    assert list(quota.principals()) == []


@given(st.integers(0, len(SAVED) - 1), st.integers(1, 255), st.booleans())
def test_damage_anywhere_is_noticed(position: int, change: int, cut: bool) -> None:
    damaged = SAVED[:position] if cut else bytearray(SAVED)
    if isinstance(damaged, bytearray):
        damaged[position] ^= change
    with pytest.raises(SnapshotError):
        restore_snapshot(ProducerIdQuota(SETTINGS), bytes(damaged), SCOPE, 0.0, WALL)


def test_a_clock_set_back_by_less_than_five_minutes_is_no_reason_to_forget() -> None:
    for back_ms in (200_000.0, 300_000.0):
        assert len(list(restarted(SAVED, after_ms=-back_ms).principals())) == 1
    with pytest.raises(SnapshotError, match="from the future: 300 s ahead"):
        restarted(SAVED, after_ms=-300_001.0)


def test_more_ids_than_one_piece_come_back_whole() -> None:
    quota = ProducerIdQuota(SETTINGS)
    store = quota.principal("alice", RATE, 0.0).store
    ids = {3 * number for number in range(12_001)}
    for producer_id in ids:
        store.admit(producer_id, 0.0)
    other = restarted(encode_snapshot(quota, SCOPE, 0.0, WALL))
    ((_, restored),) = other.principal("alice", RATE, 500.0).store.dump()
    assert len(restored) == len(ids)
    assert set(restored) == ids


@pytest.mark.parametrize("settings", [SETTINGS, BLOOM], ids=["exact", "bloom"])
@pytest.mark.parametrize(
    ("before", "after"), [(10.0, 100_000.0), (100_000.0, 10.0)], ids=["raised", "lowered"]
)
def test_live_ids_stay_known_whatever_the_limit_becomes_and_over_a_restart(
    settings: ProducerIdSettings, before: float, after: float
) -> None:
    """A Bloom store kept the size of its filters, and forgot ids; what had been written by a raised limit was
    not taken over."""
    quota = ProducerIdQuota(settings)
    store = quota.principal("alice", before, 0.0).store
    ids = range(30_000)
    for producer_id in ids:
        if producer_id == (0 if before < after else 29_999):
            quota.principal("alice", after, 0.0)
        store.admit(producer_id, 0.0)
    for hour in (1, 2):
        data = encode_snapshot(quota, SCOPE, hour * MS_PER_HOUR, WALL)
        quota = ProducerIdQuota(settings)
        assert restore_snapshot(quota, data, SCOPE, hour * MS_PER_HOUR, WALL) == []
        store = quota.principal("alice", after, hour * MS_PER_HOUR).store
        assert all(store.seen(producer_id, hour * MS_PER_HOUR) for producer_id in ids)
    assert all(store.seen(producer_id, 11.9 * MS_PER_HOUR) for producer_id in ids)


def sharing(settings: ProducerIdSettings) -> tuple[ProducerIdQuota, list[str]]:
    """Of four users with a state of their own, two in debt, three share one after a restart with room for
    one user; and what could not be taken over."""
    quota = ProducerIdQuota(replace(settings, max_principals=4))
    for number, (user, count) in enumerate({"a": 1, "b": 20, "c": 30, "d": 1}.items()):
        principal = quota.principal(user, 10.0, number * MS_PER_HOUR / 2)
        for producer_id in range(100 * number, 100 * number + count):
            principal.learn(producer_id, number * MS_PER_HOUR / 2)
            principal.see_pair(producer_id, number * MS_PER_HOUR / 2)
        principal.main.charge(count, number * MS_PER_HOUR / 2)
    data = encode_snapshot(quota, SCOPE, 1.5 * MS_PER_HOUR, WALL)
    other = ProducerIdQuota(replace(settings, max_principals=1))
    return other, restore_snapshot(other, data, SCOPE, 1.5 * MS_PER_HOUR, WALL)


def test_users_who_come_to_share_a_state_by_a_restart_keep_their_ids_and_what_they_owe() -> None:
    """Of all but the last one each id was unseen, and its bucket full."""
    quota, left_out = sharing(SETTINGS)
    now_ms = 1.5 * MS_PER_HOUR
    others = quota.principal("b", 10.0, now_ms)
    assert others is quota.principal("d", 10.0, now_ms)
    ids = [*range(100, 120), *range(200, 230), 300]
    assert [producer_id for producer_id in range(400) if others.knows(producer_id, now_ms)] == ids
    assert others.main.tokens(now_ms) == pytest.approx(-5.0)  # c's 10 below nothing, half an hour ago
    assert quota.principal("a", 10.0, now_ms).knows(0, now_ms)
    assert (left_out, quota.ceiling.total) == ([], 52)


def test_filters_of_users_who_come_to_share_a_state_are_left_out_but_one_and_named() -> None:
    quota, left_out = sharing(BLOOM)
    reason = "filters of two users have two keys, and these share one store"
    assert left_out == [f"ids of c: {reason}", f"ids of d: {reason}"]
    now_ms = 1.5 * MS_PER_HOUR
    others = quota.principal("b", 10.0, now_ms)
    assert all(others.knows(producer_id, now_ms) for producer_id in range(100, 120))
    assert others.main.tokens(now_ms) == pytest.approx(-5.0)
    assert quota.ceiling.total == 52


def test_many_users_who_come_to_share_a_state_leave_it_few_layers_and_its_fixed_size() -> None:
    settings = replace(SETTINGS, max_observed_ids=1_000)
    quota = ProducerIdQuota(settings)
    for number in range(300):
        now_ms = number * MS_PER_HOUR / 100
        principal = quota.principal(f"user{number}", 10.0, now_ms, enforced=False)
        for producer_id in range(100 * number, 100 * number + 20):
            principal.learn(producer_id, now_ms)
    last_ms = 2.99 * MS_PER_HOUR
    other = ProducerIdQuota(replace(settings, max_principals=0))
    data = encode_snapshot(quota, SCOPE, last_ms, WALL)
    assert restore_snapshot(other, data, SCOPE, last_ms, WALL) == []
    store = other.principal("any", 10.0, last_ms, enforced=False).store
    assert len(store) == 1_000
    assert store.layers == 1  # of the last hour are more than it may keep
    assert store.seen(100 * 299, last_ms)
    assert not store.seen(0, last_ms)


def test_users_who_come_to_share_a_state_have_no_id_known_for_more_than_a_sample_longer() -> None:
    quota = ProducerIdQuota(SETTINGS)
    for number in range(300):
        quota.principal(f"user{number}", 10.0, 0.0).learn(number, number * MS_PER_HOUR / 100)
    last_ms = 2.99 * MS_PER_HOUR
    other = ProducerIdQuota(replace(SETTINGS, max_principals=0))
    assert restore_snapshot(other, encode_snapshot(quota, SCOPE, last_ms, WALL), SCOPE, last_ms, WALL) == []
    store = other.principal("any", 10.0, last_ms).store
    assert (len(store), store.layers) == (300, 3)
    assert [n for n in range(300) if store.seen(n, 12.5 * MS_PER_HOUR)] == list(range(100, 300))


WRITTEN_BEFORE = (
    b"c-jm03H5Y#4e(@OWME)4s8%XY&M!z+vQkh=D$37JEz&jAORY%EEyzi=vNW(XQqoaSDoM;v&5KVgiO($tsxve<Kma`hpnP#+P6@~W"
    b"!&GAni<G2P12e;<6jKWevm`^4B(o#~i$wFZ#Ka_XkXZ#qnR&^X1&KKzqoS*oN{dsAKzb8%GLut53NllQ;|o%Y;xqC~K@x^gJ5uw~"
    b"@{5vFQ-DGxMWv}gk(|`BRIn-4O1X)dc|eAxIan!Np&>+TQEG8%E?B_G6l7X0#1@eK(O?xu2FAuZ3TZ$$rN+jB+?beIge+~M1GY0Z"
    b"wl=o*lUl}V>+2ITw#xkJ{!(#%9Ww(2a5D^hz(`%=6krS{dU-&BOnm~xDQg(W$Pu7gU<gni+ax=Na1wAJONt1<L1V8`0GMc=HyIfQ"
    b"G2mbr<bVZlifo`qypskRXjx2A9$jRlMgc^SagdNV8Oe7XEOG*_{J&iql9M&j&QpqygI_mm5$6u4FE3_D9kA-(5f#!40Iq6viv"
)
"""by the version whose Bloom filters were all of one size: ids 0, 1 and 2 of alice at 100 an hour"""


@pytest.mark.parametrize("per_hour", [1.0, 100.0, 1e6])
def test_filters_that_an_earlier_version_wrote_are_taken_over_whatever_the_limit_is_now(
    per_hour: float,
) -> None:
    quota = restarted(decompress(b85decode(WRITTEN_BEFORE)), BLOOM)
    store = quota.principal("alice", per_hour, 500.0).store
    assert [producer_id for producer_id in range(100) if store.seen(producer_id, 500.0)] == [0, 1, 2]
