"""/metrics/kafka beside a real broker's own MBeans: the same names and tags for the same clients, and rates
that agree.

Broker and proxy have limits for the same entities, the broker's so high that it delays nobody; both see the
same requests.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf, isnan

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from sluice.proxy.metrics.kafka_names import KAFKA_NAMES, label_name, prometheus_name
from testkit.clients.kafka_clients import CONFLUENT, Options
from testkit.clients.kafka_records import Record, create_topic, numbered
from testkit.kafka.dist import KafkaDist
from testkit.kafka.java_tools import run_tool
from testkit.kafka.jmx import jmx_options, jmx_url
from testkit.kafka.node import KafkaNode
from testkit.processes.ports import LOOPBACK, free_ports
from testkit.proxy.sluice_process import SluiceProcess, doors_of

pytestmark = [pytest.mark.kafka, pytest.mark.long]
PAGE = "metrics/kafka"
RECORD_BYTES = 1_000
PRODUCED_PER_S = 150.0
LIMITS = {
    "producer_byte_rate": 50_000_000,
    "consumer_byte_rate": 50_000_000,
    "request_percentage": 1000.0,
    "controller_mutation_rate": 100.0,
}
BY_CLIENT, BY_BOTH = "app-by-client", "app-by-both"
GROUPS = ("Produce", "Fetch", "Request", "ControllerMutation")
Series = tuple[str, frozenset[tuple[str, str]]]
"""name and labels"""


@dataclass(frozen=True)
class Attribute:
    """An MBean's, as the broker has it."""

    group: str
    name: str
    tags: tuple[tuple[str, str], ...]
    value: float

    @property
    def series(self) -> Series:
        """What jmx_exporter makes of it."""
        labels = frozenset((label_name(tag), value) for tag, value in self.tags)
        return prometheus_name(self.group, self.name), labels


def attributes_of(kafka: KafkaNode, jmx_port: int) -> Iterator[Attribute]:
    """What JmxTool finds of the quotas."""
    queries = [part for group in GROUPS for part in ("--object-name", f"kafka.server:type={group},*")]
    where = ("--jmx-url", jmx_url(jmx_port))
    found = run_tool(kafka.dist, "jmx", *where, *queries, "--one-time", "--report-format", "tsv")
    for line in found.stdout.splitlines():
        key, _, value = line.partition("\t")
        mbean, _, attribute = key.rpartition(":")
        if mbean:
            (_, group), *tags = (part.split("=", 1) for part in mbean.partition(":")[2].split(","))
            yield Attribute(group, attribute, tuple((tag, text) for tag, text in tags), float(value))


@dataclass
class Found:
    """Both at about the same time, while the same clients were at work."""

    mbeans: list[Attribute]
    page: dict[Series, float]


@pytest.fixture(scope="module")
def found(kafka_dist: KafkaDist) -> Iterator[Found]:
    port, sasl_port, jmx_port = free_ports(3)
    advertised = {"SLUICE": (LOOPBACK, port), "SLUICE_SASL": (LOOPBACK, sasl_port)}
    entities: list[dict[str, str]] = [
        {"client-id": BY_CLIENT},
        {"user": "ANONYMOUS", "client-id": BY_BOTH},
    ]
    with KafkaNode(kafka_dist, advertised=advertised, java_options=jmx_options(jmx_port)) as kafka:
        for entity in entities:
            set_native_limits(kafka, entity)
        quotas = [{**entity, **LIMITS} for entity in entities]
        with SluiceProcess(doors_of(kafka, ["SLUICE"]), quotas, metrics={"kafka_page": True}) as sluice:
            yield at_work(kafka, sluice, jmx_port)


def set_native_limits(kafka: KafkaNode, entity: Mapping[str, str]) -> None:
    arguments = ["--bootstrap-server", kafka.bootstrap, "--alter", "--add-config"]
    arguments.append(",".join(f"{key}={value}" for key, value in LIMITS.items()))
    for kind, name in entity.items():
        arguments += ["--entity-type", {"client-id": "clients", "user": "users"}[kind], "--entity-name", name]
    run_tool(kafka.dist, "configs", *arguments)


def at_work(kafka: KafkaNode, sluice: SluiceProcess, jmx_port: int) -> Found:
    """Each client id creates a topic, produces at a steady rate and consumes what comes."""
    ended = threading.Event()

    def endless() -> Iterator[Record]:
        while not ended.is_set():
            yield from numbered(30, size_bytes=RECORD_BYTES)

    def wanted() -> float:
        return 0 if ended.is_set() else inf

    def produce(topic: str, options: Options) -> None:
        CONFLUENT.produce(sluice.bootstrap(), topic, endless(), options)

    def consume(topic: str, options: Options) -> None:
        CONFLUENT.consume(sluice.bootstrap(), topic, f"group-of-{topic}", wanted, options)

    threads = []
    for client_id in (BY_CLIENT, BY_BOTH):
        topic = create_topic(kafka, f"topic-{client_id}")
        admin = AdminClient({"bootstrap.servers": sluice.bootstrap(), "client.id": client_id})
        for done in admin.create_topics([NewTopic(f"made-by-{client_id}", 3, 1)]).values():
            done.result(30.0)
        options = Options(client_id=client_id, records_per_s=PRODUCED_PER_S, within_s=120.0)
        for work in (produce, consume):
            threads.append(threading.Thread(target=work, args=(topic, options)))
    try:
        for thread in threads:
            thread.start()
        for name in ("kafka_server_produce_byte_rate", "kafka_server_fetch_byte_rate"):
            await_steady(sluice, name)
        mbeans = list(attributes_of(kafka, jmx_port))
        page = {(one.name, frozenset(one.labels.items())): one.value for one in sluice.page(PAGE)}
    finally:
        ended.set()
        for thread in threads:
            thread.join(60.0)
    return Found(mbeans, page)


def await_steady(sluice: SluiceProcess, name: str) -> None:
    """Until the rates over 11 s have come near what is produced: all windows are full."""

    def is_steady() -> bool:
        rates = [one.value for one in sluice.page(PAGE) if one.name == name and one.labels]
        return bool(rates) and min(rates) > 0.9 * PRODUCED_PER_S * RECORD_BYTES

    sluice.wait_until(is_steady, f"a steady {name}", 90.0)


def of_our_clients(series: Series) -> bool:
    return not series[1] or bool({BY_CLIENT, BY_BOTH} & set(dict(series[1]).values()))


def test_every_quota_mbean_of_a_broker_has_its_row_in_the_table(found: Found) -> None:
    assert {one.group for one in found.mbeans} == set(GROUPS)
    for one in found.mbeans:
        row = KAFKA_NAMES[prometheus_name(one.group, one.name)]
        assert (row.group, row.attribute) == (one.group, one.name)
        assert {tag for tag, _ in one.tags} <= set(row.tags)


def test_every_row_of_the_table_but_those_of_kip_936_is_in_a_broker(found: Found) -> None:
    """Those of replication are in one alone that has a throttle."""
    elsewhere = {"ProducerIds", "LeaderReplication", "FollowerReplication"}
    ours = {(row.group, row.attribute) for row in KAFKA_NAMES.values() if row.group not in elsewhere}
    assert ours == {(one.group, one.name) for one in found.mbeans}


def test_the_series_of_the_same_clients_are_the_same(found: Found) -> None:
    theirs = {one.series for one in found.mbeans if of_our_clients(one.series)}
    ours = {series for series in found.page if of_our_clients(series)}
    assert theirs <= ours
    with_both = frozenset({("user", "ANONYMOUS"), ("client_id", BY_BOTH)})
    assert ("kafka_server_produce_byte_rate", with_both) in theirs
    assert ("kafka_server_produce_byte_rate", frozenset({("client_id", BY_CLIENT)})) in theirs


@pytest.mark.parametrize("group", ["Produce", "Fetch"])
def test_rates_agree_with_the_brokers(found: Found, group: str) -> None:
    """Both are measured over 11 s, with the start of a JVM between them; how close they are is no test of the
    machine."""
    compared = 0
    for one in found.mbeans:
        if (one.group, one.name) == (group, "byte-rate") and of_our_clients(one.series):
            assert found.page[one.series] == pytest.approx(one.value, rel=0.3)
            compared += 1
    assert compared == 2


def test_who_was_not_delayed_has_no_throttle_time_in_both(found: Found) -> None:
    theirs = [one for one in found.mbeans if one.name == "throttle-time" and of_our_clients(one.series)]
    assert theirs
    for one in theirs:
        assert isnan(one.value)
        assert isnan(found.page[one.series])
