"""New producer ids above their rate: producers of four libraries wait, are refused, and stay exact."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from java_client import JAVA
from kafka_clients import AIOKAFKA, CONFLUENT, KAFKA_PYTHON, Client, Options
from kafka_records import Record, assert_exactly, await_stored, create_topic, numbered
from sluice_process import SluiceProcess, doors_of

from bench.harness.kafka_node import KafkaNode

pytestmark = pytest.mark.kafka

RECORDS = 200
EACH = 2
LIMIT = {"user": "<default>", "producer_ids_rate": 1_800}
"""one new id in two seconds, and no credit beyond one"""


@pytest.fixture
def refusing(kafka: KafkaNode) -> Iterator[SluiceProcess]:
    """A proxy that refuses after half a second, so that most ids are refused before their turn."""
    pacing, producer_ids = {"answer_budget_s": 0.5}, {"burst_s": 1.0}
    with SluiceProcess(doors_of(kafka), [LIMIT], pacing=pacing, producer_ids=producer_ids) as process:
        yield process


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """aiokafka logs each refusal."""
    caplog.set_level(logging.ERROR, logger="aiokafka")


def test_refused_producers_send_again_exactly_once_and_in_order(
    kafka: KafkaNode, refusing: SluiceProcess, unique: Callable[[str], str]
) -> None:
    clients: list[Client] = [AIOKAFKA, CONFLUENT, KAFKA_PYTHON, JAVA] * EACH
    topics = [unique(f"ids-{number}") for number in range(len(clients))]
    for topic in topics:
        create_topic(kafka, topic)
    sent = [numbered(RECORDS) for _ in clients]

    def produce(client: Client, topic: str, records: list[Record]) -> None:
        client.produce(refusing.bootstrap(), topic, records, Options(idempotent=True))

    with ThreadPoolExecutor(len(clients)) as pool:
        for done in [pool.submit(produce, *each) for each in zip(clients, topics, sent, strict=True)]:
            done.result()
    for client, topic, records in zip(clients, topics, sent, strict=True):
        assert_exactly(records, await_stored(kafka, topic, RECORDS), client.name)
    assert refusing.disconnects("producer_id_refused") == 0
    (began, *_) = refusing.log_lines("throttling_began", quota="producer_ids")
    assert began["user"] == "ANONYMOUS"
