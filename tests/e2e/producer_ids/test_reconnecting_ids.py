"""Connections that come back with other ids for each request stay in bound; a neighbour notices nothing.

The same for 5,000 connections and ten minutes, in simulated time:
tests/proxy/session/producer_ids/test_reconnecting_ids.py.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any, Final

import pytest

from sluice.protocol.apis import ErrorCode
from sluice.quotas.producer_ids.buckets import BucketShape
from testkit.clients.client_security import Login, Security
from testkit.clients.kafka_clients import CONFLUENT, Options
from testkit.clients.kafka_records import assert_exactly, create_topic, numbered, stored
from testkit.frames import load_frames as bench_frames
from testkit.frames.frames import PRODUCE, decoded, produce
from testkit.frames.wire import dial
from testkit.kafka.node import KafkaNode
from testkit.proxy.sluice_process import SluiceProcess, doors_of

pytestmark = pytest.mark.kafka

FOR_S: Final = 8.0
PARTITIONS: Final = 100
RATE: Final = 7_200
SHAPE: Final = BucketShape(burst_h=60 / 3_600, expiration_ms=1_000.0)
"""120 ids at once, and two a second"""
SETTINGS: Final[dict[str, Any]] = {
    "pacing": {"answer_budget_s": 0.5},
    "producer_ids": {"burst_s": SHAPE.burst_h * 3_600, "broker_expiration_s": 1.0},
}
NEIGHBOURS_RECORDS: Final = 300


class Crowd:
    """Clients of one user, each of whose requests comes on a connection of its own."""

    def __init__(self, port: int, topic: str, ids_a_request: int) -> None:
        self._port = port
        self._topic = topic
        self._ids_a_request = ids_a_request
        self._ids = count(10**12)
        self.answers: Counter[int] = Counter()
        """by error code"""

    async def come_back(self, until_s: float) -> None:
        while time.monotonic() < until_s:
            with await dial(self._port) as wire:
                await wire.send(self._request())
                (topic,) = self._body(await wire.frame())["responses"]
            (error,) = {partition["errorCode"] for partition in topic["partitionResponses"]}
            self.answers[error] += 1

    def _request(self) -> bytes:
        """Each id writes to a partition of its own: a broker takes one batch for each."""
        batches = []
        for _ in range(self._ids_a_request):
            producer_id = next(self._ids)
            batch = bench_frames.record_batch(
                b"new",
                timestamp_ms=int(time.time() * 1_000),
                producer_id=producer_id,
                epoch=0,
                sequence=0,
            )
            batches.append((producer_id % PARTITIONS, batch))
        return produce({self._topic: batches}, acks=-1)

    @staticmethod
    def _body(answer: bytes) -> Any:
        return decoded("response", PRODUCE, 9, answer).body


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("connections", "ids_a_request"), [(200, 1), pytest.param(50, 100, marks=pytest.mark.long)]
)
async def test_a_crowd_that_reconnects_stays_in_bound_and_its_neighbour_is_never_held(
    kafka: KafkaNode, unique: Callable[[str], str], connections: int, ids_a_request: int
) -> None:
    crowded = create_topic(kafka, unique("crowd"), PARTITIONS)
    quiet = create_topic(kafka, unique("neighbour"))
    quotas = [{"user": "ANONYMOUS", "producer_ids_rate": RATE}, {"user": "alice", "producer_ids_rate": 60}]
    records = numbered(NEIGHBOURS_RECORDS)
    options = Options(
        security=Security(Login("PLAIN", "alice", kafka.users["alice"])),
        records_per_s=NEIGHBOURS_RECORDS / FOR_S,
    )
    with SluiceProcess(doors_of(kafka), quotas, **SETTINGS) as process:
        crowd = Crowd(process.doors["SLUICE"].port, crowded, ids_a_request)
        begun_s = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for _ in range(connections):
                group.create_task(crowd.come_back(begun_s + FOR_S))
            bootstrap = process.bootstrap("SLUICE_SASL")
            await asyncio.to_thread(CONFLUENT.produce, bootstrap, quiet, records, options)
        hours = (time.monotonic() - begun_s) / 3_600

        assert set(crowd.answers) == {0, ErrorCode.NOT_ENOUGH_REPLICAS}
        assert crowd.answers[ErrorCode.NOT_ENOUGH_REPLICAS] > connections
        admitted = crowd.answers[0] * ids_a_request
        process.wait_until(lambda: new_ids(process, "ANONYMOUS") >= admitted, "all new ids counted")
        assert new_ids(process, "ANONYMOUS") == admitted
        buckets = (SHAPE.main(RATE), SHAPE.forced(RATE))
        assert admitted <= sum(capacity + refill * hours for capacity, refill in buckets)
        assert admitted >= 100

        for name in ("throttle_time_seconds_total", "refused_total", "held", "gates"):
            assert process.metric(f"sluice_producer_ids_{name}", user="alice") == 0, name
        assert new_ids(process, "alice") == 1
    assert_exactly(records, stored(kafka, quiet))


def new_ids(process: SluiceProcess, user: str) -> float:
    return process.metric("sluice_producer_ids_new_total", user=user)
