"""What a limit in shadow mode says, beside one connection that is really delayed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.quotas.entity import QuotaEntity
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import Pacing, QuotaManager
from sluice.quotas.sensors.sensor import Sensor

START_MS = 10_000.0
REQUESTS = st.lists(
    st.tuples(st.sampled_from([0, 1, 10, 100, 999, 1_000, 5_000]), st.integers(0, 4_000)), max_size=60
)
"""ms since the one before, bytes"""


def sensor_of(pacing: Pacing) -> Sensor:
    """1,000 B/s."""
    manager = QuotaManager(
        QuotaLimits([(QuotaEntity("alice"), {"producer_byte_rate": 1_000})]), pacing=pacing
    )
    sensor = manager.sensor(QuotaKind.PRODUCE, "alice", "app", START_MS)
    assert sensor is not None
    return sensor


def would_be_delays(pacing: Pacing, requests: list[tuple[int, int]]) -> list[float]:
    """Nobody waits."""
    sensor = sensor_of(pacing)
    now_ms = START_MS
    delays = []
    for gap_ms, amount in requests:
        now_ms += gap_ms
        delays.append(max(0.0, sensor.charge(amount, now_ms) - now_ms))
        sensor.waive(now_ms)
    return delays


def delays_of_one_connection(pacing: Pacing, requests: list[tuple[int, int]]) -> list[float]:
    """Each request waits for the delay of the one before, and as long as there was between them."""
    sensor = sensor_of(pacing)
    now_ms = START_MS
    delays: list[float] = []
    for gap_ms, amount in requests:
        now_ms += gap_ms + (delays[-1] if delays else 0.0)
        delays.append(max(0.0, sensor.charge(amount, now_ms) - now_ms))
    return delays


@settings(deadline=None)
@given(requests=REQUESTS)
def test_the_would_be_delays_of_smooth_pacing_are_those_of_a_connection_that_waits(
    requests: list[tuple[int, int]],
) -> None:
    assert would_be_delays("smooth", requests) == pytest.approx(delays_of_one_connection("smooth", requests))


@pytest.mark.parametrize("times_the_limit", [1.1, 2, 4, 10])
def test_the_would_be_delays_of_kafkas_pacing_add_up_to_those_of_a_connection_that_waits(
    times_the_limit: float,
) -> None:
    """Five minutes, ten requests a second. Not one by one: the waiting moves the edges of the windows."""
    requests = [(100, int(100 * times_the_limit))] * 3_000
    total_ms = sum(delays_of_one_connection("kafka", requests))
    assert total_ms > 30_000
    assert sum(would_be_delays("kafka", requests)) == pytest.approx(total_ms, rel=0.03)
