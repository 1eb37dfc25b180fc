"""A reload in steps, between which sessions go on; look-ups that are remembered, and for how long."""

from __future__ import annotations

import re

from sluice.quotas.entity import DEFAULT, OVERFLOW, QuotaEntity
from sluice.quotas.exempt import ExemptRule, network_of
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import SENSORS_PER_STEP, QuotaManager
from sluice.quotas.sensors.sensor import Sensor

PRODUCE = QuotaKind.PRODUCE
EACH_CLIENT = QuotaEntity("alice", DEFAULT)


def limits_of(rate: int, *entities: QuotaEntity) -> QuotaLimits:
    return QuotaLimits([(entity, {"producer_byte_rate": rate}) for entity in entities or (EACH_CLIENT,)])


def running(manager: QuotaManager, client_id: str, now_ms: float = 0.0) -> Sensor:
    sensor = manager.sensor(PRODUCE, "alice", client_id, now_ms)
    assert sensor is not None
    return sensor


def manager_with(sensors: int, max_client_ids: int | None = None) -> QuotaManager:
    manager = QuotaManager(limits_of(1_000), max_client_ids_per_user=max_client_ids or sensors)
    for index in range(sensors):
        running(manager, f"c{index}")
    return manager


def remembered(manager: QuotaManager) -> int:
    found = re.search(r"(\d+) look-ups remembered", repr(manager))
    assert found is not None
    return int(found[1])


def test_a_reload_pauses_after_so_many_sensors() -> None:
    manager = manager_with(3 * SENSORS_PER_STEP)
    assert sum(1 for _ in manager.reload_in_steps(limits_of(7), 0)) == 3
    assert {sensor.rate_per_s for sensor in manager.sensors()} == {7}


def test_from_the_first_step_on_the_new_limits_are_in_force_for_whoever_asks() -> None:
    manager = manager_with(3 * SENSORS_PER_STEP)
    last = running(manager, f"c{3 * SENSORS_PER_STEP - 1}")
    generation = manager.generation
    steps = manager.reload_in_steps(limits_of(7), 0)
    next(steps)
    assert manager.generation == generation + 1
    assert last.rate_per_s == 1_000, "its turn has not come"
    assert running(manager, f"c{3 * SENSORS_PER_STEP - 1}") is last
    assert last.rate_per_s == 7


def test_a_sensor_that_was_asked_for_between_the_steps_is_not_changed_again() -> None:
    """3,000 B at 1,000 B/s, burst 1 s, leave a debt of 2,000 B, after 1 s 1,000 B; then 500 B more."""
    manager = manager_with(2 * SENSORS_PER_STEP)
    name = f"c{2 * SENSORS_PER_STEP - 1}"
    sensor = running(manager, name)
    sensor.charge(3_000, 0.0)
    steps = manager.reload_in_steps(limits_of(500), 0.0)
    next(steps)
    assert running(manager, name, 1_000.0).charge(500, 1_000.0) == 1_000.0 + 1_500 / 500 * 1_000
    for _ in steps:
        pass
    assert (sensor.tokens(1_000.0), sensor.rate_per_s) == (-1_500.0, 500)


def test_a_second_reload_ends_the_first_and_does_its_work() -> None:
    manager = manager_with(3 * SENSORS_PER_STEP)
    first = manager.reload_in_steps(limits_of(7), 0)
    next(first)
    manager.reload(limits_of(9), 0)
    assert list(first) == []
    assert {sensor.rate_per_s for sensor in manager.sensors()} == {9}


def test_sensors_that_come_and_go_between_the_steps_do_not_disturb() -> None:
    manager = manager_with(3 * SENSORS_PER_STEP)
    steps = manager.reload_in_steps(limits_of(7), 0)
    next(steps)
    late = manager.sensor(PRODUCE, "alice", "late", 4_000_000.0)
    manager.expire(4_000_000.0)
    for _ in steps:
        pass
    assert list(manager.sensors()) == [late]


def test_who_was_sent_to_an_overflow_bucket_between_the_steps_asks_again_when_there_is_room() -> None:
    manager = manager_with(2 * SENSORS_PER_STEP)
    last = QuotaEntity("alice", f"c{2 * SENSORS_PER_STEP - 1}")  # counts no longer when its turn has come
    steps = manager.reload_in_steps(limits_of(7, EACH_CLIENT, last), 0)
    next(steps)
    generation = manager.generation
    assert running(manager, "late").entity == QuotaEntity("alice", OVERFLOW)
    for _ in steps:
        pass
    assert manager.generation == generation + 1
    assert running(manager, "late").entity == QuotaEntity("alice", "late")


def test_a_look_up_is_remembered_until_limits_or_sensors_change() -> None:
    manager = manager_with(1)
    sensor = running(manager, "c0")
    assert (remembered(manager), running(manager, "c0", 5.0), sensor.last_ms) == (1, sensor, 5.0)
    manager.reload(limits_of(7), 0)
    assert remembered(manager) == 0
    assert running(manager, "c0").rate_per_s == 7
    manager.expire(4_000_000.0)
    assert remembered(manager) == 0
    assert running(manager, "c0") is not sensor


def test_that_somebody_is_unlimited_is_remembered_until_a_reload() -> None:
    manager = QuotaManager(QuotaLimits())
    assert [manager.sensor(PRODUCE, "alice", "x", 0) for _ in range(2)] == [None, None]
    assert remembered(manager) == 1
    manager.reload(limits_of(7), 0)
    assert running(manager, "x").rate_per_s == 7


def test_what_is_remembered_is_bounded_in_number_and_in_the_length_of_names() -> None:
    manager = QuotaManager(limits_of(1, QuotaEntity("alice")))
    for index in range(50_000):
        running(manager, f"c{index}")
    assert 0 < remembered(manager) <= 16_384
    manager.reload(limits_of(1, QuotaEntity("alice")), 0)
    running(manager, "x" * 65)
    assert remembered(manager) == 0


def test_an_overflow_is_not_remembered_nor_anything_that_depends_on_an_address() -> None:
    manager = manager_with(2, max_client_ids=1)
    assert remembered(manager) == 1
    limits = QuotaLimits(limits_of(1).entries.items(), exempt=[ExemptRule(network=network_of("10.0.0.0/8"))])
    manager = QuotaManager(limits)
    exempt, other = (manager.sensor(PRODUCE, "alice", "x", 0, ip) for ip in ("10.0.0.1", "11.0.0.1"))
    assert exempt is not None
    assert other is not None
    assert (exempt.exempt, other.exempt, remembered(manager)) == (True, False, 0)
