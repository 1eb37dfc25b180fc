"""request_percentage in front of a real broker: who is over it is slowed, others are not, and groups hold.

Ten consumers of one group share one bucket of request time and one of bytes, both so small that every answer
is followed by a mute: nobody may be put out of the group, and records must go on coming.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from itertools import pairwise

import aiokafka
import pytest

from testkit.clients.kafka_clients import Options, confluent_producer
from testkit.clients.kafka_records import create_topic, numbered
from testkit.kafka.node import KafkaNode
from testkit.proxy.sluice_process import SluiceProcess

MEMBERS = 10
GROUP_BYTES_PER_S = 200_000
RECORD_BYTES = 5_000
BATCH_BYTES = 20_000
TIGHT_PERCENTAGE = 0.05
"""half a ms of a thread a second, for some 15 requests a second of which each takes a tenth"""
SLOW_PERCENTAGE = 0.02
SESSION_TIMEOUT_MS = 6_000
JOIN_WITHIN_S = 90.0
LONGEST_GAP_S = 12.0
"""in which the whole group gets nothing; twice the session's time-out"""


async def _send_for(bootstrap: str, topic: str, client_id: str, seconds: float) -> int:
    """How many single records a producer gets acknowledged, one after the other."""
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, client_id=client_id, acks=1)
    await producer.start()
    sent = 0
    try:
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            await producer.send_and_wait(topic, b"x" * 100, partition=0)
            sent += 1
    finally:
        await producer.stop()
    return sent


def test_a_client_over_its_request_percentage_is_slowed_and_others_are_not(
    kafka: KafkaNode, sluice: SluiceProcess, unique: Callable[[str], str]
) -> None:
    topic = create_topic(kafka, unique("topic"), 1)
    sluice.set_quotas(
        {"client-id": "slow", "request_percentage": SLOW_PERCENTAGE},
        {"client-id": "free", "request_percentage": 400},
    )

    async def both() -> tuple[int, int]:
        slow, free = await asyncio.gather(
            _send_for(sluice.bootstrap(), topic, "slow", 12.0),
            _send_for(sluice.bootstrap(), topic, "free", 12.0),
        )
        return slow, free

    slow, free = asyncio.run(both())
    assert slow > 3
    assert free > 5 * slow
    throttled = {
        labels["client_id"]: seconds
        for labels, seconds in sluice.samples("sluice_throttled_seconds_total")
        if labels["quota"] == "request"
    }
    assert throttled["slow"] > 5.0
    assert throttled.get("free", 0.0) == 0.0
    assert sluice.metric("sluice_request_time_seconds_total", client_id="free") > 0.0
    assert sluice.metric("sluice_quota_limit_request_ratio", client_id="slow") == pytest.approx(
        SLOW_PERCENTAGE / 100
    )
    assert sluice.log_lines("throttling_began", quota="request", client_id="slow")


class Member:
    """One consumer of the group."""

    def __init__(self) -> None:
        self.partitions = 0
        self.changes = 0
        self.arrivals: list[float] = []

    async def run(self, bootstrap: str, topic: str, group: str, stop: asyncio.Event) -> None:
        member = self

        class Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
            def on_partitions_revoked(self, revoked: set[object]) -> None:
                member.changes += bool(revoked) and not stop.is_set()

            def on_partitions_assigned(self, assigned: set[object]) -> None:
                member.partitions = len(assigned)
                member.changes += 1

        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            client_id="group-of-ten",
            group_id=group,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=SESSION_TIMEOUT_MS // 3,
        )
        consumer.subscribe([topic], listener=Listener())
        await consumer.start()
        try:
            while not stop.is_set():
                if await consumer.getmany(timeout_ms=200):
                    self.arrivals.append(time.monotonic())
        finally:
            await consumer.stop()


async def _run_group(bootstrap: str, topic: str, group: str, seconds: float) -> tuple[list[Member], float]:
    """The members once they have been at work for `seconds`, and when that time began."""
    members = [Member() for _ in range(MEMBERS)]
    stop = asyncio.Event()
    work = [asyncio.create_task(member.run(bootstrap, topic, group, stop)) for member in members]  # noqa: TID251
    try:
        joined_by_s = time.monotonic() + JOIN_WITHIN_S
        while not all(member.partitions == 1 and member.arrivals for member in members):
            assert time.monotonic() < joined_by_s, [member.partitions for member in members]
            for task in work:
                assert not task.done(), task.exception()
            await asyncio.sleep(0.1)
        for member in members:
            member.changes = 0
            member.arrivals.clear()
        begun_s = time.monotonic()
        await asyncio.sleep(seconds)
        seen = [(member.changes, list(member.arrivals)) for member in members]
    finally:
        stop.set()
        await asyncio.gather(*work)
    for member, (changes, arrivals) in zip(members, seen, strict=True):
        member.changes, member.arrivals = changes, arrivals
    return members, begun_s


@pytest.mark.parametrize(
    "seconds", [pytest.param(12.0, marks=pytest.mark.long), pytest.param(600.0, marks=pytest.mark.slow)]
)
def test_a_group_of_ten_under_tight_quotas_is_never_rebalanced_and_never_stops(
    kafka: KafkaNode, sluice: SluiceProcess, unique: Callable[[str], str], seconds: float
) -> None:
    topic = create_topic(kafka, unique("topic"), MEMBERS)
    records = numbered(
        int(GROUP_BYTES_PER_S * (seconds + 60.0) / RECORD_BYTES), size_bytes=RECORD_BYTES, partitions=MEMBERS
    )
    producer = confluent_producer(kafka.bootstrap, Options(batch_bytes=BATCH_BYTES), linger_ms=200)
    for number, record in enumerate(records):
        producer.produce(topic, record.value, partition=record.partition)
        if number % 1_000 == 0:
            producer.flush(60.0)
    assert producer.flush(60.0) == 0
    sluice.set_quotas(
        {
            "client-id": "group-of-ten",
            "request_percentage": TIGHT_PERCENTAGE,
            "consumer_byte_rate": GROUP_BYTES_PER_S,
        }
    )
    members, begun_s = asyncio.run(_run_group(sluice.bootstrap(), topic, unique("group"), seconds))
    throttled = {
        labels["quota"]: requests
        for labels, requests in sluice.samples("sluice_throttled_requests_total")
        if labels["client_id"] == "group-of-ten"
    }
    assert [member.changes for member in members] == [0] * MEMBERS
    arrivals = sorted(at_s for member in members for at_s in member.arrivals)
    gaps = [later - earlier for earlier, later in pairwise([begun_s, *arrivals, begun_s + seconds])]
    assert max(gaps) < LONGEST_GAP_S
    assert all(member.arrivals for member in members)
    assert throttled["request"] > seconds
