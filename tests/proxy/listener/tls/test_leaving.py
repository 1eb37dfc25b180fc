"""Clients that leave while a request is held, by TLS."""

from __future__ import annotations

import asyncio
import socket
import struct
from pathlib import Path

import pytest

from sluice.proxy.listener.security import ListenerSecurity
from sluice.proxy.session.causes import DisconnectCause
from testkit.frames.frames import METADATA, produce_of, request
from testkit.peers.fault_broker import BrokerSide, FaultBroker
from testkit.peers.recording_broker import Recording
from testkit.peers.tls_peers import Contexts, server_tls
from testkit.processes.ports import LOOPBACK
from testkit.proxy.local_proxy import LocalProxy, until
from testkit.proxy.playbook import limits_of

RATE = 100_000


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [1_000, 200_000])
async def test_a_client_that_says_by_tls_alone_that_it_leaves_has_left(tmp_path: Path, size: int) -> None:
    """asyncio's close, for one, says so and keeps the TCP connection until it is answered. What it sent with
    acks = 0 behind the request that is dropped goes."""
    contexts = Contexts(tmp_path)
    tls = server_tls(tmp_path)
    broker_side, security = Recording(), ListenerSecurity(tls=tls)
    async with (
        FaultBroker(broker_side) as broker,
        LocalProxy(broker.port, limits_of(RATE), security=security) as proxy,
    ):
        writers = []
        for number, request_bytes in ((1000, 2 * RATE), (1, size)):
            _, writer = await asyncio.open_connection(
                LOOPBACK, proxy.listener.port, ssl=contexts.client, server_hostname="localhost"
            )
            writers.append(writer)
            writer.write(produce_of(request_bytes, correlation_id=number))
            if number == 1:
                writer.write(b"".join(produce_of(1_000, acks=0, correlation_id=i) for i in (2, 3)))
            await asyncio.sleep(0.2)
        writers[1].close()  # nobody reads on: its TCP connection stays
        ended = await proxy.end()
        assert ended.cause == DisconnectCause.LEFT_WHILE_HELD
        await until(lambda: broker_side.ids == [1000, 2, 3])  # it reads at its own time
        for writer in writers:
            writer.transport.abort()


@pytest.mark.asyncio
async def test_what_was_asked_goes_no_further_once_a_write_by_tls_has_failed(tmp_path: Path) -> None:
    """What has acks = 0 behind it does."""
    contexts = Contexts(tmp_path)
    may_answer, recording = asyncio.Event(), Recording()

    async def later(side: BrokerSide) -> None:
        await may_answer.wait()
        await recording(side)

    security = ListenerSecurity(tls=server_tls(tmp_path))
    async with FaultBroker(later) as broker, LocalProxy(broker.port, security=security) as proxy:
        _, writer = await asyncio.open_connection(
            LOOPBACK, proxy.listener.port, ssl=contexts.client, server_hostname="localhost"
        )
        await until(lambda: bool(proxy.connections))
        (connection,) = proxy.connections
        connection.session.pace.max_in_flight = 10
        for number in range(500):
            writer.write(request(METADATA, 12, correlation_id=number))
        writer.write(produce_of(1_000, acks=0, correlation_id=1_000))
        await until(lambda: connection.session.in_flight == 10)
        reset = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        writer.transport.abort()
        await asyncio.sleep(0)  # it closes
        may_answer.set()
        ended = await proxy.end()
        assert ended.cause is DisconnectCause.CLIENT_RESET
        await until(lambda: recording.ids == [*range(10), 1_000])
