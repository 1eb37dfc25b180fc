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


class ReplicationSurvey:
    """What is told, made in steps, for a session may have thousands of partitions."""

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

    def steps(self, replication: Replication, now_ms: float) -> Iterator[None]:
        """Pauses where others may have their turn."""
        by_follower: dict[int, list[_Left]] = {}
        for mirror in list(replication.sessions):
            some = by_follower.setdefault(mirror.replica_id, [])
            for partition in list(mirror.waiting.values()):
                some.append(_Left(mirror, partition, now_ms))
                if len(some) % _PER_STEP == 0:
                    yield
        busy = max(1, sum(bool(some) for some in by_follower.values()))
        for follower, some in by_follower.items():
            self.followers.append(_follower(replication, follower, some, busy, now_ms))
            yield
        self.followers.sort(key=lambda row: int(row["follower"]))
        shown = [one for some in by_follower.values() for one in some if self._is_asked(replication, one)]
        shown.sort(key=lambda one: -(one.left_bytes or one.partition.lag))
        self.matching = len(shown)
        for number, one in enumerate(shown[: self._max_rows], start=1):
            self.partitions.append(_partition(replication, one))
            if number % _PER_STEP == 0:
                yield
        leader = replication.leader_bucket
        self.leader_id = replication.leader_id
        self.limit = None if leader is None else leader.rate_bytes_per_s
        self.rate = 0.0 if leader is None else leader.rate.measure(int(now_ms))
        self.move_ratio = replication.move_ratio

    def _is_asked(self, replication: Replication, one: _Left) -> bool:
        return not self._search or self._search in topic_of(replication, one.partition).casefold()


def replication_rows(replication: Replication, now_ms: float, rows: int = MAX_ROWS) -> dict[str, Any]:
    """As JSON can say it. At most `rows` partitions."""
    survey = ReplicationSurvey(max_rows=min(rows, MAX_ROWS))
    for _ in survey.steps(replication, now_ms):
        pass
    return {
        "leader": survey.leader_id,
        "limit": survey.limit,
        "rate": survey.rate,
        "move_ratio": survey.move_ratio,
        "followers": survey.followers,
        "partitions": survey.partitions,
    }


def topic_of(replication: Replication, partition: MirroredPartition) -> str:
    """Its topic's name, or the id in hex while the name is not known."""
    topic_id, _ = partition.key
    return replication.topic_names.get(topic_id, topic_id.hex())


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
