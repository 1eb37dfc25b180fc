"""A usage meter and the records, quotas and sensors that it reads from."""

from __future__ import annotations

import asyncio

from sluice.proxy.metrics.entity_series import EntitySeries
from sluice.proxy.metrics.usage_meter import UsageMeter
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.quotas.sensors.sensor import Sensor
from sluice.usage.records import EventKind, Flow, Recorder, ThrottleEvent
from testkit.access_log.finished import Finished

PRODUCE, FETCH, METADATA, SHARE_FETCH = 0, 1, 3, 78
NOW_MS = 1_000_000.0


def limits_of(**rates: int) -> QuotaLimits:
    """producer_byte_rate by user, `default` for the default user."""
    return QuotaLimits(
        (QuotaEntity(DEFAULT if user == "default" else user), {"producer_byte_rate": rate})
        for user, rate in rates.items()
    )


class Bench:
    """A meter and what it reads from."""

    def __init__(
        self, limits: QuotaLimits, max_series: int = 10_000, max_sensors: int = 100_000, max_users: int = 0
    ) -> None:
        self.recorder = Recorder()
        self.quotas = QuotaManager(limits, max_sensors=max_sensors)
        self.meter = UsageMeter(self.recorder, self.quotas, max_series=max_series, max_users=max_users)

    def sensor(self, user: str, client_id: str = "app", now_ms: float = NOW_MS) -> Sensor:
        found = self.quotas.sensor(QuotaKind.PRODUCE, user, client_id, now_ms)
        assert found is not None
        return found

    def request(
        self,
        api_key: int = PRODUCE,
        *,
        user: str = "alice",
        client_id: str = "app",
        request_bytes: int = 100,
        response_bytes: int = 50,
        upstream_ms: float = 1.0,
        throttle_ms: float = 0.0,
        sensor: Sensor | None = None,
    ) -> None:
        self.recorder.requests.append(
            Finished(
                Flow(client_id), request_bytes, response_bytes, upstream_ms, throttle_ms, 0.0, NOW_MS,
                api_key, 9, user, sensor,
            )
        )  # fmt: skip

    def drain(self, now_ms: float = NOW_MS) -> None:
        self.meter.drain(now_ms)

    def fold(self, now_ms: float = NOW_MS) -> None:
        asyncio.run(self.meter.fold(now_ms))

    def series(self, quota: str = "produce") -> dict[tuple[str, str], EntitySeries]:
        return {(one.user, one.client_id): one for one in self.meter.entities if one.quota == quota}


def event(user: str) -> ThrottleEvent:
    return ThrottleEvent(EventKind.MUTE, NOW_MS, 100.0, "produce", "user", user, "app", PRODUCE, 1000)
