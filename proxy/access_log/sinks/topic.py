"""The access log in a Kafka topic: each record a whole Parquet file, keyed by its table and first window.

For sidecars, whose disks go with them. Parquet and not JSON: a third of the bytes at the standard load, and
a fraction of the processor time (docs/access-log-sinks.md). Whoever reads writes each record's value into a
file of the folder and name that its headers give, and has the layout of the directory sink; a record that
came twice (its acknowledgement was lost) so counts once.

The producer lives in an event loop and thread of its own: what it does for large records is not the proxy's
loop's concern. It stays connected, and so needs one producer id.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError, MessageSizeTooLargeError

from sluice.protocol.apis import ErrorCode
from sluice.protocol.errors import ProtocolError
from sluice.proxy.access_log.sinks.sink import LogFile, SinkError, SinkRefuses, TopicSettings
from sluice.proxy.kafka_client.clients import ClusterAccess, TopicRefused, create_topic, topic_metadata
from sluice.proxy.runtime.error_words import reason_of
from sluice.usage.access_record import SCHEMA_VERSION, VERSION_KEY

_OVERHEAD_BYTES: Final = 4096
"""of key, headers and the batch around a record, at most"""
_STOP_S: Final = 5.0
_REQUESTS_TO_CONNECT: Final = 4
"""that may each take request_timeout_s: to a broker, for the topic, to make it, for a producer id"""


class TopicSink:
    """Sends the files of one process to a topic; `write` and `close` are for one thread."""

    def __init__(self, settings: TopicSettings) -> None:
        """Raises ConfigError for a file of TLS or credentials that cannot be used. Connects to nothing."""
        self._settings = settings
        self._access = ClusterAccess(settings.cluster)
        self.max_file_bytes = settings.max_record_bytes - _OVERHEAD_BYTES
        self._producer: AIOKafkaProducer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def write(self, file: LogFile) -> None:
        """Returns when all replicas in sync have it. Raises SinkError, SinkRefuses."""
        self._run(self._send(file))

    def close(self) -> None:
        """Ends the producer, its loop and thread."""
        if self._loop is None or self._thread is None:
            return
        with suppress(CancelledError):
            self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop = self._thread = None

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=self._loop.run_forever, name="access-log-topic", daemon=True
            )
            self._thread.start()
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _send(self, file: LogFile) -> None:
        headers = {
            "table": file.table,
            "folder": file.folder,
            "name": file.name,
            "rows": str(file.rows),
            VERSION_KEY: str(SCHEMA_VERSION),
        }
        try:
            timeout_s = self._settings.cluster.request_timeout_s
            if self._producer is None:
                async with asyncio.timeout(timeout_s * _REQUESTS_TO_CONNECT):
                    await self._connect()
            assert self._producer is not None
            async with asyncio.timeout(timeout_s):  # aiokafka itself would try for ever
                await self._producer.send_and_wait(
                    self._settings.cluster.name,
                    key=f"{file.table}/{file.begin_ms}".encode(),
                    value=bytes(file.data),
                    headers=[(name, value.encode()) for name, value in headers.items()],
                )
        except MessageSizeTooLargeError as error:
            raise SinkRefuses(
                f"{len(file.data)} bytes are too large for {self._settings.cluster.name}: {error}"
            ) from None
        except (KafkaError, OSError, TimeoutError, TopicRefused, ProtocolError) as error:
            await self._give_up()
            raise SinkError(reason_of(error)) from None

    async def _connect(self) -> None:
        settings = await asyncio.to_thread(self._access.settings)
        settings["client_id"] = "sluice-access-log"
        client = AIOKafkaClient(**settings)
        try:
            await client.bootstrap()
            await self._ensure_topic(client)
        finally:
            await client.close()
        producer = AIOKafkaProducer(
            **settings,
            acks="all",
            enable_idempotence=True,
            max_request_size=self._settings.max_record_bytes,
        )
        self._producer = producer
        await producer.start()

    async def _stop(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            with suppress(KafkaError, OSError, TimeoutError):
                async with asyncio.timeout(_STOP_S):
                    await producer.stop()
            with suppress(KafkaError, OSError, TimeoutError):
                await producer.client.close()

    async def _give_up(self) -> None:
        """With a broker that does not answer: what the producer runs would wait for it. Nothing else lives in
        this loop."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=_STOP_S)
        await self._stop()

    async def _ensure_topic(self, client: AIOKafkaClient) -> None:
        """Make it if it is missing. Raises TopicRefused."""
        settings = self._settings
        name = settings.cluster.name
        if await partitions_of(client, name) is not None:
            return
        configs = {
            "cleanup.policy": "delete",
            "retention.ms": str(int(settings.retention_s * 1000)),
            "compression.type": "producer",  # the files are compressed as they are
        }
        replicas, timeout_s = settings.cluster.replication_factor, settings.cluster.request_timeout_s
        await create_topic(client, name, settings.partitions, replicas, configs, timeout_s)


async def partitions_of(client: AIOKafkaClient, topic: str) -> list[int] | None:
    """Their numbers; None: there is no such topic. Raises KafkaError, OSError, ProtocolError."""
    found = await topic_metadata(client, topic)
    if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return None
    return sorted(partition.partition_index for partition in found.partitions)
