"""Tells when files may have changed, at no cost to the event loop while they have not.

A daemon thread looks at what the paths lead to, and wakes the loop only for what is new: a proxy that has
nothing to do is not woken each second for every file. Where the kernel tells of changes (file_events.py)
the thread sleeps until it does. A look may hang (a dead network mount); so the loop asks now and then how
long the last look has been under way. What is in the files the thread does not know.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Final, TypeAlias

from sluice.proxy.runtime.file_events import FileEvents
from sluice.proxy.runtime.tasks import to_beat_s
from sluice.proxy.runtime.watched_file import WatchedFiles

_ASKED_EVERY_S: Final = 5.0
"""by the loop, whether the thread still looks"""
_LATE_S: Final = 2.0
"""a look that takes longer is nobody's ordinary file system"""
_SURE_S: Final = 10.0
"""between two looks where the kernel tells of changes: it does not of a folder above that was moved"""

Found: TypeAlias = tuple[tuple[int, ...], ...]
"""of each path what `stat` tells of the file that it leads to; empty: of none"""


class FileSentinel:
    """Watches files that belong together, for one task."""

    def __init__(
        self,
        paths: Iterable[Path],
        interval_s: float,
        watched: WatchedFiles,
        look: Callable[[Iterable[Path]], Found] | None = None,
    ) -> None:
        """`interval_s`: between two looks, at least; `watched`: what the task knows of the files; `look`:
        blocks as long as the file system does."""
        self._paths = tuple(paths)
        self._interval_s = interval_s
        self._watched = watched
        self._look = look or states_of
        self._seen: Found | None = None  # no look yet
        self._looks_since_s = 0.0  # of the look under way; 0: none is
        self._was_late = False
        self._ended = False
        self._thread: threading.Thread | None = None
        self._events: FileEvents | None = None
        self._new = asyncio.Event()

    async def changed(self) -> None:
        """Return when the files may hold something new, or a look at them does not end.

        While what was read may be old (the file is younger than a tick of its clock, a look hangs) it returns
        after each interval. The first call returns at once. A thread that has died is begun again.
        """
        if not self._watched.is_at_rest and self._thread is not None:
            await asyncio.sleep(self._interval_s)
            return
        while not self._new.is_set():
            if self._thread is None or not self._thread.is_alive():
                self._begin()
            with suppress(TimeoutError):
                async with asyncio.timeout(to_beat_s(_ASKED_EVERY_S)):
                    await self._new.wait()
                break
            since_s = self._looks_since_s
            if since_s and monotonic() - since_s > _LATE_S:
                self._was_late = True  # and so is what it finds in the end
                await asyncio.sleep(self._interval_s)
                return
        self._new.clear()

    def close(self) -> None:
        """The thread ends, after an interval at most; one that hangs ends with the process."""
        self._ended = True
        if self._events is not None:
            self._events.end()

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        self._events = FileEvents(self._paths)
        self._thread = threading.Thread(
            target=self._run, args=(loop, self._events), name="file-sentinel", daemon=True
        )
        self._thread.start()

    def _run(self, loop: asyncio.AbstractEventLoop, events: FileEvents) -> None:
        try:
            while not self._ended and self._looked(loop, events):
                pass
        finally:
            events.close()

    def _looked(self, loop: asyncio.AbstractEventLoop, events: FileEvents) -> bool:
        """One look, and the wait after it. Returns False when the loop is closed: the process ends."""
        self._looks_since_s = since_s = monotonic()
        is_told = events.follow()
        seen = self._look(self._paths)
        was_late = self._was_late
        self._looks_since_s, self._was_late = 0.0, False
        if seen != self._seen or was_late:
            self._seen = seen
            try:
                loop.call_soon_threadsafe(self._new.set)
            except RuntimeError:
                return False
        events.wait(_SURE_S if is_told else self._interval_s)
        too_soon_s = self._interval_s - (monotonic() - since_s)
        if too_soon_s > 0.0 and not self._ended:
            sleep(too_soon_s)
        events.drain()
        return True


def states_of(paths: Iterable[Path]) -> Found:
    """Changes whenever `identify` finds something new, for a fifth of its cost. Blocks as it does."""
    return tuple(_state_of(path) for path in paths)


def _state_of(path: Path) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
