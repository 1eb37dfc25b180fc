"""Rows of the access log that are lost, and writes that fail: counted by all threads, told now and then."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from typing import Final

from sluice.proxy.access_log.journal import AccessJournal
from sluice.proxy.runtime.log import get_logger
from sluice.usage.access_record import WINDOW_MS

TELL_EVERY_S: Final = 10.0

_log = get_logger()


class AccessLosses:
    """The counts of one process, for all its threads."""

    def __init__(self) -> None:
        self.refused_rows = 0
        """that there was no room for; raised by the event loop's thread alone, which so needs no lock"""
        self.failures = 0
        self.last_error = ""
        self._lock = threading.Lock()
        self._dropped_rows = 0
        self._reason = ""
        self._told_rows = 0
        self._told_failures = 0
        self._tell_at_s = 0.0

    @property
    def rows(self) -> int:
        """Dropped, for whatever cause."""
        return self._dropped_rows + self.refused_rows

    def dropped(self, rows: int, reason: str) -> None:
        """Rows that were taken, and will not be written."""
        with self._lock:
            self._dropped_rows += rows
            self._reason = reason

    def failed(self, error: BaseException) -> None:
        """A write, or what belongs to it; the same is tried again, or its rows are dropped besides."""
        with self._lock:
            self.last_error = described(error)  # first: who sees the count finds the words
            self.failures += 1

    def tell(self, *, at_once: bool = False) -> None:
        """A line for what came since the last one, at most every TELL_EVERY_S unless `at_once`."""
        now_s = time.monotonic()
        if now_s < self._tell_at_s and not at_once:
            return
        with self._lock:
            rows, failures, reason = self.rows, self.failures, self._reason or "there was no room"
            new_rows, new_failures = rows - self._told_rows, failures - self._told_failures
            self._told_rows, self._told_failures, self._reason = rows, failures, ""
        if new_failures:
            _log.warning("access_log_failing", failures=new_failures, reason=self.last_error)
        if new_rows:
            _log.error("access_log_rows_dropped", rows=new_rows, rows_in_all=rows, reason=reason)
        if new_rows or new_failures:
            self._tell_at_s = now_s + TELL_EVERY_S


def described(error: BaseException) -> str:
    """One line, which names no secret: neither Arrow's errors nor Kafka's quote what was sent."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


def tell_abandoned(journal: AccessJournal, losses: AccessLosses) -> int:
    """Tell what dead processes of this instance had taken and not put away; remove their leavings.

    Returns the rows. A file that was being written has no table of contents: it is of no use. Raises OSError.
    """
    lost = 0
    for token, parts in journal.abandoned(losses.failed):
        removed = 0
        for path in journal.folder.glob(f"{journal.instance}-{token}-*.part"):
            try:
                path.unlink(missing_ok=True)
                removed += 1
            except OSError as error:  # as of a journal: it keeps no other from being told
                losses.failed(error)
        rows = sum(part.rows for part in parts)
        lost += rows
        if parts:
            _log.warning(
                "access_log_lost",
                rows=rows,
                windows_from=_shown(min(part.first_ms for part in parts)),
                windows_until=_shown(
                    max(part.last_ms for part in parts) // WINDOW_MS * WINDOW_MS + WINDOW_MS
                ),
                tables=sorted({part.table for part in parts}),
                unfinished_files_removed=removed,
                reason="an earlier process ended without writing them; what it had not handed over yet "
                f"(up to {WINDOW_MS // 1000} s) is lost besides",
            )
        elif removed:
            _log.warning("access_log_unfinished_removed", files=removed)
    return lost


def _shown(unix_ms: int) -> str:
    return datetime.fromtimestamp(unix_ms / 1000.0, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
