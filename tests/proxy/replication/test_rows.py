"""What people see of followers that catch up: how much is left, and when it will be there."""

from __future__ import annotations

import io
import json
from typing import Any
from uuid import UUID

import pytest
from kafka.protocol.metadata import MetadataResponse
from rich.console import Console

from sluice.proxy.admin.top.replication_view import replication_view
from sluice.proxy.metrics.replication import replication_rates, replication_samples
from sluice.proxy.replication.rows import ReplicationSurvey
from sluice.proxy.replication.watch import in_sync_followers, leaders_of, move_ratio
from sluice.proxy.session.replication.followers import Replication
from sluice.quotas.replication.limits import ReplicationLimits, ThrottledReplicas
from testkit.oracles.replica_model import key_of
from testkit.oracles.replica_world import LEADER, a_move

RATE = 5_000.0


def replication_rows(replication: Replication, now_ms: float) -> dict[str, Any]:
    survey = ReplicationSurvey()
    for _ in survey.steps(replication, now_ms):
        pass
    return survey.to_json()


def test_the_worked_example_a_thousandth_as_large() -> None:
    """100 kB and 20 kB left at 5 kB/s: 24 s in all, the smaller after 8 s."""
    world, follower = a_move(0, 0, RATE)
    for index, left in enumerate((1_000, 200)):
        key = key_of(index, index)
        (mirror,) = world.replication.sessions
        partition = mirror.partitions[key]
        partition.first = (world.now_ms, left + 10, 0)
        partition.offset, partition.high_watermark, partition.offset_bytes = 10, left + 10, 1_000
        mirror.waiting[key] = partition
    found: Any = replication_rows(world.replication, world.now_ms)
    assert found["followers"] == [
        {
            "follower": follower.replica_id,
            "limit": RATE,
            "rate": 0.0,
            "passed_bytes": 0,
            "waiting": 2,
            "lag_records": 1_200,
            "left_bytes": 120_000,
            "ends_in_s": 24.0,
        }
    ]
    assert [(row["partition"], row["ends_in_s"]) for row in found["partitions"]] == [(0, 24.0), (1, 8.0)]
    assert found["partitions"][0]["topic"] == "t0"


def test_the_end_that_is_told_is_the_end_that_comes() -> None:
    """Within a tenth (KIP-73: "reliably predict")."""
    world, follower = a_move(400, 100, RATE)
    while any(at < 8 for at in follower.wanted.values()):
        world.fetch(follower)
        world.now_ms += 5.0
    told: Any = replication_rows(world.replication, world.now_ms)["followers"][0]["ends_in_s"]
    begun_ms = world.now_ms
    while any(at < world.broker.logs[key].end for key, at in follower.wanted.items()):
        world.fetch(follower)
        world.now_ms += 5.0
    assert told == pytest.approx((world.now_ms - begun_ms) / 1000.0, rel=0.1)


def test_no_end_is_told_where_more_comes_in_than_may_go() -> None:
    world, follower = a_move(400, 100, RATE)
    for _ in range(100):
        for log in world.broker.logs.values():
            log.end += 10
        world.fetch(follower)
        world.now_ms += 100.0
    found: Any = replication_rows(world.replication, world.now_ms)
    assert found["followers"][0]["ends_in_s"] is None
    assert found["partitions"][0]["inflow"] > 0


def test_snapshots_are_json_and_tables_whose_names_do_nothing_to_a_terminal() -> None:
    world, _ = a_move(400, 100, RATE)
    world.replication.topic_names = {key_of(0, 0)[0]: "evil\x1b[31m"}
    world.replication.move_ratio = 0.25
    found = json.loads(json.dumps(replication_rows(world.replication, world.now_ms)))
    out = io.StringIO()
    Console(file=out, width=200).print(replication_view(found))
    assert "25.0% of all partitions are being moved" in out.getvalue()
    assert "evil\\x1b" in out.getvalue()
    assert "\x1b" not in out.getvalue()
    out = io.StringIO()
    Console(file=out, width=200).print(replication_view({"leader": None}))
    assert "no listener" in out.getvalue()


def test_bytes_of_a_throttle_that_is_gone_stay_counted() -> None:
    world, _ = a_move(400, 100, RATE)
    before = dict(replication_samples(world.replication))["sluice_replication_throttled_bytes_total"]
    (((labels, count),)) = list(before)
    assert labels == ("leader", str(LEADER))
    assert count > 0
    assert replication_rates(world.replication, int(world.now_ms))[0] > 0
    world.limit(ReplicationLimits())
    after = dict(replication_samples(world.replication))["sluice_replication_throttled_bytes_total"]
    assert list(after) == [(labels, count)]
    assert replication_rates(world.replication, int(world.now_ms)) == (0.0, 0.0)
    assert replication_rates(None, 0) == (0.0, 0.0)


def test_leaders_and_the_move_ratio_are_of_replicas_that_are_throttled_and_not_in_sync() -> None:
    topic_of = MetadataResponse.MetadataResponseTopic

    def partition(index: int, leader: int, replicas: list[int], in_sync: list[int]) -> Any:
        return topic_of.MetadataResponsePartition(
            partition_index=index, leader_id=leader, replica_nodes=replicas, isr_nodes=in_sync
        )

    topics = [
        topic_of(
            name="a",
            topic_id=UUID(int=7),
            partitions=[
                partition(0, 1, [1, 4], [1]),
                partition(1, 2, [2, 4], [2]),
                partition(2, 2, [2, 4], [2, 4]),  # in sync
                partition(3, -1, [3, 4], []),  # led by nobody
            ],
        ),
        topic_of(name="b", topic_id=UUID(int=8), partitions=[partition(0, 3, [3, 4], [3])]),  # not throttled
    ]
    throttled = {"a": ThrottledReplicas(frozenset({(0, 4), (1, 4), (2, 4), (3, 4)}))}
    assert leaders_of(topics, throttled) == {4: 2}
    assert move_ratio(topics, throttled) == 3 / 5
    assert move_ratio([], {}) == 0.0
    assert in_sync_followers(topics, 2) == {(topics[0].topic_id.bytes, 2): 1}
    assert in_sync_followers(topics, 1) == {}


def test_a_replication_without_sessions_has_no_rows() -> None:
    found: Any = replication_rows(Replication(7), 0.0)
    assert (found["leader"], found["limit"], found["followers"], found["partitions"]) == (7, None, [], [])
