"""One follower's session, step by step: what the broker is asked in its place, and what that leaves.

Buckets are of 1,000 B/s: 10 s after it was made one has room for 200 B, a quantum and as much saved.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

import pytest

from sluice.protocol.codec.wire import uuid_text
from sluice.protocol.headers import request_body
from sluice.protocol.replication.fetch_request import PartitionKey, ReplicaFetch, read_replica_fetch
from sluice.proxy.session.replication.mirror import Buckets, MirroredPartition, Plan, SessionMirror, give_back
from sluice.quotas.replication.throttle import ReplicationBucket
from testkit.frames.frames import FETCH, request
from testkit.oracles.replica_model import key_of

A, B, C, D = (key_of(number, 0) for number in range(4))
MAX_BYTES = 10_000
NOW_MS = 10_000.0


class Rules:
    """Which partitions are throttled, and by which buckets."""

    def __init__(self) -> None:
        self.generation = 0
        self.throttled: dict[PartitionKey, Buckets] = {}
        self.in_sync_followers: Mapping[PartitionKey, int] = {}

    def buckets_of(self, key: PartitionKey, replica_id: int) -> Buckets:
        assert replica_id == 0
        return self.throttled.get(key, ())

    def all_buckets(self, replica_id: int) -> Buckets:
        assert replica_id == 0
        return tuple({bucket for buckets in self.throttled.values() for bucket in buckets})


class Follower:
    """Replica 0, and its session at the mirror."""

    def __init__(self, *throttled: PartitionKey) -> None:
        self.rules = Rules()
        self.bucket = ReplicationBucket(1_000.0, 0.0)
        self.rules.throttled = dict.fromkeys(throttled, (self.bucket,))
        self.mirror = SessionMirror(0, self.rules)
        self.epoch = 0
        self.now_ms = NOW_MS

    def asks(
        self,
        *keys: PartitionKey,
        at: int = 0,
        cap: int = 1_000,
        forgets: tuple[PartitionKey, ...] = (),
        max_wait_ms: int = 500,
    ) -> ReplicaFetch:
        body: Any = {
            "replicaState": {"replicaId": 0}, "maxWaitMs": max_wait_ms, "maxBytes": MAX_BYTES,
            "sessionId": 7 if self.epoch else 0, "sessionEpoch": self.epoch,
            "topics": [
                {"topicId": uuid_text(topic), "partitions": [
                    {"partition": number, "fetchOffset": at, "partitionMaxBytes": cap}]}
                for topic, number in keys
            ],
            "forgottenTopicsData": [
                {"topicId": uuid_text(topic), "partitions": [number]} for topic, number in forgets
            ],
        }  # fmt: skip
        frame = request(FETCH, 18, body, client_id="f")
        asked = read_replica_fetch(frame, request_body(bytearray(frame), 15, len(frame), FETCH, 18), 18)
        self.epoch += 1
        return asked

    def plans(self, asked: ReplicaFetch) -> Plan:
        self.mirror.take(asked)
        return self.mirror.plan(asked, self.now_ms)

    def fetches(self, *keys: PartitionKey, **options: Any) -> Plan:
        """It is asked, planned, and goes."""
        plan = self.plans(self.asks(*keys, **options))
        assert not plan.hold_ms
        self.mirror.commit(plan, self.now_ms)
        return plan

    def is_answered(self, plan: Plan, *came: tuple[PartitionKey, int, int]) -> int:
        """(partition, high watermark, bytes)"""
        answered = [(key, 0, high_watermark, record_bytes) for key, high_watermark, record_bytes in came]
        return self.mirror.answered(plan.grants, answered, MAX_BYTES, self.now_ms)


def sent(plan: Plan) -> list[tuple[PartitionKey, int]]:
    return [(partition.key, cap) for partition, cap in plan.sent]


def goes(plan: Plan) -> tuple[list[tuple[PartitionKey, int]], list[PartitionKey], int]:
    """What the broker gets: partitions with their caps, what is forgotten, and max_wait_ms."""
    assert plan.frame is not None
    frame = bytearray(plan.frame)
    asked = read_replica_fetch(plan.frame, request_body(frame, 15, len(frame), FETCH, 18), 18)
    return [(key, cap) for key, _, cap, _ in asked.asked], list(asked.forgotten), asked.max_wait_ms


def test_a_partition_is_behind_until_a_high_watermark_says_that_it_is_not() -> None:
    partition = MirroredPartition(A, ())
    assert (partition.is_behind, partition.lag, partition.record_bytes) == (True, 0, None)
    partition.high_watermark = 0
    assert (partition.is_behind, partition.lag) == (False, 0)
    partition.high_watermark = 1
    assert (partition.is_behind, partition.lag) == (True, 1)
    partition.offset = 3
    assert (partition.is_behind, partition.lag) == (False, 0)


def test_what_its_records_weigh_is_known_by_what_came_since_its_first_high_watermark() -> None:
    follower = Follower()
    plan = follower.fetches(A, at=10)
    (partition,) = follower.mirror.partitions.values()
    follower.is_answered(plan, (A, 500, 300))
    assert partition.first == (NOW_MS, 500, 10)
    weights = [partition.record_bytes]  # the follower has not told where it stands
    plan = follower.fetches(A, at=13)
    weights.append(partition.record_bytes)
    assert weights == [None, 100.0]
    follower.now_ms += 1.0
    follower.is_answered(plan, (A, 510, 500))
    assert partition.first == (NOW_MS, 500, 10), "the first"
    assert partition.record_bytes == 100.0
    follower.fetches(A, at=15)
    assert partition.record_bytes == 800 / 5


def test_a_session_begins_without_an_id_and_its_epochs_begin_anew_behind_the_last() -> None:
    mirror = SessionMirror(0, Rules())
    assert (mirror.session_id, mirror.epoch, mirror.lag) == (0, 1, 0)
    mirror.went()
    assert mirror.epoch == 2
    mirror.epoch = 2**31 - 1
    mirror.went()
    assert mirror.epoch == 1


def test_where_nothing_waits_the_request_goes_as_it_came() -> None:
    follower = Follower()
    plan = follower.fetches(A, B)
    assert (plan.frame, sent(plan)) == (None, [(A, 1_000), (B, 1_000)])
    plan = follower.fetches(B, cap=2_000, forgets=(A,))
    assert (plan.frame, sent(plan)) == (None, [(B, 2_000)])
    plan = follower.fetches()
    assert (plan.frame, sent(plan), plan.taken_out) == (None, [], [])


def test_what_was_not_told_the_broker_yet_is_told_with_the_next_that_goes() -> None:
    """The request before was answered here, so that the broker knows nothing of it."""
    follower = Follower()
    follower.fetches(A, B)
    follower.mirror.take(follower.asks(A, at=5, forgets=(B,)))
    plan = follower.fetches()
    assert sent(plan) == [(A, 1_000)]
    assert goes(plan) == ([(A, 1_000)], [B], 500)
    assert follower.fetches().frame is None, "once"


def test_what_was_asked_and_forgotten_before_the_broker_knew_it_is_told_nowhere() -> None:
    follower = Follower()
    follower.fetches(A)
    follower.mirror.take(follower.asks(B))
    follower.mirror.take(follower.asks(forgets=(B,)))
    assert B not in follower.mirror.partitions
    assert follower.fetches().frame is None


def test_what_was_forgotten_and_asked_again_is_not_taken_out() -> None:
    follower = Follower()
    follower.fetches(A, B)
    follower.mirror.take(follower.asks(forgets=(B,)))
    plan = follower.fetches(B, at=3)
    assert (sent(plan), plan.frame) == ([(B, 1_000)], None)
    follower.mirror.take(follower.asks(forgets=(B,)))
    assert goes(follower.fetches())[1] == [B], "it was there"


def test_one_that_is_throttled_gets_what_there_is_room_for_and_waits_no_longer_than_a_quantum() -> None:
    follower = Follower(A)
    plan = follower.fetches(A, B)
    assert goes(plan) == ([(B, 1_000), (A, 200)], [], 100)
    ((partition, cap, expected, buckets),) = plan.grants
    assert (partition.key, cap, expected, buckets) == (A, 200, 200, (follower.bucket,))
    assert follower.bucket.room_bytes(follower.mirror, NOW_MS) == 0
    assert follower.mirror.wait_ms(NOW_MS) == 101.0


def test_a_shorter_wait_of_the_follower_stays() -> None:
    assert goes(Follower(A).fetches(A, max_wait_ms=50))[2] == 50


def test_where_there_is_no_room_a_full_fetch_asks_for_the_least_and_looks_again_in_time() -> None:
    follower = Follower(A)
    follower.now_ms = 20.0
    plan = follower.fetches(A, B)
    assert goes(plan) == ([(B, 1_000), (A, 1)], [], 81)
    assert plan.grants == []


def test_the_least_of_the_caps_and_of_all_buckets_counts() -> None:
    follower = Follower(A)
    assert goes(follower.fetches(A, cap=150))[0] == [(A, 150)]
    other = ReplicationBucket(500.0, 0.0)
    follower = Follower(A)
    follower.rules.throttled[A] = (follower.bucket, other)
    assert goes(follower.fetches(A))[0] == [(A, 100)]
    assert other.room_bytes(follower.mirror, NOW_MS) == 0
    follower = Follower(A)
    other.tat_ms = NOW_MS + 30.0
    follower.rules.throttled[A] = (follower.bucket, other)
    plan = follower.fetches(A)
    assert (goes(plan)[0], goes(plan)[2], plan.grants) == ([(A, 1)], 100, [])


def test_an_incremental_fetch_without_room_takes_the_partition_out_of_the_brokers_session() -> None:
    follower = Follower(A)
    plan = follower.fetches(A, B)
    follower.is_answered(plan, (A, 1_000, 200), (B, 0, 0))
    plan = follower.fetches(A, at=2)
    assert goes(plan) == ([], [A], 101)
    assert [partition.key for partition in plan.taken_out] == [A]
    assert follower.fetches(B, at=1).frame is not None
    follower.now_ms += 10_000.0
    plan = follower.fetches()
    assert goes(plan) == ([(A, 200)], [], 100)


def test_it_is_held_if_nothing_would_be_left_in_the_brokers_session() -> None:
    follower = Follower(A)
    plan = follower.fetches(A)
    follower.is_answered(plan, (A, 1_000, 200))
    asked = follower.asks(A, at=2)
    assert follower.plans(asked) == Plan(hold_ms=101.0)
    follower.now_ms += 101.0
    plan = follower.mirror.plan(asked, follower.now_ms)
    assert (plan.hold_ms, [cap for _, cap in plan.sent]) == (0.0, [101])


def test_what_leaves_the_session_holds_nothing_that_stays_in_it() -> None:
    follower = Follower(A)
    plan = follower.fetches(A, B, C)
    follower.is_answered(plan, (A, 1_000, 200), (B, 0, 0), (C, 0, 0))
    assert not follower.plans(follower.asks(A, at=2, forgets=(B,))).hold_ms
    follower.mirror.take(follower.asks(forgets=(C,)))
    assert follower.mirror.plan(follower.asks(), follower.now_ms).hold_ms == 101.0


def test_those_of_which_nothing_is_known_go_behind_those_that_are_let_through() -> None:
    follower = Follower(A, B, C)
    plan = follower.fetches(D)
    follower.is_answered(plan, (D, 0, 0))
    plan = follower.fetches(A, B, C)
    assert goes(plan)[0] == [(A, 200), (B, 1), (C, 1)]
    assert plan.taken_out == []
    follower.is_answered(plan, (A, 1_000, 200), (B, 1_000, 0))
    follower.now_ms += 10_000.0
    plan = follower.fetches()
    assert goes(plan) == ([(B, 200), (C, 1)], [A], 100)
    assert [partition.key for partition in plan.taken_out] == [A]


def test_what_comes_is_charged_and_of_whom_is_in_sync_its_share_is_told() -> None:
    follower = Follower(A, B)
    follower.rules.in_sync_followers = {A: 1, B: 2, C: 1}
    plan = follower.fetches(A, B, C)
    tat_ms = follower.bucket.tat_ms
    assert follower.is_answered(plan, (A, 1_000, 150), (B, 0, 70), (C, 0, 9), (D, 5, 5)) == 70 // 2 + 9
    assert follower.bucket.tat_ms == tat_ms - 50.0 + 70.0, "50 did not come, and 70 had no grant"
    assert follower.bucket.passed_bytes == 220
    assert list(follower.mirror.waiting) == [A]
    assert D not in follower.mirror.partitions


def test_an_error_or_no_high_watermark_tells_nothing() -> None:
    follower = Follower(A)
    plan = follower.fetches(A)
    follower.mirror.answered(plan.grants, [(A, 6, 0, 0)], MAX_BYTES, NOW_MS)
    follower.mirror.answered([], [(A, 0, -1, 0)], MAX_BYTES, NOW_MS)
    (partition,) = follower.mirror.partitions.values()
    assert (partition.high_watermark, partition.first) == (-1, None)
    assert list(follower.mirror.waiting) == [A]
    follower.mirror.answered([], [(A, 0, 0, 0)], MAX_BYTES, NOW_MS)
    assert (partition.high_watermark, partition.first) == (0, (NOW_MS, 0, 0))
    assert not follower.mirror.waiting


def test_what_has_caught_up_goes_with_its_own_cap_again() -> None:
    follower = Follower(A)
    plan = follower.fetches(A, B)
    follower.mirror.partitions[A].least_cap = 400
    follower.is_answered(plan, (A, 0, 0), (B, 0, 0))
    assert follower.mirror.partitions[A].least_cap == 400
    follower.is_answered(Plan(), (A, 0, 0))
    assert follower.mirror.partitions[A].least_cap == 0
    assert goes(follower.fetches()) == ([(A, 1_000)], [], 500)
    assert follower.fetches().frame is None


def test_a_grant_to_which_no_answer_comes_is_given_back() -> None:
    follower = Follower(A)
    plan = follower.fetches(A)
    give_back(plan.grants, NOW_MS)
    assert follower.bucket.tat_ms == NOW_MS - 100.0


def test_other_rules_change_who_waits_and_for_what() -> None:
    follower = Follower(A)
    plan = follower.fetches(A, B)
    follower.is_answered(plan, (A, 1_000, 200), (B, 1_000, 0))
    other = ReplicationBucket(2_000.0, 0.0)
    follower.rules.throttled = {B: (other,)}
    assert follower.mirror.waiting.keys() == {A}
    follower.rules.generation = 1
    plan = follower.fetches()
    assert goes(plan)[0] == [(A, 1_000), (B, 400)]
    assert follower.mirror.waiting.keys() == {B}
    assert follower.mirror.lag == 2_000


def test_who_is_followed_no_more_has_no_place_in_the_buckets() -> None:
    follower, other = Follower(A), Follower(A)
    other.rules.throttled = follower.rules.throttled
    follower.bucket.tat_ms = NOW_MS
    assert not follower.plans(follower.asks(A)).grants
    follower.mirror.dropped()
    other.now_ms = NOW_MS + 1.0
    assert other.plans(other.asks(A)).grants


def test_a_session_that_the_broker_gave_no_id_begins_anew_with_what_is_asked_then() -> None:
    follower = Follower(A, B)
    plan = follower.fetches(A, B, C)
    follower.is_answered(plan, (A, 1_000, 200), (B, 1_000, 0), (C, 0, 0))
    follower.mirror.take(follower.asks(C, forgets=(C,)))
    follower.epoch = 0
    asked = follower.asks(A, D)
    follower.mirror.begin_anew(asked)
    assert follower.mirror.partitions.keys() == follower.mirror.waiting.keys() == {A}
    follower.now_ms += 10_000.0
    plan = follower.plans(asked)
    assert goes(plan) == ([(D, 1_000), (A, 200)], [], 100)
    follower.mirror.commit(plan, follower.now_ms)
    follower.is_answered(plan, (A, 1_000, 200), (D, 0, 0))
    assert not follower.plans(follower.asks(forgets=())).hold_ms, "D stays"
    follower.mirror.take(follower.asks(forgets=(D,)))
    assert follower.mirror.plan(follower.asks(), follower.now_ms).hold_ms < inf
    assert follower.mirror.plan(follower.asks(), follower.now_ms).hold_ms > 0.0


@pytest.mark.parametrize("record_bytes", [0, 1])
def test_a_cap_that_brought_a_byte_is_not_doubled(record_bytes: int) -> None:
    follower = Follower(A)
    plan = follower.fetches(A)
    follower.is_answered(plan, (A, 1_000, record_bytes))
    assert follower.mirror.partitions[A].least_cap == (0 if record_bytes else 400)
