"""Early warning: once for who stays near the limit, never for a burst, and an end that is told too."""

from __future__ import annotations

import asyncio

import pytest
import structlog

from sluice.proxy.metrics.quota_warning import RELEASE, SURE_MS, QuotaWarnings
from sluice.proxy.metrics.usage_meter import UsageMeter
from sluice.proxy.runtime.log import LineBudget
from sluice.quotas.entity import QuotaEntity, QuotaLevel
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.quotas.sensors.smooth import SmoothSensor
from sluice.usage.records import Recorder


class Watch:
    """One sensor of 1,000 B/s, looked at."""

    def __init__(self, share: float = 0.8, lines_per_s: int = 20) -> None:
        self.warnings = QuotaWarnings(share, LineBudget(lines_per_s))
        self.sensor = SmoothSensor(QuotaKind.PRODUCE, QuotaLevel.USER, QuotaEntity("alice"), 1_000.0, 0.0)

    def look(self, *steps: tuple[float, float]) -> list[bool]:
        """At (ms, utilisation); whether a warning began."""
        return [self.warnings.look(self.sensor, used, now_ms) for now_ms, used in steps]

    @property
    def told(self) -> list[str]:
        return [name for name, _ in self.warnings.lines]


def test_who_stays_at_the_share_is_warned_of_once_and_its_end_is_told() -> None:
    watch = Watch()
    begun = watch.look((0, 0.8), (5_000, 0.9), (SURE_MS, 0.95), (20_000, 1.0), (30_000, 0.75), (40_000, 0.71))
    assert begun == [False, False, True, False, False, False]
    assert watch.told == ["quota_warning_began", "quota_warning_ended"]
    whom = {"quota": "produce", "rule": "user", "user": "alice", "limit_bytes_per_s": 1000.0, "share": 0.8}
    assert [fields for _, fields in watch.warnings.lines] == [
        {**whom, "utilization": 0.95},
        {**whom, "lasted_s": 40.0, "peak_utilization": 1.0},
    ]
    assert not watch.warnings.is_warned(watch.sensor)


def test_a_burst_does_not_warn() -> None:
    watch = Watch()
    assert not any(watch.look((0, 3.0), (9_999, 0.9), (10_000, 0.79), (11_000, 0.9), (20_999, 0.9)))
    assert watch.told == []


def test_who_hovers_at_the_share_does_not_flap() -> None:
    watch = Watch()
    steps = [(step * 1_000.0, 0.82 if step % 2 else 0.8 * RELEASE + 0.01) for step in range(11, 100)]
    assert watch.look((0, 0.9), (10_000, 0.9), *steps).count(True) == 1
    assert watch.told == ["quota_warning_began"]


def test_below_the_share_and_with_a_share_of_0_nothing_is_told() -> None:
    for share, used in ((0.8, 0.799), (0.0, 5.0)):
        watch = Watch(share)
        assert not any(watch.look((0, used), (10_000, used), (20_000, used)))
        assert watch.told == []


def test_a_share_that_is_taken_back_ends_the_warning() -> None:
    watch = Watch()
    watch.look((0, 0.9), (10_000, 0.9))
    watch.warnings.share = 0.0
    watch.look((20_000, 0.9))
    assert watch.told == ["quota_warning_began", "quota_warning_ended"]


def test_a_limit_that_is_dropped_ends_its_warning_and_is_forgotten() -> None:
    watch = Watch()
    watch.look((0, 0.9), (10_000, 0.9))
    watch.warnings.forget(watch.sensor, 15_000)
    watch.warnings.forget(watch.sensor, 16_000)
    assert watch.told == ["quota_warning_began", "quota_warning_ended"]
    assert watch.look((20_000, 0.9)) == [False]  # from the beginning


def test_a_limit_in_shadow_mode_is_told_apart() -> None:
    watch = Watch()
    watch.sensor.shadow = True
    watch.look((0, 0.9), (10_000, 0.9))
    ((_, fields),) = watch.warnings.lines
    assert fields["shadow"] is True


def test_many_warnings_at_once_are_told_as_a_number_and_still_counted() -> None:
    warnings = QuotaWarnings(0.8, LineBudget(2))
    sensors = [
        SmoothSensor(QuotaKind.FETCH, QuotaLevel.USER, QuotaEntity(f"user-{n}"), 1.0, 0.0) for n in range(5)
    ]
    begun = [warnings.look(sensor, 1.0, now_ms) for now_ms in (0.0, 10_000.0) for sensor in sensors]
    assert begun.count(True) == 5
    assert len(warnings.lines) == 2
    warnings.look(sensors[0], 0.1, 12_000.0)
    assert warnings.lines[-1][1]["lines_suppressed"] == 3


@pytest.mark.parametrize("share", [0.8, 0.0])
def test_a_process_warns_counts_and_logs(share: float) -> None:
    """900 B a second of 1,000 for 40 s, then silence."""
    quotas = QuotaManager(QuotaLimits([(QuotaEntity("alice"), {"producer_byte_rate": 1000})]))
    meter = UsageMeter(Recorder(), quotas, warning_share=share)
    at = ("produce", "alice", "")
    seen = []
    with structlog.testing.capture_logs() as lines:
        for second in range(80):
            now_ms = second * 1_000.0
            if second < 40:
                sensor = quotas.sensor(QuotaKind.PRODUCE, "alice", "app", now_ms)
                assert sensor is not None
                assert sensor.charge(900, now_ms) <= now_ms  # never delayed
            if second % 10 == 0:
                asyncio.run(meter.fold(now_ms))
                meter.drain(now_ms)
                seen.append(meter.warned[at])
    (series,) = meter.entities
    if share:
        assert seen == [0, 0, 1, 1, 1, 0, 0, 0]
        assert series.warnings == 1
        assert [(line["event"], line["log_level"]) for line in lines] == [
            ("quota_warning_began", "warning"),
            ("quota_warning_ended", "warning"),
        ]
    else:
        assert not any(seen)
        assert not series.warnings
        assert not lines


def test_a_reload_that_drops_the_limit_ends_its_warning() -> None:
    quotas = QuotaManager(QuotaLimits([(QuotaEntity("alice"), {"producer_byte_rate": 1000})]))
    meter = UsageMeter(Recorder(), quotas, warning_share=0.5)
    with structlog.testing.capture_logs() as lines:
        for now_ms in range(0, 40_000, 10_000):
            sensor = quotas.sensor(QuotaKind.PRODUCE, "alice", "app", now_ms)
            assert sensor is not None
            sensor.charge(10_000, now_ms)
            asyncio.run(meter.fold(now_ms))
        quotas.reload(QuotaLimits(), 40_000.0)
        asyncio.run(meter.fold(40_000.0))
        meter.drain(40_000.0)
    assert [line["event"] for line in lines] == ["quota_warning_began", "quota_warning_ended"]
    assert meter.warned == {}
