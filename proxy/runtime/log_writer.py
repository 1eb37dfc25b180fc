"""Log lines on their way to standard error: written by a thread, so that a reader that stands still holds up
nobody. A pipe that nobody reads blocks who writes to it, and whoever logs would be the event loop.
"""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Final

MOST_WAITING_BYTES: Final = 1024 * 1024
"""of lines that nobody has read yet, some thousands; the newest are dropped beyond"""


class LogWriter:
    """Whole lines, in order, to one file descriptor; for any thread. Not for a descriptor that may be closed.

    A write that fails (a reader that is gone, a full disk) drops what it was to write.
    """

    def __init__(self, descriptor: int, tell: Callable[[int], object]) -> None:
        """`tell` is called with the number of lines dropped, once lines are written again."""
        self.dropped_lines = 0
        """since the process began"""
        self._descriptor = descriptor
        self._tell = tell
        self._told_lines = 0
        self._lines: deque[bytes] = deque()
        self._waiting_bytes = 0  # of the lines, and of the one that is being written
        self._is_cut = False  # the last line stands there half, without its end
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def write(self, text: str) -> None:
        """Take one line, with its end, or drop it. Never waits for the reader."""
        line = text.encode("utf-8", "backslashreplace")
        with self._changed:
            if self._waiting_bytes + len(line) > MOST_WAITING_BYTES:
                self.dropped_lines += 1
                return
            self._lines.append(line)
            self._waiting_bytes += len(line)
            self._changed.notify_all()
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
                self._thread.start()

    def flush(self) -> None:
        """Nothing: lines are written as soon as they can be."""

    def finish(self, within_s: float) -> None:
        """Wait until all lines are written, so long at most."""
        deadline_s = monotonic() + within_s
        with self._changed:
            while self._waiting_bytes and (left_s := deadline_s - monotonic()) > 0.0:
                self._changed.wait(left_s)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._lines:
                    self._changed.wait()
                line = self._lines.popleft()
            is_written = self._write(line)
            with self._changed:
                self._waiting_bytes -= len(line)
                self.dropped_lines += not is_written
                dropped, is_last = self.dropped_lines - self._told_lines, not self._lines
                if is_written and is_last:
                    self._told_lines = self.dropped_lines
                self._changed.notify_all()
            if is_written and is_last and dropped:
                self._tell(dropped)

    def _write(self, line: bytes) -> bool:
        whole = b"\n" + line if self._is_cut else line
        rest = memoryview(whole)
        try:
            while rest:
                try:
                    rest = rest[os.write(self._descriptor, rest) :]
                except BlockingIOError:  # who else has the pipe made it so
                    waiting = select.poll()
                    waiting.register(self._descriptor, select.POLLOUT)
                    waiting.poll()
        except OSError:
            if len(rest) < len(whole):
                self._is_cut = len(rest) < len(line)
            return False
        self._is_cut = False
        return True
