"""The access log's writer: takes rows from the event loop without ever delaying it, and puts them away.

    offer() ──► queue ──► thread "encoder" ──► finished files ──► thread "sender" ──► sink
    the loop    rows,      → columns, every     bytes              may wait for        folder, S3, Kafka
                windows    minute a file                           its storage

What has not been put away is bounded, in rows before they are encoded and in bytes afterwards; beyond that
`offer` refuses, and the loss is counted and told. A sink that fails is tried again, with growing pauses, for
as long as the process lives.
"""

from __future__ import annotations

import re
import secrets
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sluice.proxy.access_log.encoder import AccessEncoder
from sluice.proxy.access_log.journal import AccessJournal
from sluice.proxy.access_log.losses import AccessLosses
from sluice.proxy.access_log.sender import AccessSender
from sluice.proxy.access_log.sinks.directory import WRITING
from sluice.proxy.access_log.sinks.make import make_sink, require_pyarrow
from sluice.proxy.access_log.sinks.sink import DirectorySettings, SinkSettings
from sluice.usage.access_record import Columns
from sluice.usage.rollup import Window

_PARTS_OF_BYTES: Final = 4
"""a file is closed early at this part of max_pending_bytes"""
_LONGEST_NAME: Final = 64


@dataclass(frozen=True, slots=True)
class AccessWriterSettings:
    """How one process writes its access log."""

    sink: SinkSettings
    instance: str
    """the proxy's name; goes into the files' names"""
    rotate_s: float = 60.0
    """how long a file is filled, at most; what a SIGKILL may lose"""
    max_pending_rows: int = 500_000
    """taken, and not yet encoded"""
    max_pending_bytes: int = 64 * 1024 * 1024
    """encoded, and not yet in the sink, and what is being filled"""
    journal_folder: Path | None = None
    """where it is noted what is not yet put away, for the next start to tell; None: in the folder of a
    directory sink, with other sinks nowhere"""


@dataclass(frozen=True, slots=True)
class AccessWriterCounters:
    """Since the start; all but the last two never fall."""

    rows_written: int
    rows_dropped: int
    """for whatever cause; those of an earlier process are not in it"""
    files_written: int
    bytes_written: int
    failures: int
    """attempts to write that failed, and what else went wrong"""
    rows_lost_by_kill: int
    """that an earlier process of this instance had taken and did not put away"""
    last_error: str
    """"" if there was none"""
    rows_pending: int
    bytes_pending: int


class AccessWriter:
    """`offer` is for one thread, the event loop's; so are `start` and `counters`."""

    def __init__(self, settings: AccessWriterSettings) -> None:
        """Raises ConfigError if pyarrow is not installed, or a folder or file of the sink cannot be used."""
        require_pyarrow()
        token = secrets.token_hex(4)
        instance = safe_name(settings.instance)
        folder = settings.journal_folder
        if folder is None and isinstance(settings.sink, DirectorySettings):
            folder = settings.sink.path / WRITING
        journal = None if folder is None else AccessJournal(folder, instance, token)
        sink = make_sink(settings.sink)
        self._settings = settings
        self._losses = AccessLosses()
        self._sender = AccessSender(sink, journal, self._losses)
        self._encoder = AccessEncoder(
            self._sender.send,
            journal,
            self._losses,
            writer_name=f"{instance}-{token}",
            rotate_s=settings.rotate_s,
            max_part_bytes=settings.max_pending_bytes // _PARTS_OF_BYTES,
            max_file_bytes=sink.max_file_bytes,
        )
        self._journal = journal
        self._is_closed = False
        self._taken_rows = 0

    @property
    def ready(self) -> threading.Event:
        """Set when pyarrow has been loaded (which holds the interpreter's lock for long), or cannot be."""
        return self._encoder.ready

    def start(self) -> None:
        """Start the threads. Best before there is traffic; `ready` tells when it does not matter any more."""
        self._encoder.start()
        self._sender.start()

    def offer(self, table: str, columns: Columns) -> bool:
        """Take rows, one at least, with the columns of access_record.TABLES in their order; they may not be
        changed afterwards.

        Never blocks. False: all dropped and counted, for there is no room, or the writer is closed.
        """
        rows = len(columns[0])
        if (
            self._is_closed
            or self._rows_pending + rows > self._settings.max_pending_rows
            or self._bytes_pending >= self._settings.max_pending_bytes
        ):
            self._losses.refused_rows += rows
            return False
        self._taken_rows += rows
        self._encoder.take(table, columns)
        return True

    def offer_window(self, window: Window) -> bool:
        """Take a window of the roll-up; otherwise as `offer`. Windows come in their order."""
        encoder = self._encoder
        has_room = not self._is_closed and self._bytes_pending < self._settings.max_pending_bytes
        if has_room:
            room = self._settings.max_pending_rows - self._rows_pending
            has_room = window.most_rows <= room or window.count_rows() <= room
        if not has_room:
            self._losses.refused_rows += window.count_rows()
            window.drop_rows()
        if not self._is_closed:
            encoder.take_window(window)
        return has_room

    def close(self, deadline_s: float) -> None:
        """Write what there is; blocks for at most `deadline_s`. What is left then is dropped and told."""
        if self._is_closed:
            return
        give_up_s = time.monotonic() + deadline_s
        self._is_closed = True
        self._sender.hurry(give_up_s)
        self._encoder.close(give_up_s)
        self._sender.close()
        left = self._rows_unsettled + sum(window.count_rows() for window in list(self._encoder.windows))
        if left:
            self._losses.dropped(left, "the proxy ended before they were encoded")
        self._losses.tell(at_once=True)
        if self._journal is not None:
            self._journal.end()

    @property
    def counters(self) -> AccessWriterCounters:
        """As of now; they may be a few rows apart."""
        return AccessWriterCounters(
            rows_written=self._sender.rows_written,
            rows_dropped=self._losses.rows,
            files_written=self._sender.files_written,
            bytes_written=self._sender.bytes_written,
            failures=self._losses.failures,
            rows_lost_by_kill=self._encoder.lost_rows,
            last_error=self._losses.last_error,
            rows_pending=self._rows_pending,
            bytes_pending=self._bytes_pending,
        )

    @property
    def _rows_pending(self) -> int:
        return self._rows_unsettled + sum(window.most_rows for window in list(self._encoder.windows))

    @property
    def _rows_unsettled(self) -> int:
        return self._taken_rows + self._encoder.made_rows - self._encoder.settled_rows

    @property
    def _bytes_pending(self) -> int:
        return self._encoder.building_bytes + self._sender.bytes_pending


def safe_name(instance: str) -> str:
    """For files' names: what else a name may hold becomes `_`; never hidden from readers, never empty."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", instance)[:_LONGEST_NAME].lstrip("._") or "proxy"
