"""Records → integers: takes what sessions left in the Recorder, often and before each scrape.

Counting a record costs about 0.3 µs of the proxy's cost of a request, where prometheus_client's own counters
and histograms would cost 4 µs; collector.py exports the integers. What was charged, limits and utilisation
come from the live sensors, which have counted already (`fold`).
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from math import inf
from typing import Final

from sluice.protocol._tables import API_NAMES
from sluice.protocol.apis import FETCH, PRODUCE, SHARE_FETCH
from sluice.proxy.metrics.delayed_time import DelayedTimes
from sluice.proxy.metrics.entity_series import OTHER, EntitySeries, EntityTable
from sluice.proxy.metrics.producer_id_meter import ProducerIdMeter
from sluice.proxy.metrics.quota_warning import QuotaWarnings
from sluice.proxy.metrics.throttle_log import ThrottleLog, bucket_of
from sluice.proxy.runtime.log import LineBudget, get_logger
from sluice.proxy.runtime.loop_lag import LoopLag
from sluice.proxy.runtime.tasks import beat_of_clients
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.producer_ids.shared import ProducerIds
from sluice.quotas.kinds import KINDS, QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.quotas.sensors.sensor import Sensor
from sluice.usage.records import ConnectionRecord, EventKind, Recorder, RequestRecord, ThrottleEvent
from sluice.usage.tallies import DURATION_AT, DURATION_SUM, SIZE_SUM, SLOTS_PER_MS, Counting, Tally, new_tally

DRAIN_INTERVAL_S: Final = 0.1
DRAIN_REQUESTS: Final = 2_000
"""Where more come, about so many are drained at once: they lie in the processor's caches then."""
MIN_DRAIN_INTERVAL_S: Final = 0.01
IDLE_DRAIN_INTERVAL_S: Final = 1.0
"""after so long without a record"""
IDLE_ROUND_S: Final = 5.0
"""as often it drains though there is no record: windows end, and lines are due"""
FOLD_INTERVAL_S: Final = 10.0
SENSORS_PER_STEP: Final = 300
"""about 1 ms of work between which connections are served"""
DROPPED_SENSOR_MS: Final = 600_000.0
"""so long after its last charge a sensor that no client reaches any more is still looked at: what was held
or asked for while it ran comes to an end before"""

_UNLIMITED: Final = {PRODUCE: QuotaKind.PRODUCE, FETCH: QuotaKind.FETCH, SHARE_FETCH: QuotaKind.FETCH}
"""what traffic without a limit is counted as"""
_log = get_logger()


class _Metered:
    """What of a sensor has been counted so far, and where."""

    __slots__ = ("forgiven", "over", "round", "series", "used")

    def __init__(self) -> None:
        self.used = 0.0
        self.forgiven = 0.0
        self.over = 0
        self.round = 0
        self.series: EntitySeries | None = None


class UsageMeter:
    """All that /metrics tells of requests, throttles and connections; reads only what sessions recorded.

    `run` keeps it current; a scrape calls `drain` and `fold` before it reads the attributes.
    """

    def __init__(
        self,
        recorder: Recorder,
        quotas: QuotaManager,
        producer_ids: ProducerIds | None = None,
        *,
        max_series: int = 10_000,
        max_users: int = 0,
        warning_share: float = 0.0,
        counting: Counting | None = None,
    ) -> None:
        """`producer_ids`: of the process; None: there are none. `warning_share`: of a limit
        (quota_warning.py); 0: none. `counting`: compiled; None: it is not there."""
        self.apis: dict[int, Tally] = {}
        """a tally of each known API seen"""
        self.unknown_apis = new_tally()
        self.throttle_times = {kind.value: new_tally() for kind in KINDS}
        """by quota; of throttled requests only"""
        self.entities = EntityTable(max_series, max_users)
        self.producer_ids = ProducerIdMeter(producer_ids or ProducerIds(), self.entities)
        self.disconnects = dict.fromkeys(map(str, DisconnectCause), 0)
        self.limits: dict[tuple[str, str, str, str], float] = {}
        """(quota, user, client_id, rule) → units per second, of the live sensors at the last fold"""
        self.utilisation: dict[tuple[str, str, str], float] = {}
        """(quota, user, client_id) → the highest of the live sensors behind it at the last fold"""
        self.mutation_tokens: dict[tuple[str, str], float] = {}
        """(user, client_id) → partitions that may be created or deleted at once, at the last fold; of the
        live sensors behind it the lowest"""
        self.forgiven = {kind.value: 0.0 for kind in KINDS}
        """by quota: units of debt beyond the cap"""
        self.exempt = {kind.value: 0 for kind in KINDS}
        """by quota: bytes of connections that an exempt rule covers"""
        self.followers = recorder.followers
        """by how their Fetches are treated: connections that name a replica"""
        self.exempt_request_ms = recorder.exempt_request_ms
        """by reason: time of broker threads that no limit counts"""
        self.loop_lag = LoopLag()
        """of the event loop that `run` runs in"""
        self.access_log: Callable[[Recorder, float], None] | None = None
        """shown what is removed, with the time (monotonic, in ms)"""
        self._recorder = recorder
        self._quotas = quotas
        self._named: QuotaLimits | None = None
        self._metered: dict[Sensor, _Metered] = {}
        self._round = 0
        self._folding = asyncio.Lock()
        self._counting = counting
        self._lines = LineBudget()
        self.throttle_log = ThrottleLog(self._lines, self._limit_now)
        self.delayed = DelayedTimes()
        """for how much of the last minute each bucket was delayed"""
        self.warnings = QuotaWarnings(warning_share, self._lines)
        self.warned: dict[tuple[str, str, str], int] = {}
        """(quota, user, client_id) → live sensors behind it of which a warning has begun, at the last fold"""

    async def run(self, occupied: asyncio.Event) -> None:
        """Drain and fold until cancelled; more rarely while no client is there (Worker.occupied)."""
        fold_at_s = idle_at_s = round_at_s = time.monotonic()
        interval_s = DRAIN_INTERVAL_S
        while True:
            begun_s = time.monotonic()
            if begun_s < idle_at_s:
                await asyncio.sleep(interval_s)
                late_s = time.monotonic() - begun_s - interval_s
            else:  # on the beat of the others that have nothing to do
                late_s = await beat_of_clients(IDLE_DRAIN_INTERVAL_S, occupied)
            now_s = time.monotonic()
            self.loop_lag.note(late_s, now_s)
            if not self._recorder.is_empty:
                idle_at_s = now_s + IDLE_DRAIN_INTERVAL_S
            elif idle_at_s <= now_s < round_at_s:
                continue
            round_at_s = now_s + IDLE_ROUND_S
            interval_s = _next_interval_s(len(self._recorder.requests), now_s - begun_s)
            self.drain(now_s * 1000.0)
            if now_s >= fold_at_s:
                fold_at_s = now_s + FOLD_INTERVAL_S
                await self.fold(now_s * 1000.0)

    def drain(self, now_ms: float) -> None:
        """Count and remove everything in the recorder; write the log lines that are due."""
        self._follow_names()
        recorder = self._recorder
        if recorder.requests:
            self._count_requests(recorder.requests, now_ms)
        if recorder.throttles:
            self._count_throttles(recorder.throttles, now_ms)
        if recorder.connections:
            self._count_connections(recorder.connections, now_ms)
        if self.access_log is not None:
            self.access_log(recorder, now_ms)
        recorder.clear()
        for event, fields in self.throttle_log.due(now_ms):
            _log.info(event, **fields)
        lines, self.warnings.lines = self.warnings.lines, []
        for event, fields in lines:
            _log.warning(event, **fields)

    async def fold(self, now_ms: float) -> None:
        """Take in what the sensors have counted, in small steps; drop what has been idle for an hour."""
        async with self._folding:
            for _ in self._fold_in_steps(now_ms):
                await asyncio.sleep(0)
            for _ in self.producer_ids.fold_in_steps(now_ms, self._quotas.limits):
                await asyncio.sleep(0)

    def _count_requests(self, records: list[RequestRecord], now_ms: float) -> None:
        apis = self.apis
        if self._counting is not None:
            records = self._counting.tally(records, apis)
        unlimited: defaultdict[tuple[int, str, str], int] = defaultdict(int)
        throttled: defaultdict[Sensor, list[float]] = defaultdict(list)
        # fmt: off
        for (
            flow, request_bytes, response_bytes, upstream_ms, throttle_ms, _, _, api_key, _, user, sensor
        ) in records:
            # fmt: on
            try:
                tally = apis[api_key]
            except KeyError:
                tally = self._tally_of(api_key)
            tally[(request_bytes - 1).bit_length()] += 1
            tally[SIZE_SUM] += request_bytes
            if upstream_ms > 0.0:
                # float's method, because int() is looked up and called: 55 ns more.
                tally[DURATION_AT + (upstream_ms * SLOTS_PER_MS).__trunc__().bit_length()] += 1
                tally[DURATION_SUM] += upstream_ms
            if sensor is None or sensor.exempt:
                # No time at the broker and an answer: the proxy's own, to what was never forwarded.
                if api_key in _UNLIMITED and (upstream_ms > 0.0 or not response_bytes):
                    used = request_bytes if api_key == PRODUCE else response_bytes
                    unlimited[api_key, user, flow.client_id] += used
                    if sensor is not None:
                        self.exempt[sensor.kind.value] += used
            elif throttle_ms > 0.0:
                throttled[sensor].append(throttle_ms)
        for sensor, throttles_ms in throttled.items():
            self._count_throttled(sensor, throttles_ms, now_ms)
        for (api_key, user, client_id), used in unlimited.items():
            series = self.entities.of(_UNLIMITED[api_key].value, user, client_id, is_limited=False)
            series.amount += used
            series.used_ms = now_ms

    def _count_throttled(self, sensor: Sensor, throttles_ms: list[float], now_ms: float) -> None:
        tally = self.throttle_times[sensor.kind.value]
        for throttle_ms in throttles_ms:
            tally[DURATION_AT + (throttle_ms * SLOTS_PER_MS).__trunc__().bit_length()] += 1
        total_ms = sum(throttles_ms)
        tally[DURATION_SUM] += total_ms
        # A sensor that is not metered any more is not to be metered from its beginning.
        series = self._series_of(sensor, self._metered.get(sensor) or _Metered())
        series.throttled_requests += len(throttles_ms)
        series.throttled_ms += total_ms
        self.entities.note_delay(sensor.entity.user, total_ms)
        series.used_ms = now_ms

    def _count_throttles(self, events: list[ThrottleEvent], now_ms: float) -> None:
        for event in events:
            if event.delay_ms > 0.0 or event.reason:
                self.throttle_log.note(event)
            if event.reason:
                self._count_refusal(event, now_ms)
            is_shadow = event.kind is EventKind.SHADOW
            if event.delay_ms > 0.0 and not is_shadow:
                self._note_delayed(event, now_ms)
            if event.quota == QuotaKind.REQUEST.value and event.delay_ms > 0.0 and not is_shadow:
                self._count_delay(event, now_ms)
            if is_shadow:
                series = self._series_behind(event, now_ms)
                series.in_shadow = True
                series.shadow_requests += 1
                series.shadow_ms += event.delay_ms

    def _series_behind(self, event: ThrottleEvent, now_ms: float) -> EntitySeries:
        """Something is counted on it."""
        bucket = bucket_of(event)
        series = self.entities.of(event.quota, bucket.user, bucket.client_id)
        series.used_ms = now_ms
        return series

    def _limit_now(self, event: ThrottleEvent) -> float | None:
        """The limit of who is throttled by this event; None: it has none any more."""
        match = self._quotas.limits.resolve(QuotaKind(event.quota), event.user, event.client_id)
        return None if match is None else match.limit

    def _note_delayed(self, event: ThrottleEvent, now_ms: float) -> None:
        self.delayed.add(event.quota, bucket_of(event), event.begun_ms, event.delay_ms)
        if event.quota != QuotaKind.PRODUCER_IDS.value:  # these have metrics of their own
            self._series_behind(event, now_ms).delayed.add(event.begun_ms, event.delay_ms)

    def _count_refusal(self, event: ThrottleEvent, now_ms: float) -> None:
        """For new producer ids, or for bytes beyond a limit with `over_budget: refuse`."""
        if event.quota == QuotaKind.PRODUCER_IDS.value:
            self.producer_ids.count_refusal(event.user, event.reason, now_ms)
            return
        refused = self._series_behind(event, now_ms).refused
        refused[event.reason] = refused.get(event.reason, 0) + 1

    def _count_delay(self, event: ThrottleEvent, now_ms: float) -> None:
        """By request time: a request's record tells of its quota on bytes or mutations alone."""
        tally = self.throttle_times[event.quota]
        tally[DURATION_AT + (event.delay_ms * SLOTS_PER_MS).__trunc__().bit_length()] += 1
        tally[DURATION_SUM] += event.delay_ms
        series = self._series_behind(event, now_ms)
        series.throttled_requests += 1
        series.throttled_ms += event.delay_ms
        self.entities.note_delay(bucket_of(event).user, event.delay_ms)

    def _count_connections(self, records: list[ConnectionRecord], now_ms: float) -> None:
        for record in records:
            self.disconnects[record.cause] += 1
            if record.detail and self._lines.take(now_ms):
                _log.warning(
                    "connection_closed",
                    cause=str(record.cause),
                    detail=record.detail,
                    peer=record.peer,
                    user=record.user,
                    client_id=record.client_id,
                    requests=record.requests,
                    open_s=round((record.closed_ms - record.opened_ms) / 1000.0, 3),
                    lines_suppressed=self._lines.suppressed(),
                )

    def _tally_of(self, api_key: int) -> Tally:
        """Clients may send any of 65,536 keys: those that Kafka does not have share one tally."""
        if api_key not in API_NAMES:
            return self.unknown_apis
        tally = self.apis[api_key] = new_tally()
        return tally

    def _metered_of(self, sensor: Sensor) -> _Metered:
        metered = self._metered.get(sensor)
        if metered is None:
            metered = self._metered[sensor] = _Metered()
        return metered

    def _series_of(self, sensor: Sensor, metered: _Metered) -> EntitySeries:
        if metered.series is None:
            entity = sensor.entity
            metered.series = self.entities.of(sensor.kind.value, entity.user, entity.client_id)
        return metered.series

    def _follow_names(self) -> None:
        """Other limits in force: names that became labels, or ceased to be, get their series anew."""
        if self._named is not self._quotas.limits:
            self._named = self._quotas.limits
            self.entities.configure(self._named)
            for metered in self._metered.values():
                metered.series = None

    def _fold_in_steps(self, now_ms: float) -> Iterator[None]:
        self._follow_names()
        self._round += 1
        limits: dict[tuple[str, str, str, str], float] = {}
        utilisation: dict[tuple[str, str, str], float] = {}
        tokens: dict[tuple[str, str], float] = {}
        warned: dict[tuple[str, str, str], int] = {}
        for sensor in self._quotas.take_dropped():  # perhaps made since the last fold
            self._metered_of(sensor)
        # A list, because sensors come and go between the steps.
        for index, sensor in enumerate(list(self._quotas.sensors()), start=1):
            metered = self._metered_of(sensor)
            metered.round = self._round
            series = self._take_usage(sensor, metered, now_ms)
            labels = (series.quota, series.user, series.client_id)
            used = sensor.utilisation(now_ms)
            utilisation[labels] = max(utilisation.get(labels, 0.0), used)
            if self.warnings.look(sensor, used, now_ms):
                series.warnings += 1
            warned[labels] = warned.get(labels, 0) + self.warnings.is_warned(sensor)
            if sensor.kind is QuotaKind.CONTROLLER_MUTATION:
                at = (series.user, series.client_id)
                tokens[at] = min(tokens.get(at, inf), sensor.tokens(now_ms))
            if sensor.shadow:
                series.in_shadow = True
            if not series.is_overflow:
                limits[*labels, sensor.level.value] = sensor.rate_per_s
            if index % SENSORS_PER_STEP == 0:
                yield
        self.limits, self.utilisation, self.mutation_tokens, self.warned = limits, utilisation, tokens, warned
        # What a sensor charged since the last fold counts even if a reload has dropped it meanwhile; and then
        # what was held when it did, and answers to fetches that were on their way.
        dropped = [one for one in self._metered.items() if one[1].round != self._round]
        for index, (sensor, metered) in enumerate(dropped, start=1):
            if sensor.used > metered.used or sensor.over > metered.over or sensor.forgiven > metered.forgiven:
                self._take_usage(sensor, metered, now_ms)
            self.warnings.forget(sensor, now_ms)
            if now_ms - sensor.last_ms >= DROPPED_SENSOR_MS:
                del self._metered[sensor]
            if index % SENSORS_PER_STEP == 0:
                yield
        changes = self.entities.names.changes
        ended = self.entities.drop_idle(now_ms) | self.entities.step(now_ms)
        if ended or self.entities.names.changes > changes:
            for metered in self._metered.values():
                if metered.series in ended or (metered.series is not None and metered.series.user == OTHER):
                    metered.series = None

    def _take_usage(self, sensor: Sensor, metered: _Metered, now_ms: float) -> EntitySeries:
        """Count what the sensor was charged since the last time for what went on."""
        series = self._series_of(sensor, metered)
        used = sensor.used
        if used > metered.used:  # a counter must not fall: a refund (of mutations) is first made up for
            series.amount += used - metered.used
            metered.used = used
            series.used_ms = now_ms
        if sensor.over > metered.over:
            series.over_quota_bytes += sensor.over - metered.over
            metered.over = sensor.over
        forgiven = sensor.forgiven_for_good
        if forgiven > metered.forgiven:
            self.forgiven[series.quota] += forgiven - metered.forgiven
            metered.forgiven = forgiven
        return series


def _next_interval_s(requests: int, in_s: float) -> float:
    """Until about DRAIN_REQUESTS come, if they come as fast as these."""
    if requests * DRAIN_INTERVAL_S <= DRAIN_REQUESTS * in_s:
        return DRAIN_INTERVAL_S
    return max(MIN_DRAIN_INTERVAL_S, DRAIN_REQUESTS * in_s / requests)
