"""Calls at equal intervals in the poller's loop, to the microsecond. Source: timerfd_create(2).

An epoll wait's own time-out is in whole milliseconds, and Python has timerfd from 3.13 on.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable
from typing import Final

from bench.lib.poller import Poller

_CLOCK_MONOTONIC: Final = 1
_TFD_NONBLOCK: Final = 0o4000


class _Timespec(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("it_interval", _Timespec), ("it_value", _Timespec))


class Ticker:
    """`call`, so many times a second; what the loop was late for is made up for."""

    def __init__(self, poller: Poller, per_s: float, call: Callable[[], None]) -> None:
        self._poller = poller
        self._call = call
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd: int = libc.timerfd_create(_CLOCK_MONOTONIC, _TFD_NONBLOCK)
        interval = _Timespec(*divmod(round(1e9 / per_s), 10**9))
        spec = _Itimerspec(interval, interval)
        if self._fd < 0 or libc.timerfd_settime(self._fd, 0, ctypes.byref(spec), None):
            raise OSError(ctypes.get_errno(), "timerfd")
        poller.add(self._fd, self._due)

    def close(self) -> None:
        """No call follows. May be called twice."""
        if self._fd >= 0:
            self._poller.remove(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _due(self) -> None:
        with contextlib.suppress(BlockingIOError):
            for _ in range(int.from_bytes(os.read(self._fd, 8), "little")):
                self._call()
