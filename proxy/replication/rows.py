"""Who is catching up, on what, how much is left and when it will be there. Pure.

For `sluice top --replication` and the status page.

    left bytes   = lag in records · bytes per record, as they have come so far
    ends in (s)  = left bytes / (rate − inflow)

which is KIP-73's MoveTime = MoveRatio · size · brokers / (quota − BytesIn), of what this leader sends. The
rate: the follower's own limit here, or its part of the leader's among the followers that wait, whichever is
less. Inflow: what producers have written meanwhile, by the growth of the high watermarks. Partitions take
turns: one ends when all have had as much as it still needs.

Worked example: 100 MB and 20 MB left at 5 MB/s without inflow: 24 s in all, the smaller after 2 · 20 / 5 =
8 s.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappush, heappushpop
from operator import attrgetter
from typing import Any, Final

from sluice.proxy.session.replication.followers import Replication
from sluice.proxy.session.replication.mirror import MirroredPartition, SessionMirror

MAX_ROWS: Final = 200
_PER_STEP: Final = 200
_MS_PER_S: Final = 1000.0


class _Left:
    """What is left of one waiting partition; bytes are None while nothing of it has come yet."""

    def __init__(self, mirror: SessionMirror, partition: MirroredPartition, now_ms: float) -> None:
        self.follower = mirror.replica_id
        self.partition = partition
        self.left_bytes: float | None = None
        self.inflow_bytes_per_s = 0.0
        self.ends_in_s: float | None = None
        if partition.first is None:
            return
        begun_ms, high_watermark, _ = partition.first
        record_bytes = partition.record_bytes
        if record_bytes is not None:
            self.left_bytes = partition.lag * record_bytes
            grown = max(0, partition.high_watermark - high_watermark)
            self.inflow_bytes_per_s = grown * record_bytes * _MS_PER_S / max(now_ms - begun_ms, _MS_PER_S)


class _Behind:
    """All that one follower waits for, and its sums."""

    def __init__(self, follower: int) -> None:
        self.follower = follower
        self.waiting: list[_Left] = []
        self.known: list[_Left] = []
        """those whose bytes are known"""
        self.lag_records = 0
        self.left_bytes = 0.0
        self.inflow_bytes_per_s = 0.0

    def add(self, one: _Left) -> None:
        self.waiting.append(one)
        self.lag_records += one.partition.lag
        if one.left_bytes is not None:
            self.known.append(one)
            self.left_bytes += one.left_bytes
            self.inflow_bytes_per_s += one.inflow_bytes_per_s


class ReplicationSurvey:
    """What is told, made in steps of below a millisecond or two, for a session may have thousands of
    partitions."""

    def __init__(self, search: str = "", max_rows: int = MAX_ROWS) -> None:
        """`search`: part of a topic's name, upper and lower case alike; followers are told whole."""
        self.leader_id: int | None = None
        self.limit: float | None = None
        self.rate = 0.0
        self.move_ratio: float | None = None
        self.followers: list[dict[str, Any]] = []
        self.partitions: list[dict[str, Any]] = []
        """those with most left first, at most `max_rows`"""
        self.matching = 0
        self._search = search.casefold()
        self._max_rows = max(0, max_rows)
        self._most: list[tuple[float, int, _Left]] = []
        """a heap of the partitions to tell: what is left, and a number that is lower where it came later"""

    def steps(self, replication: Replication, now_ms: float) -> Iterator[None]:
        """Pauses where others may have their turn."""
        by_follower: dict[int, _Behind] = {}
        for mirror in list(replication.sessions):
            behind = by_follower.setdefault(mirror.replica_id, _Behind(mirror.replica_id))
            for number, partition in enumerate(list(mirror.waiting.values()), start=1):
                one = _Left(mirror, partition, now_ms)
                behind.add(one)
                if self._is_asked(replication, one):
                    self._keep(one)
                if number % _PER_STEP == 0:
                    yield
        busy = max(1, sum(bool(behind.waiting) for behind in by_follower.values()))
        for follower, behind in sorted(by_follower.items()):
            limits = _limits(replication, follower, busy)
            yield from _ends(behind, min(limits, default=0.0))
            self.followers.append(_follower(replication, behind, min(limits, default=None), now_ms))
            yield
        self._most.sort(reverse=True)
        for number, (_, _, one) in enumerate(self._most, start=1):
            self.partitions.append(_partition(replication, one))
            if number % _PER_STEP == 0:
                yield
        leader = replication.leader_bucket
        self.leader_id = replication.leader_id
        self.limit = None if leader is None else leader.rate_bytes_per_s
        self.rate = 0.0 if leader is None else leader.rate.measure(int(now_ms))
        self.move_ratio = replication.move_ratio

    def to_json(self) -> dict[str, Any]:
        """As `sluice top --replication` takes it."""
        return {
            "leader": self.leader_id,
            "limit": self.limit,
            "rate": self.rate,
            "move_ratio": self.move_ratio,
            "followers": self.followers,
            "partitions": self.partitions,
        }

    def _keep(self, one: _Left) -> None:
        self.matching += 1
        found = one.left_bytes or one.partition.lag, -self.matching, one
        if len(self._most) < self._max_rows:
            heappush(self._most, found)
        elif self._most:
            heappushpop(self._most, found)

    def _is_asked(self, replication: Replication, one: _Left) -> bool:
        return not self._search or self._search in topic_of(replication, one.partition).casefold()


def topic_of(replication: Replication, partition: MirroredPartition) -> str:
    """Its topic's name, or the id in hex while the name is not known."""
    topic_id, _ = partition.key
    return replication.topic_names.get(topic_id, topic_id.hex())


def _limits(replication: Replication, follower: int, busy: int) -> list[float]:
    """Its own, and its part of the leader's; none where neither is set."""
    buckets = replication.follower_buckets.get(follower), replication.leader_bucket
    return [
        bucket.rate_bytes_per_s / among
        for bucket, among in zip(buckets, (1, busy), strict=True)
        if bucket is not None
    ]


def _follower(
    replication: Replication, behind: _Behind, limit: float | None, now_ms: float
) -> dict[str, Any]:
    own, known = replication.follower_buckets.get(behind.follower), behind.known
    is_known = len(known) == len(behind.waiting)
    return {
        "follower": behind.follower,
        "limit": limit,
        "rate": 0.0 if own is None else own.rate.measure(int(now_ms)),
        "passed_bytes": replication.passed_bytes.get(behind.follower, 0),
        "waiting": len(behind.waiting),
        "lag_records": behind.lag_records,
        "left_bytes": round(behind.left_bytes) if is_known else None,
        "ends_in_s": known[-1].ends_in_s if known and is_known else None,
    }


def _ends(behind: _Behind, rate_bytes_per_s: float) -> Iterator[None]:
    """Sort what is known, what ends last behind, and set `ends_in_s`; that stays None where what comes in is
    more than what may go. In steps."""
    free = rate_bytes_per_s - behind.inflow_bytes_per_s
    if free <= 0.0:
        return
    known = behind.known
    known.sort(key=attrgetter("left_bytes"))
    done_bytes = 0.0
    for number, one in enumerate(known):
        left_bytes = one.left_bytes or 0.0
        one.ends_in_s = round((done_bytes + left_bytes * (len(known) - number)) / free, 1)
        done_bytes += left_bytes
        if number % _PER_STEP == 0:
            yield


def _partition(replication: Replication, one: _Left) -> dict[str, Any]:
    return {
        "topic": topic_of(replication, one.partition),
        "partition": one.partition.key[1],
        "follower": one.follower,
        "offset": one.partition.offset,
        "high_watermark": one.partition.high_watermark,
        "lag_records": one.partition.lag,
        "passed_bytes": one.partition.passed_bytes,
        "left_bytes": None if one.left_bytes is None else round(one.left_bytes),
        "inflow": round(one.inflow_bytes_per_s, 1),
        "ends_in_s": one.ends_in_s,
    }
