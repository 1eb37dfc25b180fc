"""Finished files of the access log → the sink, in their order, by a thread that may wait for it."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Final

from sluice.proxy.access_log.journal import AccessJournal
from sluice.proxy.access_log.losses import AccessLosses, described
from sluice.proxy.access_log.sinks.sink import LogFile, Sink, SinkRefuses
from sluice.proxy.runtime.log import get_logger
from sluice.proxy.runtime.supervision import keep_thread_running

FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 30.0
_HURRIED_PAUSE_S: Final = 0.2

_log = get_logger()


@dataclass(frozen=True, slots=True)
class FinishedFile:
    """One to be written."""

    file: LogFile
    settles: int | None
    """the part of which it is the last file; None: another follows"""


class AccessSender:
    """`send` is for one other thread."""

    def __init__(self, sink: Sink, journal: AccessJournal | None, losses: AccessLosses) -> None:
        self._sink = sink
        self._journal = journal
        self._losses = losses
        self._queue: SimpleQueue[FinishedFile | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="access-log-sender", daemon=True)
        self._in_hand: LogFile | None = None
        self._has_ended = False
        self._hurried = threading.Event()
        self._give_up_s = float("inf")
        self._given_bytes = 0
        self._done_bytes = 0
        self._given_rows = 0
        self._done_rows = 0
        self.rows_written = 0
        self.files_written = 0
        self.bytes_written = 0

    @property
    def bytes_pending(self) -> int:
        """Given to `send`, and neither written nor dropped."""
        return self._given_bytes - self._done_bytes

    def start(self) -> None:
        """Start the thread that sends finished files."""
        self._thread.start()

    def send(self, finished: FinishedFile) -> None:
        """Hand over a finished file; never blocks."""
        self._given_bytes += len(finished.file.data)
        self._given_rows += finished.file.rows
        self._queue.put(finished)

    def hurry(self, give_up_s: float) -> None:
        """From now on pauses are short, and nothing is begun after `give_up_s` (monotonic)."""
        self._give_up_s = give_up_s
        self._hurried.set()

    def close(self) -> None:
        """After `hurry`: returns when all is written, or at `give_up_s`; what is left is dropped."""
        self._queue.put(None)
        if self._thread.ident is not None:
            self._thread.join(max(0.0, self._give_up_s - time.monotonic()))
        rows, in_hand = self._given_rows - self._done_rows, self._in_hand
        if rows:
            reason = "the proxy ended before the sink took them"
            if in_hand is not None and self._thread.is_alive():  # nobody can call it back
                reason += f"; {in_hand.rows} of them were being written, and may be there"
            self._losses.dropped(rows, reason)

    def _run(self) -> None:
        keep_thread_running(self._work, "access_log_sender", self._begin_anew, self._hurried)

    def _begin_anew(self, error: Exception) -> None:
        """After a fault: the file in hand is lost, unless it was written."""
        self._losses.failed(error)
        file, self._in_hand = self._in_hand, None
        if file is not None:
            self._done_bytes += len(file.data)
            self._done_rows += file.rows
            self._losses.dropped(file.rows, f"a fault of the thread that writes them: {described(error)}")
        self._losses.tell(at_once=True)

    def _work(self) -> None:
        while not self._has_ended and (finished := self._queue.get()) is not None:
            self._in_hand = finished.file
            if not self._write(finished.file):
                return
            self._in_hand = None
            self._done_bytes += len(finished.file.data)
            self._done_rows += finished.file.rows
            if finished.settles is not None and self._journal is not None:
                try:
                    self._journal.settle(finished.settles)
                except OSError as error:
                    self._losses.failed(error)
        self._has_ended = True
        self._sink.close()

    def _write(self, file: LogFile) -> bool:
        """False: given up, the process is ending."""
        pause_s = FIRST_PAUSE_S
        failing_since_s: float | None = None
        while time.monotonic() < self._give_up_s:
            try:
                self._sink.write(file)
            except SinkRefuses as error:
                self._losses.failed(error)
                self._losses.dropped(file.rows, described(error))
                return True
            except Exception as error:  # whatever a storage's library raises, the next try may go well
                self._losses.failed(error)
                self._losses.tell()
                failing_since_s = failing_since_s or time.monotonic()
            else:
                if failing_since_s is not None:
                    failed_s = round(time.monotonic() - failing_since_s, 1)
                    _log.info("access_log_writes_again", failed_for_s=failed_s)
                self.rows_written += file.rows
                self.files_written += 1
                self.bytes_written += len(file.data)
                return True
            if self._hurried.wait(pause_s):
                time.sleep(_HURRIED_PAUSE_S)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
        return False
