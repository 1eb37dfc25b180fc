"""A topic that was made is known to the broker that is asked some moments later."""

from __future__ import annotations

from typing import Any

import pytest

from sluice.proxy.config.quotas import QuotaTopicOptions
from sluice.proxy.kafka_client import clients
from sluice.proxy.kafka_client.clients import TopicRefused, ensure_topic

pytestmark = pytest.mark.asyncio

OPTIONS = QuotaTopicOptions(bootstrap=("127.0.0.1:1",))
NO_CLIENT: Any = None


@pytest.fixture
def ids(monkeypatch: pytest.MonkeyPatch) -> list[bytes | None]:
    """What a broker answers, one look after the other; the last one for good."""
    answers: list[bytes | None] = []

    async def topic_id(_client: Any, _name: str) -> bytes | None:
        return answers.pop(0) if len(answers) > 1 else answers[0]

    async def create_topic(*_: Any) -> None:
        assert answers[0] is None, "it is not there"

    monkeypatch.setattr(clients, "topic_id", topic_id)
    monkeypatch.setattr(clients, "create_topic", create_topic)
    monkeypatch.setattr(clients, "_SEEN_AFTER_S", (0.0,) * 4)
    return answers


async def test_it_is_looked_for_until_the_broker_knows_it(ids: list[bytes | None]) -> None:
    ids += [None, None, None, b"id"]
    assert await ensure_topic(NO_CLIENT, OPTIONS) == b"id"


async def test_one_that_never_comes_is_refused(ids: list[bytes | None]) -> None:
    ids += [None]
    with pytest.raises(TopicRefused, match="has been made, and the broker does not know it after 0 s"):
        await ensure_topic(NO_CLIENT, OPTIONS)
