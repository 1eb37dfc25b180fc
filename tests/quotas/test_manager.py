"""Sensors by bucket: who shares one, what a reload keeps, when idle ones go."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.quotas.entity import DEFAULT, OVERFLOW, QuotaEntity, QuotaLevel
from sluice.quotas.kinds import BYTE_KINDS, KINDS, QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import Pacing, QuotaManager
from sluice.quotas.sensors.sensor import Sensor
from testkit.quotas.managers import ALICE, FETCH, HOUR_MS, PRODUCE, limits_of, running

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


def test_a_sensor_in_debt_stays_however_idle() -> None:
    """7,200 s of debt at 0, at 1 B/s, no cap; paid at 7,200 s."""
    manager = QuotaManager(limits_of({ALICE: 1}), max_debt_ms=1e18)
    running(manager, "alice", "app").charge(7_201, 0)
    assert manager.expire(2 * HOUR_MS - 1) == 0
    assert manager.expire(2 * HOUR_MS) == 1
