"""Notices that the quota file has changed, reads it, swaps the limits; on an error the last good ones stay.

A ConfigMap is mounted as a chain of symbolic links of which one is exchanged, so a file is recognised by what
its path leads to: real path, inode, size and time of change. What was read is told apart by its hash, so that
a touched or re-mounted file with the same content changes nothing. Deciding (QuotaFileState) does no I/O.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from sluice.proxy.config_error import ConfigError, QuotaFileError
from sluice.proxy.config_file import read_text
from sluice.proxy.log import get_logger
from sluice.proxy.quota_file import parse_quotas, parse_quotas_in_steps
from sluice.quotas.limits import QuotaLimits

SETTLED_S: Final = 1.0
"""A file written twice within one tick of its clock looks unchanged; one this young is read again."""
_LOGGED_PROBLEMS: Final = 20

_log = get_logger()


class ReloadOutcome(StrEnum):
    """The label `outcome` of sluice_config_reloads_total: what became of each new state of the file."""

    SUCCESS = "success"
    """other limits are in force"""
    UNCHANGED = "unchanged"
    """the content in force, written anew"""
    INVALID = "invalid"
    """cannot be used; the last good limits stay"""
    UNREADABLE = "unreadable"
    """missing or unreadable; the last good limits stay"""


class FileIdentity(NamedTuple):
    """Which file a path leads to, and in what state."""

    real_path: str
    inode: int
    size_bytes: int
    changed_ns: int
    """Unix time"""


@dataclass(slots=True)
class ReloadStatus:
    """What metrics and readiness tell of the quota file."""

    hash: str = ""
    """of the content in force: the first 12 hexadecimal digits of its SHA-256; empty before the first"""
    last_success_unix_s: float = 0.0
    """when the file last held what is in force or came into force"""
    last_error: str = ""
    """why the newest content is not in force; empty when it is"""
    outcomes: dict[ReloadOutcome, int] = field(default_factory=lambda: dict.fromkeys(ReloadOutcome, 0))
    """how often each came, the start included"""


class QuotaFileState:
    """Decides, from what a look at the file showed, what to do about it; counts and remembers the outcome."""

    def __init__(self) -> None:
        self.status = ReloadStatus()
        self._seen: FileIdentity | None = None
        self._settled = False
        self._refused_hash = ""

    def wants_reading(self, identity: FileIdentity | None) -> bool:
        """Whether the file may hold something that was not read yet. None: there is no file."""
        return identity != self._seen or not self._settled

    def take(
        self, identity: FileIdentity | None, text: str | ConfigError, now_unix_s: float
    ) -> ReloadOutcome | None:
        """Take in a reading. None: nothing new. SUCCESS: parse `text`, then call `accept` or `refuse`."""
        again = identity == self._seen
        self._seen = identity
        age_s = now_unix_s - identity.changed_ns / 1e9 if identity is not None else SETTLED_S
        self._settled = not 0 <= age_s < SETTLED_S
        if isinstance(text, ConfigError):
            if again and self.status.last_error:
                return None
            self._refused_hash = ""
            return self._failed(ReloadOutcome.UNREADABLE, text)
        text_hash = hash_of(text)
        if text_hash == self._refused_hash:
            return None
        if text_hash != self.status.hash:
            return ReloadOutcome.SUCCESS
        if again and not self.status.last_error:
            return None
        self._refused_hash = ""
        self._succeeded(ReloadOutcome.UNCHANGED, now_unix_s)
        return ReloadOutcome.UNCHANGED

    def accept(self, text: str, now_unix_s: float) -> None:
        """The limits in `text` are in force now."""
        self.status.hash = hash_of(text)
        self._refused_hash = ""
        self._succeeded(ReloadOutcome.SUCCESS, now_unix_s)

    def refuse(self, text: str, error: ConfigError) -> None:
        """`text` cannot be used; it is not tried again until it changes."""
        self._refused_hash = hash_of(text)
        self._failed(ReloadOutcome.INVALID, error)

    def _succeeded(self, outcome: ReloadOutcome, now_unix_s: float) -> None:
        self.status.outcomes[outcome] += 1
        self.status.last_success_unix_s = now_unix_s
        self.status.last_error = ""

    def _failed(self, outcome: ReloadOutcome, error: ConfigError) -> ReloadOutcome:
        self.status.outcomes[outcome] += 1
        self.status.last_error = str(error)
        return outcome


class QuotaFile:
    """One quota file, followed. Start-up calls `load`, then a task runs `watch`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._state = QuotaFileState()

    @property
    def status(self) -> ReloadStatus:
        """What became of the file so far; the same object always."""
        return self._state.status

    def load(self) -> QuotaLimits:
        """The limits at start-up; blocks. Raises QuotaFileError: the file is missing or cannot be used."""
        identity, text = self._look()
        now_unix_s = time.time()
        if text is None or isinstance(text, ConfigError):
            raise QuotaFileError(text.problems if text is not None else ())
        self._state.take(identity, text, now_unix_s)
        limits = parse_quotas(text, str(self._path))
        self._state.accept(text, now_unix_s)
        return limits

    async def watch(self, interval_s: float, apply: Callable[[QuotaLimits], None]) -> None:
        """Look every `interval_s` until cancelled; `apply` puts new limits in force, in the event loop."""
        while True:
            await asyncio.sleep(interval_s)
            await self.check(apply)

    async def check(self, apply: Callable[[QuotaLimits], None]) -> ReloadOutcome | None:
        """One look: reading is done in a thread, parsing in small steps between which connections are served.

        Returns what became of a new state of the file, None if there is none. Never raises ConfigError.
        """
        identity, text = await asyncio.to_thread(self._look)
        if text is None:
            return None
        outcome = self._state.take(identity, text, time.time())
        if outcome is ReloadOutcome.UNREADABLE:
            self._log_kept(outcome)
        if outcome is not ReloadOutcome.SUCCESS or isinstance(text, ConfigError):
            return outcome
        steps = parse_quotas_in_steps(text, str(self._path))
        while True:
            try:
                next(steps)
            except StopIteration as done:
                limits: QuotaLimits = done.value
                break
            except QuotaFileError as error:
                self._state.refuse(text, error)
                self._log_kept(ReloadOutcome.INVALID)
                return ReloadOutcome.INVALID
            await asyncio.sleep(0)
        apply(limits)
        self._state.accept(text, time.time())
        _log.info("quotas_applied", file=str(self._path), hash=self.status.hash, entities=len(limits.entries))
        return ReloadOutcome.SUCCESS

    def _look(self) -> tuple[FileIdentity | None, str | ConfigError | None]:
        """What the path leads to and, if that may be new, its text or why it cannot be read."""
        identity = identify(self._path)
        if not self._state.wants_reading(identity):
            return identity, None
        try:
            return identity, read_text(self._path, "quota")
        except ConfigError as error:
            return identity, error

    def _log_kept(self, outcome: ReloadOutcome) -> None:
        problems = self.status.last_error.splitlines()
        _log.error(
            "quotas_not_applied",
            outcome=str(outcome),
            file=str(self._path),
            hash_kept=self.status.hash,
            problems=problems[:_LOGGED_PROBLEMS],
            problems_not_shown=max(0, len(problems) - _LOGGED_PROBLEMS),
        )


def identify(path: Path) -> FileIdentity | None:
    """What `path` leads to; None when it leads nowhere."""
    try:
        real_path = os.path.realpath(path, strict=True)
        found = os.stat(real_path)
    except OSError:
        return None
    return FileIdentity(real_path, found.st_ino, found.st_size, found.st_mtime_ns)


def hash_of(text: str) -> str:
    """Names a content in metrics and logs."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]
