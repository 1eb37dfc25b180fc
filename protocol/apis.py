"""The registry of Kafka's APIs and error codes: numbers, classes, and the versions that may be offered.

Turns what was generated from Kafka's jar (_tables.py) and what our hand-written readers know (READABLE) into
OFFERED, the versions that clients are told of and may use. Knows no frame. Source: ApiKeys, Errors 4.3.1.

An IntEnum member compares more slowly than a plain int (CONTRIBUTING.md): what stands on the way of every
frame uses the plain constants and sets of this module, all else the enums.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum, auto
from typing import Final, TypeAlias

from sluice.protocol._tables import KIND_WALK, THROTTLE, VERSIONS

Range: TypeAlias = tuple[int, int]
"""(first, last) version; empty if first > last"""
Runs: TypeAlias = tuple[tuple[int, int, int, int], ...]


class ApiKey(IntEnum):
    """Every API of the generated tables, those that Kafka 4.0 removed too; a test compares the two."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


class ErrorCode(IntEnum):
    """The error codes that Sluice reads or answers; Kafka has more."""

    UNKNOWN_SERVER_ERROR = -1
    """the broker, or the controller, failed; what it had done by then may stay"""
    NONE = 0
    UNKNOWN_TOPIC_OR_PARTITION = 3
    REQUEST_TIMED_OUT = 7
    """what was asked for may have been done, or may yet be"""
    COORDINATOR_LOAD_IN_PROGRESS = 14
    NOT_ENOUGH_REPLICAS = 19
    """after this one every client that was tried sends the same batch again (wire-semantics 3)"""
    TOPIC_AUTHORIZATION_FAILED = 29
    CLUSTER_AUTHORIZATION_FAILED = 31
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44
    CONCURRENT_TRANSACTIONS = 51
    SASL_AUTHENTICATION_FAILED = 58
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    MEMBER_ID_REQUIRED = 79
    THROTTLING_QUOTA_EXCEEDED = 89
    UNKNOWN_TOPIC_ID = 100
    """clients ask for Metadata, and send it again"""


class ApiClass(Enum):
    """What an API means to Sluice; one may be of several classes."""

    VERSIONS = auto()
    """its answer is capped"""
    PRODUCE = auto()
    FETCH = auto()
    AUTHENTICATION = auto()
    """carries a login; passes before the broker has said yes"""
    GROUP = auto()
    """makes a connection a group's, whose delays are bounded more tightly"""
    MEMBER = auto()
    """only a member of a group sends it, for as long as it is one"""
    MUTATION = auto()
    """controller_mutation_rate counts it (KIP-599)"""
    TRANSACTION = auto()
    """producer_ids_rate judges it (KIP-936)"""
    TRANSACTION_STATE = auto()
    """makes state for a producer without a Produce"""
    QUOTA = auto()
    """asks for quotas or changes them (KIP-546); the proxy may answer it"""
    TOKEN = auto()
    """its answer tells whose a delegation token is"""
    CLUSTER_ACTION = auto()
    """between brokers, exempt from request_percentage unless the broker refuses it. ApiKeys.clusterAction,
    without DescribeQuorum and UpdateFeatures, which administrators send and the broker throttles"""
    KIP_124_EXEMPT = auto()
    """those of the class above that KIP-124 names: Kafka 4.0 removed them, an older broker sends them"""
    BETWEEN_NODES = auto()
    """no client sends it, and its answer names brokers' or controllers' addresses (listener CONTROLLER)"""
    OWN_TOPIC_HARMLESS = auto()
    """neither reads, writes nor makes the proxy's own topic, whatever topic it names"""
    PLAIN = auto()
    """none of these: it passes, and nothing but its size counts"""


_K = ApiKey
CLASSES: Final[Mapping[ApiClass, frozenset[int]]] = {
    api_class: frozenset(map(int, keys))  # plain ints, for the hot path asks these sets
    for api_class, keys in {
        ApiClass.VERSIONS: {_K.API_VERSIONS},
        ApiClass.PRODUCE: {_K.PRODUCE},
        ApiClass.FETCH: {_K.FETCH, _K.SHARE_FETCH},
        ApiClass.AUTHENTICATION: {_K.SASL_HANDSHAKE, _K.SASL_AUTHENTICATE},
        ApiClass.GROUP: {
            _K.OFFSET_COMMIT, _K.OFFSET_FETCH, _K.JOIN_GROUP, _K.HEARTBEAT, _K.LEAVE_GROUP, _K.SYNC_GROUP,
            _K.CONSUMER_GROUP_HEARTBEAT, _K.CONSUMER_GROUP_DESCRIBE, _K.SHARE_GROUP_HEARTBEAT,
            _K.STREAMS_GROUP_HEARTBEAT, _K.STREAMS_GROUP_DESCRIBE,
        },
        ApiClass.MEMBER: {
            _K.JOIN_GROUP, _K.HEARTBEAT, _K.SYNC_GROUP,
            _K.CONSUMER_GROUP_HEARTBEAT, _K.SHARE_GROUP_HEARTBEAT, _K.STREAMS_GROUP_HEARTBEAT,
        },
        ApiClass.MUTATION: {_K.CREATE_TOPICS, _K.DELETE_TOPICS, _K.CREATE_PARTITIONS},
        ApiClass.TRANSACTION: {
            _K.INIT_PRODUCER_ID, _K.ADD_PARTITIONS_TO_TXN, _K.ADD_OFFSETS_TO_TXN, _K.END_TXN,
            _K.TXN_OFFSET_COMMIT,
        },
        ApiClass.TRANSACTION_STATE: {
            _K.ADD_PARTITIONS_TO_TXN, _K.ADD_OFFSETS_TO_TXN, _K.TXN_OFFSET_COMMIT,
        },
        ApiClass.QUOTA: {_K.DESCRIBE_CLIENT_QUOTAS, _K.ALTER_CLIENT_QUOTAS},
        ApiClass.TOKEN: {_K.CREATE_DELEGATION_TOKEN, _K.DESCRIBE_DELEGATION_TOKEN},
        ApiClass.CLUSTER_ACTION: {
            _K.LEADER_AND_ISR, _K.STOP_REPLICA, _K.UPDATE_METADATA, _K.CONTROLLED_SHUTDOWN,
            _K.WRITE_TXN_MARKERS, _K.VOTE, _K.BEGIN_QUORUM_EPOCH, _K.END_QUORUM_EPOCH, _K.ALTER_PARTITION,
            _K.ENVELOPE, _K.BROKER_REGISTRATION, _K.BROKER_HEARTBEAT, _K.ALLOCATE_PRODUCER_IDS,
            _K.INITIALIZE_SHARE_GROUP_STATE, _K.READ_SHARE_GROUP_STATE, _K.WRITE_SHARE_GROUP_STATE,
            _K.DELETE_SHARE_GROUP_STATE, _K.READ_SHARE_GROUP_STATE_SUMMARY,
        },
        ApiClass.KIP_124_EXEMPT: {
            _K.LEADER_AND_ISR, _K.STOP_REPLICA, _K.UPDATE_METADATA, _K.CONTROLLED_SHUTDOWN,
        },
        ApiClass.BETWEEN_NODES: {
            _K.VOTE, _K.BEGIN_QUORUM_EPOCH, _K.END_QUORUM_EPOCH, _K.FETCH_SNAPSHOT, _K.UPDATE_RAFT_VOTER,
        },
        ApiClass.OWN_TOPIC_HARMLESS: {
            _K.SASL_HANDSHAKE, _K.SASL_AUTHENTICATE, _K.API_VERSIONS, _K.OFFSET_FETCH, _K.FIND_COORDINATOR,
            _K.JOIN_GROUP, _K.SYNC_GROUP, _K.HEARTBEAT, _K.LEAVE_GROUP, _K.DESCRIBE_CONFIGS,
            _K.DESCRIBE_LOG_DIRS, _K.LIST_PARTITION_REASSIGNMENTS, _K.DESCRIBE_TOPIC_PARTITIONS,
        },
        ApiClass.PLAIN: {
            _K.METADATA, _K.LIST_OFFSETS, _K.DESCRIBE_GROUPS, _K.LIST_GROUPS, _K.DELETE_RECORDS,
            _K.OFFSET_FOR_LEADER_EPOCH, _K.DESCRIBE_ACLS, _K.CREATE_ACLS, _K.DELETE_ACLS,
            _K.ALTER_CONFIGS, _K.ALTER_REPLICA_LOG_DIRS, _K.RENEW_DELEGATION_TOKEN,
            _K.EXPIRE_DELEGATION_TOKEN, _K.DELETE_GROUPS, _K.ELECT_LEADERS, _K.INCREMENTAL_ALTER_CONFIGS,
            _K.ALTER_PARTITION_REASSIGNMENTS, _K.OFFSET_DELETE, _K.DESCRIBE_USER_SCRAM_CREDENTIALS,
            _K.ALTER_USER_SCRAM_CREDENTIALS, _K.DESCRIBE_QUORUM, _K.UPDATE_FEATURES, _K.DESCRIBE_CLUSTER,
            _K.DESCRIBE_PRODUCERS, _K.UNREGISTER_BROKER, _K.DESCRIBE_TRANSACTIONS, _K.LIST_TRANSACTIONS,
            _K.CONTROLLER_REGISTRATION, _K.GET_TELEMETRY_SUBSCRIPTIONS, _K.PUSH_TELEMETRY,
            _K.ASSIGN_REPLICAS_TO_DIRS, _K.LIST_CONFIG_RESOURCES, _K.SHARE_GROUP_DESCRIBE,
            _K.SHARE_ACKNOWLEDGE, _K.ADD_RAFT_VOTER, _K.REMOVE_RAFT_VOTER,
            _K.DESCRIBE_SHARE_GROUP_OFFSETS, _K.ALTER_SHARE_GROUP_OFFSETS, _K.DELETE_SHARE_GROUP_OFFSETS,
        },
    }.items()
}  # fmt: skip
"""Every API is in one class at least, so that somebody has looked at it before it passes as known."""

READABLE: Final[Mapping[int, Range]] = {
    _K.PRODUCE: (3, 13),  # produce, produce_refusal, throttle_field, addresses
    _K.FETCH: (4, 18),  # fetch, fetch_batches, addresses, replication
    _K.LIST_OFFSETS: (1, 11),  # own_topic/refusal
    _K.METADATA: (0, 13),  # addresses, usage of topic names, metadata_creation
    _K.FIND_COORDINATOR: (0, 6),  # addresses
    _K.JOIN_GROUP: (0, 9),  # groups
    _K.SASL_HANDSHAKE: (0, 1),  # sasl
    _K.API_VERSIONS: (0, 4),  # api_versions, throttle_field
    _K.CREATE_TOPICS: (2, 7),  # mutations, own_topic/refusal
    _K.DELETE_TOPICS: (1, 6),  # mutations, own_topic/refusal
    _K.DELETE_RECORDS: (0, 2),  # own_topic/refusal
    _K.INIT_PRODUCER_ID: (0, 5),  # transactions
    _K.ADD_PARTITIONS_TO_TXN: (0, 5),  # transactions
    _K.ADD_OFFSETS_TO_TXN: (0, 4),  # transactions
    _K.END_TXN: (0, 5),  # transactions
    _K.TXN_OFFSET_COMMIT: (0, 5),  # transactions
    _K.DESCRIBE_CONFIGS: (1, 4),  # addresses/config_values
    _K.ALTER_CONFIGS: (0, 2),  # own_topic/refusal
    _K.SASL_AUTHENTICATE: (0, 2),  # sasl
    _K.CREATE_PARTITIONS: (0, 3),  # mutations, own_topic/refusal
    _K.CREATE_DELEGATION_TOKEN: (1, 3),  # throttle_field, token_owners
    _K.DESCRIBE_DELEGATION_TOKEN: (1, 3),  # throttle_field, token_owners
    _K.INCREMENTAL_ALTER_CONFIGS: (0, 1),  # own_topic/refusal
    _K.DESCRIBE_CLIENT_QUOTAS: (0, 1),  # quota_store/wire
    _K.ALTER_CLIENT_QUOTAS: (0, 1),  # quota_store/wire
    _K.DESCRIBE_QUORUM: (0, 2),  # addresses/config_values
    _K.DESCRIBE_CLUSTER: (0, 2),  # addresses
    _K.CONSUMER_GROUP_HEARTBEAT: (0, 1),  # groups
    _K.SHARE_FETCH: (1, 2),  # fetch, addresses
    _K.SHARE_ACKNOWLEDGE: (1, 2),  # addresses
    _K.STREAMS_GROUP_HEARTBEAT: (0, 0),  # groups
}
"""The versions that hand-written readers (named beside them) know; a reader's tests take them from here.

An API without an entry has no reader: what is generated from the jar is all that it needs."""


def offered(versions: Mapping[int, Range], throttle: Mapping[int, Runs]) -> dict[int, Range]:
    """The versions of each API that clients may use: generated from the jar, and readable.

    Left out is an API that ApiKey does not name: it is as unknown as one that no table has. An API without a
    reader ends before the first version whose throttle_time_ms only a hand-written walk would find.
    """
    known = {int(key) for key in ApiKey}
    found: dict[int, Range] = {}
    for key, (first, last) in versions.items():
        if key not in known:
            continue
        readable = READABLE.get(key)
        if readable is not None:
            found[key] = max(first, readable[0]), min(last, readable[1])
        else:
            walks = [run[0] for run in throttle.get(key, ()) if run[2] == KIND_WALK]
            found[key] = first, min([last, *(walk - 1 for walk in walks)])
    return found


OFFERED: Final = offered(VERSIONS, THROTTLE)


def readable_versions(api_key: int) -> range:
    """Every version of READABLE, for tables that a reader makes and for tests."""
    first, last = READABLE[api_key]
    return range(first, last + 1)


FLEXIBLE_WHEN_REMOVED: Final[Mapping[int, int]] = {
    _K.LEADER_AND_ISR: 4,
    _K.STOP_REPLICA: 2,
    _K.UPDATE_METADATA: 6,
    _K.CONTROLLED_SHUTDOWN: 3,
}
"""First flexible version of KIP_124_EXEMPT, in no jar any more; each answer's body begins with its error code
(Kafka 3.9.2)."""

# Plain ints, for the hot path.
PRODUCE: Final = ApiKey.PRODUCE.value
FETCH: Final = ApiKey.FETCH.value
METADATA: Final = ApiKey.METADATA.value
JOIN_GROUP: Final = ApiKey.JOIN_GROUP.value
SASL_HANDSHAKE: Final = ApiKey.SASL_HANDSHAKE.value
API_VERSIONS: Final = ApiKey.API_VERSIONS.value
SASL_AUTHENTICATE: Final = ApiKey.SASL_AUTHENTICATE.value
DESCRIBE_CONFIGS: Final = ApiKey.DESCRIBE_CONFIGS.value
DESCRIBE_QUORUM: Final = ApiKey.DESCRIBE_QUORUM.value
SHARE_FETCH: Final = ApiKey.SHARE_FETCH.value
BETWEEN_NODES: Final = CLASSES[ApiClass.BETWEEN_NODES]
OWN_TOPIC_HARMLESS: Final = CLASSES[ApiClass.OWN_TOPIC_HARMLESS]
GROUP_APIS: Final = CLASSES[ApiClass.GROUP]
MEMBER_APIS: Final = CLASSES[ApiClass.MEMBER]
FETCHES: Final = CLASSES[ApiClass.FETCH]
AUTHENTICATION_APIS: Final = CLASSES[ApiClass.AUTHENTICATION]
MUTATION_APIS: Final = CLASSES[ApiClass.MUTATION]
TRANSACTION_APIS: Final = CLASSES[ApiClass.TRANSACTION]
PRODUCER_ID_APIS: Final = frozenset({PRODUCE}) | TRANSACTION_APIS | MEMBER_APIS
"""what producer_ids_rate looks at: Produces, transactions, and members of groups, whose ids cannot wait"""
STATE_MAKERS: Final = CLASSES[ApiClass.TRANSACTION_STATE]
QUOTA_APIS: Final = CLASSES[ApiClass.QUOTA]
TOKEN_APIS: Final = CLASSES[ApiClass.TOKEN]
CLUSTER_ACTIONS: Final = CLASSES[ApiClass.CLUSTER_ACTION]
