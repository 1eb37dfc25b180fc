"""franz-go's own TestGroupETL beside a client of the same user that keeps the bucket of new ids empty.

Groups in a chain, by six balancers: members come and go, each brings a new id, and none may rejoin its group
while it waits for it. Where ids go to the oldest alone, no group gets on: 400 of the other client's stand
before each.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest

from testkit.clients.franz_client import build_franz_tests, why_no_franz
from testkit.clients.kafka_records import create_topic
from testkit.frames import load_frames
from testkit.frames.frames import PRODUCE, decoded, produce
from testkit.frames.wire import dial
from testkit.kafka.node import KafkaNode
from testkit.proxy.sluice_process import SluiceProcess, doors_of

NO_FRANZ: Final = why_no_franz()
pytestmark = [
    pytest.mark.kafka,
    pytest.mark.slow,
    pytest.mark.skipif(NO_FRANZ != "", reason=NO_FRANZ),
]

IDS_PER_S: Final = 4
BURST_S: Final = 60.0
CONNECTIONS: Final = 400
"""each with an id that waits: 100 s of the rate"""
PARTITIONS: Final = 50
RECORDS: Final = 20_000
"""so many that a producer without an id has its buffer full (50 kB), and its member polls no more"""
WITHIN_S: Final = 180
BALANCERS: Final = {
    "range",
    "cooperative-sticky",
    "range/848",
    "sticky/848",
    "cooperative-sticky/static",
    "sticky/848/static",
}
BACKOFF_S: Final = 0.1


class Neighbour:
    """A client that wants a new id whenever it has got one, on many connections."""

    def __init__(self, port: int, topic: str) -> None:
        self._port, self._topic = port, topic
        self._ids = count(10**12)
        self.admitted = 0

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        bringing = [asyncio.ensure_future(self._bring()) for _ in range(CONNECTIONS)]
        try:
            yield
        finally:
            for task in bringing:
                task.cancel()
            ended = await asyncio.gather(*bringing, return_exceptions=True)
        assert [end for end in ended if not isinstance(end, asyncio.CancelledError)] == []

    async def _bring(self) -> None:
        with await dial(self._port) as wire:
            producer_id = next(self._ids)
            while True:
                await wire.send(self._request(producer_id))
                if self._is_refused(await wire.frame()):
                    await asyncio.sleep(BACKOFF_S)
                    continue
                self.admitted += 1
                producer_id = next(self._ids)

    def _request(self, producer_id: int) -> bytes:
        now_ms = int(time.time() * 1_000)
        batch = load_frames.record_batch(
            b"new", timestamp_ms=now_ms, producer_id=producer_id, epoch=0, sequence=0
        )
        partition = producer_id % PARTITIONS
        return produce({self._topic: [(partition, batch)]}, acks=-1, client_id="neighbour")

    @staticmethod
    def _is_refused(answer: bytes) -> bool:
        body: Any = decoded("response", PRODUCE, 9, answer).body
        (topic,) = body["responses"]
        return bool(topic["partitionResponses"][0]["errorCode"])


def run_group_etl(program: Path, bootstrap: str) -> str:
    """What it wrote."""
    done = subprocess.run(
        [program, "-test.run", "^TestGroupETL$", "-test.v", f"-test.timeout={WITHIN_S}s"],
        env={
            **os.environ,
            "KGO_SEEDS": bootstrap,
            "KGO_TEST_RF": "1",
            "KGO_TEST_RECORDS": str(RECORDS),
            "KGO_LOG_LEVEL": "none",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=program.parent,
        timeout=2 * WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[:4_000]
    return done.stdout


@pytest.mark.asyncio
async def test_franz_gos_groups_get_on_beside_a_client_that_keeps_the_bucket_empty(
    kafka: KafkaNode, unique: Callable[[str], str], tmp_path: Path
) -> None:
    program = build_franz_tests(tmp_path)
    topic = create_topic(kafka, unique("neighbour"), PARTITIONS)
    limit = {"user": "<default>", "producer_ids_rate": IDS_PER_S * 3_600}
    with SluiceProcess(doors_of(kafka, ["SLUICE"]), [limit], producer_ids={"burst_s": BURST_S}) as process:
        neighbour = Neighbour(process.doors["SLUICE"].port, topic)
        async with neighbour.at_work():
            await asyncio.to_thread(process.wait_until, lambda: tokens(process) < -100, "empty", 60.0)
            before = neighbour.admitted
            said = await asyncio.to_thread(run_group_etl, program, process.bootstrap())
            assert tokens(process) < 0
            assert neighbour.admitted > before
    assert sorted(re.findall(r"--- PASS: TestGroupETL/(\S+)", said)) == sorted(BALANCERS)


def tokens(process: SluiceProcess) -> float:
    """What the bucket holds less those that wait."""
    return process.metric("sluice_producer_ids_tokens")
