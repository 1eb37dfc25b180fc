"""The access log of one process: fed by the usage meter, written by a writer that never delays it.

    sessions → Recorder → UsageMeter.drain, every 0.1 s → AccessCollector → AccessWriter.offer, offer_window

Nothing of it lies on the way of a request but the flow that the request's record carries
(session/topic_attribution.py).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

from sluice.proxy.access_log.sinks.sink import BucketSettings, DirectorySettings, SinkSettings, TopicSettings
from sluice.proxy.access_log.writer import AccessWriter, AccessWriterCounters, AccessWriterSettings
from sluice.proxy.config.access_log import AccessLogOptions, instance_name
from sluice.proxy.runtime.tasks import next_beat
from sluice.quotas.entity import QuotaEntity
from sluice.quotas.kinds import KIND_BY_KEY, QuotaKind
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.manager import QuotaManager
from sluice.usage.access_record import LIMIT_KEYS, REQUESTS, ROLLUP, Columns, heartbeat
from sluice.usage.collector import AccessCollector
from sluice.usage.flow import FETCH_CLASS, PRODUCE_CLASS, TopicNames
from sluice.usage.records import Recorder
from sluice.usage.requests import RequestRows
from sluice.usage.rollup import Limits, Rollup, Window
from sluice.usage.tallies import Counting

_HAND_OVER_INTERVAL_S: Final = 1.0
"""a window waits no longer"""
_READY_S: Final = 5.0
_KINDS: Final = tuple(KIND_BY_KEY[key] for key in LIMIT_KEYS)
_KIND_OF_CLASS: Final = {PRODUCE_CLASS: QuotaKind.PRODUCE, FETCH_CLASS: QuotaKind.FETCH}
NOTHING_WRITTEN: Final = AccessWriterCounters(0, 0, 0, 0, 0, 0, "", 0, 0)
_UNLIMITED: Final[Limits] = (None,) * len(_KINDS)


class RowWriter(Protocol):
    """What the log needs of its writer (AccessWriter)."""

    @property
    def ready(self) -> threading.Event: ...

    def start(self) -> None: ...

    def offer(self, table: str, columns: Columns) -> bool: ...

    def offer_window(self, window: Window) -> bool: ...

    def close(self, deadline_s: float) -> None: ...

    @property
    def counters(self) -> AccessWriterCounters: ...


class LimitsInForce:
    """Those of one configuration, for a user and client id as the roll-up has them."""

    def __init__(self, limits: QuotaLimits) -> None:
        self.limits: Final = limits

    def __call__(self, user: str, client_id: str) -> Limits:
        """In the units of the quota file; None: unlimited, or in shadow mode."""
        if not self.limits.entries:
            return _UNLIMITED
        matches = [self.limits.resolve(kind, user, client_id) for kind in _KINDS]
        return tuple(None if match is None or match.shadow else float(match.limit) for match in matches)

    def bucket_of(self, user: str, client_id: str, api_class: str) -> QuotaEntity | None:
        """The bucket of producer_byte_rate for Produces, of consumer_byte_rate for Fetches, also of one in
        shadow mode; None: there is no such limit, or it does not count them, as what a rule exempts."""
        kind = _KIND_OF_CLASS.get(api_class)
        if kind is None or self.limits.exempt.find(user, client_id, "") is not None:
            return None
        match = self.limits.resolve(kind, user, client_id)
        return None if match is None else match.bucket


class LimitsNow:
    """The same object for as long as the configuration stays."""

    def __init__(self, quotas: QuotaManager) -> None:
        self._quotas = quotas
        self._found = LimitsInForce(quotas.limits)

    def __call__(self) -> LimitsInForce:
        if self._found.limits is not self._quotas.limits:
            self._found = LimitsInForce(self._quotas.limits)
        return self._found


class AccessLog:
    """`take` is for the usage meter; `run` hands over what it made of it."""

    def __init__(
        self,
        options: AccessLogOptions,
        quotas: QuotaManager,
        writer: RowWriter,
        now_ms: float,
        offset_ms: Callable[[], float] = lambda: (time.time() - time.monotonic()) * 1000.0,
        *,
        counting: Counting | None = None,
    ) -> None:
        """`offset_ms`: Unix time less monotonic time. `counting`: compiled; None: it is not there."""
        proxy = self._proxy = instance_name(options)
        self._offset_ms = offset_ms
        self._has_begun = False
        self._is_ready = asyncio.Event()
        self._close_deadline_s = options.close_deadline_s
        self.topic_names = TopicNames()
        """for the sessions"""
        self.writer: Final = writer
        self.collector: Final = AccessCollector(
            Rollup(
                proxy,
                LimitsNow(quotas),
                now_ms=now_ms,
                unix_ms=now_ms + offset_ms(),
                max_keys=options.max_keys,
                counting=counting,
            ),
            RequestRows(
                proxy,
                share=options.sample_share,
                slow_ms=options.slow_s * 1000.0,
                max_rows=options.max_request_rows,
            ),
        )

    def take(self, recorder: Recorder, now_ms: float) -> None:
        """Add up what the sessions recorded; it stays in the lists."""
        self.collector.take(recorder, now_ms, now_ms + self._offset_ms())
        if self.collector.is_ready:
            self._is_ready.set()

    def hand_over(self, *, is_last: bool = False) -> None:
        """To the writer, what is finished. A window takes its heartbeat with it, so that none goes out for
        rows that are lost; one that was empty is a heartbeat alone."""
        begins = self.collector.rollup.ended
        last = begins[-1] if is_last and begins else None
        not_empty = set()
        for finished in self.collector.ready():
            if isinstance(finished, Window):
                begin_ms = finished.start_unix_ms
                not_empty.add(begin_ms)
                finished.heartbeat = heartbeat(begin_ms, self._proxy, is_last=begin_ms == last)
                self.writer.offer_window(finished)
            else:
                self.writer.offer(REQUESTS, finished)
        while begins:
            begin_ms = begins.popleft()
            if begin_ms not in not_empty:
                self.writer.offer(ROLLUP, heartbeat(begin_ms, self._proxy, is_last=begin_ms == last))

    async def run(self) -> None:
        """Hand over what is finished, until cancelled; while nothing is, as on an idle machine, it sleeps."""
        if not self._has_begun:
            self._has_begun = True
            self.writer.start()
        while True:
            await self._is_ready.wait()
            await next_beat(_HAND_OVER_INTERVAL_S)
            self._is_ready.clear()
            self.hand_over()

    async def until_ready(self) -> None:
        """`run` has begun, and what the writer loads has been loaded: it would stop the loop for tenths of a
        second at a time. Returns without it after a while, for traffic is worth more."""
        await asyncio.to_thread(self.writer.ready.wait, _READY_S)

    async def close(self, now_ms: float) -> None:
        """After the last `take`, with `run` cancelled: write all there is, and let go of the sink."""
        self.collector.close(now_ms, now_ms + self._offset_ms())
        self.hand_over(is_last=True)
        await asyncio.to_thread(self.writer.close, self._close_deadline_s)


def writer_settings(options: AccessLogOptions) -> AccessWriterSettings:
    """The same as the writer takes it. There is one sink, as `access_log_contradictions` sees to."""
    return AccessWriterSettings(
        sink=sink_settings(options),
        instance=instance_name(options),
        rotate_s=options.rotate_s,
        max_pending_rows=options.max_pending_rows,
        max_pending_bytes=options.max_pending_bytes,
        journal_folder=options.journal_folder,
    )


def sink_settings(options: AccessLogOptions) -> SinkSettings:
    """Where the log goes, as the sink takes it."""
    if options.directory is not None:
        return DirectorySettings(options.directory.path)
    if options.bucket is not None:
        bucket = options.bucket
        return BucketSettings(
            bucket.bucket,
            bucket.prefix,
            bucket.endpoint,
            bucket.region,
            bucket.credentials_file,
            bucket.profile,
            bucket.ca_file,
        )
    assert options.topic is not None
    return TopicSettings(options.topic, options.topic.partitions, options.topic.retention_s)


def access_log_of(
    options: AccessLogOptions | None, quotas: QuotaManager, now_ms: float, counting: Counting | None = None
) -> AccessLog | None:
    """The one that is configured. Raises ConfigError if its sink cannot be used."""
    if options is None:
        return None
    return AccessLog(options, quotas, AccessWriter(writer_settings(options)), now_ms, counting=counting)
