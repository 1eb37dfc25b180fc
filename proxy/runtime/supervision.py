"""Work that runs as long as the process, in a task or a thread: begun again when an exception ends it.

A fault that comes once costs what was in hand, one that stays costs a line now and then: the pause before the
next beginning doubles up to half a minute, and is short again after work that went well for that long.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any, Final, TypeAlias

from sluice.proxy.runtime.log import get_logger
from sluice.proxy.runtime.tasks import spawn

FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 30.0

restarts: Final[Counter[str]] = Counter()
"""by the name of the work, since the process began; a supervised one that never failed is there with 0"""

Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""makes what is to run; called again for each beginning"""

_log = get_logger()


class BackOff:
    """The pauses of one work."""

    def __init__(self, first_s: float = FIRST_PAUSE_S) -> None:
        self._first_s = first_s
        self._pause_s = first_s
        self._begun_s = monotonic()

    def begins(self) -> None:
        """The work begins now."""
        self._begun_s = monotonic()

    def failed(self, name: str, error: Exception) -> float:
        """It has failed: told and counted. Returns for how many seconds to wait."""
        if monotonic() - self._begun_s >= LONGEST_PAUSE_S:
            self._pause_s = self._first_s
        pause_s, self._pause_s = self._pause_s, min(self._pause_s * 2.0, LONGEST_PAUSE_S)
        restarts[name] += 1
        _log.error("task_failed", task=name, again_in_s=pause_s, exc_info=error)
        return pause_s


def keep_running(work: Work, name: str, first_pause_s: float = FIRST_PAUSE_S) -> asyncio.Task[None]:
    """Run what `work` makes as a task, again after a pause if it fails, until it ends by itself."""
    restarts[name] += 0
    return spawn(_again_and_again(work, name, BackOff(first_pause_s)), name)


async def _again_and_again(work: Work, name: str, back_off: BackOff) -> None:
    while True:
        back_off.begins()
        try:
            return await work()
        except Exception as error:
            await asyncio.sleep(back_off.failed(name, error))


def keep_thread_running(
    work: Callable[[], None],
    name: str,
    failed: Callable[[Exception], None],
    ending: threading.Event,
    first_pause_s: float = FIRST_PAUSE_S,
) -> None:
    """The same within a thread, to be its target; `failed` puts in order what the failure left behind.

    Where the process is `ending` there is no pause.
    """
    restarts[name] += 0
    back_off = BackOff(first_pause_s)
    while True:
        back_off.begins()
        try:
            return work()
        except Exception as error:
            pause_s = back_off.failed(name, error)
            try:
                failed(error)
            except Exception as another:
                _log.error("task_failed", task=name, exc_info=another)
            ending.wait(pause_s)
