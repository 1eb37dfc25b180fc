"""The cluster's replication throttles as brokers tell them, who may refuse to."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import structlog

from sluice.protocol.apis import ApiKey, ErrorCode
from sluice.protocol.codec.wire import uuid_text
from sluice.proxy.config.replication import ReplicationOptions
from sluice.proxy.kafka_client.clients import TopicRefused
from sluice.proxy.replication.watch import ReplicationWatch
from sluice.proxy.session.replication.followers import Replication
from sluice.quotas.replication.limits import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
)
from testkit.frames.frames import answer, decoded
from testkit.peers.fault_broker import BrokerSide, FaultBroker
from testkit.proxy.local_proxy import until

pytestmark = pytest.mark.asyncio
TOPIC, BROKER = 2, 4
LEADER, FOLLOWER = 1, 2
VERSIONS = {ApiKey.METADATA: 12, ApiKey.API_VERSIONS: 3, ApiKey.DESCRIBE_CONFIGS: 4}
TOPIC_ID = bytes(range(16))
SET = {LEADER_RATE: "5000000", FOLLOWER_RATE: "5000000", LEADER_REPLICAS: "*", FOLLOWER_REPLICAS: "*"}


@dataclass
class Cluster:
    """Two brokers at one address, of which each has a throttle, and a topic that is moved."""

    port: int = 0
    refused: dict[int, ErrorCode] = field(default_factory=dict)
    """by the type of a resource: it is told with this error, without configs"""
    refusals: int = 0

    async def serve(self, client: BrokerSide) -> None:
        while True:
            request = await client.request()
            api_key, version = request.api_key, request.api_version
            asked = decoded("request", api_key, version, request.frame).body
            body = {
                ApiKey.API_VERSIONS: self._versions,
                ApiKey.METADATA: self._metadata,
                ApiKey.DESCRIBE_CONFIGS: self._configs,
            }[ApiKey(api_key)](asked)
            await client.send(answer(api_key, version, body, correlation_id=request.correlation_id))

    def _versions(self, _: Any) -> Any:
        return {
            "apiKeys": [
                {"apiKey": key, "minVersion": 0, "maxVersion": most} for key, most in VERSIONS.items()
            ]
        }

    def _metadata(self, asked: Any) -> Any:
        nodes = [LEADER, FOLLOWER]
        partitions = [
            {
                "partitionIndex": index,
                "leaderId": LEADER,
                "replicaNodes": nodes,
                "isrNodes": nodes[: index + 1],
            }
            for index in range(2)
        ]
        topic = {"name": "orders", "topicId": uuid_text(TOPIC_ID), "partitions": partitions}
        single = {"partitionIndex": 0, "leaderId": LEADER, "replicaNodes": [LEADER], "isrNodes": [LEADER]}
        logs = {"name": "logs", "topicId": uuid_text(TOPIC_ID[::-1]), "partitions": [single] * 50}
        return {
            "brokers": [{"nodeId": node, "host": "127.0.0.1", "port": self.port} for node in nodes],
            "topics": [] if asked["topics"] == [] else [topic, logs],
        }

    def _configs(self, asked: Any) -> Any:
        return {"results": [self._config(resource) for resource in asked["resources"]]}

    def _config(self, resource: Any) -> Any:
        error = self.refused.get(resource["resourceType"], ErrorCode.NONE)
        self.refusals += bool(error)
        keys = [key for key in resource["configurationKeys"] if key in SET and not error]
        return {
            "errorCode": int(error),
            "errorMessage": "not authorized" if error else None,
            "resourceType": resource["resourceType"],
            "resourceName": resource["resourceName"],
            "configs": [{"name": key, "value": SET[key]} for key in keys],
        }


def options(cluster: Cluster) -> ReplicationOptions:
    bootstrap = f"127.0.0.1:{cluster.port}"
    return ReplicationOptions(
        listener="replicas", bootstrap=(bootstrap,), leader_id=LEADER, refresh_interval_s=0.1
    )


def in_force(replication: Replication) -> tuple[object, ...]:
    leader = replication.leader_bucket
    rates = [bucket.rate_bytes_per_s for bucket in replication.follower_buckets.values()]
    is_throttled = bool(replication.buckets_of((TOPIC_ID, 0), FOLLOWER))
    return None if leader is None else leader.rate_bytes_per_s, rates, is_throttled


@pytest.mark.parametrize(
    ("kind", "error"),
    [(BROKER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED), (TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED)],
)
async def test_what_is_refused_leaves_the_throttles_that_were_there_and_is_told_once(
    kind: int, error: ErrorCode, log_lines: list[structlog.typing.EventDict]
) -> None:
    cluster, replication = Cluster(), Replication(LEADER)
    async with FaultBroker(cluster.serve) as broker:
        cluster.port = broker.port
        watch = ReplicationWatch(options(cluster), replication)
        run = asyncio.ensure_future(watch.run())
        try:
            await until(watch.known.is_set)
            before = in_force(replication)
            assert before == (5e6, [5e6, 5e6], True)
            cluster.refused = {kind: error}
            await until(lambda: cluster.refusals > 4)
            assert in_force(replication) == before
        finally:
            run.cancel()
            await asyncio.wait([run])
    (line,) = [line for line in log_lines if line["event"] == "replication_throttles_not_read"]
    assert "not authorized" in line["reason"]


async def test_what_is_refused_is_no_all_clear_for_a_command() -> None:
    cluster = Cluster(refused={BROKER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED})
    async with FaultBroker(cluster.serve) as broker:
        cluster.port = broker.port
        with pytest.raises(TopicRefused, match="broker 1: error 31: not authorized"):
            await ReplicationWatch(options(cluster), Replication(LEADER)).look_once()


async def test_a_topic_that_has_gone_meanwhile_has_no_throttle_and_the_others_have_theirs() -> None:
    cluster = Cluster(refused={TOPIC: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
    async with FaultBroker(cluster.serve) as broker:
        cluster.port = broker.port
        state = await ReplicationWatch(options(cluster), Replication(LEADER)).look_once()
    assert state.limits.leader_rates == {LEADER: 5e6, FOLLOWER: 5e6}
    assert not state.limits.leader_replicas


async def test_partitions_without_followers_are_no_part_of_what_is_known_of_replicas() -> None:
    cluster, replication = Cluster(), Replication(LEADER)
    async with FaultBroker(cluster.serve) as broker:
        cluster.port = broker.port
        watch = ReplicationWatch(options(cluster), replication)
        assert (await watch.look_once()).replication_factor == 2.0
        run = asyncio.ensure_future(watch.run())
        try:
            await until(watch.known.is_set)
            assert replication.in_sync_followers == {(TOPIC_ID, 1): 1}
        finally:
            run.cancel()
            await asyncio.wait([run])


async def test_throttles_of_the_quota_file_need_no_leave_of_the_brokers(tmp_path: Path) -> None:
    file = tmp_path / "quotas.yaml"
    file.write_text(f"quotas: []\nreplication:\n  brokers: [{{id: 1, {LEADER_RATE}: 9}}]\n")
    cluster = Cluster(refused={BROKER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED})
    async with FaultBroker(cluster.serve) as broker:
        cluster.port = broker.port
        asked = options(cluster).model_copy(update={"source": "quotas"})
        state = await ReplicationWatch(asked, Replication(LEADER), file).look_once()
    assert state.limits.leader_rates == {LEADER: 9.0}
