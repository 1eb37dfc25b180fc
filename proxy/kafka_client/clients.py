"""aiokafka's clients of the quota topic: their settings; the topic itself, made if it is missing.

Directly to the brokers, not through this proxy: `bootstrap` names a listener of theirs that no proxy stands
before.
"""

from __future__ import annotations

import logging
from time import time
from typing import Any, Final

from aiokafka.client import AIOKafkaClient

from sluice.protocol.apis import METADATA, ApiKey, ErrorCode
from sluice.protocol.codec.wire import uuid_bytes
from sluice.proxy.config.quotas import TopicOptions
from sluice.proxy.kafka_client.call import call
from sluice.proxy.listener.login.credential_entries import PasswordCredentials
from sluice.proxy.listener.login.credentials import CredentialsFile
from sluice.proxy.listener.tls.context import ClientTls

_SET: Final = 0
_TOPIC: Final = 2
"""type of a config resource"""
_TOMBSTONES_MS: Final = 7 * 24 * 3_600_000
"""How long a removed quota can be read as such: a proxy cut off for longer reads the topic anew anyway."""
COMPACT: Final = "compact"
CONFIGS: Final = {"cleanup.policy": COMPACT, "delete.retention.ms": str(_TOMBSTONES_MS)}


class TopicRefused(Exception):
    """The topic is there and cannot be used, or cannot be made."""


class ClusterAccess:
    """The way to the brokers. Its files are read when it is made, and again for each new connection."""

    def __init__(self, options: TopicOptions) -> None:
        """Raises ConfigError for a file that cannot be used."""
        self._options = options
        self._credentials: CredentialsFile | None = None
        self._tls: ClientTls | None = None
        if options.sasl is not None:
            sasl = options.sasl
            self._credentials = CredentialsFile(sasl.credentials_file, sasl.mechanism, share_service=True)
            self._credentials.load(time())
        if options.has_tls:
            tls = options.tls
            self._tls = ClientTls(
                ca_file=None if tls is None else tls.ca_file,
                certificate_file=None if tls is None else tls.certificate_file,
                key_file=None if tls is None else tls.key_file,
                verify_hostname=True if tls is None else tls.verify_hostname,
            )
            self._tls.load(time())
        # Its lines would come ten times a second while no broker can be reached; ours say what is the matter.
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)

    def settings(self) -> dict[str, Any]:
        """Of every client, as it is now. Blocks as long as the file system does."""
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
                raise TopicRefused(f"{options.sasl.credentials_file} has no `service:` with a password")
            settings |= {
                "sasl_mechanism": options.sasl.mechanism,
                "sasl_plain_username": service.username,
                "sasl_plain_password": service.password.get_secret_value(),
            }
        return settings


async def topic_id(client: AIOKafkaClient, name: str) -> bytes | None:
    """The topic's 16 bytes; None: there is no such topic.

    Raises TopicRefused if it has not one partition, or the broker does not tell; KafkaError, OSError.
    """
    body: Any = {
        "topics": [{"topicId": "AAAAAAAAAAAAAAAAAAAAAA", "name": name}],
        "allowAutoTopicCreation": False,
    }
    answer = await call(client, METADATA, body, max_version=12)
    (topic,) = answer["topics"]
    if topic["errorCode"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return None
    if topic["errorCode"] != ErrorCode.NONE and not topic["partitions"]:
        raise TopicRefused(f"Metadata of {name}: error {topic['errorCode']}")
    if len(topic["partitions"]) != 1:
        raise TopicRefused(f"{name} has {len(topic['partitions'])} partitions; it must have one")
    return uuid_bytes(topic["topicId"]) if "topicId" in topic else b""


async def ensure_topic(client: AIOKafkaClient, options: TopicOptions) -> bytes:
    """The topic's id, after it has been made if it was missing. Raises as `topic_id`."""
    found = await topic_id(client, options.name)
    if found is None:
        await _create(client, options)
        found = await topic_id(client, options.name)
        if found is None:
            raise TopicRefused(f"{options.name} has been made, and is not there yet")
    return found


async def _create(client: AIOKafkaClient, options: TopicOptions) -> None:
    topic: dict[str, Any] = {
        "name": options.name,
        "numPartitions": 1,
        "replicationFactor": options.replication_factor,
        "assignments": [],
        "configs": [{"name": name, "value": value} for name, value in CONFIGS.items()],
    }
    timeout_ms = int(options.request_timeout_s * 1000)
    body: Any = {"topics": [topic], "timeoutMs": timeout_ms, "validateOnly": False}
    answer = await call(client, ApiKey.CREATE_TOPICS, body, max_version=7)
    (made,) = answer["topics"]
    if made["errorCode"] not in {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}:
        raise TopicRefused(
            f"{options.name} cannot be made: error {made['errorCode']}: {made['errorMessage']}"
        )


async def cleanup_policy(client: AIOKafkaClient, name: str) -> str | None:
    """Of the topic. None: who asks may not know, and has to believe that it is `compact`."""
    resource: dict[str, Any] = {
        "resourceType": _TOPIC,
        "resourceName": name,
        "configurationKeys": ["cleanup.policy"],
    }
    answer = await call(client, ApiKey.DESCRIBE_CONFIGS, {"resources": [resource]}, max_version=4)
    for result in answer["results"]:
        for config in result["configs"]:
            return str(config["value"])
    return None


async def make_compacted(client: AIOKafkaClient, name: str) -> None:
    """Of a topic in which nothing is yet: a broker makes one of its own accord when a client of ours asks for
    one that has just been deleted (auto.create.topics.enable). Raises TopicRefused if that may not be."""
    configs = [{"name": key, "configOperation": _SET, "value": value} for key, value in CONFIGS.items()]
    body: Any = {"resources": [{"resourceType": _TOPIC, "resourceName": name, "configs": configs}]}
    answer = await call(client, ApiKey.INCREMENTAL_ALTER_CONFIGS, body, max_version=1)
    (result,) = answer["responses"]
    if result["errorCode"] != ErrorCode.NONE:
        raise TopicRefused(f"{name} cannot be made compacted: {result['errorMessage']}")
