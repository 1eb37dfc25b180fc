"""Records → the windows of the access log's roll-up: columns of numbers that another thread adds up.

Exact: a request counts in the window in which it finished. On the event loop a request costs no more than
its numbers' way into packed columns; rows are made of them beside it (proxy/access_log/sums.py). What is
rare is added up here: holds, refusals, producer ids, mutations, connections.
Time never goes back here: what finished before the last second that was looked at counts as of that second.
Bounded: with `max_keys` rows in a window, or half as many of one user, what comes further falls into one row
of the class `other`; some are kept for users with few (index.py). Knows no frames and no clock.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from math import hypot
from typing import Final, NamedTuple, Protocol, TypeAlias

from sluice.quotas.kinds import QuotaKind
from sluice.usage.access_record import WINDOW_MS, Columns
from sluice.usage.flow import PRODUCE_CLASS, REFUSED, AccessFlow, Place
from sluice.usage.index import OTHER, AccessIndex, Dropped
from sluice.usage.records import (
    ASK,
    Amount,
    ConnectionRecord,
    EventKind,
    Flow,
    RequestRecord,
    ThrottleEvent,
    finished_ms_of,
)
from sluice.usage.tallies import Counting

CONNECTION_CLASS: Final = "connection"
ORDERLY_ENDS: Final = frozenset({"client_closed", "idle", "drained", "broker_moved"})
"""causes of a connection's end that are no failures"""
OVER_RATE: Final = "connection_creation_rate"
"""the cause of one that was refused because of a quota"""
OPENED: Final = "connections_opened"
HOLDS: Final = "holds"
MUTES: Final = "mutes"
REFUSALS: Final = "refusals"
FAILURES: Final = "failures"
IDS_REFUSED: Final = "producer_ids_refused"
ID_HOLDS: Final = "producer_id_holds"
REQUEST_MUTES: Final = "request_mutes"
REQUEST_THROTTLE_MS: Final = "request_throttle_ms"
Limits: TypeAlias = tuple[float | None, ...]
"""in force, in the order of LIMIT_KEYS"""

_NUDGE_MS: Final = WINDOW_MS / 100
"""by so much at most a window is longer or shorter, for windows to begin at multiples of 10 s again"""
_MOST_AHEAD_MS: Final = 600_000
"""of the wall clock; one that is set back further was wrong before"""
_SECONDS: Final = WINDOW_MS // 1000 + 1
"""the last one has `_NUDGE_MS`"""
_EVENT_COLUMNS: Final = {
    EventKind.HOLD: HOLDS,
    EventKind.MUTE: MUTES,
    EventKind.REFUSAL: REFUSALS,
    EventKind.SHADOW: "shadows",
}
_REQUEST: Final = QuotaKind.REQUEST.value
_PRODUCER_IDS: Final = QuotaKind.PRODUCER_IDS.value
_TOLD_APART: Final = frozenset({_REQUEST, _PRODUCER_IDS})
"""quotas whose events have columns of their own: a row's class does not tell that they are for these"""


class LimitsOf(Protocol):
    """The limits of some time; for any thread."""

    def __call__(self, user: str, client_id: str) -> Limits: ...

    def bucket_of(self, user: str, client_id: str, api_class: str) -> Hashable | None:
        """Whose byte rate counts requests of this class; None: nobody's."""


class Chunk(NamedTuple):
    """Requests that finished in one second, column by column: packed numbers."""

    second: int
    """of the window"""
    requests: int
    """numbers in each column"""
    flows: bytes
    """uint32: AccessIndex has what they stand for"""
    request_bytes: bytes
    """uint32, as are the next"""
    response_bytes: bytes
    upstream_ms: bytes
    """doubles, as are the next"""
    held_ms: bytes
    """empty: all zero"""
    throttle_ms: bytes
    """empty: all zero"""


@dataclass(slots=True, eq=False)
class Window:
    """A window that is over, to be told once; then `index.told(dropped, …)`, in the windows' order."""

    start_unix_ms: int
    proxy: str
    chunks: list[Chunk]
    others: dict[int, dict[str, float]]
    """the number of a place → the roll-up's column → what is rare, added up"""
    index: AccessIndex
    dropped: Dropped
    limits_of: LimitsOf
    """those in force at its end"""
    max_keys: int
    heartbeat: Columns | None = None
    """a row of the roll-up that is written with its rows, and lost with them; None: it has none"""

    @property
    def requests(self) -> int:
        """Requests in its columns."""
        return sum(chunk.requests for chunk in self.chunks)

    @property
    def most_rows(self) -> int:
        """It has no more; told without looking at its columns."""
        return min(self.requests + len(self.others), self.max_keys + 1)

    def drop_rows(self) -> None:
        """None of it will be told but that it is over."""
        self.chunks, self.others = [], {}

    def count_rows(self) -> int:
        """It has so many, unless some are folded into one. Takes some 50 ns a request."""
        flows: set[int] = set()
        for chunk in self.chunks:
            flows.update(memoryview(chunk.flows).cast("I"))
        place_of = memoryview(self.index.columns()[0]).cast("i")
        return min(len({place_of[flow] for flow in flows} | self.others.keys()), self.max_keys + 1)


class Rollup:
    """One window that grows, and those that are over and wait to be told."""

    def __init__(
        self,
        proxy: str,
        limits_now: Callable[[], LimitsOf],
        *,
        now_ms: float,
        unix_ms: float,
        max_keys: int = 50_000,
        counting: Counting | None = None,
    ) -> None:
        """`proxy`: this process, in each row. `limits_now`: asked at each window's end. `counting`: compiled;
        None: it is not there.

        `now_ms` (monotonic) and `unix_ms` are the same moment.
        """
        self._proxy = proxy
        self._limits_now = limits_now
        self._max_keys = max_keys
        self._counting = counting
        self._index = AccessIndex(max_keys)
        self.over: deque[Window] = deque()
        """what was added up, oldest first"""
        self.ended: deque[int] = deque()
        """begins of windows that are over, of empty ones too: Unix ms"""
        self._addresses_folded = 0
        window = int(unix_ms // WINDOW_MS)
        self._begin(window, window * WINDOW_MS - (unix_ms - now_ms), WINDOW_MS)

    def _begin(self, window: int, begun_ms: float, lasts_ms: float) -> None:
        self._start_unix_ms = window * WINDOW_MS
        self._begun_ms = begun_ms
        self.ends_ms = begun_ms + lasts_ms
        """when the window is over, on the monotonic clock"""
        self._second = 0
        self._chunks: list[Chunk] = []
        self._others: dict[int, dict[str, float]] = {}
        self._addresses: dict[str, Place] = {}

    @property
    def keys_folded(self) -> int:
        """Times that a flow, or an address, had no row of its own in a window."""
        return self._index.folded + self._addresses_folded

    def close(self, offset_ms: float) -> None:
        """The window is over, and the next begins. `offset_ms`: Unix time less monotonic time, now.

        It begins where this one ends, and lasts as long, whatever the wall clock was set to: else it would
        have the bytes of more than its time. Where the clock was set back, the next number is the next all
        the same, and windows get longer until it has caught up; set back very far, it is followed.
        """
        if self._chunks or self._others:
            self._addresses.clear()  # their numbers go with this window
            self.over.append(Window(
                self._start_unix_ms, self._proxy, self._chunks, self._others, self._index,
                self._index.next_window(), self._limits_now(), self._max_keys,
            ))  # fmt: skip
        self.ended.append(self._start_unix_ms)
        unix_ms = self.ends_ms + offset_ms
        after_ms = self._start_unix_ms + WINDOW_MS
        window = round((after_ms if 0.0 < after_ms - unix_ms <= _MOST_AHEAD_MS else unix_ms) / WINDOW_MS)
        ahead_ms = window * WINDOW_MS - unix_ms
        self._begin(window, self.ends_ms, WINDOW_MS + max(-_NUDGE_MS, min(ahead_ms, _NUDGE_MS)))

    # What is added up; all of the window, or before ---------------------------------------------------------

    def add_requests(self, records: list[RequestRecord], slow_ms: float) -> list[RequestRecord]:
        """What finished, in that order. Returns those that want a row of their own: throttled, slow
        (`slow_ms` and more), or of a flow that says why."""
        marked: list[RequestRecord] = []
        begun_ms, first, count = self._begun_ms, 0, len(records)
        while first < count:
            # Nearly always one second is all there is.
            second = (finished_ms_of(records[first]) - begun_ms) // 1000.0
            after = count
            if (finished_ms_of(records[-1]) - begun_ms) // 1000.0 > second:
                until_ms = begun_ms + (second + 1.0) * 1000.0
                after = bisect_left(records, until_ms, first + 1, key=finished_ms_of)
            self._second = max(self._second, min(int(second), _SECONDS - 1))
            self._add(records[first:after] if after - first < count else records, marked, slow_ms)
            first = after
        return marked

    def _add(self, records: list[RequestRecord], marked: list[RequestRecord], slow_ms: float) -> None:
        count = len(records)
        packed = None if self._counting is None else self._counting.pack(records, slow_ms)
        if packed is not None:
            self._chunks.append(Chunk(self._second, count, *packed, b"", b""))
            return
        # Made one by one, and no more of them than are wanted: the others would be 0.04 µs a request.
        columns = zip(*records, strict=False)  # records are all as long
        flows, request_bytes, response_bytes, upstream_ms, throttle_ms = islice(columns, 5)
        # Not struct.pack with a format before the numbers, for that copies them twice.
        unsigned, doubles = struct.Struct(f"{count}I").pack, struct.Struct(f"{count}d").pack
        is_any_marked = False
        numbers = [flow.number for flow in flows]
        passed_bytes: Sequence[int] = request_bytes
        try:
            packed_numbers = unsigned(*numbers)
        except struct.error:  # some flow must be asked: its number is below 0
            passed_bytes = list(request_bytes)
            is_any_marked = self._ask(records, numbers, passed_bytes)
            packed_numbers = unsigned(*numbers)
        packed_held_ms = packed_throttle_ms = b""
        if any(throttle_ms):  # it is held_ms at least
            packed_held_ms, packed_throttle_ms = doubles(*next(columns)), doubles(*throttle_ms)
            is_any_marked = True
        # √(a² + b² + …), but for its rounding, is no less than the largest of them, and costs half of `max`.
        if is_any_marked or hypot(*upstream_ms) >= 0.999 * slow_ms:
            marked += [
                record for record in records if record[4] > 0.0 or record[3] >= slow_ms or _why(record[0])
            ]
        self._chunks.append(Chunk(
            self._second, count, packed_numbers, unsigned(*passed_bytes), unsigned(*response_bytes),
            doubles(*upstream_ms), packed_held_ms, packed_throttle_ms,
        ))  # fmt: skip

    def add_events(self, events: Iterable[ThrottleEvent]) -> None:
        """Holds, mutes, refusals, shadows; and of those not for bytes or mutations, for which limit."""
        for event in events:
            flow, column = event.flow, _EVENT_COLUMNS.get(event.kind)
            if column is not None and isinstance(flow, AccessFlow):
                others = self._others_of(flow)
                others[column] = others.get(column, 0) + 1  # _add_to without its call
                if event.quota in _TOLD_APART:
                    _tell_apart(others, event, column)

    def add_amounts(self, amounts: Iterable[Amount]) -> None:
        """Mutations and producer ids."""
        for flow, column, amount, _ in amounts:
            if isinstance(flow, AccessFlow):
                _add_to(self._others_of(flow), column, amount)

    def add_arrivals(self, arrivals: Iterable[tuple[str, float]]) -> None:
        """Connections accepted, by address."""
        for address, _ in arrivals:
            _add_to(self._others_of_address(address), OPENED)

    def add_ends(self, ends: Iterable[ConnectionRecord]) -> None:
        """Connections that ended, or were refused."""
        for end in ends:
            if end.cause not in ORDERLY_ENDS:
                others = self._others_of_address(end.peer.rpartition(":")[0])
                _add_to(others, REFUSALS if end.cause == OVER_RATE else FAILURES)

    # Within ------------------------------------------------------------------------------------------------

    def _ask(self, records: Sequence[RequestRecord], numbers: list[int], passed_bytes: list[int]) -> bool:
        """For the numbers that are not there. Does any of these flows say why? Of a Produce that was refused
        no byte has passed."""
        does_any = False
        row = -1
        for _ in range(numbers.count(ASK)):
            row = numbers.index(ASK, row + 1)
            flow, *_, api_key, version, _, _ = records[row]
            assert isinstance(flow, AccessFlow)
            numbers[row] = self._index.number(flow, api_key, version)
            does_any = does_any or bool(flow.why)  # one that does is asked each time
            if flow.why == REFUSED and flow.api_class == PRODUCE_CLASS:
                passed_bytes[row] = 0
        return does_any

    def _others_of(self, flow: AccessFlow) -> dict[str, float]:
        return self._others.setdefault(self._index.place(flow).number, {})

    def _others_of_address(self, address: str) -> dict[str, float]:
        place = self._addresses.get(address)
        number = OTHER
        if place is not None:
            number = place.number
        elif len(self._addresses) < self._max_keys:
            place = self._index.new_place(("", "", "", address, CONNECTION_CLASS, ""))
            self._addresses[address] = place
            number = place.number
        else:
            self._addresses_folded += 1
        return self._others.setdefault(number, {})


def _why(flow: Flow) -> str:
    return flow.why if isinstance(flow, AccessFlow) else ""


def _tell_apart(others: dict[str, float], event: ThrottleEvent, column: str) -> None:
    """For which limit it was; `column` counts it whatever the limit."""
    if event.quota == _REQUEST:
        if column == MUTES:
            _add_to(others, REQUEST_MUTES)
            # Charged when it is answered, so that no record has its time.
            _add_to(others, REQUEST_THROTTLE_MS, event.delay_ms)
    elif column == REFUSALS:
        _add_to(others, IDS_REFUSED)
    elif column == HOLDS:
        _add_to(others, ID_HOLDS)


def _add_to(others: dict[str, float], column: str, amount: float = 1) -> None:
    others[column] = others.get(column, 0) + amount
