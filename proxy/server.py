"""The process: listeners, quota file, metrics and admin port together; start, drain, end.

Start: quotas first (a proxy without them is not ready), then listeners, then ready. SIGTERM or SIGINT: not
ready, accept no more, answer what is in flight, close; a second signal, or the deadline, closes the rest.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Final

import uvloop

from sluice.proxy.access_log.access_log import access_log_of
from sluice.proxy.admin.handlers import AdminDesk
from sluice.proxy.admin.server import AdminServer, Health
from sluice.proxy.assembly import assemble, connection_rates, policy_of, producer_id_file, watch_rules
from sluice.proxy.calibration.request_cost_file import load_request_costs
from sluice.proxy.config.config import Config
from sluice.proxy.config.producer_ids import producer_ids_of
from sluice.proxy.config.watch import ConfigWatch
from sluice.proxy.connection.budget import BufferBudget
from sluice.proxy.connection.connection import Connection
from sluice.proxy.connection.timeouts import SWEEP_INTERVAL_MS
from sluice.proxy.connection.worker import Worker
from sluice.proxy.listener.circuit import CircuitsByIdentity
from sluice.proxy.listener.listener import Listener
from sluice.proxy.listener.security import ListenerSecurity, load_security
from sluice.proxy.metrics.collector import SluiceCollector
from sluice.proxy.metrics.kafka_page import KafkaPage
from sluice.proxy.metrics.usage_meter import UsageMeter
from sluice.proxy.parts import (
    connection_limits_of,
    follow_connection_limits,
    kafka_page_of,
    quota_manager_of,
    tell_start,
    warn_of_gaps,
)
from sluice.proxy.pump.choice import data_path
from sluice.proxy.quota_store.producer_id_file import ProducerIdFile
from sluice.proxy.quota_store.source import QuotaSource
from sluice.proxy.replication.setup import ReplicationSetup
from sluice.proxy.runtime.garbage import tune_garbage_collection
from sluice.proxy.runtime.gauges import Gauges
from sluice.proxy.runtime.listening import CannotListen
from sluice.proxy.runtime.log import configure_logging, get_logger
from sluice.proxy.runtime.signals import take_signals
from sluice.proxy.runtime.supervision import Work, keep_running
from sluice.proxy.runtime.tasks import beat_of_clients, spawn
from sluice.proxy.runtime.wall_clock import watch_wall_clock
from sluice.proxy.runtime.watched_file import ReloadStatus
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.delays import LeftBehind, SessionTimeouts
from sluice.proxy.session.mutations.topic_defaults import TopicDefaults
from sluice.proxy.session.policy import SharedState
from sluice.quotas.limits.limits import QuotaLimits
from sluice.usage.records import Recorder

_EXPIRE_INTERVAL_S: Final = 60.0
_DRAIN_POLL_S: Final = 0.02
_TURNS_INTERVAL_S: Final = 0.05  # little beside a rate of ids per hour
_WAITS_TOLD_S: Final = 2.0
_SWEPT_AT_ONCE: Final = 500
"""connections; about 0.5 ms in which no other is served"""
EXIT_FINE: Final = 0
EXIT_FAILED: Final = 1

_log = get_logger()


def run(config: Config, file: Path | None = None) -> int:
    """Serve until a signal ends it; returns the exit code (docs: `sluice --help`).

    `file`: where `config` was read from, to be followed.

    Raises ConfigError if the quota file, or another file that is named, cannot be used at the start.
    """
    configure_logging(config.log)
    quota_source = QuotaSource(config.quotas)
    securities = [load_security(options) for options in config.listeners]
    id_file = producer_id_file(config)
    data_path(config.pump)
    watch = None if file is None else ConfigWatch(file, os.environ, config)
    tell_start(config, file, quota_source.limits)
    return uvloop.run(Server(config, quota_source, securities, watch, id_file).serve())


class Server:
    """One worker process: one event loop, all its listeners."""

    def __init__(
        self,
        config: Config,
        quota_source: QuotaSource,
        securities: Sequence[ListenerSecurity],
        config_watch: ConfigWatch | None = None,
        id_file: ProducerIdFile | None = None,
    ) -> None:
        """`securities`: of the listeners, in their order."""
        self._config = config
        self._config_watch = config_watch
        self._id_file = id_file
        self._quota_source = quota_source
        self._quotas = quota_manager_of(config, quota_source.limits)
        self._path = path = data_path(config.pump)
        self._recorder = Recorder()
        self._access_log = access_log_of(config.access_log, self._quotas, monotonic() * 1000.0, path.counting)
        self._replication = ReplicationSetup(config.replication, config.quotas)
        self._gauges = Gauges()
        self._health = Health()
        self._shared = SharedState(
            self._quotas,
            self._recorder,
            SessionTimeouts(),
            LeftBehind(config.limits.unfinished_bytes_per_user),
            producer_ids_of(config.producer_ids),
            TopicDefaults(config.controller_mutations.default_partitions),
            own_topic=quota_source.own_topic,
            topic_names=None if self._access_log is None else self._access_log.topic_names,
        )
        self._limits = connection_limits_of(config.limits)
        self._rates = connection_rates(config.pacing, self._quotas, self._limits, self._gauges)
        self._budget: BufferBudget[Connection] = BufferBudget(
            config.limits.max_buffered_bytes, config.limits.max_buffered_bytes_per_user
        )
        self._costs = load_request_costs(config.request_time.cost_file)
        self._meter = UsageMeter(
            self._recorder,
            self._quotas,
            self._shared.producer_ids,
            max_series=config.metrics.max_series,
            max_users=config.metrics.max_users,
            warning_share=config.quotas.warning_share,
            counting=path.counting,
        )
        if self._access_log is not None:
            self._meter.access_log = self._access_log.take
        self._circuits = CircuitsByIdentity()
        self._securities = securities
        self._listeners: list[Listener] = []
        self._signals = 0
        self._signalled = asyncio.Event()

    async def serve(self) -> int:
        """Start everything, wait for a signal, drain. Returns the exit code."""
        with closing(self._worker()) as worker:
            kafka_page = kafka_page_of(self._config, self._meter, self._gauges, self._replication.replication)
            admin = self._admin_server(kafka_page)
            if self._id_file is not None:
                self._id_file.restore(self._shared.producer_ids.quota)
            try:
                await admin.start()
                beside = self._assemble(worker)
            except CannotListen as error:
                _log.error("cannot_listen", **error.place, reason=error.reason, remedy=error.remedy)
                await self._stop_everything(admin)
                return EXIT_FAILED
            tasks = self._spawn_all(worker, kafka_page, beside)
            await self._until_ready()
            for listener in () if self._signals else self._listeners:
                listener.start()
            tune_garbage_collection()
            self._health.started = not self._signals
            await self._signalled.wait()
            await self._drain()
            for task in tasks:
                task.cancel()
            await self._write_the_rest()
            await self._stop_everything(admin)
        return EXIT_FINE

    def _worker(self) -> Worker:
        """Make what all connections share, and take signals from now on."""
        loop = asyncio.get_running_loop()
        worker = Worker(loop, self._recorder, self._gauges, self._limits, self._budget, self._path.poller)
        worker.quota_desk = self._quota_source.desk
        worker.rates = self._rates
        take_signals(loop, self._signal)
        return worker

    def _admin_server(self, kafka_page: KafkaPage | None) -> AdminServer:
        """Make the admin port, and give it all that it may be asked about."""
        replication = self._replication.replication
        reloads = self._reloads()
        collector = SluiceCollector(
            self._meter,
            self._quotas,
            self._gauges,
            reloads,
            lambda: self._budget.kept_bytes,
            self._id_file,
            self._circuits,
            self._securities,
            self._quota_source,
            self._access_log,
            replication,
            self._health.upstreams,
            self._path.name,
        )
        desk = AdminDesk(
            self._quotas,
            self._shared.producer_ids,
            self._connections,
            self._quota_source.desk,
            self._rates,
            self._meter.throttle_log,
            replication,
            self._meter.delayed,
            reloads,
        )
        return AdminServer(self._config.admin, self._health, collector, kafka_page, desk)

    def _spawn_all(
        self, worker: Worker, kafka_page: KafkaPage | None, beside: Sequence[Work]
    ) -> list[asyncio.Task[None]]:
        """Begin all that runs until the end. `beside`: the work beside the listeners."""
        work: list[tuple[Work, str]] = [
            *self._quota_source.work(self._apply),
            (partial(self._meter.run, worker.occupied), "usage_meter"),
            (self._expire, "expire"),
            (partial(self._sweep, worker), "sweep"),
            (self._clean_up_ids, "producer_ids_clean_up"),
            (self._serve_ids, "producer_ids"),
            (watch_wall_clock, "wall_clock"),
            *((one, "beside a listener") for one in beside),
        ]
        if kafka_page is not None:
            work.append((partial(kafka_page.run, worker.occupied), "kafka_page"))
        if self._config_watch is not None:
            work.append((partial(self._config_watch.watch, self._reconfigure), "configuration"))
        if self._access_log is not None:
            work.append((self._access_log.run, "access_log"))
        if self._id_file is not None:
            interval_s = self._config.producer_ids.snapshot_interval_s
            work.append((partial(self._id_file.run, self._shared.producer_ids.quota, interval_s), "snapshot"))
        return [keep_running(one, name) for one, name in work]

    async def _until_ready(self) -> None:
        """Wait for what the first request needs: quotas, replication throttles, the access log."""
        await self._until_quotas_are_known()
        await self._replication.until_known()
        if self._access_log is not None:
            await self._access_log.until_ready()

    async def _write_the_rest(self) -> None:
        """Write what is counted but not written yet, and close the places it goes to."""
        self._meter.drain(monotonic() * 1000.0)
        if self._access_log is not None:
            await self._access_log.close(monotonic() * 1000.0)
        if self._id_file is not None:
            await self._id_file.write(self._shared.producer_ids.quota, is_last=True)
        await self._quota_source.close()

    async def _until_quotas_are_known(self) -> None:
        """Or a signal ends the wait: in a topic they may be out of reach, with no copy here."""
        known = spawn(self._quota_source.known(), "quotas_known")
        waits = {known, spawn(self._signalled.wait(), "signalled")}
        done, pending = await asyncio.wait(waits, timeout=_WAITS_TOLD_S, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            _log.warning("waiting_for_quotas", reason="their topic cannot be read yet, and there is no copy")
            _, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in pending:
            wait.cancel()

    def _reloads(self) -> dict[str, list[ReloadStatus]]:
        """Reload status of the files that are followed, by what they hold."""
        found: dict[str, list[ReloadStatus]] = {}
        for status in self._quota_source.statuses():
            found.setdefault("quotas", []).append(status)
        if self._config_watch is not None:
            found["configuration"] = [self._config_watch.status]
        for security in self._securities:
            for what, files in security.followed():
                found.setdefault(what, []).append(files.status)
        return found

    def _assemble(self, worker: Worker) -> list[Work]:
        """Make all listeners. Returns what runs beside them."""
        config = self._config
        warn_of_gaps(config, self._quotas.limits)
        beside: list[Work] = []
        for options, security in zip(config.listeners, self._securities, strict=True):
            policy = self._replication.told(policy_of(config, options, self._costs), options)
            assembled = assemble(
                worker,
                options,
                self._shared,
                policy,
                self._circuits.of(options.upstream_identity),
                security,
                limits=config.limits,
                upstream=config.upstream,
                path=self._path,
            )
            self._listeners.append(assembled.listener)
            self._health.upstreams.append(assembled.upstream)
            beside += [assembled.upstream.run, *assembled.beside]
        return beside + self._replication.work()

    def _apply(self, limits: QuotaLimits) -> None:
        """From now on these are in force; sensors that nobody asks for follow in steps."""
        steps = self._quotas.reload_in_steps(limits, monotonic() * 1000.0)
        next(steps, None)
        spawn(_finish(steps), "quotas")

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(_EXPIRE_INTERVAL_S)
            self._quotas.expire(monotonic() * 1000.0)
            self._rates.expire(monotonic() * 1000.0)

    async def _clean_up_ids(self) -> None:
        while True:
            await asyncio.sleep(self._config.producer_ids.cleanup_interval_s)
            self._shared.producer_ids.expire(monotonic() * 1000.0)

    async def _serve_ids(self) -> None:
        """Wake the connections whose producer ids' turn has come; while nobody waits it does nothing."""
        ids = self._shared.producer_ids
        somebody_waits = asyncio.Event()
        ids.quota.when_due = somebody_waits.set
        while True:
            if ids.quota.due_ms == math.inf:
                somebody_waits.clear()
                await somebody_waits.wait()
            await asyncio.sleep(_TURNS_INTERVAL_S)
            now_ms = monotonic() * 1000.0
            if ids.quota.due_ms <= now_ms:
                ids.serve(now_ms)

    async def _sweep(self, worker: Worker) -> None:
        """End the connections in which nothing moves."""
        while True:
            await beat_of_clients(SWEEP_INTERVAL_MS / 1000.0, worker.occupied)
            now_ms = worker.clock.tick(monotonic() * 1000.0)
            if not any(listener.connections for listener in self._listeners):
                continue
            rules = watch_rules(self._config.limits)
            for listener in self._listeners:
                listener.upstreams.end_misled()
            for number, connection in enumerate(self._connections()):
                connection.sweep(now_ms, rules)
                if number % _SWEPT_AT_ONCE == 0:
                    await asyncio.sleep(0)

    def _reconfigure(self, config: Config) -> None:
        """Put in force what may change while traffic flows (config.LIVE_OPTIONS)."""
        self._config = config
        follow_connection_limits(self._limits, config.limits)
        self._meter.warnings.share = config.quotas.warning_share
        self._shared.left_behind.cap_bytes = config.limits.unfinished_bytes_per_user
        for listener, options in zip(self._listeners, config.listeners, strict=True):
            policy = self._replication.told(policy_of(config, options, self._costs), options)
            listener.policy = replace(policy, broker_map=listener.policy.broker_map)
            listener.authentication_timeout_s = config.limits.authentication_timeout_s
        configure_logging(config.log)

    def _signal(self) -> None:
        self._signals += 1
        self._health.draining = True
        self._signalled.set()

    def _connections(self) -> list[Connection]:
        return [connection for listener in self._listeners for connection in listener.connections]

    async def _drain(self) -> None:
        """Until the last connection is closed, the deadline, or a second signal."""
        begun_s = monotonic()
        deadline_s = begun_s + self._config.drain.deadline_s
        _log.info("draining", connections=len(self._connections()), deadline_s=self._config.drain.deadline_s)
        for listener in self._listeners:
            listener.stop()
        for connection in self._connections():
            connection.drain()
        while self._connections() and monotonic() < deadline_s and self._signals < 2:  # noqa: ASYNC110
            await asyncio.sleep(_DRAIN_POLL_S)
        cut_off = self._connections()
        for connection in cut_off:
            connection.abort(DisconnectCause.DRAIN_DEADLINE)
        _log.info("drained", took_s=round(monotonic() - begun_s, 3), cut_off=len(cut_off))

    async def _stop_everything(self, admin: AdminServer) -> None:
        for listener in self._listeners:
            listener.stop()
        await admin.stop()


async def _finish(steps: Iterator[None]) -> None:
    for _ in steps:
        await asyncio.sleep(0)
