"""The AlterClientQuotas of one who may not → the answer that refuses each of its entities. Pure.

By hand and in steps, not by the codec: the codec takes 4 ms for each KiB, and who may not change anything is
not to have others wait by asking for much. Knows not who may. As wire.py would decode it, and answer.
Source: AlterClientQuotas{Request,Response}.json 4.3.1.

    request  v0  [[entityType string, entityName nullable string], [key string, value float64, remove bool]],
                 validateOnly bool; v1 the same, compact, each level closed by tagged fields
    answer       throttle_time_ms int32, [error int16, message nullable string, the entity as in the request]
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from sluice.protocol.codec.wire import encode_varint
from sluice.protocol.errors import MalformedFrame
from sluice.protocol.primitives import (
    INT16,
    INT32,
    array_count,
    compact_array_count,
    int16,
    java_text,
    skip,
    skip_nullable_string,
    skip_tags,
    uvarint,
)
from sluice.proxy.quota_store.entities import MAX_NAME_BYTES, shortened

MESSAGES: Final = 100
"""entities that get the message, the first; the others have the error alone: an entity may take 9 bytes"""
_FIRST_FLEXIBLE: Final = 1
_CLIENT_ID: Final = 8
"""behind api key, version and correlation id"""
_VALUE_AND_REMOVE_BYTES: Final = 9
_PARTS_PER_STEP: Final = 200
"""names and operations: half a millisecond"""


def alter_refused_in_steps(
    version: int, correlation_id: int, frame: bytes, code: int, message: str
) -> Generator[None, None, bytes]:
    """The answer, size included: each entity once, in the order in which it is named first.

    `frame`: the request without its size. Raises MalformedFrame for one that is none.
    """
    request = _Request(frame, flexible=version >= _FIRST_FLEXIBLE)
    entities: dict[bytes, None] = {}
    for _ in range(request.count(2)):
        count = request.count(2)
        entity = bytearray(request.written_count(count))
        for _ in range(count):
            entity += request.text() + request.text(nullable=True) + request.tags()
            if request.ends_step():
                yield
        entities[bytes(entity)] = None
        for _ in range(request.count(_VALUE_AND_REMOVE_BYTES)):
            request.operation()
            if request.ends_step():
                yield
        request.tags()
        if request.ends_step():
            yield
    request.end()
    tags = request.no_tags
    error = INT16.pack(code)
    text = error + request.written(shortened(message).encode())
    bare = error + request.null
    answer = bytearray(INT32.pack(correlation_id) + tags + bytes(4) + request.written_count(len(entities)))
    for number, told in enumerate(entities):
        answer += (text if number < MESSAGES else bare) + told + tags
        if number % _PARTS_PER_STEP == _PARTS_PER_STEP - 1:
            yield
    answer += tags
    return INT32.pack(len(answer)) + bytes(answer)


class _Request:
    """The request, read from front to end."""

    def __init__(self, frame: bytes, *, flexible: bool) -> None:
        self._frame = frame
        self._end = len(frame)
        self._flexible = flexible
        self._parts = 0
        self.null: Final = b"\0" if flexible else b"\xff\xff"
        self.no_tags: Final = b"\0" if flexible else b""
        self._pos = skip_nullable_string(frame, skip(0, _CLIENT_ID, self._end), self._end)
        self.tags()

    def ends_step(self) -> bool:
        """One part more has been read; now and then others are to have their turn."""
        self._parts += 1
        return self._parts % _PARTS_PER_STEP == 0

    def count(self, element_min_bytes: int) -> int:
        """How many elements the array here has, which is not null."""
        count_of = compact_array_count if self._flexible else array_count
        count, self._pos = count_of(self._frame, self._pos, self._end, element_min_bytes)
        if count < 0:
            raise MalformedFrame("null where this version has none", offset=self._pos)
        return count

    def text(self, *, nullable: bool = False) -> bytes:
        """As it is told back."""
        raw = self._raw(nullable)
        if raw is None:
            return self.null
        if len(raw) > MAX_NAME_BYTES or not raw.isascii():
            raw = shortened(java_text(raw)).encode()
        return self.written(raw)

    def _raw(self, nullable: bool) -> bytes | None:
        read = uvarint if self._flexible else int16
        length, start = read(self._frame, self._pos, self._end)
        length -= self._flexible
        if length == -1 and nullable:
            self._pos = start
            return None
        self._pos = skip(start, length, self._end)
        return self._frame[start : self._pos]

    def operation(self) -> None:
        """Its key, value and whether it removes."""
        self._raw(nullable=False)
        self._pos = skip(self._pos, _VALUE_AND_REMOVE_BYTES, self._end)
        self.tags()

    def tags(self) -> bytes:
        """None are told back."""
        if self._flexible:
            self._pos = skip_tags(self._frame, self._pos, self._end)
        return self.no_tags

    def end(self) -> None:
        """The rest; nothing stands behind it."""
        self._pos = skip(self._pos, 1, self._end)
        self.tags()
        if self._pos != self._end:
            raise MalformedFrame(
                f"{self._end - self._pos} bytes behind the end of the body", offset=self._pos
            )

    def written(self, raw: bytes) -> bytes:
        """A text of at most 32,767 bytes."""
        return (encode_varint(len(raw) + 1) if self._flexible else INT16.pack(len(raw))) + raw

    def written_count(self, count: int) -> bytes:
        """An array's number of elements."""
        return encode_varint(count + 1) if self._flexible else INT32.pack(count)
