"""`over_budget: refuse` under real clients that want far more than they share: a hard limit, nothing lost.

Every second stands within the limit, and what an idempotent producer sends is there once, in order, however
often it was refused on the way.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Event
from typing import Final

import pytest

from testkit.clients.kafka_clients import AIOKAFKA, CONFLUENT, KAFKA_PYTHON, Client, Options
from testkit.clients.kafka_records import Record, assert_exactly, await_stored, create_topic, numbered
from testkit.kafka.java_tools import run_tool
from testkit.kafka.node import KafkaNode
from testkit.proxy.sluice_process import SluiceProcess, doors_of

RATE: Final = 100_000
BURST_S: Final = 1.0
BUDGET_S: Final = 2.0
RECORD_BYTES: Final = 1_000
RECORDS: Final = 200
LARGEST_BYTES: Final = 220_000
"""a request: all that one of these producers sends, which librdkafka puts into one"""
ROUNDS: Final = 2
"""producers of each client"""
CLIENTS: Final = {"aiokafka": AIOKAFKA, "librdkafka": CONFLUENT, "kafka-python": KAFKA_PYTHON}
JAVA: Final = "java"


@dataclass(slots=True)
class Run:
    """What went on, and what came of it."""

    samples: list[tuple[float, float, float]] = field(default_factory=list)
    """(before, after, bytes): what had gone on so far when it was asked between these times"""
    refused: dict[str, float] = field(default_factory=dict)
    """requests, by reason"""
    sent: dict[str, list[Record]] = field(default_factory=dict)
    found: dict[str, list[Record]] = field(default_factory=dict)


@pytest.fixture(scope="module")
def run(kafka: KafkaNode) -> Iterator[Run]:
    quota = {"user": "<default>", "producer_byte_rate": RATE, "over_budget": "refuse"}
    with SluiceProcess(doors_of(kafka), [quota], pacing={"answer_budget_s": BUDGET_S}) as sluice:
        yield _overloaded(kafka, sluice)


def _overloaded(kafka: KafkaNode, sluice: SluiceProcess) -> Run:
    run = Run()
    done = Event()
    names = [f"{client}-{number}" for client in CLIENTS for number in range(ROUNDS)]
    topics = {name: create_topic(kafka, f"over-budget-{name}") for name in [*names, JAVA]}
    with ThreadPoolExecutor(len(topics) + 1) as pool:
        watching = pool.submit(_watch, sluice, run, done)
        try:
            work = [
                pool.submit(_produce, CLIENTS[name.rpartition("-")[0]], sluice, topics[name], name, run)
                for name in names
            ]
            work.append(pool.submit(_java, kafka, sluice, topics[JAVA]))
            for each in work:
                each.result(150.0)
        finally:
            done.set()
        watching.result(30.0)
    for name, topic in topics.items():
        run.found[name] = await_stored(kafka, topic, RECORDS)
    for labels, value in sluice.samples("sluice_refused_requests_total"):
        run.refused[labels["reason"]] = run.refused.get(labels["reason"], 0.0) + value
    return run


def _produce(client: Client, sluice: SluiceProcess, topic: str, name: str, run: Run) -> None:
    run.sent[name] = numbered(RECORDS, size_bytes=RECORD_BYTES)
    client.produce(sluice.bootstrap(), topic, run.sent[name], Options(client_id=name, within_s=140.0))


def _java(kafka: KafkaNode, sluice: SluiceProcess, topic: str) -> None:
    run_tool(
        kafka.dist,
        "producer-perf-test",
        *("--bootstrap-server", sluice.bootstrap(), "--topic", topic, "--num-records", str(RECORDS)),
        *("--record-size", str(RECORD_BYTES), "--throughput", "-1"),
        *("--command-property", f"client.id={JAVA}", "acks=all"),
    )


def _watch(sluice: SluiceProcess, run: Run, done: Event) -> None:
    is_done = False
    while not is_done:  # and once more when all is done, or the last that went on is missing
        is_done = done.wait(0.1)
        before_s = time.monotonic()
        total = sum(
            value
            for labels, value in sluice.samples("sluice_quota_bytes_total")
            if labels["quota"] == "produce"
        )
        run.samples.append((before_s, time.monotonic(), total))


def test_no_second_brings_more_than_the_limit(run: Run) -> None:
    """A bucket that is full lets one request go whatever its size; so much may be beyond, once a burst."""
    beyond = []
    for number, (before_s, _, total) in enumerate(run.samples):
        for _, after_s, later in run.samples[number + 1 :]:
            allowed = RATE * ((after_s - before_s) * 1.05 + BURST_S) + LARGEST_BYTES
            if later - total > allowed:
                beyond.append((before_s, after_s, later - total))
    assert not beyond


def test_all_of_it_keeps_to_the_rate(run: Run) -> None:
    begun_s = next(before for before, _, total in run.samples if total)
    _, ended_s, total = run.samples[-1]
    assert total > len(run.found) * RECORDS * RECORD_BYTES * 0.9
    assert total <= RATE * ((ended_s - begun_s) * 1.05 + BURST_S) + LARGEST_BYTES
    assert total >= RATE * (ended_s - begun_s) * 0.5, "a busy machine may be late, but it is used"


def test_some_were_refused_for_their_turn_and_some_for_one_before_them(run: Run) -> None:
    assert run.refused["over_budget"] > 0


@pytest.mark.parametrize("number", range(ROUNDS))
@pytest.mark.parametrize("client", CLIENTS)
def test_what_an_idempotent_producer_sent_is_there_once_and_in_order(
    run: Run, client: str, number: int
) -> None:
    name = f"{client}-{number}"
    assert_exactly(run.sent[name], run.found[name])


def test_javas_records_are_there_once(run: Run) -> None:
    assert len(run.found[JAVA]) == RECORDS
