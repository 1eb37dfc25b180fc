"""Which loads a calibration drives a broker with, and which mixes it then judges the costs by. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from random import Random
from typing import Final

from sluice.protocol.apis import API_VERSIONS, METADATA, ApiKey
from sluice.protocol.codec.wire import Struct, Value
from sluice.proxy.calibration.fit import Kind
from sluice.proxy.calibration.frames import compressors, fetch, produce, record_batch, request
from sluice.proxy.calibration.request_cost_file import CODECS

PARTITIONS: Final = 8
"""of the topic that is written to"""
FETCHED_BYTES: Final = (1_000, 8_000, 32_000, 100_000, 400_000, 1_000_000)
"""of the batches that are read: one topic each"""
FETCHED_IN_MIXES: Final = (3_000, 60_000, 250_000)
MANY_TOPICS: Final = 60
"""further ones, that Metadata tells of"""
_SHAPES: Final = (
    (1, 100),
    (1, 1_000),
    (20, 100),
    (100, 100),
    (1_000, 100),
    (16, 1_000),
    (60, 1_000),
    (4, 100_000),
)
"""(records, bytes of each) of the batches that are written"""
_COMPRESSED_SHAPES: Final = ((1, 1_000), (20, 100), (1_000, 100), (16, 1_000), (60, 1_000), (4, 100_000))


@dataclass(frozen=True, slots=True)
class Names:
    """The names of what was made in the cluster for this calibration."""

    written: str
    many: tuple[str, ...]
    group: str
    member: str
    generation: int

    def read(self, batch_bytes: int) -> str:
        """The topic with one batch of this size."""
        return f"{self.written}-read-{batch_bytes}"


@dataclass(frozen=True, slots=True)
class Load:
    """Requests that are all alike."""

    kind: Kind
    name: str
    frame_of: Callable[[str], bytes]
    """client id → the request"""
    batches: int = 0
    records: int = 0
    acks_all: bool = False


@dataclass(frozen=True, slots=True)
class Mix:
    """Loads at the same time, one connection each."""

    name: str
    loads: tuple[Load, ...]
    pause_s: float
    """between an answer and the next request of a connection"""


def values(count: int, size_bytes: int) -> list[bytes]:
    """Records that compress about as logs do: half words, half noise."""
    random = Random(count * size_bytes)  # noqa: S311  no secret is made of it
    words = [b"quota ", b"broker ", b"client ", b"request ", b"window "]
    found = []
    for _ in range(count):
        text = b"".join(random.choices(words, k=size_bytes // 14 + 1))[: size_bytes // 2]
        found.append(text + random.randbytes(size_bytes - len(text)))
    return found


def produce_load(
    names: Names, codec: str, count: int, size_bytes: int, *, acks: int = 1, partitions: int = 1
) -> Load:
    """`count` records of `size_bytes` for each of some partitions."""
    batch = record_batch(values(count, size_bytes), CODECS.index(codec), compressors()[codec])
    batches = dict.fromkeys(range(partitions), batch)
    acks_name = "all" if acks < 0 else str(acks)
    return Load(
        Kind("Produce", codec),
        f"Produce {codec} {partitions}×{count}×{size_bytes} B acks={acks_name}",
        lambda client_id: produce(client_id, names.written, batches, acks),
        partitions,
        partitions * count,
        acks < 0,
    )


def fetch_load(names: Names, batch_bytes: int) -> Load:
    """One batch of this size; 0: nothing, polled without a wait."""
    topic = names.read(batch_bytes or FETCHED_BYTES[0])
    offsets = {0: 0 if batch_bytes else 1}
    return Load(
        Kind("Fetch"), f"Fetch {batch_bytes} B", lambda client_id: fetch(client_id, topic, offsets, 2_000_000)
    )


def api_load(api: str, api_key: int, body: Struct, what: str = "") -> Load:
    """A load of any other request."""
    return Load(Kind(api), f"{api} {what}".strip(), lambda client_id: request(api_key, client_id, body))


def metadata_load(names: Names, topics: int) -> Load:
    """A load of Metadata requests that ask for so many topics."""
    asked: list[Value] = [{"name": name} for name in (names.written, *names.many)[:topics]]
    return api_load("Metadata", METADATA, {"topics": asked}, f"{topics} topics")


def commit_load(names: Names, partitions: int) -> Load:
    """A member commits an offset for each of some partitions."""
    committed: list[Value] = [
        {"partitionIndex": index, "committedOffset": 1, "committedMetadata": ""}
        for index in range(partitions)
    ]
    body: Struct = {
        "groupId": names.group,
        "generationIdOrMemberEpoch": names.generation,
        "memberId": names.member,
        "topics": [{"name": names.written, "partitions": committed}],
    }
    return api_load("OffsetCommit", ApiKey.OFFSET_COMMIT, body, f"{partitions} partitions")


def heartbeat_load(names: Names) -> Load:
    """A load of Heartbeats, from a member of a classic group."""
    body: Struct = {"groupId": names.group, "generationId": names.generation, "memberId": names.member}
    return api_load("Heartbeat", ApiKey.HEARTBEAT, body)


def offset_fetch_load(names: Names, partitions: int) -> Load:
    """What a group committed."""
    topics: list[Value] = [{"name": names.written, "partitionIndexes": list(range(partitions))}]
    groups: list[Value] = [{"groupId": names.group, "topics": topics}]
    return api_load("OffsetFetch", ApiKey.OFFSET_FETCH, {"groups": groups}, f"{partitions} partitions")


def list_offsets_load(names: Names, partitions: int) -> Load:
    """The end of each partition."""
    asked: list[Value] = [
        {"partitionIndex": index, "currentLeaderEpoch": -1, "timestamp": -1} for index in range(partitions)
    ]
    body: Struct = {"replicaId": -1, "topics": [{"name": names.written, "partitions": asked}]}
    return api_load("ListOffsets", ApiKey.LIST_OFFSETS, body, f"{partitions} partitions")


def loads(names: Names) -> list[Load]:
    """What the coefficients are fitted to."""
    found = [produce_load(names, "none", count, size) for count, size in _SHAPES]
    found += [produce_load(names, "none", 1, 1_000, partitions=partitions) for partitions in (3, PARTITIONS)]
    found.append(produce_load(names, "none", 16, 1_000, acks=-1))
    for codec, (count, size) in product(compressors(), _COMPRESSED_SHAPES):
        if codec != "none":
            found.append(produce_load(names, codec, count, size))
    found += [fetch_load(names, batch_bytes) for batch_bytes in (0, *FETCHED_BYTES)]
    found += [metadata_load(names, topics) for topics in (1, 10, MANY_TOPICS)]
    found += [commit_load(names, partitions) for partitions in (1, PARTITIONS)]
    found += [offset_fetch_load(names, partitions) for partitions in (1, PARTITIONS)]
    found += [list_offsets_load(names, partitions) for partitions in (1, PARTITIONS)]
    found.append(heartbeat_load(names))
    found += _others(names)
    return found


def _others(names: Names) -> list[Load]:
    config: Struct = {"resources": [{"resourceType": 2, "resourceName": names.written}]}
    idempotent: Struct = {"transactionalId": None, "transactionTimeoutMs": 60_000}
    software: Struct = {"clientSoftwareName": "sluice", "clientSoftwareVersion": "1"}
    return [
        api_load("ApiVersions", API_VERSIONS, software),
        api_load(
            "FindCoordinator", ApiKey.FIND_COORDINATOR, {"keyType": 0, "coordinatorKeys": [names.group]}
        ),
        api_load("DescribeGroups", ApiKey.DESCRIBE_GROUPS, {"groups": [names.group]}),
        api_load("ListGroups", ApiKey.LIST_GROUPS, {}),
        api_load("DescribeConfigs", ApiKey.DESCRIBE_CONFIGS, config),
        api_load("DescribeCluster", ApiKey.DESCRIBE_CLUSTER, {}),
        api_load("InitProducerId", ApiKey.INIT_PRODUCER_ID, idempotent),
    ]


def mixes(names: Names) -> list[Mix]:
    """What the coefficients are judged by: sizes that they were not fitted to, and several connections."""
    codecs = [codec for codec in ("lz4", "zstd", "snappy", "gzip") if codec in compressors()][:3]
    producers = (
        produce_load(names, "none", 5, 500),
        produce_load(names, "gzip", 50, 300),
        produce_load(names, codecs[0], 30, 700, acks=-1, partitions=2),
    )
    consumers = (
        fetch_load(names, 3_000),
        fetch_load(names, 60_000),
        heartbeat_load(names),
        commit_load(names, 3),
    )
    busy = (metadata_load(names, 30), fetch_load(names, 0), list_offsets_load(names, 3))
    everybody = (
        produce_load(names, "none", 40, 400, partitions=2),
        fetch_load(names, 250_000),
        metadata_load(names, 3),
        heartbeat_load(names),
        produce_load(names, codecs[-1], 10, 2_000),
    )
    parts: Sequence[tuple[str, tuple[Load, ...]]] = (
        ("producers", producers),
        ("consumers", consumers),
        ("polling", busy),
        ("all together", everybody),
    )
    return [
        Mix(f"{name}, {pace}", of_it, pause_s)
        for (name, of_it), (pace, pause_s) in product(parts, (("paced", 0.005), ("flat out", 0.0)))
    ]
