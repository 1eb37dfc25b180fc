"""Which sensor a connection charges: one a bucket and kind, made on first use, dropped after an idle hour.

Sessions keep the sensor they got and ask again when `generation` has moved. One manager a worker; not for
several threads. Knows no clock, no connections, no files. Source: ClientQuotaManager.getOrCreateQuotaSensors,
updateQuotaMetricConfigs; wire-semantics 4.3, 4.4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Final, Literal, TypeAlias

from sluice.quotas.entity import OVERFLOW, Part, Prefix, QuotaEntity, QuotaLevel, Tenant
from sluice.quotas.exempt import exempt_sensor
from sluice.quotas.kinds import KINDS, QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.limits.tables import Match
from sluice.quotas.sensors.kafka import KafkaSensor
from sluice.quotas.sensors.kafka_rate import DEFAULT_WINDOW_NUM, DEFAULT_WINDOW_SIZE_S
from sluice.quotas.sensors.mutation import MutationSensor
from sluice.quotas.sensors.sensor import Sensor
from sluice.quotas.sensors.smooth import DEFAULT_BURST_S, DEFAULT_MAX_DEBT_MS, SmoothSensor

EXPIRY_MS: Final = 3_600_000.0
"""Kafka's INACTIVE_SENSOR_EXPIRATION_TIME_SECONDS"""

SENSORS_PER_STEP: Final = 500
"""of a reload: about a millisecond of work"""
_BYTE_RATES: Final = frozenset({QuotaKind.PRODUCE, QuotaKind.FETCH})
_NO_LIMIT_PER_S: Final = 1e15
"""of a sensor whose limit is removed, for what it holds"""
_MAX_FOUND: Final = 16_384
_MAX_FOUND_NAME: Final = 64
"""characters; clients choose their ids, and a look-up that is remembered keeps them alive"""

Pacing: TypeAlias = Literal["smooth", "kafka"]


class QuotaManager:
    """All running sensors of one worker, under one snapshot of limits.

    Buckets that come into being through a default are what a client can mint, with each client id it thinks
    of. So a user's minted client ids share one overflow bucket of the user beyond `max_client_ids_per_user`
    (a kind), and beyond nine tenths of `max_sensors` in all; the last tenth is kept for buckets of which a
    user has but one, so that a user with many client ids delays no other. Only beyond that do users share:
    one overflow bucket for all. An overflow bucket has the limit of the default that matched: never
    unbounded, never free. Configured entities always get their own; they are not counted.
    """

    __slots__ = (
        "_burst_s",
        "_client_id_room",
        "_controller_window_num",
        "_controller_window_size_s",
        "_dropped",
        "_exempt",
        "_found",
        "_limits",
        "_max_client_ids_per_user",
        "_max_sensors",
        "_minted",
        "_minted_by",
        "_sensors",
        "_window_num",
        "_window_size_s",
        "generation",
        "max_debt_ms",
        "overflows",
        "pacing",
    )

    def __init__(
        self,
        limits: QuotaLimits,
        *,
        pacing: Pacing = "smooth",
        burst_s: float = DEFAULT_BURST_S,
        max_debt_ms: float = DEFAULT_MAX_DEBT_MS,
        window_num: int = DEFAULT_WINDOW_NUM,
        window_size_s: float = DEFAULT_WINDOW_SIZE_S,
        controller_window_num: int = DEFAULT_WINDOW_NUM,
        controller_window_size_s: float = DEFAULT_WINDOW_SIZE_S,
        max_client_ids_per_user: int = 1_000,
        max_sensors: int = 100_000,
    ) -> None:
        """`burst_s` and `max_debt_ms` are of smooth pacing, `window_num` and `window_size_s` of Kafka's;
        the controller's windows are of controller_mutation_rate, in either."""
        self.generation = 0
        """moves when a session may have to ask for its sensors again"""
        self.overflows = 0
        """look-ups that were sent to an overflow bucket"""
        self._limits = limits
        self.pacing: Final = pacing
        self._burst_s = burst_s
        self.max_debt_ms: Final = max_debt_ms
        self._window_num = window_num
        self._window_size_s = window_size_s
        self._controller_window_num = controller_window_num
        self._controller_window_size_s = controller_window_size_s
        self._max_client_ids_per_user = max_client_ids_per_user
        self._max_sensors = max_sensors
        self._client_id_room = max_sensors - max_sensors // 10
        self._sensors: dict[QuotaKind, dict[QuotaEntity, Sensor]] = {kind: {} for kind in KINDS}
        self._found: dict[QuotaKind, dict[tuple[str, str], Sensor | None]] = {kind: {} for kind in KINDS}
        """what (user, client id) found the last time; bounded, and nothing is lost with it"""
        self._exempt = {kind: exempt_sensor(kind) for kind in KINDS}
        self._dropped: list[Sensor] = []
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
        try:
            sensor = self._found[kind][user, client_id]
        except KeyError:
            return self._look_up(kind, user, client_id, now_ms, address)
        if sensor is not None:
            sensor.last_ms = now_ms
        return sensor

    def address_sensor(self, address: str, rate_per_s: float, now_ms: float) -> Sensor:
        """A new bucket for the connections of one address; it is not among `sensors`, and the caller's.

        Its level is of no meaning. At least one connection passes at once, however short the burst.
        """
        kind, entity = QuotaKind.CONNECTION_CREATION, QuotaEntity(ip=address)
        if self.pacing == "kafka":
            return self._new_sensor(kind, QuotaLevel.USER, entity, rate_per_s, now_ms, "")
        burst_s = max(self._burst_s, 1.0 / rate_per_s)
        return SmoothSensor(kind, QuotaLevel.USER, entity, rate_per_s, now_ms, burst_s=burst_s)

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
        for _ in self.reload_in_steps(limits, now_ms):
            pass

    def reload_in_steps(self, limits: QuotaLimits, now_ms: float) -> Iterator[None]:
        """The same, pausing every millisecond or so. From the first step on the new limits are in force: a
        sensor that is asked for before its turn is brought up to date then. What begins another reload ends
        this one, and does its work.
        """
        self._limits = limits
        self._forget_found()
        self.generation += 1
        overflows = self.overflows
        for kind, sensors in self._sensors.items():
            for index, entity in enumerate(list(sensors), start=1):
                sensor = sensors.get(entity)
                if sensor is not None:  # not expired meanwhile
                    match = self._still_reached(kind, entity)
                    if match is None:
                        self._count(sensor, -1)
                        del sensors[entity]
                        if sensor.charged:
                            self._dropped.append(sensor)
                        if kind in _BYTE_RATES:  # what it holds goes now
                            sensor.update(_NO_LIMIT_PER_S, sensor.level, max(now_ms, sensor.last_ms))
                    else:
                        self._bring_up_to_date(sensor, match, max(now_ms, sensor.last_ms))
                if index % SENSORS_PER_STEP == 0:
                    yield
                    if self._limits is not limits:
                        return
        if self.overflows != overflows:  # there may be room now for who was sent to one between the steps
            self.generation += 1

    def take_dropped(self) -> list[Sensor]:
        """Those that reloads have dropped since this was asked last: what they counted is to be counted."""
        dropped, self._dropped = self._dropped, []
        return dropped

    def expire(self, now_ms: float) -> int:
        """Drop sensors that nobody charged or looked up for an hour and that owe nothing; return how many."""
        removed = 0
        for sensors in self._sensors.values():
            idle = [
                entity
                for entity, sensor in sensors.items()
                if now_ms - sensor.last_ms >= EXPIRY_MS and sensor.tokens(now_ms) >= 0.0
            ]
            for entity in idle:
                self._count(sensors.pop(entity), -1)
            removed += len(idle)
        if removed:
            self._forget_found()
            self.generation += 1
        return removed

    def sensors(self) -> Iterator[Sensor]:
        """All running sensors, by kind. Do not reload or expire while iterating; a list is made in one go."""
        return chain.from_iterable(map(dict.values, self._sensors.values()))

    def __len__(self) -> int:
        return sum(len(sensors) for sensors in self._sensors.values())

    def __repr__(self) -> str:
        return (
            f"<QuotaManager generation {self.generation}: {len(self)} sensors, {self._minted} minted, "
            f"{self.overflows} overflows, {sum(map(len, self._found.values()))} look-ups remembered>"
        )

    def _look_up(
        self, kind: QuotaKind, user: str, client_id: str, now_ms: float, address: str
    ) -> Sensor | None:
        """What `sensor` returns, and remembers where it is the same for all addresses and no overflow."""
        limits = self._limits
        if limits.exempt and limits.exempt.find(user, client_id, address) is not None:
            return self._exempt[kind]
        match = limits.resolve(kind, user, client_id)
        overflows = self.overflows
        sensor = None
        if match is not None:
            sensor = self._sensors[kind].get(match.bucket)
            if sensor is None:
                sensor = self._make(kind, match, user, now_ms)
            self._bring_up_to_date(sensor, match, now_ms)
            sensor.last_ms = now_ms
        short = len(user) <= _MAX_FOUND_NAME and len(client_id) <= _MAX_FOUND_NAME
        if short and not limits.exempt and self.overflows == overflows:
            found = self._found[kind]
            if len(found) >= _MAX_FOUND:
                found.clear()
            found[user, client_id] = sensor
        return sensor

    def _bring_up_to_date(self, sensor: Sensor, match: Match, now_ms: float) -> None:
        """Other limits are in force since the sensor was made, perhaps."""
        rate_per_s = KINDS[sensor.kind].rate_per_s(match.limit)
        if sensor.rate_per_s != rate_per_s or sensor.level is not match.level:
            self._count(sensor, -1)
            sensor.update(rate_per_s, match.level, now_ms)
            self._count(sensor, 1)
        sensor.shadow = match.shadow
        if match.shadow or not match.refuses:
            _end_refusal(sensor, now_ms)
        sensor.refuses = match.refuses

    def _forget_found(self) -> None:
        for found in self._found.values():
            found.clear()

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
        sensor = sensors.get(entity)
        if sensor is None and _is_mintable(level, entity) and self._minted >= self._max_sensors:
            entity = _overflow_of_all(level, match.bucket)
            sensor = sensors.get(entity)
        if entity is not match.bucket:
            self.overflows += 1
        if sensor is None:
            sensor = self._new_sensor(kind, level, entity, KINDS[kind].rate_per_s(match.limit), now_ms, user)
            sensors[entity] = sensor
            self._count(sensor, 1)
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
        if kind is QuotaKind.CONTROLLER_MUTATION:
            return MutationSensor(
                level,
                entity,
                rate_per_s,
                now_ms,
                window_num=self._controller_window_num,
                window_size_s=self._controller_window_size_s,
                owner=owner,
            )
        if self.pacing == "kafka":
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
            max_debt_ms=self.max_debt_ms,
            owner=owner,
        )

    def _count(self, sensor: Sensor, by: int) -> None:
        """A sensor comes (1) or goes (-1), as what its level says it is."""
        level = sensor.level
        if _is_mintable(level, sensor.entity):
            self._minted += by
            if level.mints_client_ids and sensor.entity.client_id is not OVERFLOW:
                owner = (sensor.kind, sensor.owner)
                self._minted_by[owner] += by
                if not self._minted_by[owner]:
                    del self._minted_by[owner]

    def _still_reached(self, kind: QuotaKind, entity: QuotaEntity) -> Match | None:
        """What the limits in force say of a running bucket; None if no client reaches it any more.

        A bucket without a user (client id) is reached exactly if it is by one that nobody configured, and so
        is an overflow bucket. The empty name is such a one: it cannot be configured. One of a prefix is
        reached exactly if it is by a client id that begins so and that nobody configured.
        """
        user = entity.user if isinstance(entity.user, str) else ""
        client_id = entity.client_id if isinstance(entity.client_id, str) else ""
        if isinstance(entity.client_id, Prefix):
            client_id = entity.client_id.some_client_id
        if isinstance(entity.user, Tenant):
            match = self._limits.resolve_for_members(kind, entity.user, client_id)
        else:
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


_CONFIGURED_USERS: Final = (Part.EXACT, Part.GROUP)
"""how many users there are of such a level is bounded by the configuration"""


def _end_refusal(sensor: Sensor, now_ms: float) -> None:
    """What its limit would have refused goes within its budget."""
    if sensor.refuses and (queue := sensor.hold_queue()) is not None:
        queue.end_refusal(now_ms)


def _mints_for_any_user(level: QuotaLevel) -> bool:
    """Users that nobody configured reach this level, and each may make a bucket."""
    return level.mints_buckets and level.user_part not in _CONFIGURED_USERS


def _is_mintable(level: QuotaLevel, entity: QuotaEntity) -> bool:
    """Counts against max_sensors: how many such buckets there are is not bounded by the configuration."""
    if entity.user is OVERFLOW:
        return False
    if level.user_part in _CONFIGURED_USERS:
        return level.mints_client_ids and entity.client_id is not OVERFLOW
    return level.mints_buckets


def _overflow_of_user(user: str) -> QuotaEntity:
    """Shared by the client ids of one user beyond its cap."""
    return QuotaEntity(user, OVERFLOW)


def _overflow_of_all(level: QuotaLevel, bucket: QuotaEntity) -> QuotaEntity:
    """Shared by users beyond the cap on all; as many of these as configured client ids, plus two."""
    return QuotaEntity(OVERFLOW, OVERFLOW if level.mints_client_ids else bucket.client_id)
