"""A connection's last requests as templates: a Produce that differs in its records alone needs no walk. Pure.

Nearly every Produce of a connection brings one batch of the same producer id to one of a few partitions. All
that stands before its records then has the same bytes as in an earlier one; behind stand their length and one
batch that fills the frame. That is soon told: in a sixth of the time that the walk and the look-ups take.

    client id … acks … topic … partition        the same bytes as an earlier one's, at the same version
    the records' length, the batch's length     both say that one batch reaches to the end of the frame
    its producer id                             the same

Reading the same bytes at the same version ends at the same place, so there the records begin, and what may
follow one batch that fills the frame (three bytes for tagged fields) has no room for another.
Source: wire-semantics 3.5 (gates first), 3.13 (the connection's last id).
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from functools import lru_cache
from math import inf
from struct import Struct
from typing import Any, Final

from sluice.protocol.headers import REQUEST_HEAD_BYTES
from sluice.protocol.produce import FIRST_FLEXIBLE, BatchHead
from sluice.protocol.record_batch import HEAD_BYTES, LOG_OVERHEAD

_NONE: Final[Sized] = ()
_ONE_COMPACT: Final = b"\2"
_ONE: Final = b"\0\0\0\1"
_PARTITION_BYTES: Final = 4
_ENOUGH_BYTES: Final = 4 + HEAD_BYTES
"""with a length of four bytes, or one of one byte and three bytes for tags: no shorter frame has a batch"""
MAX_HEADS: Final = 64
"""topics and partitions, each with a head of a hundred bytes or less"""
NO_HEADS: Final[frozenset[bytes]] = frozenset()
"""one for all: Python makes each empty frozenset anew, of 0.2 kB"""
_MAX_HEAD_BYTES: Final = 512
"""a longer one, of a long topic or transactional id, is no template: each length has a Struct"""
# Behind the head: the records' length, then of the batch its length and its producer id. A compact length is
# one more than what it is of, in seven bits a byte, the lowest first; then three bytes for tags are the end.
_CLASSIC: Final = Struct(">i8xi31xq")
_COMPACT_1: Final = Struct(">B8xi31xq")
# And what request_percentage charges by: magic, the low byte of the attributes, the number of records.
_COMPACT_2: Final = "H8xi4xB5xB20xq6xi"
_COMPACT_3: Final = Struct(">BH8xi31xq")
_TAGS_BYTES: Final = 3
_SHORTER_BY: Final = LOG_OVERHEAD + 1
"""a batch's own length against the compact length of the records"""
_MIN_2: Final = 2**7
MIN_2: Final = _MIN_2 - _SHORTER_BY
MAX_2: Final = 2**14 - 1 - _SHORTER_BY
"""between these lies the batch's own length where the records' compact length takes two bytes"""
LENGTHS_2: Final = tuple(
    (said & 0x7F | 0x80) << 8 | said >> 7 for said in range(_SHORTER_BY, MAX_2 + _SHORTER_BY + 1)
)
"""by the batch's own length these two bytes; 0.6 MB that take a tenth of the arithmetic's time"""
_MIN_3: Final = 2**14
_MAX_3: Final = 2**21 - 1
_MAX_FRAME_BYTES: Final = 2**31


@lru_cache(maxsize=_MAX_HEAD_BYTES)
def _with_head(head_bytes: int) -> Callable[[bytearray, int], tuple[Any, ...]]:
    """Reads (head, the records' length of two bytes, the batch's length, its magic, the low byte of its
    attributes, its producer id, its number of records) of the frame at an offset."""
    return Struct(f">{REQUEST_HEAD_BYTES}x{head_bytes}s{_COMPACT_2}").unpack_from


def with_head(last: bytes, others: frozenset[bytes], head: bytes) -> tuple[bytes, frozenset[bytes]]:
    """(the last head, the others) once `head` is the last one; unchanged where MAX_HEADS are known."""
    if len(others) + 1 >= MAX_HEADS:
        return last, others
    return head, others | {last} if last and last != head else others


class KnownProduce:
    """The last Produces of one connection. ProduceSide._produce reads its public fields: a request fits while
    there are no `gates`, until `until_ms`, once it or `enough_bytes` have arrived, if the table above holds.
    It looks itself where the records' length takes two bytes, else asks `fits_other`."""

    __slots__ = (
        "_head_bytes", "_once", "_shape", "acks", "enough_bytes", "gates", "head", "heads", "less_bytes",
        "producer_id", "unpack", "until_ms", "version",
    )  # fmt: skip

    def __init__(self) -> None:
        self._shape: tuple[float, ...] = ()
        self._once: tuple[float, ...] = ()
        self._head_bytes = 0
        self.until_ms = -inf
        """from then on nothing fits"""
        self.gates: Sized = _NONE
        """while there are any, nothing fits"""
        self.version = -1
        self.producer_id = -1
        self.head = b""
        self.heads = NO_HEADS
        """other heads than this last one; most connections have none"""
        self.less_bytes = 0
        """a frame has so many more than what the batch's own length says, where the records' compact length
        takes two bytes"""
        self.enough_bytes = 0
        """what must have arrived of a frame that has not arrived whole"""
        self.unpack = _with_head(0)
        """as `_with_head` says"""
        self.acks = 0
        """of a request that fits"""

    def forget(self) -> None:
        """Whose requests these are, or their limit, has changed."""
        self.until_ms = -inf
        self._shape = self._once = ()

    def passed(
        self,
        buf: bytearray,
        pos: int,
        version: int,
        acks: int,
        batch: BatchHead,
        gates: Sized,
        until_ms: float,
    ) -> None:
        """A request of this one batch passed, and those like it do until `until_ms` while there are no gates.

        `pos`: where its frame begins. A shape (all but topic and partition) takes the last one's place
        when it has come twice in a row, so that two by turns do not pay for that each time.
        """
        _, topic_end, _, _, producer_id, _, _, _ = batch
        one = _ONE_COMPACT if version >= FIRST_FLEXIBLE else _ONE
        head_end = topic_end + len(one) + _PARTITION_BYTES
        start = pos + REQUEST_HEAD_BYTES
        head_bytes = head_end - start
        # Beside it may be partitions without records; then the head of this one is not all that is before it.
        if head_bytes > _MAX_HEAD_BYTES or not buf.startswith(one, topic_end):
            return
        shape: tuple[float, ...] = (producer_id, head_bytes, version, acks, until_ms)
        if shape != self._shape or gates is not self.gates:
            if shape != self._once:
                self._once = shape
                return
            self._shape = shape
            self.gates = gates
            self.until_ms = until_ms
            self.version = version
            self.producer_id = producer_id
            self.head, self.heads = b"", NO_HEADS
            self._head_bytes = head_bytes
            self.enough_bytes = REQUEST_HEAD_BYTES + head_bytes + _ENOUGH_BYTES
            # By this a length that is not compact is never taken for one.
            others = _MAX_FRAME_BYTES if version < FIRST_FLEXIBLE else 0
            self.less_bytes = REQUEST_HEAD_BYTES + head_bytes + 2 + LOG_OVERHEAD + _TAGS_BYTES + others
            self.unpack = _with_head(head_bytes)
            self.acks = acks
        self.head, self.heads = with_head(self.head, self.heads, bytes(buf[start:head_end]))

    def fits_other(self, buf: bytearray, pos: int, frame_end: int) -> bool:
        """Does the request whose frame begins at `pos` pass as an earlier one did, of the same version, where
        the records' length is not one of two compact bytes?

        False says nothing: then it is to be walked. It has arrived, or `enough_bytes` of it have.
        """
        start = pos + REQUEST_HEAD_BYTES
        pos = start + self._head_bytes
        rest = frame_end - pos
        if rest < _ENOUGH_BYTES:
            return False
        head = bytes(buf[start:pos])
        if head != self.head and head not in self.heads:
            return False
        fits: bool
        if self.version < FIRST_FLEXIBLE:
            said, batch_length, producer_id = _CLASSIC.unpack_from(buf, pos)
            fits = said == rest - 4 >= HEAD_BYTES and batch_length == said - LOG_OVERHEAD
        elif rest - _TAGS_BYTES < _MIN_2:
            said, batch_length, producer_id = _COMPACT_1.unpack_from(buf, pos)
            fits = said == rest - _TAGS_BYTES > HEAD_BYTES and batch_length == said - _SHORTER_BY
        else:
            low, high, batch_length, producer_id = _COMPACT_3.unpack_from(buf, pos)
            said = rest - 3 - _TAGS_BYTES + 1
            fits = (
                _MIN_3 <= said <= _MAX_3
                and low == said & 0x7F | 0x80
                and high == (said >> 7 & 0x7F | 0x80) << 8 | said >> 14
                and batch_length == said - _SHORTER_BY
            )
        return fits and producer_id == self.producer_id
