"""Whether a broker can read a request's body: a walk along the fields of its version, which keeps nothing.

For requests that are short and few; Produce and Fetch have readers of their own. A broker ends the connection
of a request that it cannot read, with a stack trace in its log and some ms of its time, so it is ended here,
and the field named. What Kafka's generated readers take is taken: any negative length is null where null may
stand, any marker of a struct but a negative one says that it is there, a known tagged field ends where it
ends, what follows the body is nobody's. Source: Kafka's MessageDataGenerator, ByteBufferAccessor; KIP-482.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Final, TypeAlias

from sluice.protocol.apis import FETCH, OFFERED, PRODUCE
from sluice.protocol.codec.spec_model import FIXED_SIZES, Field, load_message
from sluice.protocol.errors import MalformedFrame
from sluice.protocol.headers import request_body
from sluice.protocol.primitives import int32, skip, uvarint

MAX_BYTES: Final = 4096
"""of a request that is looked through: an element of two bytes takes 0.2 µs"""
_INT32_RANGE: Final = 1 << 32
_INT32_MAX: Final = (1 << 31) - 1
_MAX_STRING_BYTES: Final = 0x7FFF
_NEGATIVE: Final = 0x80
"""bytes from here on are negative numbers"""
_CONTINUED: Final = 0x80
"""bytes from here on are the first of a varint of several"""
_NULL: Final = "null where none may be"
_NO_VERSIONS: Final = (0, -1)
_READ_ELSEWHERE: Final = frozenset({PRODUCE, FETCH})

_Walk: TypeAlias = Callable[[bytearray, int, int], int]
"""(buf, pos, end) → where the field that begins at `pos` ends. Raises MalformedFrame if that is beyond `end`,
or null where none may be."""


def check_layout(buf: bytearray, client_id_end: int, frame_end: int, api_key: int, version: int) -> None:
    """Raises MalformedFrame if no broker could read the request whose client id ends at `client_id_end`.

    The error names the field, in what it stands. Says nothing of APIs and versions that it does not know.
    """
    first, last = OFFERED.get(api_key, _NO_VERSIONS)
    if not first <= version <= last or api_key in _READ_ELSEWHERE:
        return
    walk = _walk_of(api_key, version)
    if walk is not None:
        walk(buf, request_body(buf, client_id_end, frame_end, api_key, version), frame_end)


@cache
def _walk_of(api_key: int, version: int) -> _Walk | None:
    """Kept for ever, so only versions that clients are offered are looked for. None: no such API is known."""
    message = load_message("request", api_key)
    if message is None:
        return None
    return _struct(message.fields, version, version in message.flexible)


def _struct(fields: Sequence[Field], version: int, flexible: bool) -> _Walk:
    steps: list[tuple[str, _Walk]] = []
    fixed_bytes, first_fixed = 0, ""
    for field in [f for f in fields if version in f.versions and version not in f.tagged]:
        size = field.fixed_size()
        if size is not None:
            first_fixed = first_fixed if fixed_bytes else field.name
            fixed_bytes += size
            continue
        if fixed_bytes:
            steps.append((first_fixed, _fixed(fixed_bytes)))
            fixed_bytes = 0
        steps.append((field.name, _field(field, version)))
    if fixed_bytes:
        steps.append((first_fixed, _fixed(fixed_bytes)))
    if flexible:
        tagged = [field for field in fields if field.tagged]
        known = {f.tag: _field(f, version) if version in f.tagged else _not_yet for f in tagged}
        steps.append(("tagged fields", _tags(known)))

    def walk(buf: bytearray, pos: int, end: int) -> int:
        name = ""
        try:
            for name, step in steps:  # noqa: B007  told where it fails
                pos = step(buf, pos, end)
        except MalformedFrame as error:
            raise MalformedFrame(f"{name}: {error.reason}", offset=error.offset) from None
        return pos

    return walk


def _field(field: Field, version: int) -> _Walk:
    compact, nullable = version in field.flexible, version in field.nullable
    if field.is_array:
        size = FIXED_SIZES.get(field.type)
        if size is not None:
            return _array_of_fixed(size, compact, nullable)
        return _array(_single(field, version, compact, nullable=False), compact, nullable)
    return _single(field, version, compact, nullable)


def _single(field: Field, version: int, compact: bool, nullable: bool) -> _Walk:
    if field.type == "struct":
        walk = _struct(field.fields, version, compact)
        return _nullable_struct(walk) if nullable else walk
    if (size := FIXED_SIZES.get(field.type)) is not None:
        return _fixed(size)
    if field.type == "string":
        return _compact_string(nullable) if compact else _string(nullable)
    return _bytes(compact, nullable)


def _fixed(size: int) -> _Walk:
    def walk(buf: bytearray, pos: int, end: int) -> int:
        return skip(pos, size, end)

    return walk


def _length(buf: bytearray, pos: int, end: int, compact: bool, nullable: bool) -> tuple[int, int]:
    """The length of bytes, an array or a compact string (negative: null), and where these begin."""
    start = pos
    if compact:
        length, pos = uvarint(buf, pos, end)
        length -= 1
        if length > _INT32_MAX:
            length -= _INT32_RANGE
    else:
        length, pos = int32(buf, pos, end)
    if length < 0 and not nullable:
        raise MalformedFrame(_NULL, offset=start)
    return length, pos


def _string(nullable: bool) -> _Walk:
    """Written out, as most of what may be many: each call of a call would be a µs."""

    def walk(buf: bytearray, pos: int, end: int) -> int:
        after = pos + 2
        if after > end:
            raise MalformedFrame(f"2 bytes wanted, {max(end - pos, 0)} left", offset=pos)
        length = buf[pos] << 8 | buf[pos + 1]
        if length > _MAX_STRING_BYTES:
            if nullable:
                return after
            raise MalformedFrame(_NULL, offset=pos)
        return after + length if length <= end - after else skip(after, length, end)

    return walk


def _compact_string(nullable: bool) -> _Walk:
    def walk(buf: bytearray, pos: int, end: int) -> int:
        if pos < end and 0 < (length := buf[pos]) < _CONTINUED and pos + length <= end:
            return pos + length
        length, pos = _length(buf, pos, end, True, nullable)
        if length > _MAX_STRING_BYTES:
            raise MalformedFrame(f"a string of {length} bytes", offset=pos)
        return pos if length < 0 else skip(pos, length, end)

    return walk


def _bytes(compact: bool, nullable: bool) -> _Walk:
    def walk(buf: bytearray, pos: int, end: int) -> int:
        length, pos = _length(buf, pos, end, compact, nullable)
        return pos if length < 0 else skip(pos, length, end)

    return walk


def _array(element: _Walk, compact: bool, nullable: bool) -> _Walk:
    def walk(buf: bytearray, pos: int, end: int) -> int:
        count, pos = _length(buf, pos, end, compact, nullable)
        if count > end - pos:
            raise MalformedFrame(f"array of {count} in {end - pos} bytes", offset=pos)
        for _ in range(count):
            pos = element(buf, pos, end)
        return pos

    return walk


def _array_of_fixed(size: int, compact: bool, nullable: bool) -> _Walk:
    def walk(buf: bytearray, pos: int, end: int) -> int:
        count, pos = _length(buf, pos, end, compact, nullable)
        return skip(pos, count * size, end) if count > 0 else pos

    return walk


def _nullable_struct(walk_struct: _Walk) -> _Walk:
    def walk(buf: bytearray, pos: int, end: int) -> int:
        after = skip(pos, 1, end)
        return after if buf[pos] >= _NEGATIVE else walk_struct(buf, after, end)

    return walk


def _not_yet(buf: bytearray, pos: int, end: int) -> int:
    raise MalformedFrame("a tag of a later version", offset=pos)


def _tags(known: Mapping[int, _Walk]) -> _Walk:
    """Where a tag is known Kafka reads its field, and not the size before it."""

    def walk(buf: bytearray, pos: int, end: int) -> int:
        if pos < end and buf[pos] == 0:
            return pos + 1
        count, pos = uvarint(buf, pos, end)
        if count > _INT32_MAX:
            return pos
        for _ in range(count):  # each takes two bytes at least, so the bytes end before a forged count does
            tag, pos = uvarint(buf, pos, end)
            size, pos = uvarint(buf, pos, end)
            walk_known = known.get(tag)
            pos = skip(pos, size, end) if walk_known is None else walk_known(buf, pos, end)
        return pos

    return walk
