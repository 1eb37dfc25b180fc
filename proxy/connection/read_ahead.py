"""Requests that are read while their connection waits, so that its client's leaving comes through.

An end (FIN) stands behind what was sent before it: while a receive buffer is full, it is still on the
client's side, and the kernel knows nothing. A held request whose client has gone would then be forwarded,
though the client sends it again. What is read ahead is not judged, charged or answered before its time; but
the session is told when it came, for its client counts from then (session/arrivals.py).
Source: wire-semantics 1.6.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from sluice.proxy.connection.budget import WINDOW_BYTES
from sluice.proxy.connection.stream import Stream

AHEAD_BYTES: Final = 256 * 1024
"""of one connection at most; beyond a quarter of its user's share none"""
AHEAD_FROM_MS: Final = 100.0
"""a shorter wait is not worth two more system calls"""


class Ahead(IntEnum):
    """What came."""

    MORE = 0
    ENOUGH = 1
    END = 2


def has_room(kept: bytes | bytearray | None) -> bool:
    """Much of what was read ahead has gone on: read more."""
    return kept is None or len(kept) <= AHEAD_BYTES // 2


def read_ahead(
    stream: Stream, view: memoryview, kept: bytes | bytearray | None, window_bytes: int
) -> tuple[Ahead, bytearray | bytes | None]:
    """Read behind what is kept. Returns what came, and what is kept now. `window_bytes`: what the connection
    may read at once; less than a whole window: its user keeps much already."""
    room = AHEAD_BYTES - (0 if kept is None else len(kept))
    if room <= 0 or window_bytes < WINDOW_BYTES:
        return Ahead.ENOUGH, kept
    try:
        got = stream.recv_into(view[:room])
    except BlockingIOError:
        return Ahead.MORE, kept
    except OSError:
        return Ahead.END, kept
    if not got:
        return Ahead.END, kept
    if not isinstance(kept, bytearray):
        kept = bytearray(kept or b"")
    kept += view[:got]
    return (Ahead.MORE if got < room else Ahead.ENOUGH), kept
