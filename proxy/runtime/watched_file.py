"""Notices that a file, or several that belong together, have changed; remembers what became of a new state.

A ConfigMap or Secret is mounted as a chain of symbolic links of which one is exchanged, so a file is known by
what its path leads to: real path, inode, size and time of change. What was read is told apart by its hash: a
touched or re-mounted file with the same content changes nothing. Knows nothing of what is in the files; reads
no content and no clock, and logs nothing.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from sluice.quotas.files.config_error import ConfigError, Problem

SETTLED_S: Final = 1.0
"""A file written twice within one tick of its clock looks unchanged; one this young is read again."""
AGAIN_S: Final = 30.0
"""after which content that could not be put in force is tried again: what never can is a line now and then"""


class ReloadOutcome(StrEnum):
    """The label `outcome` of sluice_config_reloads_total: what became of each new state of the file."""

    SUCCESS = "success"
    """other content is in force"""
    UNCHANGED = "unchanged"
    """the content in force, written anew"""
    INVALID = "invalid"
    """cannot be used, or not be put in force; the last good content stays"""
    UNREADABLE = "unreadable"
    """missing, unreadable, too large or no regular file; the last good content stays"""
    HANGING = "hanging"
    """the file system does not answer; the last good content stays, and what it says then is taken"""


class FileIdentity(NamedTuple):
    """Which file a path leads to, and in what state."""

    real_path: str
    inode: int
    size_bytes: int
    changed_ns: int
    """Unix time"""


Seen: TypeAlias = tuple[FileIdentity | None, ...]
"""What each of the watched paths led to in one look; None where it led nowhere."""


@dataclass(slots=True)
class ReloadStatus:
    """What metrics and readiness tell of a watched file."""

    hash: str = ""
    """of the content in force: the first 12 hexadecimal digits of its SHA-256; empty before the first, and
    where only a part of one is"""
    last_success_unix_s: float = 0.0
    """when the file last held what is in force or came into force"""
    last_error: str = ""
    """why the newest content is not in force; empty when it is"""
    is_back: bool = False
    """the content in force was put back after one that could not be: who did so looks for an answer"""
    outcomes: dict[ReloadOutcome, int] = field(default_factory=lambda: dict.fromkeys(ReloadOutcome, 0))
    """how often each came, the start included"""


def not_in_force(reloads: Mapping[str, Iterable[ReloadStatus]]) -> list[str]:
    """Why the newest content of each followed file is not in force, by what the files hold."""
    return [
        f"{what}: {status.last_error}"
        for what, statuses in reloads.items()
        for status in statuses
        if status.last_error
    ]


class WatchedFiles:
    """Decides, from what a look showed, what to do about it; counts and remembers the outcome.

        seen = identify(paths)
        if watched.wants_reading(seen):
            read all of them, then: watched.take(seen, content hash or error, now)
            SUCCESS: use the content, then watched.accept(hash, now) or watched.refuse(hash, error)

    Not safe for two threads at a time.
    """

    def __init__(self) -> None:
        self.status = ReloadStatus()
        self._seen: Seen = ()
        self._settled = False
        self._refused_hash = ""
        self._refused_error = ""
        self._again_unix_s = inf  # when what was refused is tried again, unchanged
        self._hangs = False

    @property
    def is_at_rest(self) -> bool:
        """Nothing can be new unless `identify` finds something else."""
        return self._settled and not self._hangs and self._again_unix_s == inf

    def hangs(self, error: OSError, paths: Iterable[Path]) -> ReloadOutcome | None:
        """A look has not ended in time (file_work.py). None: nothing new, it still hangs."""
        self._settled = False
        if self._hangs:
            return None
        self._hangs = True
        message = f"cannot be read: {error}"
        return self._failed(
            ReloadOutcome.HANGING, ConfigError([Problem(message, source=str(path)) for path in paths])
        )

    def wants_reading(self, seen: Seen, now_unix_s: float = 0.0) -> bool:
        """Whether the files may hold something that was not read yet, or that may be used by now."""
        self._hangs = False
        if now_unix_s >= self._again_unix_s:
            self._refused_hash = ""
            return True
        return seen != self._seen or not self._settled or None in seen  # why nothing is there may be new

    def take(self, seen: Seen, content_hash: str | ConfigError, now_unix_s: float) -> ReloadOutcome | None:
        """Take in a reading. None: nothing new. SUCCESS: use what was read, then `accept` or `refuse` it."""
        again = seen == self._seen
        self._seen = seen
        ages_s = (now_unix_s - identity.changed_ns / 1e9 for identity in seen if identity is not None)
        self._settled = not any(0 <= age_s < SETTLED_S for age_s in ages_s)
        if isinstance(content_hash, ConfigError):
            if again and self.status.last_error == str(content_hash):
                return None
            self._refused_hash = ""
            self._again_unix_s = inf
            return self._failed(ReloadOutcome.UNREADABLE, content_hash)
        if content_hash == self._refused_hash:
            self.status.last_error = self._refused_error  # a hang in between has put its own there
            return None
        if content_hash != self.status.hash:
            return ReloadOutcome.SUCCESS
        if again and not self.status.last_error:
            return None
        self._refused_hash = ""
        self._succeeded(ReloadOutcome.UNCHANGED, now_unix_s)
        return ReloadOutcome.UNCHANGED

    def accept(self, content_hash: str, now_unix_s: float) -> None:
        """The content with this hash is in force now."""
        self.status.hash = content_hash
        self._refused_hash = ""
        self._succeeded(ReloadOutcome.SUCCESS, now_unix_s)

    def refuse(self, content_hash: str, error: ConfigError, again_unix_s: float = inf) -> None:
        """The content with this hash cannot be used; it is not tried again until it changes, or until
        `again_unix_s`."""
        self._refused_hash = content_hash
        self._refused_error = str(error)
        self._again_unix_s = again_unix_s
        self._failed(ReloadOutcome.INVALID, error)

    def not_applied(
        self, content_hash: str, path: Path, error: Exception, now_unix_s: float
    ) -> ReloadOutcome:
        """The content is good, but putting it in force failed: told as refused, and tried again later."""
        problem = Problem(f"could not be put in force: {error!r}", source=str(path))
        self.refuse(content_hash, ConfigError([problem]), now_unix_s + AGAIN_S)
        return ReloadOutcome.INVALID

    def _succeeded(self, outcome: ReloadOutcome, now_unix_s: float) -> None:
        self._again_unix_s = inf
        self.status.outcomes[outcome] += 1
        self.status.is_back = outcome is ReloadOutcome.UNCHANGED and bool(self.status.last_error)
        self.status.last_success_unix_s = now_unix_s
        self.status.last_error = ""

    def _failed(self, outcome: ReloadOutcome, error: ConfigError) -> ReloadOutcome:
        self.status.outcomes[outcome] += 1
        self.status.last_error = str(error)
        return outcome


def identify(paths: Iterable[Path]) -> Seen:
    """What each of `paths` leads to now. Blocks as long as the file system does."""
    return tuple(_identify(path) for path in paths)


def _identify(path: Path) -> FileIdentity | None:
    try:
        real_path = os.path.realpath(path, strict=True)
        found = os.stat(real_path)
    except OSError:
        return None
    return FileIdentity(real_path, found.st_ino, found.st_size, found.st_mtime_ns)


def hash_of(content: str | bytes) -> str:
    """Names a content in metrics and logs."""
    data = content.encode() if isinstance(content, str) else content
    return hashlib.sha256(data).hexdigest()[:12]
