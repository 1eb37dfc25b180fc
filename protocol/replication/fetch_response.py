"""The answer to a follower's Fetch, v13–v18, looked through while it passes: high watermarks and sizes.

    throttleTimeMs int32 | errorCode int16 | sessionId int32 |
    responses: topicId uuid, partitions: (index int32, errorCode int16, highWatermark, lastStableOffset,
        logStartOffset int64, abortedTransactions, preferredReadReplica int32, records, tags), tags | tags

The frame may come in pieces of any size, cut anywhere; nothing of it is kept but what is cut in two. Records
are passed over by their size. Source: FetchResponse.json 4.3.1.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, TypeAlias

from sluice.protocol.errors import MalformedFrame
from sluice.protocol.primitives import (
    UUID_BYTES,
    Buffer,
    skip,
    skip_tags,
    uvarint,
)
from sluice.protocol.replication.fetch_request import PartitionKey

_HEAD: Final = Struct(">ihi")
_PARTITION: Final = Struct(">ihqqq")
_ABORTED_MIN_BYTES: Final = 17
_PIECE_BYTES: Final = 4096
_MAX_CUT_BYTES: Final = 1024 * 1024
"""no unit between two partitions' records is larger, unless it lies"""

Answered: TypeAlias = tuple[PartitionKey, int, int, int]
"""partition, error code, high watermark, bytes of records"""


class ReplicaAnswer:
    """The walk through one answer. `error_code` and `session_id` are known once `has_head`."""

    __slots__ = (
        "_cut",
        "_in_partition",
        "_left_bytes",
        "_partitions_left",
        "_skip_bytes",
        "_topic_id",
        "_topics_left",
        "error_code",
        "has_head",
        "partitions",
        "session_id",
    )

    def __init__(self, body_bytes: int) -> None:
        """`body_bytes`: of the frame, from the response header's tags (behind the correlation id) on."""
        self._left_bytes = body_bytes
        self._cut = b""
        self._skip_bytes = 0  # of records, still to come
        self._topics_left = 0
        self._partitions_left = 0
        self._in_partition = False  # behind a partition's records, before its tags
        self._topic_id = b""
        self.has_head = False
        self.error_code = 0
        self.session_id = 0
        self.partitions: list[Answered] = []

    @property
    def left_bytes(self) -> int:
        """How much of the frame was not seen yet; 0: it is whole."""
        return self._left_bytes

    def feed(self, buf: Buffer, start: int, end: int) -> None:
        """The frame goes on at `buf[start:end]`, which does not reach beyond it.

        Raises MalformedFrame if its bytes contradict the layout, or it ends too early.
        """
        self._left_bytes -= end - start
        while start < end:
            if self._skip_bytes:
                passed = min(self._skip_bytes, end - start)
                self._skip_bytes -= passed
                start += passed
            elif self._cut:
                cut = self._cut
                # Longer, the more is cut already: a unit of a megabyte would else be read 256 times.
                stop = min(end, start + max(_PIECE_BYTES, len(cut)))
                piece = cut + bytes(buf[start:stop])
                pos = self._read_on(piece, 0, len(piece), is_all=stop == end)
                if pos > len(cut):
                    self._cut = b""
                    start += pos - len(cut)
                else:
                    self._cut = piece[pos:]
                    start += len(piece) - len(cut)
                    self._check_cut()
            else:
                start = self._read_on(buf, start, end, is_all=True)
                if not self._skip_bytes and start < end:
                    self._cut = bytes(buf[start:end])
                    start = end
                    self._check_cut()
        if not self._left_bytes and (
            self._cut or self._skip_bytes or not self.has_head or self._topics_left or self._in_partition
        ):
            raise MalformedFrame("answer to a follower's Fetch that ends too early")

    def _check_cut(self) -> None:
        if len(self._cut) > _MAX_CUT_BYTES:
            raise MalformedFrame(f"more than {_MAX_CUT_BYTES} bytes between records")

    def _read_on(self, buf: Buffer, pos: int, end: int, *, is_all: bool) -> int:
        """Unit by unit, up to records that go beyond `end`, or a unit that does. Returns how far it came.
        `is_all`: nothing that `feed` was given stands behind `end`."""
        while pos < end and not self._skip_bytes:
            try:
                pos = self._unit(buf, pos, end)
            except MalformedFrame:
                if is_all and not self._left_bytes:
                    raise  # nothing more comes that could complete it
                break
            if pos > end:
                self._skip_bytes = pos - end
                pos = end
        return pos

    def _unit(self, buf: Buffer, pos: int, end: int) -> int:
        """One unit, whole. May return an offset beyond `end`: up to there it is records."""
        if self._in_partition:
            pos = skip_tags(buf, pos, end)
            self._in_partition = False
            self._partitions_left -= 1
        elif self._partitions_left > 0:
            return self._partition(buf, pos, end)
        elif self._partitions_left == 0 and self._topic_id:
            pos = skip_tags(buf, pos, end)
            self._topic_id = b""
            self._topics_left -= 1
        elif self._topics_left > 0:
            after = skip(pos, UUID_BYTES, end)
            topic_id = bytes(buf[pos:after])
            self._partitions_left, pos = self._count(buf, after, end)
            self._topic_id = topic_id
        elif not self.has_head:
            pos = skip_tags(buf, pos, end)
            after = skip(pos, _HEAD.size, end)
            _, self.error_code, self.session_id = _HEAD.unpack_from(buf, pos)
            self._topics_left, pos = self._count(buf, after, end)
            self.has_head = True
        else:
            pos = end  # the tagged fields behind all topics
        return pos

    @staticmethod
    def _count(buf: Buffer, pos: int, end: int) -> tuple[int, int]:
        """Length of a compact array, 0 for a null one. One that lies fails where the frame ends."""
        length, pos = uvarint(buf, pos, end)
        return max(length - 1, 0), pos

    def _partition(self, buf: Buffer, pos: int, end: int) -> int:
        after = skip(pos, _PARTITION.size, end)
        index, error_code, high_watermark, _, _ = _PARTITION.unpack_from(buf, pos)
        aborted, pos = uvarint(buf, after, end)
        for _ in range(aborted - 1):
            pos = skip_tags(buf, skip(pos, _ABORTED_MIN_BYTES - 1, end), end)
        pos = skip(pos, 4, end)
        records, pos = uvarint(buf, pos, end)
        record_bytes = records - 1 if records else 0
        self.partitions.append(((self._topic_id, index), error_code, high_watermark, record_bytes))
        self._in_partition = True
        return pos + record_bytes
