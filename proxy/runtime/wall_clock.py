"""Tells when the machine's wall clock was set: by it go the access log's times and the quotas' calendars.

Delays, quotas and timeouts go by the monotonic clock, which nobody can set.
"""

from __future__ import annotations

from time import monotonic, time
from typing import Final

from sluice.proxy.runtime.log import get_logger
from sluice.proxy.runtime.tasks import next_beat

_INTERVAL_S: Final = 5.0
_JUMP_S: Final = 2.0
"""far above what a slewed clock (500 ppm) is off between two looks"""

_log = get_logger()


class WallClock:
    """How far the wall clock is ahead of the monotonic one."""

    def __init__(self, monotonic_s: float, unix_s: float) -> None:
        self._ahead_s = unix_s - monotonic_s

    def look(self, monotonic_s: float, unix_s: float) -> None:
        """Both clocks now, read in this order."""
        ahead_s = unix_s - monotonic_s
        by_s = ahead_s - self._ahead_s
        self._ahead_s = ahead_s
        if abs(by_s) >= _JUMP_S:
            _log.warning(
                "clock_jumped",
                by_s=round(by_s, 1),
                reason="the machine's clock was set, or the machine was suspended; the access log's times "
                "and the quotas' calendars go by it",
            )


async def watch_wall_clock(interval_s: float = _INTERVAL_S) -> None:
    """Compare the clocks again and again, until cancelled."""
    clock = WallClock(monotonic(), time())
    while True:
        await next_beat(interval_s)
        clock.look(monotonic(), time())
