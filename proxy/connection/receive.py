"""Reads of a connection of which something is kept already, or that may not read as much as it likes."""

from __future__ import annotations

from typing import Final

from sluice.proxy.connection.budget import WINDOW_BYTES
from sluice.proxy.connection.stream import Stream

LARGE_BYTES: Final = WINDOW_BYTES // 2
"""beyond it what is kept of a client's requests is read on in a buffer of its own"""


def kept_of(data: memoryview) -> bytes | bytearray:
    """A copy of what may not go on yet."""
    return bytearray(data) if len(data) > LARGE_BYTES else bytes(data)


def receive_behind(stream: Stream, view: memoryview, kept: bytes | None, max_bytes: int) -> tuple[int, int]:
    """Put `kept` into `view` and read up to `max_bytes` behind it. Returns where it all ends, and how much
    came.

    Raises BlockingIOError, OSError.
    """
    start = 0
    if kept is not None:
        start = len(kept)
        view[:start] = kept
    got = stream.recv_into(view[start : start + max_bytes])
    return start + got, got


def receive_large(stream: Stream, kept: bytearray, max_bytes: int) -> tuple[int, int]:
    """Likewise, but into `kept` itself, for what is too large for the shared buffer."""
    start = len(kept)
    kept.extend(bytes(max_bytes))
    got = 0
    try:
        with memoryview(kept) as whole, whole[start:] as room:
            got = stream.recv_into(room)
    finally:
        del kept[start + got :]
    return start + got, got
