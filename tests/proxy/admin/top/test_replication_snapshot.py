"""Who asks what replication is behind on holds nobody up, however much that is and however often he asks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sluice.proxy.admin.handlers import AdminDesk
from sluice.proxy.admin.top import replication_snapshot
from sluice.proxy.replication.rows import ReplicationSurvey
from sluice.proxy.session.replication.followers import Replication
from sluice.proxy.session.replication.mirror import MirroredPartition, SessionMirror
from sluice.quotas.replication.limits import ReplicationLimits, ThrottledReplicas
from testkit.proxy.playbook import limits_of, shared_of

PARTITIONS = 3_000
FOLLOWERS = (2, 3)
TOPIC_ID = bytes(range(16))
TURN_ROOM = 200
"""partitions that one turn of the loop may look at"""


@pytest.fixture
def replication() -> Replication:
    """Two followers, of which each has all partitions to catch up on; the higher its number, the more."""
    found = Replication(1)
    topics = {"orders": ThrottledReplicas(all=True)}
    found.apply(ReplicationLimits({1: 5e6}, {}, topics, topics), {TOPIC_ID: "orders"}, 1.0)
    for follower in FOLLOWERS:
        mirror = SessionMirror(follower, found)
        for index in range(PARTITIONS):
            key = (TOPIC_ID, index)
            partition = MirroredPartition(key, found.buckets_of(key, follower))
            partition.first = (1.0, 2_000 + index, 0)
            partition.high_watermark, partition.offset, partition.offset_bytes = 2_000 + index, 10, 1_000
            mirror.partitions[key] = mirror.waiting[key] = partition
        found.begun(mirror, follower)
    return found


def desk(replication: Replication | None) -> AdminDesk:
    shared = shared_of(limits_of(produce_rate=1_000))
    return AdminDesk(shared.quotas, shared.producer_ids, list, None, replication=replication)


@pytest.mark.asyncio
async def test_others_have_their_turns_while_it_is_made(replication: Replication) -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.ensure_future(other())
    found: Any = await desk(replication).answer({"ask": "replication", "rows": 1})
    task.cancel()
    assert [row["partition"] for row in found["partitions"]] == [PARTITIONS - 1]
    assert [row["waiting"] for row in found["followers"]] == [PARTITIONS] * 2
    assert turns >= len(FOLLOWERS) * PARTITIONS // TURN_ROOM


def test_no_step_looks_at_more_than_a_few_partitions(
    replication: Replication, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    lag: Any = MirroredPartition.lag

    def counted(partition: MirroredPartition) -> int:
        nonlocal looks
        looks += 1
        return int(lag.fget(partition))

    monkeypatch.setattr(MirroredPartition, "lag", property(counted))
    most = before = 0
    for _ in ReplicationSurvey().steps(replication, 1_000.0):
        most, before = max(most, looks - before), looks
    assert looks >= len(FOLLOWERS) * PARTITIONS
    assert most <= 3 * TURN_ROOM


@pytest.mark.asyncio
async def test_who_asks_again_at_once_is_given_the_last_one(
    replication: Replication, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = 0
    steps = ReplicationSurvey.steps

    def counted(*given: Any) -> Any:
        nonlocal made
        made += 1
        return steps(*given)

    monkeypatch.setattr(ReplicationSurvey, "steps", counted)
    monkeypatch.setattr(replication_snapshot, "monotonic", lambda: 1.0)  # at once, on a busy machine, too
    top = desk(replication).replication
    first, *others = await asyncio.gather(*(top.snapshot(rows) for rows in (5, 5, 0, 200)))
    assert made == 1
    assert [len(one["partitions"]) for one in (first, *others)] == [5, 5, 0, 200]
    assert others[0] == first


@pytest.mark.asyncio
async def test_without_followers_there_is_nothing_to_tell() -> None:
    assert await desk(None).answer({"ask": "replication", "rows": 1}) == {"leader": None}
