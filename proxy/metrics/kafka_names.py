"""The names of the page /metrics/kafka: what a broker's quota MBeans become in jmx_exporter, in one table.

jmx_exporter names an attribute of `kafka.server:type=Produce,user=…,client-id=…` in its default format, with
`lowercaseOutputName: true`, `kafka_server_produce_byte_rate{user,client_id}`; a tag that is empty is left out
of the MBean's name, and so of the labels. docs/metrics.md comes from the table, kafka_page.py exports nothing
else. Sources: ClientQuotaManager, ClientRequestQuotaManager, ControllerMutationQuotaManager, JmxReporter,
Sanitizer of Apache Kafka; KIP-936, "New Broker Metrics"; what jmx_exporter 1.0.1 makes of Kafka 4.3.1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

_CLIENT: Final = ("user", "client-id")
_NO_CHARACTER_OF_A_NAME: Final = re.compile(r"[^a-zA-Z0-9:_]")


@dataclass(frozen=True, slots=True)
class KafkaName:
    """One attribute of one type of MBean."""

    group: str
    """the MBean's type: Kafka's quota type"""
    attribute: str
    tags: tuple[str, ...]
    unit: str
    help: str
    """one sentence"""
    differs: str = ""
    """from what the broker tells under this name; a sentence, or nothing"""

    @property
    def name(self) -> str:
        """The metric's name at Prometheus."""
        return prometheus_name(self.group, self.attribute)

    @property
    def labels(self) -> tuple[str, ...]:
        """Prometheus', in the order of the tags."""
        return tuple(map(label_name, self.tags))


def prometheus_name(group: str, attribute: str) -> str:
    """jmx_exporter's default format of an attribute of `kafka.server:type=<group>`, in lower case."""
    return _NO_CHARACTER_OF_A_NAME.sub("_", f"kafka_server_{group}_{attribute}").lower()


def label_name(tag: str) -> str:
    """The label that jmx_exporter makes of a tag."""
    return _NO_CHARACTER_OF_A_NAME.sub("_", tag)


def sanitized(user: str) -> str:
    """A user as the broker writes it into the tag: URL-encoded. A client id it leaves as it is.

    Source: Sanitizer.sanitize, DefaultQuotaCallback.quotaMetricTags.
    """
    return quote(user, safe="").replace("~", "%7E")


_WINDOWS: Final = "over pacing.window_num windows of pacing.window_size_s (11 of 1 s), idle ones included"
_MINUTE: Final = "over the last 30 to 60 s"
_BUCKET: Final = "The limit's whole delay, of which a request may have been told less."


def _throttle_time(group: str, tags: tuple[str, ...] = _CLIENT, differs: str = _BUCKET) -> KafkaName:
    text = f"Mean delay of the requests that were delayed, {_MINUTE}; NaN if none was."
    return KafkaName(group, "throttle-time", tags, "ms", text, differs)


def _queue_size(group: str) -> KafkaName:
    text = "Connections held or muted by this quota now."
    differs = "The broker's are all muted; here one counts once, under the quota that delayed it last."
    return KafkaName(group, "queue-size", (), "connections", text, differs)


_ROWS: Final = (
    KafkaName(
        "Produce", "byte-rate", _CLIENT, "bytes per second", f"Bytes of Produce requests, {_WINDOWS}.",
        "With the 4 bytes of the size in front of each request.",
    ),
    _throttle_time("Produce"),
    _queue_size("Produce"),
    KafkaName(
        "Fetch", "byte-rate", _CLIENT, "bytes per second",
        f"Bytes of Fetch and ShareFetch answers, {_WINDOWS}.",
        "Nothing is taken back: a delayed answer is delivered here, where the broker empties it.",
    ),
    _throttle_time("Fetch"),
    _queue_size("Fetch"),
    KafkaName(
        "Request", "request-time", _CLIENT, "percent of one broker thread",
        f"Time of broker threads, {_WINDOWS}.",
        "By the cost model, not measured; of clients that have a request_percentage alone.",
    ),
    _throttle_time("Request"),
    KafkaName(
        "Request", "exempt-request-time", (), "percent of one broker thread",
        f"Time of broker threads that no limit counts, {_MINUTE}.",
        "By the cost model, not measured; with that of clients whom an exempt rule covers.",
    ),
    _queue_size("Request"),
    KafkaName(
        "ControllerMutation", "mutation-rate", _CLIENT, "partitions per second",
        f"Partitions created and deleted, {_MINUTE}.",
        "Of clients that have a controller_mutation_rate alone.",
    ),
    KafkaName(
        "ControllerMutation", "tokens", _CLIENT, "partitions",
        "What may be created and deleted at once; below 0, throttling applies.",
        "Of the buckets behind `other`, the lowest.",
    ),
    _throttle_time("ControllerMutation"),
    _queue_size("ControllerMutation"),
    KafkaName(
        "LeaderReplication", "byte-rate", (), "bytes per second",
        "Records of throttled partitions that followers fetched of the broker behind, over "
        "replication.window_num windows of replication.window_size_s (11 of 1 s); idle ones before the "
        "first record do not count.",
        "Records alone, without what stands around them in the answers; 0 while there is no throttle.",
    ),
    KafkaName(
        "FollowerReplication", "byte-rate", (), "bytes per second",
        "The same of partitions throttled at the followers.",
        "What followers take of this leader; the broker's is what it takes itself of its leaders.",
    ),
    KafkaName(
        "ProducerIds", "rate", ("user",), "new producer ids per hour",
        "New producer ids, over producer_ids.window_num windows of producer_ids.window_size_s (11 of 1 h), "
        "idle ones included.",
        "No broker has it; per hour, as the limit is.",
    ),
    KafkaName(
        "ProducerIds", "tokens", ("user",), "new producer ids",
        "New ids that may come at once, less the requests that wait: below 0, throttling applies.",
        "No broker has it; of the users behind `other`, the lowest.",
    ),
    _throttle_time("ProducerIds", ("user",), "No broker has it."),
)  # fmt: skip
KAFKA_NAMES: Final = {row.name: row for row in _ROWS}
