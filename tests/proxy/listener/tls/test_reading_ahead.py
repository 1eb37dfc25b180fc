"""What a client sends by TLS while its connection waits."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sluice.proxy.connection.read_ahead import FAR_BYTES
from sluice.proxy.listener.security import ListenerSecurity
from testkit.frames.frames import produce_of
from testkit.peers.fault_broker import FaultBroker
from testkit.peers.recording_broker import Recording
from testkit.peers.tls_peers import Contexts, server_tls
from testkit.processes.ports import LOOPBACK
from testkit.proxy.local_proxy import LocalProxy, until
from testkit.proxy.playbook import limits_of

RATE = 1_000_000


@pytest.mark.asyncio
async def test_of_a_record_that_is_read_ahead_nothing_is_left_where_epoll_does_not_see_it(
    tmp_path: Path,
) -> None:
    """The last record ends behind the room for what is read ahead. Read in part, its rest stayed inside
    OpenSSL, and its request was never whole: the client waited until it was taken for one that drips."""
    contexts = Contexts(tmp_path)
    tls = server_tls(tmp_path)
    broker_side, security = Recording(), ListenerSecurity(tls=tls)
    short_bytes = 100
    large = produce_of(FAR_BYTES + short_bytes, correlation_id=2)
    async with (
        FaultBroker(broker_side) as broker,
        LocalProxy(broker.port, limits_of(RATE), security=security) as proxy,
    ):
        reader, writer = await asyncio.open_connection(
            LOOPBACK, proxy.listener.port, ssl=contexts.client, server_hostname="localhost"
        )
        writer.write(produce_of(2 * RATE, correlation_id=1))
        await reader.readexactly(4)  # answered, and muted for a second
        writer.write(large[:short_bytes])  # a record of its own: all others are whole ones of 16 KiB
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.write(large[short_bytes:])
        await until(lambda: broker_side.ids == [1, 2])
        writer.transport.abort()
