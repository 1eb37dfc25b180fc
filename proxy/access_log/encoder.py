"""Rows and windows of the access log → finished files, in a thread beside the event loop's.

A few rows are taken at a time, with a pause after them, so that the loop never waits long for the
interpreter's lock. A file is for one table and one hour, and is closed after `rotate_s`.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import compress, count
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from sluice.proxy.access_log.journal import AccessJournal
from sluice.proxy.access_log.losses import AccessLosses, tell_abandoned
from sluice.proxy.access_log.sender import FinishedFile
from sluice.proxy.access_log.sinks.sink import LogFile
from sluice.proxy.runtime.supervision import keep_thread_running
from sluice.usage.access_record import ROLLUP, TABLES, WINDOW_MS, Columns
from sluice.usage.rollup import Window

if TYPE_CHECKING:
    from sluice.proxy.access_log.columns import FilePart
    from sluice.proxy.access_log.names import FileNames
    from sluice.proxy.access_log.sums import WindowSums

_HOUR_MS: Final = 3_600_000
_PIECE_ROWS: Final = 512
"""taken at once: some 0.3 ms of the interpreter's lock"""
_PAUSE_S: Final = 0.0005
"""between pieces of work; long enough for the loop's thread to take the lock"""
_WORK_S: Final = 0.0003
"""between two pauses, at least: what is done after one takes longer, for the caches are others' then"""
_TICK_S: Final = 5.0
"""longest wait with nothing to encode, after which losses are told: each wake-up of an idle machine costs"""
_CLOSING_TICK_S: Final = 0.5

_FAULT: Final = "a fault of the thread that encodes them"


@dataclass(slots=True)
class _Part:
    """A file that is being filled."""

    table: str
    hour: int
    """since 1970"""
    number: int
    cells: FilePart
    close_at_s: float
    first_ms: int
    last_ms: int
    is_noted: bool = False
    """the journal says all that is in it"""


class AccessEncoder:
    """`take` and `close` are for one other thread."""

    def __init__(
        self,
        send: Callable[[FinishedFile], None],
        journal: AccessJournal | None,
        losses: AccessLosses,
        *,
        writer_name: str,
        rotate_s: float,
        max_part_bytes: int,
        max_file_bytes: int,
    ) -> None:
        """`writer_name`: of this process alone. A file is closed early at `max_part_bytes` of memory, and cut
        if it is larger than `max_file_bytes` at last."""
        self._send = send
        self._journal = journal
        self._losses = losses
        self._writer_name = writer_name
        self._rotate_s = rotate_s
        self._max_part_bytes = max_part_bytes
        self._max_file_bytes = max_file_bytes
        self._queue: SimpleQueue[tuple[str, Columns] | Window | None] = SimpleQueue()
        self._parts: dict[tuple[str, int], _Part] = {}
        self._sums: WindowSums | None = None
        self._names: FileNames | None = None
        self._part_numbers = count(1)
        self._file_numbers = count(1)
        self._closing = threading.Event()
        self._resumed_s = 0.0
        self._in_hand: Window | None = None
        self._received_rows = 0  # taken from the queue, of tables
        self._thread = threading.Thread(target=self._run, name="access-log-encoder", daemon=True)
        self.ready = threading.Event()
        self.settled_rows = 0
        """of those that were taken or made: in a finished file, or dropped and counted"""
        self.made_rows = 0
        """of windows"""
        self.windows: deque[Window] = deque()
        """that were taken, and of which no rows have been made yet"""
        self.building_bytes = 0
        """of memory, in files that are being filled"""
        self.lost_rows = 0
        """that an earlier process of this instance had taken and did not put away"""

    def start(self) -> None:
        """Start the thread that encodes rows into files."""
        self._thread.start()

    def take(self, table: str, columns: Columns) -> None:
        """Queue rows for the thread. Never blocks."""
        self._queue.put((table, columns))

    def take_window(self, window: Window) -> None:
        """Queue a window. Never blocks. Its rows are made here, and counted then."""
        self.windows.append(window)
        self._queue.put(window)

    def close(self, give_up_s: float) -> None:
        """Finish all files; blocks until `give_up_s` (monotonic) at most."""
        self._closing.set()
        self._queue.put(None)
        if self._thread.ident is not None:
            self._thread.join(max(0.0, give_up_s - time.monotonic()))

    def _run(self) -> None:
        keep_thread_running(self._work, "access_log_encoder", self._begin_anew, self._closing)

    def _work(self) -> None:
        try:
            from sluice.proxy.access_log.columns import warm_up

            warm_up()
        finally:
            self.ready.set()
        self._begin_journal()
        self._encode_until_closed()

    def _begin_anew(self, error: Exception) -> None:
        """After a fault: nobody knows what is in the parts. Their rows and what was in hand are lost; what
        waits in the queue is not."""
        self._losses.failed(error)
        window, self._in_hand = self._in_hand, None
        if window is not None:
            if self.windows and self.windows[0] is window:
                self.windows.popleft()
                self._losses.dropped(window.count_rows(), _FAULT)
            window.index.told(window.dropped, folded=0)
        parts, self._parts = self._parts, {}
        self._sums = self._names = None
        self.building_bytes = 0
        rows = self._received_rows + self.made_rows - self.settled_rows
        if rows > 0:
            self._losses.dropped(rows, _FAULT)
            self.settled_rows += rows
        for part in parts.values():
            self._settle(part)
        self._losses.tell(at_once=True)

    def _begin_journal(self) -> None:
        if self._journal is None or self._journal.has_begun:
            return
        try:
            self._journal.begin()
            self.lost_rows = tell_abandoned(self._journal, self._losses)
        except OSError as error:
            self._losses.failed(error)

    def _encode_until_closed(self) -> None:
        while True:
            try:
                offered = self._queue.get(timeout=self._tick_s())
                self._resumed_s = time.monotonic()
            except Empty:
                if self._closing.is_set():
                    break  # the end of the queue was read before a fault
            else:
                if offered is None:
                    break
                if isinstance(offered, Window):
                    self._in_hand = offered
                    self._take_window(offered)
                else:
                    self._received_rows += len(offered[1][0])
                    self._take(*offered)
            if self._queue.empty():  # else much is noted again and again
                self._note_parts()
            now_s = time.monotonic()
            for part in list(self._parts.values()):
                if now_s >= part.close_at_s:
                    self._finish(part)
            self._losses.tell()
        for part in list(self._parts.values()):
            self._finish(part)

    def _tick_s(self) -> float:
        """How long may be waited for something to encode: until a file is to be closed."""
        if self._closing.is_set():
            return _CLOSING_TICK_S
        now_s = time.monotonic()
        due_s = min((part.close_at_s for part in self._parts.values()), default=math.inf) - now_s
        return max(0.0, min(due_s, _TICK_S))

    def _take(self, table: str, columns: Columns) -> None:
        rows = len(columns[0])
        for begin in range(0, rows, _PIECE_ROWS):
            # Nearly always all of them, and a copy would touch each.
            piece = columns
            if rows > _PIECE_ROWS:
                piece = [column[begin : begin + _PIECE_ROWS] for column in columns]
            self._add(table, piece)
            self._pause()
        self._finish_large_parts()

    def _take_window(self, window: Window) -> None:
        """Its rows, or what is lost of it, are counted before its numbers stand for others."""
        folded = 0
        try:
            if window.most_rows:
                folded = self._add_window(window)
        except Exception as error:  # the next window may be better
            self._losses.failed(error)
            self._losses.dropped(window.count_rows(), f"a window could not be added up: {error}")
        self.windows.popleft()
        for forgetful in {self._sums, self._names, *(part.cells.names for part in self._parts.values())}:
            if forgetful is not None:
                forgetful.forget(window.dropped.places)
        self._in_hand = None
        window.index.told(window.dropped, folded)
        self._finish_large_parts()

    def _add_window(self, window: Window) -> int:
        """Returns how many connections had no row of their own."""
        from sluice.proxy.access_log.sums import WindowSums

        if self._sums is None:
            self._sums = WindowSums()
        sums = self._sums.sum_up(window, self._pause)
        start_ms = window.start_unix_ms
        _partition(start_ms // _HOUR_MS)  # raises for a time that no file can have
        part = self._part(ROLLUP, start_ms // _HOUR_MS)
        part.cells.add_sums(window, sums, self._pause)
        self.made_rows += len(sums.places)
        if window.heartbeat is not None:  # in the same file: where the rows are lost it is, too
            part.cells.add(window.heartbeat)
            self.made_rows += 1
        self._has_grown(part, start_ms, start_ms)
        return sums.folded

    def _has_grown(self, part: _Part, first_ms: int, last_ms: int) -> None:
        part.first_ms = min(part.first_ms, first_ms)
        part.last_ms = max(part.last_ms, last_ms)
        part.is_noted = False
        self.building_bytes = sum(part.cells.size_bytes for part in self._parts.values())

    def _finish_large_parts(self) -> None:
        for part in list(self._parts.values()):
            if part.cells.size_bytes >= self._max_part_bytes:
                self._finish(part)

    def _pause(self) -> None:
        if not self._closing.is_set() and time.monotonic() - self._resumed_s >= _WORK_S:
            time.sleep(_PAUSE_S)
            self._resumed_s = time.monotonic()

    def _add(self, table: str, piece: Columns) -> None:
        """Rows that are not of the table are dropped, and those beside them."""
        from sluice.proxy.access_log.columns import BadRows

        done = 0
        try:
            for hour, columns in _by_hour(piece):
                part = self._part(table, hour)
                part.cells.add(columns)
                times: Any = columns[0]
                done += len(times)
                self._has_grown(part, min(times), max(times))
        except BadRows as error:
            left = len(piece[0]) - done
            self._losses.failed(error)
            self._losses.dropped(left, f"not rows of {table}: {error}")
            self.settled_rows += left

    def _part(self, table: str, hour: int) -> _Part:
        from sluice.proxy.access_log.columns import BadRows, FilePart
        from sluice.proxy.access_log.names import FileNames

        part = self._parts.get((table, hour))
        if part is None:
            if table not in TABLES:
                raise BadRows("there is no such table")
            if self._names is None or self._names.size_bytes > self._max_part_bytes // 2:
                self._names = FileNames()  # else the texts of all who ever came would be kept
            part = self._parts[table, hour] = _Part(
                table=table,
                hour=hour,
                number=next(self._part_numbers),
                cells=FilePart(table, self._names),
                close_at_s=time.monotonic() + self._rotate_s,
                first_ms=(hour + 1) * _HOUR_MS - 1,
                last_ms=hour * _HOUR_MS,
            )
        return part

    def _note_parts(self) -> None:
        if self._journal is None:
            return
        self._begin_journal()
        for part in self._parts.values():
            self._note(part)

    def _note(self, part: _Part) -> None:
        """The journal knows what is in it. If that fails it is not tried again before more has come."""
        if self._journal is None or part.is_noted or not part.cells.rows:
            return
        try:
            self._journal.took(part.number, part.table, part.cells.rows, part.first_ms, part.last_ms)
        except OSError as error:
            self._losses.failed(error)
        part.is_noted = True

    def _settle(self, part: _Part) -> None:
        if self._journal is not None:
            try:
                self._journal.settle(part.number)
            except OSError as error:
                self._losses.failed(error)

    def _finish(self, part: _Part) -> None:
        from sluice.proxy.access_log.cut_files import encoded_within

        self._note(part)  # what came last was not: the queue was not empty, or has ended
        del self._parts[part.table, part.hour]
        rows = part.cells.rows
        folder = f"{part.table}/{_partition(part.hour)}"
        begin_ms = part.first_ms // WINDOW_MS * WINDOW_MS
        files = []
        try:
            if rows:
                files = encoded_within(part.table, part.cells.finish(self._pause), self._max_file_bytes)
        except Exception as error:  # the next file may do better
            self._losses.failed(error)
            self._losses.dropped(rows, f"a file could not be encoded: {error}")
            self._settle(part)
        for index, (file_rows, data) in enumerate(files):
            file = LogFile(part.table, folder, self._name(), begin_ms, file_rows, data)
            self._send(FinishedFile(file, part.number if index == len(files) - 1 else None))
        self.settled_rows += rows
        self.building_bytes = sum(other.cells.size_bytes for other in self._parts.values())

    def _name(self) -> str:
        closed = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        return f"{self._writer_name}-{closed}-{next(self._file_numbers):06d}.parquet"


def _by_hour(piece: Columns) -> Iterator[tuple[int, Columns]]:
    """By the rows' times; nearly always one. Raises BadRows for a row without a time."""
    from sluice.proxy.access_log.columns import BadRows

    times: Any = piece[0]
    try:
        hours = {min(times) // _HOUR_MS, max(times) // _HOUR_MS}
        if len(hours) > 1:
            hours = {time_ms // _HOUR_MS for time_ms in times}
        for hour in hours:
            _partition(hour)
    except (TypeError, ValueError, OverflowError, OSError) as error:
        raise BadRows(f"no time in the first column: {error}") from None
    if len(hours) == 1:
        yield hours.pop(), piece
    for hour in sorted(hours):
        are_in_it = [time_ms // _HOUR_MS == hour for time_ms in times]
        yield hour, [list(compress(column, are_in_it)) for column in piece]


def _partition(hour: int) -> str:
    """date=YYYY-MM-DD/hour=HH of hours since 1970, UTC."""
    return datetime.fromtimestamp(hour * 3600, UTC).strftime("date=%Y-%m-%d/hour=%H")
