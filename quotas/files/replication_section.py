"""The section `replication:` of a quota file: replication throttles that are kept there, not in the cluster.

    replication:
      brokers:
        - id: 1                                # or <default>, for all that are not named
          leader.replication.throttled.rate: 5000000
          follower.replication.throttled.rate: 5000000
      topics:
        - name: orders
          leader.replication.throttled.replicas: "0:1,1:1"
          follower.replication.throttled.replicas: "*"

The keys and what they mean are Kafka's (replication/limits.py); every error has its line. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sluice.quotas.files.config_error import number_meant, shown, unknown_key_message
from sluice.quotas.files.yaml_lines import YamlPath, YamlValue
from sluice.quotas.replication.limits import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    RATE_KEYS,
    REPLICAS_KEYS,
    ReplicationLimits,
    ThrottledReplicas,
    parse_rate,
    parse_replicas,
)

REPLICATION_KEY: Final = "replication"
ALL_BROKERS: Final = "<default>"
SECTION_KEYS: Final = ("brokers", "topics")

_Problem = Callable[[YamlPath, str], None]


@dataclass(frozen=True, slots=True)
class ReplicationSection:
    """What the section says; `None` stands for all brokers that are not named."""

    rates: Mapping[str, Mapping[int | None, float]] = field(default_factory=dict)
    """key → broker → bytes/s"""
    replicas: Mapping[str, Mapping[str, ThrottledReplicas]] = field(default_factory=dict)
    """key → topic → its throttled replicas"""

    @property
    def is_empty(self) -> bool:
        """Nobody has a rate."""
        return not any(self.rates.values())

    def limits(self, brokers: Iterable[int], leaders_of: Mapping[int, int]) -> ReplicationLimits:
        """In a cluster of these brokers. `leaders_of`: as in ReplicationLimits."""
        ids = tuple(brokers)

        def of(key: str) -> dict[int, float]:
            rates = self.rates.get(key, {})
            found = {broker: rates.get(broker, rates.get(None)) for broker in ids}
            return {broker: rate for broker, rate in found.items() if rate is not None}

        return ReplicationLimits(
            of(LEADER_RATE),
            of(FOLLOWER_RATE),
            self.replicas.get(LEADER_REPLICAS, {}),
            self.replicas.get(FOLLOWER_REPLICAS, {}),
            leaders_of,
        )


def rate_meant(value: object) -> str:
    """What is meant by the value of a rate that is refused, as number_meant; empty for a whole number."""
    try:
        int(str(value))
    except ValueError:
        return number_meant(value, "bytes")
    return ""


def read_replication(top: YamlValue, problem: _Problem) -> ReplicationSection:
    """The section in the document `top`, empty if there is none; what is wrong is told to `problem`."""
    if not isinstance(top, dict) or REPLICATION_KEY not in top:
        return ReplicationSection()
    section = top[REPLICATION_KEY]
    if not isinstance(section, dict):
        problem(
            (REPLICATION_KEY,), f"must be a mapping with {' and '.join(SECTION_KEYS)}, is {shown(section)}"
        )
        return ReplicationSection()
    for key in section:
        if key not in SECTION_KEYS:
            problem((REPLICATION_KEY, key), unknown_key_message(key, SECTION_KEYS))
    rates: dict[str, dict[int | None, float]] = {key: {} for key in RATE_KEYS}
    replicas: dict[str, dict[str, ThrottledReplicas]] = {key: {} for key in REPLICAS_KEYS}
    for at, item in _items(section, "brokers", "id", RATE_KEYS, problem):
        _read_broker(at, item, rates, problem)
    for at, item in _items(section, "topics", "name", REPLICAS_KEYS, problem):
        _read_topic(at, item, replicas, problem)
    return ReplicationSection(rates, replicas)


def _items(
    section: dict[str, YamlValue], part: str, name: str, keys: tuple[str, ...], problem: _Problem
) -> Iterable[tuple[YamlPath, dict[str, Any]]]:
    items = section.get(part, [])
    if not isinstance(items, list):
        problem((REPLICATION_KEY, part), f"must be a list (each begins with `- {name}:`), is {shown(items)}")
        return
    for index, item in enumerate(items):
        at: YamlPath = (REPLICATION_KEY, part, index)
        if not isinstance(item, dict) or name not in item:
            problem(at, f"must be a mapping with `{name}:`, is {shown(item)}")
            continue
        for key in item:
            if key not in {name, *keys}:
                problem((*at, key), unknown_key_message(key, (name, *keys)))
        if not any(key in item for key in keys):
            problem(at, f"sets nothing; give {' or '.join(keys)}")
        yield at, item


def _read_broker(
    at: YamlPath, item: dict[str, Any], rates: dict[str, dict[int | None, float]], problem: _Problem
) -> None:
    broker = item["id"]
    if broker != ALL_BROKERS and (isinstance(broker, bool) or not isinstance(broker, int) or broker < 0):
        problem((*at, "id"), f"must be a broker's id or {ALL_BROKERS}, is {shown(broker)}")
        return
    broker_id = None if broker == ALL_BROKERS else int(broker)
    for key in RATE_KEYS:
        if key not in item:
            continue
        try:
            rate = parse_rate(key, item[key])
        except ValueError as error:
            problem((*at, key), f"{error}{rate_meant(item[key])}")
            continue
        if broker_id in rates[key]:
            problem(at, f"broker {broker} has a rate already; put them together")
        elif rate is not None:
            rates[key][broker_id] = rate


def _read_topic(
    at: YamlPath, item: dict[str, Any], replicas: dict[str, dict[str, ThrottledReplicas]], problem: _Problem
) -> None:
    topic = item["name"]
    if not isinstance(topic, str) or not topic:
        problem((*at, "name"), f"must be a topic's name, is {shown(topic)}")
        return
    for key in REPLICAS_KEYS:
        if key not in item:
            continue
        try:
            found = parse_replicas(key, item[key])
        except ValueError as error:
            problem((*at, key), str(error))
            continue
        if topic in replicas[key]:
            problem(at, f"topic {topic} is named already; put them together")
        elif not found.is_empty:
            replicas[key][topic] = found
