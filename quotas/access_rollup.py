"""Records → the rows of the access log's roll-up: one for each 10-second window and key that did anything.

Exact: a request counts in the window in which it finished. What is added up for each request is four numbers
in its flow's cell (access_flow.py), which already is the row; all else is done once for a cell and second, a
flow and window, or a row. Time never goes back here: what finished before the last second that was looked at
counts as of that second. Bounded: with `max_keys` rows in a window, or half as many of one user, what comes
further falls into one row of the class `other`. Knows no frames and no clock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, Final, TypeAlias

from sluice.quotas.access_flow import BEFORE, COLUMN, COSTS, SECOND, AccessFlow
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
_finished_ms = itemgetter(6)

ROWS_PER_STEP: Final = 250
"""about 0.3 ms of work, between which connections are served"""
_SECONDS: Final = WINDOW_MS // 1000
_REQUESTS: Final = COLUMN["requests"]
_REQUEST_BYTES: Final = COLUMN["request_bytes"]
_RESPONSE_BYTES: Final = COLUMN["response_bytes"]
_UPSTREAM_MS: Final = COLUMN["upstream_ms"]
_COST_MS: Final = COLUMN["request_cost_ms"]
_HELD_MS: Final = COLUMN["held_ms"]
_THROTTLE_MS: Final = COLUMN["throttle_ms"]
_CONNECTIONS: Final = COLUMN["connections"]
_OPENED: Final = COLUMN["connections_opened"]
_REFUSALS: Final = COLUMN["refusals"]
_FAILURES: Final = COLUMN["failures"]
_IDS_REFUSED: Final = COLUMN["producer_ids_refused"]
_PEAK: Final = COLUMN["peak_bytes_1s"]
_USER: Final = COLUMN["user"]
_CLIENT_ID: Final = COLUMN["client_id"]
_LIMITS_AT: Final = COLUMN["producer_byte_rate"]
_EVENT_COLUMNS: Final = {
    EventKind.HOLD: COLUMN["holds"],
    EventKind.MUTE: COLUMN["mutes"],
    EventKind.REFUSAL: _REFUSALS,
    EventKind.SHADOW: COLUMN["shadows"],
}
_ZERO: Final = {"bigint": 0, "int": 0, "double": 0.0, "string": ""}
_ZEROS: Final = tuple(_ZERO[column.type.value] for column in ROLLUP_COLUMNS[_REQUESTS:_LIMITS_AT])
_NO_LIMITS: Final[Limits] = (None,) * (len(ROLLUP_COLUMNS) - _LIMITS_AT)
_PRODUCE: Final = 0
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
        self.over: deque[list[Cell]] = deque()
        """cells of windows that are over, oldest first, in parts of ROWS_PER_STEP; `rows` makes rows of one"""
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
        self._cells: dict[tuple[str, ...], Cell] = {}
        self._of_user: dict[str, int] = {}
        self._other: Cell | None = None

    @property
    def keys(self) -> int:
        """Rows of the window so far."""
        return len(self._cells) + (self._other is not None)

    def close(self, offset_ms: float) -> None:
        """The window is over, and the next begins. `offset_ms`: Unix time less monotonic time, now.

        A wall clock that was set by less than half a window neither repeats a window nor leaves one out.
        """
        cells = list(self._cells.values())
        if self._other is not None:
            cells.append(self._other)
        for begin in range(0, len(cells), ROWS_PER_STEP):
            self.over.append(cells[begin : begin + ROWS_PER_STEP])
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
        second, turn = self._second, self._turn
        at_second, at_requests, at_upstream = SECOND, _REQUESTS, _UPSTREAM_MS
        at_request_bytes, at_response_bytes = _REQUEST_BYTES, _RESPONSE_BYTES
        for record in records:
            _, _, _, flow, request_bytes, response_bytes, _, upstream_ms, held_ms, throttle_ms, _ = record
            cell = flow.cell
            if cell[at_second] != second:
                cell = turn(record, flow, marked)
            cell[at_requests] += 1
            cell[at_request_bytes] += request_bytes
            cell[at_response_bytes] += response_bytes
            cell[at_upstream] += upstream_ms
            if throttle_ms > 0.0:
                cell[_HELD_MS] += held_ms
                cell[_THROTTLE_MS] += throttle_ms
                marked.append(record)
            elif upstream_ms >= slow_ms:
                marked.append(record)

    def add_events(self, events: Iterable[ThrottleEvent]) -> None:
        """Holds, mutes, refusals, shadows."""
        for event in events:
            flow, at = event.flow, _EVENT_COLUMNS.get(event.kind)
            if at is not None and isinstance(flow, AccessFlow):
                cell = self._cell_of(flow, event.api_key, 0)
                cell[at] += 1
                if at == _REFUSALS and event.quota == QuotaKind.PRODUCER_IDS.value:
                    cell[_IDS_REFUSED] += 1

    def add_amounts(self, amounts: Iterable[Amount]) -> None:
        """Mutations and producer ids."""
        for flow, column, amount, _ in amounts:
            if isinstance(flow, AccessFlow):
                self._cell_of(flow, _PRODUCE, 0)[COLUMN[column]] += amount

    def add_arrivals(self, arrivals: Iterable[tuple[str, float]]) -> None:
        """Connections accepted, by address."""
        for address, _ in arrivals:
            self._cell_of_address(address)[_OPENED] += 1

    def add_ends(self, ends: Iterable[ConnectionRecord]) -> None:
        """Connections that ended, or were refused."""
        for end in ends:
            if end.cause not in ORDERLY_ENDS:
                cell = self._cell_of_address(end.peer.rpartition(":")[0])
                cell[_REFUSALS if end.cause == OVER_RATE else _FAILURES] += 1

    # What is told ------------------------------------------------------------------------------------------

    def rows(self, cells: Sequence[Cell]) -> list[Row]:
        """Of cells of a window that is over; each once."""
        return [self._row(cell) for cell in cells]

    def _row(self, cell: Cell) -> Row:
        _end_second(cell)
        costs = cell[COSTS]
        if costs is not None:
            cost_ms = costs.request_ms * cell[_REQUESTS] + costs.request_byte_ms * cell[_REQUEST_BYTES]
            # Threads cannot have worked longer on them than the client waited.
            cell[_COST_MS] = min(cost_ms, cell[_UPSTREAM_MS]) + costs.response_byte_ms * cell[_RESPONSE_BYTES]
        cell[_COST_MS] = round(cell[_COST_MS] * COST_FRACTIONS) / COST_FRACTIONS
        cell[_UPSTREAM_MS] = round(cell[_UPSTREAM_MS] * FRACTIONS) / FRACTIONS
        return (*cell[:_LIMITS_AT], *self._limits_of(cell[_USER], cell[_CLIENT_ID]))

    # Within ------------------------------------------------------------------------------------------------

    def _turn(self, record: RequestRecord, flow: Flow, marked: list[RequestRecord]) -> Cell:
        """The cell of a request's flow, to which nothing was added in this second."""
        cell = flow.cell
        if cell[SECOND] < self._base:
            assert isinstance(flow, AccessFlow)
            api_key, version, _, _, request_bytes, response_bytes, _, upstream_ms, *_ = record
            cell = self._cell_of(flow, api_key, version)
            if flow.why:
                marked.append(record)
            whose = flow.parent or flow
            if whose.counted != self._base:
                whose.counted = self._base
                cell[_CONNECTIONS] += 1
            if cell[COSTS] is not None:
                flow.cell = cell
            else:
                costs = flow.origin.costs.of(api_key, version)
                one = int(api_key == _PRODUCE)
                cell[_COST_MS] += request_cost_ms(costs, request_bytes, response_bytes, upstream_ms, one, one)
        if cell[SECOND] != self._second:
            _end_second(cell)
            cell[BEFORE] = cell[_REQUEST_BYTES] + cell[_RESPONSE_BYTES]
            cell[SECOND] = self._second
        return cell

    def _cell_of(self, flow: AccessFlow, api_key: int, version: int) -> Cell:
        whose = flow.parent or flow
        is_first = whose.window != self._base
        if is_first:
            whose.window = self._base
            whose.key = whose.named_key()
        key = whose.key
        cell = self._cells.get(key)
        if cell is None:
            broker, user, client_id, api_class, topic = key
            if not self._has_room(user):
                self.keys_folded += is_first
                return self._folded()
            cell = self._cells[key] = self._new(broker, user, client_id, "", api_class, topic)
            if not whose.is_mixed:
                costs = flow.origin.costs.of(api_key, version)
                if api_key == _PRODUCE:  # a batch of one record, at least
                    costs = costs._replace(request_ms=costs.request_ms + costs.batch_ms + costs.record_ms)
                cell[COSTS] = costs
        return cell

    def _cell_of_address(self, address: str) -> Cell:
        key = (address, CONNECTION_CLASS)
        cell = self._cells.get(key)
        if cell is None:
            if not self._has_room(CONNECTION_CLASS):
                self.keys_folded += 1
                return self._folded()
            cell = self._cells[key] = self._new("", "", "", address, CONNECTION_CLASS, "")
        return cell

    def _has_room(self, user: str) -> bool:
        """For one row more; nobody fills the window alone."""
        of_user = self._of_user.get(user, 0)
        if len(self._cells) >= self._max_keys or of_user >= self._max_keys_of_user:
            return False
        self._of_user[user] = of_user + 1
        return True

    def _folded(self) -> Cell:
        if self._other is None:
            self._other = self._new("", "", "", "", OTHER_CLASS, "")
        return self._other

    def _new(self, broker: str, user: str, client_id: str, address: str, api_class: str, topic: str) -> Cell:
        return [
            self._start_unix_ms, self._proxy, broker, user, client_id, address, api_class, topic,
            *_ZEROS, *_NO_LIMITS, self._base - 1, 0, None,
        ]  # fmt: skip


def _end_second(cell: Cell) -> None:
    """The busiest second may be the one that is over."""
    busy_bytes = cell[_REQUEST_BYTES] + cell[_RESPONSE_BYTES] - cell[BEFORE]
    cell[_PEAK] = max(cell[_PEAK], busy_bytes)
