"""A TLS 1.3 client asks for new keys while it takes no answer (RFC 8446, 4.6.3)."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sluice.proxy.listener.security import ListenerSecurity
from sluice.proxy.listener.tls.error import TlsError
from sluice.proxy.listener.tls.stream import RECORD_BYTES
from testkit.frames.frames import METADATA, request
from testkit.frames.wire import WITHIN_S
from testkit.peers.fault_broker import BrokerSide, FaultBroker, answer_of
from testkit.peers.tls_peers import (
    MIB,
    Contexts,
    ask_for_new_keys,
    connected,
    readable,
    recv_exactly,
    server_tls,
)
from testkit.processes.ports import LOOPBACK
from testkit.proxy.local_proxy import LocalProxy, until

pytestmark = pytest.mark.asyncio

SO_MEMINFO = 55
"""of socket(7): nine numbers, of which the kernel's room to send and what fills it (linux/sock_diag.h)"""
SNDBUF, WMEM_QUEUED = 3, 5
FILLING = bytes(range(256)) * (RECORD_BYTES // 256)
BUFFER_BYTES = 4096


async def has_room(sock: socket.socket) -> bool:
    """The kernel takes another record, at the latest when the other side's has taken what it can."""
    for wait_s in (0.0, 0.01):
        await asyncio.sleep(wait_s)
        told = struct.unpack("9I", sock.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, 36))
        if told[WMEM_QUEUED] < told[SNDBUF]:
            return True
    return False


async def in_thread(call: Callable[..., Any], *args: object) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, call, *args)


@pytest.mark.usefixtures("read_and_written")
async def test_who_asks_again_and_takes_no_answer_is_ended(contexts: Contexts) -> None:
    """It is readable all the time and cannot be read: the loop would be called again and again. Not told as
    one who sends nothing, nor as an end."""
    for record_bytes in range(900, 1100, 10):
        async with connected(contexts.server, contexts.client, buffer_bytes=BUFFER_BYTES) as (stream, client):
            filling = FILLING[:record_bytes]
            try:
                while await has_room(stream._sock):
                    assert stream.send(filling) == record_bytes
            except BlockingIOError:
                continue  # of another size the last record is not cut
            for _ in range(2):
                ask_for_new_keys(client)
                client.sendall(b"asked")
            room = memoryview(bytearray(MIB))
            await readable(stream)
            if stream.recv_into(room) != 5:
                continue  # there was room after all
            for _ in range(2):
                await readable(stream)
                with pytest.raises(TlsError, match="did not complete"):
                    stream.recv_into(room)
            return
    pytest.fail("no size of records filled the kernel to the last byte")


async def test_who_asks_while_it_takes_no_answer_goes_on(tmp_path: Path) -> None:
    """Once, as Java's consumers do after each 137 GB that they have read."""
    contexts = Contexts(tmp_path)
    tls = server_tls(tmp_path)
    answer_bytes = 20 * MIB

    async def answers_at_length(side: BrokerSide) -> None:
        while True:
            await side.send(answer_of(await side.request(), answer_bytes))

    async with (
        FaultBroker(answers_at_length) as broker,
        LocalProxy(broker.port, security=ListenerSecurity(tls=tls)) as proxy,
        asyncio.timeout(WITHIN_S),
    ):
        sock = await in_thread(socket.create_connection, (LOOPBACK, proxy.listener.port), WITHIN_S)
        wrap = partial(contexts.client.wrap_socket, sock, server_hostname="localhost")
        with await in_thread(wrap) as client:
            client.sendall(request(METADATA, 12, correlation_id=1))
            await until(lambda: [each._client.out is not None for each in proxy.connections] == [True])
            ask_for_new_keys(client)
            for number in (2, 3):
                client.sendall(request(METADATA, 12, correlation_id=number))
            answers = await in_thread(recv_exactly, client, 3 * answer_bytes)
            ids = [answers[at + 4 : at + 8] for at in range(0, len(answers), answer_bytes)]
            assert ids == [number.to_bytes(4, "big") for number in (1, 2, 3)]
