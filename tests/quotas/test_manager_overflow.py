"""What clients can mint: buckets up to a cap, beyond it one that they share, and a new one when one goes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.quotas.entity import DEFAULT, OVERFLOW, QuotaEntity, QuotaLevel
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from testkit.quotas.managers import ALICE, FETCH, HOUR_MS, PRODUCE, limits_of, running


def entities(manager: QuotaManager) -> set[str]:
    return {str(sensor.entity) for sensor in manager.sensors()}


def minting_manager(max_client_ids_per_user: int = 3, max_sensors: int = 100) -> QuotaManager:
    return QuotaManager(
        limits_of(
            {
                QuotaEntity("alice", "configured"): 5_000,
                QuotaEntity("alice", DEFAULT): 1_000,
                QuotaEntity(DEFAULT, DEFAULT): 2_000,
            }
        ),
        max_client_ids_per_user=max_client_ids_per_user,
        max_sensors=max_sensors,
    )


def test_client_ids_beyond_a_users_cap_share_one_bucket_with_the_same_limit() -> None:
    manager = minting_manager()
    sensors = [running(manager, "alice", f"c{i}") for i in range(6)]
    assert len(set(sensors)) == 4
    overflow = sensors[3]
    assert sensors[3:] == [overflow] * 3
    assert overflow.entity == QuotaEntity("alice", OVERFLOW)
    assert (overflow.rate_per_s, overflow.level) == (1_000, QuotaLevel.USER_DEFAULT_CLIENT)
    assert manager.overflows == 3


def test_the_overflow_bucket_is_not_free() -> None:
    """1,000 B/s for all beyond the cap together: 1,000 B each of two, the second owes a second."""
    manager = minting_manager(max_client_ids_per_user=0)
    assert running(manager, "alice", "a").charge(1_000, 0) == 0
    assert running(manager, "alice", "b").charge(1_000, 0) == 1_000


def test_client_ids_that_came_before_the_cap_keep_their_buckets() -> None:
    manager = minting_manager()
    first = running(manager, "alice", "c0")
    for i in range(10):
        running(manager, "alice", f"c{i}")
    assert running(manager, "alice", "c0") is first


def test_configured_client_ids_get_their_own_buckets_beyond_the_cap() -> None:
    manager = minting_manager(max_client_ids_per_user=0, max_sensors=0)
    assert running(manager, "alice", "configured").entity == QuotaEntity("alice", "configured")
    assert manager.overflows == 0


def test_configured_client_ids_of_any_user_do_not_count_for_its_cap() -> None:
    """Cap 1: three client ids that the default user has limits for, and one more."""
    configured = {QuotaEntity(DEFAULT, f"c{i}"): 5_000 for i in range(3)}
    manager = QuotaManager(
        limits_of({**configured, QuotaEntity(DEFAULT, DEFAULT): 1_000}), max_client_ids_per_user=1
    )
    for i in range(3):
        running(manager, "alice", f"c{i}")
    assert running(manager, "alice", "x").entity == QuotaEntity("alice", "x")


def test_a_users_cap_is_its_own() -> None:
    manager = minting_manager()
    for i in range(10):
        running(manager, "alice", f"c{i}")
    assert running(manager, "bob", "c0").entity == QuotaEntity("bob", "c0")
    for i in range(10):
        running(manager, "bob", f"c{i}")
    assert running(manager, "bob", "x") is not running(manager, "alice", "x")
    assert running(manager, "bob", "x").entity == QuotaEntity("bob", OVERFLOW)


def test_a_users_cap_is_of_each_kind() -> None:
    both = {"producer_byte_rate": 1_000, "consumer_byte_rate": 1_000}
    manager = QuotaManager(QuotaLimits([(QuotaEntity("alice", DEFAULT), both)]), max_client_ids_per_user=1)
    assert running(manager, "alice", "a", PRODUCE).entity == QuotaEntity("alice", "a")
    assert running(manager, "alice", "a", FETCH).entity == QuotaEntity("alice", "a")
    assert running(manager, "alice", "b", FETCH).entity == QuotaEntity("alice", OVERFLOW)


def test_client_ids_of_no_user_count_for_the_user_that_brought_them() -> None:
    """Bucket (client id): two of alice's fill her cap; the third is hers alone, bob's are his."""
    manager = QuotaManager(limits_of({QuotaEntity(None, DEFAULT): 1_000}), max_client_ids_per_user=2)
    for i in range(5):
        running(manager, "alice", f"a{i}")
    running(manager, "bob", "b0")
    assert entities(manager) == {
        "client-id 'a0'",
        "client-id 'a1'",
        "user 'alice', client-id <overflow>",
        "client-id 'b0'",
    }
    assert running(manager, "alice", "b0").entity == QuotaEntity(None, "b0")


def test_many_client_ids_leave_a_tenth_of_all_room_to_other_users() -> None:
    """Room for 20: 18 minted client ids, then a user's own overflow bucket each, bob's beside alice's."""
    manager = QuotaManager(limits_of({QuotaEntity(DEFAULT, DEFAULT): 1_000}), max_sensors=20)
    for i in range(40):
        running(manager, "alice", f"c{i}")
    assert len(manager) == 19
    bob = running(manager, "bob", "b")
    assert bob.entity == QuotaEntity("bob", OVERFLOW)
    assert len(manager) == 20


def test_beyond_all_room_users_share_one_bucket_with_the_same_limit() -> None:
    manager = QuotaManager(limits_of({QuotaEntity(DEFAULT, DEFAULT): 1_000}), max_sensors=10)
    for i in range(50):
        running(manager, f"u{i}", "c")
    assert len(manager) == 11
    overflow = running(manager, "u49", "c")
    assert overflow is running(manager, "u48", "other")
    assert overflow.entity == QuotaEntity(OVERFLOW, OVERFLOW)
    assert overflow.rate_per_s == 1_000
    assert running(manager, "u0", "c").entity == QuotaEntity("u0", "c")


@pytest.mark.parametrize(
    ("configured", "overflow"),
    [
        (QuotaEntity(DEFAULT, None), QuotaEntity(OVERFLOW, None)),
        (QuotaEntity(DEFAULT, "c"), QuotaEntity(OVERFLOW, "c")),
        (QuotaEntity(DEFAULT, DEFAULT), QuotaEntity(OVERFLOW, OVERFLOW)),
        (QuotaEntity(None, DEFAULT), QuotaEntity(OVERFLOW, OVERFLOW)),
    ],
    ids=str,
)
def test_each_level_that_any_user_reaches_has_its_shared_bucket(
    configured: QuotaEntity, overflow: QuotaEntity
) -> None:
    manager = QuotaManager(limits_of({configured: 1_000}), max_sensors=0)
    assert running(manager, "alice", "c").entity == overflow
    assert running(manager, "bob", "c") is running(manager, "alice", "c")
    assert manager.overflows == 3


@pytest.mark.parametrize(
    "configured", [QuotaEntity("alice", "c"), QuotaEntity("alice", None), QuotaEntity(None, "c")], ids=str
)
def test_levels_without_a_default_never_overflow(configured: QuotaEntity) -> None:
    manager = QuotaManager(limits_of({configured: 1_000}), max_sensors=0, max_client_ids_per_user=0)
    running(manager, "alice", "c")
    assert manager.overflows == 0


@settings(deadline=None)
@given(
    pairs=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=300),
    per_user=st.integers(0, 5),
    in_all=st.integers(0, 40),
)
def test_whatever_clients_call_themselves_the_number_of_buckets_is_bounded(
    pairs: list[tuple[int, int]], per_user: int, in_all: int
) -> None:
    """At most in_all minted ones, and per user its cap and one overflow; one overflow of all; alice's two."""
    manager = minting_manager(per_user, in_all)
    for user, client in pairs:
        running(manager, f"u{user}", f"c{client}")
        running(manager, "alice", f"c{client}")
        running(manager, "alice", "configured")
    assert len(manager) <= in_all + 3
    for name in {sensor.entity.user for sensor in manager.sensors()} - {OVERFLOW}:
        own = [s for s in manager.sensors() if s.entity.user == name and s.entity.client_id != "configured"]
        assert len(own) <= per_user + 1


@pytest.mark.parametrize("user", ["alice", "bob"])
def test_a_reload_keeps_overflow_buckets_with_their_debt_while_their_default_stands(user: str) -> None:
    manager = minting_manager(max_client_ids_per_user=0)
    overflow = running(manager, user, "c")
    overflow.charge(10_000, 0)
    owed = -overflow.tokens(0)
    manager.reload(limits_of({QuotaEntity("alice", DEFAULT): 500, QuotaEntity(DEFAULT, DEFAULT): 500}), 0)
    assert running(manager, user, "d") is overflow
    assert (overflow.rate_per_s, overflow.tokens(0)) == (500, -owed)


def test_a_reload_keeps_the_overflow_bucket_of_all_while_its_default_stands() -> None:
    manager = QuotaManager(limits_of({QuotaEntity(DEFAULT, DEFAULT): 1_000}), max_sensors=0)
    overflow = running(manager, "alice", "c")
    manager.reload(limits_of({QuotaEntity(DEFAULT, DEFAULT): 500}), 0)
    assert list(manager.sensors()) == [overflow]
    manager.reload(limits_of({QuotaEntity(DEFAULT, None): 500}), 0)
    assert len(manager) == 0


def test_a_reload_to_one_bucket_for_all_users_drops_their_overflow_bucket() -> None:
    manager = QuotaManager(limits_of({QuotaEntity(DEFAULT, "c"): 1_000}), max_sensors=0)
    assert running(manager, "alice", "c").entity == QuotaEntity(OVERFLOW, "c")
    manager.reload(limits_of({QuotaEntity(None, "c"): 500}), 0)
    assert len(manager) == 0


def test_a_reload_drops_overflow_buckets_whose_default_is_gone() -> None:
    manager = minting_manager(max_client_ids_per_user=0)
    running(manager, "alice", "c")
    manager.reload(limits_of({ALICE: 1_000}), 0)
    assert len(manager) == 0


def test_a_client_id_that_is_configured_later_makes_room_for_another() -> None:
    manager = minting_manager(max_client_ids_per_user=1)
    running(manager, "alice", "c0")
    manager.reload(limits_of({QuotaEntity("alice", "c0"): 9, QuotaEntity("alice", DEFAULT): 1_000}), 0)
    assert running(manager, "alice", "c1").entity == QuotaEntity("alice", "c1")
    assert running(manager, "alice", "c2").entity == QuotaEntity("alice", OVERFLOW)


def test_an_overflow_bucket_that_was_looked_up_within_the_hour_stays() -> None:
    manager = minting_manager(max_client_ids_per_user=0)
    running(manager, "alice", "a")
    manager.sensor(PRODUCE, "alice", "b", 5)
    assert manager.expire(HOUR_MS) == 0


def test_expiry_makes_room_for_other_client_ids() -> None:
    manager = minting_manager(max_client_ids_per_user=1)
    running(manager, "alice", "old")
    manager.expire(HOUR_MS)
    assert running(manager, "alice", "new").entity == QuotaEntity("alice", "new")


def test_a_manager_shows_how_many_it_runs() -> None:
    manager = minting_manager(max_client_ids_per_user=1)
    for client_id in ("configured", "a", "b"):
        running(manager, "alice", client_id)
    assert repr(manager) == (
        "<QuotaManager generation 0: 3 sensors, 1 minted, 1 overflows, 2 look-ups remembered>"
    )
