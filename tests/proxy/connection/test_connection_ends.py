"""Clients that leave or are drained: what still arrives, and what is counted."""

from __future__ import annotations

import asyncio
import gc
import weakref
from math import inf
from time import monotonic

import pytest

from sluice.proxy.connection import client_side
from sluice.proxy.connection.connection import Connection
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.connection_states import State
from testkit.frames.frames import PRODUCE, produce, produce_of, throttle_of
from testkit.frames.wire import WITHIN_S, Wire
from testkit.peers.fault_broker import BrokerSide, FaultBroker, answer_to, answers
from testkit.peers.loop_clock import LoopClock
from testkit.peers.recording_broker import Recording
from testkit.proxy.local_proxy import LocalProxy, until
from testkit.proxy.playbook import limits_of

pytestmark = pytest.mark.asyncio
RATE = 100_000
"""bytes per second of a user"""


async def into_debt(proxy: LocalProxy, rate: int = RATE, debt_s: float = 0.5) -> Wire:
    """A neighbour of the same user spends the burst and so many seconds' worth more; it stays connected."""
    neighbour = await proxy.client()
    await neighbour.send(produce_of(int(rate * (1.0 + debt_s)), correlation_id=1000))
    answer = await neighbour.frame()
    assert 0 < throttle_of(PRODUCE, 9, answer) <= debt_s * 1_000
    return neighbour


def is_held(connection: Connection) -> bool:
    return connection.session.pace.state is State.HOLDING


# Clients that leave while they wait -------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "size"), [(10, 20_000), (20, 16_000), (5, 100_000), (40, 10_000)])
async def test_a_held_request_of_a_client_that_left_is_not_forwarded_with_unread_ones_ahead_of_its_fin(
    count: int, size: int
) -> None:
    """They are read ahead, up to 256 KiB; what is more than that and a receive buffer is seen too late."""
    broker_side = Recording()
    async with FaultBroker(broker_side) as broker, LocalProxy(broker.port, limits_of(RATE)) as proxy:
        # Nobody waits until it is paid: time for all of it to come and be read on a busy machine, too.
        with await into_debt(proxy, debt_s=5.0):
            with await proxy.client() as client:
                # The first is held; the others stay unread, so that the FIN stands behind them.
                await client.send(b"".join(produce_of(size, correlation_id=i) for i in range(count)))
            ended = await proxy.end()
            assert ended.cause == DisconnectCause.LEFT_WHILE_HELD
            assert ended.detail
            assert broker_side.ids == [1000]


async def test_what_a_client_left_behind_unforwarded_is_not_charged() -> None:
    broker_side, rate = Recording(), 10_000
    async with FaultBroker(broker_side) as broker, LocalProxy(broker.port, limits_of(rate)) as proxy:
        with await into_debt(proxy, rate, debt_s=1.5):
            with await proxy.client() as leaver:
                await leaver.send(produce_of(rate * 6, correlation_id=1))
            await proxy.end()
            with await proxy.client() as client, LoopClock() as clock:
                await client.send(produce(correlation_id=2))
                await client.frame()
                assert clock.now_s < 3.0  # the request left behind was worth 6 s
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
        with await into_debt(proxy, debt_s=1.5):
            with await proxy.client() as client:
                await client.send(b"".join(produce_of(10_000, acks=0, correlation_id=i) for i in range(6)))
            ended = await proxy.end()
            assert ended.cause == DisconnectCause.UNFINISHED_BYTES_OVER_CAP
            await until(lambda: len(broker_side.ids) == 4)
    assert broker_side.ids == [1000, 0, 1, 2]


async def test_a_client_that_resets_while_it_is_held_leaves_nothing() -> None:
    broker_side = Recording()
    async with FaultBroker(broker_side) as broker, LocalProxy(broker.port, limits_of(RATE)) as proxy:
        with await into_debt(proxy, debt_s=5.0):
            client = await proxy.client()
            await client.send(produce(correlation_id=1))
            await client.silence()
            client.reset()
            assert (await proxy.end()).cause == DisconnectCause.LEFT_WHILE_HELD
    assert broker_side.ids == [1000]


async def test_more_of_a_held_client_that_comes_when_its_brokers_end_is_known_waits_for_nothing() -> None:
    """The session may know of it before the connection is closed, as when a write to the broker failed."""
    async with FaultBroker(answers) as broker, LocalProxy(broker.port, limits_of(RATE)) as proxy:
        with await into_debt(proxy, debt_s=2.0), await proxy.client() as ahead:
            await ahead.send(produce_of(RATE * 3))
            await ahead.silence()
            known = set(proxy.connections)
            with await proxy.client() as waiting:
                await waiting.send(produce())
                await waiting.silence()
                (connection,) = proxy.connections - known
                connection.session.broker_closed(DisconnectCause.BROKER_RESET)
                connection.session.pace.meet_gate()
                assert connection.session.pace.wake_at_ms == inf
                await waiting.send(produce(correlation_id=2))
                await waiting.silence()
            assert (await proxy.end()).cause == DisconnectCause.BROKER_RESET


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
    monkeypatch.setattr(client_side, "ENDING_DEADLINE_S", 0.05)  # the drain has its own

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
    monkeypatch.setattr(client_side, "LAST_ANSWER_S", 0.5)
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
        debt = await into_debt(proxy, debt_s=2.0)
        with debt, await proxy.client() as waiting, await proxy.client() as reported:
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


async def test_a_connection_that_lingered_is_freed_at_once_too() -> None:
    """The proxy ended it, and waited for its client to go; megabytes that it kept must not stay."""
    gc.disable()
    try:
        async with FaultBroker(answers) as broker, LocalProxy(broker.port, limits_of(1_000)) as proxy:
            with await proxy.client() as neighbour, await proxy.client() as client:
                await neighbour.send(produce_of(100_000))
                await neighbour.frame()
                await client.send(produce_of(10_000))
                await until(lambda: any(is_held(one) for one in proxy.connections))
                (connection,) = filter(is_held, proxy.connections)
                freed = weakref.ref(connection.session)
                del connection
                client.close()
                assert (await proxy.end()).cause == DisconnectCause.LEFT_WHILE_HELD
                await until(lambda: freed() is None)
    finally:
        gc.enable()


@pytest.mark.parametrize("first", ["held", "muted"])
async def test_drain_forwards_what_was_read_behind_a_delay_and_nobody_sends_again(first: str) -> None:
    """1,000 B/s. Requests with acks = 0, past one of another kind; they are counted."""
    broker_side = Recording()
    sent = [produce_of(2_000, acks=0, correlation_id=number) for number in range(4)]
    sent += [produce_of(500, correlation_id=4), produce_of(500, acks=0, correlation_id=5)]
    async with FaultBroker(broker_side) as broker, LocalProxy(broker.port, limits_of(1_000)) as proxy:
        neighbour, client = await proxy.client(), await proxy.client()
        with neighbour, client:
            if first == "held":
                await neighbour.send(produce_of(20_000, correlation_id=1000))
                await neighbour.frame()
            await client.send(b"".join(sent))
            await until(lambda: any(connection.session.pace.is_delayed for connection in proxy.connections))
            await asyncio.sleep(0.2)
            drain_all(proxy)
            assert await client.end() == "closed"
            await until(lambda: {0, 1, 2, 3, 5} <= set(broker_side.ids))
            assert [number for number in broker_side.ids if number < 1000] == [0, 1, 2, 3, 5]
            (sensor,) = proxy.shared.quotas.sensors()
            assert sensor.used == 8_500 + (20_000 if first == "held" else 0)
