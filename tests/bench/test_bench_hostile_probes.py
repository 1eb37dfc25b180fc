"""The hostile benchmark's probes: who answers in time, who does not, while silent connections are held."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from bench.hostile.probes import ADMIN_PORT, PROBE_PORT, ask_under_silence
from testkit.processes.ports import LOOPBACK

SILENT = 20


async def server(answer: Callable[[int], bytes], most: list[int]) -> asyncio.Server:
    """Answers each request with `answer` of the number of open connections; `most`: how many were open."""
    is_open = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal is_open
        is_open += 1
        most[0] = max(most[0], is_open)
        if await reader.readline():
            writer.write(answer(is_open))
        is_open -= 1
        writer.close()

    return await asyncio.start_server(serve, LOOPBACK, 0)


@pytest.mark.asyncio
async def test_failures_are_counted_by_port_while_silent_connections_are_held() -> None:
    def fine(_: int) -> bytes:
        return b"HTTP/1.1 200 OK\r\n\r\n"

    def starved(is_open: int) -> bytes:
        return b"HTTP/1.1 503 Service Unavailable\r\n\r\n" if is_open > SILENT // 2 else fine(0)

    held, probed = [0], [0]
    async with await server(starved, held) as admin, await server(fine, probed) as probes:
        ports = [each.sockets[0].getsockname()[1] for each in (admin, probes)]
        found = await ask_under_silence(ports[0], ports[1], 1.5, SILENT)
    assert held[0] >= SILENT
    assert found.held == SILENT
    assert found.failures[PROBE_PORT] == 0
    assert found.failures[ADMIN_PORT] > 0
    assert found.asked[PROBE_PORT] == found.asked[ADMIN_PORT] == 4


@pytest.mark.asyncio
async def test_who_says_nothing_has_failed() -> None:
    held = [0]
    async with await server(lambda _: b"", held) as nobody:
        port = nobody.sockets[0].getsockname()[1]
        found = await ask_under_silence(port, port, 0.5, 1)
    assert found.failures[PROBE_PORT] == found.asked[PROBE_PORT] == 2
