"""While the quota topic cannot be used the brokers are there: they are asked whose topic ids are."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest
from aiokafka.errors import KafkaConnectionError

from sluice.proxy.config.quotas import QuotaTopicOptions
from sluice.proxy.kafka_client.clients import TopicRefused
from sluice.proxy.quota_store import topic as quota_topic
from sluice.proxy.quota_store import topic_connection
from sluice.proxy.quota_store.audit import QuotaAudit
from sluice.proxy.quota_store.topic import QuotaTopic
from testkit.proxy.local_proxy import until

pytestmark = pytest.mark.asyncio


class Client:
    """In the place of aiokafka's."""

    made: ClassVar[list[Client]]
    is_reached = True

    def __init__(self, **_settings: Any) -> None:
        self.is_closed = False
        self.made.append(self)

    async def bootstrap(self) -> None:
        if not self.is_reached:
            raise KafkaConnectionError

    async def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> QuotaTopic:
    async def refused(*_: Any) -> bytes:
        raise TopicRefused("it has 2 partitions")

    Client.made = []
    monkeypatch.setattr(quota_topic, "AIOKafkaClient", Client)
    monkeypatch.setattr(quota_topic, "ensure_topic", refused)
    monkeypatch.setattr(quota_topic, "FIRST_PAUSE_S", 0.1)
    options = QuotaTopicOptions(bootstrap=("127.0.0.1:1",))
    return QuotaTopic(options, QuotaAudit(), lambda: None, lambda _: None, {})


async def test_while_the_topic_is_refused_there_is_a_client_to_ask(topic: QuotaTopic) -> None:
    run = asyncio.ensure_future(topic.run())
    try:
        await until(lambda: topic._why_not.startswith("TopicRefused"))
        first: Any = topic.client
        await asyncio.sleep(0.05)
        assert topic.client is first is Client.made[0]
        assert not first.is_closed
        await until(lambda: topic.client not in {None, first})
        await until(lambda: first.is_closed)
        assert not Client.made[1].is_closed
    finally:
        run.cancel()
    await until(lambda: run.done() and all(each.is_closed for each in Client.made))
    assert topic.client is None


async def test_while_no_broker_is_reached_there_is_none(
    topic: QuotaTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Client, "is_reached", False)
    run = asyncio.ensure_future(topic.run())
    await until(lambda: len(Client.made) == 2)
    assert topic.client is None
    await until(lambda: Client.made[0].is_closed)
    run.cancel()
    await until(lambda: run.done() and all(each.is_closed for each in Client.made))


@pytest.mark.parametrize("error", [TopicRefused("another one"), ValueError("unforeseen")])
async def test_what_ends_the_looks_is_handed_to_who_waits_for_it_and_told_there_alone(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: Any) -> None:
        raise error

    monkeypatch.setattr(topic_connection, "_LOOK_S", 0.0)
    monkeypatch.setattr(topic_connection, "check_same", fails)
    nobody: Any = None
    assert await topic_connection.watch(nobody, nobody, "quotas", b"") is error
