"""Snapshots of replication for `sluice top --replication`, without holding up the proxy's own loop.

As snapshot.py: walked in steps, a tenth of the loop's time at most, however often it is asked for.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any

from sluice.proxy.admin.top.walk import LOOP_SHARE, walked
from sluice.proxy.replication.rows import ReplicationSurvey
from sluice.proxy.session.replication.followers import Replication


class ReplicationTop:
    """Makes the snapshots of one process."""

    def __init__(self, replication: Replication | None) -> None:
        """None: no listener has followers."""
        self._replication = replication
        self._lock = asyncio.Lock()
        self._last: dict[str, Any] = {"leader": None}
        self._made_s = -float("inf")
        self._work_s = 0.0

    async def snapshot(self, rows: int) -> dict[str, Any]:
        """At most `rows` partitions (and never more than MAX_ROWS), those with most left first; `leader` is
        null if no listener has followers."""
        if self._replication is None:
            return self._last
        async with self._lock:
            if monotonic() - self._made_s > self._work_s / LOOP_SHARE:
                survey = ReplicationSurvey()
                self._work_s = await walked(survey.steps(self._replication, monotonic() * 1000.0))
                self._last, self._made_s = survey.to_json(), monotonic()
            return {**self._last, "partitions": self._last["partitions"][: max(0, rows)]}
