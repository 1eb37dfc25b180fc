"""The proxy's listener and connections in the test's own loop, in front of one port; no process, no quota
file.

What connections leave in the recorder is what the metrics would count.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from sluice.proxy.assembly import assemble, connection_rates
from sluice.proxy.config.config import UpstreamOptions
from sluice.proxy.config.limits import LimitsOptions
from sluice.proxy.config.listener import ListenerOptions
from sluice.proxy.config.pacing import PacingOptions
from sluice.proxy.connection.connection import Connection
from sluice.proxy.connection.limits import ConnectionLimits
from sluice.proxy.connection.worker import Worker
from sluice.proxy.listener.circuit import Circuits
from sluice.proxy.listener.security import ListenerSecurity
from sluice.proxy.quota_store.service import FileStore, QuotaDesk, QuotaStore
from sluice.proxy.runtime.gauges import Gauges
from sluice.proxy.session.causes import DisconnectCause
from sluice.proxy.session.policy import QuotaApi, SessionPolicy
from sluice.quotas.limits.limits import QuotaLimits
from sluice.usage.records import ConnectionRecord
from testkit.frames.wire import WITHIN_S, Wire, dial
from testkit.processes.ports import LOOPBACK
from testkit.proxy.data_paths import current
from testkit.proxy.playbook import limits_of, shared_of


class LocalProxy:
    """Serves in the `async with` block; leaves nothing behind, and lets no fault of ours pass."""

    def __init__(
        self,
        upstream_port: int,
        limits: QuotaLimits | None = None,
        *,
        policy: SessionPolicy | None = None,
        dial_timeout_s: float = 5.0,
        dial_total_s: float = 20.0,
        upstream_host: str = LOOPBACK,
        bind_host: str = LOOPBACK,
        bind_port: int = 0,
        admins: frozenset[str] | None = None,
        store: QuotaStore | None = None,
        security: ListenerSecurity | None = None,
    ) -> None:
        """`limits`: playbook.limits_of(…), or none. `admins`: the proxy answers them what is asked about
        quotas, and keeps what they change in `store`."""
        self.shared = shared_of(limits or limits_of())
        self.gauges = Gauges()
        self._admins = admins
        self._store = store
        self._security = security or ListenerSecurity()
        self._policy = policy or SessionPolicy()
        self._upstream_options = UpstreamOptions(dial_timeout_s=dial_timeout_s, dial_total_s=dial_total_s)
        self.circuits = Circuits()
        self._options = ListenerOptions(
            name="test",
            bind_host=bind_host,
            bind_port=bind_port,
            upstream_host=upstream_host,
            upstream_port=upstream_port,
        )

    def _new_worker(self, limits: ConnectionLimits | None = None) -> Worker:
        """What the connections share, on the data path that is tried."""
        loop = asyncio.get_running_loop()
        worker = Worker(loop, self.shared.recorder, self.gauges, limits, poller=current().poller)
        worker.rates = connection_rates(PacingOptions(), self.shared.quotas, worker.limits, self.gauges)
        self._worker = worker
        return worker

    async def __aenter__(self) -> Self:
        worker = self._new_worker()
        if self._admins is not None:
            store = self._store or FileStore(Path("quotas.yaml"))
            worker.quota_desk = QuotaDesk(lambda: self.shared.quotas.limits, store, self._admins)
            self._policy = replace(self._policy, quota_api=QuotaApi(self._admins))
        self.listener = assemble(
            worker,
            self._options,
            self.shared,
            self._policy,
            self.circuits,
            self._security,
            limits=LimitsOptions(),
            upstream=self._upstream_options,
            path=current(),
        ).listener
        self.listener.start()
        return self

    async def __aexit__(self, failed: type[BaseException] | None, *_: object) -> None:
        self.listener.stop()
        for connection in tuple(self.listener.connections):
            connection.abort(DisconnectCause.DRAIN_DEADLINE)
        await asyncio.sleep(0)
        self._worker.close()
        if failed is None:
            assert not self.listener.connections
            assert self.gauges.connections == 0
            assert not any(self.gauges.delayed.values())

    @property
    def ended(self) -> list[ConnectionRecord]:
        """The connections that ended, in that order."""
        return self.shared.recorder.connections

    @property
    def connections(self) -> set[Connection]:
        """The client connections that are open."""
        return self.listener.connections

    async def client(self, **options: Any) -> Wire:
        """A new client connection."""
        return await dial(self.listener.port, **options)

    async def end(self, number: int = 1) -> ConnectionRecord:
        """How the `number`th connection to end did so."""
        await until(lambda: len(self.ended) >= number)
        return self.ended[number - 1]


async def until(seen: Callable[[], bool], within_s: float = WITHIN_S) -> None:
    """Wait until something can be seen."""
    deadline_s = time.monotonic() + within_s
    while not seen():
        assert time.monotonic() < deadline_s, "it was not seen in time"
        await asyncio.sleep(0.002)
