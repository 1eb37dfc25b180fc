"""A broker is dialled for the first bytes that may go to it, and for nothing else; these arrive whole."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import weakref
from contextlib import ExitStack
from random import Random

import pytest

from sluice.proxy.connection.timeouts import WatchRules, WatchTimeouts
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.policy import SessionPolicy
from testkit.frames.frames import API_VERSIONS, produce, produce_of, request
from testkit.peers.fault_broker import BrokerSide, FaultBroker, answer_to, answers
from testkit.processes.ports import full_port
from testkit.proxy.local_proxy import LocalProxy, until

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


async def test_what_is_sent_while_the_broker_is_dialled_waits_and_goes_in_order() -> None:
    behaviour = Recording()
    async with (
        FaultBroker(behaviour, backlog=0, accepts_after_s=0.7) as broker,
        LocalProxy(broker.port, dial_timeout_s=5.0) as proxy,
    ):
        with ExitStack() as fillers:
            for _ in range(2):  # its queue of connections is full
                filler = fillers.enter_context(socket.socket())
                filler.setblocking(False)
                filler.connect_ex(("127.0.0.1", broker.port))
            with await proxy.client() as client:
                frames = [produce_of(500_000, correlation_id=number) for number in range(8)]
                sending = asyncio.ensure_future(client.send(b"".join(frames)))
                await client.silence()
                (connection,) = proxy.connections
                assert connection._dialling is not None
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
