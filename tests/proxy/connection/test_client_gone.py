"""A write to the client has failed: nobody waits for what it asked. It goes to no broker, and keeps no place.

At a broker all such connections are gone within a second; through Sluice each went on for what was unread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from sluice.proxy.connection import client_side
from sluice.proxy.connection.connection import Connection
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.connection_states import State
from sluice.proxy.session.policy import SessionPolicy
from testkit.frames.frames import API_VERSIONS, METADATA, produce_of, request
from testkit.frames.wire import Wire
from testkit.peers.fault_broker import BrokerSide, FaultBroker, answer_of, answer_to
from testkit.proxy.local_proxy import LocalProxy, until
from testkit.proxy.playbook import limits_of

pytestmark = pytest.mark.asyncio
FULL = 10


class Broker:
    """Notes what arrives, and answers once it is told to, `most` times."""

    def __init__(self, answer_bytes: int = 0, most: int = 1_000_000) -> None:
        self.ids: list[int] = []
        self.may_answer = asyncio.Event()
        self.answer_bytes = answer_bytes
        self.most = most

    async def __call__(self, side: BrokerSide) -> None:
        while True:
            asked = await side.request()
            self.ids.append(asked.correlation_id)
            if asked.api_key or asked.acks:
                if not self.most:
                    await side.rest()
                self.most -= 1
                await self.may_answer.wait()
                size = self.answer_bytes
                await side.send(answer_of(asked, size) if size else answer_to(asked))


def asked(first: int, count: int) -> bytes:
    return b"".join(request(METADATA, 12, correlation_id=first + number) for number in range(count))


def unanswered(*numbers: int, size: int = 200) -> bytes:
    return b"".join(produce_of(size, acks=0, correlation_id=number) for number in numbers)


async def full(proxy: LocalProxy, client: Wire, behind: bytes) -> Connection:
    """As many requests as may be are in flight, and the others are unread, or kept."""
    await until(lambda: bool(proxy.connections))
    (connection,) = proxy.connections
    connection.session.pace.max_in_flight = FULL
    await client.send(asked(0, FULL) + behind)
    await until(lambda: connection.session.pace.state is State.AWAITING_BROKER)
    return connection


@pytest.fixture(autouse=True)
def _without_time_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ends does so because nothing is due."""
    monkeypatch.setattr(client_side, "ENDING_DEADLINE_S", 10_000.0)


@pytest.mark.parametrize(("leave", "most"), [(Wire.reset, FULL), (Wire.close, 3 * FULL)])
@pytest.mark.parametrize("count", [5, 20_000])
async def test_what_is_unread_of_a_client_that_takes_no_answer_goes_no_further(
    count: int, leave: Callable[[Wire], None], most: int
) -> None:
    """Of who closes, the first answers can still be sent: that is how its kernel comes to say that it has."""
    behaviour = Broker()
    async with FaultBroker(behaviour) as broker, LocalProxy(broker.port) as proxy:
        client = await proxy.client()
        await full(proxy, client, asked(100, count))
        leave(client)
        behaviour.may_answer.set()
        ended = await proxy.end()
        assert ended.requests <= most
        assert len(behaviour.ids) <= most
        assert count < most or ended.cause is DisconnectCause.CLIENT_RESET


async def test_nor_while_its_answers_wait_for_it() -> None:
    """The broker is not read then, and the client is: all that was sent would go."""
    behaviour = Broker(answer_bytes=1_000_000)
    behaviour.may_answer.set()
    async with FaultBroker(behaviour) as broker, LocalProxy(broker.port) as proxy:
        client = await proxy.client(receive_buffer_bytes=4096)
        connection = await full(proxy, client, asked(100, 1_000))
        await until(lambda: connection._client.out is not None)
        client.reset()
        ended = await proxy.end()
        assert ended.requests == FULL
        assert ended.cause is DisconnectCause.CLIENT_RESET


@pytest.mark.parametrize("size", [200, 2_000])
async def test_what_it_was_not_to_be_answered_goes_in_order(size: int) -> None:
    """And is read by the broker, which first answers what went before it: to nobody."""
    behaviour = Broker()
    numbers = range(100, 130)
    behind = b"".join(unanswered(number, size=size) + asked(1_000 + number, 3) for number in numbers)
    async with FaultBroker(behaviour) as broker, LocalProxy(broker.port) as proxy:
        client = await proxy.client()
        await full(proxy, client, behind)
        client.reset()
        behaviour.may_answer.set()
        ended = await proxy.end()
        await until(lambda: len(behaviour.ids) == FULL + len(numbers))
        assert behaviour.ids == [*range(FULL), *numbers]
        assert ended.cause is DisconnectCause.CLIENT_RESET


async def test_it_goes_at_the_pace_of_its_quota() -> None:
    behaviour = Broker()
    async with FaultBroker(behaviour) as broker, LocalProxy(broker.port, limits_of(2_000)) as proxy:
        client = await proxy.client()
        await client.send(asked(0, 2) + produce_of(3_000, correlation_id=2) + asked(100, 5))
        await client.send(unanswered(3, 4) + asked(100, 5))
        await until(lambda: bool(proxy.connections))
        (connection,) = proxy.connections
        await until(lambda: connection.session.pace.state is State.MUTED)
        client.reset()
        behaviour.may_answer.set()
        await proxy.end()
        await until(lambda: len(behaviour.ids) == 5)
        assert behaviour.ids == [0, 1, 2, 3, 4]


async def test_a_frame_whose_first_bytes_went_goes_whole() -> None:
    """The broker reads nothing meanwhile."""
    behaviour = Broker()
    large = produce_of(12_000_000, correlation_id=50)
    async with FaultBroker(behaviour) as broker, LocalProxy(broker.port) as proxy:
        client = await proxy.client()
        await client.send(asked(0, 1) + large[:1_000_000])
        await until(lambda: bool(behaviour.ids))
        behaviour.may_answer.set()
        await client.frame()
        behaviour.may_answer.clear()
        await client.send(large[1_000_000:] + asked(100, 1))
        await client.send(asked(101, 5))
        client.close()
        behaviour.may_answer.set()
        await proxy.end()
        assert behaviour.ids[:2] == [0, 50]


async def test_a_drain_does_not_wait_for_it() -> None:
    """Muted for what it owes, with requests kept and answers due."""
    behaviour = Broker(most=1)
    async with FaultBroker(behaviour) as broker, LocalProxy(broker.port, limits_of(1_000)) as proxy:
        client = await proxy.client()
        await client.send(asked(0, 3) + produce_of(100_000, correlation_id=3) + asked(100, 5))
        await until(lambda: bool(proxy.connections))
        (connection,) = proxy.connections
        await until(lambda: connection.session.pace.state is State.MUTED)
        client.reset()
        behaviour.may_answer.set()
        await until(lambda: connection._client.gone)
        assert proxy.connections
        connection.drain()
        assert not proxy.connections
        assert (await proxy.end()).cause is DisconnectCause.DRAINED


async def test_before_a_login_it_ends_at_once() -> None:
    behaviour = Broker(most=1)
    policy = SessionPolicy(authentication_required=True)
    async with FaultBroker(behaviour) as broker, LocalProxy(broker.port, policy=policy) as proxy:
        client = await proxy.client()
        await client.send(request(API_VERSIONS, 3) * 5)
        await until(lambda: bool(behaviour.ids))
        client.reset()
        behaviour.may_answer.set()
        assert (await proxy.end()).cause is DisconnectCause.CLIENT_RESET


async def test_at_a_drain_what_has_acks_0_and_has_gone_is_read_by_a_broker_that_reads_by_turns() -> None:
    """It stops at a write that fails, as Kafka does: closed at once, it had read three of nine."""
    broker_side = Broker()
    async with FaultBroker(broker_side) as broker, LocalProxy(broker.port) as proxy:
        with await proxy.client() as client:
            await client.send(asked(0, 4) + unanswered(*range(100, 105)))
            await until(lambda: any(one.session.requests == 9 for one in proxy.connections))
            (connection,) = proxy.connections
            connection.drain()
            client.reset()
            broker_side.may_answer.set()
            assert (await proxy.end()).cause is DisconnectCause.DRAINED
            await until(lambda: len(broker_side.ids) == 9)
            assert broker_side.ids == [*range(4), *range(100, 105)]
