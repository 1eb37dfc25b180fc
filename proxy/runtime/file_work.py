"""Work on files that may hang (a dead network mount), away from the event loop, with a time limit.

A thread of its own and a daemon: asyncio's executor joins its threads at the end of the process, and one that
hangs would keep the process from ending. Work that hangs is not begun a second time beside itself: one place,
one thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

from sluice.quotas.files.config_error import ConfigError, Problem

LIMIT_S: Final = 10.0
"""for one look at a file: beyond that it hangs"""
_LAST_WAIT_S: Final = 3.0
"""longest wait, at the end of the process, for a writing that is under way"""

_Found = TypeVar("_Found")


class FileHangs(TimeoutError):
    """The file system has not answered in time; an OSError, with words."""


class FileWork(Generic[_Found]):
    """Work of one kind at one place, at most once at a time."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._under_way: asyncio.Future[_Found] | None = None
        self._hangs = False

    async def run(self, work: Callable[[], _Found]) -> _Found:
        """What `work` comes to; if earlier work hung and has ended since, what that came to: ask again.

        Raises what it raises, and FileHangs: it goes on, and nobody waits for it.
        """
        if self._under_way is None:
            self._under_way = _begun(work)
        under_way = self._under_way
        await asyncio.wait((under_way,), timeout=0.0 if self._hangs else self._limit_s)
        self._hangs = not under_way.done()
        if self._hangs:
            raise FileHangs(f"no answer of the file system in {self._limit_s:g} s")
        self._under_way = None
        return under_way.result()

    async def run_anew(self, work: Callable[[], _Found]) -> _Found:
        """The same for work that writes: what hung before and has ended since is of no interest."""
        if self._under_way is not None and self._under_way.done():
            self._under_way.exception()  # seen
            self._under_way, self._hangs = None, False
        if self._under_way is not None:
            raise FileHangs("the last one still waits for the file system")
        return await self.run(work)

    async def run_last(self, work: Callable[[], _Found]) -> _Found:
        """The same at the end of the process: one under way, whose task was cancelled, is waited for a few
        seconds, unless it hangs already."""
        if self._under_way is not None and not self._hangs:
            await asyncio.wait((self._under_way,), timeout=min(_LAST_WAIT_S, self._limit_s))
        return await self.run_anew(work)


def _begun(work: Callable[[], _Found]) -> asyncio.Future[_Found]:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_Found] = loop.create_future()

    def settle(error: BaseException | None, found: Any) -> None:
        if future.cancelled():
            return
        if error is None:
            future.set_result(found)
        else:
            future.set_exception(error)

    def run() -> None:
        error, found = _outcome(work)
        with suppress(RuntimeError):  # the loop is closed: the process ends
            loop.call_soon_threadsafe(settle, error, found)

    threading.Thread(target=run, name="file-work", daemon=True).start()
    return future


def within(what: str, work: Callable[[], _Found], limit_s: float = LIMIT_S) -> _Found:
    """`work` at the start, before there is a loop. Raises what it raises; ConfigError if it hangs."""
    outcome: list[tuple[BaseException | None, Any]] = []
    thread = threading.Thread(target=lambda: outcome.append(_outcome(work)), name="file-work", daemon=True)
    thread.start()
    thread.join(limit_s)
    if not outcome:
        message = f"cannot be read: no answer of the file system in {limit_s:g} s"
        raise ConfigError([Problem(message, source=what)])
    error, found = outcome[0]
    if error is not None:
        raise error
    result: _Found = found
    return result


def _outcome(work: Callable[[], _Found]) -> tuple[BaseException | None, _Found | None]:
    try:
        return None, work()
    except BaseException as error:
        return error, None
