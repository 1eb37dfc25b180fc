"""What is remembered of a request until it is answered, or until its turn comes.

The table of a connection is a list, a short one in nearly all (an empty deque has 0.7 kB): Kafka answers in
the order of the requests (one connection is one queue in the broker), so an answer can only belong to the
oldest entry. acks=0 requests are never in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias

from sluice.quotas.sensors.sensor import Sensor
from sluice.usage.records import Flow

MAX_IN_FLIGHT: Final = 2_000
"""Most requests in flight on one connection; beyond, no request is begun until half of them are answered.
A request of 14 bytes is remembered in 130, so that the few MB which lie in socket buffers before a slow
broker would become 50 of ours. Most clients have 5 in flight; librdkafka's default allows a million, which
wait for the same broker."""


class AnswerWork(IntEnum):
    """What is to be done with an answer before it goes on."""

    NONE = 0
    CHARGE = 1
    """Fetch, ShareFetch: its size is what the quota counts"""
    THROTTLE = 2
    """Produce whose charge was not paid when it was forwarded"""
    CAP_VERSIONS = 3
    HANDSHAKE = 4
    AUTHENTICATE = 5
    RAW_TOKEN = 6
    """behind SaslHandshake v0: a bare token without a header"""
    JOIN = 7
    """JoinGroup: whether the broker took its session timeout"""
    ADDRESSES = 8
    """of a gateway: brokers' addresses are rewritten, as in Fetch and Produce whatever else is done there"""
    CONFIGS = 9
    """of a gateway: DescribeConfigs of a broker"""
    QUORUM = 10
    """of a gateway: DescribeQuorum that tells listeners"""
    LOCAL = 11
    """never forwarded: its answer is the proxy's own (local_responses.py)"""
    CLUSTER_ACTION = 12
    """between brokers, of one that nobody has declared: exempt from request_percentage if its answer shows
    that the broker took it"""
    MUTATION = 13
    """CreateTopics, DeleteTopics, CreatePartitions under a quota: what became of each topic"""
    TOPIC_SIZES = 14
    """the proxy's own Metadata before one of these: nothing of its answer goes on"""
    NAMES = 15
    """Metadata, for the access log: topics' names by their ids"""
    REPLICA = 16
    """a follower's Fetch: looked through for what passes (session/replication/requests.py)"""
    DECLARED = 17
    """of a broker that `inter_broker` names, a request between brokers, or a follower's Fetch where
    replication is not throttled: charged to nobody, its answer not looked at"""
    TOKENS = 18
    """delegation tokens made or described: whose they are"""
    NO_RECORDS = 19
    """a Fetch for nothing, in the place of one that found no turn"""
    NEW_SESSION = 20
    """the same, and its session is ended: the client is told so"""
    HANDED_OUT = 21
    """a transaction's InitProducerId, or EndTxn, under a limit on producer ids: the id that it hands out"""


# Reaching an enum member through its class costs 40 ns each time.
NONE: Final = AnswerWork.NONE
CHARGE: Final = AnswerWork.CHARGE
THROTTLE: Final = AnswerWork.THROTTLE
CAP_VERSIONS: Final = AnswerWork.CAP_VERSIONS
RAW_TOKEN: Final = AnswerWork.RAW_TOKEN
JOIN: Final = AnswerWork.JOIN
ADDRESSES: Final = AnswerWork.ADDRESSES
CONFIGS: Final = AnswerWork.CONFIGS
QUORUM: Final = AnswerWork.QUORUM
LOCAL: Final = AnswerWork.LOCAL
CLUSTER_ACTION: Final = AnswerWork.CLUSTER_ACTION
MUTATION: Final = AnswerWork.MUTATION
TOPIC_SIZES: Final = AnswerWork.TOPIC_SIZES
NAMES: Final = AnswerWork.NAMES
REPLICA: Final = AnswerWork.REPLICA
DECLARED: Final = AnswerWork.DECLARED
TOKENS: Final = AnswerWork.TOKENS
NO_RECORDS: Final = AnswerWork.NO_RECORDS
NEW_SESSION: Final = AnswerWork.NEW_SESSION
HANDED_OUT: Final = AnswerWork.HANDED_OUT

AWAITED: Final = (CLUSTER_ACTION, TOKENS)
"""What takes long in an answer whose length its client chooses: nothing is begun behind such a request
before its answer. Of a broker's it costs nothing, for it has one at a time under way (Kafka's
InterBrokerSendThread)."""
NOT_CHARGED: Final = (ADDRESSES, CONFIGS, QUORUM, NAMES, CLUSTER_ACTION, REPLICA, DECLARED, TOPIC_SIZES)
"""Answers that nothing but request_percentage charges; what is to be done with them is done elsewhere."""


InFlight: TypeAlias = tuple[int, int, int, Flow, int, float, float, float, "Sensor | None", AnswerWork]
"""correlation_id, api_key, api_version, flow, request_bytes, forwarded_ms, held_ms, noted, sensor,
work.

`flow`: the connection may have another when the answer comes. `noted` (Produce): `clears_at_ms`, when its
charge is paid, bounded by the answer budget; ≤ forwarded_ms: at once. (JoinGroup): the session timeout asked
for. (Fetch): the bytes that are reserved for its answer. (EndTxn): the producer id. A tuple, because one is
made for every request: 60 ns."""


@dataclass(frozen=True, slots=True)
class Held:
    """A Produce that waits for its turn; its bytes are the first of those that the shell keeps."""

    correlation_id: int
    api_version: int
    request_bytes: int
    acks: int
    begun_ms: float
    clears_at_ms: float
    sensor: Sensor
    brings_ids: bool = False
    """producer ids were admitted with it, or its batches block others, which counts or ends once it goes"""
