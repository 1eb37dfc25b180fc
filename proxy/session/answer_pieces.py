"""What of a connection's answers may be worked on at once, and in the long run. Pure.

Some answers are read or changed part by part, and a client without any rights can have as many of them, and
as long ones, as it likes. While one is worked on nobody else is served. So each look at a connection's
answers ends behind a piece, and what stands behind it waits for the loop's next turn; and of who has much
worked on for long, no further request is begun for a while.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sluice.protocol.errors import MalformedFrame
from sluice.protocol.headers import RESPONSE_HEAD_BYTES
from sluice.protocol.mutations.topic_sizes import SizeReader
from sluice.proxy.session.authentication import WHOLE_MAX_BYTES
from sluice.proxy.session.gateway.address_rewrite import AddressWork
from sluice.proxy.session.in_flight import (
    ADDRESSES,
    CHARGE,
    CLUSTER_ACTION,
    CONFIGS,
    DECLARED,
    JOIN,
    MUTATION,
    NAMES,
    NONE,
    QUORUM,
    REPLICA,
    TOPIC_SIZES,
    AnswerWork,
)
from sluice.proxy.session.own_topic.own_topic import OwnTopic
from sluice.proxy.session.read_gate import Brake, Pace
from sluice.proxy.session.request_time import CLUSTER_ACTION_MAX_BYTES, RequestTime
from sluice.proxy.session.requests import RequestSide
from sluice.usage.flow import TopicNames

PIECE_BYTES: Final = 32 * 1024
"""5 ms where topics' names are read, 10 ms where addresses are rewritten"""
MARK_BYTES: Final = 64 * 1024
"""by which, and by its size, an answer of which more is to come is known again. Not kept until it is whole: a
thousand clients that begin at once ask for 400 KiB each, and all that is kept has a bound."""
_HEAD_BYTES: Final = 1024
"""throttle_time_ms and error stand behind the header's tags, of which Kafka has none."""
_BY_HEAD: Final = (CHARGE, JOIN, MUTATION)
_NEEDS_NOTHING: Final = (NONE, NAMES, REPLICA, DECLARED, TOPIC_SIZES)
_FOR_GATEWAY: Final = (ADDRESSES, CONFIGS, QUORUM)
_NAMES_MS_PER_KIB: Final = 0.5
"""The brake behind topics' names, which take 0.17 ms for each KiB: a connection has a quarter of the time"""


class AnswerPieces:
    """How much of one connection's answers has been worked on."""

    __slots__ = ("_brake", "_requests", "looked_at_bytes")

    def __init__(self, pace: Pace, requests: RequestSide) -> None:
        self._brake = Brake(pace)
        self._requests = requests
        self.looked_at_bytes = 0
        """since a look at its answers was ended for it"""

    def took(self, size_bytes: int, ms_per_kib: float, now_ms: float) -> None:
        """So much was worked on, with a brake of so many ms for each KiB behind it."""
        self.looked_at_bytes += size_bytes
        wait_ms = size_bytes / 1_024 * ms_per_kib
        self._brake.add(wait_ms, now_ms, at_boundary=self._requests.at_boundary)


class NameReader:
    """Reads topics' names in one connection's answers to Metadata as they go on.

    Nothing goes on that has not been read: so who asks for a topic by its id finds that its name is known.
    """

    __slots__ = ("_mark", "_pieces", "_reader", "_told", "left_bytes")

    def __init__(self, told: Iterable[TopicNames | OwnTopic], pieces: AnswerPieces) -> None:
        """`told`: who is to know them."""
        self._told = tuple(told)
        self._pieces = pieces
        self._reader: SizeReader | None = None
        self._mark = 0  # of the answer that it reads
        self.left_bytes = 0
        """of an answer, that are to be read before they go on"""

    def begin(
        self,
        buf: bytearray,
        start: int,
        end: int,
        frame_end: int,
        changed_to: int,
        now_ms: float,
    ) -> int:
        """An answer has come whose body begins at `start`, or MARK_BYTES of it: read its first piece, unless
        the same was read lately, or one that is as long and begins so. Returns up to where it may go on.
        `changed_to`: up to where it is to be changed, and goes on in one."""
        known_by = buf[start : frame_end if frame_end <= end else start + MARK_BYTES]
        mark = hash((frame_end - start, bytes(known_by)))
        if not any(told.is_new(mark) for told in self._told):
            return frame_end
        self._mark = mark
        self._reader = SizeReader()
        self.left_bytes = frame_end - start
        return start + self.go_on(buf, start, end, now_ms, max(PIECE_BYTES, changed_to - start))

    def go_on(
        self, buf: bytearray, start: int, end: int, now_ms: float, piece_bytes: int = PIECE_BYTES
    ) -> int:
        """Read the next piece, which begins at `start`. Returns how many bytes may go on."""
        size = min(self.left_bytes, end - start, piece_bytes)
        self.left_bytes -= size
        reader = self._reader
        assert reader is not None
        try:
            reader.feed(bytes(buf[start : start + size]))
        except MalformedFrame:  # it is the broker's, and passes as it is
            self.left_bytes = 0
        for topic in reader.sizes:
            if topic.name is not None:
                for told in self._told:
                    told.learn(topic.topic_id, topic.name)
        reader.sizes.clear()
        if not self.left_bytes:  # not before: its client may leave, and others would never know the rest
            self._reader = None
            for told in self._told:
                told.was_read(self._mark)
        self._pieces.took(size, _NAMES_MS_PER_KIB, now_ms)
        return size


def has_enough_arrived(
    buf: bytearray, pos: int, end: int, frame_end: int, api_key: int, version: int, work: AnswerWork,
    request_time: RequestTime | None, *, reads_names: bool,
) -> bool:  # fmt: skip
    """Can an answer whose end has not arrived be worked on? One too large to keep goes on as it is.
    `reads_names`: a NameReader is to begin with it."""
    if request_time is not None and not request_time.can_tell(pos, end, frame_end, api_key, version):
        return False
    if reads_names and end - pos < MARK_BYTES + RESPONSE_HEAD_BYTES:
        return False
    if work in _NEEDS_NOTHING:
        return True
    if work is CLUSTER_ACTION:
        return frame_end - pos > CLUSTER_ACTION_MAX_BYTES
    if work in _BY_HEAD:
        return end - pos >= _HEAD_BYTES
    if work in _FOR_GATEWAY:
        return AddressWork.enough_arrived(buf, pos, end, frame_end, api_key, version)
    return frame_end - pos > WHOLE_MAX_BYTES
