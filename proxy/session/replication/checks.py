"""What is not as it should be with replication throttles, by KIP-73's own rules; told in sentences. Pure.

    safe band             IN < T < N − IN / R    T: the throttle; IN: bytes/s that producers write to a
                                                 broker; N: its network; R: replicas of a partition
    response max bytes    replica.fetch.response.max.bytes < T · total window
    throttle left behind  a throttle is set, and for a minute nothing has been behind that it is for

Worked example, 5 MB/s, window 11 s: answers below 55 MB (the default is 10.5 MB); at 0.9 MB/s they would have
to be below 9.9 MB. With IN = 6 MB/s a move at 5 MB/s never ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from sluice.protocol.replication.fetch_request import PartitionKey
from sluice.quotas.replication.limits import NO_REPLICATION_LIMITS, ReplicationLimits

SAFE_BAND: Final = "safe_band"
RESPONSE_MAX_BYTES: Final = "response_max_bytes"
LEFT_BEHIND: Final = "left_behind"
CHECKS: Final = (SAFE_BAND, RESPONSE_MAX_BYTES, LEFT_BEHIND)
LEFT_BEHIND_AFTER_S: Final = 60.0
"""between two moves of one plan a throttle has nothing to do, too"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be."""

    check: str
    """one of CHECKS"""
    message: str


@dataclass(frozen=True, slots=True)
class ClusterState:
    """What the brokers say at a moment."""

    limits: ReplicationLimits = NO_REPLICATION_LIMITS
    topic_names: Mapping[bytes, str] = field(default_factory=dict)
    move_ratio: float | None = None
    replicas_behind: int = 0
    """throttled, and not in sync"""
    replication_factor: float = 1.0
    """the mean over the partitions that have followers"""
    in_sync_followers: Mapping[PartitionKey, int] = field(default_factory=dict)
    """of the partitions that the leader leads, where there are any"""
    response_max_bytes: Mapping[int, int] = field(default_factory=dict)
    """broker → its replica.fetch.response.max.bytes"""
    lists_left: tuple[str, ...] = ()
    """topics that name throttled replicas"""


def findings(
    state: ClusterState,
    *,
    window_s: float,
    idle_s: float = 0.0,
    in_bytes_per_s: Mapping[int, float] | None = None,
    network_bytes_per_s: float | None = None,
) -> Iterator[Finding]:
    """`window_s`: the whole window of the rates. `idle_s`: for how long nothing has been behind.
    `in_bytes_per_s`: of brokers of which it is known. `network_bytes_per_s`: None if nobody has told."""
    limits = state.limits
    for side, rates in (("leader", limits.leader_rates), ("follower", limits.follower_rates)):
        for broker, rate in sorted(rates.items()):
            incoming = (in_bytes_per_s or {}).get(broker)
            if incoming is not None:
                yield from _band(side, broker, rate, incoming, network_bytes_per_s, state.replication_factor)
            largest = state.response_max_bytes.get(broker)
            if side == "leader" and largest is not None and largest >= rate * window_s:
                yield Finding(
                    RESPONSE_MAX_BYTES,
                    f"broker {broker}: replica.fetch.response.max.bytes is {largest:,}; with a leader's "
                    f"throttle of {rate:,.0f} B/s over {window_s:g} s it must be below "
                    f"{rate * window_s:,.0f}",
                )
    if idle_s >= LEFT_BEHIND_AFTER_S and not state.replicas_behind:
        brokers = sorted({*limits.leader_rates, *limits.follower_rates})
        left = [f"brokers {', '.join(map(str, brokers))}"] if brokers else []
        left += [f"topics {', '.join(state.lists_left[:5])}"] if state.lists_left else []
        if left:
            yield Finding(
                LEFT_BEHIND,
                f"a throttle is left at {' and '.join(left)}, and nothing is behind: end the move with "
                "kafka-reassign-partitions --verify, or delete the configs",
            )


def _band(
    side: str, broker: int, rate: float, incoming: float, network: float | None, replication_factor: float
) -> Iterator[Finding]:
    name = f"broker {broker}: its {side}'s throttle of {rate:,.0f} B/s"
    if rate <= incoming:
        yield Finding(
            SAFE_BAND,
            f"{name} is not above what producers write to it ({incoming:,.0f} B/s): what it moves is never "
            "caught up",
        )
    elif network is not None and rate >= network - incoming / replication_factor:
        yield Finding(
            SAFE_BAND,
            f"{name} leaves producers no room: it must be below "
            f"{network - incoming / replication_factor:,.0f} B/s (network {network:,.0f} − "
            f"{incoming:,.0f} / {replication_factor:g})",
        )
