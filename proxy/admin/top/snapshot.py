"""Snapshots of who is throttled, for `sluice top`: made in the proxy's own loop, without holding it up.

A survey is walked in steps of below a millisecond, and costs the loop at most a tenth of its time, however
often it is asked for: until then the last one is given again (`age_ms` tells).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from time import monotonic
from types import MappingProxyType
from typing import Any, Final

from sluice.proxy.admin.top.order import MAX_ROWS
from sluice.proxy.admin.top.rows import Survey
from sluice.proxy.admin.top.search import Connected
from sluice.proxy.admin.top.walk import LOOP_SHARE, walked
from sluice.proxy.connection.rates import AddressBuckets
from sluice.proxy.metrics.delayed_time import DelayedTimes
from sluice.proxy.runtime.watched_file import ReloadStatus, not_in_force
from sluice.proxy.session.producer_ids.shared import ProducerIds
from sluice.quotas.manager import QuotaManager

_MIN_AGE_S: Final = 0.1
_ROWS_PER_STEP: Final = 5
MAX_MEMBERS: Final = 1_000
"""of a tenant that are told"""


class Top:
    """Makes the snapshots of one process."""

    def __init__(
        self,
        quotas: QuotaManager,
        producer_ids: ProducerIds,
        connections: Callable[[], Sequence[Connected]],
        addresses: Callable[[], AddressBuckets] = AddressBuckets,
        delayed: DelayedTimes | None = None,
        reloads: Mapping[str, Sequence[ReloadStatus]] = MappingProxyType({}),
    ) -> None:
        """`connections`: a list of the live ones, made anew; `addresses`: so of connection_creation_rate.
        `delayed`: of the last minute; `reloads`: of the files that are followed, by what they hold."""
        self._quotas = quotas
        self._producer_ids = producer_ids
        self._connections = connections
        self._addresses = addresses
        self._delayed = delayed
        self._reloads = reloads
        self._lock = asyncio.Lock()
        self._last = Survey()
        self._made_s = -float("inf")
        self._work_s = 0.0

    async def snapshot(self, rows: int = MAX_ROWS, *, why: bool = False) -> dict[str, Any]:
        """At most `rows` buckets (and never more than MAX_ROWS), the most throttled first."""
        async with self._lock:
            age_s = monotonic() - self._made_s
            if age_s > max(_MIN_AGE_S, self._work_s / LOOP_SHARE):
                await self._survey()
            survey, age_s = self._last, monotonic() - self._made_s
            limits = self._quotas.limits
            shown = survey.rows[: max(0, rows)]
            found = []
            for number, row in enumerate(shown, start=1):
                members = limits.tenants.get(row.bucket.get("tenant", ""), ())
                found.append(row.to_json(limits if why else None, members[:MAX_MEMBERS]))
                if number % _ROWS_PER_STEP == 0:
                    await asyncio.sleep(0)
        return {
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "age_ms": round(age_s * 1000.0, 1),
            "work_ms": round(self._work_s * 1000.0, 2),
            "pacing": self._quotas.pacing,
            "not_in_force": not_in_force(self._reloads),
            "buckets": survey.sensors,
            "active_buckets": survey.active,
            "throttled_buckets": survey.throttled,
            "delayed_buckets_1m": survey.delayed,
            "connections": survey.connections,
            "throttled_connections": survey.throttled_connections,
            "rows": found,
        }

    async def _survey(self) -> None:
        survey = Survey(max_debt_ms=self._quotas.max_debt_ms)
        sensors = list(self._quotas.sensors())
        steps = survey.steps(
            sensors,
            self._producer_ids,
            self._quotas.limits,
            self._connections,
            lambda: monotonic() * 1000.0,
            self._addresses(),
            self._delayed,
        )
        work_s = await walked(steps)
        self._last, self._made_s, self._work_s = survey, monotonic(), work_s
