"""Where the limits of a process come from, a file or a topic; where they are asked for and changed.

At the start the limits that are there; later what replaces them, each change on record. With a topic the file
may add what Kafka's API cannot say: exempt rules, tenants, client-id prefixes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Final

from sluice.protocol.apis import ErrorCode
from sluice.proxy.config.quotas import QuotaOptions, QuotaTopicOptions
from sluice.proxy.quota_store.audit import QuotaAudit
from sluice.proxy.quota_store.client_quotas import Alteration, Result
from sluice.proxy.quota_store.entities import parts_of
from sluice.proxy.quota_store.file_watch import QuotaFile
from sluice.proxy.quota_store.service import FileStore, QuotaDesk, QuotaStore
from sluice.proxy.quota_store.topic_copy import Copied, QuotaCopy
from sluice.proxy.quota_store.topic_records import Stored
from sluice.proxy.runtime.file_work import FileWork
from sluice.proxy.runtime.log import get_logger
from sluice.proxy.runtime.supervision import Work
from sluice.proxy.runtime.tasks import in_turns, spawn
from sluice.proxy.runtime.watched_file import ReloadStatus
from sluice.proxy.session.own_topic.own_topic import OwnTopic
from sluice.quotas.entity import QuotaEntity
from sluice.quotas.files.config_error import Problem, QuotaFileError
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.steps import at_once

Apply = Callable[[QuotaLimits], None]
FILE: Final = "file"
SCHEDULE: Final = "schedule"
_NOTHING: Final = QuotaLimits()
_COPY_S: Final = 1.0
"""between two writings of the copy"""
_COPY_AGAIN_S: Final = 10.0
"""after one that failed"""
_LOOKED_AT_PER_STEP: Final = 2_000

_log = get_logger()


class QuotaSource:
    """Where one process has its quotas from. The files are read when it is made."""

    def __init__(self, options: QuotaOptions) -> None:
        """Raises ConfigError for a file that cannot be used."""
        self._options = options
        self.audit = QuotaAudit()
        check = partial(refuse_both, options)
        self._file = None if options.file is None else QuotaFile(options.file, check=check)
        self.limits = _NOTHING if self._file is None else self._file.load()
        """in force, at the start and later"""
        self._base = None if self._file is None else self._file.base
        self._apply: Apply = _nowhere
        self.topic: TopicLimits | None = None
        """where source is topic"""
        store: QuotaStore
        if options.topic is None:
            store = FileStore(options.named_file())
        else:
            own = OwnTopic(options.topic.name, frozenset(options.admins))
            store = self.topic = TopicLimits(options.topic, own, self.audit, self.limits, self._put)
            self.limits = self.topic.at_start()
        self.desk = QuotaDesk(lambda: self.limits, store, frozenset(options.admins))
        """where anybody asks about quotas, and changes them"""

    @property
    def own_topic(self) -> OwnTopic | None:
        """What clients may neither read nor write."""
        return None if self.topic is None else self.topic.own

    def statuses(self) -> Iterator[ReloadStatus]:
        """What became of the file."""
        if self._file is not None:
            yield self._file.status

    def work(self, apply: Apply) -> Iterator[tuple[Work, str]]:
        """What is to run as long as the process; `apply` puts limits in force, in the event loop."""
        self._apply = apply
        if self._file is not None:
            interval_s = self._options.reload_interval_s
            yield partial(self._file.watch, interval_s, self._file_changed), "quota_file"
        if self.topic is not None:
            yield from self.topic.work()

    async def known(self) -> None:
        """Returns when there are limits to begin with: at once, if they are not in a topic alone."""
        if self.topic is not None:
            await self.topic.known.wait()

    async def close(self) -> None:
        """Keep what is not kept yet."""
        if self.topic is not None:
            await self.topic.keep(is_last=True)

    def _put(self, limits: QuotaLimits) -> None:
        self._apply(limits)
        self.limits = limits

    def _file_changed(self, limits: QuotaLimits) -> None:
        file = str(self._options.file)
        if self.topic is None:
            before = self.limits
            self._put(limits)
        else:
            before = self.topic.add_file(limits)
        # By a calendar the limits become others, while the file, and what was read of it, stay the same.
        base = None if self._file is None else self._file.base
        source, self._base = (SCHEDULE if base is self._base else FILE), base
        record = self.audit.reloaded(before, limits, by=file, source=source, at_unix_s=time.time())
        spawn(record, "quota_audit")


class TopicLimits:
    """The limits of a topic and of a file beside it, made into one; kept in a copy. A QuotaStore."""

    def __init__(
        self, options: QuotaTopicOptions, own: OwnTopic, audit: QuotaAudit, base: QuotaLimits, put: Apply
    ) -> None:
        """`base`: what the file adds. `put`: told the limits that are to be in force. Raises ConfigError."""
        from sluice.proxy.quota_store.topic import QuotaTopic  # aiokafka takes 0.1 s to import
        from sluice.proxy.quota_store.topic_connection import IdDesk

        self.known = asyncio.Event()
        """there are limits, from the copy or from the topic"""
        self._options = options
        self._put = put
        self._base = base
        self._copy = None if options.copy_file is None else QuotaCopy(options.copy_file, options.name)
        copied = None if self._copy is None else self._copy.read()
        self.own = own
        """told the topic's id once it is known"""
        if copied is not None:
            own.is_known_as(copied.topic_id)
        entries = None if copied is None else copied.entries
        self.topic = QuotaTopic(options, audit, self._changed, self._is_topic, entries, own.topic_id)
        self._ids = IdDesk(own, lambda: self.topic.client)
        self._copy_work: FileWork[None] = FileWork()
        self._dirty = asyncio.Event()
        self._copy_dirty = asyncio.Event()
        self._copy_fails = False
        self._version = 0
        self._built = 0
        self._put_in_force = asyncio.Condition()
        if copied is not None:
            self.known.set()
            _log.info("quota_copy_read", file=str(options.copy_file), entities=len(copied.entries))

    def at_start(self) -> QuotaLimits:
        """From the copy, if there is one."""
        return at_once(merged_in_steps(self._base, self.topic.entries))

    def work(self) -> Iterator[tuple[Work, str]]:
        """What is to run as long as the process."""
        yield self.topic.run, "quota_topic"
        yield self._ids.run, "quota_topic_ids"
        yield self._build, "quota_topic_limits"
        if self._copy is not None:
            yield self._keep_copy, "quota_topic_copy"

    def add_file(self, base: QuotaLimits) -> QuotaLimits:
        """What the file adds is another now. Returns what it was."""
        before, self._base = self._base, base
        self._is_to_build()
        return before

    async def alter(
        self, alterations: Sequence[Alteration], *, validate_only: bool, by: str
    ) -> Sequence[Result]:
        """Returns when the change is kept, and in force here; or, `request_timeout_s` after it was asked for,
        with an error for what is kept and not yet in force. Raises QuotaApiError."""
        until_s = asyncio.get_running_loop().time() + self._options.request_timeout_s
        results = await self.topic.alter(alterations, validate_only=validate_only, by=by)
        is_kept = not validate_only and any(not result.code for result in results)
        return results if not is_kept or await self._is_in_force(until_s) else _not_in_force(results)

    async def _is_in_force(self, until_s: float) -> bool:
        """Whether what the topic holds now is so in time."""
        version = self._version
        try:
            async with asyncio.timeout_at(until_s), self._put_in_force:
                while self._built < version:
                    await self._put_in_force.wait()
        except TimeoutError:
            return False
        return True

    def _is_topic(self, topic_id: bytes) -> None:
        if topic_id != self.own.topic_id:
            self.own.is_known_as(topic_id)
            self._copy_dirty.set()

    def _changed(self) -> None:
        """The topic's entries are others: the copy has them though they be in force later, or never here."""
        self._copy_dirty.set()
        self._is_to_build()

    def _is_to_build(self) -> None:
        self._version += 1
        self._dirty.set()

    async def _build(self) -> None:
        """Put in force what there is, in steps between which connections are served. What could not be is
        so once this is begun again, without another change."""
        while True:
            await self._dirty.wait()
            version = self._version
            self._put(await in_turns(merged_in_steps(self._base, dict(self.topic.entries))))
            self._built = version
            if version == self._version:
                self._dirty.clear()
            async with self._put_in_force:
                self._put_in_force.notify_all()
            if self.topic.is_known:
                self.known.set()

    async def _keep_copy(self) -> None:
        while True:
            await self._copy_dirty.wait()
            is_kept = await self.keep()
            await asyncio.sleep(_COPY_S if is_kept else _COPY_AGAIN_S)

    async def keep(self, *, is_last: bool = False) -> bool:
        """Write the copy, if it is to be another. `is_last`: at the end of the process, also behind a writing
        that is under way. False, told, and tried again by the next call: that failed."""
        if self._copy is None or not self.topic.is_known or not self._copy_dirty.is_set():
            return True
        self._copy_dirty.clear()
        copied = Copied(dict(self.topic.entries), self.own.topic_id)
        run = self._copy_work.run_last if is_last else self._copy_work.run_anew
        is_written = False
        try:
            await run(partial(self._copy.write, copied))
            is_written = True
        except OSError as error:
            if not self._copy_fails:  # it is tried every ten seconds
                _log.error("quota_copy_not_written", reason=str(error))
        finally:  # also when the task is cancelled: whether the thread ends before the process is not known
            self._copy_fails = not is_written
            if not is_written:
                self._copy_dirty.set()
        return is_written


def _not_in_force(results: Sequence[Result]) -> list[Result]:
    """The results where what is kept has not come into force in time: who asks now is told the old limits, so
    it is no success, though nothing has to be sent again."""
    message = "This is kept, but not in force at this proxy yet: look again"
    return [one if one.code else Result(one.parts, ErrorCode.REQUEST_TIMED_OUT, message) for one in results]


def merged_in_steps(
    base: QuotaLimits, entries: Mapping[QuotaEntity, Stored]
) -> Generator[None, None, QuotaLimits]:
    """The topic's entries with what the file adds; pauses every millisecond or so."""
    limits = ((entity, stored.limits) for entity, stored in entries.items())
    shadow: dict[QuotaEntity, frozenset[str]] = {}
    for number, (entity, stored) in enumerate(entries.items()):
        if number % _LOOKED_AT_PER_STEP == _LOOKED_AT_PER_STEP - 1:
            yield
        if stored.shadow:
            shadow[entity] = stored.shadow
    merged = QuotaLimits.in_steps(
        chain(limits, base.entries.items()),
        shadow={**shadow, **base.shadow},
        exempt=base.exempt.rules,
        tenants=base.tenants,
        schedules=base.schedules,
        scheduled=base.scheduled,
        refusing=base.refusing,
    )
    return (yield from merged)


def refuse_both(options: QuotaOptions, base: QuotaLimits) -> None:
    """Raises QuotaFileError for limits in the file that the topic has the say of. `base`: what it holds.

    Without a topic the file may hold all.
    """
    problem = None if options.topic is None else _in_both(base)
    if problem is not None:
        raise QuotaFileError([Problem(problem, source=str(options.file))])


def _in_both(base: QuotaLimits) -> str | None:
    """What a file beside a topic may not have."""
    for entity in base.entries:
        if parts_of(entity) is not None:
            return (
                f"has limits of {entity}; with quotas.source: topic they come from the topic alone. Set them "
                "through Kafka's API, and leave here what it cannot say"
            )
    return None


def _nowhere(_limits: QuotaLimits) -> None:
    """Until the process serves."""
