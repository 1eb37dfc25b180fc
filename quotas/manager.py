"""Which sensor a connection charges: one a bucket and kind, made on first use, dropped after an idle hour.

Sessions keep the sensor they got and ask again when `generation` has moved. One manager a worker; not for
several threads. Knows no clock, no connections, no files. Source: ClientQuotaManager.getOrCreateQuotaSensors,
updateQuotaMetricConfigs; wire-semantics 4.3, 4.4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

from sluice.quotas.entity import OVERFLOW, Default, Overflow, Part, QuotaEntity, QuotaLevel
from sluice.quotas.exempt import exempt_sensor
from sluice.quotas.kafka_rate import DEFAULT_WINDOW_NUM, DEFAULT_WINDOW_SIZE_S
from sluice.quotas.kafka_sensor import KafkaSensor
from sluice.quotas.kinds import KINDS, QuotaKind
from sluice.quotas.limits import Match, QuotaLimits
from sluice.quotas.sensor import Sensor
from sluice.quotas.smooth_sensor import DEFAULT_BURST_S, DEFAULT_MAX_DEBT_MS, SmoothSensor

EXPIRY_MS: Final = 3_600_000.0
"""Kafka's INACTIVE_SENSOR_EXPIRATION_TIME_SECONDS"""

Pacing: TypeAlias = Literal["smooth", "kafka"]
_Name: TypeAlias = str | Default | Overflow | None
_Key: TypeAlias = tuple[_Name, _Name]


class QuotaManager:
    """All running sensors of one worker, under one snapshot of limits.

    Buckets that come into being through a default are what a client can mint, with each client id it thinks
    of. So a user's minted client ids share one overflow bucket of the user beyond `max_client_ids_per_user`
    (a kind), and beyond nine tenths of `max_sensors` in all; the last tenth is kept for buckets of which a
    user has but one, so that a user with many client ids delays no other. Only beyond that do users share:
    one overflow bucket for all. An overflow bucket has the limit of the default that matched: never
    unbounded, never free. Configured entities always get their own; they are not counted.
    """

    def __init__(
        self,
        limits: QuotaLimits,
        *,
        pacing: Pacing = "smooth",
        burst_s: float = DEFAULT_BURST_S,
        max_debt_ms: float = DEFAULT_MAX_DEBT_MS,
        window_num: int = DEFAULT_WINDOW_NUM,
        window_size_s: float = DEFAULT_WINDOW_SIZE_S,
        max_client_ids_per_user: int = 1_000,
        max_sensors: int = 100_000,
    ) -> None:
        """`burst_s` and `max_debt_ms` are of smooth pacing, `window_num` and `window_size_s` of Kafka's."""
        self.generation = 0
        """moves when a session may have to ask for its sensors again"""
        self.overflows = 0
        """look-ups that were sent to an overflow bucket"""
        self._limits = limits
        self._pacing = pacing
        self._burst_s = burst_s
        self._max_debt_ms = max_debt_ms
        self._window_num = window_num
        self._window_size_s = window_size_s
        self._max_client_ids_per_user = max_client_ids_per_user
        self._max_sensors = max_sensors
        self._client_id_room = max_sensors - max_sensors // 10
        self._sensors: dict[QuotaKind, dict[_Key, Sensor]] = {kind: {} for kind in KINDS}
        self._exempt = {kind: exempt_sensor(kind) for kind in KINDS}
        self._minted = 0
        self._minted_by: Counter[tuple[QuotaKind, str]] = Counter()

    @property
    def limits(self) -> QuotaLimits:
        """The snapshot in force."""
        return self._limits

    def sensor(
        self, kind: QuotaKind, user: str, client_id: str, now_ms: float, address: str = ""
    ) -> Sensor | None:
        """What a connection of this user and client id charges; None: unlimited. A null client id is "".

        `address`: the client's, for exempt rules. Exempt connections charge one sensor that is not among
        `sensors`, and mint none.
        """
        limits = self._limits
        if limits.exempt and limits.exempt.find(user, client_id, address) is not None:
            return self._exempt[kind]
        match = limits.resolve(kind, user, client_id)
        if match is None:
            return None
        bucket = match.bucket
        sensor = self._sensors[kind].get((bucket.user, bucket.client_id))
        if sensor is None:
            return self._make(kind, match, user, now_ms)
        sensor.last_ms = now_ms
        return sensor

    def id_limit(self, user: str, client_id: str, address: str) -> tuple[float, bool, str] | None:
        """New producer ids an hour that `user` may bring, whether that is enforced, and the level's name.

        None: unlimited. Not enforced: exempt, or in shadow mode; then all is measured and nobody waits.
        """
        match = self._limits.resolve(QuotaKind.PRODUCER_IDS, user, "")
        if match is None:
            return None
        exempt = self._limits.exempt.find(user, client_id, address) is not None
        return match.limit, not (exempt or match.shadow), match.level.value

    def reload(self, limits: QuotaLimits, now_ms: float) -> None:
        """Put other limits in force.

        A bucket that some client still reaches goes on, its debt kept; others are dropped.
        """
        self._limits = limits
        for kind, sensors in self._sensors.items():
            dropped = []
            for key, sensor in sensors.items():
                match = self._still_reached(kind, sensor.entity)
                if match is None:
                    dropped.append(key)
                else:
                    rate_per_s = KINDS[kind].rate_per_s(match.limit)
                    sensor.update(rate_per_s, match.level, now_ms)
                    sensor.shadow = match.shadow
            for key in dropped:
                del sensors[key]
        self._recount()
        self.generation += 1

    def expire(self, now_ms: float) -> int:
        """Drop sensors that nobody charged or looked up for an hour and that owe nothing; return how many."""
        removed = 0
        for sensors in self._sensors.values():
            idle = [
                key
                for key, sensor in sensors.items()
                if now_ms - sensor.last_ms >= EXPIRY_MS and sensor.tokens(now_ms) >= 0.0
            ]
            for key in idle:
                del sensors[key]
            removed += len(idle)
        if removed:
            self._recount()
            self.generation += 1
        return removed

    def sensors(self) -> Iterator[Sensor]:
        """All running sensors, by kind. Do not reload or expire while iterating."""
        for sensors in self._sensors.values():
            yield from sensors.values()

    def __len__(self) -> int:
        return sum(len(sensors) for sensors in self._sensors.values())

    def __repr__(self) -> str:
        return (
            f"<QuotaManager generation {self.generation}: {len(self)} sensors, {self._minted} minted, "
            f"{self.overflows} overflows>"
        )

    def _make(self, kind: QuotaKind, match: Match, user: str, now_ms: float) -> Sensor:
        """The sensor of a bucket that has none yet: its own, or beyond a cap an overflow bucket's."""
        level = match.level
        entity = match.bucket
        sensors = self._sensors[kind]
        if level.mints_client_ids and (
            self._minted_by[kind, user] >= self._max_client_ids_per_user
            or self._minted >= self._client_id_room
        ):
            entity = _overflow_of_user(user)
        sensor = sensors.get((entity.user, entity.client_id))
        if sensor is None and _is_mintable(level, entity) and self._minted >= self._max_sensors:
            entity = _overflow_of_all(level, match.bucket)
            sensor = sensors.get((entity.user, entity.client_id))
        if entity is not match.bucket:
            self.overflows += 1
        if sensor is not None:
            sensor.last_ms = now_ms
            return sensor
        sensor = self._new_sensor(kind, level, entity, KINDS[kind].rate_per_s(match.limit), now_ms, user)
        sensor.shadow = match.shadow
        sensors[entity.user, entity.client_id] = sensor
        self._count(sensor)
        return sensor

    def _new_sensor(
        self,
        kind: QuotaKind,
        level: QuotaLevel,
        entity: QuotaEntity,
        rate_per_s: float,
        now_ms: float,
        owner: str,
    ) -> Sensor:
        if self._pacing == "kafka":
            return KafkaSensor(
                kind,
                level,
                entity,
                rate_per_s,
                now_ms,
                window_num=self._window_num,
                window_size_s=self._window_size_s,
                owner=owner,
            )
        return SmoothSensor(
            kind,
            level,
            entity,
            rate_per_s,
            now_ms,
            burst_s=self._burst_s,
            max_debt_ms=self._max_debt_ms,
            owner=owner,
        )

    def _count(self, sensor: Sensor) -> None:
        level = sensor.level
        if _is_mintable(level, sensor.entity):
            self._minted += 1
            if level.mints_client_ids and sensor.entity.client_id is not OVERFLOW:
                self._minted_by[sensor.kind, sensor.owner] += 1

    def _recount(self) -> None:
        """Counting anew is as cheap as the walk that made it necessary, and cannot drift."""
        self._minted = 0
        self._minted_by.clear()
        for sensor in self.sensors():
            self._count(sensor)

    def _still_reached(self, kind: QuotaKind, entity: QuotaEntity) -> Match | None:
        """What the limits in force say of a running bucket; None if no client reaches it any more.

        A bucket without a user (client id) is reached exactly if it is by one that nobody configured, and so
        is an overflow bucket. The empty name is such a one: it cannot be configured.
        """
        user = entity.user if isinstance(entity.user, str) else ""
        client_id = entity.client_id if isinstance(entity.client_id, str) else ""
        match = self._limits.resolve(kind, user, client_id)
        if match is None:
            return None
        level = match.level
        reached = entity == match.bucket
        if level.mints_client_ids:
            reached = reached or entity == _overflow_of_user(user)
        if _mints_for_any_user(level):
            reached = reached or entity == _overflow_of_all(level, match.bucket)
        return match if reached else None


def _mints_for_any_user(level: QuotaLevel) -> bool:
    """Users that nobody configured reach this level, and each may make a bucket."""
    return level.mints_buckets and level.user_part is not Part.EXACT


def _is_mintable(level: QuotaLevel, entity: QuotaEntity) -> bool:
    """Counts against max_sensors: how many such buckets there are is not bounded by the configuration."""
    if entity.user is OVERFLOW:
        return False
    if level.user_part is Part.EXACT:
        return level.mints_client_ids and entity.client_id is not OVERFLOW
    return level.mints_buckets


def _overflow_of_user(user: str) -> QuotaEntity:
    """Shared by the client ids of one user beyond its cap."""
    return QuotaEntity(user, OVERFLOW)


def _overflow_of_all(level: QuotaLevel, bucket: QuotaEntity) -> QuotaEntity:
    """Shared by users beyond the cap on all; as many of these as configured client ids, plus two."""
    return QuotaEntity(OVERFLOW, OVERFLOW if level.mints_client_ids else bucket.client_id)
