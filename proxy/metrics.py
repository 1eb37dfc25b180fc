"""Integers → Prometheus samples: names and shapes what the meter, gauges and sensors counted.

Exports what metric_table.py defines, and prometheus_client's process metrics. Text is made a few samples at a
time, so that a scrape of 10,000 series stalls no connection, and by code of our own: prometheus_client takes
20 µs a sample, because it looks at each character of each name.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Final

from prometheus_client import GC_COLLECTOR, PLATFORM_COLLECTOR, PROCESS_COLLECTOR
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from sluice.protocol.names import api_name
from sluice.proxy.entity_series import OTHER
from sluice.proxy.gauges import Gauges
from sluice.proxy.metric_table import METRICS
from sluice.proxy.producer_id_file import ProducerIdFile, SnapshotOutcome
from sluice.proxy.usage_meter import (
    DURATION_AT,
    DURATION_SLOTS,
    DURATION_SUM,
    SIZE_SLOTS,
    SIZE_SUM,
    SLOTS_PER_MS,
    UsageMeter,
)
from sluice.proxy.watched_file import ReloadOutcome, ReloadStatus
from sluice.quotas.manager import QuotaManager

DISTRIBUTION: Final = "kafka-sluice"
SIZE_BUCKETS: Final = range(6, 28, 2)
"""slots that become buckets: 64 B, 256 B, … 64 MiB"""
DURATION_BUCKETS: Final = range(1, 20)
"""slots that become buckets: 0.25 ms, 0.5 ms, … 65.5 s"""
_SAMPLES_PER_STEP: Final = 200
"""about 0.5 ms of work between which connections are served"""
_LIBRARY_COLLECTORS: Final = (PROCESS_COLLECTOR, PLATFORM_COLLECTOR, GC_COLLECTOR)


class SluiceCollector(Collector):
    """All families of metric_table.py, as they are at the moment of the call."""

    def __init__(
        self,
        meter: UsageMeter,
        quotas: QuotaManager,
        gauges: Gauges,
        reloads: Mapping[str, Sequence[ReloadStatus]],
        kept_bytes: Callable[[], int] = lambda: 0,
        snapshots: ProducerIdFile | None = None,
    ) -> None:
        """`reloads`: by what the files hold. `kept_bytes`: of the worker's budget. `snapshots`: of producer
        ids."""
        self._meter = meter
        self._quotas = quotas
        self._gauges = gauges
        self._reloads = reloads
        self._kept_bytes = kept_bytes
        self._snapshots = snapshots

    async def refresh(self) -> None:
        """Take in what sessions and sensors have counted up to now."""
        now_ms = time.monotonic() * 1000.0
        self._meter.drain(now_ms)
        await self._meter.fold(now_ms)

    def collect(self) -> Iterator[Metric]:
        """Each family once, in no particular order."""
        yield from self._of_entities()
        yield from self._of_requests()
        yield from self._of_files()
        yield from self._of_producer_ids()
        meter, gauges = self._meter, self._gauges
        yield _family("sluice_delay_queue_size", (((quota,), n) for quota, n in gauges.delayed.items()))
        yield _family("sluice_connections", [((), gauges.connections)])
        yield _family("sluice_connections_opened_total", [((), gauges.connections_opened)])
        yield _family("sluice_disconnects_total", (((cause,), n) for cause, n in meter.disconnects.items()))
        yield _family("sluice_quota_forgiven_bytes_total", (((q,), n) for q, n in meter.forgiven.items()))
        yield _family("sluice_exempt_bytes_total", (((quota,), n) for quota, n in meter.exempt.items()))
        yield _family("sluice_quota_overflows_total", [((), self._quotas.overflows)])
        yield _family("sluice_label_overflow_total", [((), meter.entities.overflows)])
        yield _family("sluice_kept_bytes", [((), self._kept_bytes())])
        yield _family("sluice_build_info", [((version(DISTRIBUTION),), 1)])

    def _of_files(self) -> Iterator[Metric]:
        """Of one kind there may be several, one for each listener."""
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
            "sluice_config_last_success_timestamp_seconds",
            (((file,), min(status.last_success_unix_s for status in statuses)) for file, statuses in files),
        )
        yield _family(
            "sluice_config_generation_info",
            (((file, status.hash), 1) for file, statuses in files for status in statuses),
        )

    def _of_entities(self) -> Iterator[Metric]:
        meter = self._meter
        series = [((one.quota, one.user, one.client_id), one) for one in meter.entities]
        yield _family("sluice_quota_bytes_total", ((labels, one.quota_bytes) for labels, one in series))
        yield _family("sluice_over_quota_bytes_total", ((at, one.over_quota_bytes) for at, one in series))
        yield _family("sluice_throttled_requests_total", ((at, one.throttled_requests) for at, one in series))
        yield _family("sluice_throttled_seconds_total", ((at, one.throttled_ms / 1e3) for at, one in series))
        shadow = [(labels, one) for labels, one in series if one.in_shadow]
        yield _family(
            "sluice_shadow_throttled_requests_total", ((at, one.shadow_requests) for at, one in shadow)
        )
        yield _family(
            "sluice_shadow_throttled_seconds_total", ((at, one.shadow_ms / 1e3) for at, one in shadow)
        )
        yield _family("sluice_quota_limit_bytes_per_second", meter.limits.items())
        yield _family("sluice_quota_utilization_ratio", meter.utilisation.items())

    def _of_producer_ids(self) -> Iterator[Metric]:
        meter, snapshots = self._meter.producer_ids, self._snapshots
        users = [((one.user,), one) for one in meter]
        levels = meter.levels
        here = [((user,), one) for user, one in levels.items() if one.tokens < math.inf]
        name = "sluice_producer_ids_"
        yield _family(f"{name}new_total", ((at, one.new) for at, one in users))
        yield _family(f"{name}resumed_total", ((at, one.resumed) for at, one in users))
        yield _family(f"{name}forced_total", ((at, one.forced) for at, one in users))
        yield _family(f"{name}over_total", ((at, one.over) for at, one in users))
        yield _family(
            f"{name}throttle_time_seconds_total", ((at, one.throttled_ms / 1e3) for at, one in users)
        )
        refused = ((one.user, why, n) for _, one in users for why, n in one.refused.items())
        yield _family(f"{name}refused_total", (((user, why), n) for user, why, n in refused))
        named = ((at, one.limit) for at, one in here if at != (OTHER,))
        yield _family(f"{name}limit_per_hour", named)
        yield _family(f"{name}tokens", ((at, one.tokens) for at, one in here))
        yield _family(f"{name}held", ((at, one.held) for at, one in here))
        yield _family(f"{name}gates", (((user,), one.gates) for user, one in levels.items()))
        yield _family(f"{name}store_bytes", ((at, one.store_bytes) for at, one in here))
        yield _family(f"{name}layers", ((at, one.layers) for at, one in here))
        yield _family(f"{name}pairs", ((at, one.pairs) for at, one in here))
        ceiling = meter.ids.quota.ceiling
        yield _family(f"{name}pairs_limit", [((), ceiling.max_pairs)])
        yield _family(f"{name}broker_heap_bytes", [((), ceiling.heap_bytes)])
        outcomes = dict.fromkeys(map(str, SnapshotOutcome), 0) if snapshots is None else snapshots.outcomes
        yield _family(f"{name}snapshots_total", (((outcome,), n) for outcome, n in outcomes.items()))
        written_unix_s = 0.0 if snapshots is None else snapshots.last_written_unix_s
        yield _family(f"{name}snapshot_timestamp_seconds", [((), written_unix_s)])

    def _of_requests(self) -> Iterator[Metric]:
        meter = self._meter
        tallies = [(api_name(key), tally) for key, tally in sorted(meter.apis.items())]
        if any(meter.unknown_apis):
            tallies.append((OTHER, meter.unknown_apis))
        requests = _family("sluice_requests_total", ())
        sizes = _family("sluice_request_size_bytes", ())
        durations = _family("sluice_upstream_duration_seconds", ())
        for name, tally in tallies:
            _add(requests, (name,), sum(tally[:SIZE_SLOTS]))
            _add_histogram(sizes, name, tally[:SIZE_SLOTS], SIZE_BUCKETS, float, tally[SIZE_SUM])
            _add_durations(durations, name, tally)
        throttles = _family("sluice_throttle_time_seconds", ())
        for quota, tally in meter.throttle_times.items():
            _add_durations(throttles, quota, tally)
        yield from (requests, sizes, durations, throttles)


async def exposition(collector: SluiceCollector, accept: str) -> tuple[bytes, str]:
    """What /metrics answers now: (body, content type).

    `accept` is the request's Accept header: OpenMetrics if it asks for that, else Prometheus' text.
    """
    await collector.refresh()
    _, content_type = choose_encoder(accept)
    is_openmetrics = content_type.startswith("application/openmetrics-text")
    parts: list[str] = []
    for source in (collector, *_LIBRARY_COLLECTORS):
        for family in source.collect():
            parts.append(_heading(family, is_openmetrics))
            for begin in range(0, len(family.samples), _SAMPLES_PER_STEP):
                parts.extend(map(_line, family.samples[begin : begin + _SAMPLES_PER_STEP]))
                await asyncio.sleep(0)
    if is_openmetrics:
        parts.append("# EOF\n")
    return "".join(parts).encode(), content_type


def _heading(family: Metric, is_openmetrics: bool) -> str:
    """OpenMetrics names the family, Prometheus' text its samples."""
    name = f"{family.name}_total" if family.type == "counter" and not is_openmetrics else family.name
    text = family.documentation.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {name} {text}\n# TYPE {name} {family.type}\n"


def _line(sample: Sample) -> str:
    labels = ",".join([f'{key}="{_escaped(value)}"' for key, value in sample.labels.items()])
    return (
        f"{sample.name}{{{labels}}} {float(sample.value)!r}\n"
        if labels
        else f"{sample.name} {float(sample.value)!r}\n"
    )


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _family(name: str, samples: Iterable[tuple[tuple[str, ...], float]]) -> Metric:
    definition = METRICS[name]
    # An info is a gauge of 1 in the text format, and so it may be one in OpenMetrics, under its full name.
    is_info = definition.type == "info"
    family = Metric(
        definition.name if is_info else definition.family,
        definition.help,
        "gauge" if is_info else definition.type,
    )
    for labels, value in samples:
        _add(family, labels, value)
    return family


def _add(family: Metric, labels: tuple[str, ...], value: float) -> None:
    name = f"{family.name}_total" if family.type == "counter" else family.name
    family.add_sample(name, dict(zip(METRICS[name].labels, labels, strict=True)), value)


def _add_durations(family: Metric, label: str, tally: list[float]) -> None:
    slots = tally[DURATION_AT : DURATION_AT + DURATION_SLOTS]
    _add_histogram(
        family,
        label,
        slots,
        DURATION_BUCKETS,
        lambda slots_bound: slots_bound / SLOTS_PER_MS / 1000.0,
        tally[DURATION_SUM] / 1000.0,
    )


def _add_histogram(
    family: Metric,
    label: str,
    slots: list[float],
    buckets: range,
    bound_of: Callable[[int], float],
    total: float,
) -> None:
    """Slot k holds what is ≤ (durations: <) 2^k; a bucket holds all within its bound, so it adds up slots."""
    labels = {METRICS[family.name].labels[0]: label}
    below, count = 0, 0.0
    for slot in buckets:
        count += sum(slots[below : slot + 1])
        below = slot + 1
        family.add_sample(f"{family.name}_bucket", {**labels, "le": str(bound_of(1 << slot))}, count)
    count += sum(slots[below:])
    family.add_sample(f"{family.name}_bucket", {**labels, "le": "+Inf"}, count)
    family.add_sample(f"{family.name}_count", labels, count)
    family.add_sample(f"{family.name}_sum", labels, total)
