"""The brokers' word on the quota topic: is it there, the same as before, and does it keep what is written?

Does not know what its records mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final
from uuid import UUID

from aiokafka import AIOKafkaConsumer
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError

from sluice.protocol.apis import ErrorCode
from sluice.protocol.errors import ProtocolError
from sluice.proxy.kafka_client.clients import (
    COMPACT,
    TopicRefused,
    cleanup_policy,
    make_compacted,
    topic_id,
    topic_metadata,
    topic_names,
)
from sluice.proxy.quota_store.topic_reader import TopicReader
from sluice.proxy.session.own_topic.own_topic import OwnTopic

_ASKED_AT_ONCE: Final = 100
"""topic ids"""
_ASK_S: Final = 0.1
"""between two questions"""
_LOOK_S: Final = 3.0
"""how often it is asked whether the topic is still the same, and any broker there"""
_LOOK_AGAIN_S: Final = 1.0
_UNANSWERED: Final = 3
"""looks on end after which the brokers are taken to be gone"""
_STOP_S: Final = 5.0


async def check_policy(client: AIOKafkaClient, reader: TopicReader, name: str) -> None:
    """A topic that forgets would lose quotas; an empty one is made compacted. Raises TopicRefused, and as the
    client."""
    policy = await cleanup_policy(client, name)
    if policy in {None, COMPACT}:
        return
    _, end = await reader.bounds()
    if end:
        raise TopicRefused(f"{name} has cleanup.policy={policy}; it must be {COMPACT}")
    await make_compacted(client, name)


async def check_same(client: AIOKafkaClient, reader: TopicReader, name: str, found: bytes) -> None:
    """It is still the one of the id `found`, and keeps what is written. Raises as `check_policy`."""
    if await topic_id(client, name) != found:
        raise TopicRefused("the topic has been deleted, or is another one of this name")
    await check_policy(client, reader, name)


async def watch(client: AIOKafkaClient, reader: TopicReader, name: str, found: bytes) -> Exception:
    """Look again and again, until it is not the same any more. Returns why, as `check_policy` raises it, or
    what has failed unforeseen: who waits for it raises it, and so it is told once.

    Any broker is asked: one that is frozen answers late or never, while the topic's leader is well.
    """
    unanswered = 0
    while True:
        await asyncio.sleep(_LOOK_AGAIN_S if unanswered else _LOOK_S)
        try:
            await check_same(client, reader, name, found)
            unanswered = 0
        except (KafkaError, OSError, TimeoutError, ProtocolError) as error:
            unanswered += 1
            if unanswered == _UNANSWERED:
                return error
        except Exception as error:  # TopicRefused, or unforeseen: let out here, it would be told twice
            return error


async def name_ids(client: AIOKafkaClient, own: OwnTopic) -> None:
    """Ask about some of the topic ids that clients have used and nobody has named, and tell `own`. Raises
    KafkaError, OSError, TimeoutError, ProtocolError."""
    wanted = list(own.wanted)[:_ASKED_AT_ONCE]
    try:
        told = await topic_names(client, [UUID(bytes=each) for each in wanted])
        # Of a topic that our login may not describe only the id is told; ours it may, so that is another.
        if None in told.values():
            code = (await topic_metadata(client, own.name)).error_code
            may_describe = code in {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        for each, name in told.items():
            if name is not None or may_describe:
                own.learn(each.bytes, name or "")
    finally:
        # Who comes with one again has it asked again, of another broker perhaps.
        for one in wanted:
            own.wanted.pop(one, None)


class IdDesk:
    """Has the brokers asked, one question after another, while there is a connection to them."""

    def __init__(self, own: OwnTopic, client: Callable[[], AIOKafkaClient | None]) -> None:
        """`client`: that is connected; None: nobody can be asked."""
        self._own = own
        self._client = client
        self._is_wanted = asyncio.Event()
        own.ask = self._is_wanted.set

    async def run(self) -> None:
        """Ask whenever there is something to ask, until cancelled."""
        while True:
            await self._is_wanted.wait()
            self._is_wanted.clear()
            client = self._client()
            if client is None:
                self._own.wanted.clear()
            else:
                with suppress(KafkaError, OSError, TimeoutError, ProtocolError):
                    await name_ids(client, self._own)
            if self._own.wanted:
                self._is_wanted.set()
            await asyncio.sleep(_ASK_S)


async def stop(which: AIOKafkaConsumer | AIOKafkaClient) -> None:
    """End it; with no broker there it may take its time."""
    with suppress(KafkaError, OSError, TimeoutError):
        async with asyncio.timeout(_STOP_S):
            await (which.stop() if isinstance(which, AIOKafkaConsumer) else which.close())
