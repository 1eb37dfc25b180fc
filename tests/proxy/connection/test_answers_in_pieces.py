"""A read brings more answers than one look works on: the rest is looked at when others were served."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from sluice.proxy.session.answer_pieces import PIECE_BYTES, NameReader
from sluice.usage.flow import TopicNames
from testkit.frames.frames import METADATA, answer, request
from testkit.peers.fault_broker import BrokerSide, FaultBroker
from testkit.proxy.local_proxy import LocalProxy

pytestmark = pytest.mark.asyncio
MANY = 40
SMALL_BUFFER_BYTES = 65_536
ASKED = request(METADATA, 12, {"topics": None}, correlation_id=7)


def long_answer() -> bytes:
    told: Any = [{"name": f"topic-{number}", "partitions": [{}] * 9} for number in range(900)]
    return answer(METADATA, 12, {"topics": told}, correlation_id=7)


def different_answers(many: int, topics: int) -> bytes:
    return b"".join(
        answer(METADATA, 12, {"topics": [{"name": f"{number}-{'x' * 200}"}] * topics}, correlation_id=7)
        for number in range(many)
    )


@asynccontextmanager
async def answered_at_once(many: int, answers: bytes) -> AsyncIterator[LocalProxy]:
    """A proxy that reads names, before a broker which says nothing more behind its answers to so many
    requests for Metadata; who asks it for anything else has an answer by itself."""

    async def behave(client: BrokerSide) -> None:
        first = await client.request()
        if first.api_key != METADATA:
            await client.send(answer(first.api_key, 3, {}, correlation_id=first.correlation_id))
            await asyncio.Event().wait()
        for _ in range(many - 1):
            await client.request()
        await client.send(answers)
        await asyncio.Event().wait()

    async with FaultBroker(behave) as broker:
        proxy = LocalProxy(broker.port)
        proxy.shared = replace(proxy.shared, topic_names=TopicNames())
        async with proxy:
            yield proxy


@pytest.mark.parametrize("takes_at_once", [True, False])
async def test_all_of_them_arrive_though_the_broker_sends_nothing_more(takes_at_once: bool) -> None:
    expected = long_answer() * MANY
    async with answered_at_once(MANY, expected) as proxy:
        with await proxy.client(receive_buffer_bytes=SMALL_BUFFER_BYTES) as client:
            await client.send(ASKED * MANY)
            if not takes_at_once:
                await asyncio.sleep(0.3)  # it takes nothing, and the proxy has to stop meanwhile
            assert await client.read(len(expected)) == expected


async def test_a_turn_of_the_loop_has_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look asked for one more, and the socket, which stayed readable, too: eight in a turn."""
    expected = different_answers(60, topics=400)
    turns = 0
    looks: list[int] = []

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    go_on = NameReader.go_on

    def counted(*args: Any) -> int:
        looks.append(turns)
        return go_on(*args)

    monkeypatch.setattr(NameReader, "go_on", counted)
    async with answered_at_once(60, expected) as proxy:
        with await proxy.client() as client:
            counting = asyncio.ensure_future(count_turns())
            await client.send(ASKED * 60)
            assert await client.read(len(expected)) == expected
            counting.cancel()
    assert len(looks) > len(expected) / PIECE_BYTES
    assert max(Counter(looks).values()) <= 2, "the last of one answer, and the first of the next"


async def test_others_are_served_between_two_looks() -> None:
    """A second client's requests are answered while the first one's answers are still looked through."""
    expected = different_answers(40, topics=100)
    order: list[str] = []
    async with answered_at_once(40, expected) as proxy:
        with await proxy.client() as first, await proxy.client() as second:

            async def takes() -> None:
                assert await first.read(len(expected)) == expected
                order.append("first")

            taking = asyncio.ensure_future(takes())
            await first.send(ASKED * 40)
            await first.read(0)
            await second.send(request(18, 3, {}, correlation_id=9))
            await second.frame()
            order.append("second")
            await taking
    assert order[-1] == "first"
