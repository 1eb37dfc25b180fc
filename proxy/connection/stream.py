"""What bytes come from and go to: a non-blocking socket, or TLS over one (listener/tls/), by the same calls.

Connection and Peer use them on the loop's readers and writers. The coroutines here are for what comes before:
headers, handshakes and logins of a connection that does not relay yet. Each may be cancelled at any time, and
leaves no reader or writer behind.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from fcntl import ioctl
from termios import FIONREAD
from typing import Final, Protocol

from sluice.proxy.connection.budget import WINDOW_BYTES

LARGE_BYTES: Final = WINDOW_BYTES // 2
"""beyond it what is kept of a client's requests is read on in a buffer of its own"""
_ESTABLISHED: Final = 1  # TCP_ESTABLISHED, the first byte of struct tcp_info


class Stream(Protocol):
    """The part of socket.socket that is used. Non-blocking: BlockingIOError when nothing can be done now."""

    def recv_into(self, buffer: memoryview, /) -> int:
        """Bytes read; 0 at the end."""

    def send(self, data: memoryview | bytearray | bytes, /) -> int:
        """Send what can be sent at once; returns how many bytes were taken."""

    def fileno(self) -> int:
        """The descriptor of the socket; −1 once it is closed."""

    def shutdown(self, how: int, /) -> None:
        """Tell the other side that nothing more comes."""

    def getsockopt(self, level: int, name: int, size: int, /) -> bytes:
        """As of the socket below."""

    def close(self) -> None:
        """Close at once; what was not sent is lost."""


def has_left(stream: Stream) -> bool:
    """The other end closed its side. A FIN behind unread bytes shows neither in a peek nor as readable;
    TCP_INFO knows."""
    try:
        return stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != _ESTABLISHED
    except OSError:
        return True


def unread_bytes(stream: Stream) -> int:
    """So much of it lies in the kernel, TLS and all."""
    count = bytearray(4)
    try:
        ioctl(stream.fileno(), FIONREAD, count)
    except OSError:
        return 0
    return int.from_bytes(count, sys.byteorder)


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


async def readable(loop: asyncio.AbstractEventLoop, stream: Stream) -> None:
    """Until something can be read, or an end or an error be told."""
    await _ready(stream, loop.add_reader, loop.remove_reader)


async def writable(loop: asyncio.AbstractEventLoop, stream: Stream) -> None:
    """Until something can be sent, or an error be told."""
    await _ready(stream, loop.add_writer, loop.remove_writer)


async def _ready(
    stream: Stream, add: Callable[[int, Callable[[], None]], object], remove: Callable[[int], object]
) -> None:
    fd = stream.fileno()
    ready = asyncio.Event()
    add(fd, ready.set)
    try:
        await ready.wait()
    finally:
        remove(fd)


async def receive(loop: asyncio.AbstractEventLoop, stream: Stream, max_bytes: int) -> bytes:
    """Some bytes, `max_bytes` at most; b"" at the end. Raises OSError."""
    view = memoryview(bytearray(max_bytes))
    while True:
        try:
            return bytes(view[: stream.recv_into(view)])
        except BlockingIOError:
            await readable(loop, stream)


async def receive_exactly(loop: asyncio.AbstractEventLoop, stream: Stream, size: int) -> bytes:
    """`size` bytes and not one more. Raises ConnectionResetError if the stream ends before."""
    parts = []
    while size:
        part = await receive(loop, stream, size)
        if not part:
            raise ConnectionResetError("closed by the other side")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


async def send_all(loop: asyncio.AbstractEventLoop, stream: Stream, data: bytes) -> None:
    """All of `data`. Raises OSError."""
    view = memoryview(data)
    while view:
        try:
            view = view[stream.send(view) :]
        except BlockingIOError:
            await writable(loop, stream)
