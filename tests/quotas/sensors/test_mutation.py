"""controller_mutation_rate: the sensor by itself. (Its bucket against Kafka's: test_kafka_rate_java.py.)"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.quotas.entity import QuotaEntity, QuotaLevel
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import Pacing, QuotaManager
from sluice.quotas.sensors.mutation import MutationSensor
from testkit.thorough import cases

ALICE = QuotaEntity("alice")
START_MS = 10_000.0


def sensor_of(rate_per_s: float = 2.0, now_ms: float = START_MS, window_num: int = 11) -> MutationSensor:
    return MutationSensor(QuotaLevel.USER, ALICE, rate_per_s, now_ms, window_num=window_num)


def test_the_worked_example() -> None:
    sensor = sensor_of()
    assert sensor.tokens(START_MS) == 22
    assert sensor.charge(20, START_MS) == START_MS
    assert sensor.tokens(START_MS) == 2
    assert sensor.charge(12, START_MS) == START_MS + 5_000
    assert sensor.tokens(START_MS + 1_000) == -8
    assert sensor.charge(0, START_MS + 1_000) == START_MS + 5_000
    assert sensor.tokens(START_MS + 5_000) == 0


@pytest.mark.parametrize("now_ms", [0.0, 3.0, 1e9, 1.7e12])
def test_it_begins_full_whenever_its_clock_began(now_ms: float) -> None:
    assert sensor_of(now_ms=now_ms).tokens(now_ms) == 22


def test_a_refund_never_fills_it_beyond_its_burst() -> None:
    sensor = sensor_of()
    sensor.charge(5, START_MS)
    sensor.refund(50, START_MS)
    assert sensor.tokens(START_MS) == 22
    assert (sensor.charged, sensor.refunded) == (5, 50)


def test_waiving_ends_a_debt_and_leaves_credit() -> None:
    sensor = sensor_of()
    sensor.charge(32, START_MS)
    sensor.waive(START_MS)
    assert sensor.tokens(START_MS) == 0
    sensor.waive(START_MS + 1_000)
    assert sensor.tokens(START_MS + 1_000) == 2


def test_another_rate_leaves_the_debt_and_fills_at_its_own_speed_from_then_on() -> None:
    """10 owed; a second at 2/s pays 2, two at 4/s the rest."""
    sensor = sensor_of()
    sensor.charge(32, START_MS)
    sensor.update(4.0, QuotaLevel.DEFAULT_USER, START_MS + 1_000)
    assert sensor.tokens(START_MS + 1_000) == -8
    assert sensor.tokens(START_MS + 3_000) == 0
    assert sensor.level is QuotaLevel.DEFAULT_USER


@pytest.mark.parametrize("pacing", ["smooth", "kafka"])
def test_the_manager_gives_it_in_either_pacing_with_the_controllers_windows(pacing: Pacing) -> None:
    limits = QuotaLimits([(ALICE, {"controller_mutation_rate": 2})])
    manager = QuotaManager(limits, pacing=pacing, window_num=3, controller_window_num=5)
    sensor = manager.sensor(QuotaKind.CONTROLLER_MUTATION, "alice", "app", START_MS)
    assert isinstance(sensor, MutationSensor)
    assert sensor.tokens(START_MS) == 10


@settings(deadline=None, max_examples=cases(300))
@given(
    rate=st.floats(0.1, 1e4),
    steps=st.lists(st.tuples(st.integers(0, 30_000), st.integers(1, 10_000)), min_size=1, max_size=40),
)
def test_a_strict_caller_never_passes_the_burst_the_rate_and_one_operation(
    rate: float, steps: list[tuple[int, int]]
) -> None:
    """What passed in T seconds is at most the burst + rate · T, and beyond it the one that made the debt."""
    sensor = sensor_of(rate)
    now_ms, passed, largest = START_MS, 0, 0
    for gap_ms, partitions in steps:
        now_ms += gap_ms
        if sensor.tokens(now_ms) >= 0.0:
            sensor.charge(partitions, now_ms)
            passed += partitions
            largest = max(largest, partitions)
        allowed = rate * (11 + (now_ms - START_MS) / 1000.0)
        assert passed <= allowed + largest + 1e-6 * allowed


def test_partitions_that_go_on_above_the_limit_are_counted_for_nobody() -> None:
    """They are refused, or their connection waits: none passes beyond."""
    sensor = sensor_of()
    sensor.count_over(5, 1_000.0)
    assert sensor.over == 0
