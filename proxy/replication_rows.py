"""Who is catching up, on what, how much is left and when it will be there: `sluice top --replication`. Pure.

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

from typing import Any, Final

from sluice.proxy.replication import Replication
from sluice.proxy.replication_mirror import MirroredPartition, SessionMirror

MAX_ROWS: Final = 200
_MS_PER_S: Final = 1000.0


class _Left:
    """Of one waiting partition; bytes are None while nothing of it has come yet."""

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


def replication_rows(replication: Replication, now_ms: float, rows: int = MAX_ROWS) -> dict[str, Any]:
    """As JSON can say it. At most `rows` partitions, those with most left first."""
    waiting = [
        _Left(mirror, partition, now_ms)
        for mirror in replication.sessions
        for partition in mirror.waiting.values()
    ]
    by_follower: dict[int, list[_Left]] = {mirror.replica_id: [] for mirror in replication.sessions}
    for one in waiting:
        by_follower[one.follower].append(one)
    busy = sum(bool(some) for some in by_follower.values())
    followers = [
        _follower(replication, follower, some, max(1, busy), now_ms) for follower, some in by_follower.items()
    ]
    waiting.sort(key=lambda one: -(one.left_bytes or one.partition.lag))
    leader = replication.leader_bucket
    return {
        "leader": replication.leader_id,
        "limit": None if leader is None else leader.rate_bytes_per_s,
        "rate": 0.0 if leader is None else leader.rate.measure(int(now_ms)),
        "move_ratio": replication.move_ratio,
        "followers": sorted(followers, key=lambda row: int(row["follower"])),
        "partitions": [_partition(replication, one) for one in waiting[: max(0, min(rows, MAX_ROWS))]],
    }


def _follower(
    replication: Replication, follower: int, waiting: list[_Left], busy: int, now_ms: float
) -> dict[str, Any]:
    own, leader = replication.follower_buckets.get(follower), replication.leader_bucket
    limits = [bucket.rate_bytes_per_s for bucket in (own,) if bucket is not None]
    limits += [leader.rate_bytes_per_s / busy] if leader is not None else []
    known = [one for one in waiting if one.left_bytes is not None]
    is_known = len(known) == len(waiting)
    left_bytes = sum(one.left_bytes or 0.0 for one in known)
    if known:
        _ends(known, min(limits, default=0.0))
    ends_in_s = max((one.ends_in_s for one in known if one.ends_in_s is not None), default=None)
    return {
        "follower": follower,
        "limit": min(limits, default=None),
        "rate": 0.0 if own is None else own.rate.measure(int(now_ms)),
        "passed_bytes": replication.passed_bytes.get(follower, 0),
        "waiting": len(waiting),
        "lag_records": sum(one.partition.lag for one in waiting),
        "left_bytes": round(left_bytes) if is_known else None,
        "ends_in_s": ends_in_s if is_known and all(one.ends_in_s is not None for one in known) else None,
    }


def _ends(waiting: list[_Left], rate_bytes_per_s: float) -> None:
    """Set `ends_in_s`; it stays None where what comes in is more than what may go."""
    free = rate_bytes_per_s - sum(one.inflow_bytes_per_s for one in waiting)
    if free <= 0.0:
        return
    waiting.sort(key=lambda one: one.left_bytes or 0.0)
    done_bytes = 0.0
    for number, one in enumerate(waiting):
        left_bytes = one.left_bytes or 0.0
        one.ends_in_s = round((done_bytes + left_bytes * (len(waiting) - number)) / free, 1)
        done_bytes += left_bytes


def _partition(replication: Replication, one: _Left) -> dict[str, Any]:
    topic_id, index = one.partition.key
    return {
        "topic": replication.topic_names.get(topic_id, topic_id.hex()),
        "partition": index,
        "follower": one.follower,
        "offset": one.partition.offset,
        "high_watermark": one.partition.high_watermark,
        "lag_records": one.partition.lag,
        "passed_bytes": one.partition.passed_bytes,
        "left_bytes": None if one.left_bytes is None else round(one.left_bytes),
        "inflow": round(one.inflow_bytes_per_s, 1),
        "ends_in_s": one.ends_in_s,
    }
