"""What a follower's fetch session holds, in the follower's eyes and in the broker's: they may differ. Pure.

    take(request)    what the follower wants now; the same request may be taken again while it is held
    plan(request)    what the broker is asked instead: as it is, another frame, or nothing yet (hold)
    commit(plan)     it goes
    answered(…)      what came: high watermarks, bytes against grants

A partition *waits* while it is throttled and behind: its high watermark is unknown, or its fetch offset
below the last one seen. (A replica in sync is never below it, for the high watermark is the least of those in
sync; so none that is in sync is ever left out: KAFKA-4313.) What waits is let through in turn, by grants of
its buckets, with partition_max_bytes lowered to the grant; the rest of it is taken out of the broker's
session for that fetch, by `forgotten`. A full fetch keeps all, for its answer must have all; what waits gets
a cap of 1.

In the same fetch, as in the broker (FetchSession.update): first what is asked, then what is forgotten.
Source: KIP-73, KIP-227; FetchSession, FetchSessionHandler of 4.3.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from sluice.protocol.replication.fetch_request import (
    PartitionKey,
    ReplicaFetch,
    rewrite_replica_fetch,
    with_cap,
)
from sluice.protocol.replication.fetch_response import Answered
from sluice.quotas.replication.throttle import ReplicationBucket

_UNKNOWN: Final = -1
_LEAST_CAP: Final = 1
_GUESS_ERROR: Final = 4
_EPOCH_MAX: Final = 2**31 - 1

Buckets: TypeAlias = tuple[ReplicationBucket, ...]


class Rules(Protocol):
    """Who is throttled, at the moment."""

    generation: int
    """another number: `buckets_of` may say something else"""
    in_sync_followers: Mapping[PartitionKey, int]
    """how many each partition of this leader has, one at least; empty while nobody has asked"""

    def buckets_of(self, key: PartitionKey, replica_id: int) -> Buckets:
        """What a follower's bytes of the partition are charged against; none: it is not throttled."""

    def all_buckets(self, replica_id: int) -> Buckets:
        """All that `buckets_of` may name for the follower."""


class MirroredPartition:
    """One partition of a session."""

    __slots__ = (
        "buckets", "entry", "first", "high_watermark", "inside", "key", "least_cap", "offset", "offset_bytes",
        "passed_bytes", "sent_cap", "wanted_cap",
    )  # fmt: skip

    def __init__(self, key: PartitionKey, buckets: Buckets) -> None:
        self.key = key
        self.buckets = buckets
        self.entry = b""
        """as the follower asked for it the last time"""
        self.offset = 0
        self.wanted_cap = 0
        self.high_watermark = _UNKNOWN
        self.inside = False
        """the broker's session has it"""
        self.sent_cap = 0
        """with this partition_max_bytes, while `inside`"""
        self.least_cap = 0
        """with less nothing came: a batch is not cut"""
        self.passed_bytes = 0
        self.offset_bytes = 0
        """of those, what had come when the follower last asked"""
        self.first: tuple[float, int, int] | None = None
        """when a high watermark was first seen (ms), which, and the fetch offset then"""

    @property
    def is_behind(self) -> bool:
        """As far as is known."""
        return self.high_watermark < 0 or self.offset < self.high_watermark

    @property
    def lag(self) -> int:
        """Records up to the last high watermark seen; 0 while it is unknown."""
        return max(0, self.high_watermark - self.offset)

    @property
    def record_bytes(self) -> float | None:
        """What a record of it weighs, by what has come; None: nothing has."""
        if self.first is None or self.offset <= self.first[2]:
            return None
        return self.offset_bytes / (self.offset - self.first[2])


Grant: TypeAlias = tuple[MirroredPartition, int, int, Buckets]
"""to which partition, with what cap, how many bytes of it are held back until they come, and from where"""


@dataclass(slots=True)
class Plan:
    """What becomes of one request."""

    hold_ms: float = 0.0
    """> 0: nothing would be left in the broker's session; ask again in so long"""
    frame: bytes | None = None
    """None: the request goes as it is"""
    sent: list[tuple[MirroredPartition, int]] = field(default_factory=list)
    """put into the broker's session, or changed there, with this cap"""
    taken_out: list[MirroredPartition] = field(default_factory=list)
    grants: list[Grant] = field(default_factory=list)


class SessionMirror:
    """One session of one follower. Begins with its full fetch."""

    def __init__(self, replica_id: int, rules: Rules) -> None:
        self.replica_id = replica_id
        self.session_id = 0
        """0: the broker has not given one yet"""
        self.epoch = 1
        """of the follower's next incremental fetch"""
        self.partitions: dict[PartitionKey, MirroredPartition] = {}
        self.waiting: dict[PartitionKey, MirroredPartition] = {}
        """the next to be let through comes first"""
        self._unknown: dict[PartitionKey, MirroredPartition] = {}  # of those that wait
        self._stale: dict[
            PartitionKey, MirroredPartition
        ] = {}  # the broker has them otherwise, or not at all
        self._leaving: dict[PartitionKey, None] = {}  # the broker still has what the follower has forgotten
        self._records = self._records_bytes = 0  # that have come, where it is known how many they are
        self._inside = 0  # partitions in the broker's session, with those leaving
        self._rules = rules
        self._generation = rules.generation

    @property
    def lag(self) -> int:
        """How far it is behind over all its partitions, in records."""
        return sum(partition.lag for partition in self.partitions.values())

    def take(self, request: ReplicaFetch) -> None:
        """What the follower wants from now on."""
        partitions = self.partitions
        for key, offset, wanted_cap, entry in request.asked:
            partition = partitions.get(key)
            if partition is None:
                buckets = self._rules.buckets_of(key, self.replica_id)
                partition = partitions[key] = MirroredPartition(key, buckets)
                if key in self._leaving:
                    del self._leaving[key]
                    partition.inside = True
            elif offset > partition.offset and partition.offset_bytes != partition.passed_bytes:
                self._records += offset - partition.offset
                self._records_bytes += partition.passed_bytes - partition.offset_bytes
            partition.entry = entry
            partition.offset = offset
            partition.offset_bytes = partition.passed_bytes
            partition.wanted_cap = wanted_cap
            self._stale[key] = partition
            if partition.buckets:
                self._sort(partition)
        for key in request.forgotten:
            partition = partitions.pop(key, None)
            if partition is not None:
                self.waiting.pop(key, None)
                self._unknown.pop(key, None)
                self._stale.pop(key, None)
                if partition.inside:
                    self._leaving[key] = None

    def begin_anew(self, request: ReplicaFetch) -> None:
        """The broker has given it no session, and all is asked anew: before `take` of a full fetch."""
        asked = {key for key, *_ in request.asked}
        for key in [key for key in self.partitions if key not in asked]:
            del self.partitions[key]
            self.waiting.pop(key, None)
            self._unknown.pop(key, None)
        for partition in self.partitions.values():
            partition.inside = False
        self._inside = 0
        self._stale.clear()
        self._leaving.clear()

    # Whole on purpose: what becomes of a partition hangs on all that was decided before it in the pass.
    def plan(self, request: ReplicaFetch, now_ms: float) -> Plan:
        """What the broker is asked, after `take`. Changes nothing but places in the buckets' queues."""
        if self._generation != self._rules.generation:
            self._sort_all()
        if (
            not self.waiting
            and len(self._stale) == len(request.asked)
            and len(self._leaving) == len(request.forgotten)
            and all(asked[0] in self._stale for asked in request.asked)
        ):
            return Plan(sent=[(partition, partition.wanted_cap) for partition in self._stale.values()])
        grants, wait_ms = self._grants(request.max_bytes, now_ms)
        sent = [(p, p.wanted_cap) for key, p in self._stale.items() if key not in self.waiting]
        chosen = {partition.key for partition, *_ in grants}
        for partition, cap, _, _ in grants:
            if not partition.inside or partition.sent_cap != cap or partition.key in self._stale:
                sent.append((partition, cap))
        taken_out: list[MirroredPartition] = []
        if request.is_full:
            sent += [(p, _LEAST_CAP) for key, p in self.waiting.items() if key not in chosen]
        else:
            if grants:  # behind those that are let through they cost nothing, and tell where they stand
                for key, partition in self._unknown.items():
                    if key not in chosen:
                        chosen.add(key)
                        sent.append((partition, _LEAST_CAP))
            taken_out = [p for key, p in self.waiting.items() if p.inside and key not in chosen]
            added = sum(not partition.inside for partition, _ in sent)
            if self.waiting and self._inside + added == len(taken_out) + len(self._leaving):
                return Plan(hold_ms=wait_ms)
        return Plan(0.0, self._frame(request, sent, taken_out, wait_ms), sent, taken_out, grants)

    def _frame(
        self,
        request: ReplicaFetch,
        sent: list[tuple[MirroredPartition, int]],
        taken_out: list[MirroredPartition],
        wait_ms: float,
    ) -> bytes:
        max_wait_ms = min(request.max_wait_ms, int(wait_ms)) if self.waiting else request.max_wait_ms
        entries = [(p.key[0], p.entry if cap == p.wanted_cap else with_cap(p.entry, cap)) for p, cap in sent]
        forgotten = [*self._leaving, *(partition.key for partition in taken_out)]
        return rewrite_replica_fetch(request, entries, forgotten, max_wait_ms)

    def _grants(self, max_bytes: int, now_ms: float) -> tuple[list[Grant], float]:
        """Who is let through now, and in how many ms to look again."""
        grants: list[Grant] = []
        rooms: dict[ReplicationBucket, int] = {}
        wait_ms = 0.0
        of_replica = self._rules.all_buckets(self.replica_id)
        for partition in self.waiting.values():
            for bucket in partition.buckets:
                if bucket not in rooms:
                    rooms[bucket] = bucket.room_bytes(self, now_ms)
                    wait_ms = max(wait_ms, bucket.quantum_ms if rooms[bucket] else bucket.wait_ms(now_ms))
            room = min(rooms[bucket] for bucket in partition.buckets)
            if room > 0:
                cap = max(min(partition.wanted_cap, room), min(partition.least_cap, max_bytes), _LEAST_CAP)
                cap, expected = self._expected(partition, cap)
                grants.append((partition, cap, expected, partition.buckets))
                for bucket in partition.buckets:
                    rooms[bucket] -= expected
            if all(rooms.get(bucket, 1) <= 0 for bucket in of_replica):
                break
        return grants, wait_ms

    def wait_ms(self, now_ms: float) -> float:
        """Until something of what waits may be let through; 0: now, or nothing waits."""
        buckets = {bucket for partition in self.waiting.values() for bucket in partition.buckets}
        return max((bucket.wait_ms(now_ms) for bucket in buckets), default=0.0)

    def _expected(self, partition: MirroredPartition, cap: int) -> tuple[int, int]:
        """The cap, and what an answer with it will bring: no more than is left, or partitions with little
        left would each take a turn.

        What is left is guessed by what records weigh, in this partition or else in all of the session; in the
        latter case the cap is _GUESS_ERROR times that at most, should they weigh more here.
        """
        record_bytes = partition.record_bytes
        if record_bytes is not None:
            return cap, min(cap, int(partition.lag * record_bytes) + 1)
        if not self._records or partition.high_watermark < 0:
            return cap, cap
        left_bytes = int(partition.lag * self._records_bytes / self._records) + 1
        return max(min(cap, _GUESS_ERROR * left_bytes), min(cap, partition.least_cap)), min(cap, left_bytes)

    def commit(self, plan: Plan, now_ms: float) -> None:
        """The request goes as planned."""
        for partition, cap in plan.sent:
            partition.sent_cap = cap
            if not partition.inside:
                partition.inside = True
                self._inside += 1
        for partition in plan.taken_out:
            partition.inside = False
        self._inside -= len(plan.taken_out) + len(self._leaving)
        self._leaving.clear()
        self._stale.clear()
        for partition, _, expected, buckets in plan.grants:
            for bucket in buckets:
                bucket.grant(self, expected, now_ms)
            self.waiting[partition.key] = self.waiting.pop(partition.key)  # its turn is over

    def went(self) -> None:
        """An incremental fetch has gone: the next one has the next epoch."""
        self.epoch = 1 if self.epoch == _EPOCH_MAX else self.epoch + 1

    def answered(self, grants: list[Grant], answered: list[Answered], max_bytes: int, now_ms: float) -> int:
        """What came for the last request. `max_bytes`: of that request, what a cap may grow to.

        Returns its part of what producers have written: a partition's bytes go to each follower in sync, so
        each counts its share of them. What is not known to have any is left out.
        """
        granted = {partition.key for partition, *_ in grants}
        came: dict[PartitionKey, int] = {}
        written_bytes, followers = 0, self._rules.in_sync_followers
        for key, error_code, high_watermark, record_bytes in answered:
            partition = self.partitions.get(key)
            if partition is None:
                continue
            if not error_code and high_watermark >= 0:
                partition.high_watermark = high_watermark
                if partition.first is None:
                    partition.first = now_ms, high_watermark, partition.offset
                if partition.buckets:
                    self._sort(partition)
            if record_bytes > 0:
                partition.passed_bytes += record_bytes
                if key in followers and not partition.is_behind:
                    written_bytes += record_bytes // followers[key]
                if key in granted:
                    came[key] = record_bytes
                else:
                    for bucket in partition.buckets:
                        bucket.settle(0, record_bytes, now_ms)
        for partition, cap, expected, buckets in grants:
            came_bytes = came.get(partition.key, 0)
            for bucket in buckets:
                bucket.settle(expected, came_bytes, now_ms)
            if not came_bytes:
                partition.least_cap = min(2 * cap, max_bytes)
            elif 2 * came_bytes <= cap:
                partition.least_cap //= 2
        return written_bytes

    def dropped(self) -> None:
        """It is followed no more."""
        for partition in self.waiting.values():
            for bucket in partition.buckets:
                bucket.leave(self)

    def _sort(self, partition: MirroredPartition) -> None:
        """Does it wait, now that something of it has changed?"""
        key = partition.key
        if partition.buckets and partition.is_behind:
            self.waiting.setdefault(key, partition)
            if partition.high_watermark < 0:
                self._unknown[key] = partition
            else:
                self._unknown.pop(key, None)
            return
        self.waiting.pop(key, None)
        self._unknown.pop(key, None)
        partition.least_cap = 0
        if not partition.inside or partition.sent_cap != partition.wanted_cap:
            self._stale[key] = partition

    def _sort_all(self) -> None:
        """Others are throttled now, or none, or by other buckets."""
        self.dropped()
        self._generation = self._rules.generation
        for partition in self.partitions.values():
            partition.buckets = self._rules.buckets_of(partition.key, self.replica_id)
            self._sort(partition)


def give_back(grants: list[Grant], now_ms: float) -> None:
    """No answer will come to the request that they were for, or none that has records."""
    for _, _, expected, buckets in grants:
        for bucket in buckets:
            bucket.settle(expected, 0, now_ms)
