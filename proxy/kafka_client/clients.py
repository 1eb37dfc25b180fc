"""aiokafka's clients of the quota topic: their settings; the topic itself, made if it is missing.

Directly to the brokers, not through this proxy: `bootstrap` names a listener of theirs that no proxy stands
before.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Mapping, Sequence
from functools import partial
from time import time
from typing import Any, Final
from uuid import UUID

import aiokafka.client
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.metadata import MetadataRequest as AiokafkaMetadata
from kafka.protocol.admin import CreateTopicsRequest, DescribeConfigsRequest, IncrementalAlterConfigsRequest
from kafka.protocol.metadata import MetadataRequest

from sluice.protocol.apis import ErrorCode
from sluice.proxy.config.quotas import QuotaTopicSaslOptions, TopicOptions
from sluice.proxy.kafka_client.call import call
from sluice.proxy.listener.login.credential_entries import Credentials, PasswordCredentials
from sluice.proxy.listener.login.credentials import CredentialsFile
from sluice.proxy.listener.security import upstream_tls
from sluice.proxy.listener.tls.context import ClientTls
from sluice.quotas.files.config_error import ConfigError, Problem, Problems

_SET: Final = 0
_TOPIC: Final = 2
"""type of a config resource"""
_NO_UUID: Final = UUID(int=0)
_WITH_TOPIC_IDS: Final = 10
"""the first version of Metadata"""
_TOMBSTONES_MS: Final = 7 * 24 * 3_600_000
"""How long a removed quota can be read as such: a proxy cut off for longer reads the topic anew anyway."""
COMPACT: Final = "compact"
CONFIGS: Final = {
    "cleanup.policy": COMPACT,
    "delete.retention.ms": str(_TOMBSTONES_MS),
    # Else the broker's: as the records are small, it would only cost.
    "compression.type": "producer",
}

_SEEN_AFTER_S: Final = (0.0, 0.02, 0.04, 0.08, 0.16, 0.3, 0.6, 0.8, 1.0, 1.0, 1.0)
"""pauses before each look for a topic that was made"""
_NO_SERVICE: Final = "has no `service:` with a password"


class _NeverMakes(AiokafkaMetadata):  # type: ignore[misc]
    """A question for topics that makes none: else a broker makes one that has just been deleted of its own
    accord (auto.create.topics.enable), with its own num.partitions and cleanup.policy, before we do."""

    def __init__(self, topics: list[str] | None = None) -> None:
        super().__init__(topics, allow_auto_topic_creation=False)


# aiokafka has no setting for it, and its consumers and producers make their clients themselves.
aiokafka.client.MetadataRequest = _NeverMakes


class TopicRefused(Exception):
    """The topic is there and cannot be used, or cannot be made."""


class ClusterAccess:
    """The way to the brokers. Its files are read when it is made, and again for each new connection."""

    def __init__(self, options: TopicOptions) -> None:
        """Raises ConfigError for a file that cannot be used."""
        self._options = options
        self._credentials: CredentialsFile | None = None
        self._tls: ClientTls | None = None
        problems = Problems()
        if options.sasl is not None:
            self._credentials = problems.tried(partial(_credentials, options.sasl))
        if options.has_tls:
            self._tls = problems.tried(partial(upstream_tls, options.tls))
        problems.refuse()
        # Its lines would come ten times a second while no broker can be reached; ours say what is the matter.
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)

    @property
    def tls(self) -> ssl.SSLContext | None:
        """Towards the brokers; None: they do not speak TLS."""
        return None if self._tls is None else self._tls.context

    @property
    def login(self) -> Credentials | None:
        """The proxy's own; None: the brokers want none."""
        return None if self._credentials is None else self._credentials.service

    def settings(self) -> dict[str, Any]:
        """The settings of every client, as they are now. Blocks as long as the file system does."""
        options = self._options
        settings: dict[str, Any] = {
            "bootstrap_servers": list(options.bootstrap),
            "client_id": "sluice-quotas",
            "request_timeout_ms": int(options.request_timeout_s * 1000),
            "metadata_max_age_ms": 10_000,
            "security_protocol": options.security_protocol,
        }
        if self._tls is not None:
            self._tls.reload_if_changed(time())
            settings["ssl_context"] = self._tls.context
        if self._credentials is not None and options.sasl is not None:
            self._credentials.reload_if_changed(time())
            service = self._credentials.service
            if not isinstance(service, PasswordCredentials):
                raise TopicRefused(f"{options.sasl.credentials_file} {_NO_SERVICE}")
            settings |= {
                "sasl_mechanism": options.sasl.mechanism,
                "sasl_plain_username": service.username,
                "sasl_plain_password": service.password.get_secret_value(),
            }
        return settings


def _credentials(sasl: QuotaTopicSaslOptions) -> CredentialsFile:
    file = CredentialsFile(sasl.credentials_file, sasl.mechanism, share_service=True)
    file.load(time())
    if file.service is None:
        raise ConfigError([Problem(_NO_SERVICE, source=str(sasl.credentials_file))])
    return file


async def topic_id(client: AIOKafkaClient, name: str) -> bytes | None:
    """The topic's 16 bytes; None: there is no such topic.

    Raises TopicRefused if it has not one partition, or the broker does not tell; KafkaError, OSError.
    """
    topic = await topic_metadata(client, name)
    if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return None
    if topic.error_code != ErrorCode.NONE and not topic.partitions:
        raise TopicRefused(f"Metadata of {name}: error {topic.error_code}")
    if len(topic.partitions) != 1:
        raise TopicRefused(f"{name} has {len(topic.partitions)} partitions; it must have one")
    return topic.topic_id.bytes if topic.version >= _WITH_TOPIC_IDS else b""


async def topic_metadata(client: AIOKafkaClient, name: str) -> Any:
    """A topic as Metadata has it; it is not made by being asked for. Raises KafkaError, OSError,
    ProtocolError."""
    asked = MetadataRequest.MetadataRequestTopic(topic_id=_NO_UUID, name=name)
    answer = await call(client, MetadataRequest(topics=[asked], allow_auto_topic_creation=False))
    (topic,) = answer.topics
    return topic


async def topic_names(client: AIOKafkaClient, ids: Sequence[UUID]) -> dict[UUID, str | None]:
    """Topics' names; None: there is one, and who asks may not know its name. Of an id that is missing the
    broker knows no topic. Raises KafkaError, OSError, ProtocolError."""
    asked = [MetadataRequest.MetadataRequestTopic(topic_id=each, name=None) for each in ids]
    answer = await call(client, MetadataRequest(topics=asked, allow_auto_topic_creation=False))
    return {
        topic.topic_id: topic.name or None
        for topic in answer.topics
        if topic.name or topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    }


async def create_topic(
    client: AIOKafkaClient,
    name: str,
    partitions: int,
    replicas: int,
    configs: Mapping[str, str],
    timeout_s: float,
) -> None:
    """Make it, unless it is there. Raises TopicRefused; KafkaError, OSError, ProtocolError."""
    topic = CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[],
        configs=[
            CreateTopicsRequest.CreatableTopic.CreatableTopicConfig(name=key, value=value)
            for key, value in configs.items()
        ],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=int(timeout_s * 1000), validate_only=False)
    (made,) = (await call(client, request)).topics
    if made.error_code not in {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}:
        raise TopicRefused(f"{name} cannot be made: error {made.error_code}: {made.error_message}")


async def ensure_topic(client: AIOKafkaClient, options: TopicOptions) -> bytes:
    """The topic's id, after it has been made if it was missing. Raises as `topic_id`."""
    found = await topic_id(client, options.name)
    if found is not None:
        return found
    await create_topic(
        client, options.name, 1, options.replication_factor, CONFIGS, options.request_timeout_s
    )
    return await _id_once_made(client, options.name)


async def _id_once_made(client: AIOKafkaClient, name: str) -> bytes:
    """The controller made it; the broker that is asked knows it some moments later. Raises as `topic_id`."""
    for pause_s in _SEEN_AFTER_S:
        await asyncio.sleep(pause_s)
        found = await topic_id(client, name)
        if found is not None:
            return found
    raise TopicRefused(
        f"{name} has been made, and the broker does not know it after {sum(_SEEN_AFTER_S):g} s"
    )


async def cleanup_policy(client: AIOKafkaClient, name: str) -> str | None:
    """The topic's cleanup.policy. None: who asks may not know, and has to believe that it is `compact`."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=_TOPIC, resource_name=name, configuration_keys=["cleanup.policy"]
    )
    answer = await call(client, DescribeConfigsRequest(resources=[resource]))
    for result in answer.results:
        for config in result.configs:
            return str(config.value)
    return None


async def make_compacted(client: AIOKafkaClient, name: str) -> None:
    """Make a topic compacted in which nothing is yet: a broker makes one of its own accord when another
    client asks for one that has just been deleted (auto.create.topics.enable). Raises TopicRefused if that
    may not be."""
    resource_type = IncrementalAlterConfigsRequest.AlterConfigsResource
    configs = [
        resource_type.AlterableConfig(name=key, config_operation=_SET, value=value)
        for key, value in CONFIGS.items()
    ]
    resource = resource_type(resource_type=_TOPIC, resource_name=name, configs=configs)
    answer = await call(client, IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
    (result,) = answer.responses
    if result.error_code != ErrorCode.NONE:
        raise TopicRefused(f"{name} cannot be made compacted: {result.error_message}")
