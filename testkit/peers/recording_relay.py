"""A relay between clients and a gateway that keeps every byte, in a thread of its own.

It listens where clients are told to connect, on the same ports on which the gateway listens at another
address: so no frame reaches a client without having passed here.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Self

from sluice.protocol.codec.codec import DecodedFrame, decode_frame

_CHUNK_BYTES: Final = 65_536


@dataclass(slots=True)
class Conversation:
    """The bytes of one connection, both ways."""

    port: int
    to_gateway: bytearray = field(default_factory=bytearray)
    to_client: bytearray = field(default_factory=bytearray)

    def answers(self) -> Iterator[tuple[int, int, DecodedFrame]]:
        """(API key, version, answer) of every whole frame that the client received."""
        asked = {}
        for frame in _frames(self.to_gateway):
            api_key, version, correlation_id = struct.unpack_from(">hhi", frame)
            asked[correlation_id] = (api_key, version)
        for frame in _frames(self.to_client):
            api_key, version = asked[struct.unpack_from(">i", frame)[0]]
            yield api_key, version, decode_frame("response", api_key, version, frame)


class RecordingRelay:
    """From `listen_host` to `gateway_host`, port by port. Serves in the `with` block."""

    def __init__(self, listen_host: str, gateway_host: str, ports: Sequence[int]) -> None:
        self.conversations: list[Conversation] = []
        self._listen_host = listen_host
        self._gateway_host = gateway_host
        self._ports = ports
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(20.0)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        tasks: set[asyncio.Task[None]] = set()

        def accept(port: int) -> object:
            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                task = asyncio.current_task()
                assert task is not None
                tasks.add(task)
                try:
                    await self._relay(port, reader, writer)
                finally:
                    tasks.discard(task)

            return serve

        servers = [
            await asyncio.start_server(accept(port), self._listen_host, port)  # type: ignore[arg-type]
            for port in self._ports
        ]
        self._ready.set()
        await self._stop.wait()
        for server in servers:
            server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _relay(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        conversation = Conversation(port)
        self.conversations.append(conversation)
        there = None
        try:
            with suppress(OSError):
                gateway_reader, there = await asyncio.open_connection(self._gateway_host, port)
                await asyncio.gather(
                    _pump(reader, there, conversation.to_gateway),
                    _pump(gateway_reader, writer, conversation.to_client),
                )
        finally:
            for end in (writer, there):
                if end is not None:
                    end.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: bytearray) -> None:
    try:
        while data := await reader.read(_CHUNK_BYTES):
            kept += data
            writer.write(data)
            await writer.drain()
    finally:
        with suppress(OSError):
            writer.close()


def _frames(data: bytearray) -> Iterator[bytes]:
    """Every whole frame, without its size."""
    pos = 0
    while pos + 4 <= len(data):
        size = int.from_bytes(data[pos : pos + 4], "big")
        if pos + 4 + size > len(data):
            return
        yield bytes(data[pos + 4 : pos + 4 + size])
        pos += 4 + size
