"""CreateTopics, DeleteTopics, CreatePartitions: which topics a request changes, by how many partitions.

All three begin with an array of topics, so some of them are taken out by leaving out their bytes; nothing is
decoded and written anew. Knows no quota. The codec judges it in the tests.
Source: {CreateTopics,DeleteTopics,CreatePartitions}Request.json 4.3.1; KIP-599.

    CreateTopics      [name, partitions int32, replication int16, [index int32, [broker int32]],
                      [config, value nullable]], timeout int32, validate_only
    DeleteTopics      v1–v5 [name], v6 [name nullable, topic id]; timeout int32
    CreatePartitions  [name, count int32, [[broker int32]] nullable], timeout int32, validate_only
    v5, v4, v2 and above: compact, each level closed by tags
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from sluice.protocol._tables import FLEXIBLE
from sluice.protocol.apis import ApiKey
from sluice.protocol.codec.wire import encode_varint
from sluice.protocol.errors import FrameTooLarge, MalformedFrame
from sluice.protocol.headers import SIZE_BYTES
from sluice.protocol.parts import Parts
from sluice.protocol.primitives import (
    INT32,
    NULL,
    UUID_BYTES,
    array_count,
    compact_array_count,
    compact_nullable_string,
    int16,
    int32,
    nullable_string,
    skip,
    skip_compact_nullable,
    skip_nullable_string,
    skip_tags,
)

STRICT_SINCE: Final[Mapping[int, int]] = {
    ApiKey.CREATE_TOPICS: 6,
    ApiKey.DELETE_TOPICS: 5,
    ApiKey.CREATE_PARTITIONS: 3,
}
"""From these versions on clients know error 89, and what is above the quota is refused (KIP-599)."""
BY_TOPIC_ID: Final = 6
"""DeleteTopics from this version on"""
MAX_TOPICS: Final = 10_000
"""Most topics of a request: a controller writes no more records for one either (MAX_RECORDS_PER_USER_OP)."""
MAX_PARTITIONS: Final = 10_000
"""Most partitions that a controller makes for a request (MAX_PARTITIONS_PER_BATCH)."""
NO_ID: Final = bytes(UUID_BYTES)
BROKERS_DEFAULT: Final = -1
"""as a topic's number of partitions"""
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")

TopicKey: TypeAlias = str | bytes
"""a topic's name, or its id"""


@dataclass(frozen=True, slots=True)
class TopicMutation:
    """What is asked of one topic."""

    start: int
    """where its bytes begin in the request's frame"""
    stop: int
    name: str | None
    topic_id: bytes
    """NO_ID: it is named"""
    partitions: int
    """CreateTopics: to create, or BROKERS_DEFAULT. CreatePartitions: to have in the end. DeleteTopics: 0"""
    is_sound: bool
    """False: a broker will refuse it whatever else is so, and change nothing"""
    assigned: int | None = None
    """CreatePartitions: for how many new partitions the brokers are named; None: that is left to Kafka"""

    @property
    def key(self) -> TopicKey:
        """By what the broker is to find it."""
        return self.topic_id if self.name is None else self.name


@dataclass(frozen=True, slots=True)
class MutationRequest:
    """A whole request. Offsets are from the beginning of its frame, size included."""

    api_key: int
    version: int
    frame: bytes
    count_at: int
    """where the number of topics stands"""
    topics: tuple[TopicMutation, ...]
    topics_end: int
    validate_only: bool
    """nothing will be changed"""

    @property
    def is_strict(self) -> bool:
        """What is above the quota is refused, not delayed."""
        return self.version >= STRICT_SINCE[self.api_key]

    def without(self, refused: Collection[TopicMutation]) -> bytes:
        """The frame with all topics but these, which must be among `topics`."""
        count = len(self.topics) - len(refused)
        head = array_head(count, flexible=is_flexible(self.api_key, self.version))
        parts = [self.frame[SIZE_BYTES : self.count_at], head]
        start = self.topics[0].start if self.topics else self.topics_end
        for topic in sorted(refused, key=lambda one: one.start):
            parts.append(self.frame[start : topic.start])
            start = topic.stop
        parts.append(self.frame[start:])
        return INT32.pack(sum(map(len, parts))) + b"".join(parts)


def is_flexible(api_key: int, version: int) -> bool:
    """Strings and arrays are compact, and tags follow."""
    return version >= FLEXIBLE[api_key]


def read_mutations(frame: bytes, body: int, api_key: int, version: int) -> MutationRequest:
    """Read a whole request, size included, whose body begins at `body`.

    Takes about 5 µs a topic. Raises MalformedFrame if the bytes contradict the layout, FrameTooLarge for more
    topics than a controller takes, MalformedFrame for more than MAX_PARTS assignments, configs and tags.
    """
    flexible = is_flexible(api_key, version)
    end = len(frame)
    count, pos = _array(frame, body, end, flexible, 1)
    if count > MAX_TOPICS:
        raise FrameTooLarge(f"{count} topics in one request, the limit is {MAX_TOPICS}")
    topics: list[TopicMutation] = []
    parts = Parts("assignments, configs and tags")
    for _ in range(max(count, 0)):
        start = pos
        name, topic_id, partitions, is_sound, assigned = None, NO_ID, 0, True, None
        if api_key == ApiKey.DELETE_TOPICS:
            name, pos = _name(frame, pos, end, flexible)
            if version >= BY_TOPIC_ID:
                topic_id, pos = frame[pos : pos + UUID_BYTES], skip(pos, UUID_BYTES, end)
                pos = parts.skip_tags(frame, pos, end)
                is_sound = (name is None) != (topic_id == NO_ID)
        elif api_key == ApiKey.CREATE_TOPICS:
            name, pos = _name(frame, pos, end, flexible)
            partitions, pos = int32(frame, pos, end)
            replication, pos = int16(frame, pos, end)
            by_hand, pos = _assigned(frame, pos, end, flexible, parts)
            pos = _skip_configs(frame, pos, end, flexible, parts)
            if flexible:
                pos = parts.skip_tags(frame, pos, end)
            if by_hand:
                is_sound = partitions == replication == BROKERS_DEFAULT
                partitions = by_hand
            else:
                is_sound = _is_number(partitions) and _is_number(replication)
            is_sound = is_sound and partitions <= MAX_PARTITIONS and _is_name(name)
        else:
            name, pos = _name(frame, pos, end, flexible)
            partitions, pos = int32(frame, pos, end)
            assigned, pos = _newly_assigned(frame, pos, end, flexible, parts)
            if flexible:
                pos = parts.skip_tags(frame, pos, end)
            is_sound = partitions > 0
        topics.append(TopicMutation(start, pos, name, topic_id, partitions, is_sound, assigned))
    topics_end = pos
    pos = skip(pos, 4, end)  # timeout
    validate_only = False
    if api_key != ApiKey.DELETE_TOPICS:
        validate_only = frame[pos : pos + 1] not in {b"", b"\0"}
        pos = skip(pos, 1, end)
    if flexible:
        pos = skip_tags(frame, pos, end)
    if pos != end:
        raise MalformedFrame(f"{end - pos} bytes behind the end of the request", offset=pos)
    sound = _without_duplicates(topics)
    return MutationRequest(api_key, version, frame, body, sound, topics_end, validate_only)


def _without_duplicates(topics: list[TopicMutation]) -> tuple[TopicMutation, ...]:
    """A topic that comes twice is refused twice: then neither counts (ControllerApis)."""
    times = Counter(topic.key for topic in topics)
    if len(times) == len(topics):
        return tuple(topics)
    return tuple(topic if times[topic.key] == 1 else replace(topic, is_sound=False) for topic in topics)


def _is_number(value: int) -> bool:
    return value > 0 or value == BROKERS_DEFAULT


def _is_name(name: str | None) -> bool:
    """As Kafka's Topic.validate has it."""
    return name is not None and _NAME.fullmatch(name) is not None and name not in {".", ".."}


def _assigned(frame: bytes, pos: int, end: int, flexible: bool, parts: Parts) -> tuple[int, int]:
    """How many partitions are assigned by hand."""
    count, pos = _array(frame, pos, end, flexible, 5)
    parts.add(count, pos)
    for _ in range(max(count, 0)):
        pos = _skip_brokers(frame, skip(pos, 4, end), end, flexible)
        if flexible:
            pos = parts.skip_tags(frame, pos, end)
    return max(count, 0), pos


def _newly_assigned(frame: bytes, pos: int, end: int, flexible: bool, parts: Parts) -> tuple[int | None, int]:
    """For how many partitions CreatePartitions names the brokers; None: it leaves that to Kafka."""
    count, pos = _array(frame, pos, end, flexible, 1)
    parts.add(count, pos)
    for _ in range(max(count, 0)):
        pos = _skip_brokers(frame, pos, end, flexible)
        if flexible:
            pos = parts.skip_tags(frame, pos, end)
    return None if count == NULL else count, pos


def _skip_brokers(frame: bytes, pos: int, end: int, flexible: bool) -> int:
    count, pos = _array(frame, pos, end, flexible, 4)
    return pos + 4 * max(count, 0)


def _skip_configs(frame: bytes, pos: int, end: int, flexible: bool, parts: Parts) -> int:
    count, pos = _array(frame, pos, end, flexible, 2)
    parts.add(count, pos)
    for _ in range(max(count, 0)):
        if flexible:
            pos = skip_compact_nullable(frame, skip_compact_nullable(frame, pos, end), end)
            pos = parts.skip_tags(frame, pos, end)
        else:
            pos = skip_nullable_string(frame, skip_nullable_string(frame, pos, end), end)
    return pos


def _name(frame: bytes, pos: int, end: int, flexible: bool) -> tuple[str | None, int]:
    return compact_nullable_string(frame, pos, end) if flexible else nullable_string(frame, pos, end)


def _array(frame: bytes, pos: int, end: int, flexible: bool, least_bytes: int) -> tuple[int, int]:
    count = compact_array_count if flexible else array_count
    return count(frame, pos, end, least_bytes)


def array_head(count: int, *, flexible: bool) -> bytes:
    """The number of elements, as it stands before them."""
    return encode_varint(count + 1) if flexible else INT32.pack(count)
