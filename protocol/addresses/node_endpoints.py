"""NodeEndpoints taken out of answers that are cut through: their size has gone, so no byte more or fewer may.

The first bytes of a Fetch go on before the last have come, and NodeEndpoints stand behind all records. So
what cannot be rewritten any more is made unreadable in its place, and stays a legal frame of the same size:

    Produce v10–13, Fetch v16–18   tag 0 becomes tag 127, and its content zeros
    ShareFetch v1–2                not tagged: the array becomes an empty one, and a tag 127 that was not
                                   there takes all bytes up to the end of the frame as zeros

Nobody knows tag 127. Clients pass over a tag that they do not know (KIP-482), and without endpoints they look
for the new leader as before KIP-951: Java takes the node it knows by the id, else refreshes its metadata
(Metadata.updatePartitionLeadership). Sources: the response JSON of 4.3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final, TypeAlias

from sluice.protocol.apis import FETCH, PRODUCE, SHARE_FETCH
from sluice.protocol.codec.wire import encode_varint
from sluice.protocol.errors import MalformedFrame
from sluice.protocol.primitives import UUID_BYTES, UVARINT_MAX_BYTES, uvarint

_NODE_ENDPOINTS_TAG: Final = 0
_UNUSED_TAG: Final = 127
"""The largest in one byte, as tag 0 is: far from those that Kafka gives out, in order, from 0."""

_NOTHING: Final = bytearray()

_Walk: TypeAlias = Generator[None, None, None]
"""Yields when it can go no further in what has arrived; what stands before its cursor may go on then."""


class EndpointEraser:
    """The walk through one answer that goes on while it arrives, in pieces of any size.

    `pass_on` is given the pieces; where a length or count is cut in two, the bytes from it on are to be kept
    and given again with what follows them: at most 9. All else of the frame is let through, the endpoints
    blanked in place.
    """

    __slots__ = ("_blanks", "_buf", "_end", "_frame_end", "_pos", "_varint_bytes", "_walk", "left_bytes")

    def __init__(self, api_key: int, version: int, left_bytes: int) -> None:
        """`left_bytes`: of the frame, from the response header's tags (right behind the correlation id)
        on."""
        self.left_bytes = left_bytes
        """of the frame, not yet passed on"""
        self._buf = _NOTHING
        self._pos = 0  # beyond _end while bytes are skipped that have not come
        self._end = 0
        self._frame_end = 0
        self._blanks = False  # what is skipped is to be blanked
        self._varint_bytes = 0  # of the last one read
        self._walk = _frame(self, WALKS[api_key], version)

    def pass_on(self, buf: bytearray, start: int, end: int) -> int:
        """The frame goes on at `buf[start:end]` (and may end before `end`). Returns the offset up to which
        its bytes may go to the client.

        Raises MalformedFrame if its bytes contradict the layout, or the walk ends where the frame does not.
        """
        skipped = max(self._pos - self._end, 0)
        self._buf = buf
        self._pos = start + skipped
        self._frame_end = start + self.left_bytes
        self._end = min(end, self._frame_end)
        if skipped and self._blanks:
            self._zero(start)
        if self._pos < self._end or self._end == self._frame_end:
            next(self._walk, None)
        cut = min(self._pos, self._end)
        self.left_bytes = self._frame_end - cut
        self._buf = _NOTHING  # the buffer is everybody's
        return cut

    # For the walks below. A varint is waited for until it is whole; what is only passed over need not have
    # come.

    def skip(self, length_bytes: int) -> None:
        """Pass over bytes that must lie in the frame."""
        if not 0 <= length_bytes <= self._frame_end - self._pos:
            left = self._frame_end - self._pos
            raise MalformedFrame(f"{length_bytes} bytes wanted, {left} left", offset=self._pos)
        self._pos += length_bytes

    def uvarint(self) -> Generator[None, None, int]:
        """Wait for an unsigned varint."""
        while True:
            try:
                value, stop = uvarint(self._buf, self._pos, self._end)
                self._varint_bytes = stop - self._pos
                self._pos = stop
                return value
            except MalformedFrame:
                if self._end == self._frame_end or self._end - self._pos >= UVARINT_MAX_BYTES:
                    raise
            yield

    def count(self, element_min_bytes: int, *, nullable: bool = False) -> Generator[None, None, int]:
        """Wait for the count of a compact array, 0 for a null one; bounded by the bytes left."""
        length = yield from self.uvarint()
        if length == 0 and not nullable:
            raise MalformedFrame("null array", offset=self._pos)
        count = max(length - 1, 0)
        if count * element_min_bytes > self._frame_end - self._pos:
            left = self._frame_end - self._pos
            raise MalformedFrame(f"array of {count} in {left} bytes", offset=self._pos)
        return count

    def string(self) -> _Walk:
        """Pass over a compact string, bytes or records, or null."""
        length = yield from self.uvarint()
        self.skip(length - 1 if length else 0)

    def tags(self) -> _Walk:
        """Pass over a section of tagged fields."""
        fields = yield from self.uvarint()
        for _ in range(fields):
            yield from self.uvarint()
            self.skip((yield from self.uvarint()))

    def tagged_nodes(self) -> _Walk:
        """Pass over the tagged fields at the end of a response; tag 0 is made one that nobody knows."""
        fields = yield from self.uvarint()
        for _ in range(fields):
            if (yield from self.uvarint()) != _NODE_ENDPOINTS_TAG:
                self.skip((yield from self.uvarint()))
                continue
            start = self._pos - self._varint_bytes
            self._buf[start : self._pos] = encode_varint(_UNUSED_TAG, self._varint_bytes)
            yield from self.blank((yield from self.uvarint()))

    def nodes(self) -> _Walk:
        """Pass over an array of nodes, and the tagged fields that end the response behind it."""
        while self._end - self._pos < 2 * UVARINT_MAX_BYTES and self._end < self._frame_end:
            yield
        start = self._pos
        if (yield from self.count(11)) == 0:
            yield from self.tags()
            return
        self._pos = start
        self.skip(4)  # an empty array, one tagged field, its tag, its size
        size_bytes = 1
        content_bytes = self._frame_end - self._pos
        while len(size := encode_varint(content_bytes, size_bytes)) > size_bytes:
            size_bytes += 1
            content_bytes -= 1
        head = bytes((1, 1, _UNUSED_TAG)) + size
        self._buf[start : start + len(head)] = head
        self._pos = start + len(head)
        yield from self.blank(content_bytes)

    def blank(self, length_bytes: int) -> _Walk:
        """Zeros in the place of bytes that must lie in the frame."""
        start = self._pos
        self.skip(length_bytes)
        self._zero(start)
        self._blanks = True
        while self._pos > self._end:
            yield
        self._blanks = False

    def _zero(self, start: int) -> None:
        stop = min(self._pos, self._end)
        self._buf[start:stop] = bytes(stop - start)

    @property
    def at_end(self) -> bool:
        """The cursor stands where the frame ends."""
        return self._pos == self._frame_end


def _frame(eraser: EndpointEraser, walk: Callable[[EndpointEraser, int], _Walk], version: int) -> _Walk:
    yield from eraser.tags()  # of the header
    yield from walk(eraser, version)
    if not eraser.at_end:
        raise MalformedFrame("response ends before its frame")


def _produce(c: EndpointEraser, version: int) -> _Walk:
    for _ in range((yield from c.count(3))):
        if version >= 13:
            c.skip(UUID_BYTES)
        else:
            yield from c.string()
        for _ in range((yield from c.count(33))):
            c.skip(30)  # index, error code, base offset, append time, start offset
            for _ in range((yield from c.count(6))):
                c.skip(4)
                yield from c.string()
                yield from c.tags()
            yield from c.string()  # error message
            yield from c.tags()
        yield from c.tags()
    c.skip(4)  # throttle
    yield from c.tagged_nodes()


def _fetch(c: EndpointEraser, _version: int) -> _Walk:
    c.skip(10)  # throttle, error code, session id
    for _ in range((yield from c.count(18))):
        c.skip(UUID_BYTES)
        for _ in range((yield from c.count(37))):
            c.skip(30)  # index, error code, high watermark, last stable and start offset
            for _ in range((yield from c.count(17, nullable=True))):
                c.skip(16)
                yield from c.tags()
            c.skip(4)  # preferred read replica
            yield from c.string()  # records
            yield from c.tags()
        yield from c.tags()
    yield from c.tagged_nodes()


def _share_fetch(c: EndpointEraser, _version: int) -> _Walk:
    c.skip(6)  # throttle, error code
    yield from c.string()  # error message
    c.skip(4)  # acquisition lock timeout
    for _ in range((yield from c.count(18))):
        c.skip(UUID_BYTES)
        for _ in range((yield from c.count(22))):
            c.skip(6)  # index, error code
            yield from c.string()  # error message
            c.skip(2)
            yield from c.string()  # acknowledge error message
            c.skip(8)  # current leader, a struct
            yield from c.tags()
            yield from c.string()  # records
            for _ in range((yield from c.count(19))):
                c.skip(18)
                yield from c.tags()
            yield from c.tags()
        yield from c.tags()
    yield from c.nodes()


WALKS: Final[dict[int, Callable[[EndpointEraser, int], _Walk]]] = {
    PRODUCE: _produce,
    FETCH: _fetch,
    SHARE_FETCH: _share_fetch,
}
"""The answers that can be large."""
