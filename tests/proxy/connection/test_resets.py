"""Bytes and a reset that come at once: the bytes go on, and the reset ends both sides within a moment.

The loop's own readers are called for the bytes, and never again (poller.py): the other side then waited until
the connection was taken for idle.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import pytest

from sluice.proxy.session.causes import DisconnectCause
from testkit.frames.frames import produce, produce_of
from testkit.frames.wire import WITHIN_S, Wire
from testkit.peers.fault_broker import BrokerSide, FaultBroker, answer_of, answer_to, answers
from testkit.peers.loop_clock import LoopClock
from testkit.proxy.local_proxy import LocalProxy, until
from testkit.proxy.playbook import limits_of

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("cut", [None, 20, 7])
@pytest.mark.parametrize("size", [0, 100_000])
async def test_a_broker_that_answers_and_resets_at_once_ends_its_client(cut: int | None, size: int) -> None:
    """`cut`: of the answer's bytes; None: all. Of a head that is not whole nothing goes on."""
    sent = bytearray()

    async def answers_and_resets(side: BrokerSide) -> None:
        first = await side.request()
        await side.request()
        sent.extend((answer_of(first, size) if size else answer_to(first))[:cut])
        await side.send(bytes(sent))
        side.reset()

    async with FaultBroker(answers_and_resets) as broker, LocalProxy(broker.port) as proxy:
        with await proxy.client() as client:
            await client.send(produce(correlation_id=1) + produce(correlation_id=2))
            got, _ = await client.rest()
        assert got == (b"" if cut == 7 else sent)
        assert (await proxy.end()).cause == DisconnectCause.BROKER_RESET


@pytest.mark.parametrize("client_leaves", [False, True])
@pytest.mark.parametrize("is_client_first", [True, False])
async def test_an_answer_that_is_here_goes_to_its_client_though_nothing_can_be_sent_to_the_broker(
    is_client_first: bool, client_leaves: bool
) -> None:
    """The client's next request, or its end, comes in the round in which the broker answers and resets: that
    cannot be passed on. The answer, unread, was closed upon, and the client sent again what was written."""
    clients: list[Wire] = []
    sent = bytearray()

    async def answers_and_resets(side: BrokerSide) -> None:
        sent.extend(answer_to(await side.request()))
        if is_client_first:
            go_on()
        side.sock.send(sent)
        side.reset()
        if not is_client_first:
            go_on()

    def go_on() -> None:
        if client_leaves:
            clients[0].sock.shutdown(socket.SHUT_WR)
        else:
            clients[0].sock.send(produce(correlation_id=2))

    async with FaultBroker(answers_and_resets) as broker, LocalProxy(broker.port) as proxy:
        with await proxy.client() as client:
            clients.append(client)
            await client.send(produce(correlation_id=1))
            got, _ = await client.rest()
        assert got == sent
        causes = {DisconnectCause.BROKER_RESET} | (
            {DisconnectCause.CLIENT_CLOSED} if client_leaves else set()
        )
        assert (await proxy.end()).cause in causes


async def test_a_client_that_asks_and_resets_at_once_ends_at_the_broker() -> None:
    left = asyncio.Event()

    async def waits(side: BrokerSide) -> None:
        await side.request()
        await side.rest()
        left.set()

    async with FaultBroker(waits) as broker, LocalProxy(broker.port) as proxy:
        client = await proxy.client()
        await client.send(produce(correlation_id=1))
        client.reset()
        assert (await proxy.end()).cause == DisconnectCause.CLIENT_RESET
        async with asyncio.timeout(WITHIN_S):
            await left.wait()


@pytest.mark.parametrize("leave", [Wire.close, Wire.reset])
async def test_a_client_that_leaves_while_it_is_muted_does_not_keep_its_place(
    leave: Callable[[Wire], None],
) -> None:
    """Nothing of it is left to be forwarded: its place was kept to the end of the mute, of 8 s here."""
    async with FaultBroker(answers) as broker, LocalProxy(broker.port, limits_of(1_000)) as proxy:
        client = await proxy.client()
        await client.send(produce_of(100_000))
        await client.frame()
        (connection,) = proxy.connections
        await until(lambda: connection.session.pace.is_delayed)
        with LoopClock() as clock:
            leave(client)
            assert (await proxy.end()).cause == DisconnectCause.CLIENT_CLOSED
            assert clock.now_s < 4.0
