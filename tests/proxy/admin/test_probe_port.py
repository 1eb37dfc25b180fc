"""Probes get their answers, whoever holds connections open, and whoever has taken the descriptors."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress

import pytest
import uvloop

from sluice.proxy.admin import probe_port
from sluice.proxy.admin.probe_port import ProbePort

LOOPBACK = "127.0.0.1"
SILENT = 1_000


async def get(
    port: int, path: str = "/livez", *, method: str = "GET", source: str = LOOPBACK
) -> tuple[int, bytes]:
    """Status and body; as the kubelet asks: a new connection, which says at once what it wants."""
    reader, writer = await asyncio.open_connection(LOOPBACK, port, local_addr=(source, 0))
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body


def with_port(use: Callable[[ProbePort, list[str]], Awaitable[None]]) -> None:
    async def run() -> None:
        reasons: list[str] = []
        port = ProbePort(LOOPBACK, 0, {"/livez": list[str], "/readyz": lambda: reasons})
        port.start()
        try:
            await use(port, reasons)
        finally:
            port.stop()

    uvloop.run(run())


async def connected(stack: ExitStack, port: int, count: int, source: str = LOOPBACK) -> list[socket.socket]:
    """Clients that say nothing."""
    clients = []
    for _ in range(count):
        client = stack.enter_context(socket.create_connection((LOOPBACK, port), source_address=(source, 0)))
        clients.append(client)
        if len(clients) % 50 == 0:
            await asyncio.sleep(0)
    await asyncio.sleep(0.05)
    return clients


def test_it_answers_what_is_so_and_why_not() -> None:
    async def use(port: ProbePort, reasons: list[str]) -> None:
        assert await get(port.port) == (200, b'{"status": "ok"}')
        reasons.append("draining")
        status, body = await get(port.port, "/readyz?verbose=1")
        assert (status, json.loads(body)) == (503, {"status": "unavailable", "reasons": ["draining"]})
        assert (await get(port.port, "/metrics"))[0] == 404
        assert (await get(port.port, method="POST"))[0] == 405
        assert await get(port.port, method="HEAD") == (200, b"")

    with_port(use)


def test_a_thousand_silent_connections_keep_no_probe_from_its_answer() -> None:
    """Also where the probe comes from the address that holds them."""

    async def use(port: ProbePort, _: list[str]) -> None:
        with ExitStack() as stack:
            for address in ("127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5", LOOPBACK):
                await connected(stack, port.port, SILENT // 5, address)
                for source in ("127.0.0.9", address):
                    assert (await get(port.port, source=source))[0] == 200
            assert port.unanswered >= SILENT - probe_port._MOST

    with_port(use)


def test_the_newest_is_served_and_the_oldest_of_the_same_address_goes() -> None:
    async def use(port: ProbePort, _: list[str]) -> None:
        with ExitStack() as stack:
            (other,) = await connected(stack, port.port, 1, "127.0.0.2")
            mine = await connected(stack, port.port, probe_port._MOST_OF_ONE + 1)
            mine[0].settimeout(1.0)
            assert mine[0].recv(1) == b""
            other.setblocking(False)
            with pytest.raises(BlockingIOError):
                other.recv(1)
            mine[1].sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            await asyncio.sleep(0.05)
            assert mine[1].recv(100).startswith(b"HTTP/1.1 200")

    with_port(use)


def test_who_does_not_ask_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_port, "_HEADER_S", 0.2)

    async def use(port: ProbePort, _: list[str]) -> None:
        reader, writer = await asyncio.open_connection(LOOPBACK, port.port)
        writer.write(b"GET /livez HTTP/1.1\r\nX-Half: ")
        assert await asyncio.wait_for(reader.read(), 5.0) == b""
        writer.close()

    with_port(use)


def test_garbage_ends_only_its_own_connection() -> None:
    async def use(port: ProbePort, _: list[str]) -> None:
        for said in (b"\x00\x00\x00\x10garbage\r\n\r\n", b"GET /" + b"x" * 100_000):
            reader, writer = await asyncio.open_connection(LOOPBACK, port.port)
            writer.write(said)
            answer = await asyncio.wait_for(_until_closed(reader), 5.0)
            assert answer == b"" or answer.startswith(b"HTTP/1.1 400")
            writer.close()
        assert (await get(port.port))[0] == 200

    with_port(use)


async def _until_closed(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""


def test_a_probe_is_answered_when_no_descriptor_is_left() -> None:
    async def use(port: ProbePort, _: list[str]) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        client = socket.socket()  # its own descriptor, and that of the server's side: from the reserve
        client.setblocking(False)
        LOOPBACK.encode("idna")  # as the client's connect does: the first time Python opens a module for it
        taken: list[int] = []
        in_use = len(os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (in_use + 50, hard))
        try:
            with suppress(OSError):
                while True:
                    taken.append(os.dup(0))
            loop = asyncio.get_running_loop()
            await loop.sock_connect(client, (LOOPBACK, port.port))
            await loop.sock_sendall(client, b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = await asyncio.wait_for(loop.sock_recv(client, 1_000), 5.0)
        finally:
            for descriptor in taken:
                os.close(descriptor)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            client.close()
        assert answer.startswith(b"HTTP/1.1 200")

    with_port(use)


def test_it_leaves_no_descriptor_behind() -> None:
    async def use(port: ProbePort, _: list[str]) -> None:
        with ExitStack() as stack:
            await connected(stack, port.port, 3)

    with_port(use)  # the first loop of a process opens what stays: libuv's pipe for signals
    before = set(os.listdir("/proc/self/fd"))
    with_port(use)
    assert set(os.listdir("/proc/self/fd")) <= before, "threads of earlier tests may close some"
