"""Limits in a compacted Kafka topic: followed by every proxy, written by the one that is asked.

One record holds all limits of one entity, and says which record of that entity its writer had seen last: the
topic's order decides, and one that was written past another is refused by everybody who reads it
(topic_records.py). Its writer does his alteration again on top of what stands there; so of alterations
at the same time none is lost, and of one key the later value holds.

    connect ─► topic there? make it ─► read from the beginning to the end of now ─► in force ─► follow
       ▲                                                                                          │
       └── pause, longer each time ◄── no broker, another topic id, records gone, anything unforeseen

What was in force stays until the next reading is complete. Runs in the proxy's event loop, in small steps.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import time
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError

from sluice.protocol.apis import ErrorCode
from sluice.protocol.errors import ProtocolError
from sluice.proxy.config.quotas import QuotaTopicOptions
from sluice.proxy.kafka_client.clients import ClusterAccess, TopicRefused, ensure_topic
from sluice.proxy.quota_store.audit import QuotaAudit, QuotaChange, shown
from sluice.proxy.quota_store.client_quotas import Alteration, QuotaApiError, Result, alter
from sluice.proxy.quota_store.entities import key_of
from sluice.proxy.quota_store.topic_answers import REFUSALS, outcome_of, results_of
from sluice.proxy.quota_store.topic_connection import check_policy, stop, watch
from sluice.proxy.quota_store.topic_headers import FOREIGN, Headers, headers_of
from sluice.proxy.quota_store.topic_lines import RecordLines
from sluice.proxy.quota_store.topic_producer import TopicProducer
from sluice.proxy.quota_store.topic_reader import READS, RECORDS_PER_STEP, TopicReader
from sluice.proxy.quota_store.topic_records import (
    NOTHING,
    Applied,
    BadRecord,
    Base,
    Outdated,
    Stored,
    TopicLog,
    value_of,
)
from sluice.proxy.runtime.error_words import reason_of
from sluice.proxy.runtime.file_work import FileWork
from sluice.proxy.runtime.log import get_logger
from sluice.proxy.runtime.tasks import spawn
from sluice.quotas.entity import QuotaEntity

FIRST_PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 5.0
_AT_ONCE: Final = 100
"""alterations that are looked at in the event loop; more, in a thread"""
_MAX_REWRITES: Final = 20

_log = get_logger()


class QuotaTopic:
    """Follows and writes the quota topic for one process."""

    def __init__(
        self,
        options: QuotaTopicOptions,
        audit: QuotaAudit,
        on_change: Callable[[], None],
        on_topic_id: Callable[[bytes], None],
        known: Mapping[QuotaEntity, Stored] | None = None,
        known_id: bytes = b"",
    ) -> None:
        """`on_change`: `entries` are others. `on_topic_id`: told when it becomes known. `known`, `known_id`:
        limits and topic id from a copy.

        Raises ConfigError for a file of TLS or credentials that cannot be used.
        """
        self._options = options
        self._access = ClusterAccess(options)
        self._settings_work: FileWork[dict[str, Any]] = FileWork()
        self._audit = audit
        self._on_change = on_change
        self._on_topic_id = on_topic_id
        self._log = TopicLog(dict(known or {}))
        self.is_known = known is not None
        """limits are there, from a copy or from the topic"""
        self.topic_id = known_id
        """of which the limits are: 16 bytes once it is known"""
        self.client: AIOKafkaClient | None = None
        """while it is connected"""
        self._opened: AIOKafkaClient | None = None
        self.bad_records = 0
        """skipped since the start; never falls"""
        self._lines = RecordLines()
        self._following = asyncio.Event()
        self._why_not = "it has not been reached yet"
        self._producer = TopicProducer(options.name, partial(self._settings_work.run, self._access.settings))
        self._held_from: int | None = None
        self._writing = asyncio.Lock()
        self._own: dict[str, asyncio.Future[bool]] = {}

    @property
    def is_followed(self) -> bool:
        """The topic has been read to its end, and is being followed."""
        return self._following.is_set()

    @property
    def entries(self) -> Mapping[QuotaEntity, Stored]:
        """What is in force by the topic."""
        return self._log.entries

    # Following --------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Follow the topic until cancelled, whatever happens to it."""
        pause_s = FIRST_PAUSE_S
        try:
            while True:
                try:
                    await self._follow()
                except (KafkaError, OSError, TimeoutError, TopicRefused, ProtocolError) as error:
                    self._why_not = reason_of(error)
                except Exception:
                    _log.exception("quota_topic_failed", topic=self._options.name)
                    self._why_not = "a fault of the proxy: see the log"
                if self.is_followed:
                    self._following.clear()
                    pause_s = FIRST_PAUSE_S
                _log.warning(
                    "quota_topic_lost", topic=self._options.name, reason=self._why_not, again_in_s=pause_s
                )
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
        finally:
            self._hang_up()

    def _hang_up(self) -> None:
        """The client of the last try ends. It stays between two tries: where the topic is refused, the
        brokers are there all the same, and may be asked."""
        if self._opened is not None:
            spawn(stop(self._opened), "quota_topic_client_stop")
        self._opened = self.client = None

    async def _follow(self) -> None:
        settings = await self._settings_work.run(self._access.settings)
        self._hang_up()
        client = self._opened = AIOKafkaClient(**settings)
        consumer: AIOKafkaConsumer | None = None
        watching: asyncio.Task[Exception] | None = None
        try:
            await client.bootstrap()
            self.client = client
            found = await ensure_topic(client, self._options)
            if found:
                self._on_topic_id(found)
            consumer = AIOKafkaConsumer(**settings, **READS)
            await consumer.start()
            partition = TopicPartition(self._options.name, 0)
            consumer.assign([partition])
            reader = TopicReader(consumer, partition)
            await check_policy(client, reader, self._options.name)
            await self._read(reader, found)
            self.topic_id = found
            self._following.set()
            # Beside: a look that hangs must not keep what others write from being followed.
            watching = spawn(watch(client, reader, self._options.name, found), "quota_topic_watch")
            while not watching.done():
                await self._take_next(reader)
                reader.tell_held()
                self._held_from = reader.held_from()
            raise watching.result()
        finally:
            if watching is not None:
                watching.cancel()
            self._held_from = None
            self._producer.end()
            # Beside: with no broker there it may take its time, and has been seen not to end.
            if consumer is not None:
                spawn(stop(consumer), "quota_topic_stop")

    async def _read(self, reader: TopicReader, found: bytes = b"") -> None:
        """All that is there now; then it is in force as a whole. `found`: the topic's id."""
        begin, end = await reader.bounds()
        reader.seek(begin)
        if begin == end > 0 and found == self.topic_id and self.entries:
            self._keep_all(begin)
            return
        log = TopicLog()
        told: dict[QuotaEntity, tuple[str, float]] = {}
        records = 0
        position = begin
        while position < end:
            for record in await reader.take(1000):
                records += 1
                try:
                    headers = headers_of(record)
                    applied = _apply(log, record, headers)
                    told[applied.entity] = (headers.by, record.timestamp / 1000.0)
                except Outdated:
                    continue
                except BadRecord as error:
                    self._skipped(record, error)
            position = await reader.position()
            await asyncio.sleep(0)
        before = self._log.entries
        kept = log.keep_from(before)
        self._log = log
        _log.info(
            "quota_topic_read",
            topic=self._options.name,
            records=records,
            entities=len(log.entries),
            kept=[str(entity) for entity in kept[:20]],
        )
        if self.is_known:
            await self._tell_differences(before, log.entries, told)
        self.is_known = True
        self._on_change()

    def _keep_all(self, begin: int) -> None:
        """The same topic has been emptied: whoever removes a limit writes so, so it was retention, while the
        topic was not compacted. Others may know nothing of what is in force here, until it is altered."""
        self._log = TopicLog(dict(self.entries))
        _log.error("quota_topic_emptied", topic=self._options.name, begin=begin, kept=len(self.entries))
        self.is_known = True
        self._on_change()

    async def _tell_differences(
        self,
        before: Mapping[QuotaEntity, Stored],
        after: Mapping[QuotaEntity, Stored],
        told: Mapping[QuotaEntity, tuple[str, float]],
    ) -> None:
        for number, entity in enumerate(dict.fromkeys((*before, *after))):
            old, new = before.get(entity, NOTHING), after.get(entity, NOTHING)
            if old != new:
                by, at_unix_s = told.get(entity, (FOREIGN, time()))
                self._changed(at_unix_s, by, Applied(entity, old, new))
            if number % RECORDS_PER_STEP == RECORDS_PER_STEP - 1:
                await asyncio.sleep(0)

    async def _take_next(self, reader: TopicReader) -> None:
        changed = False
        for record in await reader.take(500):
            headers = headers_of(record)
            waiting = self._own.pop(headers.write_id, None)
            try:
                applied = _apply(self._log, record, headers)
            except Outdated as error:
                if waiting is None:
                    self._lines.passed_over(record, headers, error)
                _settle(waiting, accepted=False)
                continue
            except BadRecord as error:
                self._skipped(record, error)
                continue
            _settle(waiting, accepted=True)
            if applied.old != applied.new:
                changed = True
                self._changed(record.timestamp / 1000.0, headers.by, applied)
        if changed:
            self._on_change()

    def _changed(self, at_unix_s: float, by: str, applied: Applied) -> None:
        entity, old, new = applied
        self._audit.changed(QuotaChange(at_unix_s, by, "topic", str(entity), shown(*old), shown(*new)))

    def _skipped(self, record: ConsumerRecord, error: BadRecord) -> None:
        self.bad_records += 1
        self._lines.skipped(record, error)

    # Writing ----------------------------------------------------------------------------------------------

    async def alter(
        self, alterations: Sequence[Alteration], *, validate_only: bool, by: str
    ) -> Sequence[Result]:
        """Returns when the records are acknowledged by all replicas in sync, and have come by here; or after
        `request_timeout_s`, whatever it is that takes so long.

        Raises QuotaApiError: the topic cannot be reached.
        """
        until_s = asyncio.get_running_loop().time() + self._options.request_timeout_s
        with suppress(TimeoutError):  # it may just be being read
            async with asyncio.timeout_at(until_s):
                await self._following.wait()
        self._check_followed()
        try:
            async with asyncio.timeout_at(until_s):
                await self._writing.acquire()
        except TimeoutError:
            message = "Nothing has been changed: alterations before this one wait for the quota topic"
            raise QuotaApiError(ErrorCode.REQUEST_TIMED_OUT, message) from None
        try:
            self._check_followed()
            return await self._alter(alterations, by, until_s, validate_only=validate_only)
        finally:
            self._writing.release()

    def _check_followed(self) -> None:
        if not self.is_followed:
            raise QuotaApiError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"The quota topic {self._options.name} cannot be reached: {self._why_not}",
            )

    async def _alter(
        self, alterations: Sequence[Alteration], by: str, until_s: float, *, validate_only: bool
    ) -> Sequence[Result]:
        # What another writes from here on, the records below do not stand on: so they must not say that
        # they had seen it.
        if len(alterations) <= _AT_ONCE:
            outcome, seen = outcome_of(alterations, self._log)
        else:
            outcome, seen = await asyncio.to_thread(outcome_of, alterations, self._log.copy())
        if validate_only or not outcome.changes:
            return outcome.results
        try:
            async with asyncio.timeout_at(until_s):
                await self._producer.ready()
        except (KafkaError, OSError, TimeoutError, TopicRefused) as error:
            message = f"Nothing has been changed: the quota topic cannot be written ({reason_of(error)})"
            return outcome.refused(ErrorCode.REQUEST_TIMED_OUT, dict.fromkeys(outcome.changes, message))
        writing: dict[QuotaEntity, asyncio.Task[None]] = {}
        try:
            # The first that fails ends the others: whether they are kept is not known either.
            async with asyncio.timeout_at(until_s), asyncio.TaskGroup() as tasks:
                for entity, limits in outcome.changes.items():
                    write = self._write(entity, limits, outcome.asked[entity], by, seen[entity])
                    writing[entity] = tasks.create_task(write)
        except* (KafkaError, OSError, TimeoutError, TopicRefused) as errors:
            outcome.results[:] = results_of(outcome, writing, self._why_not_answered(errors))
        return outcome.results

    def _why_not_answered(self, errors: BaseExceptionGroup[Exception]) -> str:
        error: BaseException = errors
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, TimeoutError) and self._held_from is not None:
            return f"another tool's transaction is open since offset {self._held_from}"
        return reason_of(error)

    async def _write(
        self, entity: QuotaEntity, limits: Mapping[str, float], asked: Alteration, by: str, after: Base
    ) -> None:
        """Until the record is accepted, on top of whatever others write meanwhile. `after`: the last record
        of the entity on which `limits` stand."""
        for _ in range(_MAX_REWRITES):
            base = self.entries.get(entity, NOTHING)
            write_id = secrets.token_hex(8)
            accepted = self._own[write_id] = asyncio.get_running_loop().create_future()
            try:
                if not self.is_followed:
                    raise TimeoutError(self._why_not)
                try:
                    await self._producer.send(
                        key_of(entity),
                        value_of(Stored(limits, base.shadow.intersection(limits) - asked.keys_set)),
                        Headers(by, write_id, after.offset, after.is_tombstone).written(),
                    )
                except REFUSALS:
                    # Of a second sending, it may be: what was sent first has come by, its answer was lost.
                    if not accepted.done():
                        raise
                if await accepted:
                    return
            finally:
                self._own.pop(write_id, None)
            now, after = self.entries.get(entity, NOTHING).limits, self._log.base_of(entity)
            limits = alter({entity: now}, [asked]).changes.get(entity, now)
        raise TimeoutError(f"{_MAX_REWRITES} others were quicker")


def _settle(waiting: asyncio.Future[bool] | None, *, accepted: bool) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(accepted)


def _apply(log: TopicLog, record: ConsumerRecord, headers: Headers) -> Applied:
    """Raises BadRecord and Outdated."""
    return log.apply(
        record.key,
        record.value,
        record.offset,
        headers.after,
        after_tombstone=headers.after_tombstone,
        problem=headers.problem,
    )
