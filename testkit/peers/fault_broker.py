"""A broker that does wrong, on purpose: what it does with each connection is a coroutine that the test gives.

    async def truncates(client: BrokerSide) -> None:
        request = await client.request()
        await client.send(answer_to(request)[:10])

    async with FaultBroker(truncates) as broker: …

A fake, because a real broker cannot be made to do these things.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Self

from testkit.frames.frames import PRODUCE, answer, sized
from testkit.frames.wire import Wire
from testkit.processes.ports import LOOPBACK

_HEAD: Final = struct.Struct(">ihhi")  # size, api key, api version, correlation id


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it arrived."""

    frame: bytes
    """its size included"""
    api_key: int
    api_version: int
    correlation_id: int

    @property
    def acks(self) -> int:
        """The acks of a Produce whose header has no tags, version 9 or later, without a transactional id."""
        client_id_bytes: int = struct.unpack_from(">h", self.frame, 12)[0]
        acks: int = struct.unpack_from(">h", self.frame, 14 + max(client_id_bytes, 0) + 1 + 1)[0]
        return acks


class BrokerSide(Wire):
    """The broker's end of one connection."""

    async def request(self) -> Request:
        """The next request. Raises EOFError when the other side has closed."""
        frame = await self.frame()
        _, api_key, version, correlation_id = _HEAD.unpack_from(frame)
        return Request(frame, api_key, version, correlation_id)


Behaviour = Callable[[BrokerSide], Awaitable[None]]


class FaultBroker:
    """Listens on a loopback port, a free one if none is given. A connection closes when its behaviour ends.

    At the end, an error of a behaviour, other than that the other side left, is an error of the test.
    """

    def __init__(
        self,
        behaviour: Behaviour,
        *,
        port: int = 0,
        receive_buffer_bytes: int | None = None,
        backlog: int = 1024,
        accepts_after_s: float = 0.0,
    ) -> None:
        """`backlog`: connections that wait to be accepted; none is for the first `accepts_after_s`."""
        self.behaviour = behaviour
        self.clients: list[BrokerSide] = []
        self._listener = socket.create_server((LOOPBACK, port), backlog=backlog)
        self._listener.setblocking(False)
        if receive_buffer_bytes is not None:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self._accepts_after_s = accepts_after_s
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._begin = self._loop.call_later(
            self._accepts_after_s, self._loop.add_reader, self._listener, self._accept
        )
        return self

    async def __aexit__(self, failed: type[BaseException] | None, *_: object) -> None:
        self._begin.cancel()
        self._loop.remove_reader(self._listener)
        for task in self._tasks:
            task.cancel()
        ends = await asyncio.gather(*self._tasks, return_exceptions=True)
        self._listener.close()
        for client in self.clients:
            client.close()
        for end in ends:
            if failed is None and isinstance(end, Exception) and not isinstance(end, (EOFError, OSError)):
                raise end

    def _accept(self) -> None:
        """At once, not as a task: one that is cancelled between the two would lose what was accepted."""
        with suppress(BlockingIOError):
            while True:
                sock, _ = self._listener.accept()
                client = BrokerSide(sock)
                self.clients.append(client)
                self._tasks.append(self._loop.create_task(self._serve(client)))

    async def _serve(self, client: BrokerSide) -> None:
        with client:
            await self.behaviour(client)


def answer_to(request: Request) -> bytes:
    """What a broker without a care answers."""
    return answer(request.api_key, request.api_version, correlation_id=request.correlation_id)


def answer_of(request: Request, size_bytes: int) -> bytes:
    """An answer of so many bytes in all, of which only the head is Kafka's."""
    filling = bytes(range(256)) * (size_bytes // 256 + 1)
    return sized((struct.pack(">i", request.correlation_id) + b"\0" + filling)[: size_bytes - 4])


async def answers(client: BrokerSide) -> None:
    """Answer every request as it should be, until the other side leaves."""
    while True:
        request = await client.request()
        if request.api_key != PRODUCE or request.acks != 0:
            await client.send(answer_to(request))


async def never_answers(client: BrokerSide) -> None:
    """Read, and say nothing, until the other side leaves."""
    while True:
        await client.request()


async def never_reads(_client: BrokerSide) -> None:
    """Neither read nor close."""
    await asyncio.Event().wait()
