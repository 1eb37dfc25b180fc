"""Limits by entity, and the sensors that a manager runs for them."""

from __future__ import annotations

from sluice.quotas.entity import QuotaEntity
from sluice.quotas.kinds import KINDS, QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
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
