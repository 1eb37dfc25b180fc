"""A bare relay before the broker that counts the requests that reach it, answered or not."""

import asyncio
import contextlib
import struct
from collections import Counter
from collections.abc import AsyncIterator
from typing import Final

from testkit.processes.ports import LOOPBACK

CHUNK_BYTES: Final = 65_536


class CountingRelay:
    """Listens on a port of its own; begun and ended by `counting_relay`."""

    def __init__(self, upstream_port: int) -> None:
        self.port = 0
        self.requests: Counter[int] = Counter()
        """by API key, whole requests alone"""
        self._upstream_port = upstream_port
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client, until it or the broker is gone."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        there = None
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):  # `close` cancels it
                answers, there = await asyncio.open_connection(LOOPBACK, self._upstream_port)
                async with asyncio.TaskGroup() as both:
                    forth = both.create_task(self._requests(reader, there))
                    await self._answers(answers, writer)
                    forth.cancel()
        finally:
            self._tasks.discard(task)
            for end in (writer, there):
                if end is not None:
                    end.transport.abort()

    async def close(self) -> None:
        """End those that are left."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                size = await reader.readexactly(4)
                frame = await reader.readexactly(*struct.unpack(">i", size))
                writer.write(size + frame)
                await writer.drain()
            except (asyncio.IncompleteReadError, OSError):
                break
            self.requests[struct.unpack_from(">h", frame)[0]] += 1
        with contextlib.suppress(OSError):
            writer.write_eof()  # the client is gone; what it asked is the broker's to end

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                writer.write(data)
                await writer.drain()


@contextlib.asynccontextmanager
async def counting_relay(upstream_port: int) -> AsyncIterator[CountingRelay]:
    """From a free loopback port to `upstream_port`."""
    relay = CountingRelay(upstream_port)
    server = await asyncio.start_server(relay.serve, LOOPBACK, 0)
    relay.port = server.sockets[0].getsockname()[1]
    try:
        yield relay
    finally:
        server.close()
        await relay.close()
