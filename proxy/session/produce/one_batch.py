"""A connection's Produces of one batch as templates: what request_percentage charges by needs no walk. Pure.

As header_prediction.py, for connections with a limit on request time: what stands between the client id and
the records of a Produce is the same as in an earlier one, of the same version, so there the records begin. If
their length and the batch's both say that one batch reaches to the three bytes for tags that end the frame,
there is no room for another.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from sluice.protocol.produce import FIRST_FLEXIBLE, ProduceUsage
from sluice.protocol.record_batch import CODEC_BITS, HEAD_BYTES, LOG_OVERHEAD, MAGIC
from sluice.proxy.session.produce.header_prediction import NO_HEADS, with_head

_TAGS_BYTES: Final = 3
_MAX_HEAD_BYTES: Final = 512
_MIN_2: Final = 1 << 7
_MIN_3: Final = 1 << 14
_MAX_3: Final = 1 << 21
# Of a batch's head: its length, its magic, the low byte of its attributes, its number of records.
_HEAD: Final = Struct(">8xi4xB5xB34xi").unpack_from
_LEAST_BYTES: Final = 2 + HEAD_BYTES
"""behind a head: the shortest length that is read here, and a batch's head"""


class OneBatch:
    """Reads Produces of one batch in place, by the heads of earlier ones of the connection."""

    __slots__ = ("_head", "_head_bytes", "_heads", "_version")

    def __init__(self) -> None:
        self._head = b""  # the last
        self._heads = NO_HEADS  # others
        self._head_bytes = -1
        self._version = -1

    def records_and_codec(
        self, buf: bytearray, start: int, end: int, frame_end: int, version: int
    ) -> tuple[int, int] | None:
        """Records and codec of a Produce's one batch; None: this cannot tell, the frame is to be walked.

        The client id ends at `start`; all before `end` has arrived.
        """
        records = start + self._head_bytes
        if version != self._version or records + _LEAST_BYTES > end:
            return None
        head = bytes(buf[start:records])
        if head != self._head and head not in self._heads:
            return None
        # A compact length is one more than what it is of, in seven bits a byte, the lowest first.
        said = frame_end - records - _TAGS_BYTES - 1
        if _MIN_2 <= said < _MIN_3:
            batch = records + 2
            fits = buf[records] == said & 0x7F | 0x80 and buf[records + 1] == said >> 7
        elif _MIN_3 < said <= _MAX_3:
            said -= 1
            batch = records + 3
            fits = (
                buf[records] == said & 0x7F | 0x80
                and buf[records + 1] == said >> 7 & 0x7F | 0x80
                and buf[records + 2] == said >> 14
            )
        else:
            return None
        if not fits or batch + HEAD_BYTES > end:  # a length of three bytes
            return None
        batch_bytes, magic, attributes, count = _HEAD(buf, batch)
        if batch_bytes != said - 1 - LOG_OVERHEAD or magic != MAGIC:
            return None
        return max(count, 0), attributes & CODEC_BITS

    def walked(self, buf: bytearray, start: int, version: int, usage: ProduceUsage) -> None:
        """A Produce was walked: those that begin like it need not be, if it is of one batch."""
        if version < FIRST_FLEXIBLE or len(usage.batches) != 1:
            return
        _, topic_end, _, _, _, _, _, _ = usage.batches[0]
        records = topic_end + 5  # one compact number of partitions, and the first partition
        if buf[topic_end] != 2 or records - start > _MAX_HEAD_BYTES or records > usage.first_batch:
            return
        if version != self._version or records - start != self._head_bytes:
            self._head, self._heads = b"", NO_HEADS
            self._version, self._head_bytes = version, records - start
        self._head, self._heads = with_head(self._head, self._heads, bytes(buf[start:records]))
