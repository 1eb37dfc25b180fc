"""A client that leaves before its answer: the broker works for it, so Sluice waits there until the answer
has come, and charges its quota."""

from __future__ import annotations

import asyncio

import pytest

from sluice.quotas.entity import DEFAULT, QuotaEntity
from sluice.quotas.kinds import QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from testkit.frames.frames import FETCH, METADATA, fetch, fetch_answer_of, produce_of, request
from testkit.frames.mutation_frames import create, created
from testkit.frames.wire import Wire
from testkit.peers.fault_broker import BrokerSide, FaultBroker, Request, answer_to
from testkit.proxy.local_proxy import LocalProxy, until

pytestmark = pytest.mark.asyncio
MUCH_BYTES = 40_000_000
PIECE_BYTES = 100_000


class AnswersLater:
    """A broker that answers once it is told to."""

    def __init__(self) -> None:
        self.asked = 0
        self.ended = 0
        self.may_answer = asyncio.Event()

    async def __call__(self, side: BrokerSide) -> None:
        try:
            while True:
                asked = await side.request()
                self.asked += 1
                await self.may_answer.wait()
                await self.answer(side, asked)
        finally:
            self.ended += 1

    async def answer(self, side: BrokerSide, asked: Request) -> None:
        is_fetch = asked.api_key == FETCH
        await side.send(
            fetch_answer_of(50_000, correlation_id=asked.correlation_id) if is_fetch else answer_to(asked)
        )


class AnswersMuch(AnswersLater):
    """40 MB for each Fetch; begins the next when the last is written."""

    def __init__(self) -> None:
        super().__init__()
        self.sent_bytes = 0

    async def answer(self, side: BrokerSide, asked: Request) -> None:
        whole = fetch_answer_of(MUCH_BYTES, correlation_id=asked.correlation_id)
        for at in range(0, len(whole), PIECE_BYTES):
            await side.send(whole[at : at + PIECE_BYTES])
            self.sent_bytes += len(whole[at : at + PIECE_BYTES])


class Refuses(AnswersLater):
    """A topic to be created, by its answer."""

    async def answer(self, side: BrokerSide, asked: Request) -> None:
        await side.send(created({"x": (29, -1)}, correlation_id=asked.correlation_id))


def ended(client: Wire, how: str) -> None:
    client.reset() if how == "reset" else client.close()


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize(
    ("kind", "key", "frame"),
    [
        (QuotaKind.REQUEST, "request_percentage", request(METADATA, 12)),
        (QuotaKind.FETCH, "consumer_byte_rate", fetch()),
    ],
)
async def test_the_answer_is_charged_when_it_comes(kind: QuotaKind, key: str, frame: bytes, how: str) -> None:
    behaviour = AnswersLater()
    limits = QuotaLimits([(QuotaEntity(DEFAULT, None), {key: 1_000_000 if "rate" in key else 100.0})])
    async with FaultBroker(behaviour) as broker, LocalProxy(broker.port, limits) as proxy:
        with await proxy.client() as client:
            await client.send(frame)
            await until(lambda: behaviour.asked == 1)
            ended(client, how)
            await asyncio.sleep(0.05)
            assert behaviour.ended == 0, "the broker heard of the end, and its answer is lost"
            (sensor,) = [each for each in proxy.shared.quotas.sensors() if each.kind is kind]
            before = sensor.used
            behaviour.may_answer.set()
            await until(lambda: not proxy.connections)
            assert sensor.used > before
            await until(lambda: behaviour.ended == 1)


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_topic_that_is_refused_when_its_client_has_left_is_given_back(how: str) -> None:
    behaviour = Refuses()
    limits = QuotaLimits([(QuotaEntity(DEFAULT, None), {"controller_mutation_rate": 2.0})])
    async with FaultBroker(behaviour) as broker, LocalProxy(broker.port, limits) as proxy:
        with await proxy.client() as client:
            await client.send(create({"x": 20}))
            await until(lambda: behaviour.asked == 1)
            ended(client, how)
            (sensor,) = proxy.shared.quotas.sensors()
            assert sensor.used == 20, "what a broker may have done is charged"
            behaviour.may_answer.set()
            await until(lambda: not proxy.connections)
            assert sensor.used == 0


async def test_a_produce_without_acks_behind_answers_for_nobody_comes_to_the_broker() -> None:
    behaviour = AnswersLater()
    limits = QuotaLimits([(QuotaEntity(DEFAULT, None), {"request_percentage": 100.0})])
    async with FaultBroker(behaviour) as broker, LocalProxy(broker.port, limits) as proxy:
        with await proxy.client() as client:
            await client.send(b"".join(request(METADATA, 12, correlation_id=number) for number in range(4)))
            await client.send(produce_of(100_000, acks=0))
            await until(lambda: behaviour.asked == 1)
            client.close()
            await asyncio.sleep(0.05)
        behaviour.may_answer.set()
        await until(lambda: not proxy.connections)
        assert behaviour.asked == 5


async def test_without_a_quota_that_charges_answers_the_end_is_passed_on() -> None:
    behaviour = AnswersLater()
    async with FaultBroker(behaviour) as broker, LocalProxy(broker.port) as proxy:
        with await proxy.client() as client:
            await client.send(request(METADATA, 12))
            await until(lambda: behaviour.asked == 1)
            client.reset()
            await until(lambda: not proxy.connections)
        behaviour.may_answer.set()


@pytest.mark.parametrize(
    ("kind", "key", "rate"),
    [(QuotaKind.REQUEST, "request_percentage", 100.0), (QuotaKind.FETCH, "consumer_byte_rate", 1e9)],
)
@pytest.mark.parametrize("count", [1, 5])
async def test_an_answer_that_is_charged_is_not_taken_for_nobody(
    count: int, kind: QuotaKind, key: str, rate: float
) -> None:
    """What a client does not wait for costs Sluice no more than what was on its way."""
    behaviour = AnswersMuch()
    limits = QuotaLimits([(QuotaEntity(DEFAULT, None), {key: rate})])
    async with FaultBroker(behaviour) as broker, LocalProxy(broker.port, limits) as proxy:
        with await proxy.client() as client:
            await client.send(b"".join(fetch(correlation_id=number) for number in range(count)))
            await until(lambda: behaviour.asked == 1)
            client.close()
            await asyncio.sleep(0.05)
        behaviour.may_answer.set()
        await until(lambda: behaviour.ended == 1)
        assert behaviour.asked == 1
        assert behaviour.sent_bytes < MUCH_BYTES // 2
        (sensor,) = [each for each in proxy.shared.quotas.sensors() if each.kind is kind]
        assert sensor.used > 0
        await until(lambda: not proxy.connections)
