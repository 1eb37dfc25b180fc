"""Followers behind one listener: their sessions, mirrored, and the buckets that they catch up from. Pure.

Shared by the connections of an inter-broker listener, behind which one leader stands. A session is found by
its id and may outlive its connection. Who is throttled comes from ReplicationLimits, by topics' names;
requests have topics' ids, so the names are told too. Source: KIP-73, KIP-227.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sluice.protocol.replication.fetch_request import PartitionKey, ReplicaFetch
from sluice.proxy.session.replication.checks import Finding
from sluice.proxy.session.replication.mirror import Buckets, SessionMirror
from sluice.quotas.replication.limits import (
    NO_REPLICATION_LIMITS,
    NONE_THROTTLED,
    ReplicationLimits,
)
from sluice.quotas.replication.throttle import (
    FOLLOWER_SAVED_MS,
    MAX_DEBT_MS,
    QUANTUM_MS,
    ReplicationBucket,
)
from sluice.quotas.sensors.kafka_rate import DEFAULT_WINDOW_NUM, DEFAULT_WINDOW_SIZE_S, Rate

OTHER_REPLICAS: Final = -1
"""counts for the followers beyond MAX_SESSIONS"""
MAX_SESSIONS: Final = 1_000
"""Kafka's own number (max.incremental.fetch.session.cache.slots)"""


class Replication:
    """What all followers of one leader share. It is the `Rules` of its sessions' mirrors."""

    def __init__(
        self,
        leader_id: int,
        *,
        rate_share: float = 1.0,
        users: frozenset[str] | None = None,
        window_num: int = DEFAULT_WINDOW_NUM,
        window_size_s: float = DEFAULT_WINDOW_SIZE_S,
    ) -> None:
        """`leader_id`: the broker behind the listener. `rate_share`: of a limit that is used, below 1 where
        the broker throttles too. `users`: principals that are brokers; None: whoever may come.
        The windows are the broker's: what passed beyond a limit counts for (window_num − 1) · window_size_s,
        but for MAX_DEBT_MS at most, for so long a fetch may be held."""
        self.leader_id = leader_id
        self.users = users
        self.generation = 0
        self.limits = NO_REPLICATION_LIMITS
        self.topic_names: Mapping[bytes, str] = {}
        self.move_ratio: float | None = None
        """KIP-73's: the share of all partitions that have a throttled replica not in sync; None: nobody has
        asked, for nothing is throttled"""
        self._rate_share = rate_share
        self.windows: Final = (window_num, window_size_s)
        self._max_debt_ms = min((window_num - 1) * window_size_s * 1000.0, MAX_DEBT_MS)
        self._sessions: dict[int, SessionMirror] = {}  # the longest unused comes first
        self.leader_bucket: ReplicationBucket | None = None
        self.follower_buckets: dict[int, ReplicationBucket] = {}
        self.findings: tuple[Finding, ...] = ()
        """what is not as it should be with the cluster's throttles"""
        self.in_sync_followers: Mapping[PartitionKey, int] = {}
        """of the partitions that this leader leads, where there are any; empty while nothing is throttled"""
        self.written_rate = Rate(window_num, round(window_size_s * 1000.0))
        """bytes/s that producers write to these partitions, by what their followers in sync take"""
        self.passed_bytes: dict[int, int] = {}
        """records that went to each follower, throttled or not; never falls"""
        self._ended_leader_bytes = 0  # of buckets that are no more
        self._ended_follower_bytes: dict[int, int] = {}
        self.unknown_sessions = 0
        """fetches of sessions that were not mirrored, answered with error 71; never falls"""

    def apply(self, limits: ReplicationLimits, topic_names: Mapping[bytes, str], now_ms: float) -> None:
        """From now on these are in force. `topic_names`: by their ids; of a topic that is not there nothing
        is throttled."""
        if limits == self.limits and topic_names == self.topic_names:
            return
        self.limits = limits
        self.topic_names = topic_names
        self.generation += 1
        rate = limits.leader_rates.get(self.leader_id) if limits.leader_replicas else None
        before = self.leader_bucket
        self.leader_bucket = None if rate is None else self._renewed(before, rate, now_ms)
        if before is not None and self.leader_bucket is None:
            self._ended_leader_bytes += before.passed_bytes
        followers = limits.follower_rates if limits.follower_replicas else {}
        renewed = {}
        for follower in followers:
            share = limits.follower_share(follower)
            known = self.follower_buckets.get(follower)
            renewed[follower] = self._renewed(known, share, now_ms, saved_ms=FOLLOWER_SAVED_MS)
        for follower, bucket in self.follower_buckets.items():
            if follower not in renewed:
                ended = self._ended_follower_bytes.get(follower, 0) + bucket.passed_bytes
                self._ended_follower_bytes[follower] = ended
        self.follower_buckets = renewed

    def _renewed(
        self,
        bucket: ReplicationBucket | None,
        rate_bytes_per_s: float,
        now_ms: float,
        saved_ms: float = QUANTUM_MS,
    ) -> ReplicationBucket:
        paced = rate_bytes_per_s * self._rate_share
        if bucket is None:
            num, size_s = self.windows
            return ReplicationBucket(
                paced,
                now_ms,
                saved_ms=saved_ms,
                max_debt_ms=self._max_debt_ms,
                window_num=num,
                window_size_s=size_s,
            )
        if bucket.rate_bytes_per_s != paced:
            bucket.update(paced, now_ms)
        return bucket

    # Rules ------------------------------------------------------------------------------------------------

    def buckets_of(self, key: PartitionKey, replica_id: int) -> Buckets:
        """As `Rules` has it."""
        leader, follower = self.leader_bucket, self.follower_buckets.get(replica_id)
        if leader is None and follower is None:
            return ()
        name = self.topic_names.get(key[0])
        if name is None:
            return ()
        limits, partition = self.limits, key[1]
        found: list[ReplicationBucket] = []
        if leader is not None and limits.leader_replicas.get(name, NONE_THROTTLED).has(
            partition, self.leader_id
        ):
            found.append(leader)
        if follower is not None and limits.follower_replicas.get(name, NONE_THROTTLED).has(
            partition, replica_id
        ):
            found.append(follower)
        return tuple(found)

    def all_buckets(self, replica_id: int) -> Buckets:
        """As `Rules` has it."""
        both = self.leader_bucket, self.follower_buckets.get(replica_id)
        return tuple(bucket for bucket in both if bucket is not None)

    # What passed ------------------------------------------------------------------------------------------

    def passed(self, replica_id: int, record_bytes: int) -> None:
        """Records have gone to a follower."""
        if replica_id not in self.passed_bytes and len(self.passed_bytes) >= MAX_SESSIONS:
            replica_id = OTHER_REPLICAS
        self.passed_bytes[replica_id] = self.passed_bytes.get(replica_id, 0) + record_bytes

    @property
    def leader_throttled_bytes(self) -> int:
        """Bytes of partitions throttled at the leader, in sync or not; never falls."""
        bucket = self.leader_bucket
        return self._ended_leader_bytes + (0 if bucket is None else bucket.passed_bytes)

    @property
    def follower_throttled_bytes(self) -> dict[int, int]:
        """The same of those throttled at each follower."""
        found = dict(self._ended_follower_bytes)
        for follower, bucket in self.follower_buckets.items():
            found[follower] = found.get(follower, 0) + bucket.passed_bytes
        return found

    # Sessions ---------------------------------------------------------------------------------------------

    @property
    def sessions(self) -> tuple[SessionMirror, ...]:
        """All that are mirrored."""
        return tuple(self._sessions.values())

    def find(self, request: ReplicaFetch) -> SessionMirror | None:
        """Whose incremental fetch this is; None: of a session that is not mirrored, or not at this epoch.

        Then the follower is to be told so (error 71): it closes the session and fetches all anew.
        """
        mirror = self._sessions.pop(request.session_id, None)
        if mirror is None:
            return None
        if mirror.epoch != request.epoch or mirror.replica_id != request.replica_id:
            mirror.dropped()
            return None
        self._sessions[request.session_id] = mirror
        return mirror

    def begun(self, mirror: SessionMirror, session_id: int) -> None:
        """The broker has given the session an id."""
        self.forget(session_id)
        mirror.session_id = session_id
        self._sessions[session_id] = mirror
        while len(self._sessions) > MAX_SESSIONS:
            self.forget(next(iter(self._sessions)))

    def forget(self, session_id: int) -> None:
        """The session is closed, or the broker does not know it either."""
        mirror = self._sessions.pop(session_id, None)
        if mirror is not None:
            mirror.dropped()
