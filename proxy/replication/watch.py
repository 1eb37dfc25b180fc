"""Follows the cluster's replication throttles: brokers' rates, topics' replicas and ids, who is behind.

Asked of the brokers themselves, on connections of the proxy's own (DescribeConfigs, Metadata), so that
kafka-reassign-partitions and kafka-configs work unchanged. While nobody has a rate no topic is asked for.
While nobody can be asked, or one does not tell, what was last known stays in force.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any, Final

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError
from kafka.protocol.admin import DescribeConfigsRequest
from kafka.protocol.metadata import MetadataRequest

from sluice.protocol.apis import ErrorCode
from sluice.protocol.errors import ProtocolError
from sluice.protocol.replication.fetch_request import PartitionKey
from sluice.proxy.config.replication import ReplicationOptions
from sluice.proxy.kafka_client.call import call
from sluice.proxy.kafka_client.clients import ClusterAccess, TopicRefused
from sluice.proxy.replication.section_file import SectionFile
from sluice.proxy.runtime.error_words import words_of
from sluice.proxy.runtime.file_work import FileWork
from sluice.proxy.runtime.log import get_logger
from sluice.proxy.session.replication.checks import ClusterState, findings
from sluice.proxy.session.replication.followers import Replication
from sluice.quotas.files.quota_file import take_all
from sluice.quotas.files.replication_section import ReplicationSection
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.replication.limits import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    NONE_THROTTLED,
    RATE_KEYS,
    REPLICAS_KEYS,
    ReplicationLimits,
    ThrottledReplicas,
    parse_rate,
    parse_replicas,
)

_TOPIC: Final = 2
_BROKER: Final = 4
_TOPICS_AT_ONCE: Final = 500
_RESPONSE_MAX_BYTES: Final = "replica.fetch.response.max.bytes"
_STOP_S: Final = 5.0

_log = get_logger()


class ReplicationWatch:
    """Follows the throttles that concern one leader."""

    def __init__(
        self,
        options: ReplicationOptions,
        replication: Replication,
        quota_file: Path | None = None,
        check: Callable[[QuotaLimits], None] = take_all,
    ) -> None:
        """`quota_file`: where the throttles stand if their source is `quotas`; `check`: as SectionFile's.
        Raises ConfigError for a file that cannot be used."""
        in_file = quota_file if options.source == "quotas" else None
        self._section_file = None if in_file is None else SectionFile(in_file, check)
        self._settings_work: FileWork[dict[str, Any]] = FileWork()
        self._options = options
        self._replication = replication
        self._access = ClusterAccess(options.cluster())
        self.known = asyncio.Event()
        """the throttles have been read"""
        self._failing = False
        self._said: set[str] = set()  # misprints that the log has already
        self._busy_ms: float | None = None  # when somebody was last behind

    async def run(self) -> None:
        """Ask the cluster again and again, until cancelled."""
        while True:
            try:
                await self._follow()
            except (KafkaError, ProtocolError, TopicRefused, OSError, TimeoutError) as error:
                if not self._failing:  # once, until it goes again
                    _log.warning("replication_throttles_not_read", reason=words_of(error))
                self._failing = True
            await asyncio.sleep(self._options.refresh_interval_s)

    async def _follow(self) -> None:
        settings = await self._settings_work.run(self._access.settings)
        client = AIOKafkaClient(**{**settings, "client_id": "sluice-replication"})
        try:
            await client.bootstrap()
            while True:
                state = await self._read(client)
                if state.limits != self._replication.limits:
                    _log.info("replication_throttles", **in_words(state.limits))
                now_ms = monotonic() * 1000.0
                self._replication.move_ratio = state.move_ratio
                self._replication.in_sync_followers = state.in_sync_followers
                self._replication.apply(state.limits, state.topic_names, now_ms)
                self._check(state, now_ms)
                self.known.set()
                self._failing = False
                await asyncio.sleep(self._options.refresh_interval_s)
        finally:
            with suppress(KafkaError, OSError, TimeoutError):
                async with asyncio.timeout(_STOP_S):
                    await client.close()

    async def look_once(self) -> ClusterState:
        """For a command. Raises what `run` waits out."""
        settings = await asyncio.to_thread(self._access.settings)
        client = AIOKafkaClient(**{**settings, "client_id": "sluice-replication"})
        try:
            await client.bootstrap()
            return await self._read(client)
        finally:
            await client.close()

    def _check(self, state: ClusterState, now_ms: float) -> None:
        """Say once what is not as it should be, and again if it has been well in between."""
        limits = state.limits
        if (
            state.replicas_behind
            or self._busy_ms is None
            or not (limits.leader_rates or limits.follower_rates)
        ):
            self._busy_ms = now_ms
        replication, options = self._replication, self._options
        found = tuple(
            findings(
                state,
                window_s=options.window_num * options.window_size_s,
                idle_s=(now_ms - self._busy_ms) / 1000.0,
                in_bytes_per_s={replication.leader_id: replication.written_rate.measure(int(now_ms))},
                network_bytes_per_s=options.network_bytes_per_s,
            )
        )
        for finding in found:
            if finding.check not in {before.check for before in replication.findings}:
                _log.warning("replication_check", check=finding.check, reason=finding.message)
        replication.findings = found

    async def _read(self, client: AIOKafkaClient) -> ClusterState:
        brokers = (await call(client, MetadataRequest(topics=MetadataRequest.NO_TOPICS))).brokers
        largest: dict[int, int] = {}
        rates: dict[str, dict[int, float]] = {key: {} for key in RATE_KEYS}
        for broker in brokers:
            node_id = broker.node_id
            asked = [_resource(_BROKER, str(node_id), (*RATE_KEYS, _RESPONSE_MAX_BYTES))]
            for _, key, value in await self._describe(client, asked, node_id):
                if key == _RESPONSE_MAX_BYTES:
                    largest[node_id] = int(value)
                    continue
                with self._misprints(f"broker {node_id}"):
                    rate = parse_rate(key, value)
                    if rate is not None:
                        rates[key][node_id] = rate
        if self._section_file is not None:
            section = await self._section_file.read()
            return await self._state_of(section, client, [broker.node_id for broker in brokers], largest)
        if not any(rates.values()):
            return ClusterState(response_max_bytes=largest)
        topics = await self._topics(client)
        names = {topic.topic_id.bytes: topic.name for topic in topics if topic.name}
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
        return ClusterState(
            limits,
            names,
            move_ratio(topics, followers),
            sum(behind(topics, followers)),
            _replication_factor(topics),
            in_sync_followers(topics, self._options.leader_id),
            largest,
            tuple(sorted({*replicas[LEADER_REPLICAS], *followers})),
        )

    async def _topics(self, client: AIOKafkaClient) -> Any:
        return (await call(client, MetadataRequest(topics=MetadataRequest.ALL_TOPICS))).topics

    async def _state_of(
        self,
        section: ReplicationSection,
        client: AIOKafkaClient,
        brokers: list[int],
        largest: Mapping[int, int],
    ) -> ClusterState:
        """The throttles that the quota file sets, in the cluster as it is now."""
        if section.is_empty:
            return ClusterState(response_max_bytes=largest)
        topics = await self._topics(client)
        followers = section.replicas.get(FOLLOWER_REPLICAS, {})
        return ClusterState(
            section.limits(brokers, leaders_of(topics, followers)),
            {topic.topic_id.bytes: topic.name for topic in topics if topic.name},
            move_ratio(topics, followers),
            sum(behind(topics, followers)),
            _replication_factor(topics),
            in_sync_followers(topics, self._options.leader_id),
            largest,
            tuple(sorted({*section.replicas.get(LEADER_REPLICAS, {}), *followers})),
        )

    async def _describe(
        self, client: AIOKafkaClient, resources: list[Any], node_id: int | None
    ) -> list[tuple[str, str, str]]:
        """(resource's name, key, value) of what is set. Raises TopicRefused where the broker does not tell:
        that is not as if nothing were set."""
        answer = await call(client, DescribeConfigsRequest(resources=resources), node_id=node_id)
        if self._section_file is None:  # else it was asked for a check alone, and nothing depends on it
            _refuse_refusals(answer.results)
        return [
            (result.resource_name, config.name, config.value)
            for result in answer.results
            for config in result.configs
            if config.value is not None
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


def _resource(kind: int, name: str, keys: Iterable[str]) -> Any:
    resource_type = DescribeConfigsRequest.DescribeConfigsResource
    return resource_type(resource_type=kind, resource_name=name, configuration_keys=list(keys))


def _refuse_refusals(results: Iterable[Any]) -> None:
    for result in results:
        if result.error_code not in {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}:
            what = "broker" if result.resource_type == _BROKER else "topic"
            reason = f"error {result.error_code}: {result.error_message}"
            raise TopicRefused(f"DescribeConfigs of {what} {result.resource_name}: {reason}")


def _in_parts(names: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(names), _TOPICS_AT_ONCE):
        yield names[start : start + _TOPICS_AT_ONCE]


def leaders_of(topics: Iterable[Any], throttled: Mapping[str, ThrottledReplicas]) -> dict[int, int]:
    """Follower → from how many leaders it catches up on partitions that are throttled at it.

    `topics`: as Metadata has them.
    """
    found: dict[int, set[int]] = {}
    for topic in topics:
        replicas = throttled.get(topic.name)
        if replicas is None:
            continue
        for partition in topic.partitions:
            leader, index = partition.leader_id, partition.partition_index
            for node in set(partition.replica_nodes) - set(partition.isr_nodes):
                if leader >= 0 and replicas.has(index, node):
                    found.setdefault(node, set()).add(leader)
    return {follower: len(leaders) for follower, leaders in found.items()}


def behind(topics: Iterable[Any], throttled: Mapping[str, ThrottledReplicas]) -> list[int]:
    """For each partition, how many replicas are throttled and not in sync."""
    return [
        sum(
            throttled.get(topic.name, NONE_THROTTLED).has(partition.partition_index, node)
            for node in set(partition.replica_nodes) - set(partition.isr_nodes)
        )
        for topic in topics
        for partition in topic.partitions
    ]


def move_ratio(topics: Iterable[Any], throttled: Mapping[str, ThrottledReplicas]) -> float:
    """The share of all partitions that have a replica which is throttled and not in sync."""
    found = behind(topics, throttled)
    return sum(map(bool, found)) / max(1, len(found))


def _replication_factor(topics: Iterable[Any]) -> float:
    counts = [len(partition.replica_nodes) for topic in topics for partition in topic.partitions]
    with_followers = [count for count in counts if count > 1]
    return sum(with_followers) / len(with_followers) if with_followers else 1.0


def in_sync_followers(topics: Iterable[Any], leader_id: int) -> dict[PartitionKey, int]:
    """How many each partition has that is led by this broker, where there are any."""
    return {
        (topic.topic_id.bytes, partition.partition_index): len(partition.isr_nodes) - 1
        for topic in topics
        for partition in topic.partitions
        if partition.leader_id == leader_id and len(partition.isr_nodes) > 1
    }


def in_words(limits: ReplicationLimits) -> dict[str, Any]:
    """The limits as fields of a log line."""
    return {
        "leader_rates": dict(limits.leader_rates),
        "follower_rates": dict(limits.follower_rates),
        "leader_topics": len(limits.leader_replicas),
        "follower_topics": len(limits.follower_replicas),
    }
