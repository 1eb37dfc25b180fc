"""The answers to CreateTopics, DeleteTopics and CreatePartitions: topics refused here put in; what became of
the others read while they pass.

An answer carries its throttle_time_ms, then the number of topics, then the topics, in no order that counts.
So refused ones go in front of the broker's own, and only the answer's head is made anew, however long the
rest is (a topic created brings its 40 configs). Knows no quota.
Source: {CreateTopics,DeleteTopics,CreatePartitions}Response.json 4.3.1; KIP-599.

    CreateTopics      [name, id (v7), error int16, message nullable, partitions int32 (v5), replication int16,
                      [config, value nullable, read-only, source int8, sensitive] nullable]
    DeleteTopics      [name (v6 nullable), id (v6), error int16, message nullable (v5)]
    CreatePartitions  [name, error int16, message nullable]
    all begin with throttle_time_ms int32; v5, v4, v2 and above: compact, each level closed by tags
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sluice.protocol.apis import ApiKey, ErrorCode
from sluice.protocol.codec.wire import encode_varint
from sluice.protocol.errors import MalformedFrame
from sluice.protocol.headers import SIZE_BYTES, response_body
from sluice.protocol.mutations.requests import BY_TOPIC_ID, NO_ID, array_head, is_flexible
from sluice.protocol.primitives import (
    INT16,
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

_CREATED_WITH_ID: Final = 7
_CREATED_WITH_CONFIGS: Final = 5
_DELETED_WITH_MESSAGE: Final = 5
_MAX_TOPIC_BYTES: Final = 1024 * 1024
"""a topic's part of an answer; larger is none"""
_UNKNOWN: Final = b"\xff" * 6  # partitions −1, replication −1


@dataclass(frozen=True, slots=True)
class TopicResult:
    """What became of one topic."""

    name: str | None
    topic_id: bytes
    """NO_ID: not told"""
    error_code: int
    partitions: int | None
    """that it was created with, if the answer tells"""


def refusals(
    api_key: int, version: int, topics: Iterable[tuple[str | None, bytes]], message: str | None
) -> bytes:
    """The part of an answer that says THROTTLING_QUOTA_EXCEEDED of each (name, id)."""
    flexible = is_flexible(api_key, version)
    error = INT16.pack(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
    out = bytearray()
    for name, topic_id in topics:
        out += _text(name, flexible=flexible)
        if api_key == ApiKey.CREATE_TOPICS:
            out += (topic_id if version >= _CREATED_WITH_ID else b"") + error
            out += _text(message, flexible=flexible)
            if version >= _CREATED_WITH_CONFIGS:
                out += _UNKNOWN + array_head(0, flexible=True)
        elif api_key == ApiKey.DELETE_TOPICS:
            out += (topic_id if version >= BY_TOPIC_ID else b"") + error
            if version >= _DELETED_WITH_MESSAGE:
                out += _text(message, flexible=flexible)
        else:
            out += error + _text(message, flexible=flexible)
        if flexible:
            out.append(0)
    return bytes(out)


def refusing_answer(
    api_key: int, version: int, correlation_id: int, throttle_ms: int, count: int, refused: bytes
) -> bytes:
    """An answer of the `count` topics in `refused` alone, with its size."""
    flexible = is_flexible(api_key, version)
    tags = b"\0" if flexible else b""
    head = INT32.pack(correlation_id) + tags + INT32.pack(throttle_ms) + array_head(count, flexible=flexible)
    return INT32.pack(len(head) + len(refused) + len(tags)) + head + refused + tags


def with_refused(
    buf: bytearray,
    pos: int,
    end: int,
    api_key: int,
    version: int,
    throttle_ms: int,
    count: int,
    refused: bytes,
) -> tuple[int, bytes]:
    """The head of the broker's answer at `pos` made anew: (where its first topic begins, what stands before).

    `refused`: `count` topics that it is to have besides. `throttle_ms`: at least. Raises MalformedFrame.
    """
    flexible = is_flexible(api_key, version)
    body = response_body(buf, pos, end, api_key, version)
    theirs_ms, at = int32(buf, body, end)
    first, topics = _head_count(buf, at, end, flexible)
    if topics > int.from_bytes(buf[pos : pos + SIZE_BYTES], "big"):  # a topic takes more than a byte
        raise MalformedFrame(f"array of {topics} topics", api_key=api_key, api_version=version, offset=at)
    middle = bytes(buf[pos + SIZE_BYTES : body]) + INT32.pack(max(theirs_ms, throttle_ms))
    middle += array_head(topics + count, flexible=flexible) + refused
    size = int.from_bytes(buf[pos : pos + SIZE_BYTES], "big") + len(middle) - (first - pos - SIZE_BYTES)
    return first, INT32.pack(size) + middle


class ResultReader:
    """Reads the topics of one answer while it arrives; keeps no more than the part of one."""

    __slots__ = ("_api_key", "_kept", "_left", "_version")

    def __init__(self, api_key: int, version: int) -> None:
        self._api_key = api_key
        self._version = version
        self._left = -1  # topics; -1: the head has not come
        self._kept = b""

    def feed(self, data: bytes) -> list[TopicResult]:
        """`data`: what of the frame (its size included) follows what was given before.

        Raises MalformedFrame for what cannot become an answer.
        """
        buf = self._kept + data
        end = len(buf)
        pos = 0
        found: list[TopicResult] = []
        try:
            if self._left < 0:
                body = response_body(bytearray(buf), 0, end, self._api_key, self._version)
                pos, self._left = _head_count(
                    buf, skip(body, 4, end), end, is_flexible(self._api_key, self._version)
                )
            while self._left:
                result, pos = self._topic(buf, pos, end)
                found.append(result)
                self._left -= 1
        except MalformedFrame:  # most likely it is only cut off
            if end - pos > _MAX_TOPIC_BYTES:
                raise
        self._kept = buf[pos:] if self._left else b""
        return found

    @property
    def is_done(self) -> bool:
        """All topics have been read."""
        return self._left == 0

    def _topic(self, buf: bytes, pos: int, end: int) -> tuple[TopicResult, int]:
        api_key, version = self._api_key, self._version
        flexible = is_flexible(api_key, version)
        read_text = compact_nullable_string if flexible else nullable_string
        topic_id, partitions = NO_ID, None
        name, pos = read_text(buf, pos, end)
        if (api_key == ApiKey.CREATE_TOPICS and version >= _CREATED_WITH_ID) or (
            api_key == ApiKey.DELETE_TOPICS and version >= BY_TOPIC_ID
        ):
            topic_id, pos = buf[pos : pos + UUID_BYTES], skip(pos, UUID_BYTES, end)
        error_code, pos = int16(buf, pos, end)
        if api_key != ApiKey.DELETE_TOPICS or version >= _DELETED_WITH_MESSAGE:
            pos = _skip_text(buf, pos, end, flexible)
        if api_key == ApiKey.CREATE_TOPICS and version >= _CREATED_WITH_CONFIGS:
            told, pos = int32(buf, pos, end)
            partitions = told if told > 0 else None
            pos = _skip_configs(buf, skip(pos, 2, end), end)
        if flexible:
            pos = skip_tags(buf, pos, end)
        return TopicResult(name, topic_id, error_code, partitions), pos


def _skip_configs(buf: bytes, pos: int, end: int) -> int:
    count, pos = compact_array_count(buf, pos, end, 6)
    for _ in range(max(count, 0)):
        pos = skip_compact_nullable(buf, skip_compact_nullable(buf, pos, end), end)
        pos = skip_tags(buf, skip(pos, 3, end), end)
    return pos


def _head_count(buf: bytes | bytearray, pos: int, end: int, flexible: bool) -> tuple[int, int]:
    """(where the first topic begins, how many there are); they need not have arrived."""
    count, pos = (compact_array_count if flexible else array_count)(buf, pos, end, 0)
    return pos, max(count, 0)


def _skip_text(buf: bytes, pos: int, end: int, flexible: bool) -> int:
    return skip_compact_nullable(buf, pos, end) if flexible else skip_nullable_string(buf, pos, end)


def _text(text: str | None, *, flexible: bool) -> bytes:
    if text is None:
        return b"\0" if flexible else INT16.pack(NULL)
    raw = text.encode()
    return (encode_varint(len(raw) + 1) if flexible else INT16.pack(len(raw))) + raw
