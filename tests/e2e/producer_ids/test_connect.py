"""Connect's sources and MirrorMaker exactly once, above the rate of new producer ids and the byte rate.

Each task produces in transactions. The worker is killed on its way and started again, so that transactions
stay open and its successor fences it; the same is done at the broker itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from testkit.clients.connect_workers import ConnectWorker, MirrorMaker, Worker
from testkit.clients.kafka_clients import CONFLUENT, Options
from testkit.clients.kafka_records import Record, assert_exactly, create_topic, numbered, stored
from testkit.clients.quota_api import QuotaApi
from testkit.kafka.node import KafkaNode
from testkit.proxy.sluice_process import SluiceProcess, doors_of

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

BYTE_RATE: Final = 40_000
EVERYBODY: Final = {"user": None}
LIMIT: Final = {
    "user": "<default>",
    "producer_ids_rate": 1_800,
    "producer_byte_rate": BYTE_RATE,
    "consumer_byte_rate": 200_000,
}
SETTINGS: Final[dict[str, Any]] = {
    "pacing": {"answer_budget_s": 0.5},
    "producer_ids": {"burst_s": 1.0},
}
"""one new id in two seconds, and half a second of waiting, so that most ids are refused before their turn"""
RECORDS: Final = 1_200
RECORD_BYTES: Final = 500
PARTITIONS: Final = 4
KILLED_AT: Final = RECORDS // 4
WITHIN_S: Final = 150.0
SIDES: Final = pytest.mark.parametrize("side", ["sluice", "native"])


@contextlib.contextmanager
def place(kafka: KafkaNode, side: str) -> Iterator[tuple[str, SluiceProcess | None]]:
    """Where the worker connects; at the broker itself its own quota slows it, or all were there too soon."""
    if side == "native":
        with QuotaApi(kafka.bootstrap) as api:
            assert api.alter(EVERYBODY, {"producer_byte_rate": BYTE_RATE})[0] == 0
            try:
                yield kafka.bootstrap, None
            finally:
                assert api.alter(EVERYBODY, {"producer_byte_rate": None})[0] == 0
        return
    with SluiceProcess(doors_of(kafka, ["SLUICE"]), [LIMIT], **SETTINGS) as process:
        yield process.bootstrap(), process


def await_count(worker: Worker, kafka: KafkaNode, topics: list[str], count: int, what: str) -> None:
    worker.await_that(lambda: sum(len(stored(kafka, topic)) for topic in topics) >= count, what, WITHIN_S)


def check_quotas_bit(process: SluiceProcess | None) -> None:
    if process is None:
        return
    assert process.metric("sluice_producer_ids_refused_total") > 0
    assert process.metric("sluice_throttle_time_seconds_count", quota="produce") > 0


@SIDES
def test_connects_sources_bring_each_line_once(
    kafka: KafkaNode, side: str, unique: Callable[[str], str], tmp_path: Path
) -> None:
    topics = [create_topic(kafka, unique(f"lines-{number}"), 1) for number in range(PARTITIONS)]
    lines = [
        numbered(RECORDS // PARTITIONS, size_bytes=RECORD_BYTES, run=topic[:9], partitions=1)
        for topic in topics
    ]
    with (
        place(kafka, side) as (bootstrap, process),
        ConnectWorker(kafka.dist, tmp_path, bootstrap, unique("connect")) as worker,
    ):
        for topic, records in zip(topics, lines, strict=True):
            file = tmp_path / topic
            file.write_bytes(b"".join(record.value + b"\n" for record in records))
            worker.add_file_source(f"source-{topic}", file, topic)
        await_count(worker, kafka, topics, KILLED_AT, "a fourth of the lines")
        worker.kill()
        worker.start()
        await_count(worker, kafka, topics, RECORDS, "all lines")
        names = [f"source-{topic}" for topic in topics]
        worker.await_that(lambda: worker.task_states(names) == ["RUNNING"] * PARTITIONS, "at work")
        check_quotas_bit(process)
    for topic, records in zip(topics, lines, strict=True):
        assert_exactly(records, stored(kafka, topic), topic)


@SIDES
def test_mirrormaker_brings_each_record_once(
    kafka: KafkaNode, side: str, unique: Callable[[str], str], tmp_path: Path
) -> None:
    source = create_topic(kafka, unique("mirrored"), PARTITIONS)
    target = create_topic(kafka, f"a.{source}", PARTITIONS)
    sent: list[Record] = numbered(RECORDS, size_bytes=RECORD_BYTES, partitions=PARTITIONS)
    CONFLUENT.produce(kafka.bootstrap, source, sent, Options())
    with (
        place(kafka, side) as (bootstrap, process),
        MirrorMaker(kafka.dist, tmp_path, (bootstrap, bootstrap), source) as worker,
    ):
        await_count(worker, kafka, [target], KILLED_AT, "a fourth of the records")
        worker.kill()
        worker.start()
        await_count(worker, kafka, [target], RECORDS, "all records")
        check_quotas_bit(process)
    assert_exactly(sent, stored(kafka, target))
