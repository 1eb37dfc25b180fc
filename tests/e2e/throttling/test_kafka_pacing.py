"""`pacing.mode: kafka` in a running proxy, and the early warning beside it: two producers at the same time.

One is far over its quota and is paced by the broker's arithmetic: what ten idle seconds would have allowed
passes at once, then the rate over the windows is the limit. The other stays somewhat below its quota: it is
warned of, and never delayed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest

from testkit.clients.kafka_clients import Options, Pacer, confluent_producer
from testkit.clients.kafka_records import Record, assert_exactly, await_stored, create_topic, numbered
from testkit.kafka.node import KafkaNode
from testkit.proxy.sluice_process import SluiceProcess, doors_of

QUOTA_BYTES_PER_S = 50_000
IDLE_WINDOWS_S = 10
"""window_num − 1: what they would have allowed may come at once"""
THROTTLED, NEAR = "app-throttled", "app-near"
RECORDS = numbered(1_100, size_bytes=1_000)
"""the burst of 10 s, and then 12 s of quota"""
NEAR_PER_S = 43.0
NEAR_RECORDS = numbered(1_200, size_bytes=900)
"""28 s at 0.88 of the quota, with the 126 bytes that a request of one record has beside"""


@dataclass
class Run:
    """What became of both."""

    took_s: float = 0.0
    throttles_s: list[float] = field(default_factory=list)
    stored: list[Record] = field(default_factory=list)
    near_stored: list[Record] = field(default_factory=list)


@pytest.fixture(scope="module")
def paced(kafka: KafkaNode) -> Iterator[SluiceProcess]:
    quotas = [{"client-id": one, "producer_byte_rate": QUOTA_BYTES_PER_S} for one in (THROTTLED, NEAR)]
    options: dict[str, Any] = {"pacing": {"mode": "kafka"}, "metrics": {"kafka_page": True}}
    with SluiceProcess(doors_of(kafka), quotas, **options) as process:
        yield process


@pytest.fixture(scope="module")
def run(kafka: KafkaNode, paced: SluiceProcess) -> Run:
    run = Run()
    topic, near_topic = (create_topic(kafka, f"topic-{one}") for one in (THROTTLED, NEAR))

    def far_over() -> None:
        options = Options(client_id=THROTTLED, batch_bytes=10_000)
        producer = confluent_producer(
            paced.bootstrap(), options, throttle_cb=lambda told: run.throttles_s.append(told.throttle_time)
        )
        begun_s = time.monotonic()
        for record in RECORDS:
            producer.produce(topic, record.value, partition=record.partition)
        assert producer.flush(90.0) == 0
        run.took_s = time.monotonic() - begun_s

    def near() -> None:
        producer, pacer = confluent_producer(paced.bootstrap(), Options(client_id=NEAR)), Pacer(NEAR_PER_S)
        for record in NEAR_RECORDS:
            time.sleep(pacer.wait_s())
            producer.produce(near_topic, record.value, partition=record.partition)
            producer.poll(0.0)
        assert producer.flush(90.0) == 0

    with ThreadPoolExecutor(2) as pool:
        for work in [pool.submit(far_over), pool.submit(near)]:
            work.result(120.0)
    run.stored = await_stored(kafka, topic, len(RECORDS))
    run.near_stored = await_stored(kafka, near_topic, len(NEAR_RECORDS))
    return run


def test_who_is_over_gets_its_quota_over_the_windows_and_no_more(run: Run) -> None:
    sent = len(RECORDS) * 1_000
    assert sent < 1.2 * QUOTA_BYTES_PER_S * (run.took_s + IDLE_WINDOWS_S)


def test_its_client_is_told_the_throttle_time(run: Run) -> None:
    assert 0.01 < max(run.throttles_s) < 15.0


def test_nothing_of_both_is_lost_doubled_or_out_of_order(run: Run) -> None:
    assert_exactly(RECORDS, run.stored)
    assert_exactly(NEAR_RECORDS, run.near_stored)


@pytest.mark.usefixtures("run")
def test_the_page_under_kafkas_names_shows_it(paced: SluiceProcess) -> None:
    page = {
        (one.name, one.labels.get("client_id", "")): one.value
        for one in paced.page("metrics/kafka")
        if "user" not in one.labels
    }
    assert page["kafka_server_produce_throttle_time", THROTTLED] > 10.0
    assert page["kafka_server_produce_byte_rate", NEAR] > 0.0
    assert page["kafka_server_produce_queue_size", ""] == 0


@pytest.mark.usefixtures("run")
def test_a_line_says_why_it_was_throttled(paced: SluiceProcess) -> None:
    (line, *_) = paced.log_lines("throttling_began", client_id=THROTTLED)
    whole = {"quota": "produce", "rule": "client", "limit_bytes_per_s": QUOTA_BYTES_PER_S, "api": "Produce"}
    assert whole.items() <= line.items()
    assert line["charged_bytes"] > 1_000
    assert line["delay_ms"] > 0


@pytest.mark.usefixtures("run")
def test_who_stays_near_its_quota_is_warned_of_and_never_delayed(paced: SluiceProcess) -> None:
    (line,) = paced.log_lines("quota_warning_began", client_id=NEAR)
    whole = {"quota": "produce", "rule": "client", "limit_bytes_per_s": QUOTA_BYTES_PER_S, "share": 0.8}
    assert whole.items() <= line.items()
    assert 0.8 <= line["utilization"] < 1.0
    assert paced.metric("sluice_quota_warnings_total", client_id=NEAR) == 1
    assert paced.metric("sluice_throttled_requests_total", client_id=NEAR) == 0


@pytest.mark.slow
@pytest.mark.usefixtures("run")
def test_the_warning_ends_when_the_producer_has_stopped(paced: SluiceProcess) -> None:
    paced.wait_until(
        lambda: bool(paced.log_lines("quota_warning_ended", client_id=NEAR)), "the warning's end", 60.0
    )
    assert paced.metric("sluice_quota_warning", client_id=NEAR) == 0
