"""A raw TCP peer for tests: sends the bytes it is told to, reads frames, sees how the other side ended.

Used for clients and, in peers/fault_broker.py, for brokers; on the running loop, with sockets and no
streams, so that a peer that does not read really does not read.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from pathlib import Path
from typing import Final, Literal, Self

from testkit.processes.ports import LOOPBACK

WITHIN_S: Final = 20.0
"""how long something that must happen may take, on a busy machine"""
End = Literal["closed", "reset"]


def most_on_the_way_bytes() -> int:
    """What a sender can get rid of at most, through a proxy, to one that reads nothing: Linux's own buffers.

    Two send and two receive buffers, as large as Linux lets them grow (tcp(7), tcp_wmem and tcp_rmem).
    """
    settings = [Path(f"/proc/sys/net/ipv4/{name}").read_text() for name in ("tcp_wmem", "tcp_rmem")]
    return 2 * sum(int(setting.split()[2]) for setting in settings)


class Wire:
    """One connected socket. Closes with the `with` block."""

    def __init__(self, sock: socket.socket, within_s: float = WITHIN_S) -> None:
        """`within_s`: how long one step may take."""
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self.within_s = within_s
        self._read = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def send(self, data: bytes | bytearray) -> None:
        """Send all of it, as fast as it is taken; TimeoutError if it is not."""
        async with asyncio.timeout(self.within_s):
            await asyncio.get_running_loop().sock_sendall(self.sock, data)

    async def send_in_pieces(self, data: bytes, piece_bytes: int = 1) -> None:
        """Send it in pieces, each of which the other side has had the chance to read by itself."""
        for start in range(0, len(data), piece_bytes):
            await self.send(data[start : start + piece_bytes])
            await asyncio.sleep(0)

    async def read(self, count: int) -> bytes:
        """Exactly so many bytes. Raises EOFError with what came if the other side ends before."""
        await self._fill(count)
        taken = bytes(self._read[:count])
        del self._read[:count]
        return taken

    async def frame(self) -> bytes:
        """The next frame, its size included."""
        await self._fill(4)
        size: int = struct.unpack_from(">i", self._read)[0]
        return await self.read(4 + size)

    async def end(self) -> End:
        """Wait until the other side ends; it must send nothing more before."""
        rest, end = await self.rest()
        assert not rest, f"{len(rest)} bytes more: {rest[:60]!r}"
        return end

    async def rest(self) -> tuple[bytes, End]:
        """All that still comes, and how it ended."""
        while True:
            try:
                if not await self._more():
                    return bytes(self._read), "closed"
            except ConnectionResetError:
                return bytes(self._read), "reset"

    async def silence(self, for_s: float = 0.1) -> None:
        """Nothing comes for so long."""
        try:
            async with asyncio.timeout(for_s):
                data = await asyncio.get_running_loop().sock_recv(self.sock, 65536)
        except TimeoutError:
            return
        raise AssertionError(f"it was not silent: {data[:60]!r}")

    def finish_sending(self) -> None:
        """FIN; what comes can still be read."""
        self.sock.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """RST instead of an orderly close."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        """May be called twice."""
        self.sock.close()

    async def _fill(self, count: int) -> None:
        while len(self._read) < count:
            if not await self._more():
                raise EOFError(f"ended after {bytes(self._read)!r}")

    async def _more(self) -> bool:
        async with asyncio.timeout(self.within_s):
            data = await asyncio.get_running_loop().sock_recv(self.sock, 1024 * 1024)
        self._read += data
        return bool(data)


async def dial(port: int, *, receive_buffer_bytes: int | None = None, within_s: float = WITHIN_S) -> Wire:
    """Connect to a loopback port; with a receive buffer of about so many bytes, to stop reading early.

    `within_s`: how long one step may take.
    """
    sock = socket.socket()
    sock.setblocking(False)
    if receive_buffer_bytes is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    try:
        async with asyncio.timeout(within_s):
            await asyncio.get_running_loop().sock_connect(sock, (LOOPBACK, port))
    except BaseException:
        sock.close()
        raise
    return Wire(sock, within_s)
