"""A listening port: who is connected to what, and what happens when the broker cannot be reached."""

from __future__ import annotations

import asyncio
import socket

import pytest
from structlog.testing import capture_logs

from sluice.proxy.session.causes import DisconnectCause
from testkit.frames.frames import produce
from testkit.frames.wire import Wire, dial
from testkit.peers.fault_broker import FaultBroker, answers
from testkit.processes.ports import LOOPBACK, free_port, full_port
from testkit.proxy.local_proxy import LocalProxy, until

pytestmark = pytest.mark.asyncio


async def is_served(client: Wire) -> bool:
    await client.send(produce(correlation_id=4))
    return (await client.frame())[4:8] == (4).to_bytes(4, "big")


async def served_in_the_end(proxy: LocalProxy) -> None:
    """As a client does that connects again: the way is tried anew after a while, not for each of them."""
    for _ in range(500):
        with await proxy.client() as client:
            try:
                assert await is_served(client)
            except (EOFError, ConnectionResetError):
                await asyncio.sleep(0.02)
            else:
                return
    raise AssertionError("nobody was served")


async def test_clients_of_an_unreachable_broker_are_closed_in_order_counted_and_logged_once() -> None:
    async with LocalProxy(free_port()) as proxy:
        with capture_logs() as lines:
            for _ in range(5):
                with await proxy.client() as client:
                    await client.send(produce())
                    assert await client.end() == "closed"
        assert [record.cause for record in proxy.ended] == [DisconnectCause.UPSTREAM_UNREACHABLE] * 5
        assert [line["event"] for line in lines] == ["upstream_unreachable"]
        assert lines[0]["reason"] == "connection refused"


async def test_a_client_that_has_already_sent_is_not_reset_when_the_broker_cannot_be_reached() -> None:
    with full_port() as server:
        async with LocalProxy(server.getsockname()[1], dial_timeout_s=0.3, dial_total_s=0.3) as proxy:
            with await proxy.client() as client:
                await client.send(produce() * 20)
                assert await client.end() == "closed"


async def test_a_broker_that_comes_back_is_used_again_and_the_log_says_so() -> None:
    port = free_port()
    async with LocalProxy(port) as proxy:
        with capture_logs() as lines:
            for _ in range(2):
                with await proxy.client() as client:
                    await client.send(produce())
                    await client.end()
            async with FaultBroker(answers, port=port):
                for _ in range(2):
                    await served_in_the_end(proxy)
            with await proxy.client() as client:
                await client.send(produce())
                await client.end()
        assert [(line["event"], line["log_level"]) for line in lines] == [
            ("upstream_unreachable", "warning"),  # it may just not be up yet: a sidecar starts first
            ("upstream_reachable_again", "info"),
            ("upstream_unreachable", "error"),
        ]


async def test_a_name_that_nobody_knows_is_a_broker_that_cannot_be_reached() -> None:
    async with LocalProxy(9092, upstream_host="no-such-broker.invalid") as proxy:
        with await proxy.client() as client:
            await client.send(produce())
            assert await client.end() == "closed"
        assert (await proxy.end()).cause == DisconnectCause.UPSTREAM_UNREACHABLE


async def test_a_client_that_leaves_while_its_broker_is_dialled_leaves_nothing_behind() -> None:
    with full_port() as server:
        async with LocalProxy(server.getsockname()[1], dial_timeout_s=0.3) as proxy:
            for leave in (Wire.reset, Wire.close):
                client = await proxy.client()
                await client.send(produce())
                await until(lambda: bool(proxy.connections))
                leave(client)
            await until(lambda: len(proxy.ended) == 2)
            assert not proxy.connections


async def test_a_storm_of_connections_is_served() -> None:
    async with FaultBroker(answers) as broker, LocalProxy(broker.port) as proxy:
        clients = await asyncio.gather(*(proxy.client() for _ in range(300)))
        try:
            assert all(await asyncio.gather(*(is_served(client) for client in clients)))
            assert len(proxy.connections) == 300
            assert proxy.gauges.connections == 300
        finally:
            for client in clients:
                client.close()
        await until(lambda: not proxy.connections)
        assert len(broker.clients) == 300


async def test_accepted_connections_are_not_delayed_by_the_kernel_and_are_kept_alive() -> None:
    async with FaultBroker(answers) as broker, LocalProxy(broker.port) as proxy:
        with await proxy.client() as client:
            assert await is_served(client)
            (connection,) = proxy.connections
            for sock in (connection._client.sock, connection._broker.sock):
                assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 4)[0] == 1
                assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 4)[0] == 1


async def test_a_stopped_listener_takes_no_more_and_leaves_those_it_has() -> None:
    async with FaultBroker(answers) as broker, LocalProxy(broker.port) as proxy:
        with await proxy.client() as client:
            assert await is_served(client)
            port = proxy.listener.port
            proxy.listener.stop()
            assert await is_served(client)
            with pytest.raises(ConnectionRefusedError):
                await dial(port)
            await client.send(b"")


async def test_a_client_that_is_being_dialled_for_is_let_go_when_the_proxy_drains() -> None:
    with full_port() as server:
        async with LocalProxy(server.getsockname()[1], dial_timeout_s=30.0) as proxy:
            with await proxy.client() as client:
                await client.send(produce())
                await client.silence()
                (connection,) = proxy.connections
                connection.drain()
                assert await client.end() == "closed"
            ended = await proxy.end()
            assert (ended.cause, ended.detail) == (DisconnectCause.DRAINED, "before a broker was reached")


async def test_a_listener_on_all_addresses_takes_ipv4_and_ipv6() -> None:
    async with FaultBroker(answers) as broker, LocalProxy(broker.port, bind_host="::") as proxy:
        with await proxy.client() as client:
            assert await is_served(client)
        with socket.create_connection(("::1", proxy.listener.port)) as sock, Wire(sock) as client:
            assert await is_served(client)


async def test_a_port_that_is_taken_is_an_error_at_once() -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        proxy = LocalProxy(9092, bind_port=taken.getsockname()[1])
        with pytest.raises(OSError, match="in use"):
            await proxy.__aenter__()
