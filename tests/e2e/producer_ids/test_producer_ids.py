"""New producer ids above their rate: producers of five libraries wait, or are refused, and stay exact."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from testkit.clients.franz_client import build_franz, franz_produce, why_no_franz
from testkit.clients.java_client import JAVA
from testkit.clients.kafka_clients import AIOKAFKA, CONFLUENT, KAFKA_PYTHON, Options, Produce
from testkit.clients.kafka_records import assert_exactly, await_stored, create_topic, numbered
from testkit.kafka.node import KafkaNode
from testkit.proxy.sluice_process import SluiceProcess, doors_of

pytestmark = pytest.mark.kafka

RECORDS: Final = 1_000
NO_CREDIT: Final = {"burst_s": 1.0}
HOLDING: Final[dict[str, Any]] = {"rate": 5_400, "pacing": {}, "producer_ids": NO_CREDIT}
"""three new ids in two seconds, and each may wait for ten"""
REFUSING: Final[dict[str, Any]] = {
    "rate": 1_800,
    "pacing": {"answer_budget_s": 0.5},
    "producer_ids": NO_CREDIT,
}
"""one in two seconds, and half a second of waiting, so that most ids are refused before their turn"""


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """aiokafka logs each refusal."""
    caplog.set_level(logging.ERROR, logger="aiokafka")


def produce_exactly(
    kafka: KafkaNode,
    setting: dict[str, Any],
    producers: Sequence[tuple[str, Produce]],
    unique: Callable[[str], str],
) -> None:
    """All of them at once, each with an id of its own; then the log is read back record by record."""
    limit = {"user": "<default>", "producer_ids_rate": setting["rate"]}
    options = {"pacing": setting["pacing"], "producer_ids": setting["producer_ids"]}
    topics = [create_topic(kafka, unique(f"ids-{name}")) for name, _ in producers]
    sent = [numbered(RECORDS) for _ in producers]
    with SluiceProcess(doors_of(kafka), [limit], **options) as process:
        with ThreadPoolExecutor(len(producers)) as pool:
            running = [
                pool.submit(produce, process.bootstrap(), topic, records, Options(client_id=name))
                for (name, produce), topic, records in zip(producers, topics, sent, strict=True)
            ]
            for done in running:
                done.result()
        for (name, _), topic, records in zip(producers, topics, sent, strict=True):
            assert_exactly(records, await_stored(kafka, topic, RECORDS), name)
        assert process.disconnects("producer_id_refused") == 0
        assert process.metric("sluice_producer_ids_new_total") == len(producers)
        assert process.metric("sluice_producer_ids_throttle_time_seconds_total") > 0
        refused = process.metric("sluice_producer_ids_refused_total")
        assert refused == 0 if setting is HOLDING else refused > 0
        (began, *_) = process.log_lines("throttling_began", quota="producer_ids")
        assert began["user"] == "ANONYMOUS"


NO_FRANZ: Final = why_no_franz()
SETTINGS = pytest.mark.parametrize(
    "setting", [HOLDING, pytest.param(REFUSING, marks=pytest.mark.long)], ids=["held", "refused"]
)


@SETTINGS
def test_producers_above_the_rate_end_exactly_once_and_in_order(
    kafka: KafkaNode, setting: dict[str, Any], unique: Callable[[str], str]
) -> None:
    clients = [AIOKAFKA, CONFLUENT, KAFKA_PYTHON, JAVA] * 2
    produce_exactly(kafka, setting, [(client.name, client.produce) for client in clients], unique)


@pytest.mark.slow  # it is compiled first
@pytest.mark.skipif(NO_FRANZ != "", reason=NO_FRANZ)
@SETTINGS
def test_franz_go_above_the_rate_ends_exactly_once_and_in_order(
    kafka: KafkaNode, setting: dict[str, Any], unique: Callable[[str], str], tmp_path: Path
) -> None:
    produce = partial(franz_produce, build_franz(tmp_path))
    produce_exactly(kafka, setting, [("franz-go", produce)] * 6, unique)
