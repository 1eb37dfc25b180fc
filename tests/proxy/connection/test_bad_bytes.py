"""Bytes that are no Kafka end their own connection with a cause that is counted, and reach no broker."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest
from structlog.testing import capture_logs

from sluice.proxy.connection import lingering_close as linger_module
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.policy import SessionPolicy
from sluice.proxy.session.requests import RequestSide
from testkit.frames.frames import METADATA, produce, request, sized
from testkit.frames.wire import Wire
from testkit.peers.fault_broker import BrokerSide, FaultBroker, answer_to, answers
from testkit.peers.recording_broker import Recording
from testkit.proxy.data_paths import current
from testkit.proxy.local_proxy import LocalProxy, until

pytestmark = pytest.mark.asyncio


TLS_CLIENT_HELLO = bytes.fromhex("160301020001000 1fc0303".replace(" ", "")) + bytes(500)
BAD_INPUT = {
    "a negative size": (struct.pack(">i", -5) + bytes(20), DisconnectCause.FRAME_TOO_LARGE),
    "a size above the limit": (struct.pack(">i", 2_000_000) + bytes(20), DisconnectCause.FRAME_TOO_LARGE),
    "a TLS ClientHello": (TLS_CLIENT_HELLO, DisconnectCause.TLS_ON_PLAINTEXT),
    "an HTTP request": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", DisconnectCause.FRAME_TOO_LARGE),
    "a frame too short for a header": (sized(b"\0\0\0"), DisconnectCause.MALFORMED_FRAME),
    "a client id longer than its frame": (
        sized(struct.pack(">hhih", 3, 12, 1, 500)) + bytes(600),
        DisconnectCause.MALFORMED_FRAME,
    ),
    "a Produce that ends before its acks": (
        sized(struct.pack(">hhih", 0, 9, 1, -1) + b"\0"),
        DisconnectCause.MALFORMED_FRAME,
    ),
    "a version of Produce that nobody knows": (
        sized(struct.pack(">hhih", 0, 99, 1, -1) + bytes(50)),
        DisconnectCause.UNMETERED_VERSION,
    ),
    "a version of Fetch that is too old": (
        sized(struct.pack(">hhih", 1, 3, 1, -1) + bytes(50)),
        DisconnectCause.UNMETERED_VERSION,
    ),
}
each_bad_input = pytest.mark.parametrize(("bad", "cause"), BAD_INPUT.values(), ids=BAD_INPUT.keys())


@each_bad_input
async def test_bad_bytes_end_that_connection_with_a_cause_and_reach_no_broker(
    bad: bytes, cause: DisconnectCause
) -> None:
    broker_side = Recording()
    policy = SessionPolicy(max_frame_bytes=1_000_000)
    async with FaultBroker(broker_side) as broker, LocalProxy(broker.port, policy=policy) as proxy:
        with await proxy.client() as bystander, await proxy.client() as client:
            await client.send(bad)
            assert await client.end() == "closed"
            ended = await proxy.end()
            assert ended.cause == cause
            assert ended.detail
            await bystander.send(produce(correlation_id=7))
            await bystander.frame()
    assert broker_side.ids == [7]


@each_bad_input
async def test_what_was_asked_before_bad_bytes_is_still_answered(bad: bytes, cause: DisconnectCause) -> None:
    async def answers_late(client: BrokerSide) -> None:
        asked = await client.request()
        await asyncio.sleep(0.05)
        await client.send(answer_to(asked))

    policy = SessionPolicy(max_frame_bytes=1_000_000)
    async with FaultBroker(answers_late) as broker, LocalProxy(broker.port, policy=policy) as proxy:
        with await proxy.client() as client:
            await client.send(produce(correlation_id=3) + bad)
            assert (await client.frame())[4:8] == (3).to_bytes(4, "big")
            assert await client.end() == "closed"
            assert (await proxy.end()).cause == cause


@pytest.mark.parametrize(
    ("first", "cause"),
    [
        (produce(), DisconnectCause.AUTHENTICATION_FAILED),
        (request(METADATA, 12), DisconnectCause.AUTHENTICATION_FAILED),
        (struct.pack(">i", 600_000) + bytes(20), DisconnectCause.FRAME_TOO_LARGE),
    ],
)
async def test_where_clients_must_authenticate_nothing_else_passes_before(
    first: bytes, cause: DisconnectCause
) -> None:
    broker_side = Recording()
    policy = SessionPolicy(authentication_required=True)
    async with FaultBroker(broker_side) as broker, LocalProxy(broker.port, policy=policy) as proxy:
        with await proxy.client() as client:
            await client.send(first)
            assert await client.end() == "closed"
            assert (await proxy.end()).cause == cause
    assert broker_side.ids == []


async def test_a_client_that_pours_bad_bytes_and_reads_nothing_is_let_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(linger_module, "_LINGER_S", 0.2)

    async def pour(client: Wire) -> None:
        while True:
            await client.send(b"\xff" * 100_000)

    async with FaultBroker(answers) as broker, LocalProxy(broker.port) as proxy:
        with await proxy.client() as client:
            with pytest.raises(OSError, match=r"reset|Broken pipe"):
                await pour(client)
            await until(lambda: not proxy.connections)
            assert (await proxy.end()).cause == DisconnectCause.FRAME_TOO_LARGE


async def test_a_fault_of_ours_costs_one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    class BrokenRequests(RequestSide):
        def data(self, *_: Any) -> int:
            raise ZeroDivisionError

    class Broken(current().session):  # type: ignore[misc]
        request_side = BrokenRequests

    async with FaultBroker(answers) as broker, LocalProxy(broker.port) as proxy:
        with await proxy.client() as bystander, capture_logs() as lines:
            await bystander.send(produce())
            await bystander.frame()
            monkeypatch.setattr(proxy.listener, "_path", current()._replace(session=Broken))
            with await proxy.client() as client:
                await client.send(produce())
                assert await client.rest() in {(b"", "closed"), (b"", "reset")}
            assert (await proxy.end()).cause == DisconnectCause.INTERNAL_ERROR
            assert [line["event"] for line in lines] == ["internal_error"]
            await bystander.send(produce())
            await bystander.frame()
