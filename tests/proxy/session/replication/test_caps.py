"""With what partition_max_bytes a throttled partition is let through: what a batch of it needs."""

from __future__ import annotations

from collections.abc import Mapping

from sluice.protocol.headers import request_body
from sluice.protocol.replication.fetch_request import PartitionKey, ReplicaFetch, read_replica_fetch
from sluice.proxy.session.replication.mirror import Buckets, SessionMirror
from sluice.quotas.replication.throttle import ReplicationBucket
from testkit.frames.frames import FETCH
from testkit.oracles.replica_model import MAX_BYTES, ModelFollower, key_of

KEY = key_of(0, 0)


class OneBucket:
    """Every partition is throttled by one bucket, 1,000 B/s."""

    generation = 0

    def __init__(self) -> None:
        self.bucket = ReplicationBucket(1_000.0, 0.0)
        self.in_sync_followers: Mapping[PartitionKey, int] = {}

    def buckets_of(self, key: PartitionKey, replica_id: int) -> Buckets:
        return (self.bucket,)

    def all_buckets(self, replica_id: int) -> Buckets:
        return (self.bucket,)


def full_fetch() -> ReplicaFetch:
    follower = ModelFollower(2)
    follower.wanted[KEY] = 0
    frame = follower.ask()
    return read_replica_fetch(frame, request_body(bytearray(frame), 15, len(frame), FETCH, 18), 18)


def caps_of(came_bytes: list[int]) -> list[int]:
    """Of fetches ten seconds apart, after each of which so many bytes of records came."""
    mirror, asked, found = SessionMirror(2, OneBucket()), full_fetch(), []
    for number, record_bytes in enumerate(came_bytes):
        now_ms = 10_000.0 * (number + 1)
        mirror.take(asked)
        plan = mirror.plan(asked, now_ms)
        ((partition, cap),) = plan.sent
        assert partition.key == KEY
        found.append(cap)
        mirror.commit(plan, now_ms)
        mirror.answered(plan.grants, [(KEY, 0, 1_000, record_bytes)], MAX_BYTES, now_ms)
    return found


def test_a_cap_that_brought_nothing_is_doubled_up_to_what_the_request_allows() -> None:
    """A batch is not cut: one of 7 kB behind others comes with no less. A turn has room for 200 bytes."""
    assert caps_of([0] * 8) == [200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]


def test_a_cap_of_which_half_was_not_needed_is_halved() -> None:
    assert caps_of([0, 0, 0, 800, 800, 0]) == [200, 400, 800, 1_600, 800, 800]


def test_a_high_watermark_is_taken_from_an_answer_without_an_error_that_has_one() -> None:
    mirror, asked = SessionMirror(2, OneBucket()), full_fetch()
    mirror.take(asked)
    partition = mirror.partitions[KEY]
    for error_code, told, known in ((6, 500, -1), (0, -1, -1), (0, 700, 700), (6, 900, 700), (0, -1, 700)):
        mirror.answered([], [(KEY, error_code, told, 0)], MAX_BYTES, 0.0)
        assert partition.high_watermark == known
    assert partition.lag == 700


def test_of_a_partition_that_is_followed_no_more_nothing_is_taken() -> None:
    mirror, asked = SessionMirror(2, OneBucket()), full_fetch()
    mirror.take(asked)
    assert mirror.answered([], [(key_of(1, 1), 0, 5, 100)], MAX_BYTES, 0.0) == 0
    assert mirror.partitions.keys() == {KEY}
