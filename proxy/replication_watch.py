"""Follows the cluster's replication throttles: brokers' rates, topics' replicas and ids, who is behind.

Asked of the brokers themselves, on connections of the proxy's own (DescribeConfigs, Metadata), so that
kafka-reassign-partitions and kafka-configs work unchanged. While nobody has a rate no topic is asked for.
While nobody can be asked, what was last known stays in force.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from time import monotonic
from typing import Any, Final

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError

from sluice.protocol.codec_wire import uuid_bytes
from sluice.protocol.errors import ProtocolError
from sluice.proxy.config_replication import ReplicationOptions
from sluice.proxy.kafka_call import call
from sluice.proxy.log import get_logger
from sluice.proxy.quota_topic_clients import ClusterAccess, TopicRefused
from sluice.proxy.replication import Replication
from sluice.quotas.replication_limits import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    NO_REPLICATION_LIMITS,
    NONE_THROTTLED,
    RATE_KEYS,
    REPLICAS_KEYS,
    ReplicationLimits,
    ThrottledReplicas,
    parse_rate,
    parse_replicas,
)

_METADATA: Final = 3
_DESCRIBE_CONFIGS: Final = 32
_TOPIC: Final = 2
_BROKER: Final = 4
_TOPICS_AT_ONCE: Final = 500
_STOP_S: Final = 5.0

_log = get_logger()


class ReplicationWatch:
    """Of one leader."""

    def __init__(self, options: ReplicationOptions, replication: Replication) -> None:
        """Raises ConfigError for a file that cannot be used."""
        self._options = options
        self._replication = replication
        self._access = ClusterAccess(options.cluster())
        self._failing = False
        self._said: set[str] = set()  # misprints that the log has already

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self._follow()
            except (KafkaError, ProtocolError, TopicRefused, OSError, TimeoutError) as error:
                if not self._failing:  # once, until it goes again
                    _log.warning("replication_throttles_not_read", reason=str(error) or type(error).__name__)
                self._failing = True
            await asyncio.sleep(self._options.refresh_interval_s)

    async def _follow(self) -> None:
        settings = await asyncio.to_thread(self._access.settings)
        client = AIOKafkaClient(**{**settings, "client_id": "sluice-replication"})
        try:
            await client.bootstrap()
            while True:
                limits, names, self._replication.move_ratio = await self._read(client)
                if limits != self._replication.limits:
                    _log.info("replication_throttles", **in_words(limits))
                self._replication.apply(limits, names, monotonic() * 1000.0)
                self._failing = False
                await asyncio.sleep(self._options.refresh_interval_s)
        finally:
            with suppress(KafkaError, OSError, TimeoutError):
                async with asyncio.timeout(_STOP_S):
                    await client.close()

    async def _read(
        self, client: AIOKafkaClient
    ) -> tuple[ReplicationLimits, Mapping[bytes, str], float | None]:
        brokers = (await call(client, _METADATA, {"topics": []}, max_version=12))["brokers"]
        rates: dict[str, dict[int, float]] = {key: {} for key in RATE_KEYS}
        for broker in brokers:
            node_id = broker["nodeId"]
            asked = [_resource(_BROKER, str(node_id), RATE_KEYS)]
            for _, key, value in await self._describe(client, asked, node_id):
                with self._misprints(f"broker {node_id}"):
                    rate = parse_rate(key, value)
                    if rate is not None:
                        rates[key][node_id] = rate
        if not any(rates.values()):
            return NO_REPLICATION_LIMITS, {}, None
        topics = (await call(client, _METADATA, {"topics": None}, max_version=12))["topics"]
        names = {uuid_bytes(topic["topicId"]): topic["name"] for topic in topics if topic["name"]}
        replicas: dict[str, dict[str, ThrottledReplicas]] = {key: {} for key in REPLICAS_KEYS}
        for some in _in_parts(sorted(names.values())):
            asked = [_resource(_TOPIC, name, REPLICAS_KEYS) for name in some]
            for name, key, value in await self._describe(client, asked, None):
                with self._misprints(f"topic {name}"):
                    found = parse_replicas(key, value)
                    if not found.is_empty:
                        replicas[key][name] = found
        followers = replicas[FOLLOWER_REPLICAS]
        limits = ReplicationLimits(
            rates[LEADER_RATE],
            rates[FOLLOWER_RATE],
            replicas[LEADER_REPLICAS],
            followers,
            leaders_of(topics, followers),
        )
        return limits, names, move_ratio(topics, followers)

    async def _describe(
        self, client: AIOKafkaClient, resources: list[Any], node_id: int | None
    ) -> list[tuple[str, str, str]]:
        """(resource's name, key, value) of what is set."""
        body: Any = {"resources": resources, "includeSynonyms": False, "includeDocumentation": False}
        answer = await call(client, _DESCRIBE_CONFIGS, body, max_version=4, node_id=node_id)
        return [
            (result["resourceName"], config["name"], config["value"])
            for result in answer["results"]
            for config in result["configs"]
            if config["value"] is not None
        ]

    def _misprints(self, whose: str) -> _Misprints:
        return _Misprints(whose, self._said)


class _Misprints:
    """A setting that is none is told once, and is not in force."""

    def __init__(self, whose: str, said: set[str]) -> None:
        self._whose = whose
        self._said = said

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        if not isinstance(error, ValueError):
            return False
        message = f"{self._whose}: {error}"
        if message not in self._said:
            self._said.add(message)
            _log.error("replication_throttle_refused", reason=message)
        return True


def _resource(kind: int, name: str, keys: Iterable[str]) -> dict[str, Any]:
    return {"resourceType": kind, "resourceName": name, "configurationKeys": list(keys)}


def _in_parts(names: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(names), _TOPICS_AT_ONCE):
        yield names[start : start + _TOPICS_AT_ONCE]


def leaders_of(topics: Iterable[Any], throttled: Mapping[str, ThrottledReplicas]) -> dict[int, int]:
    """Follower → from how many leaders it catches up on partitions that are throttled at it.

    `topics`: as Metadata has them.
    """
    found: dict[int, set[int]] = {}
    for topic in topics:
        replicas = throttled.get(topic["name"])
        if replicas is None:
            continue
        for partition in topic["partitions"]:
            leader, index = partition["leaderId"], partition["partitionIndex"]
            for node in set(partition["replicaNodes"]) - set(partition["isrNodes"]):
                if leader >= 0 and replicas.has(index, node):
                    found.setdefault(node, set()).add(leader)
    return {follower: len(leaders) for follower, leaders in found.items()}


def move_ratio(topics: Iterable[Any], throttled: Mapping[str, ThrottledReplicas]) -> float:
    """The share of all partitions that have a replica which is throttled and not in sync."""
    total = moving = 0
    for topic in topics:
        replicas = throttled.get(topic["name"], NONE_THROTTLED)
        for partition in topic["partitions"]:
            total += 1
            behind = set(partition["replicaNodes"]) - set(partition["isrNodes"])
            moving += any(replicas.has(partition["partitionIndex"], node) for node in behind)
    return moving / max(1, total)


def in_words(limits: ReplicationLimits) -> dict[str, Any]:
    """For the log."""
    return {
        "leader_rates": dict(limits.leader_rates),
        "follower_rates": dict(limits.follower_rates),
        "leader_topics": len(limits.leader_replicas),
        "follower_topics": len(limits.follower_replicas),
    }
