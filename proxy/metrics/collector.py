"""The page /metrics: names and shapes what the meter, gauges and sensors counted.

Exports what table.py defines, and what Prometheus' client libraries tell of a process and its interpreter.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import version
from itertools import accumulate
from typing import Final

from prometheus_client import GC_COLLECTOR, PLATFORM_COLLECTOR

from sluice.protocol.names import api_name
from sluice.proxy.access_log.access_log import NOTHING_WRITTEN, AccessLog
from sluice.proxy.listener.circuit import CircuitsByIdentity
from sluice.proxy.listener.security import ListenerSecurity
from sluice.proxy.listener.upstream_watch import UpstreamWatch
from sluice.proxy.metrics.entity_series import OTHER, EntitySeries
from sluice.proxy.metrics.family import Family, family_of, series_text
from sluice.proxy.metrics.process import ProcessMetrics
from sluice.proxy.metrics.replication import replication_samples
from sluice.proxy.metrics.table import METRICS
from sluice.proxy.metrics.usage_meter import UsageMeter
from sluice.proxy.quota_store.producer_id_file import ProducerIdFile, SnapshotOutcome
from sluice.proxy.quota_store.source import QuotaSource
from sluice.proxy.runtime.gauges import Gauges
from sluice.proxy.runtime.log import dropped_log_lines
from sluice.proxy.runtime.supervision import restarts
from sluice.proxy.runtime.watched_file import ReloadOutcome, ReloadStatus
from sluice.proxy.session.gateway.broker_map import in_text
from sluice.proxy.session.replication.followers import Replication
from sluice.quotas.kinds import BYTE_KINDS, KINDS, QuotaKind
from sluice.quotas.manager import QuotaManager
from sluice.usage.tallies import (
    DURATION_AT,
    DURATION_SLOTS,
    DURATION_SUM,
    SIZE_SLOTS,
    SIZE_SUM,
    SLOTS_PER_MS,
)

DISTRIBUTION: Final = "kafka-sluice"
_VERSION: Final = version(DISTRIBUTION)  # it is in a file, for which a scrape may find no descriptor
SIZE_BUCKETS: Final = range(6, 28, 2)
"""slots that become buckets: 64 B, 256 B, … 64 MiB"""
DURATION_BUCKETS: Final = range(1, 20)
"""slots that become buckets: 0.25 ms, 0.5 ms, … 65.5 s"""
_BYTES: Final = tuple(kind.value for kind in BYTE_KINDS)
# An info is a gauge of 1 in the text format, and so it may be one in OpenMetrics, under its full name.
_SHOWN: Final = {
    name: (name, "gauge", row.help, row.labels)
    if row.type == "info"
    else (row.family, row.type, row.help, row.labels)
    for name, row in METRICS.items()
}
"""name → of its family: name, type, help, labels"""
_LIBRARY_COLLECTORS: Final = (PLATFORM_COLLECTOR, GC_COLLECTOR)


class SluiceCollector:
    """All families of table.py and the library's, as they are at the moment of the call."""

    def __init__(
        self,
        meter: UsageMeter,
        quotas: QuotaManager,
        gauges: Gauges,
        reloads: Mapping[str, Sequence[ReloadStatus]],
        kept_bytes: Callable[[], int] = lambda: 0,
        snapshots: ProducerIdFile | None = None,
        circuits: CircuitsByIdentity | None = None,
        securities: Sequence[ListenerSecurity] = (),
        quota_source: QuotaSource | None = None,
        access_log: AccessLog | None = None,
        replication: Replication | None = None,
        upstreams: Sequence[UpstreamWatch] = (),
        data_path: str = "pure",
    ) -> None:
        """`reloads`: by what the files hold. `kept_bytes`: of the worker's budget. `snapshots`: of producer
        ids. `circuits`: of all listeners. `securities`: of the listeners. `quota_source`: where limits come
        from. `access_log`, `replication`: None if there is none. `upstreams`: of the listeners.
        `data_path`: the name of the one that runs."""
        self._meter = meter
        self._quotas = quotas
        self._gauges = gauges
        self._reloads = reloads
        self._kept_bytes = kept_bytes
        self._snapshots = snapshots
        self._circuits = CircuitsByIdentity() if circuits is None else circuits
        self._securities = securities
        self._quota_source = quota_source
        self._access_log = access_log
        self._replication = replication
        self._upstreams = upstreams
        self._data_path = data_path
        self._process = ProcessMetrics()

    async def refresh(self) -> None:
        """Take in what sessions and sensors have counted up to now."""
        now_ms = time.monotonic() * 1000.0
        self._meter.drain(now_ms)
        await self._meter.fold(now_ms)
        await self._process.refresh()

    def collect(self) -> Iterator[Family]:
        """Each family once, in no particular order."""
        yield from self._of_entities()
        yield from self._of_requests()
        yield from self._of_files()
        yield from self._of_brokers()
        yield from self._of_producer_ids()
        yield from self._of_producer_id_stores()
        yield from self._of_producer_id_snapshots()
        yield from self._of_access_log()
        yield from (_family(*family) for family in replication_samples(self._replication))
        meter, gauges = self._meter, self._gauges
        yield _family("sluice_delay_queue_size", (((quota,), n) for quota, n in gauges.delayed.items()))
        yield _family("sluice_connections", [((), gauges.connections)])
        yield _family("sluice_connections_opened_total", [((), gauges.connections_opened)])
        rules = [(rule, shadow) for rule in ("ip", "default_ip") for shadow in (False, True)]
        yield _family("sluice_accepts_delayed_total", [((), gauges.accepts_delayed)])
        yield _family("sluice_unauthenticated_seconds_total", [((), gauges.guests_s)])
        yield _family("sluice_unauthenticated_delays_total", [((), gauges.guests_delayed)])
        over = (((rule, str(shadow).lower()), gauges.over_rate[rule, shadow]) for rule, shadow in rules)
        yield _family("sluice_connections_over_rate_total", over)
        yield _family("sluice_disconnects_total", (((cause,), n) for cause, n in meter.disconnects.items()))
        yield _family("sluice_quota_forgiven_bytes_total", (((q,), meter.forgiven[q]) for q in _BYTES))
        yield _family("sluice_exempt_bytes_total", (((quota,), meter.exempt[quota]) for quota in _BYTES))
        yield _family("sluice_quota_overflows_total", [((), self._quotas.overflows)])
        yield _family("sluice_principals_named", [((), len(meter.entities.names))])
        yield _family("sluice_label_overflow_total", [((), meter.entities.overflows)])
        source = self._quota_source
        topic = None if source is None or source.topic is None else source.topic.topic
        yield _family("sluice_quota_changes_total", [((), 0 if source is None else source.audit.count)])
        yield _family("sluice_quota_topic_followed", [((), int(topic is not None and topic.is_followed))])
        skipped = 0 if topic is None else topic.bad_records
        yield _family("sluice_quota_topic_records_skipped_total", [((), skipped)])
        yield _family("sluice_kept_bytes", [((), self._kept_bytes())])
        yield _family("sluice_event_loop_lag_seconds", [((), meter.loop_lag.largest_s(time.monotonic()))])
        yield _family("sluice_build_info", [((_VERSION,), 1)])
        yield _family("sluice_pump_info", [((self._data_path,), 1)])
        yield from self._process.collect()
        for library in _LIBRARY_COLLECTORS:
            yield from map(family_of, library.collect())

    def _of_files(self) -> Iterator[Family]:
        """Metrics of followed files; there may be several of a kind, one for each listener."""
        yield _family("sluice_task_restarts_total", (((name,), times) for name, times in restarts.items()))
        yield _family("sluice_log_lines_dropped_total", [((), dropped_log_lines())])
        files = self._reloads.items()
        yield _family(
            "sluice_config_reloads_total",
            (
                ((file, str(outcome)), sum(status.outcomes[outcome] for status in statuses))
                for file, statuses in files
                for outcome in ReloadOutcome
            ),
        )
        yield _family(
            "sluice_config_refused",
            (((file,), any(status.last_error for status in statuses)) for file, statuses in files),
        )
        yield _family(
            "sluice_config_last_success_timestamp_seconds",
            (((file,), min(status.last_success_unix_s for status in statuses)) for file, statuses in files),
        )
        yield _family(
            "sluice_config_generation_info",
            (((file, status.hash), 1) for file, statuses in files for status in statuses),
        )

    def _of_brokers(self) -> Iterator[Family]:
        circuits = [
            ((in_text(address),), any(not one.is_closed for one in same), same)
            for address, same in self._circuits.by_address().items()
        ]
        name = "sluice_upstream_"
        failures = ((at, sum(one.failures for one in same)) for at, _, same in circuits)
        refused = ((at, sum(one.refused for one in same)) for at, _, same in circuits)
        yield _family(f"{name}circuit_open", ((at, is_open) for at, is_open, _ in circuits))
        yield _family(f"{name}dial_failures_total", failures)
        yield _family(f"{name}refused_total", refused)
        yield _family(f"{name}silent", (((watch.name,), watch.answers_nobody) for watch in self._upstreams))
        shown = [
            ((security.name, side), certificate)
            for security in self._securities
            for side, certificate in security.certificates()
        ]
        name = "sluice_certificate_not_"
        yield _family(f"{name}before_timestamp_seconds", ((at, one.begin_unix_s) for at, one in shown))
        yield _family(f"{name}after_timestamp_seconds", ((at, one.end_unix_s) for at, one in shown))

    def _of_access_log(self) -> Iterator[Family]:
        """All 0 where there is none."""
        log, name = self._access_log, "sluice_access_log_"
        counters = NOTHING_WRITTEN if log is None else log.writer.counters
        crowded = 0 if log is None else log.collector.requests.rows_dropped
        folded = 0 if log is None else log.collector.rollup.keys_folded
        yield _family(f"{name}rows_written_total", [((), counters.rows_written)])
        dropped = [(("writer",), counters.rows_dropped), (("window_full",), crowded)]
        yield _family(f"{name}rows_dropped_total", dropped)
        yield _family(f"{name}rows_lost_by_kill_total", [((), counters.rows_lost_by_kill)])
        yield _family(f"{name}rows_pending", [((), counters.rows_pending)])
        yield _family(f"{name}keys_folded_total", [((), folded)])
        yield _family(f"{name}files_written_total", [((), counters.files_written)])
        yield _family(f"{name}written_bytes_total", [((), counters.bytes_written)])
        yield _family(f"{name}pending_bytes", [((), counters.bytes_pending)])
        yield _family(f"{name}failures_total", [((), counters.failures)])

    def _of_entities(self) -> Iterator[Family]:
        meter = self._meter
        series = [((one.quota, one.user, one.client_id), one) for one in meter.entities]
        of_bytes = ((labels, one.amount) for labels, one in series if one.quota in _BYTES)
        yield _family("sluice_quota_bytes_total", of_bytes)
        request = _amounts(series, QuotaKind.REQUEST)
        yield _family("sluice_request_time_seconds_total", ((at, ms / 1e3) for at, ms in request))
        exempt = meter.exempt_request_ms.items()
        yield _family("sluice_exempt_request_time_seconds_total", (((why,), ms / 1e3) for why, ms in exempt))
        unnamed = self._quotas.limits.kinds_of_unnamed()
        lowest = (((kind.value,), int(kind in unnamed)) for kind in KINDS)
        yield _family("sluice_unnamed_have_lowest_limit", lowest)
        yield _family("sluice_followers_total", (((how,), n) for how, n in meter.followers.items()))
        yield _family("sluice_controller_mutations_total", _amounts(series, QuotaKind.CONTROLLER_MUTATION))
        yield _family("sluice_over_quota_bytes_total", ((at, one.over_quota_bytes) for at, one in series))
        yield _family("sluice_throttled_requests_total", ((at, one.throttled_requests) for at, one in series))
        yield _family("sluice_throttled_seconds_total", ((at, one.throttled_ms / 1e3) for at, one in series))
        now_ms = time.monotonic() * 1000.0
        yield _family(
            "sluice_delayed_seconds_total", ((at, one.delayed.ms(now_ms) / 1e3) for at, one in series)
        )
        refused = (((*at, why), n) for at, one in series for why, n in one.refused.items())
        yield _family("sluice_refused_requests_total", refused)
        shadow = [(labels, one) for labels, one in series if one.in_shadow]
        yield _family(
            "sluice_shadow_throttled_requests_total", ((at, one.shadow_requests) for at, one in shadow)
        )
        yield _family(
            "sluice_shadow_throttled_seconds_total", ((at, one.shadow_ms / 1e3) for at, one in shadow)
        )
        limits = meter.limits.items()
        yield _family(
            "sluice_quota_limit_bytes_per_second", ((at, rate) for at, rate in limits if at[0] in _BYTES)
        )
        yield _family("sluice_quota_limit_request_ratio", _limits(limits, QuotaKind.REQUEST, 1000.0))
        mutations = _limits(limits, QuotaKind.CONTROLLER_MUTATION, 1.0)
        yield _family("sluice_quota_limit_controller_mutations_per_second", mutations)
        yield _family("sluice_quota_utilization_ratio", meter.utilisation.items())
        yield _family("sluice_quota_warning", meter.warned.items())
        yield _family("sluice_quota_warnings_total", ((labels, one.warnings) for labels, one in series))
        yield _family("sluice_quota_warning_share_ratio", [((), meter.warnings.share)])

    def _of_producer_ids(self) -> Iterator[Family]:
        """What users asked for, and what became of it."""
        users = [((one.user,), one) for one in self._meter.producer_ids]
        name = "sluice_producer_ids_"
        yield _family(f"{name}new_total", ((at, one.new) for at, one in users))
        yield _family(f"{name}resumed_total", ((at, one.resumed) for at, one in users))
        yield _family(f"{name}forced_total", ((at, one.forced) for at, one in users))
        yield _family(f"{name}over_total", ((at, one.over) for at, one in users))
        named = "sluice_transactional_ids_"
        yield _family(f"{named}new_total", ((at, one.transactional_new) for at, one in users))
        yield _family(f"{named}over_total", ((at, one.transactional_over) for at, one in users))
        yield _family(
            f"{name}throttle_time_seconds_total", ((at, one.throttled_ms / 1e3) for at, one in users)
        )
        refused = ((one.user, why, n) for _, one in users for why, n in one.refused.items())
        yield _family(f"{name}refused_total", (((user, why), n) for user, why, n in refused))

    def _of_producer_id_stores(self) -> Iterator[Family]:
        """What is left of the limits, and what is remembered of users."""
        meter = self._meter.producer_ids
        levels = meter.levels
        here = [((user,), one) for user, one in levels.items() if one.tokens < math.inf]
        name = "sluice_producer_ids_"
        named = ((at, one.limit) for at, one in here if at != (OTHER,))
        yield _family(f"{name}limit_per_hour", named)
        yield _family(f"{name}tokens", ((at, one.tokens) for at, one in here))
        yield _family(f"{name}held", ((at, one.held) for at, one in here))
        yield _family(f"{name}gates", (((user,), one.gates) for user, one in levels.items()))
        yield _family(f"{name}store_bytes", ((at, one.store_bytes) for at, one in here))
        yield _family(f"{name}layers", ((at, one.layers) for at, one in here))
        yield _family(f"{name}pairs", (((user,), one.pairs) for user, one in levels.items()))
        ceiling = meter.ids.quota.ceiling
        yield _family(f"{name}pairs_limit", [((), ceiling.max_pairs)])
        yield _family(f"{name}broker_heap_bytes", [((), ceiling.heap_bytes)])

    def _of_producer_id_snapshots(self) -> Iterator[Family]:
        """The copies of these stores in a file; without one the families are there all the same, with 0."""
        snapshots = self._snapshots
        name = "sluice_producer_ids_"
        outcomes = dict.fromkeys(map(str, SnapshotOutcome), 0) if snapshots is None else snapshots.outcomes
        yield _family(f"{name}snapshots_total", (((outcome,), n) for outcome, n in outcomes.items()))
        written_unix_s = 0.0 if snapshots is None else snapshots.last_written_unix_s
        yield _family(f"{name}snapshot_timestamp_seconds", [((), written_unix_s)])

    def _of_requests(self) -> Iterator[Family]:
        meter = self._meter
        tallies = [(api_name(key), tally) for key, tally in sorted(meter.apis.items())]
        if any(meter.unknown_apis):
            tallies.append((OTHER, meter.unknown_apis))
        count: list[tuple[tuple[str, ...], float]] = []
        size_bounds = _bounds_of(SIZE_BUCKETS, 1.0)
        sizes = _family("sluice_request_size_bytes", ())
        durations = _family("sluice_upstream_duration_seconds", ())
        for name, tally in tallies:
            count.append(((name,), sum(tally[:SIZE_SLOTS])))
            _add_histogram(sizes, name, tally[:SIZE_SLOTS], SIZE_BUCKETS, size_bounds, tally[SIZE_SUM])
            _add_durations(durations, name, tally)
        throttles = _family("sluice_throttle_time_seconds", ())
        for quota, tally in meter.throttle_times.items():
            if quota in _BYTES or any(tally):
                _add_durations(throttles, quota, tally)
        yield _family("sluice_requests_total", count)
        yield from (sizes, durations, throttles)


def _amounts(
    series: Iterable[tuple[tuple[str, str, str], EntitySeries]], kind: QuotaKind
) -> Iterator[tuple[tuple[str, str], float]]:
    """What was used of one kind, by user and client id."""
    for (quota, user, client_id), one in series:
        if quota == kind.value:
            yield (user, client_id), one.amount


def _limits(
    limits: Iterable[tuple[tuple[str, str, str, str], float]], kind: QuotaKind, unit: float
) -> Iterator[tuple[tuple[str, str, str], float]]:
    """The limits of one kind by user, client id and rule, divided by `unit`."""
    for (quota, user, client_id, rule), rate_per_s in limits:
        if quota == kind.value:
            yield (user, client_id, rule), rate_per_s / unit


def _family(name: str, samples: Iterable[tuple[tuple[str, ...], float]]) -> Family:
    shown, type_, help_, labels = _SHOWN[name]
    texts = [(series_text(name, labels, values), value) for values, value in samples]
    return Family(shown, type_, help_, texts)


def _add_durations(family: Family, label: str, tally: list[float]) -> None:
    slots = tally[DURATION_AT : DURATION_AT + DURATION_SLOTS]
    bounds = _bounds_of(DURATION_BUCKETS, SLOTS_PER_MS * 1000.0)
    _add_histogram(family, label, slots, DURATION_BUCKETS, bounds, tally[DURATION_SUM] / 1000.0)


def _add_histogram(
    family: Family,
    label: str,
    slots: list[float],
    buckets: range,
    bounds: tuple[str, ...],
    total: float,
) -> None:
    """Slot k holds what is ≤ (durations: <) 2^k; a bucket holds all within its bound, so it adds up slots."""
    within = list(accumulate(slots))
    counts = [*(within[slot] for slot in buckets), within[-1], within[-1], total]
    family.samples += zip(_histogram_texts(family.name, label, bounds), counts, strict=True)


@lru_cache
def _bounds_of(buckets: range, slots_per_unit: float) -> tuple[str, ...]:
    """What the buckets of these slots are called."""
    return (*(str((1 << slot) / slots_per_unit) for slot in buckets), "+Inf")


@lru_cache(maxsize=1_000)
def _histogram_texts(name: str, label: str, bounds: tuple[str, ...]) -> tuple[str, ...]:
    labels = METRICS[name].labels[:1]
    buckets = (series_text(f"{name}_bucket", (*labels, "le"), (label, bound)) for bound in bounds)
    return (*buckets, *(series_text(f"{name}_{what}", labels, (label,)) for what in ("count", "sum")))
