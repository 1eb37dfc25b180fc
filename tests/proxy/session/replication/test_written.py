"""What producers write to a leader, by what its followers in sync take of it."""

from __future__ import annotations

import pytest

from sluice.quotas.replication.limits import ReplicationLimits
from testkit.oracles.replica_model import Log, ModelFollower, key_of
from testkit.oracles.replica_world import ALL_REPLICAS, LEADER, World

OF_TWO, OF_ONE, UNKNOWN = (key_of(number, 0) for number in range(3))
RECORD_BYTES = 100


def written_bytes_per_s(*, rate_bytes_per_s: float) -> float:
    """In 10 s, 10 records a round of 100 ms are written to OF_TWO, 5 to OF_ONE, 1 to UNKNOWN."""
    world = World()
    world.limit(ReplicationLimits({LEADER: rate_bytes_per_s}, {}, ALL_REPLICAS))
    world.replication.in_sync_followers = {OF_TWO: 2, OF_ONE: 1}
    first, second = followers = ModelFollower(2), ModelFollower(3)
    first.wanted = {OF_TWO: 0, OF_ONE: 0, UNKNOWN: 0}
    second.wanted = {OF_TWO: 0}
    for key in first.wanted:
        world.broker.logs[key] = Log(RECORD_BYTES, in_sync={2, 3} if key == OF_TWO else {2})
    for _ in range(100):
        for key, records in ((OF_TWO, 10), (OF_ONE, 5), (UNKNOWN, 1)):
            world.broker.logs[key].end += records
        for follower in followers:
            world.fetch(follower)
        world.now_ms += 100.0
    return world.replication.written_rate.measure(int(world.now_ms))


@pytest.mark.parametrize("rate_bytes_per_s", [1e9, 1.0])
def test_it_is_counted_once_however_many_followers_a_partition_has(rate_bytes_per_s: float) -> None:
    """By one mean for all, 1.5 here, OF_TWO and OF_ONE would be 16,667. Who is in sync is not held."""
    assert written_bytes_per_s(rate_bytes_per_s=rate_bytes_per_s) == pytest.approx(15_000.0, rel=0.02)
