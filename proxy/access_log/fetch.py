"""The access log in a topic → files in a folder, where the nightly job reads them: each record is one.

Written as the directory sink writes, and committed (consumer group) only then: what is interrupted goes on
where it was. A record that came twice has the same name, and counts once. Brokers that go away in its midst
end it: a night waits for this command. Where a record says that it belongs is believed as far as it names a
partition of the log: who may write to the topic may not write elsewhere.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError

from sluice.protocol.errors import ProtocolError
from sluice.proxy.access_log.sinks.directory import DirectorySink
from sluice.proxy.access_log.sinks.sink import DirectorySettings, LogFile, SinkError
from sluice.proxy.access_log.sinks.topic import partitions_of
from sluice.proxy.config.quotas import TopicOptions
from sluice.proxy.kafka_client.clients import ClusterAccess, TopicRefused
from sluice.proxy.runtime.error_words import reason_of
from sluice.usage.access_record import TABLES

GROUP: Final = "sluice-access-log"
_FOLDER: Final = re.compile(rf"({'|'.join(TABLES)})/date=\d{{4}}-\d\d-\d\d/hour=\d\d")
_NAME: Final = re.compile(r"[A-Za-z0-9-][A-Za-z0-9._-]{0,200}\.parquet")
_MAGIC: Final = b"PAR1"
_POLL_MS: Final = 1000
_RECORDS_AT_ONCE: Final = 50
_REQUESTS_IN_A_ROW: Final = 4
"""that may each take request_timeout_s until something comes: for who leads, to connect, to log in, itself"""
_STOP_S: Final = 5.0


class FetchFailed(Exception):
    """The topic could not be read to its end, or the folder not written; what was fetched stays."""


class BrokersSilent(Exception):
    """The brokers answer nothing that is waited for; aiokafka itself would ask for ever."""


@dataclass(slots=True)
class Fetched:
    """What became of the records."""

    files: int = 0
    there: int = 0
    """records whose file was there already"""
    foreign: int = 0
    """records that are no file of the log; skipped"""


async def fetch_files(cluster: TopicOptions, folder: Path, group: str = GROUP) -> Fetched:
    """All that is in the topic now, and was not fetched before. Raises ConfigError, FetchFailed.

    It fails also when nothing has come for four times `request_timeout_s`."""
    sink = DirectorySink(DirectorySettings(folder))
    access = ClusterAccess(cluster)
    found = Fetched()
    patience_s = cluster.request_timeout_s * _REQUESTS_IN_A_ROW
    try:
        settings = await asyncio.to_thread(access.settings)
        settings["client_id"] = "sluice-access-log-fetch"
        partitions = await _partitions(settings, cluster.name)
        consumer = AIOKafkaConsumer(
            **settings, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest"
        )
        try:
            await consumer.start()
            consumer.assign(partitions)
            await fetch_to_end(consumer, partitions, partial(_keep, folder, sink, found), patience_s)
        finally:
            await _stop(consumer)
    except (
        KafkaError,
        OSError,
        TimeoutError,
        TopicRefused,
        SinkError,
        ProtocolError,
        BrokersSilent,
    ) as error:
        told = str(error) if isinstance(error, BrokersSilent) else reason_of(error)
        before = f"; {found.files} files came before that, and stay" if found.files else ""
        raise FetchFailed(told + before) from None
    return found


async def fetch_to_end(
    consumer: AIOKafkaConsumer,
    partitions: list[TopicPartition],
    keep: Callable[[ConsumerRecord], None],
    patience_s: float,
) -> None:
    """Call `keep`, in a thread, with each record up to the end that is now, and commit what it has kept.

    Raises BrokersSilent when nothing moves on for `patience_s`; what `keep` raises; KafkaError, OSError."""
    now_s = asyncio.get_running_loop().time
    left = set(partitions)
    try:
        async with asyncio.timeout(patience_s) as silence:
            ends = await consumer.end_offsets(partitions)
            at = {partition: await consumer.position(partition) for partition in partitions}
            while left := {partition for partition in partitions if at[partition] < ends[partition]}:
                batches = await consumer.getmany(*left, timeout_ms=_POLL_MS, max_records=_RECORDS_AT_ONCE)
                if batches:
                    silence.reschedule(None)  # a slow disk is no broker's silence
                    for record in chain.from_iterable(batches.values()):
                        await asyncio.to_thread(keep, record)
                    silence.reschedule(now_s() + patience_s)
                    await consumer.commit()
                before, at = at, {partition: await consumer.position(partition) for partition in partitions}
                if at != before:
                    silence.reschedule(now_s() + patience_s)
    except TimeoutError:
        if not silence.expired():
            raise
        numbers = ", ".join(str(partition.partition) for partition in sorted(left))
        raise BrokersSilent(
            f"the brokers have answered nothing for {patience_s:g} s; left: partition {numbers}"
        ) from None


async def _stop(consumer: AIOKafkaConsumer) -> None:
    """Let it end what it runs. It waits for brokers that are gone, too; this command does not."""
    with suppress(KafkaError, OSError, TimeoutError):
        async with asyncio.timeout(_STOP_S):
            await consumer.stop()


async def _partitions(settings: dict[str, Any], topic: str) -> list[TopicPartition]:
    client = AIOKafkaClient(**settings)
    try:
        await client.bootstrap()
        numbers = await partitions_of(client, topic)
    finally:
        await client.close()
    if not numbers:
        raise FetchFailed(f"there is no topic {topic}")
    return [TopicPartition(topic, number) for number in numbers]


def _keep(folder: Path, sink: DirectorySink, found: Fetched, record: ConsumerRecord) -> None:
    """Write the file that a record holds into the folder. Raises SinkError, OSError."""
    file = file_of(record.headers, record.value)
    if file is None:
        found.foreign += 1
    elif (folder / file.folder / file.name).exists():
        found.there += 1
    else:
        sink.write(file)
        found.files += 1


def file_of(headers: Any, value: bytes | None) -> LogFile | None:
    """The file that a record is; None: it is none of the log."""
    told = {key: bytes(text).decode("utf-8", "replace") for key, text in headers if text is not None}
    belongs = _FOLDER.fullmatch(told.get("folder", ""))
    name = told.get("name", "")
    if belongs is None or _NAME.fullmatch(name) is None or value is None:
        return None
    if len(value) <= 2 * len(_MAGIC) or not value.startswith(_MAGIC) or not value.endswith(_MAGIC):
        return None
    rows = told.get("rows", "")
    return LogFile(
        table=belongs[1],
        folder=belongs[0],
        name=name,
        begin_ms=0,
        rows=int(rows) if rows.isdecimal() and len(rows) < 10 else 0,
        data=memoryview(value),
    )
