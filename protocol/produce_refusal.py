"""A Produce request → the answer that refuses it: every partition of it gets the same error. Pure.

Written by hand, as the hot path is, because refusals come in storms; the codec judges it in the tests. Knows
no quota: error and text are given. Source: Produce{Request,Response}.json 4.3.1; wire-semantics 3.4.

    request   v0–v2  acks int16, timeoutMs int32, [name string, [index int32, records bytes]]
              v3–v8  transactionalId nullable string before these; v9–v12 the same, compact; v13 uuid for name
    answer    [name, [index int32, error int16, base_offset int64, log_append_time int64 (v2),
              log_start_offset int64 (v5), record_errors (v8), error_message (v8)]], throttle_time_ms (v1);
              v9–v13 compact, each level closed by tags
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from sluice.protocol.errors import MalformedFrame
from sluice.protocol.primitives import int16, int32, skip, skip_tags, uvarint
from sluice.protocol.produce import FIRST_FLEXIBLE, FIRST_TOPIC_ID, UUID_BYTES

_FIRST_THROTTLE: Final = 1
_FIRST_APPEND_TIME: Final = 2
_FIRST_TRANSACTIONAL: Final = 3
_FIRST_START_OFFSET: Final = 5
_FIRST_MESSAGE: Final = 8
MESSAGES: Final = 100
"""partitions that get the message, the first; the others have the error alone: each is larger than what asks
for it"""
_NO_OFFSET: Final = b"\xff" * 8  # -1
_INT32: Final = Struct(">i")


def refuse_produce(
    buf: bytearray,
    body: int,
    limit: int,
    version: int,
    correlation_id: int,
    *,
    error_code: int,
    message: str,
    throttle_ms: int,
) -> bytes:
    """The answer to the Produce request whose body begins at `body`, with its size.

    The request may still arrive, but the heads of all its partitions must stand before `limit`: raises
    MalformedFrame if they do not, or if a count or length is none. `message`: at most 32,767 bytes as UTF-8.
    Versions 0 to 13; older ones have no field for `throttle_ms` (v0) or `message` (to v7).
    """
    flexible = version >= FIRST_FLEXIBLE
    text = message.encode()
    result = error_code.to_bytes(2, "big", signed=True) + _NO_OFFSET
    if version >= _FIRST_APPEND_TIME:
        result += _NO_OFFSET
    if version >= _FIRST_START_OFFSET:
        result += _NO_OFFSET
    bare = result
    if version >= _FIRST_MESSAGE:
        if flexible:
            result += b"\x01" + _compact(len(text) + 1) + text + b"\0"
            bare += b"\x01\0\0"
        else:
            result += b"\0\0\0\0" + len(text).to_bytes(2, "big") + text
            bare += b"\0\0\0\0\xff\xff"
    answer = bytearray(_INT32.pack(correlation_id))
    if flexible:
        answer.append(0)  # tags of the header
    _answer_topics(buf, body, limit, version, result, bare, answer)
    if version >= _FIRST_THROTTLE:
        answer += _INT32.pack(throttle_ms)
    if flexible:
        answer.append(0)
    return _INT32.pack(len(answer)) + bytes(answer)


def _answer_topics(
    buf: bytearray, pos: int, limit: int, version: int, result: bytes, bare: bytes, answer: bytearray
) -> None:
    """Write the array of topics, each partition with `result`, and those after the first MESSAGES with
    `bare`."""
    flexible = version >= FIRST_FLEXIBLE
    if version >= _FIRST_TRANSACTIONAL:
        pos = _skip_string(buf, pos, limit, flexible)
    pos = skip(pos, 6, limit)  # acks, timeout
    topics, pos = _count(buf, pos, limit, flexible)
    answer += _count_bytes(topics, flexible)
    messages = MESSAGES
    for topic in range(topics):
        start = pos
        if version >= FIRST_TOPIC_ID:
            pos = skip(pos, UUID_BYTES, limit)
        else:
            pos = _skip_string(buf, pos, limit, flexible)
        answer += buf[start:pos]
        partitions, pos = _count(buf, pos, limit, flexible)
        answer += _count_bytes(partitions, flexible)
        for partition in range(partitions):
            start = pos
            pos = skip(pos, 4, limit)
            answer += buf[start:pos]
            answer += result if messages > 0 else bare
            messages -= 1
            if topic == topics - 1 and partition == partitions - 1:  # its records may still arrive
                answer += b"\0" * flexible
                return
            pos = _skip_records(buf, pos, limit, flexible)
        if flexible:
            answer.append(0)
            pos = skip_tags(buf, pos, limit)


def _skip_records(buf: bytearray, pos: int, limit: int, flexible: bool) -> int:
    """Behind a partition's records, and its tags."""
    if not flexible:
        length, pos = int32(buf, pos, limit)
        return skip(pos, max(length, 0), limit)
    length, pos = uvarint(buf, pos, limit)
    return skip_tags(buf, skip(pos, length - 1 if length else 0, limit), limit)


def _skip_string(buf: bytearray, pos: int, limit: int, flexible: bool) -> int:
    if flexible:
        length, pos = uvarint(buf, pos, limit)
        return skip(pos, length - 1 if length else 0, limit)
    length, pos = int16(buf, pos, limit)
    return skip(pos, max(length, 0), limit)


def _count(buf: bytearray, pos: int, limit: int, flexible: bool) -> tuple[int, int]:
    if flexible:
        length, pos = uvarint(buf, pos, limit)
        count = length - 1 if length else 0
    else:
        count, pos = int32(buf, pos, limit)
        count = max(count, 0)
    if count > limit - pos:  # an element takes more than a byte
        raise MalformedFrame(f"array of {count} in {limit - pos} bytes", offset=pos)
    return count, pos


def _count_bytes(count: int, flexible: bool) -> bytes:
    return _compact(count + 1) if flexible else _INT32.pack(count)


def _compact(value: int) -> bytes:
    """A length as an unsigned varint (compact encoding)."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
