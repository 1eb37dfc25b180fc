"""Transactions without a record, each of a new producer id, against a limit on producer ids.

They leave an entry for each partition in the broker's heap: within the stated bound here, without a limit as
many as the broker has time for. The long one, at a broker of 256 MiB, is slow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import pytest
from confluent_kafka import Producer

from sluice.quotas.producer_ids.buckets import MS_PER_HOUR, BucketShape
from testkit.clients.kafka_clients import CONFLUENT, Options
from testkit.clients.kafka_records import assert_exactly, create_topic, numbered, stored
from testkit.clients.transaction_storm import TransactionStorm, producer_entries
from testkit.kafka.dist import KafkaDist
from testkit.kafka.node import KafkaNode
from testkit.processes.ports import LOOPBACK, free_ports
from testkit.proxy.sluice_process import Quota, SluiceProcess, doors_of

pytestmark = pytest.mark.kafka

CONNECTIONS: Final = 10
RATE: Final = 1.0
SHAPE: Final = BucketShape()
SETTINGS: Final[dict[str, Any]] = {"pacing": {"answer_budget_s": 0.5}}
PARTITIONS: Final = 50
LONG_S: Final = 150.0
LONG_PARTITIONS: Final = 1_000
QUIET_S: Final = 3.0
"""no more come for so long: the markers of the last transactions are written"""
MARKERS_WITHIN_S: Final = 60.0


def storm(
    kafka: KafkaNode, limits: list[Quota], topic: str, partitions: int, for_s: float, name: str
) -> TransactionStorm:
    """Through the proxy; the quota page is left to the caller. Its time begins when the broker has a
    coordinator of transactions: to make the topic for that takes a busy one as long."""
    Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": f"{name}-first"}).init_transactions(
        60
    )
    with SluiceProcess(doors_of(kafka, ["SLUICE"]), limits, **SETTINGS) as process:
        transactions = TransactionStorm(process.doors["SLUICE"].port, name, topic, partitions)
        asyncio.run(transactions.run(CONNECTIONS, for_s))
        if limits:
            assert process.metric("sluice_producer_ids_new_total") == transactions.added
    return transactions


def entries(kafka: KafkaNode, topic: str, partitions: int) -> int:
    """Once the last markers are written."""

    async def later() -> int:
        found, before, port = 0, -1, int(kafka.bootstrap.split(":")[1])
        async with asyncio.timeout(MARKERS_WITHIN_S):
            while found != before:
                await asyncio.sleep(QUIET_S)
                found, before = await producer_entries(port, topic, partitions), found
        return found

    return asyncio.run(later())


def bound(for_s: float) -> float:
    """Ids that may be admitted: those with an epoch of 0 cannot come from the resumed bucket."""
    hours = for_s * 1_000 / MS_PER_HOUR
    return sum(capacity + refill * hours for capacity, refill in (SHAPE.main(RATE), SHAPE.forced(RATE)))


@pytest.mark.long
def test_transactions_without_a_record_leave_no_more_entries_than_the_limit_admits(
    kafka: KafkaNode, unique: Callable[[str], str]
) -> None:
    free, limited = (create_topic(kafka, unique(name), PARTITIONS) for name in ("free", "limited"))
    attack = storm(kafka, [], free, PARTITIONS, 4.0, unique("free"))
    without = entries(kafka, free, PARTITIONS)
    assert without >= attack.added * PARTITIONS * 0.9
    assert without > 3 * bound(4.0) * PARTITIONS

    limit: Quota = {"user": "<default>", "producer_ids_rate": RATE}
    attack = storm(kafka, [limit], limited, PARTITIONS, 4.0, unique("limited"))
    assert set(attack.refused) == {51}
    assert 0 < entries(kafka, limited, PARTITIONS) <= bound(4.0) * PARTITIONS


def test_groups_offsets_without_a_commit_are_admitted_by_the_same_limit(
    kafka: KafkaNode, unique: Callable[[str], str]
) -> None:
    limit: Quota = {"user": "<default>", "producer_ids_rate": RATE}
    attack = storm(kafka, [limit], "", 0, 5.0, unique("offsets"))
    assert set(attack.refused) == {51}
    assert 0 < attack.added <= bound(5.0)


@pytest.mark.slow
def test_a_broker_of_256_mib_outlives_transactions_without_a_record(
    kafka_dist: KafkaDist, unique: Callable[[str], str]
) -> None:
    (port,) = free_ports(1)
    advertised = {"SLUICE": (LOOPBACK, port)}
    with KafkaNode(kafka_dist, advertised=advertised, heap="256m") as kafka:
        topic = create_topic(kafka, unique("storm"), LONG_PARTITIONS)
        limit: Quota = {"user": "<default>", "producer_ids_rate": RATE}
        attack = storm(kafka, [limit], topic, LONG_PARTITIONS, LONG_S, unique("storm"))
        assert set(attack.refused) == {51}
        assert entries(kafka, topic, LONG_PARTITIONS) <= bound(LONG_S) * LONG_PARTITIONS
        other, records = create_topic(kafka, unique("neighbour")), numbered(200)
        CONFLUENT.produce(kafka.bootstrap, other, records, Options())
        assert_exactly(records, stored(kafka, other))
