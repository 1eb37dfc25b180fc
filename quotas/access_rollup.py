"""Records → the rows of the access log's roll-up: one for each 10-second window and key that did anything.

Exact: a request counts in the window in which it finished. What is added up for each request is four numbers
in its flow's cell (access_flow.py); all else is done once for a cell and second, a flow and window, or a row.
Time never goes back here: what finished before the last second that was looked at counts as of that second.
Bounded: with `max_keys` rows in a window, or half as many of one user, what comes further falls into one row
of the class `other`. Knows no frames and no clock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, Final, TypeAlias
from weakref import WeakValueDictionary

from sluice.quotas.access_flow import (
    BEFORE,
    COLUMN,
    CONNECTIONS,
    OTHERS,
    PEAK,
    PLACE,
    PRODUCE_CLASS,
    REQUEST_BYTES,
    REQUESTS,
    RESPONSE_BYTES,
    SECOND,
    UPSTREAM_MS,
    AccessFlow,
    Key,
    Place,
)
from sluice.quotas.access_record import ROLLUP_COLUMNS, WINDOW_MS
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.records import Amount, ConnectionRecord, EventKind, Flow, RequestRecord, ThrottleEvent
from sluice.quotas.request_cost import request_cost_ms

CONNECTION_CLASS: Final = "connection"
OTHER_CLASS: Final = "other"
ORDERLY_ENDS: Final = frozenset({"client_closed", "idle", "drained", "broker_moved"})
"""causes of a connection's end that are no failures"""
OVER_RATE: Final = "connection_creation_rate"
"""the cause of one that was refused because of a quota"""
Limits: TypeAlias = tuple[float | None, ...]
"""in force, in the order of the roll-up's last columns"""
Row: TypeAlias = tuple[Any, ...]
Cell: TypeAlias = list[Any]
Closed: TypeAlias = tuple[int, list[Cell]]
"""begin of a window, and some of its cells"""
_finished_ms = itemgetter(6)

ROWS_PER_STEP: Final = 250
"""about 0.3 ms of work, between which connections are served"""
_SECONDS: Final = WINDOW_MS // 1000
_EVENT_COLUMNS: Final = {
    EventKind.HOLD: COLUMN["holds"],
    EventKind.MUTE: COLUMN["mutes"],
    EventKind.REFUSAL: COLUMN["refusals"],
    EventKind.SHADOW: COLUMN["shadows"],
}
_COST_MS: Final = COLUMN["request_cost_ms"]
_HELD_MS: Final = COLUMN["held_ms"]
_THROTTLE_MS: Final = COLUMN["throttle_ms"]
_OPENED: Final = COLUMN["connections_opened"]
_REFUSALS: Final = COLUMN["refusals"]
_FAILURES: Final = COLUMN["failures"]
_IDS_REFUSED: Final = COLUMN["producer_ids_refused"]
_PEAK_AT: Final = COLUMN["peak_bytes_1s"]
_ZERO: Final = {"bigint": 0, "int": 0, "double": 0.0, "string": ""}
_ZEROS: Final = tuple(_ZERO[column.type.value] for column in ROLLUP_COLUMNS[_OPENED:_PEAK_AT])
_PRODUCE: Final = 0
_USER: Final = 1
"""in a key"""
_CLIENT_ID: Final = 2
_API_CLASS: Final = 4
_OTHER: Final = Place(("", "", "", "", OTHER_CLASS, ""))
FRACTIONS: Final = 64.0
"""of a ms, to which sums are rounded: finer ones would only be digits that do not compress"""
COST_FRACTIONS: Final = 1024.0


class Rollup:
    """One window that grows, and those that are over and wait to be told."""

    def __init__(
        self,
        proxy: str,
        limits_of: Callable[[str, str], Limits],
        *,
        now_ms: float,
        unix_ms: float,
        max_keys: int = 50_000,
    ) -> None:
        """`proxy`: this process, in each row. `limits_of`: those in force for a user and client id.

        `now_ms` (monotonic) and `unix_ms` are the same moment.
        """
        self._proxy = proxy
        self._limits_of = limits_of
        self._max_keys = max_keys
        self._max_keys_of_user = max(1, max_keys // 2)
        self._base = 0
        self._places: WeakValueDictionary[Key, Place] = WeakValueDictionary()  # of flows that live
        self.over: deque[Closed] = deque()
        """what `rows` takes: parts of windows that are over, oldest first"""
        self.keys_folded = 0
        """times that a flow, or an address, had no row of its own in a window"""
        self._begin(int(unix_ms // WINDOW_MS), unix_ms - now_ms)

    def _begin(self, window: int, offset_ms: float) -> None:
        self._start_unix_ms = window * WINDOW_MS
        self._begun_ms = self._start_unix_ms - offset_ms
        self.ends_ms = self._begun_ms + WINDOW_MS
        """when the window is over, on the monotonic clock"""
        # Seconds are numbered through, whatever becomes of the wall clock: a cell of an earlier window is
        # known by an earlier second.
        self._base += _SECONDS
        self._second = self._base
        self._cells: list[Cell] = []
        self._addresses: dict[str, Cell] = {}
        self._of_user: Counter[str] = Counter()
        self._other: Cell | None = None

    @property
    def keys(self) -> int:
        """Rows of the window so far."""
        return len(self._cells) + (self._other is not None)

    def close(self, offset_ms: float) -> None:
        """The window is over, and the next begins. `offset_ms`: Unix time less monotonic time, now.

        A wall clock that was set by less than half a window neither repeats a window nor leaves one out.
        """
        cells = self._cells
        if self._other is not None:
            cells.append(self._other)
        for begin in range(0, len(cells), ROWS_PER_STEP):
            self.over.append((self._start_unix_ms, cells[begin : begin + ROWS_PER_STEP]))
        self._begin(round((self.ends_ms + offset_ms) / WINDOW_MS), offset_ms)

    # What is added up; all of the window, or before ---------------------------------------------------------

    def add_requests(
        self, records: Sequence[RequestRecord], marked: list[RequestRecord], slow_ms: float
    ) -> None:
        """What finished, in that order. Those that want a row of their own go to `marked`: throttled, slow
        (`slow_ms` and more), or of a flow that says why."""
        begun_ms, first, count = self._begun_ms, 0, len(records)
        while first < count:
            # Nearly always one second is all there is.
            second = (records[first][6] - begun_ms) // 1000.0
            after = count
            if (records[-1][6] - begun_ms) // 1000.0 > second:
                until_ms = begun_ms + (second + 1.0) * 1000.0
                after = bisect_left(records, until_ms, first + 1, key=_finished_ms)
            number = self._base + min(max(int(second), 0), _SECONDS - 1)
            self._second = max(number, self._second)
            self._add(records[first:after] if after - first < count else records, marked, slow_ms)
            first = after

    def _add(self, records: Sequence[RequestRecord], marked: list[RequestRecord], slow_ms: float) -> None:
        second, base, enter = self._second, self._base, self._enter
        # Names of this function are found sooner than those of the module.
        at_second, at_requests, at_upstream = SECOND, REQUESTS, UPSTREAM_MS
        at_request_bytes, at_response_bytes = REQUEST_BYTES, RESPONSE_BYTES
        for record in records:
            _, _, _, flow, request_bytes, response_bytes, _, upstream_ms, held_ms, throttle_ms, _ = record
            cell = flow.cell
            if cell[at_second] != second:
                if cell[at_second] < base:
                    cell = enter(record, flow, marked)
                if cell[at_second] != second:
                    # The busiest second may be the one that is over.
                    total_bytes = cell[at_request_bytes] + cell[at_response_bytes]
                    cell[PEAK] = max(cell[PEAK], total_bytes - cell[BEFORE])
                    cell[BEFORE] = total_bytes
                    cell[at_second] = second
            cell[at_requests] += 1
            cell[at_request_bytes] += request_bytes
            cell[at_response_bytes] += response_bytes
            cell[at_upstream] += upstream_ms
            if throttle_ms > 0.0:
                others = _others(cell)
                others[_HELD_MS] = others.get(_HELD_MS, 0.0) + held_ms
                others[_THROTTLE_MS] = others.get(_THROTTLE_MS, 0.0) + throttle_ms
                marked.append(record)
            elif upstream_ms >= slow_ms:
                marked.append(record)

    def add_events(self, events: Iterable[ThrottleEvent]) -> None:
        """Holds, mutes, refusals, shadows."""
        for event in events:
            flow, at = event.flow, _EVENT_COLUMNS.get(event.kind)
            if at is not None and isinstance(flow, AccessFlow):
                others = _others(self._cell_of(flow))
                others[at] = others.get(at, 0) + 1
                if at == _REFUSALS and event.quota == QuotaKind.PRODUCER_IDS.value:
                    others[_IDS_REFUSED] = others.get(_IDS_REFUSED, 0) + 1

    def add_amounts(self, amounts: Iterable[Amount]) -> None:
        """Mutations and producer ids."""
        for flow, column, amount, _ in amounts:
            if isinstance(flow, AccessFlow):
                others, at = _others(self._cell_of(flow)), COLUMN[column]
                others[at] = others.get(at, 0) + amount

    def add_arrivals(self, arrivals: Iterable[tuple[str, float]]) -> None:
        """Connections accepted, by address."""
        for address, _ in arrivals:
            others = _others(self._cell_of_address(address))
            others[_OPENED] = others.get(_OPENED, 0) + 1

    def add_ends(self, ends: Iterable[ConnectionRecord]) -> None:
        """Connections that ended, or were refused."""
        for end in ends:
            if end.cause not in ORDERLY_ENDS:
                others = _others(self._cell_of_address(end.peer.rpartition(":")[0]))
                at = _REFUSALS if end.cause == OVER_RATE else _FAILURES
                others[at] = others.get(at, 0) + 1

    # What is told ------------------------------------------------------------------------------------------

    def rows(self, closed: Closed) -> list[Row]:
        """Of a window that is over; each once."""
        start_unix_ms, cells = closed
        return [self._row(start_unix_ms, cell) for cell in cells]

    def _row(self, start_unix_ms: int, cell: Cell) -> Row:
        (
            requests, request_bytes, response_bytes, upstream_ms, _, before_bytes, peak_bytes, connections,
            place, others,
        ) = cell  # fmt: skip
        key, costs = place.key, place.costs
        cost_ms = held_ms = throttle_ms = 0.0
        if costs is not None:
            each_ms = costs.request_ms
            if key[_API_CLASS] == PRODUCE_CLASS:  # a batch of one record, at least
                each_ms += costs.batch_ms + costs.record_ms
            # Threads cannot have worked longer on them than the client waited.
            cost_ms = min(each_ms * requests + costs.request_byte_ms * request_bytes, upstream_ms)
            cost_ms += costs.response_byte_ms * response_bytes
        rest = _ZEROS
        if others is not None:
            cost_ms += others.get(_COST_MS, 0.0)
            held_ms = others.get(_HELD_MS, 0.0)
            throttle_ms = others.get(_THROTTLE_MS, 0.0)
            rest = tuple(others.get(_OPENED + at, zero) for at, zero in enumerate(_ZEROS))
        busy_bytes = request_bytes + response_bytes - before_bytes
        return (
            start_unix_ms, self._proxy, *key, requests, request_bytes, response_bytes,
            round(upstream_ms * FRACTIONS) / FRACTIONS, round(cost_ms * COST_FRACTIONS) / COST_FRACTIONS,
            held_ms, throttle_ms, connections, *rest, max(peak_bytes, busy_bytes),
            *self._limits_of(key[_USER], key[_CLIENT_ID]),
        )  # fmt: skip

    # Within ------------------------------------------------------------------------------------------------

    def _enter(self, record: RequestRecord, flow: Flow, marked: list[RequestRecord]) -> Cell:
        """The cell of a request's flow, of which nothing was added up in this window, or which must ask."""
        assert isinstance(flow, AccessFlow)
        api_key, version, _, _, request_bytes, response_bytes, _, upstream_ms, *_ = record
        cell = self._cell_of(flow)
        if flow.why:
            marked.append(record)
        whose = flow.parent or flow
        if whose.counted != self._base:
            whose.counted = self._base
            cell[CONNECTIONS] += 1
        place = cell[PLACE]
        if whose.is_mixed or place is _OTHER:
            costs = flow.origin.costs.of(api_key, version)
            one = int(api_key == _PRODUCE)
            others = _others(cell)
            others[_COST_MS] = others.get(_COST_MS, 0.0) + request_cost_ms(
                costs, request_bytes, response_bytes, upstream_ms, one, one
            )
        else:
            flow.cell = cell
            if place.costs is None:
                place.costs = flow.origin.costs.of(api_key, version)
        return cell

    def _cell_of(self, flow: AccessFlow) -> Cell:
        whose = flow.parent or flow
        place = whose.place
        if place is None or whose.topic_id:
            key = whose.named_key()
            place = self._places.get(key)
            if place is None:
                place = self._places[key] = Place(key)
            whose.place = place
        if place.window == self._base:
            return place.cell
        if self._has_room(place.key[_USER]):
            place.window = self._base
            place.cell = self._new(place)
            self._cells.append(place.cell)
            return place.cell
        self.keys_folded += whose.counted != self._base
        return self._folded()

    def _cell_of_address(self, address: str) -> Cell:
        cell = self._addresses.get(address)
        if cell is None:
            if not self._has_room(""):
                self.keys_folded += 1
                return self._folded()
            cell = self._new(Place(("", "", "", address, CONNECTION_CLASS, "")))
            self._addresses[address] = cell
            self._cells.append(cell)
        return cell

    def _has_room(self, user: str) -> bool:
        """For one row more; nobody fills the window alone. Until half of it is full, nobody can have."""
        count = len(self._cells)
        if count < self._max_keys_of_user:
            return True
        of_user = self._of_user
        if not of_user:
            of_user.update(Counter(cell[PLACE].key[_USER] for cell in self._cells))
        if count >= self._max_keys or of_user[user] >= self._max_keys_of_user:
            return False
        of_user[user] += 1
        return True

    def _folded(self) -> Cell:
        if self._other is None:
            self._other = self._new(_OTHER)
        return self._other

    def _new(self, place: Place) -> Cell:
        return [0, 0, 0, 0.0, self._second, 0, 0, 0, place, None]


def _others(cell: Cell) -> dict[int, float]:
    """The cell's other numbers, to be added to."""
    others: dict[int, float] | None = cell[OTHERS]
    if others is None:
        others = cell[OTHERS] = {}
    return others
