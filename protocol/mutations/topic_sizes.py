"""The proxy's own question for topics' numbers of partitions, and its answer, read while it arrives.

Metadata v12, as addresses/metadata_poll.py: the first version that answers by topic id, in brokers from 3.1
on. An answer may be as large as the topics are, so no more of it is kept than one partition. Knows no
connection. Source: Metadata{Request,Response}.json; KafkaApis.handleTopicMetadataRequest (names and ids in
one question: the names are passed over, so they are asked for apart).

    answer    throttle int32, [node id int32, host, port int32, rack], cluster id, controller int32,
              [error int16, name nullable, id, internal bool, [error int16, index, leader, epoch int32,
              [replica int32], [in sync int32], [offline int32]], operations int32]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from sluice.protocol.apis import METADATA
from sluice.protocol.codec.codec import DecodedFrame, encode_frame
from sluice.protocol.codec.wire import Struct, Value, uuid_text
from sluice.protocol.errors import MalformedFrame
from sluice.protocol.mutations.requests import NO_ID, TopicKey
from sluice.protocol.primitives import (
    INT32,
    UUID_BYTES,
    compact_nullable_string,
    int32,
    skip,
    skip_compact_nullable,
    skip_tags,
    uvarint,
)

QUESTION_VERSION: Final = 12
_BEFORE_REPLICAS_BYTES: Final = 14
"""of a partition"""
_MAX_PART_BYTES: Final = 256 * 1024
"""a broker's, a topic's or a partition's part of the answer; larger is none"""


@dataclass(frozen=True, slots=True)
class TopicSize:
    """A topic that exists, and that the asker may see."""

    name: str | None
    topic_id: bytes
    partitions: int


def size_question(topics: Sequence[TopicKey], correlation_id: int, client_id: str) -> bytes:
    """A request, its size included, for these topics: all by name, or all by id."""
    asked: list[Value] = [
        {"topicId": uuid_text(topic), "name": None}
        if isinstance(topic, bytes)
        else {"topicId": uuid_text(NO_ID), "name": topic}
        for topic in topics
    ]
    header: Struct = {
        "requestApiKey": METADATA,
        "requestApiVersion": QUESTION_VERSION,
        "correlationId": correlation_id,
        "clientId": client_id,
    }
    body: Struct = {"topics": asked, "allowAutoTopicCreation": False}
    frame = encode_frame("request", METADATA, QUESTION_VERSION, DecodedFrame(header, body))
    return INT32.pack(len(frame)) + frame


class SizeReader:
    """Reads one answer to a `size_question`."""

    __slots__ = (
        "_kept",
        "_last_bytes",
        "_left",
        "_name",
        "_partitions",
        "_run",
        "_step",
        "_topic_id",
        "_topics",
        "sizes",
    )

    def __init__(self) -> None:
        self.sizes: list[TopicSize] = []
        self._kept = b""
        self._step: Callable[[bytes, int, int], int] | None = self._head
        self._left = 0  # brokers
        self._topics = 0
        self._partitions = 0
        self._last_bytes = 0  # the last partition's
        self._run = 1  # so many partitions are looked at in one go
        self._name: str | None = None
        self._topic_id = NO_ID

    def feed(self, data: bytes) -> None:
        """`data`: what of the answer, behind its size and correlation id, follows what was given before.

        Raises MalformedFrame for what cannot become an answer.
        """
        buf = self._kept + data
        pos, end = 0, len(buf)
        try:
            while self._step is not None:
                pos = self._step(buf, pos, end)
        except MalformedFrame:  # most likely it is only cut off
            if end - pos > _MAX_PART_BYTES:
                raise
        self._kept = buf[pos:]

    def finish(self) -> None:
        """The answer has ended. Raises MalformedFrame if it has not."""
        if self._step is not None or self._kept:
            raise MalformedFrame("not the answer to our Metadata", api_key=METADATA)

    # Each step reads one part that is whole, or raises and has changed nothing.

    def _head(self, buf: bytes, pos: int, end: int) -> int:
        pos = skip(skip_tags(buf, pos, end), 4, end)
        brokers, pos = uvarint(buf, pos, end)
        self._left = max(brokers - 1, 0)
        self._step = self._broker if self._left else self._cluster
        return pos

    def _broker(self, buf: bytes, pos: int, end: int) -> int:
        pos = skip_compact_nullable(buf, skip(pos, 4, end), end)
        pos = skip_tags(buf, skip_compact_nullable(buf, skip(pos, 4, end), end), end)
        self._left -= 1
        if not self._left:
            self._step = self._cluster
        return pos

    def _cluster(self, buf: bytes, pos: int, end: int) -> int:
        pos = skip(skip_compact_nullable(buf, pos, end), 4, end)
        topics, pos = uvarint(buf, pos, end)
        self._topics = max(topics - 1, 0)
        self._step = self._topic if self._topics else self._end
        return pos

    def _topic(self, buf: bytes, pos: int, end: int) -> int:
        name, pos = compact_nullable_string(buf, skip(pos, 2, end), end)
        topic_id, pos = buf[pos : pos + UUID_BYTES], skip(pos, UUID_BYTES, end)
        count, pos = uvarint(buf, skip(pos, 1, end), end)
        self._name, self._topic_id = name, topic_id
        self._left = self._partitions = max(count - 1, 0)
        self._step = self._partition if self._left else self._topic_end
        return pos

    def _partition(self, buf: bytes, pos: int, end: int) -> int:
        start = pos
        pos = skip(pos, _BEFORE_REPLICAS_BYTES, end)
        marks: list[int] = []
        brokers_bytes = 0
        for _ in range(3):
            marks.append(pos)
            count, pos = uvarint(buf, pos, end)
            list_bytes = 4 * max(count - 1, 0)
            brokers_bytes += list_bytes
            pos = skip(pos, list_bytes, end)
        marks.append(pos)
        pos = skip_tags(buf, pos, end)
        self._left -= 1
        size = pos - start
        if size == self._last_bytes == _BEFORE_REPLICAS_BYTES + len(marks) + brokers_bytes:
            alike = self._alike(buf, pos, end, size, marks)
            self._left -= alike
            pos += alike * size
        self._last_bytes = size
        if not self._left:
            self._step = self._topic_end
        return pos

    def _alike(self, buf: bytes, pos: int, end: int, size: int, marks: list[int]) -> int:
        """How many partitions from `pos` on are laid out as the one before, which has no tags: their counts
        of replicas, in sync and offline are a byte each, at `marks` in that one, and are compared in one go.

        Twice as many are looked at as were alike the last time, and one: so where they differ, no more is
        looked at than is read.
        """
        alike = min(self._left, (end - pos) // size, self._run)
        for mark in marks:
            if not alike:
                break
            column = buf[mark + size : pos + alike * size : size]
            alike -= len(column.lstrip(buf[mark : mark + 1]))
        self._run = 2 * alike + 1
        return alike

    def _topic_end(self, buf: bytes, pos: int, end: int) -> int:
        _, pos = int32(buf, pos, end)
        pos = skip_tags(buf, pos, end)
        if self._partitions:
            self.sizes.append(TopicSize(self._name, self._topic_id, self._partitions))
        self._topics -= 1
        self._step = self._topic if self._topics else self._end
        return pos

    def _end(self, buf: bytes, pos: int, end: int) -> int:
        pos = skip_tags(buf, pos, end)
        self._step = None
        return pos
