"""Notices that the quota file has changed, reads it, swaps the limits; on an error the last good ones stay.

When the file has changed, and what became of each state of it, is decided in runtime/watched_file.py. Limits
with a calendar are swapped here, too, when a window begins or ends: by the same way, so that nobody's
connection or debt is lost by it (quotas/limits/scheduled.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Final

from sluice.proxy.runtime.file_sentinel import FileSentinel
from sluice.proxy.runtime.file_work import LIMIT_S, FileHangs, FileWork, within
from sluice.proxy.runtime.log import get_logger
from sluice.proxy.runtime.tasks import in_turns
from sluice.proxy.runtime.watched_file import (
    ReloadOutcome,
    ReloadStatus,
    Seen,
    WatchedFiles,
    hash_of,
    identify,
)
from sluice.quotas.files.config_error import ConfigError, QuotaFileError
from sluice.quotas.files.load import read_text
from sluice.quotas.files.quota_file import parse_quotas, parse_quotas_in_steps, take_all
from sluice.quotas.limits.limits import QuotaLimits
from sluice.quotas.limits.scheduled import LimitsAt, limits_at, limits_at_in_steps

_LOGGED_PROBLEMS: Final = 20

_log = get_logger()


class QuotaFile:
    """One quota file, followed. Start-up calls `load`, then a task runs `watch`."""

    def __init__(
        self,
        path: Path,
        clock: Callable[[], float] = time.time,
        hangs_after_s: float = LIMIT_S,
        *,
        check: Callable[[QuotaLimits], None] = take_all,
    ) -> None:
        """`clock`: Unix seconds, for calendars. `hangs_after_s`: of a look. `check`: raises QuotaFileError
        for limits, without calendars, that may not be in this file; it is then invalid."""
        self._path = path
        self._clock = clock
        self._check_limits = check
        self._watched = WatchedFiles()
        self._work: FileWork[tuple[Seen, str | ConfigError | None]] = FileWork(hangs_after_s)
        self.base = QuotaLimits()
        """the limits of the file, as they are without calendars"""
        self._evaluated_unix_s = 0.0
        self._until_unix_s = inf

    @property
    def status(self) -> ReloadStatus:
        """What became of the file so far; the same object always."""
        return self._watched.status

    def load(self) -> QuotaLimits:
        """The limits at start-up; blocks. Raises QuotaFileError: the file is missing or cannot be used."""
        seen, text = within(str(self._path), self._look)
        now_unix_s = time.time()
        if text is None or isinstance(text, ConfigError):
            raise QuotaFileError(text.problems if text is not None else ())
        self._watched.take(seen, hash_of(text), now_unix_s)
        limits = parse_quotas(text, str(self._path))
        self._check_limits(limits)
        self._watched.accept(hash_of(text), now_unix_s)
        self.base = limits
        now_unix_s = self._clock()
        return self._evaluated(limits_at(limits, now_unix_s), now_unix_s)

    async def watch(self, interval_s: float, apply: Callable[[QuotaLimits], None]) -> None:
        """Look every `interval_s` until cancelled; `apply` puts new limits in force, in the event loop."""
        sentinel = FileSentinel((self._path,), interval_s, self._watched)
        try:
            while True:
                if self.base.schedules:  # a window may begin or end, whatever the file
                    await asyncio.sleep(interval_s)
                else:
                    await sentinel.changed()
                await self.check(apply)
        finally:
            sentinel.close()

    async def check(self, apply: Callable[[QuotaLimits], None]) -> ReloadOutcome | None:
        """One look: reading is done in a thread, parsing in small steps between which connections are served.

        Returns what became of a new state of the file, None if there is none. Never raises ConfigError.
        """
        outcome = await self._check_file(apply)
        if outcome is not ReloadOutcome.SUCCESS and self._is_due(self._clock()):
            limits = await self._put_in_force(apply)
            if self.base.schedules:  # else what was in force before a file that could not be is so again
                _log.info("quotas_scheduled", file=str(self._path), entities=len(limits.scheduled))
        return outcome

    def _is_due(self, now_unix_s: float) -> bool:
        """A window has begun or ended since the limits were evaluated; or the clock was put back."""
        if self._until_unix_s == -inf:  # they could not be put in force
            return True
        if now_unix_s < self._evaluated_unix_s:
            return bool(self.base.schedules)
        return now_unix_s >= self._until_unix_s

    async def _put_in_force(self, apply: Callable[[QuotaLimits], None]) -> QuotaLimits:
        """The limits as they are now. Raises what `apply` raises; they are due again then."""
        now_unix_s = self._clock()
        found = await in_turns(limits_at_in_steps(self.base, now_unix_s))
        self._until_unix_s = -inf
        apply(found.limits)
        return self._evaluated(found, now_unix_s)

    def _evaluated(self, found: LimitsAt, now_unix_s: float) -> QuotaLimits:
        self._evaluated_unix_s = now_unix_s
        self._until_unix_s = found.until_unix_s
        return found.limits

    async def _check_file(self, apply: Callable[[QuotaLimits], None]) -> ReloadOutcome | None:
        try:
            seen, text = await self._work.run(self._look)
        except FileHangs as error:
            hanging = self._watched.hangs(error, (self._path,))
            if hanging is not None:
                self._log_kept(hanging)
            return hanging
        if text is None:
            return None
        outcome = self._watched.take(
            seen, text if isinstance(text, ConfigError) else hash_of(text), time.time()
        )
        if outcome is ReloadOutcome.UNREADABLE:
            self._log_kept(outcome)
        if outcome is ReloadOutcome.UNCHANGED and self.status.is_back:
            _log.info("quotas_in_force_again", file=str(self._path), hash=self.status.hash)
        if outcome is not ReloadOutcome.SUCCESS or isinstance(text, ConfigError):
            return outcome
        try:
            base = await in_turns(parse_quotas_in_steps(text, str(self._path)))
            self._check_limits(base)
        except QuotaFileError as error:
            self._watched.refuse(hash_of(text), error)
            self._log_kept(ReloadOutcome.INVALID)
            return ReloadOutcome.INVALID
        before, self.base = self.base, base
        try:
            limits = await self._put_in_force(apply)
        except Exception as error:
            self.base = before
            outcome = self._watched.not_applied(hash_of(text), self._path, error, time.time())
            self._log_kept(outcome, error)
            return outcome
        self._watched.accept(hash_of(text), time.time())
        _log.info("quotas_applied", file=str(self._path), hash=self.status.hash, entities=len(limits.entries))
        return ReloadOutcome.SUCCESS

    def _look(self) -> tuple[Seen, str | ConfigError | None]:
        """What the path leads to and, if that may be new, its text or why it cannot be read."""
        seen = identify((self._path,))
        if not self._watched.wants_reading(seen, time.time()):
            return seen, None
        try:
            return seen, read_text(self._path, "quota")
        except ConfigError as error:
            return seen, error

    def _log_kept(self, outcome: ReloadOutcome, error: Exception | None = None) -> None:
        problems = self.status.last_error.splitlines()
        _log.error(
            "quotas_not_applied",
            outcome=str(outcome),
            file=str(self._path),
            hash_kept=self.status.hash,
            problems=problems[:_LOGGED_PROBLEMS],
            problems_not_shown=max(0, len(problems) - _LOGGED_PROBLEMS),
            exc_info=error,
        )
