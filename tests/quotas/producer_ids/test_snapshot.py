"""What a restart keeps, and which bytes are refused."""

from __future__ import annotations

from dataclasses import replace

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
