"""Ctrl-C, SIGTERM and a closed terminal → one exception, and never while something is being started or ended.

Python's own KeyboardInterrupt may come between the start of a process and the line that will end it.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final, Self

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """The user wants it to end. Not an Exception: nothing that expects errors may swallow it."""


class Interrupts:
    """While this is entered, the first of the signals raises Interrupted in the main thread, others nothing.

    A signal that was ignored before (nohup, a job in the background) stays ignored.
    """

    def __init__(self) -> None:
        self.signal_number: int | None = None
        self._deferrals = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._arrived)
        return self

    def __exit__(self, *_exc_info: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Raises Interrupted if a signal has come. For code that runs deferred and can end here."""
        if self.signal_number is not None:
            raise Interrupted

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Runs the block to its end; a signal that came meanwhile raises Interrupted behind it."""
        self._deferrals += 1
        try:
            yield
        finally:
            self._deferrals -= 1
        if not self._deferrals:
            self.check()

    def hold(self) -> None:
        """From here on no signal raises anything: cleaning up must come to its end."""
        self._deferrals += 1

    def _arrived(self, number: int, _frame: FrameType | None) -> None:
        if self.signal_number is None:
            self.signal_number = number
            if not self._deferrals:
                raise Interrupted
