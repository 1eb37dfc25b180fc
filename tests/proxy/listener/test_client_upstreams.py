"""A broker is dialled for the first bytes that may go to it, and for nothing else; these arrive whole."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import struct
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from sluice.proxy.connection.connection import Connection
from sluice.proxy.connection.stream import Stream
from sluice.proxy.connection.timeouts import LAST_ANSWER_S, WatchRules, WatchTimeouts
from sluice.proxy.listener import dial_queue
from sluice.proxy.listener.client_upstreams import ClientDial
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.policy import SessionPolicy
from testkit.frames.frames import API_VERSIONS, PRODUCE, produce, produce_of, request
from testkit.peers.fault_broker import Behaviour, BrokerSide, FaultBroker, answer_to, answers
from testkit.processes.ports import full_port, queue_filled
from testkit.proxy.local_proxy import LocalProxy, until
from testkit.proxy.playbook import limits_of

pytestmark = pytest.mark.asyncio
MIB = 1024 * 1024
WAYS = pytest.mark.parametrize("host", ["127.0.0.1", "localhost"], ids=["at once", "looked up"])
SASL = SessionPolicy(authentication_required=True)
"""of a listener on which clients log in"""


class Recording:
    """All bytes that came, of each connection; every request is answered."""

    def __init__(self) -> None:
        self.came: list[bytes] = []

    async def __call__(self, client: BrokerSide) -> None:
        mine = len(self.came)
        self.came.append(b"")
        while True:
            asked = await client.request()
            self.came[mine] += asked.frame
            if asked.api_key != PRODUCE or asked.acks:
                await client.send(answer_to(asked))


@pytest.mark.parametrize(
    ("sent", "policy", "cause"),
    [
        (b"", SessionPolicy(), DisconnectCause.CLIENT_CLOSED),
        (produce()[:13], SessionPolicy(), DisconnectCause.CLIENT_CLOSED),
        (b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n", SessionPolicy(), DisconnectCause.FRAME_TOO_LARGE),
        (struct.pack(">i", -1) + bytes(40), SessionPolicy(), DisconnectCause.FRAME_TOO_LARGE),
        (produce(), SASL, DisconnectCause.AUTHENTICATION_FAILED),
    ],
    ids=["nothing", "half a head", "HTTP", "a negative size", "a request before its login"],
)
async def test_a_broker_never_sees_who_sends_nothing_that_may_go_there(
    sent: bytes, policy: SessionPolicy, cause: DisconnectCause
) -> None:
    async with FaultBroker(answers) as broker, LocalProxy(broker.port, policy=policy) as proxy:
        with await proxy.client() as client:
            await client.send(sent)
            await client.silence(0.05) if cause is DisconnectCause.CLIENT_CLOSED else await client.end()
        assert (await proxy.end()).cause is cause
        assert not broker.clients


async def test_a_client_that_is_to_log_in_has_its_broker_from_its_first_word_on() -> None:
    async with FaultBroker(answers) as broker, LocalProxy(broker.port, policy=SASL) as proxy:
        with await proxy.client() as client:
            await client.send(request(API_VERSIONS, 3, correlation_id=7))
            assert (await client.frame())[4:8] == (7).to_bytes(4, "big")
            assert len(broker.clients) == 1


@WAYS
async def test_the_first_request_arrives_whole_wherever_it_is_cut(host: str) -> None:
    frame = produce(correlation_id=5)
    behaviour = Recording()
    async with FaultBroker(behaviour) as broker, LocalProxy(broker.port, upstream_host=host) as proxy:
        for cut in range(1, len(frame)):
            with await proxy.client() as client:
                await client.send(frame[:cut])
                await asyncio.sleep(0)
                await client.send(frame[cut:])
                assert (await client.frame())[4:8] == (5).to_bytes(4, "big")
    assert behaviour.came == [frame] * (len(frame) - 1)


@WAYS
async def test_megabytes_that_are_sent_at_once_arrive_in_order(host: str) -> None:
    random = Random(3)
    sent = b"".join(produce_of(random.randrange(100, 2 * MIB), correlation_id=i) for i in range(20))
    behaviour = Recording()
    async with (
        FaultBroker(behaviour, receive_buffer_bytes=16_384) as broker,
        LocalProxy(broker.port, upstream_host=host) as proxy,
    ):
        with await proxy.client() as client:
            sending = asyncio.ensure_future(client.send(sent))
            for number in range(20):
                assert (await client.frame())[4:8] == number.to_bytes(4, "big")
            await sending
    assert behaviour.came == [sent]


@WAYS
async def test_who_asks_and_says_no_more_is_answered(host: str) -> None:
    """Its end comes while the broker is dialled, or just behind."""
    async with FaultBroker(answers) as broker, LocalProxy(broker.port, upstream_host=host) as proxy:
        with await proxy.client() as client:
            await client.send(produce(correlation_id=1) + produce(correlation_id=2))
            if host == "127.0.0.1":
                client.finish_sending()
            for number in (1, 2):
                assert (await client.frame())[4:8] == number.to_bytes(4, "big")


@asynccontextmanager
async def full_for_a_while(behaviour: Behaviour) -> AsyncIterator[FaultBroker]:
    """Its queue of connections is full when clients come, so that the kernel asks again, a second later."""
    async with FaultBroker(behaviour, backlog=0, accepts_after_s=0.5) as broker:
        with queue_filled(broker.port):
            yield broker


async def test_what_is_sent_while_the_broker_is_dialled_waits_and_goes_in_order() -> None:
    behaviour = Recording()
    async with full_for_a_while(behaviour) as broker, LocalProxy(broker.port) as proxy:
        with await proxy.client() as client:
            frames = [produce_of(500_000, correlation_id=number) for number in range(8)]
            sending = asyncio.ensure_future(client.send(b"".join(frames)))
            connection = await dialled_for(proxy)
            await client.silence()
            assert connection._kept_bytes() <= MIB, "one read, and no more before there is a broker"
            for number in range(8):
                assert (await client.frame())[4:8] == number.to_bytes(4, "big")
            await sending
    assert b"".join(frames) in behaviour.came


async def test_the_time_for_a_login_does_not_run_while_the_broker_is_dialled() -> None:
    rules = WatchRules(WatchTimeouts(authentication_s=30.0))
    with full_port() as server:
        async with LocalProxy(server.getsockname()[1], policy=SASL, dial_total_s=30.0) as proxy:
            with await proxy.client() as client:
                await client.send(request(API_VERSIONS, 3))
                await until(lambda: any(each._dialling is not None for each in proxy.connections))
                (connection,) = proxy.connections
                begun_ms = proxy.listener._worker.clock.now_ms
                for at_s in (1.0, 31.0, 62.0):
                    connection.sweep(begun_ms + at_s * 1000.0, rules)
                assert not connection.is_closed


def dial_slowly(monkeypatch: pytest.MonkeyPatch, for_s: float) -> None:
    """Every dial waits for so long before it begins."""
    connect = ClientDial.connect

    async def slow(self: ClientDial, connection: Connection) -> Stream:
        await asyncio.sleep(for_s)
        return await connect(self, connection)

    monkeypatch.setattr(ClientDial, "at_once", lambda *_: None)
    monkeypatch.setattr(ClientDial, "connect", slow)


async def dialled_for(proxy: LocalProxy) -> Connection:
    await until(lambda: any(each._dialling is not None for each in proxy.connections))
    return next(each for each in proxy.connections if each._dialling is not None)


async def test_who_sends_no_more_while_a_short_dial_lasts_is_answered() -> None:
    async with full_for_a_while(answers) as broker, LocalProxy(broker.port) as proxy:
        with await proxy.client() as client:
            await client.send(request(API_VERSIONS, 3, correlation_id=7))
            client.finish_sending()
            await dialled_for(proxy)
            assert (await client.frame())[4:8] == (7).to_bytes(4, "big")


async def test_what_needs_no_answer_goes_though_its_client_has_left_long_before_the_dial_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dial_queue, "_FIRST_LOOK_S", 0.05)
    behaviour = Recording()
    sent = produce(acks=0) + produce(acks=0)
    async with full_for_a_while(behaviour) as broker, LocalProxy(broker.port) as proxy:
        with await proxy.client() as client:
            await client.send(sent)
            await dialled_for(proxy)
        await until(lambda: sent in behaviour.came)


@pytest.mark.parametrize("held", [False, True], ids=["let through", "held"])
async def test_a_drain_waits_for_the_dial_of_what_needs_no_answer(
    held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the 0.2 s that follow the last answer of a drain."""
    rate = 100_000
    behaviour = Recording()
    async with FaultBroker(behaviour) as broker, LocalProxy(broker.port, limits_of(rate)) as proxy:
        if held:
            with await proxy.client() as ahead:
                await ahead.send(produce_of(3 * rate, correlation_id=1))
                await ahead.frame()
        dial_slowly(monkeypatch, 0.6)
        with await proxy.client() as client:
            await client.send(produce(acks=0))
            if held:
                await until(lambda: State.HOLDING in [each.session.pace.state for each in proxy.connections])
            else:
                await dialled_for(proxy)
            for connection in tuple(proxy.connections):
                connection.drain()
            await until(lambda: produce(acks=0) in behaviour.came)
            assert await client.end() == "closed"


async def test_one_for_which_no_broker_was_dialled_is_ended_as_a_broker_would_have() -> None:
    async with FaultBroker(answers) as broker, LocalProxy(broker.port) as proxy:
        rules = WatchRules(WatchTimeouts())
        with await proxy.client() as silent, await proxy.client() as asked:
            await asked.send(produce())
            await asked.frame()
            await until(lambda: len(proxy.connections) == 2)
            begun_ms = proxy.listener._worker.clock.now_ms
            for at_s in (1.0, 599.0, 602.0):
                assert len(proxy.connections) == 2
                for connection in tuple(proxy.connections):
                    connection.sweep(begun_ms + at_s * 1000.0, rules)
            assert await silent.end() == "closed"
            await asked.silence(0.05)
        assert proxy.ended[0].cause is DisconnectCause.IDLE


@WAYS
async def test_one_that_never_asked_and_one_that_did_are_freed_at_once_without_the_collector(
    host: str,
) -> None:
    async with FaultBroker(answers) as broker, LocalProxy(broker.port, upstream_host=host) as proxy:
        gc.collect()
        gc.disable()
        try:
            for asks in (False, True):
                with await proxy.client() as client:
                    if asks:
                        await client.send(produce())
                        await client.frame()
                    await until(lambda: bool(proxy.connections))
                    freed = [weakref.ref(each.session) for each in proxy.connections]
                await until(lambda freed=freed: [each() for each in freed] == [None])  # type: ignore[misc]
        finally:
            gc.enable()


async def test_a_drain_waits_until_the_broker_has_taken_what_needs_no_answer() -> None:
    """The same of a broker that is there and reads slowly."""
    reads, came = asyncio.Event(), bytearray()

    async def late(client: BrokerSide) -> None:
        came.extend((await client.request()).frame)
        await reads.wait()
        while True:
            came.extend((await client.request()).frame)

    sent = [produce(acks=0), produce_of(60_000, acks=0)]
    async with (
        FaultBroker(late, receive_buffer_bytes=4_096) as broker,
        LocalProxy(broker.port) as proxy,
    ):
        with await proxy.client() as client:
            await client.send(sent[0])
            await until(lambda: bool(came))
            (connection,) = proxy.connections
            with socket.socket(fileno=os.dup(connection._broker.sock.fileno())) as same:
                same.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
            await client.send(sent[1])
            await until(lambda: connection._broker.out is not None and connection.session.at_boundary)
            connection.drain()
            await asyncio.sleep(2 * LAST_ANSWER_S)
            reads.set()
            await until(lambda: bytes(came) == b"".join(sent))
            assert await client.end() == "closed"
