"""Bytes that a relay passes on → what each client moved and was told to wait, second by second. Pure.

A connection belongs to the client whose id its requests carry. Counted are the Produce requests of a
producer and the Fetch answers with records of a consumer, nothing else: a heartbeat, or the empty answer that
a broker gives a throttled Fetch, must not hide a standstill. Frames are followed, not decoded; of an answer
only `throttle_time_ms` is read, which is what the client's own metrics record.
"""

from __future__ import annotations

import math
import struct
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from bench.evenness.cases import Event
from bench.lib.relay import Direction
from sluice.protocol.throttle_field import throttle_offset
from testkit.frames.load_frames import FETCH, PRODUCE

KEPT_BYTES: Final = 4096  # of each frame: all of a Produce answer, and in a Fetch answer more than the field
EMPTY_ANSWER_BYTES: Final = 512  # a Fetch answer up to this size has no records (of 1 kB)


@dataclass(slots=True)
class Lane:
    """One client: what it is, and what came of it. Times are monotonic seconds, as the relay gives them."""

    side: str
    api_key: int  # PRODUCE or FETCH
    client_id: str
    clock_zero_s: float  # second 0 of the two tables below
    events: list[Event] = field(default_factory=list)
    bytes_in_second: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    told_ms_in_second: dict[int, int] = field(default_factory=dict)  # the longest throttle_time_ms
    longest_told_ms: int = 0
    started_s: float | None = None  # when data first flowed
    has_ended: bool = False

    @property
    def direction(self) -> Direction:
        """The way that this client's data goes."""
        return Direction.UP if self.api_key == PRODUCE else Direction.DOWN

    @property
    def seconds(self) -> range:
        """From the first second with data to the last."""
        moved = self.bytes_in_second
        return range(min(moved), max(moved) + 1) if moved else range(0)

    def moved(self, at_s: float, size_bytes: int) -> None:
        """Note that data went through."""
        self.events.append((at_s, size_bytes))
        self.bytes_in_second[math.floor(at_s - self.clock_zero_s)] += size_bytes
        if self.started_s is None:
            self.started_s = at_s

    def told(self, at_s: float, throttle_ms: int) -> None:
        """An answer of this lane's api said how long to wait."""
        second = math.floor(at_s - self.clock_zero_s)
        self.told_ms_in_second[second] = max(throttle_ms, self.told_ms_in_second.get(second, 0))
        self.longest_told_ms = max(throttle_ms, self.longest_told_ms)


class WireMeter:
    """What the relay of one side tells, given to the lanes of that side."""

    def __init__(self, lanes: Sequence[Lane]) -> None:
        self._lanes = {lane.client_id: lane for lane in lanes}
        self._connections: dict[int, _Connection] = {}

    def __call__(self, connection: int, direction: Direction, at_s: float, data: memoryview) -> None:
        watched = self._connections.get(connection)
        if watched is None:
            watched = self._connections[connection] = _Connection(self._lanes)
        (watched.up if direction is Direction.UP else watched.down)(at_s, data)


class _Connection:
    def __init__(self, lanes: dict[str, Lane]) -> None:
        self._lanes = lanes
        self._lane: Lane | None = None
        self._requests = FrameFollower()
        self._answers = FrameFollower()
        self._in_flight: dict[int, tuple[int, int]] = {}  # correlation id → api key, version

    def up(self, at_s: float, data: memoryview) -> None:
        for piece in self._requests.follow(data):
            if piece.is_last:
                _, api_key, version, correlation_id, id_bytes = struct.unpack_from(">ihhih", piece.kept)
                self._in_flight[correlation_id] = api_key, version
                if self._lane is None:
                    self._lane = self._lanes.get(piece.kept[14 : 14 + max(id_bytes, 0)].decode())
            if len(piece.kept) >= 6:
                self._count(Direction.UP, struct.unpack_from(">h", piece.kept, 4)[0], at_s, piece.new_bytes)

    def down(self, at_s: float, data: memoryview) -> None:
        for piece in self._answers.follow(data):
            if len(piece.kept) < 8:
                continue
            (correlation_id,) = struct.unpack_from(">i", piece.kept, 4)
            api_key, version = self._in_flight[correlation_id]
            if api_key != FETCH or int.from_bytes(piece.kept[:4], "big") > EMPTY_ANSWER_BYTES:
                self._count(Direction.DOWN, api_key, at_s, piece.new_bytes)
            if not piece.is_last:
                continue
            del self._in_flight[correlation_id]
            if self._lane is not None and api_key == self._lane.api_key:
                offset = throttle_offset(piece.kept, 0, len(piece.kept), api_key, version)
                if offset is not None:
                    self._lane.told(at_s, struct.unpack_from(">i", piece.kept, offset)[0])

    def _count(self, direction: Direction, api_key: int, at_s: float, size_bytes: int) -> None:
        lane = self._lane
        if lane is not None and api_key == lane.api_key and direction is lane.direction:
            lane.moved(at_s, size_bytes)


@dataclass(slots=True)
class Piece:
    """What one chunk holds of one frame."""

    kept: bytearray  # the frame's first KEPT_BYTES, size field included, as far as they have come
    new_bytes: int
    is_last: bool


class FrameFollower:
    """Cuts one direction of a connection into frames, however it was split on its way."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._seen_bytes = 0

    def follow(self, data: memoryview) -> Iterator[Piece]:
        """Every frame that the chunk has bytes of, in order."""
        pos = 0
        while pos < len(data):
            begin = pos
            if self._seen_bytes < 4:
                pos += self._take(data[pos : pos + 4 - self._seen_bytes])
            left = None
            if self._seen_bytes >= 4:
                left = 4 + int.from_bytes(self._kept[:4], "big") - self._seen_bytes
                taken = self._take(data[pos : pos + left])
                left -= taken
                pos += taken
            yield Piece(self._kept, pos - begin, left == 0)
            if left == 0:
                self._kept = bytearray()
                self._seen_bytes = 0

    def _take(self, part: memoryview) -> int:
        room = KEPT_BYTES - len(self._kept)
        if room > 0:
            self._kept += part[:room]
        self._seen_bytes += len(part)
        return len(part)
