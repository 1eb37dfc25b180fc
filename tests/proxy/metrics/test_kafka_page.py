"""/metrics/kafka: Kafka's names and units, Kafka's arithmetic, over what the meter counted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from math import isnan
from time import monotonic

import pytest
import structlog
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families as text_families

from sluice.proxy.metrics.exposition import exposition
from sluice.proxy.metrics.kafka_names import KAFKA_NAMES, label_name, prometheus_name, sanitized
from sluice.proxy.metrics.kafka_page import KafkaPage, KafkaWindows
from sluice.proxy.metrics.usage_meter import UsageMeter
from sluice.proxy.runtime.gauges import Gauges
from sluice.proxy.session.producer_ids.shared import ProducerIds
from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.quotas.producer_ids.ticket import Ticket
from sluice.usage.records import Flow, Recorder
from testkit.access_log.finished import Finished
from testkit.kafka.java_machine import java_machine

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
ODD = "CN=a b*c~ü,O=x"
LIMITS = QuotaLimits(
    [
        (
            QuotaEntity("alice"),
            {"producer_byte_rate": 1e3, "request_percentage": 50, "producer_ids_rate": 1},
        ),
        (QuotaEntity("alice", "app"), {"consumer_byte_rate": 1000}),
        (QuotaEntity(client_id="app"), {"producer_byte_rate": 1000}),
        (QuotaEntity(DEFAULT), {"controller_mutation_rate": 10.0}),
        (QuotaEntity(ODD), {"producer_byte_rate": 1000}),
    ]
)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with structlog.testing.capture_logs():
        yield


class Proxy:
    """A page and all that it reads."""

    def __init__(self) -> None:
        self.now_ms = monotonic() * 1000.0
        self.recorder = Recorder()
        self.quotas = QuotaManager(LIMITS)
        self.gauges = Gauges()
        self.ids = ProducerIds()
        self.meter = UsageMeter(self.recorder, self.quotas, self.ids)
        self.page = KafkaPage(self.meter, self.gauges, KafkaWindows())

    def charge(self, kind: QuotaKind, user: str, amount: float, *throttles_ms: float) -> None:
        """Requests of the client id `app`: one for each delay, charged `amount` together."""
        sensor = self.quotas.sensor(kind, user, "app", self.now_ms)
        assert sensor is not None
        sensor.charge(amount, self.now_ms)
        for throttle_ms in throttles_ms:
            self.recorder.requests.append(
                Finished(Flow("app"), 300, 60, 3.0, throttle_ms, 5.0, self.now_ms, 0, 9, user, sensor)
            )

    def families(self, accept: str = "") -> dict[str, Metric]:
        body, _ = asyncio.run(exposition(self.page, accept))
        parse = openmetrics_families if accept else text_families
        return {family.name: family for family in parse(body.decode())}

    def value(self, name: str, **labels: str) -> float:
        """The one sample of this name and these labels."""
        (found,) = [one.value for one in self.families()[name].samples if one.labels == labels]
        return found


@pytest.fixture
def proxy() -> Proxy:
    proxy = Proxy()
    proxy.charge(QuotaKind.PRODUCE, "alice", 70_000, 100.0, 300.0)
    proxy.charge(QuotaKind.FETCH, "alice", 5_000)
    proxy.charge(QuotaKind.PRODUCE, "bob", 1_000)
    proxy.charge(QuotaKind.REQUEST, "alice", 2_500.0, 40.0)
    proxy.charge(QuotaKind.CONTROLLER_MUTATION, "bob", 60.0)
    proxy.recorder.exempt_request_ms["cluster_action"] = 900.0
    proxy.gauges.delayed["fetch"] = 2
    principal = proxy.ids.quota.principal("alice", 1.0, proxy.now_ms)
    ticket = Ticket(principal, (1,), (), (1,))
    assert proxy.ids.quota.ask(ticket, proxy.now_ms)
    proxy.ids.quota.commit(ticket, proxy.now_ms)
    principal.held_ms, principal.holds = 1500.0, 3
    return proxy


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_a_parser_of_prometheus_finds_exactly_the_names_of_the_table_as_gauges(
    proxy: Proxy, accept: str
) -> None:
    found = proxy.families(accept)
    assert set(found) == set(KAFKA_NAMES)
    assert {family.type for family in found.values()} == {"gauge"}
    assert all(family.samples for family in found.values())
    for name, family in found.items():
        for sample in family.samples:
            assert set(sample.labels) <= set(KAFKA_NAMES[name].labels)


def test_an_entity_has_the_tags_of_its_level_and_no_empty_label(proxy: Proxy) -> None:
    families = proxy.families()

    def labels_of(name: str) -> list[dict[str, str]]:
        return [sample.labels for sample in families[name].samples]

    assert labels_of("kafka_server_produce_byte_rate") == [{"user": "alice"}, {"client_id": "app"}]
    assert labels_of("kafka_server_fetch_byte_rate") == [{"user": "alice", "client_id": "app"}]
    assert labels_of("kafka_server_fetch_queue_size") == [{}]
    assert labels_of("kafka_server_controllermutation_tokens") == [{"user": "other"}]  # not a configured name


def test_rates_are_taken_over_kafkas_windows_idle_ones_included(proxy: Proxy) -> None:
    # 11 windows of which 10 are idle: 10 s, and of what has no window of its own 30 s.
    assert proxy.value("kafka_server_produce_byte_rate", user="alice") == pytest.approx(7_000, rel=0.1)
    assert proxy.value("kafka_server_fetch_byte_rate", user="alice", client_id="app") == pytest.approx(
        500, rel=0.1
    )
    assert proxy.value("kafka_server_controllermutation_mutation_rate", user="other") == pytest.approx(
        2.0, rel=0.1
    )


def test_times_of_threads_are_in_percent_of_one(proxy: Proxy) -> None:
    # 2,500 ms in 10 s are 25 % of a thread; 900 ms in 30 s are 3 %.
    assert proxy.value("kafka_server_request_request_time", user="alice") == pytest.approx(25.0, rel=0.1)
    assert proxy.value("kafka_server_request_exempt_request_time") == pytest.approx(3.0, rel=0.1)


def test_the_throttle_time_is_the_mean_of_the_delayed_requests_and_nan_if_there_was_none(
    proxy: Proxy,
) -> None:
    assert proxy.value("kafka_server_produce_throttle_time", user="alice") == 200.0
    assert proxy.value("kafka_server_request_throttle_time", user="alice") == 40.0
    assert isnan(proxy.value("kafka_server_produce_throttle_time", client_id="app"))


def test_producer_ids_are_told_by_user_and_hour(proxy: Proxy) -> None:
    # One id in windows that last 10 h, idle ones included.
    assert proxy.value("kafka_server_producerids_rate", user="alice") == pytest.approx(0.1, rel=0.01)
    assert proxy.value("kafka_server_producerids_tokens", user="alice") == pytest.approx(0.0, abs=0.01)
    assert proxy.value("kafka_server_producerids_throttle_time", user="alice") == 500.0


def test_tokens_and_the_queue_are_as_they_are_now(proxy: Proxy) -> None:
    sensor = proxy.quotas.sensor(QuotaKind.CONTROLLER_MUTATION, "bob", "app", proxy.now_ms)
    assert sensor is not None
    left = sensor.tokens(monotonic() * 1000.0)
    tokens = proxy.value("kafka_server_controllermutation_tokens", user="other")
    assert tokens == pytest.approx(left, abs=5)  # 10 come back in a second
    assert proxy.value("kafka_server_fetch_queue_size") == 2
    assert proxy.value("kafka_server_produce_queue_size") == 0


def test_what_was_counted_is_recorded_once(proxy: Proxy) -> None:
    asyncio.run(proxy.page.refresh())
    now_ms = int(monotonic() * 1000.0)
    for late_ms in (1_000, 2_000, 10_000):
        proxy.page.take_in(now_ms + late_ms)
    # Of three looks in which nothing was new none is in the mean, or it would be below 200.
    assert proxy.value("kafka_server_produce_throttle_time", user="alice") == 200.0
    assert proxy.value("kafka_server_produce_byte_rate", user="alice") == pytest.approx(7_000, rel=0.1)


def test_an_entity_that_the_meter_has_forgotten_is_gone(proxy: Proxy) -> None:
    asyncio.run(proxy.page.refresh())
    proxy.meter.entities.drop_idle(monotonic() * 1000.0 + 3_600_001.0)
    proxy.page.take_in(int(monotonic() * 1000.0))
    names = {"kafka_server_produce_byte_rate", "kafka_server_fetch_byte_rate"}
    left = {family.name: family.samples for family in proxy.page.collect() if family.name in names}
    assert left == {name: [] for name in names}


def test_a_users_name_is_encoded_as_the_broker_does_it() -> None:
    with java_machine() as jvm:
        sanitizer = jvm.org.apache.kafka.common.utils.Sanitizer
        for name in (ODD, "plain", "a.b-c_d", "".join(map(chr, range(32, 127))), "日本", "a\nb"):
            assert sanitized(name) == sanitizer.sanitize(name)
    proxy = Proxy()
    proxy.charge(QuotaKind.PRODUCE, ODD, 10)
    assert proxy.value("kafka_server_produce_byte_rate", user=sanitized(ODD)) > 0


def test_names_are_jmx_exporters() -> None:
    assert prometheus_name("Produce", "byte-rate") == "kafka_server_produce_byte_rate"
    assert prometheus_name("Request", "request-time") == "kafka_server_request_request_time"
    assert (
        prometheus_name("socket-server-metrics", "connection-accept-rate")
        == "kafka_server_socket_server_metrics_connection_accept_rate"
    )
    assert label_name("client-id") == "client_id"
