"""Records onto the quota topic, each at most once: a record that is sent again is dropped by the broker.

Without that a record whose answer was lost would be appended a second time, perhaps behind a tombstone that
others have written and acknowledged meanwhile, and the limit would be back. Readers cannot mend it: of the
two records compaction may have left the second alone.

A producer ends with the first record that is not acknowledged. Its numbers are not the broker's any more
(aiokafka counts on when a record is refused), and it would try again for ever what it was told to forget: so
what it holds goes with it, and the next record has a new one. Source: KIP-98; aiokafka's sender.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from sluice.proxy.runtime.tasks import spawn

_END_S: Final = 1.0


class TopicProducer:
    """Writes to one topic; connects when it is first needed."""

    def __init__(self, topic: str, settings: Callable[[], Awaitable[dict[str, Any]]]) -> None:
        """`settings`: of a new producer, as they are then."""
        self._topic = topic
        self._settings = settings
        self._producer: _Producer | None = None
        self._making = asyncio.Lock()

    async def ready(self) -> None:
        """Returns when records can be sent. Raises KafkaError, OSError, TopicRefused: they cannot be."""
        await self._made()

    async def send(self, key: bytes, value: bytes | None, headers: Sequence[tuple[str, bytes]]) -> None:
        """Returns when all replicas in sync have it. Raises KafkaError, OSError; then, and when this is
        cancelled, it may be there or not, but does not come later than what is on its way."""
        producer = await self._made()
        try:
            await producer.send_and_wait(
                self._topic, key=key, value=value, partition=0, headers=list(headers)
            )
        except BaseException:
            self._give_up(producer)
            raise

    def end(self) -> None:
        """Give up what is not acknowledged."""
        if self._producer is not None:
            self._give_up(self._producer)

    async def _made(self) -> _Producer:
        async with self._making:
            if self._producer is None:
                producer = _Producer(**await self._settings(), acks="all", enable_idempotence=True)
                try:
                    await producer.start()
                except BaseException:
                    spawn(producer.give_up(), "quota_topic_producer_end")
                    raise
                self._producer = producer
            return self._producer

    def _give_up(self, producer: _Producer) -> None:
        if self._producer is producer:
            self._producer = None
            spawn(producer.give_up(), "quota_topic_producer_end")


class _Producer(AIOKafkaProducer):  # type: ignore[misc]
    """One that can be ended at once: aiokafka's `stop` first sends all that it has, for ever if need be."""

    async def give_up(self) -> None:
        """Nothing is sent any more. Returns when its connections are closed."""
        self._closed = True
        sender = self._sender.sender_task
        if sender is not None:
            sender.cancel()
        with suppress(KafkaError, OSError, TimeoutError):
            async with asyncio.timeout(_END_S):
                await self.client.close()
        while sender is not None and not sender.done():
            # It waits for requests on their way, and these for brokers' addresses: the next one ends that.
            await asyncio.wait({sender}, timeout=_END_S)
            sender.cancel()
