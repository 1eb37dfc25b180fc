"""What is told of replication: rows for /metrics and for the page with Kafka's names. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from sluice.proxy.session.replication.checks import CHECKS
from sluice.proxy.session.replication.followers import Replication

Samples: TypeAlias = Iterable[tuple[tuple[str, ...], float]]
"""(the values of the labels, value)"""
_SIDES = ("leader", "follower")


def replication_rates(replication: Replication | None, now_ms: int) -> tuple[float, float]:
    """Bytes/s of throttled partitions, over Kafka's windows: leader's side, and all followers' together."""
    if replication is None:
        return 0.0, 0.0
    leader = replication.leader_bucket
    followers = sum(bucket.rate.measure(now_ms) for bucket in replication.follower_buckets.values())
    return (0.0 if leader is None else leader.rate.measure(now_ms)), followers


def replication_samples(replication: Replication | None) -> Iterator[tuple[str, Samples]]:
    """(name of table.py, samples); none with labels where no listener has followers."""
    name = "sluice_replication_"
    sessions = () if replication is None else replication.sessions
    yield f"{name}sessions", [((), len(sessions))]
    yield f"{name}unknown_sessions_total", [((), 0 if replication is None else replication.unknown_sessions)]
    failed = set() if replication is None else {finding.check for finding in replication.findings}
    yield f"{name}check_failed", (((check,), check in failed) for check in CHECKS)
    lags: dict[int, list[int]] = {}
    for mirror in sessions:
        lag = lags.setdefault(mirror.replica_id, [0, 0])
        lag[0] += mirror.lag
        lag[1] += len(mirror.waiting)
    yield f"{name}lag_records", (((str(replica),), lag) for replica, (lag, _) in lags.items())
    yield f"{name}waiting_partitions", (((str(replica),), n) for replica, (_, n) in lags.items())
    passed = {} if replication is None else replication.passed_bytes
    yield f"{name}bytes_total", (((str(replica),), count) for replica, count in passed.items())
    if replication is None:
        yield f"{name}throttled_bytes_total", ()
        yield f"{name}limit_bytes_per_second", ()
        return
    leader = str(replication.leader_id)
    throttled = [((_SIDES[0], leader), float(replication.leader_throttled_bytes))]
    throttled += [
        ((_SIDES[1], str(replica)), float(count))
        for replica, count in replication.follower_throttled_bytes.items()
    ]
    yield f"{name}throttled_bytes_total", throttled
    limits = []
    if replication.leader_bucket is not None:
        limits.append(((_SIDES[0], leader), replication.leader_bucket.rate_bytes_per_s))
    limits += [
        ((_SIDES[1], str(replica)), bucket.rate_bytes_per_s)
        for replica, bucket in replication.follower_buckets.items()
    ]
    yield f"{name}limit_bytes_per_second", limits
