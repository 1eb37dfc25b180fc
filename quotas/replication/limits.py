"""Which replicas are throttled and at what rates: Kafka's four settings, checked, as values.

    leader.replication.throttled.rate      bytes/s that a broker's followers may take of it, catching up
    follower.replication.throttled.rate    bytes/s that a broker may take of its leaders
    leader.replication.throttled.replicas    of a topic: `partition:broker,…` or `*`; the brokers are leaders
    follower.replication.throttled.replicas  the same; the brokers are followers

A follower's rate is shared by the leaders that it fetches from: each leader's proxy sees its own part alone.
Source: KIP-73; ReplicationQuotaManager, ThrottledReplicaListValidator of 4.3.1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
RATE_KEYS: Final = (LEADER_RATE, FOLLOWER_RATE)
REPLICAS_KEYS: Final = (LEADER_REPLICAS, FOLLOWER_REPLICAS)
ALL: Final = "*"
_LONG_MAX: Final = 2**63 - 1
_PAIR: Final = re.compile(r"([0-9]+):([0-9]+)")
_INT32_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """The throttled replicas of one topic, on one side."""

    pairs: frozenset[tuple[int, int]] = frozenset()
    """(partition, broker)"""
    all: bool = False

    def has(self, partition: int, broker: int) -> bool:
        """Whether this broker's replica of the partition is throttled."""
        return self.all or (partition, broker) in self.pairs

    @property
    def is_empty(self) -> bool:
        """Whether no replica is throttled."""
        return not (self.all or self.pairs)


NONE_THROTTLED: Final = ThrottledReplicas()


def parse_replicas(key: str, value: object) -> ThrottledReplicas:
    """The value of a `…throttled.replicas`. Raises ValueError that says what it must be.

    A rate in the place of the list is the misprint of KIP-73's own examples; a broker takes such a text for
    its own settings without a word, and throttles nothing.
    """
    text = str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else None
    wanted = f"must be {ALL!r} or partition:broker,… (as 0:1,0:2)"
    if text is None:
        raise ValueError(f"{key} {wanted}, not {value!r}")
    if text == ALL:
        return ThrottledReplicas(all=True)
    if text.isdecimal():
        raise ValueError(f"{key} {wanted}, not a number ({text}): a rate is set with {_rate_key(key)}")
    pairs = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        found = _PAIR.fullmatch(part)
        if found is None:
            hint = f" (did you mean {part.replace('-', ':')}?)" if re.fullmatch("[0-9]+-[0-9]+", part) else ""
            raise ValueError(f"{key} {wanted}, not {part!r}{hint}")
        partition, broker = int(found[1]), int(found[2])
        if max(partition, broker) > _INT32_MAX:
            raise ValueError(f"{key} {wanted}; {part!r} has a number above {_INT32_MAX}")
        pairs.add((partition, broker))
    return ThrottledReplicas(frozenset(pairs))


def _rate_key(key: str) -> str:
    return LEADER_RATE if key == LEADER_REPLICAS else FOLLOWER_RATE


def parse_rate(key: str, value: object) -> float | None:
    """Bytes per second; None: no limit, Kafka's Long.MAX_VALUE. Raises ValueError."""
    try:
        if isinstance(value, bool) or (isinstance(value, float) and value != int(value)):
            raise ValueError
        rate = int(value) if isinstance(value, str | int | float) else int(str(value))
    except (ValueError, OverflowError):
        raise ValueError(f"{key} must be a whole number of bytes per second, not {value!r}") from None
    if not 0 <= rate <= _LONG_MAX:
        raise ValueError(f"{key} must lie between 0 and {_LONG_MAX}, is {rate}")
    return None if rate == _LONG_MAX else float(max(rate, 1))


@dataclass(frozen=True, slots=True)
class ReplicationLimits:
    """All that is set at a moment. Compared by value: equal ones change nothing."""

    leader_rates: Mapping[int, float] = field(default_factory=dict)
    """broker → bytes/s; a broker that is not here has no limit"""
    follower_rates: Mapping[int, float] = field(default_factory=dict)
    leader_replicas: Mapping[str, ThrottledReplicas] = field(default_factory=dict)
    """topic → its throttled replicas"""
    follower_replicas: Mapping[str, ThrottledReplicas] = field(default_factory=dict)
    leaders_of: Mapping[int, int] = field(default_factory=dict)
    """follower → from how many leaders it catches up on throttled partitions"""

    def follower_share(self, follower: int) -> float:
        """Bytes/s that one leader may send it, of `follower_rates`. Raises KeyError for one without a limit.

        An equal part for each leader: 30 MB/s from three are 10 MB/s each. What a leader with less to send
        leaves over is not given to the others, so the sum is at most the rate, and below it while leaders
        have unequal work; while the number of leaders changes, it can be (old / new) times the rate until the
        next look.
        """
        return self.follower_rates[follower] / max(1, self.leaders_of.get(follower, 1))

    @property
    def is_off(self) -> bool:
        """Whether nothing is limited."""
        return not (
            (self.leader_rates and self.leader_replicas) or (self.follower_rates and self.follower_replicas)
        )


NO_REPLICATION_LIMITS: Final = ReplicationLimits()
