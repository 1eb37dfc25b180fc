"""The file in which known producer ids survive a restart: read at the start, written now and then, and last.

Written beside and put in its place, so that a reader sees all of one state. What cannot be taken over is
told, counted, and moved aside (`.refused`); the quota then begins empty, which costs waits and loses nothing.
What is in it, and which of that is refused: quotas/producer_id_snapshot.py.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Final

from sluice.proxy.config_listener import ListenerOptions
from sluice.proxy.log import get_logger
from sluice.quotas.config_error import ConfigError, Problem
from sluice.quotas.producer_id_quota import ProducerIdQuota
from sluice.quotas.producer_id_snapshot import Part, SnapshotError, restore_snapshot, sealed, snapshot_parts

_KEY: Final = "producer_ids.snapshot_file"
_LEFT_OUT_TOLD: Final = 20

_log = get_logger()


class SnapshotOutcome(StrEnum):
    """What became of one look at, or one writing of, the file."""

    RESTORED = "restored"
    ABSENT = "absent"
    """at the start, as at the very first"""
    REFUSED = "refused"
    """damaged, foreign, of another version, or from the future"""
    UNREADABLE = "unreadable"
    WRITTEN = "written"
    FAILED = "failed"
    """to be written"""


def scope_of(listeners: Iterable[ListenerOptions]) -> str:
    """Whose ids a process counts: the brokers behind it."""
    return "; ".join(sorted({listener.upstream for listener in listeners}))


class ProducerIdFile:
    """Of one process."""

    def __init__(self, path: Path, scope: str) -> None:
        """`scope`: the brokers behind. Raises ConfigError if no file could ever be written there."""
        self._path = path
        self._scope = scope
        self._beside = path.with_name(f".{path.name}.new")
        self._lock = threading.Lock()
        self._taken = 0
        self._written = 0
        self.outcomes = dict.fromkeys(map(str, SnapshotOutcome), 0)
        """how often each; never falls"""
        self.last_written_unix_s = 0.0
        """when the state that the file holds was taken; 0: nothing was written yet"""
        problem = _unusable(path)
        if problem:
            raise ConfigError([Problem(problem, path=_KEY)])

    def restore(self, quota: ProducerIdQuota) -> None:
        """Take over what the file holds; `quota` must be new. Blocks; never fails but by beginning empty."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            self._count(SnapshotOutcome.ABSENT)
            _log.info("producer_ids_begin_empty", file=str(self._path), reason="there is no file yet")
            return
        except OSError as error:
            self._count(SnapshotOutcome.UNREADABLE)
            _log.error("producer_ids_begin_empty", file=str(self._path), reason=str(error))
            return
        try:
            left_out = restore_snapshot(quota, data, self._scope, time.monotonic() * 1e3, time.time() * 1e3)
        except SnapshotError as error:
            self._count(SnapshotOutcome.REFUSED)
            kept = self._move_aside()
            _log.error("producer_ids_begin_empty", file=str(self._path), reason=str(error), kept_as=kept)
            return
        self._count(SnapshotOutcome.RESTORED)
        principals = list(quota.principals())
        _log.info(
            "producer_ids_restored",
            file=str(self._path),
            users=len(principals),
            ids=sum(len(principal.store) for principal in principals),
            left_out=left_out[:_LEFT_OUT_TOLD],
        )

    async def run(self, quota: ProducerIdQuota, interval_s: float) -> None:
        """Write it every so often, until cancelled."""
        while True:
            await asyncio.sleep(interval_s)
            await self.write(quota)

    async def write(self, quota: ProducerIdQuota) -> bool:
        """Put the state of this moment into the file. False, told and counted: that failed."""
        taken_unix_s = time.time()
        parts = snapshot_parts(quota, self._scope, time.monotonic() * 1e3, taken_unix_s * 1e3)
        self._taken += 1
        try:
            await asyncio.to_thread(self._put, parts, self._taken)
        except OSError as error:
            self._count(SnapshotOutcome.FAILED)
            _log.error("producer_ids_not_written", file=str(self._path), reason=str(error))
            return False
        self._count(SnapshotOutcome.WRITTEN)
        self.last_written_unix_s = taken_unix_s
        return True

    def _put(self, parts: list[Part], number: int) -> None:
        """One at a time, and none after a later one: a thread goes on when its task is cancelled."""
        data = sealed(parts)
        with self._lock:
            if number < self._written:
                return
            with open(self._beside, "wb", opener=_private) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(self._beside, self._path)
            self._written = number

    def _move_aside(self) -> str:
        """It may be another broker's, or be of use to who asks why it is damaged."""
        kept = self._path.with_name(f"{self._path.name}.refused")
        try:
            os.replace(self._path, kept)
        except OSError as error:
            return f"not kept: {error}"
        return str(kept)

    def _count(self, outcome: SnapshotOutcome) -> None:
        self.outcomes[str(outcome)] += 1


def _private(path: str, flags: int) -> int:
    """Names of users stand in it."""
    return os.open(path, flags, 0o600)


def _unusable(path: Path) -> str:
    """Why no file can be there; empty: one can."""
    folder = path.parent
    if not folder.is_dir():
        return f"there is no folder {folder}; make it, or name a file in one that is there"
    if path.is_dir():
        return f"{path} is a folder; name a file in it"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"nothing can be written into the folder {folder} by this user"
    return ""
