"""Clients that leave, send what is no Kafka, or are drained: what still arrives, and what is counted."""

from __future__ import annotations

import asyncio
import gc
import struct
import weakref
from time import monotonic
from typing import Any

import pytest
from structlog.testing import capture_logs

from sluice.proxy.connection import lingering_close as linger_module
from sluice.proxy.connection import relay as relay_module
from sluice.proxy.listener import listener as listener_module
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.policy import SessionPolicy
from sluice.proxy.session.session import Session
from testkit.frames.frames import METADATA, PRODUCE, produce, produce_of, request, sized, throttle_of
from testkit.frames.wire import WITHIN_S, Wire
from testkit.peers.fault_broker import BrokerSide, FaultBroker, answer_to, answers
from testkit.proxy.local_proxy import LocalProxy, until
from testkit.proxy.playbook import limits_of

pytestmark = pytest.mark.asyncio
RATE = 100_000
"""bytes per second of a user; half a second of it is what each test waits"""


class Recording:
    """A broker that answers as it should and notes the correlation ids of what arrives, and when."""

    def __init__(self) -> None:
        self.arrived: list[tuple[int, float]] = []

    async def __call__(self, client: BrokerSide) -> None:
        while True:
            asked = await client.request()
            self.arrived.append((asked.correlation_id, monotonic()))
            if asked.api_key != PRODUCE or asked.acks != 0:
                await client.send(answer_to(asked))

    @property
    def ids(self) -> list[int]:
        return [correlation_id for correlation_id, _ in self.arrived]


async def into_debt(proxy: LocalProxy, rate: int = RATE) -> Wire:
    """A neighbour of the same user spends the burst and half a second's worth more; it stays connected."""
    neighbour = await proxy.client()
    await neighbour.send(produce_of(rate * 3 // 2, correlation_id=1000))
    answer = await neighbour.frame()
    assert 0 < throttle_of(PRODUCE, 9, answer) <= 500
    return neighbour


# Clients that leave while they wait -------------------------------------------------------------------------


async def test_a_held_request_of_a_client_that_left_is_not_forwarded_with_unread_ones_ahead_of_its_fin() -> (
    None
):
    broker_side = Recording()
    async with FaultBroker(broker_side) as broker, LocalProxy(broker.port, limits_of(RATE)) as proxy:
        with await into_debt(proxy):
            with await proxy.client() as client:
                # The first is held; the others stay unread, so that the FIN stands behind them.
                await client.send(b"".join(produce_of(20_000, correlation_id=i) for i in range(10)))
            ended = await proxy.end()
            assert ended.cause == DisconnectCause.LEFT_WHILE_HELD
            assert ended.detail
            assert broker_side.ids == [1000]


async def test_what_a_client_left_behind_unforwarded_is_not_charged() -> None:
    broker_side, rate = Recording(), 10_000
    async with FaultBroker(broker_side) as broker, LocalProxy(broker.port, limits_of(rate)) as proxy:
        with await into_debt(proxy, rate):
            with await proxy.client() as leaver:
                await leaver.send(produce_of(rate * 6, correlation_id=1))
            await proxy.end()
            with await proxy.client() as client:
                begun_s = monotonic()
                await client.send(produce(correlation_id=2))
                await client.frame()
                assert monotonic() - begun_s < 3.0  # the request left behind was worth 6 s
    assert broker_side.ids == [1000, 2]


async def test_acks_0_requests_of_a_client_that_left_all_arrive_at_the_pace_of_its_quota() -> None:
    broker_side = Recording()
    async with FaultBroker(broker_side) as broker, LocalProxy(broker.port, limits_of(RATE)) as proxy:
        with await into_debt(proxy):
            begun_s = monotonic()
            with await proxy.client() as client:
                await client.send(b"".join(produce_of(10_000, acks=0, correlation_id=i) for i in range(15)))
            assert (await proxy.end()).cause == DisconnectCause.CLIENT_CLOSED
        await until(lambda: len(broker_side.ids) == 16)
    assert broker_side.ids == [1000, *range(15)]
    # The debt is half a second; then 0.1 s each, of which the last need not be waited for.
    assert broker_side.arrived[-1][1] - begun_s > 1.5


async def test_beyond_a_cap_for_each_user_acks_0_requests_left_behind_are_dropped() -> None:
    broker_side = Recording()
    async with FaultBroker(broker_side) as broker, LocalProxy(broker.port, limits_of(RATE)) as proxy:
        proxy.shared.left_behind.cap_bytes = 35_000
        with await into_debt(proxy):
            with await proxy.client() as client:
                await client.send(b"".join(produce_of(10_000, acks=0, correlation_id=i) for i in range(6)))
            ended = await proxy.end()
            assert ended.cause == DisconnectCause.UNFINISHED_BYTES_OVER_CAP
            await until(lambda: len(broker_side.ids) == 4)
    assert broker_side.ids == [1000, 0, 1, 2]


async def test_a_client_that_resets_while_it_is_held_leaves_nothing() -> None:
    broker_side = Recording()
    async with FaultBroker(broker_side) as broker, LocalProxy(broker.port, limits_of(RATE)) as proxy:
        with await into_debt(proxy):
            client = await proxy.client()
            await client.send(produce(correlation_id=1))
            await client.silence()
            client.reset()
            assert (await proxy.end()).cause == DisconnectCause.LEFT_WHILE_HELD
    assert broker_side.ids == [1000]


async def test_a_client_that_closed_its_side_only_still_gets_the_answers_it_waits_for() -> None:
    async def answers_late(client: BrokerSide) -> None:
        asked = [await client.request() for _ in range(3)]
        await asyncio.sleep(0.1)
        for each in asked:
            await client.send(answer_to(each))

    async with FaultBroker(answers_late) as broker, LocalProxy(broker.port) as proxy:
        with await proxy.client() as client:
            await client.send(b"".join(produce(correlation_id=i) for i in range(3)))
            client.finish_sending()
            for i in range(3):
                assert (await client.frame())[4:8] == i.to_bytes(4, "big")
            assert await client.end() == "closed"
        assert (await proxy.end()).cause == DisconnectCause.CLIENT_CLOSED


async def test_a_client_that_resets_with_an_answer_due_ends_at_the_broker_too() -> None:
    left = asyncio.Event()

    async def waits(client: BrokerSide) -> None:
        await client.rest()
        left.set()

    async with FaultBroker(waits) as broker, LocalProxy(broker.port) as proxy:
        client = await proxy.client()
        await client.send(produce())
        await client.silence()
        client.reset()
        assert (await proxy.end()).cause == DisconnectCause.CLIENT_RESET
        async with asyncio.timeout(WITHIN_S):
            await left.wait()


# Bytes that are no Kafka ------------------------------------------------------------------------------------

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
    "a client id that is not UTF-8": (
        sized(struct.pack(">hhih", 3, 12, 1, 2) + b"\xff\xfe" + bytes(10)),
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
    def fails(*_: Any) -> int:
        raise ZeroDivisionError

    class Broken(Session):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.client_data = fails  # type: ignore[assignment]

    async with FaultBroker(answers) as broker, LocalProxy(broker.port) as proxy:
        with await proxy.client() as bystander, capture_logs() as lines:
            await bystander.send(produce())
            await bystander.frame()
            monkeypatch.setattr(listener_module, "Session", Broken)
            with await proxy.client() as client:
                await client.send(produce())
                assert await client.rest() in {(b"", "closed"), (b"", "reset")}
            assert (await proxy.end()).cause == DisconnectCause.INTERNAL_ERROR
            assert [line["event"] for line in lines] == ["internal_error"]
            await bystander.send(produce())
            await bystander.frame()


# Drain ------------------------------------------------------------------------------------------------------


def drain_all(proxy: LocalProxy) -> None:
    for connection in tuple(proxy.connections):
        connection.drain()


async def test_drain_closes_an_idle_connection() -> None:
    async with FaultBroker(answers) as broker, LocalProxy(broker.port) as proxy:
        with await proxy.client() as client:
            await client.send(produce())
            await client.frame()
            drain_all(proxy)
            assert await client.end() == "closed"
            assert (await proxy.end()).cause == DisconnectCause.DRAINED


async def test_drain_waits_for_the_answer_of_what_was_forwarded_however_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay_module, "_ENDING_DEADLINE_S", 0.05)  # the drain has its own

    async def answers_late(client: BrokerSide) -> None:
        asked = await client.request()
        await asyncio.sleep(0.5)
        await client.send(answer_to(asked))

    async with FaultBroker(answers_late) as broker, LocalProxy(broker.port) as proxy:
        with await proxy.client() as client:
            await client.send(produce(correlation_id=8))
            await client.silence()
            drain_all(proxy)
            assert (await client.frame())[4:8] == (8).to_bytes(4, "big")
            assert await client.end() == "closed"
            assert (await proxy.end()).cause == DisconnectCause.DRAINED


async def test_drain_leaves_a_client_time_to_read_its_last_answer_before_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where both are read at once, kafka-python drops the answer and sends its request again."""
    monkeypatch.setattr(relay_module, "_LAST_ANSWER_S", 0.5)
    slow = asyncio.Event()

    async def answers_late(client: BrokerSide) -> None:
        asked = await client.request()
        await slow.wait()
        await client.send(answer_to(asked))
        await client.rest()

    async with FaultBroker(answers_late) as broker, LocalProxy(broker.port) as proxy:
        with await proxy.client() as client:
            await client.send(produce())
            await client.silence()
            drain_all(proxy)
            slow.set()
            await client.frame()
            await client.silence(0.1)
            assert await client.end() == "closed"


async def test_drain_takes_the_rest_of_a_request_that_is_half_read_and_begins_no_other() -> None:
    broker_side = Recording()
    frame = produce_of(300_000, correlation_id=8)
    async with FaultBroker(broker_side) as broker, LocalProxy(broker.port) as proxy:
        with await proxy.client() as client:
            await client.send(frame[:150_000])
            await until(lambda: bool(proxy.connections))
            await client.silence()
            drain_all(proxy)
            await client.send(frame[150_000:] + produce(correlation_id=9))
            assert (await client.frame())[4:8] == (8).to_bytes(4, "big")
            assert await client.end() == "closed"
    assert broker_side.ids == [8]


async def test_drain_closes_a_held_request_unforwarded_unless_nobody_would_send_it_again() -> None:
    broker_side = Recording()
    async with FaultBroker(broker_side) as broker, LocalProxy(broker.port, limits_of(RATE)) as proxy:
        with await into_debt(proxy), await proxy.client() as waiting, await proxy.client() as reported:
            await waiting.send(produce(correlation_id=1))
            await waiting.silence()
            await reported.send(produce(acks=0, correlation_id=2))
            await reported.silence()
            drain_all(proxy)
            assert await waiting.end() == "closed"
            assert await reported.end() == "closed"
            await until(lambda: len(proxy.ended) == 3)
            await until(lambda: 2 in broker_side.ids)
    assert broker_side.ids == [1000, 2]


async def test_past_the_deadline_of_the_drain_an_unanswered_connection_is_cut_off_and_counted() -> None:
    async def never(client: BrokerSide) -> None:
        await client.rest()
        await asyncio.Event().wait()

    async with FaultBroker(never) as broker, LocalProxy(broker.port) as proxy:
        with await proxy.client() as client:
            await client.send(produce())
            await client.silence()
            drain_all(proxy)
            await client.silence()
            for connection in tuple(proxy.connections):
                connection.abort(DisconnectCause.DRAIN_DEADLINE)
            assert (await proxy.end()).cause == DisconnectCause.DRAIN_DEADLINE


async def test_a_closed_connection_is_freed_at_once_without_the_collector() -> None:
    """It runs seldom (server.py), so that a connection in a circle would stay: 2 KiB for every one that ever
    was."""
    gc.disable()
    try:
        async with FaultBroker(answers) as broker, LocalProxy(broker.port) as proxy:
            with await proxy.client() as client:
                await client.send(produce())
                await client.frame()
                (connection,) = proxy.connections
                freed = weakref.ref(connection.session)
                del connection
            await proxy.end()
            await until(lambda: freed() is None)
    finally:
        gc.enable()
