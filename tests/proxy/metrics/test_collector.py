"""/metrics: exactly the families of the table, as two formats, with the numbers that were counted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, time

import pytest
import structlog
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families as text_families
from prometheus_client.samples import Sample

from sluice.proxy.config.listener import ListenerOptions
from sluice.proxy.listener.circuit import Circuits, CircuitsByIdentity
from sluice.proxy.listener.route import BrokerRoute
from sluice.proxy.listener.security import ListenerSecurity
from sluice.proxy.listener.tls.context import ServerTls
from sluice.proxy.listener.upstream import Upstream
from sluice.proxy.listener.upstream_watch import UpstreamWatch
from sluice.proxy.metrics.collector import SluiceCollector
from sluice.proxy.metrics.exposition import exposition
from sluice.proxy.metrics.table import METRICS
from sluice.proxy.metrics.usage_meter import UsageMeter
from sluice.proxy.runtime.gauges import Gauges
from sluice.proxy.runtime.supervision import restarts
from sluice.proxy.runtime.watched_file import ReloadOutcome, ReloadStatus
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.producer_ids.shared import ProducerIds
from sluice.proxy.session.replication.followers import Replication
from sluice.proxy.session.replication.mirror import SessionMirror
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.quotas.producer_ids.ticket import Ticket
from sluice.quotas.replication.limits import ReplicationLimits, ThrottledReplicas
from sluice.usage.records import ConnectionRecord, EventKind, Flow, Recorder, ThrottleEvent
from testkit.access_log.finished import Finished
from testkit.peers.certificates import CertificateAuthority

SERVER = CertificateAuthority().server()
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
IDS = {"producer_ids_rate": 1}
LIMITS = QuotaLimits(
    [
        (QuotaEntity("alice"), {"producer_byte_rate": 1000, "consumer_byte_rate": 2000} | IDS),
        (QuotaEntity("carol"), {"producer_byte_rate": 1000}),
        (QuotaEntity("dave"), {"request_percentage": 50.0, "controller_mutation_rate": 2.5}),
        (QuotaEntity(DEFAULT), {"producer_byte_rate": 500}),
    ],
    shadow={QuotaEntity("carol"): ["producer_byte_rate"]},
)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with structlog.testing.capture_logs():
        yield


@cache
def server_tls() -> ServerTls:
    """Loaded from files that are gone."""
    with TemporaryDirectory() as folder:
        files = SERVER.write(Path(folder))
        tls = ServerTls(certificate_file=files.certificate, key_file=files.key)
        tls.load(time())
    return tls


def upstream_watch(circuits: Circuits) -> UpstreamWatch:
    """One that has asked nothing yet."""
    loop = asyncio.new_event_loop()
    loop.close()
    options = ListenerOptions(name="plain", bind_port=0)
    upstream = Upstream(loop, options, circuits, dial_timeout_s=1.0)
    return UpstreamWatch(loop, "plain", upstream, BrokerRoute(("b", 9092)), circuits)


class Proxy:
    """All that /metrics reads, with something in each of it."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        self.quotas = QuotaManager(LIMITS, max_sensors=10, max_client_ids_per_user=2)
        self.gauges = Gauges()
        self.reloads = ReloadStatus(hash="0123456789ab", last_success_unix_s=1_700_000_000.5)
        self.ids = ProducerIds()
        self.meter = UsageMeter(self.recorder, self.quotas, self.ids)
        self.circuits = CircuitsByIdentity()
        self.security = ListenerSecurity("clients-tls", server_tls())
        self.replication = Replication(1)
        self.collector = SluiceCollector(
            self.meter,
            self.quotas,
            self.gauges,
            {"quotas": [self.reloads]},
            circuits=self.circuits,
            securities=[ListenerSecurity("plain"), self.security],
            replication=self.replication,
            upstreams=[upstream_watch(self.circuits.of("plain"))],
        )

    def use(self) -> None:
        now_ms = monotonic() * 1000.0
        for user, amount in (("alice", 70_000), ("mallory", 10)):
            sensor = self.quotas.sensor(QuotaKind.PRODUCE, user, "app", now_ms)
            assert sensor is not None
            sensor.charge(amount, now_ms)
            sensor.count_over(25, now_ms)
            self.recorder.requests.append(
                Finished(Flow("app"), 300, 60, 3.0, 40.0, 5.0, now_ms, 0, 9, user, sensor)
            )
        for kind, used in ((QuotaKind.REQUEST, 1500.0), (QuotaKind.CONTROLLER_MUTATION, 7.0)):
            sensor = self.quotas.sensor(kind, "dave", "app", now_ms)
            assert sensor is not None
            sensor.charge(used, now_ms)
        self.recorder.requests.append(Finished(Flow("app"), 90, 5000, 0.1, 0.0, 0.0, now_ms, 1, 12, "bob"))
        self.recorder.requests.append(Finished(Flow("app"), 90, 50, 1.0, 0.0, 0.0, now_ms, 999, 0, "bob"))
        self.recorder.throttles.append(
            ThrottleEvent(EventKind.MUTE, now_ms, 40.0, "produce", "user", "alice", "app", 0, 300)
        )
        self.recorder.throttles.append(
            ThrottleEvent(EventKind.SHADOW, now_ms, 1500.0, "produce", "user", "carol", "app", 0, 300)
        )
        self.recorder.connections.append(
            ConnectionRecord(DisconnectCause.BROKER_CLOSED, "", "p", "alice", "app", 0.0, 1.0, 1, 2, 3)
        )
        principal = self.ids.quota.principal("alice", 1.0, now_ms)
        tickets = [Ticket(principal, (number,), (), (number,)) for number in range(2)]
        assert [self.ids.quota.ask(ticket, now_ms) for ticket in tickets] == [True, False]
        self.ids.quota.commit(tickets[0], now_ms)
        principal.held_ms = 1500.0
        self.recorder.throttles.append(
            ThrottleEvent(
                EventKind.REFUSAL, now_ms, 0.0, "producer_ids", "user", "alice", "app", 0, 300,
                address="10.0.0.9", reason="sequence_gate",
            )
        )  # fmt: skip
        self.recorder.throttles.append(
            ThrottleEvent(
                EventKind.REFUSAL, now_ms, 0.0, "produce", "user", "alice", "app", 0, 300,
                reason="over_budget",
            )
        )  # fmt: skip
        for circuits in map(self.circuits.of, ("plain", "tls")):
            down, up = circuits.of(("10.0.0.1", 9092)), circuits.of(("::1", 9092))
            assert down.may_dial(now_ms)
            down.failed(now_ms, 0.0)
            assert not down.may_dial(now_ms)
            assert up.may_dial(now_ms)
            up.succeeded()
        self.recorder.exempt_request_ms["rule"] = 2500.0
        throttled = {"orders": ThrottledReplicas(all=True)}
        limits = ReplicationLimits({1: 5e6}, {2: 4e6}, throttled, throttled)
        self.replication.apply(limits, {}, now_ms)
        self.replication.begun(SessionMirror(2, self.replication), 77)
        self.replication.passed(2, 1_000)
        self.gauges.connections, self.gauges.connections_opened = 3, 4
        self.gauges.delayed["produce"] = 2
        self.reloads.outcomes[ReloadOutcome.INVALID] = 1

    def families(self, accept: str = "") -> dict[str, Metric]:
        body, _ = asyncio.run(exposition(self.collector, accept))
        parse = openmetrics_families if accept else text_families
        return {family.name: family for family in parse(body.decode())}

    def value(self, name: str, **labels: str) -> float:
        """The one sample of this name and these labels."""
        samples: list[Sample] = [
            sample
            for family in self.families().values()
            for sample in family.samples
            if sample.name == name and sample.labels == labels
        ]
        (sample,) = samples
        return sample.value


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Proxy:
    monkeypatch.setitem(restarts, "usage_meter", 0)  # a process that began no such work has no sample of it
    proxy = Proxy()
    proxy.use()
    return proxy


def is_ours(name: str) -> bool:
    return not name.startswith(("process_", "python_"))


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_every_exported_metric_is_in_the_table_and_every_row_is_exported(proxy: Proxy, accept: str) -> None:
    exported = {name: family for name, family in proxy.families(accept).items() if is_ours(name)}
    expected = {
        row.name if row.type == "info" else row.family: ("gauge" if row.type == "info" else row.type)
        for row in METRICS.values()
    }
    assert {name: family.type for name, family in exported.items()} == expected


def test_every_sample_has_the_labels_of_its_row_and_every_row_has_a_sample(proxy: Proxy) -> None:
    seen = set()
    for family in proxy.families().values():
        if not is_ours(family.name):
            continue
        for sample in family.samples:
            name = family.name if family.type == "histogram" else sample.name
            assert set(sample.labels) - {"le"} == set(METRICS[name].labels), sample
            seen.add(name)
    assert seen == set(METRICS)


def test_a_scrape_shows_what_was_recorded_up_to_now(proxy: Proxy) -> None:
    alice = {"quota": "produce", "user": "alice", "client_id": ""}
    assert proxy.value("sluice_quota_bytes_total", **alice) == 70_000
    assert proxy.value("sluice_quota_bytes_total", **{**alice, "user": "other"}) == 10
    assert proxy.value("sluice_quota_limit_bytes_per_second", **alice, rule="user") == 1000
    assert proxy.value("sluice_quota_utilization_ratio", **alice) > 1
    assert proxy.value("sluice_throttled_requests_total", **alice) == 1
    assert proxy.value("sluice_throttled_seconds_total", **alice) == 0.04
    assert proxy.value("sluice_delayed_seconds_total", **alice) == pytest.approx(0.04, abs=1e-6)
    assert proxy.value("sluice_over_quota_bytes_total", **alice) == 25
    assert proxy.value("sluice_refused_requests_total", **alice, reason="over_budget") == 1
    assert proxy.value("sluice_quota_forgiven_bytes_total", quota="produce") == pytest.approx(9_000)
    assert proxy.value("sluice_requests_total", api_key="Produce") == 2
    assert proxy.value("sluice_requests_total", api_key="other") == 1
    assert proxy.value("sluice_disconnects_total", cause="broker_closed") == 1
    assert proxy.value("sluice_disconnects_total", cause="frame_too_large") == 0
    assert proxy.value("sluice_connections") == 3
    assert proxy.value("sluice_connections_opened_total") == 4
    assert proxy.value("sluice_delay_queue_size", quota="produce") == 2
    assert proxy.value("sluice_config_reloads_total", file="quotas", outcome="invalid") == 1
    assert proxy.value("sluice_config_last_success_timestamp_seconds", file="quotas") == 1_700_000_000.5
    assert proxy.value("sluice_config_generation_info", file="quotas", hash="0123456789ab") == 1
    assert proxy.value("sluice_build_info", version=version("kafka-sluice")) == 1


def test_each_kind_of_quota_is_counted_in_its_own_unit(proxy: Proxy) -> None:
    dave = {"user": "dave", "client_id": ""}
    assert proxy.value("sluice_request_time_seconds_total", **dave) == 1.5
    assert proxy.value("sluice_exempt_request_time_seconds_total", reason="rule") == 2.5
    assert proxy.value("sluice_controller_mutations_total", **dave) == 7
    assert proxy.value("sluice_quota_limit_request_ratio", **dave, rule="user") == 0.5
    assert proxy.value("sluice_quota_limit_controller_mutations_per_second", **dave, rule="user") == 2.5
    families = proxy.families()
    for name in ("sluice_quota_bytes", "sluice_quota_limit_bytes_per_second"):
        assert {sample.labels["quota"] for sample in families[name].samples} <= {"produce", "fetch"}


def test_brokers_that_cannot_be_reached_are_shown_by_address(proxy: Proxy) -> None:
    def values(name: str) -> dict[str, float]:
        return {one.labels["upstream"]: one.value for one in proxy.families()[name].samples}

    assert values("sluice_upstream_circuit_open") == {"10.0.0.1:9092": 1, "[::1]:9092": 0}
    assert values("sluice_upstream_dial_failures") == {"10.0.0.1:9092": 2, "[::1]:9092": 0}
    assert values("sluice_upstream_refused") == {"10.0.0.1:9092": 2, "[::1]:9092": 0}


def test_begin_and_end_of_each_certificate_in_force_are_shown(proxy: Proxy) -> None:
    labels = {"listener": "clients-tls", "side": "clients"}
    begin = proxy.value("sluice_certificate_not_before_timestamp_seconds", **labels)
    assert begin == SERVER.certificate.not_valid_before_utc.timestamp()
    end = proxy.value("sluice_certificate_not_after_timestamp_seconds", **labels)
    assert end == SERVER.not_after.timestamp()


def test_what_limits_in_shadow_mode_would_have_done_is_counted_apart(proxy: Proxy) -> None:
    carol = {"quota": "produce", "user": "carol", "client_id": ""}
    assert proxy.value("sluice_shadow_throttled_requests_total", **carol) == 1
    assert proxy.value("sluice_shadow_throttled_seconds_total", **carol) == 1.5
    assert proxy.value("sluice_throttled_requests_total", **carol) == 0
    assert proxy.value("sluice_throttled_seconds_total", **carol) == 0
    samples = proxy.families()["sluice_shadow_throttled_requests"].samples
    assert [sample.labels["user"] for sample in samples] == ["carol"]


def test_a_limit_in_shadow_mode_has_its_counters_from_the_start() -> None:
    proxy = Proxy()
    sensor = proxy.quotas.sensor(QuotaKind.PRODUCE, "carol", "app", monotonic() * 1000.0)
    assert sensor is not None
    sensor.charge(1, monotonic() * 1000.0)
    labels = {"quota": "produce", "user": "carol", "client_id": ""}
    assert proxy.value("sluice_shadow_throttled_requests_total", **labels) == 0


def test_a_file_that_cannot_be_used_is_shown_until_it_can(proxy: Proxy) -> None:
    assert proxy.value("sluice_config_refused", file="quotas") == 0.0
    proxy.reloads.last_error = "quotas.yaml:3: unknown key"
    assert proxy.value("sluice_config_refused", file="quotas") == 1.0


def test_a_stall_of_the_event_loop_is_shown(proxy: Proxy) -> None:
    proxy.meter.loop_lag.note(0.75, monotonic())
    assert proxy.value("sluice_event_loop_lag_seconds") == 0.75


def test_histograms_are_cumulative_in_base_units(proxy: Proxy) -> None:
    def buckets(name: str, **labels: str) -> dict[str, float]:
        samples = proxy.families()[name].samples
        return {
            sample.labels["le"]: sample.value
            for sample in samples
            if sample.name == f"{name}_bucket" and labels.items() <= sample.labels.items()
        }

    sizes = buckets("sluice_request_size_bytes", api_key="Produce")  # twice 300 bytes
    assert (sizes["64.0"], sizes["256.0"], sizes["1024.0"], sizes["+Inf"]) == (0, 0, 2, 2)
    durations = buckets("sluice_upstream_duration_seconds", api_key="Produce")  # twice 3 ms
    assert (durations["0.002"], durations["0.004"], durations["65.536"], durations["+Inf"]) == (0, 2, 2, 2)
    fetches = buckets("sluice_upstream_duration_seconds", api_key="Fetch")  # 0.1 ms
    assert fetches["0.00025"] == 1
    throttles = buckets("sluice_throttle_time_seconds", quota="produce")  # twice 40 ms
    assert (throttles["0.032"], throttles["0.064"]) == (0, 2)
    assert proxy.value("sluice_throttle_time_seconds_sum", quota="produce") == 0.08
    assert proxy.value("sluice_request_size_bytes_sum", api_key="Produce") == 600
    assert proxy.value("sluice_request_size_bytes_count", api_key="Produce") == 2


def test_a_size_on_a_bound_is_within_it() -> None:
    proxy = Proxy()
    proxy.recorder.requests.append(Finished(Flow("b"), 64, api_key=3))
    proxy.recorder.requests.append(Finished(Flow("b"), 2**27, api_key=3))
    assert proxy.value("sluice_request_size_bytes_bucket", api_key="Metadata", le="64.0") == 1
    assert proxy.value("sluice_request_size_bytes_bucket", api_key="Metadata", le="67108864.0") == 1
    assert proxy.value("sluice_request_size_bytes_bucket", api_key="Metadata", le="+Inf") == 2


def test_the_format_is_negotiated(proxy: Proxy) -> None:
    body, content_type = asyncio.run(exposition(proxy.collector, OPENMETRICS))
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    assert body.endswith(b"# EOF\n")
    assert body.count(b"# EOF") == 1
    body, content_type = asyncio.run(exposition(proxy.collector, ""))
    assert content_type.startswith("text/plain; version=0.0.4")
    assert b"# EOF" not in body


def test_names_with_quotes_and_line_ends_are_escaped() -> None:
    name = 'a"b\\c\nd'
    quotas = QuotaManager(QuotaLimits([(QuotaEntity(name), {"producer_byte_rate": 1})]))
    meter = UsageMeter(Recorder(), quotas)
    sensor = quotas.sensor(QuotaKind.PRODUCE, name, "x", 0.0)
    assert sensor is not None
    sensor.charge(1, 0.0)
    body, _ = asyncio.run(
        exposition(SluiceCollector(meter, quotas, Gauges(), {"quotas": [ReloadStatus()]}), "")
    )
    (family,) = [f for f in text_families(body.decode()) if f.name == "sluice_quota_bytes"]
    assert [sample.labels["user"] for sample in family.samples] == [name]


def test_a_scrape_shows_producer_ids_by_user(proxy: Proxy) -> None:
    def value(name: str, **labels: str) -> float:
        return proxy.value(f"sluice_producer_ids_{name}", **labels)

    alice = {"user": "alice"}
    assert value("new_total", **alice) == 1
    assert value("tokens", **alice) == pytest.approx(-1.0, abs=0.01)
    assert value("limit_per_hour", **alice) == 1
    assert value("held", **alice) == 1
    assert value("throttle_time_seconds_total", **alice) == 1.5
    assert value("refused_total", **alice, reason="sequence_gate") == 1
    assert value("refused_total", **alice, reason="producer_ids_rate") == 0
    assert value("layers", **alice) == 1
    assert value("store_bytes", **alice) > 0
    assert value("pairs", **alice) == 1
    assert value("pairs_limit") == 994_205
    assert value("broker_heap_bytes") == 270
    assert value("snapshots_total", outcome="written") == 0


def test_the_event_loop_runs_between_a_page_s_samples(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluice.proxy.metrics.exposition._SAMPLES_PER_STEP", 10)
    samples = sum(len(family.samples) for family in proxy.collector.collect())

    async def turns() -> int:
        scrape = asyncio.ensure_future(exposition(proxy.collector, ""))
        count = 0
        while not scrape.done():
            count += 1
            await asyncio.sleep(0)
        return count

    assert asyncio.run(turns()) >= samples / 10


def test_names_follow_prometheus_rules() -> None:
    for row in METRICS.values():
        assert (row.type == "counter") == row.name.endswith("_total")
        assert (row.type == "info") == row.name.endswith("_info")
        assert row.help.endswith(".")
        assert not any(label in row.name for label in ("user", "client_id", "api_key"))
