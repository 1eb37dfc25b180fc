"""Bounded readers of Kafka's primitive types over a shared buffer: offsets are absolute, nothing is copied.

Every reader takes `(buf, pos, end)`, looks at no byte at or behind `end`, and returns `(value, next_pos)`, or
only `next_pos` where it skips. Raises MalformedFrame, with `offset` absolute in `buf`, where a length or
count cannot fit in the bytes that are left. Knows no message. Source: Kafka protocol guide, "Protocol
Primitive Types"; KIP-482 (compact types, tagged fields); org.apache.kafka.common.utils.ByteUtils.
"""

from __future__ import annotations

import re
from struct import Struct
from typing import Final, TypeAlias

from sluice.protocol.errors import MalformedFrame

Buffer: TypeAlias = bytes | bytearray | memoryview

INT16: Final = Struct(">h")
INT32: Final = Struct(">i")
INT64: Final = Struct(">q")

UVARINT_MAX_BYTES: Final = 5
UUID_BYTES: Final = 16
NULL: Final = -1
"""The count of a null array."""
MAX_TAGS: Final = 100
"""of one section: two bytes buy a tenth of a microsecond, in which nobody else is served, and a request has
room for half a million. Kafka's own messages have four at most (ApiVersionsResponse)"""
_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


def uvarint(buf: Buffer, pos: int, end: int) -> tuple[int, int]:
    """An unsigned varint of at most five bytes and 32 bits.

    Needlessly long forms (0x80 0x00) are read as the broker reads them. A fifth byte with more than the four
    bits that 32 leave is refused: Java drops what is over, so that a length could be one for the broker and
    another for us.
    """
    if pos < end and (byte := buf[pos]) < 0x80:  # all but a few lengths and counts on real wires
        return byte, pos + 1
    value = shift = 0
    start, limit = pos, end if end - pos < UVARINT_MAX_BYTES else pos + UVARINT_MAX_BYTES
    while pos < limit:
        byte = buf[pos]
        pos += 1
        if byte < 0x80:
            if shift == 28 and byte > 0x0F:
                break
            return value | byte << shift, pos
        value |= (byte & 0x7F) << shift
        shift += 7
    fault = "of more than 32 bits" if pos - start == UVARINT_MAX_BYTES else "runs beyond its frame"
    raise MalformedFrame(f"varint {fault}", offset=start)


def skip(pos: int, length_bytes: int, end: int) -> int:
    """Skip `length_bytes` that must lie before `end`."""
    if length_bytes < 0 or length_bytes > end - pos:
        raise MalformedFrame(f"{length_bytes} bytes wanted, {max(end - pos, 0)} left", offset=pos)
    return pos + length_bytes


def int16(buf: Buffer, pos: int, end: int) -> tuple[int, int]:
    """A signed 16-bit integer."""
    after = skip(pos, 2, end)
    return INT16.unpack_from(buf, pos)[0], after


def int32(buf: Buffer, pos: int, end: int) -> tuple[int, int]:
    """A signed 32-bit integer."""
    after = skip(pos, 4, end)
    return INT32.unpack_from(buf, pos)[0], after


def int64(buf: Buffer, pos: int, end: int) -> tuple[int, int]:
    """A signed 64-bit integer."""
    after = skip(pos, 8, end)
    return INT64.unpack_from(buf, pos)[0], after


def text(buf: Buffer, start: int, stop: int) -> str:
    """The string at `buf[start:stop]`. Raises MalformedFrame if it is not UTF-8, without quoting it."""
    try:
        return str(buf[start:stop], "utf-8")
    except UnicodeDecodeError:
        pass  # raised outside: the exception chained here would carry the bytes, which may be a secret
    raise MalformedFrame("string is not UTF-8", offset=start)


def java_text(raw: bytes) -> str:
    """`raw` as Java's `String(bytes, UTF_8)` has it: U+FFFD for what is not UTF-8, one where Java has one.

    Python has the same, but for half a surrogate pair (ED, A0 to BF, and the byte behind it): there Java has
    one U+FFFD, Python one for each byte. Compared with Java 17 over 420,000 sequences.
    """
    return _SURROGATE.sub(b"\xff", raw).decode("utf-8", "replace")


def string(buf: Buffer, pos: int, end: int) -> tuple[str, int]:
    """A string with an int16 length. Raises MalformedFrame for a null one."""
    length, pos = int16(buf, pos, end)
    stop = skip(pos, length, end)
    return text(buf, pos, stop), stop


def nullable_string(buf: Buffer, pos: int, end: int) -> tuple[str | None, int]:
    """A string with an int16 length, -1 for null. Raises MalformedFrame for any other negative length."""
    length, pos = int16(buf, pos, end)
    if length == NULL:
        return None, pos
    stop = skip(pos, length, end)
    return text(buf, pos, stop), stop


def compact_string(buf: Buffer, pos: int, end: int) -> tuple[str, int]:
    """A string with a uvarint of its length + 1. Raises MalformedFrame for a null one."""
    length, pos = uvarint(buf, pos, end)
    stop = skip(pos, length - 1, end)
    return text(buf, pos, stop), stop


def compact_nullable_string(buf: Buffer, pos: int, end: int) -> tuple[str | None, int]:
    """A string with a uvarint of its length + 1, 0 for null."""
    length, pos = uvarint(buf, pos, end)
    if length == 0:
        return None, pos
    stop = skip(pos, length - 1, end)
    return text(buf, pos, stop), stop


def skip_nullable_string(buf: Buffer, pos: int, end: int) -> int:
    """Skip a string with an int16 length, or null."""
    length, pos = int16(buf, pos, end)
    return pos if length == NULL else skip(pos, length, end)


def skip_compact_nullable(buf: Buffer, pos: int, end: int) -> int:
    """Skip a compact string, bytes or records, or null: a uvarint of the length + 1, then the bytes."""
    length, pos = uvarint(buf, pos, end)
    return skip(pos, length - 1, end) if length else pos


def array_count(buf: Buffer, pos: int, end: int, element_min_bytes: int) -> tuple[int, int]:
    """The int32 count of an array, NULL (-1) for a null one, bounded by what could stand in the bytes left.

    `element_min_bytes` ≥ 1 is the least an element can take, so that a forged count fails here and not after
    a long loop. Raises MalformedFrame for any other negative count too.
    """
    count, pos = int32(buf, pos, end)
    if count < NULL or count * element_min_bytes > end - pos:
        raise MalformedFrame(f"array of {count} in {end - pos} bytes", offset=pos)
    return count, pos


def compact_array_count(buf: Buffer, pos: int, end: int, element_min_bytes: int) -> tuple[int, int]:
    """The uvarint count + 1 of a compact array, NULL (-1) for a null one; bounded as `array_count`."""
    length, pos = uvarint(buf, pos, end)
    if (length - 1) * element_min_bytes > end - pos:
        raise MalformedFrame(f"array of {length - 1} in {end - pos} bytes", offset=pos)
    return length - 1, pos


def few_tags(fields: int, pos: int) -> int:
    """`fields`, of one tagged-field section. Raises MalformedFrame for more than MAX_TAGS."""
    if fields > MAX_TAGS:
        raise MalformedFrame(f"{fields} tagged fields in one section, must be ≤ {MAX_TAGS}", offset=pos)
    return fields


def tag_count(buf: Buffer, pos: int, end: int) -> tuple[int, int]:
    """The number of fields in a tagged-field section, and where the first begins.

    Raises MalformedFrame as `few_tags`, and for more than could stand in the bytes left.
    """
    fields, pos = uvarint(buf, pos, end)
    few_tags(fields, pos)
    if fields * 2 > end - pos:
        raise MalformedFrame(f"{fields} tagged fields in {end - pos} bytes", offset=pos)
    return fields, pos


def skip_tags(buf: Buffer, pos: int, end: int) -> int:
    """Skip a tagged-field section: a uvarint count, then tag, size and that many bytes for each.

    Does not mind the order of the tags, nor a tag that comes twice: Kafka's generated readers do not either.
    Raises MalformedFrame as `tag_count`.
    """
    if pos < end and buf[pos] == 0:
        return pos + 1
    fields, pos = tag_count(buf, pos, end)
    last = end - 2
    for _ in range(fields):
        if pos <= last and buf[pos] < 0x80 and (size := buf[pos + 1]) < 0x80:  # a byte each, as nearly always
            pos += 2 + size
        else:
            _, pos = uvarint(buf, pos, end)
            size, pos = uvarint(buf, pos, end)
            pos += size
        if pos > end:
            skip(pos - size, size, end)  # raises what is wrong
    return pos
