"""From one socket to another through a kernel pipe, without a look at the bytes and without copying them.

Of a large frame the session needs the beginning; the rest goes on as it is. Read into a buffer and sent from
it, each byte is copied twice; splice(2) moves the kernel's own pages instead, which takes 0.6 of the CPU time
per byte of a relay with a buffer of 1 MiB (docs/decisions.md). For plain TCP alone: behind TLS there is
nothing to be moved.
"""

from __future__ import annotations

import errno
import fcntl
import os
from typing import Final

_PIPE_BYTES: Final = 1024 * 1024
"""what an unprivileged process may ask for (fs.pipe-max-size); 64 KiB, a pipe's own size, moves no faster
than a buffer copies"""
_FLAGS: Final = 3  # SPLICE_F_MOVE | SPLICE_F_NONBLOCK, which Python names on Linux alone
TRY_AGAIN_AFTER: Final = 100
"""large frames, or reads of them: a pipe that could not be had is asked for again then, for who asks in vain
reads the frame's next bytes in small pieces"""
_UNSUPPORTED: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})


class KernelPipe:
    """The pipe of one event loop. Empty between calls, so that all connections can share it."""

    __slots__ = ("_reader", "_skips", "_writer", "is_usable")

    def __init__(self) -> None:
        self.is_usable = hasattr(os, "splice")
        """False: the kernel has not this way; bytes are to be read and sent"""
        self._reader = self._writer = -1  # made for the first large frame: most workers of tests see none
        self._skips = 0  # so often it is not worth a try

    def is_worth_a_try(self) -> bool:
        """Ask before a large frame, or what is left of it. False: read and send it."""
        if self._skips:
            self._skips -= 1
            return False
        return self.is_usable

    def _open(self) -> bool:
        if not self.is_usable or self._skips:
            return False
        try:
            self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            fcntl.fcntl(self._writer, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        except OSError:  # no file descriptors are left now, or this user has many pipes already
            self._close_ends()
            self._skips = TRY_AGAIN_AFTER
            return False
        return True

    def move(self, source: int, target: int, max_bytes: int) -> tuple[int, bytes]:
        """Move what has come at `source`, and `target` takes, file descriptors of non-blocking TCP sockets.

        Returns how many bytes were taken from `source` (0: it has ended, or there is no such way) and those
        of them that `target` did not take: its buffer is full, or it is gone, which the next send tells.
        Raises BlockingIOError when nothing has come, OSError when `source` was reset.
        """
        if self._reader < 0 and not self._open():
            return 0, b""
        try:
            taken = os.splice(source, self._writer, max_bytes, flags=_FLAGS)
        except OSError as error:
            if error.errno in _UNSUPPORTED:
                self.close()
                return 0, b""
            raise
        left = taken
        try:
            while left:
                left -= os.splice(self._reader, target, left, flags=_FLAGS)
        except OSError:
            return taken, self._rest(left)
        return taken, b""

    def _rest(self, size: int) -> bytes:
        rest = os.read(self._reader, size)
        while len(rest) < size:
            rest += os.read(self._reader, size - len(rest))
        return rest

    def close(self) -> None:
        """No more is moved; harmless when closed already."""
        self.is_usable = False
        self._close_ends()

    def _close_ends(self) -> None:
        if self._reader >= 0:
            os.close(self._reader)
            os.close(self._writer)
            self._reader = self._writer = -1
