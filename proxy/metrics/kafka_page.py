"""The page /metrics/kafka: what the first page counts, as a broker's sensors would tell it (kafka_names.py).

The counters are those of the meter, so labels are as bounded as there: names of the configuration, or
`other`. Their growth is recorded once a second into Kafka's own Rate and Avg: a byte that passed counts up to
a second late. With the page on, the running limits are read that often: 5 µs each, and 2 µs a series.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from sluice.proxy.metrics.entity_series import EntitySeries
from sluice.proxy.metrics.family import Family, series_text
from sluice.proxy.metrics.kafka_names import KAFKA_NAMES, prometheus_name, sanitized
from sluice.proxy.metrics.producer_id_meter import UserIds
from sluice.proxy.metrics.replication import replication_rates
from sluice.proxy.metrics.usage_meter import UsageMeter
from sluice.proxy.runtime.gauges import Gauges
from sluice.proxy.runtime.tasks import beat_of_clients
from sluice.proxy.session.replication.followers import Replication
from sluice.quotas.kinds import KINDS, QuotaKind
from sluice.quotas.sensors.kafka_rate import DEFAULT_WINDOW_NUM, DEFAULT_WINDOW_SIZE_S, Average, Rate

INTERVAL_S: Final = 1.0
_METRIC_WINDOWS: Final = (2, 30_000)
"""number and ms of what has no window of its own (Kafka: metrics.num.samples, metrics.sample.window.ms)"""
_MS_PER_PERCENT_S: Final = 10.0
"""one percent of a thread is 10 ms in a second"""
_SECONDS_PER_HOUR: Final = 3600.0

Samples: TypeAlias = Iterable[tuple[tuple[str, ...], float]]
"""(the values of the labels, value)"""


@dataclass(frozen=True, slots=True)
class KafkaWindows:
    """Over what the rates are taken: the quotas' own windows, as in Kafka."""

    num: int = DEFAULT_WINDOW_NUM
    size_s: float = DEFAULT_WINDOW_SIZE_S
    id_num: int = 11
    """of producer ids (KIP-936)"""
    id_size_s: float = 3600.0


class _Growth:
    """What a counter has grown by since the last look."""

    __slots__ = ("seen",)

    def __init__(self) -> None:
        self.seen = 0.0

    def of(self, counter: float) -> float:
        grown = counter - self.seen
        self.seen = counter
        return grown


class _Sensors:
    """A broker's two sensors of one entity."""

    __slots__ = ("_amount", "_delayed", "_delays_ms", "rate", "throttle")

    def __init__(self, window_num: int, window_ms: int) -> None:
        self.rate = Rate(window_num, window_ms)
        self.throttle = Average(*_METRIC_WINDOWS)
        self._amount, self._delays_ms, self._delayed = _Growth(), _Growth(), _Growth()

    def record(self, amount: float, delays_ms: float, delayed: int, now_ms: int) -> None:
        """Three counters as they stand now."""
        grown = self._amount.of(amount)
        if grown:
            self.rate.record(grown, now_ms)
        count = int(self._delayed.of(delayed))
        if count:  # what has no count yet stays for the next look
            self.throttle.record(self._delays_ms.of(delays_ms), count, now_ms)


class KafkaPage:
    """All rows of KAFKA_NAMES."""

    def __init__(
        self,
        meter: UsageMeter,
        gauges: Gauges,
        windows: KafkaWindows,
        replication: Replication | None = None,
    ) -> None:
        self._meter = meter
        self._gauges = gauges
        self._windows = windows
        self._replication = replication
        self._entities: dict[EntitySeries, _Sensors] = {}
        self._users: dict[UserIds, _Sensors] = {}
        self._exempt = Rate(*_METRIC_WINDOWS)
        self._exempt_growth = _Growth()

    async def run(self, occupied: asyncio.Event) -> None:
        """Look once a second until cancelled; more rarely while no client is there (Worker.occupied)."""
        while True:
            await beat_of_clients(INTERVAL_S, occupied)
            await self.refresh()

    async def refresh(self) -> None:
        """Take in what was counted up to now."""
        now_ms = time.monotonic() * 1000.0
        self._meter.drain(now_ms)
        await self._meter.fold(now_ms)
        self.take_in(int(time.monotonic() * 1000.0))  # another may have waited behind this one: never back

    def take_in(self, now_ms: int) -> None:
        """Record by how much the meter's counters have grown; what it has forgotten is forgotten."""
        before, self._entities = self._entities, {}
        for series in self._meter.entities:
            sensors = before.get(series) or self._new_sensors(series.quota)
            self._entities[series] = sensors
            sensors.record(series.amount, series.throttled_ms, series.throttled_requests, now_ms)
        users_before, self._users = self._users, {}
        id_windows = (self._windows.id_num, round(self._windows.id_size_s * 1000.0))
        for user in self._meter.producer_ids:
            sensors = users_before.get(user) or _Sensors(*id_windows)
            self._users[user] = sensors
            sensors.record(user.new, user.throttled_ms, user.throttled_requests, now_ms)
        exempt_ms = self._exempt_growth.of(sum(self._meter.exempt_request_ms.values()))
        if exempt_ms:
            self._exempt.record(exempt_ms, now_ms)

    def collect(self) -> Iterator[Family]:
        """Each family once; one by one, for a rate takes some µs."""
        now_ms = int(time.monotonic() * 1000.0)
        for name, samples in self._samples(now_ms):
            row = KAFKA_NAMES[name]
            family = Family(name, "gauge", f"{row.help} {row.differs}".rstrip())
            for values, value in samples:
                # An empty tag is not part of an MBean's name, so jmx_exporter makes no label of it.
                labels = {label: text for label, text in zip(row.labels, values, strict=True) if text}
                family.samples.append((series_text(name, tuple(labels), tuple(labels.values())), value))
            yield family

    def _samples(self, now_ms: int) -> Iterator[tuple[str, Samples]]:
        for kind, attribute, unit in (
            (QuotaKind.PRODUCE, "byte-rate", 1.0),
            (QuotaKind.FETCH, "byte-rate", 1.0),
            (QuotaKind.REQUEST, "request-time", _MS_PER_PERCENT_S),
            (QuotaKind.CONTROLLER_MUTATION, "mutation-rate", 1.0),
        ):
            group = KINDS[kind].kafka_type
            here = [
                ((sanitized(series.user), series.client_id), sensors)
                for series, sensors in self._entities.items()
                if series.quota == kind.value
            ]
            rates = [(labels, sensors.rate.measure(now_ms) / unit) for labels, sensors in here]
            yield prometheus_name(group, attribute), rates
            yield from _throttle_times(group, here, now_ms)
            yield prometheus_name(group, "queue-size"), [((), self._gauges.delayed[kind.value])]
        group = KINDS[QuotaKind.REQUEST].kafka_type
        exempt = self._exempt.measure(now_ms) / _MS_PER_PERCENT_S
        yield prometheus_name(group, "exempt-request-time"), [((), exempt)]
        group = KINDS[QuotaKind.CONTROLLER_MUTATION].kafka_type
        tokens = self._meter.mutation_tokens.items()
        yield prometheus_name(group, "tokens"), [((sanitized(at[0]), at[1]), left) for at, left in tokens]
        leader, follower = replication_rates(self._replication, now_ms)
        yield prometheus_name("LeaderReplication", "byte-rate"), [((), leader)]
        yield prometheus_name("FollowerReplication", "byte-rate"), [((), follower)]
        yield from self._of_producer_ids(now_ms)

    def _of_producer_ids(self, now_ms: int) -> Iterator[tuple[str, Samples]]:
        group = KINDS[QuotaKind.PRODUCER_IDS].kafka_type
        users = [((sanitized(user.user),), sensors) for user, sensors in self._users.items()]
        rates = [(labels, sensors.rate.measure(now_ms) * _SECONDS_PER_HOUR) for labels, sensors in users]
        yield prometheus_name(group, "rate"), rates
        yield from _throttle_times(group, users, now_ms)
        tokens = self._meter.producer_ids.tokens().items()
        yield prometheus_name(group, "tokens"), [((sanitized(user),), left) for user, left in tokens]

    def _new_sensors(self, quota: str) -> _Sensors:
        if quota == QuotaKind.CONTROLLER_MUTATION.value:
            return _Sensors(*_METRIC_WINDOWS)
        return _Sensors(self._windows.num, round(self._windows.size_s * 1000.0))


def _throttle_times(
    group: str, sensors: Iterable[tuple[tuple[str, ...], _Sensors]], now_ms: int
) -> Iterator[tuple[str, Samples]]:
    times = [(labels, one.throttle.measure(now_ms)) for labels, one in sensors]
    yield prometheus_name(group, "throttle-time"), times
