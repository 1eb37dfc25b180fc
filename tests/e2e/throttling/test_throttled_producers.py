"""Producers far over their quota, all at the same time, each with a client id and so a bucket of its own.

Every one gets its rate and no more, whatever it makes of throttle_time_ms; nothing is lost on the way.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from testkit.clients.java_metrics import java_metric
from testkit.clients.kafka_clients import AIOKAFKA, CONFLUENT, KAFKA_PYTHON, Client, Options
from testkit.clients.kafka_records import Record, assert_exactly, await_stored, create_topic, numbered
from testkit.kafka.java_tools import run_tool
from testkit.kafka.node import KafkaNode
from testkit.proxy.sluice_process import SluiceProcess

QUOTA_BYTES_PER_S = 200_000
RECORD_BYTES = 1_000
RECORDS = 1_500
"""a burst of 1 s, and then 6.5 s of quota"""


@dataclass(slots=True)
class Run:
    """What became of one producer."""

    sent: list[Record] = field(default_factory=list)
    found: list[Record] = field(default_factory=list)
    took_s: float = 0.0
    output: str = ""

    @property
    def bytes_per_s(self) -> float:
        """The rate beyond the burst that an idle entity may use at once."""
        return (RECORDS * RECORD_BYTES - QUOTA_BYTES_PER_S) / self.took_s


Produce = Callable[[KafkaNode, str, str, str, Run], None]
"""broker, proxy's address, topic, client id"""


def _python(client: Client, **options: object) -> Produce:
    def produce(kafka: KafkaNode, bootstrap: str, topic: str, client_id: str, run: Run) -> None:
        run.sent = numbered(RECORDS, size_bytes=RECORD_BYTES)
        begun_s = time.monotonic()
        client.produce(bootstrap, topic, run.sent, Options(client_id=client_id, **options))  # type: ignore[arg-type]
        run.found = await_stored(kafka, topic, RECORDS)
        run.took_s = time.monotonic() - begun_s

    return produce


def _java(kafka: KafkaNode, bootstrap: str, topic: str, client_id: str, run: Run) -> None:
    run.output = run_tool(
        kafka.dist,
        "producer-perf-test",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(RECORDS)),
        *("--record-size", str(RECORD_BYTES), "--throughput", "-1", "--print-metrics"),
        *("--command-property", f"client.id={client_id}", "acks=all"),
    ).stdout
    shown = re.findall(rf"^{RECORDS} records sent, ([\d.]+) records/sec", run.output, re.MULTILINE)
    run.took_s = RECORDS / float(shown[-1])
    run.found = await_stored(kafka, topic, RECORDS)


KINDS: dict[str, Produce] = {
    "aiokafka-idempotent": _python(AIOKAFKA),
    "aiokafka-acks0": _python(AIOKAFKA, acks=0, idempotent=False),
    "confluent-idempotent": _python(CONFLUENT),
    "confluent-transactional": _python(CONFLUENT, transactional_id="throttled-transaction"),
    "confluent-acks0": _python(CONFLUENT, acks=0, idempotent=False),
    "kafka-python-idempotent": _python(KAFKA_PYTHON),
    "kafka-python-acks1": _python(KAFKA_PYTHON, acks=1, idempotent=False),
    "java-perf-test": _java,
}
each_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def runs(kafka: KafkaNode, sluice: SluiceProcess) -> dict[str, Run]:
    runs = {kind: Run() for kind in KINDS}
    sluice.set_quotas(
        *({"client-id": f"app-{kind}", "producer_byte_rate": QUOTA_BYTES_PER_S} for kind in KINDS)
    )
    with ThreadPoolExecutor(len(KINDS)) as pool:
        work = []
        for kind, produce in KINDS.items():
            topic = create_topic(kafka, f"throttled-{kind}")
            work.append(pool.submit(produce, kafka, sluice.bootstrap(), topic, f"app-{kind}", runs[kind]))
        for done in work:
            done.result(120.0)
    return runs


@each_kind
def test_a_producer_gets_its_quota_and_no_more(runs: dict[str, Run], kind: str) -> None:
    # How near below it comes is the benchmark's to say: a busy machine is no failure.
    assert 0.2 * QUOTA_BYTES_PER_S < runs[kind].bytes_per_s < 1.3 * QUOTA_BYTES_PER_S


@each_kind
def test_nothing_of_a_throttled_producer_is_lost_doubled_or_out_of_order(
    runs: dict[str, Run], kind: str
) -> None:
    assert len(runs[kind].found) == RECORDS
    if runs[kind].sent:
        assert_exactly(runs[kind].sent, runs[kind].found)


def test_javas_producer_reports_how_long_it_was_throttled(runs: dict[str, Run]) -> None:
    output = runs["java-perf-test"].output
    mean_ms, max_ms = (java_metric(output, f"produce-throttle-time-{what}") for what in ("avg", "max"))
    assert 10.0 < mean_ms <= max_ms <= 8_000.0, output
