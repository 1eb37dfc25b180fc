"""Who is throttled, by how much, and how near to the limit: running sensors and connections → rows.

A row is a quota bucket: the connections that share one limit of one kind. Its delay is the time until what is
owed is paid at the limit, which the next request would wait for (a cap may let it go earlier):

    delay_ms = max(0, −tokens) ÷ limit per second × 1000

    −523,456 bytes at 1,000,000 bytes per second: 523.456 ms. In Kafka's pacing the same: X = (O − T) ÷ T · W,
    and tokens are T · W − O · W.

The work is done in steps, and only the rows that are asked for are kept, whatever there is. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from heapq import heappush, heapreplace
from math import isfinite
from typing import Final, TypeAlias

from sluice.proxy.admin.top.order import MAX_ROWS
from sluice.proxy.admin.top.row import ConnectionRow, Row
from sluice.proxy.admin.top.search import Bucket, Connected, Search
from sluice.proxy.connection.rates import AddressBuckets
from sluice.proxy.metrics.delayed_time import Delayed, DelayedTimes
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.producer_ids.shared import ProducerIds
from sluice.proxy.session.session import Session
from sluice.quotas.entity import QuotaEntity
from sluice.quotas.kinds import KINDS, QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.producer_ids.buckets import MS_PER_HOUR
from sluice.quotas.producer_ids.principal import PrincipalIds
from sluice.quotas.sensors.sensor import Sensor

SENSORS_PER_STEP: Final = 200
"""below 1 ms of work, between which connections are served"""
CONNECTIONS_PER_STEP: Final = 60
"""likewise: to find the bucket of an IPv6 address takes 10 µs"""
_ROWS_PER_STEP: Final = 100
ACTIVE_MS: Final = 60_000.0
"""a bucket that was not used for so long, nor for pacing.max_debt_s, owes nothing and is not looked at"""


NO_ADDRESSES: Final = AddressBuckets()

_Key: TypeAlias = tuple[float, float]
"""the order: what is owed, then how near to the limit"""
_Found: TypeAlias = tuple[_Key, int, Bucket, Callable[[], Row]]
"""key, a number that is its alone, what it was found of, and its row, made only if it is among the first"""


class Survey:
    """One look at everything, made by running `steps` to its end."""

    def __init__(
        self,
        max_rows: int = MAX_ROWS,
        max_debt_ms: float = 0.0,
        wanted: Callable[[Bucket, float], bool] | None = None,
        search: Search | None = None,
    ) -> None:
        """`wanted`: of which buckets there are to be rows, given what they owe in ms (in shadow mode 0), of
        those that `search` finds; all are counted."""
        self.rows: list[Row] = []
        """the most throttled first"""
        self.sensors = 0
        self.active = 0
        """buckets that were used in the last minute"""
        self.throttled = 0
        """buckets that owe, those in shadow mode not counted"""
        self.delayed = 0
        """of which a connection was delayed in the last minute"""
        self.connections = 0
        self.throttled_connections = 0
        self.matching = 0
        """active buckets that are wanted"""
        self._wanted = wanted
        self._search = search
        self._max_rows = max_rows
        self._active_ms = max(ACTIVE_MS, max_debt_ms)
        self._found: list[_Found] = []

    def steps(
        self,
        sensors: Iterable[Sensor],
        producer_ids: ProducerIds,
        limits: QuotaLimits,
        connections: Callable[[], Iterable[Connected]],
        clock_ms: Callable[[], float],
        addresses: AddressBuckets = NO_ADDRESSES,
        delayed: DelayedTimes | None = None,
    ) -> Iterator[None]:
        """`addresses`: the buckets of connection_creation_rate. Their sensors, `sensors` and what
        `connections` returns are lists, for all of it comes and goes between the steps."""
        if self._search is not None:
            yield from self._search.steps(connections(), limits, addresses.name_of)
        now_ms, active_ms = clock_ms(), self._active_ms
        for number, sensor in enumerate(sensors, start=1):
            self.sensors += 1
            if now_ms - sensor.last_ms <= active_ms:
                self._look_at(sensor, now_ms)
            if number % SENSORS_PER_STEP == 0:
                yield
                now_ms = clock_ms()
        for number, principal in enumerate(list(producer_ids.quota.principals()), start=1):
            self.sensors += 1
            self._look_at_ids(principal, limits, now_ms)
            if number % SENSORS_PER_STEP == 0:
                yield
                now_ms = clock_ms()
        for number, sensor in enumerate(addresses.sensors, start=1):
            self.sensors += 1
            self._look_at_address(sensor, limits, now_ms)
            if number % SENSORS_PER_STEP == 0:
                yield
                now_ms = clock_ms()
        self._found.sort(key=lambda found: found[0], reverse=True)
        for number, (_, _, _, make) in enumerate(self._found, start=1):
            self.rows.append(make())
            if number % _ROWS_PER_STEP == 0:
                yield
        by_bucket = self._noted_by_bucket(delayed, now_ms)
        for number, connection in enumerate(connections(), start=1):
            self._place(connection, *by_bucket, addresses.name_of, now_ms)
            if number % CONNECTIONS_PER_STEP == 0:
                yield
                now_ms = clock_ms()
        for number, row in enumerate(self.rows, start=1):
            row.trim()
            if number % SENSORS_PER_STEP == 0:
                yield

    def _noted_by_bucket(
        self, delayed: DelayedTimes | None, now_ms: float
    ) -> tuple[dict[Sensor, Row], dict[str, Row], dict[str, Row]]:
        """The rows, with what was delayed of late: by their sensors, users of producer ids and addresses."""
        by_sensor: dict[Sensor, Row] = {}
        by_user: dict[str, Row] = {}
        by_address: dict[str, Row] = {}
        if delayed is not None:
            self.delayed = delayed.count(now_ms)
        for (_, _, of, _), row in zip(self._found, self.rows, strict=True):
            if delayed is not None:
                row.delayed = _delayed_of(of, delayed, now_ms)
            if isinstance(of, Sensor):
                by_sensor[of] = row
                if of.entity.ip is not None:
                    by_address[str(of.entity.ip)] = row
            else:
                by_user[of.user] = row
        return by_sensor, by_user, by_address

    def _look_at(self, sensor: Sensor, now_ms: float) -> None:
        self.active += 1
        tokens = sensor.tokens(now_ms)
        delay_ms = -tokens / sensor.rate_per_s * 1000.0 if tokens < 0.0 else 0.0
        utilisation = sensor.utilisation(now_ms)
        if delay_ms:
            self.throttled += not sensor.shadow
        elif utilisation > 1.0 and not sensor.shadow:
            # A burst in a short life: who owes nothing is not above the limit. In shadow mode nobody owes,
            # and how far above it would be is what one looks for.
            utilisation = 1.0
        key = (0.0 if sensor.shadow else delay_ms, utilisation)
        if self._is_among(key, sensor):
            self._keep(key, sensor, partial(_row_of_sensor, sensor, tokens, delay_ms, utilisation))

    def _look_at_ids(self, principal: PrincipalIds, limits: QuotaLimits, now_ms: float) -> None:
        """Count a user's bucket of producer ids. Its use is what is gone of the burst: there is no rate over
        seconds. One whose limit was removed is remembered for a while, and is passed over."""
        if limits.resolve(QuotaKind.PRODUCER_IDS, principal.user, "") is None:
            return
        self.active += 1
        tokens = principal.main.tokens(now_ms)
        waiting = principal.waiting_tickets
        # Until as many tokens are there as requests wait, which may be more than the bucket can hold.
        delay_ms = max(0.0, waiting - tokens) / principal.ids_per_hour * MS_PER_HOUR if waiting else 0.0
        self.throttled += delay_ms > 0.0
        key = (delay_ms, max(0.0, 1.0 - tokens / principal.main.capacity))
        if self._is_among(key, principal):
            self._keep(key, principal, partial(_row_of_ids, principal, limits, tokens, *key))

    def _look_at_address(self, sensor: Sensor, limits: QuotaLimits, now_ms: float) -> None:
        """Who connects too fast is not let in, and owes nothing: the delay is until one is let in."""
        found = limits.ip_limit(str(sensor.entity.ip))
        if found is None or now_ms - sensor.last_ms > ACTIVE_MS:
            return
        self.active += 1
        shadow = found[2]
        tokens = sensor.tokens(now_ms)
        delay_ms = max(0.0, 1.0 - tokens) / sensor.rate_per_s * 1000.0
        self.throttled += delay_ms > 0.0 and not shadow
        utilisation = sensor.utilisation(now_ms)
        utilisation = utilisation if shadow else min(1.0, utilisation)
        key = (0.0 if shadow else delay_ms, utilisation)
        if self._is_among(key, sensor):
            self._keep(key, sensor, partial(_row_of_address, sensor, found, tokens, delay_ms, utilisation))

    def _is_among(self, key: _Key, bucket: Bucket) -> bool:
        if self._wanted is not None and not self._wanted(bucket, key[0]):
            return False
        if self._search is not None and not self._search.finds(bucket):
            return False
        self.matching += 1
        return len(self._found) < self._max_rows or key > self._found[0][0]

    def _keep(self, key: _Key, of: Bucket, make: Callable[[], Row]) -> None:
        found = (key, self.sensors, of, make)
        if len(self._found) < self._max_rows:
            heappush(self._found, found)
        else:
            heapreplace(self._found, found)

    def _place(
        self,
        connection: Connected,
        by_sensor: dict[Sensor, Row],
        by_user: dict[str, Row],
        by_address: dict[str, Row],
        address_bucket: Callable[[str], str],
        now_ms: float,
    ) -> None:
        session = connection.session
        self.connections += 1
        throttled_by, for_ms = throttle_of(session, now_ms)
        if throttled_by:
            self.throttled_connections += 1
        rows = [row for sensor in session.sensors if (row := by_sensor.get(sensor)) is not None]
        if session.has_id_limit and session.user in by_user:
            rows.append(by_user[session.user])
        if by_address:
            its = by_address.get(address_bucket(connection.peer.rpartition(":")[0]))
            rows += [] if its is None else [its]
        for row in rows:
            is_its = throttled_by == row.kind.value
            row.add(
                ConnectionRow(
                    peer=connection.peer,
                    user=session.user,
                    client_id=session.client_id,
                    state=state_of(session, throttled_by),
                    throttled_by=throttled_by if is_its else "",
                    for_ms=for_ms if is_its else 0.0,
                    in_flight=session.in_flight,
                    requests=session.requests,
                )
            )


def _delayed_of(bucket: Bucket, delayed: DelayedTimes, now_ms: float) -> Delayed:
    if isinstance(bucket, Sensor):
        return delayed.of(bucket.kind.value, bucket.entity, now_ms)
    return delayed.of(QuotaKind.PRODUCER_IDS.value, QuotaEntity(bucket.user, None), now_ms)


def _row_of_sensor(sensor: Sensor, tokens: float, delay_ms: float, utilisation: float) -> Row:
    limit = sensor.rate_per_s * KINDS[sensor.kind].limit_span_s
    return Row(
        kind=sensor.kind,
        bucket={part: str(name) for part, name in sensor.entity.parts.items()},
        rule=sensor.level.value,
        limit=limit,
        shadow=sensor.shadow,
        tokens=tokens,
        delay_ms=delay_ms,
        utilisation=utilisation,
        used=utilisation * limit,
        charged=sensor.used,
        forgiven=sensor.forgiven_for_good,
    )


def _row_of_ids(
    principal: PrincipalIds, limits: QuotaLimits, tokens: float, delay_ms: float, utilisation: float
) -> Row:
    match = limits.resolve(QuotaKind.PRODUCER_IDS, principal.user, "")
    return Row(
        kind=QuotaKind.PRODUCER_IDS,
        bucket={"user": principal.user},
        rule="" if match is None else match.level.value,
        limit=principal.ids_per_hour,
        shadow=not principal.enforced,
        tokens=tokens - principal.waiting_tickets,
        delay_ms=delay_ms,
        utilisation=utilisation,
        used=principal.main.capacity - tokens,
        charged=principal.admitted,
        waiting=principal.waiting_tickets,
    )


def _row_of_address(
    sensor: Sensor, found: tuple[float, str, bool], tokens: float, delay_ms: float, utilisation: float
) -> Row:
    limit, rule, shadow = found
    return Row(
        kind=sensor.kind,
        bucket={"ip": str(sensor.entity.ip) or "all others"},
        rule=rule,
        limit=limit,
        shadow=shadow,
        tokens=tokens,
        delay_ms=delay_ms,
        utilisation=utilisation,
        used=utilisation * limit,
        charged=sensor.used,
    )


def throttle_of(session: Session, now_ms: float) -> tuple[str, float]:
    """(the kind whose delay a connection sits out, for how many ms more); ("", 0): none."""
    pace = session.pace
    if pace.throttled_by is None:
        return "", 0.0
    until_ms = pace.wake_at_ms if pace.state is State.HOLDING else pace.gate_ms
    if not now_ms < until_ms or not isfinite(until_ms):
        return "", 0.0
    return pace.throttled_by.value, until_ms - now_ms


def state_of(session: Session, throttled_by: str) -> str:
    """A mute becomes the state at the next frame; it is one from its begin."""
    state = session.pace.state
    return (State.MUTED if throttled_by and state is State.READING else state).name.lower()
