"""The admin port lets go of who asks and does not read, and of nobody who reads slowly."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, cast

import pytest
import uvloop

from sluice.proxy.admin import http
from sluice.proxy.admin.http import AdminHttp
from sluice.proxy.admin.server import AdminServer, Health
from sluice.proxy.config.admin import AdminOptions
from sluice.proxy.metrics.family import Family
from testkit.proxy.local_proxy import until

LINES = 100
ASK = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n"


class LargePage:
    """8 MB: more than Linux's buffers hold of it."""

    async def refresh(self) -> None:
        """There is nothing to be brought up to date."""

    def collect(self) -> Iterator[Family]:
        label = "x" * 80_000
        yield Family(
            "large", "counter", "a page", [(f'large_total{{a="{i:03}{label}"}}', 1.0) for i in range(LINES)]
        )


async def started() -> AdminServer:
    options = AdminOptions(bind_host="127.0.0.1", bind_port=0)
    server = AdminServer(options, Health(), cast(Any, LargePage()))
    await server.start()
    return server


def client(port: int, receive_buffer_bytes: int = 65_536) -> socket.socket:
    """One for which the kernel keeps little."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
    sock.connect(("127.0.0.1", port))
    sock.setblocking(False)
    return sock


def held(server: AdminServer) -> set[AdminHttp]:
    """The connections that are not let go."""
    assert server._server is not None
    return cast("set[AdminHttp]", server._server.server_state.connections)


@pytest.mark.parametrize("asks", [ASK + b"\r\n", (ASK + b"\r\n") * 5, ASK + b"Connection: close\r\n\r\n"])
@pytest.mark.parametrize("run", [uvloop.run, asyncio.run])
def test_who_asks_and_does_not_read_is_let_go(asks: bytes, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "TAKES_S", 0.02)

    async def use() -> None:
        server = await started()
        clients = [client(server.port) for _ in range(3)]
        try:
            await until(lambda: len(held(server)) == 3)
            for one in clients:
                one.send(asks)
            await until(lambda: not held(server))
        finally:
            for one in clients:
                one.close()
            await server.stop()

    run(use())


@pytest.mark.parametrize("run", [uvloop.run, asyncio.run])
def test_who_reads_slowly_has_all_of_its_answer(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "TAKES_S", 0.2)  # on a busy machine the kernel acknowledges 50 ms later
    looks, came, clients = [0], bytearray(), list[socket.socket]()
    look = AdminHttp._look_at_taken

    def looked_at(self: AdminHttp) -> None:
        """A read of the client, between any two looks."""
        look(self)
        looks[0] += 1
        with suppress(BlockingIOError):
            came.extend(clients[0].recv(524_288))

    monkeypatch.setattr(AdminHttp, "_look_at_taken", looked_at)

    async def use() -> None:
        server = await started()
        clients.append(client(server.port, 262_144))
        try:
            clients[0].send(ASK + b"\r\n")
            await until(lambda: came.count(b"\nlarge_total") == LINES and came.endswith(b"1.0\n"), 60.0)
            assert looks[0] > 5
        finally:
            clients[0].close()
            await server.stop()

    run(use())
