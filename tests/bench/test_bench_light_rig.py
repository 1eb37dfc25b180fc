"""The light consumers at a real broker: they read everything, and their sessions are counted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from bench.evenness.case_rig import CaseRig
from bench.lib.fetcher import Fetcher
from bench.lib.light_rig import NATIVE
from testkit.frames import load_frames as frames
from testkit.kafka.dist import KafkaDist
from testkit.kafka.jmx import jmx_options, jmx_url
from testkit.kafka.node import KafkaNode
from testkit.processes.ports import free_port
from testkit.proxy.sluice_process import Door, SluiceProcess

pytestmark = [pytest.mark.kafka, pytest.mark.long]

PARTITIONS = 3
BATCHES = 5
BATCH = frames.record_batch(bytes(1_000), 4)


@pytest.fixture(scope="module")
def rig(kafka_dist: KafkaDist) -> Iterator[CaseRig]:
    jmx_port = free_port()
    with KafkaNode(kafka_dist, java_options=jmx_options(jmx_port)) as node:
        door = Door("SLUICE", free_port(), node.address("PLAINTEXT"))
        with SluiceProcess([door]) as sluice:
            yield CaseRig(node, sluice, jmx_url=jmx_url(jmx_port))


def consumed(rig: CaseRig, topic: str, *fetchers: Fetcher) -> None:
    async def run() -> None:
        await rig.topic(topic, PARTITIONS)
        await rig.fill(topic, range(PARTITIONS), [BATCH] * BATCHES)
        await rig.consume(NATIVE, fetchers, 2.0)

    asyncio.run(run())


@pytest.mark.parametrize("session", [True, False])
def test_they_read_every_batch_once_with_and_without_a_session(rig: CaseRig, session: bool) -> None:
    topic = f"read-{session}"
    fetcher = Fetcher("light", topic, range(PARTITIONS), session=session, wraps=False)
    consumed(rig, topic, fetcher)
    assert sum(x.useful_bytes for x in fetcher.log.answers) == PARTITIONS * BATCHES * len(BATCH)
    assert fetcher.log.misunderstood == 0
    assert sum(size for _, size in fetcher.log.arrived) == sum(x.wire_bytes for x in fetcher.log.answers)


def test_a_session_that_nobody_closes_is_counted(rig: CaseRig, monkeypatch: pytest.MonkeyPatch) -> None:
    before = rig.sessions()
    consumed(rig, "closed", Fetcher("light", "closed", range(PARTITIONS), session=True))
    assert rig.sessions() == before

    async def forget(self: Fetcher, broker_port: int) -> None:
        """As if a proxy had answered that there is none."""

    monkeypatch.setattr(Fetcher, "close_session", forget)
    consumed(rig, "left", Fetcher("light", "left", range(PARTITIONS), session=True))
    assert rig.sessions() == before + 1
