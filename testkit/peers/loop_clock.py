"""A clock for bounds that a busy machine must not break: how long the proxy waits, not how long it has to."""

from __future__ import annotations

import asyncio
import time
from typing import Final, Self

_STEP_S: Final = 0.005


class LoopClock:
    """Time in which the loop that it shares with the proxy could run: a pause of the process, however long,
    counts as one step. So a session does not end in a pause in which nobody could have renewed it, and what
    is late for want of a processor is not late. While the loop sleeps it goes as any clock does."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._seen_s = time.monotonic()
        self._ticks = asyncio.ensure_future(self._tick())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_STEP_S)
            seen_s = time.monotonic()
            self.now_s += min(seen_s - self._seen_s, 2 * _STEP_S)
            self._seen_s = seen_s

    def stop(self) -> None:
        self._ticks.cancel()
