"""Requests that are read while their connection waits, so that its client's leaving comes through.

An end (FIN) stands behind what was sent before it: while a receive buffer is full, it is still on the
client's side, and the kernel knows nothing. A held request whose client has gone would then be forwarded,
though the client sends it again. What is read ahead is not judged, charged or answered before its time; but
of the first AHEAD_BYTES the session is told when they came, for the client counts from then
(session/arrivals.py). What is read beyond them, to find the end, is as if it still lay in the kernel.

Where that was not all, for the client had sent more or its user keeps much, a last look is taken when the
turn of the held request has come. Of a client that has left nothing stays in memory; of one that stays, what
was read stays until it goes on. A request whose client's end may stand behind what there is no room to read
waits until there is, or its connection's turn to read on without: else who sends some requests, leaves and
comes again fills what his connections may keep, and then each dead one brings a request beyond the quota.
Source: wire-semantics 1.6.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

from sluice.proxy.connection.budget import FLOOR_BYTES, MIB, WINDOW_BYTES, BufferShare
from sluice.proxy.connection.stream import Stream, unread_bytes
from sluice.proxy.session.arrivals import AHEAD_BYTES

FAR_BYTES: Final = 4 * MIB
"""of one connection, where memory is not short: what a client has sent when it leaves is seldom more"""
AHEAD_FROM_MS: Final = 100.0
"""a shorter wait is not worth two more system calls"""


LOOK_BYTES: Final = 16 * MIB
"""of one connection, when the turn of its held request has come: what Linux lets a client leave behind by
default (tcp_wmem, 4 MiB), what the receive buffer holds (tcp_rmem, 6 MiB), and what was read ahead"""
FULL_BYTES: Final = 32 * 1024
"""With less than that unread no receive buffer was full (tcp_rmem, 128 KiB): the kernel knows of an end"""


class Ahead(IntEnum):
    """What a read ahead brought."""

    MORE = 0
    ENOUGH = 1
    END = 2


def has_room(kept: bytes | bytearray | None, share: BufferShare[Any]) -> bool:
    """Much of what was read ahead has gone on: read more."""
    return kept_bytes(kept) <= _most_bytes(share) // 2


def ahead_room(kept: bytes | bytearray | None, share: BufferShare[Any]) -> int:
    """How much more may be read ahead while the connection waits. A `share` that gives less than a whole
    window: its user keeps much already."""
    if share.window_bytes < WINDOW_BYTES:
        return 0
    return max(_most_bytes(share) - kept_bytes(kept), 0)


def look_room(kept: bytes | bytearray | None, share: BufferShare[Any], *, has_turn: bool) -> int:
    """How much more may be read to find the client's end, now that its held request would go. `has_turn`: to
    read on where there is no room (BufferShare.looks)."""
    most_bytes = share.by_turn_bytes if has_turn else share.look_bytes
    return max(min(LOOK_BYTES - kept_bytes(kept), most_bytes), 0)


def may_hide_its_end(stream: Stream, kept: bytes | bytearray | None, room: int) -> bool:
    """The client's end may stand behind what is unread, and there is no room to read that."""
    return room < FLOOR_BYTES <= LOOK_BYTES - kept_bytes(kept) and unread_bytes(stream) >= FULL_BYTES


def _most_bytes(share: BufferShare[Any]) -> int:
    return FAR_BYTES if share.may_look_far else AHEAD_BYTES


def kept_bytes(kept: bytes | bytearray | None) -> int:
    """How much of a client's requests is kept."""
    return 0 if kept is None else len(kept)


def read_ahead(
    stream: Stream, view: memoryview, kept: bytes | bytearray | None, room: int
) -> tuple[Ahead, bytearray | bytes | None]:
    """Read behind what is kept, `room` bytes at most. Returns what came, and what is kept now.

    Into less room than a TLS record may need nothing is read: the rest of it would lie inside OpenSSL, where
    no epoll sees it when the connection goes on (listener/tls/stream.py).
    """
    if room < FLOOR_BYTES:
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
