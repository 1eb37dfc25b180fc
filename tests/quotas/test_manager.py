"""Sensors by bucket: who shares one, what a reload keeps, what clients can mint, when idle ones go."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.quotas.entity import DEFAULT, OVERFLOW, QuotaEntity, QuotaLevel
from sluice.quotas.kinds import BYTE_KINDS, KINDS, QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import Pacing, QuotaManager
from sluice.quotas.sensors.sensor import Sensor

HOUR_MS = 3_600_000.0
PRODUCE, FETCH = QuotaKind.PRODUCE, QuotaKind.FETCH
ALICE = QuotaEntity("alice", None)


def limits_of(limits: dict[QuotaEntity, int], kind: QuotaKind = PRODUCE) -> QuotaLimits:
    return QuotaLimits((entity, {KINDS[kind].config_key: limit}) for entity, limit in limits.items())


def running(manager: QuotaManager, user: str, client_id: str, kind: QuotaKind = PRODUCE) -> Sensor:
    sensor = manager.sensor(kind, user, client_id, 0)
    assert sensor is not None
    return sensor


def entities(manager: QuotaManager) -> set[str]:
    return {str(sensor.entity) for sensor in manager.sensors()}


# Every kind in the same way: amounts are seconds of the configured limit's rate.


@pytest.mark.parametrize("kind", BYTE_KINDS)
class TestEveryKind:
    """Limit 600 of the kind's unit for user alice, burst 1 s; one second of the rate is `second`."""

    LIMIT = 600

    def manager(self, kind: QuotaKind) -> QuotaManager:
        return QuotaManager(limits_of({ALICE: self.LIMIT}, kind))

    def sensor(self, manager: QuotaManager, kind: QuotaKind) -> Sensor:
        return running(manager, "alice", "app", kind)

    def second(self, kind: QuotaKind, limit: int = LIMIT) -> float:
        return KINDS[kind].rate_per_s(limit)

    def test_below_the_limit_nothing_is_owed(self, kind: QuotaKind) -> None:
        """Half a second of the rate each second."""
        sensor = self.sensor(self.manager(kind), kind)
        assert all(sensor.charge(self.second(kind) / 2, t) < t for t in range(0, 60_000, 1_000))

    def test_at_the_limit_nothing_is_owed(self, kind: QuotaKind) -> None:
        """One second of the rate each second, from a full burst of one second: to the last unit."""
        sensor = self.sensor(self.manager(kind), kind)
        assert all(sensor.charge(self.second(kind), t) == pytest.approx(t) for t in range(0, 60_000, 1_000))

    def test_above_the_limit_the_excess_is_owed(self, kind: QuotaKind) -> None:
        """Two seconds of the rate each second: after n charges, 2n − 1 (burst) − (n − 1) = n seconds."""
        sensor = self.sensor(self.manager(kind), kind)
        owed_ms = [sensor.charge(2 * self.second(kind), t) - t for t in range(0, 5_000, 1_000)]
        assert owed_ms == pytest.approx([1_000, 2_000, 3_000, 4_000, 5_000])

    def test_when_the_debt_is_paid_it_is_as_before(self, kind: QuotaKind) -> None:
        """Three seconds' worth at 0: paid at 2,000; full again at 3,000."""
        sensor = self.sensor(self.manager(kind), kind)
        assert sensor.charge(3 * self.second(kind), 0) == pytest.approx(2_000)
        assert sensor.charge(self.second(kind), 3_000) == pytest.approx(3_000)

    def test_a_changed_limit_applies_to_the_next_charge_and_the_debt_stays(self, kind: QuotaKind) -> None:
        """Two seconds’ worth at 0 owe one: 500 ms at twice the limit; one more such second, 500 more."""
        manager = self.manager(kind)
        sensor = self.sensor(manager, kind)
        sensor.charge(2 * self.second(kind), 0)
        manager.reload(limits_of({ALICE: 2 * self.LIMIT}, kind), 0)
        assert self.sensor(manager, kind) is sensor
        assert sensor.charge(self.second(kind), 0) == pytest.approx(1_000)

    def test_a_removed_limit_is_no_limit(self, kind: QuotaKind) -> None:
        manager = self.manager(kind)
        self.sensor(manager, kind).charge(100 * self.second(kind), 0)
        manager.reload(QuotaLimits(), 0)
        assert manager.sensor(kind, "alice", "app", 0) is None
        assert len(manager) == 0

    def test_other_kinds_are_not_touched(self, kind: QuotaKind) -> None:
        manager = self.manager(kind)
        others = [other for other in BYTE_KINDS if other is not kind]
        assert [manager.sensor(other, "alice", "app", 0) for other in others] == [None] * len(others)


def test_all_connections_of_a_user_share_the_users_bucket() -> None:
    manager = QuotaManager(limits_of({ALICE: 1_000}))
    assert running(manager, "alice", "app") is running(manager, "alice", "other")


def test_each_user_of_a_default_has_a_bucket_of_its_own() -> None:
    manager = QuotaManager(limits_of({QuotaEntity(DEFAULT, None): 1_000}))
    alice, bob = running(manager, "alice", "app"), running(manager, "bob", "app")
    alice.charge(50_000, 0)
    assert bob.charge(1_000, 0) == 0
    assert (alice.entity, bob.entity) == (ALICE, QuotaEntity("bob", None))


def test_a_client_id_without_user_is_shared_by_all_users() -> None:
    manager = QuotaManager(limits_of({QuotaEntity(None, DEFAULT): 1_000}))
    assert running(manager, "alice", "app") is running(manager, "bob", "app")


def test_kinds_have_buckets_apart() -> None:
    manager = QuotaManager(QuotaLimits([(ALICE, {"producer_byte_rate": 1_000, "consumer_byte_rate": 2_000})]))
    produce, fetch = running(manager, "alice", "a", PRODUCE), running(manager, "alice", "a", FETCH)
    assert (produce.kind, produce.rate_per_s) == (PRODUCE, 1_000)
    assert (fetch.kind, fetch.rate_per_s) == (FETCH, 2_000)


def test_by_default_a_burst_is_one_second_and_debt_ends_at_sixty() -> None:
    sensor = running(QuotaManager(limits_of({ALICE: 1_000})), "alice", "app")
    assert sensor.charge(1_000, 0) == 0
    assert sensor.charge(99_000, 0) == 60_000


def test_a_new_sensor_has_the_managers_burst_and_cap() -> None:
    """Burst 3 s: 3,000 B are free. Cap 5 s."""
    manager = QuotaManager(limits_of({ALICE: 1_000}), burst_s=3.0, max_debt_ms=5_000.0)
    sensor = running(manager, "alice", "app")
    assert sensor.charge(3_000, 0) == 0
    assert sensor.charge(99_000, 0) == 5_000


def test_the_pacing_decides_what_a_charge_comes_to() -> None:
    """1,000 B/s, 2,500 B. Smooth, burst 1 s: 1,500 ms. Kafka, 3 windows of 0.75 s, 2 are free: 1,000."""
    limits = limits_of({ALICE: 1_000})
    smooth = running(QuotaManager(limits, window_num=3, window_size_s=0.75), "alice", "app")
    kafka = running(QuotaManager(limits, pacing="kafka", window_num=3, window_size_s=0.75), "alice", "app")
    assert [sensor.charge(2_500, 0) for sensor in (smooth, kafka)] == [1_500, 1_000]


def test_in_kafkas_pacing_too_a_reload_keeps_what_was_used_and_an_idle_hour_ends_it() -> None:
    """10,000 B at 1,000 B/s are free; at 500 B/s the same are 10 s above the limit, and 1 B more 2 ms."""
    manager = QuotaManager(limits_of({ALICE: 1_000}), pacing="kafka")
    sensor = running(manager, "alice", "app")
    sensor.charge(10_000, 0)
    manager.reload(limits_of({ALICE: 500}), 0)
    assert running(manager, "alice", "app") is sensor
    assert sensor.charge(1, 0) == 10_002
    assert manager.expire(HOUR_MS - 1) == 0
    assert manager.expire(HOUR_MS) == 1


@settings(deadline=None)
@given(names=st.lists(st.tuples(st.text(), st.text()), min_size=2, max_size=6, unique=True))
def test_names_of_any_characters_get_buckets_apart(names: list[tuple[str, str]]) -> None:
    manager = QuotaManager(limits_of({QuotaEntity(DEFAULT, DEFAULT): 1_000}))
    assert len({id(running(manager, *pair)) for pair in names}) == len(names)
    assert {(s.entity.user, s.entity.client_id) for s in manager.sensors()} == set(names)


def test_a_client_that_calls_itself_overflow_or_default_is_nobody_special() -> None:
    manager = QuotaManager(limits_of({QuotaEntity("alice", DEFAULT): 1_000}), max_client_ids_per_user=2)
    special = [running(manager, "alice", "<overflow>"), running(manager, "alice", "<default>")]
    assert running(manager, "alice", "third") not in special


# Reload


def test_a_reload_keeps_the_debt_of_a_bucket_whose_level_changes() -> None:
    """alice/app by its user's default, then by its own limit: the same bucket, 500 B owed all along."""
    manager = QuotaManager(limits_of({QuotaEntity("alice", DEFAULT): 1_000}))
    sensor = running(manager, "alice", "app")
    sensor.charge(1_500, 0)
    manager.reload(limits_of({QuotaEntity("alice", "app"): 100, QuotaEntity("alice", DEFAULT): 1_000}), 0)
    assert running(manager, "alice", "app") is sensor
    assert (sensor.level, sensor.rate_per_s, sensor.tokens(0)) == (QuotaLevel.USER_CLIENT, 100, -500)


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        (QuotaEntity("alice", None), [QuotaEntity(DEFAULT, None)], True),
        (QuotaEntity("alice", None), [QuotaEntity("alice", "other"), QuotaEntity("alice", None)], True),
        (QuotaEntity("alice", None), [QuotaEntity("alice", DEFAULT), QuotaEntity("alice", None)], False),
        (QuotaEntity("alice", None), [QuotaEntity("bob", None)], False),
        (QuotaEntity("alice", "app"), [QuotaEntity(DEFAULT, "app")], True),
        (QuotaEntity("alice", "app"), [QuotaEntity("alice", None)], False),
        (QuotaEntity(None, "app"), [QuotaEntity(None, DEFAULT)], True),
        (QuotaEntity(None, "app"), [QuotaEntity(None, "app"), QuotaEntity("bob", None)], True),
        (QuotaEntity(None, "app"), [QuotaEntity(None, "app"), QuotaEntity(DEFAULT, None)], False),
        (QuotaEntity(None, "app"), [QuotaEntity(None, "other")], False),
    ],
    ids=str,
)
def test_a_reload_keeps_a_bucket_exactly_if_some_client_still_reaches_it(
    before: QuotaEntity, after: list[QuotaEntity], kept: bool
) -> None:
    manager = QuotaManager(limits_of({before: 1_000}))
    sensor = running(manager, "alice", "app")
    manager.reload(limits_of(dict.fromkeys(after, 1_000)), 0)
    assert list(manager.sensors()) == ([sensor] if kept else [])


def test_every_reload_makes_sessions_ask_again() -> None:
    manager = QuotaManager(QuotaLimits())
    before = manager.generation
    manager.reload(limits_of({ALICE: 1}), 0)
    assert manager.generation == before + 1
    assert manager.limits.resolve(PRODUCE, "alice", "") is not None


@pytest.mark.parametrize("pacing", ["smooth", "kafka"])
def test_a_reload_puts_a_bucket_in_shadow_mode_and_in_force_again(pacing: Pacing) -> None:
    in_force = limits_of({ALICE: 1_000})
    in_shadow = QuotaLimits(in_force.entries.items(), shadow={ALICE: ["producer_byte_rate"]})
    manager = QuotaManager(in_force, pacing=pacing)
    sensor = running(manager, "alice", "app")
    shown = [sensor.shadow]
    for limits in (in_shadow, in_force):
        manager.reload(limits, 0)
        shown.append(sensor.shadow)
    assert shown == [False, True, False]
    assert running(QuotaManager(in_shadow, pacing=pacing), "alice", "app").shadow


def test_an_overflow_bucket_is_in_shadow_mode_as_the_default_that_matched() -> None:
    everybody = QuotaEntity(DEFAULT, DEFAULT)
    limits = QuotaLimits(
        limits_of({everybody: 1_000}).entries.items(), shadow={everybody: ["producer_byte_rate"]}
    )
    sensor = running(QuotaManager(limits, max_sensors=0), "alice", "app")
    assert (sensor.entity.user, sensor.shadow) == (OVERFLOW, True)


# What clients can mint


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


# Expiry


def test_a_sensor_idle_for_an_hour_goes_and_sessions_ask_again() -> None:
    manager = QuotaManager(limits_of({ALICE: 1_000}))
    running(manager, "alice", "app").charge(10, 5)
    before = manager.generation
    assert manager.expire(HOUR_MS + 4) == 0
    assert manager.generation == before
    assert manager.expire(HOUR_MS + 5) == 1
    assert manager.generation == before + 1
    assert len(manager) == 0


def test_a_sensor_that_was_looked_up_within_the_hour_stays() -> None:
    manager = QuotaManager(limits_of({ALICE: 1_000}))
    running(manager, "alice", "app")
    manager.sensor(PRODUCE, "alice", "app", 5)
    assert manager.expire(HOUR_MS) == 0


def test_an_overflow_bucket_that_was_looked_up_within_the_hour_stays() -> None:
    manager = minting_manager(max_client_ids_per_user=0)
    running(manager, "alice", "a")
    manager.sensor(PRODUCE, "alice", "b", 5)
    assert manager.expire(HOUR_MS) == 0


def test_a_sensor_in_debt_stays_however_idle() -> None:
    """7,200 s of debt at 0, at 1 B/s, no cap; paid at 7,200 s."""
    manager = QuotaManager(limits_of({ALICE: 1}), max_debt_ms=1e18)
    running(manager, "alice", "app").charge(7_201, 0)
    assert manager.expire(2 * HOUR_MS - 1) == 0
    assert manager.expire(2 * HOUR_MS) == 1


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
